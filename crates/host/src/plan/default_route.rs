//! Decides how all packets are led into the tunnel, and which packets stay outside.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::PlanError;
use super::routes::{Routes, push_once};
use crate::step::{MAIN, SRC_VALID_MARK, SavedRoute, Step};
use crate::want::{DefaultV4, DefaultV6};
use crate::ways::{FIRST_METRIC, masked};

/// First mark and table that are tried for default routes by rules, if the configuration names no mark. Every WireGuard
/// tool begins with this number.
const FIRST_TABLE: u32 = 51820;

/// Number of tables that are tried from [`FIRST_TABLE`] on.
const TABLES_TRIED: u32 = 1000;

/// The global IPv6 networks, more specific than a default route, as OpenVPN redirects them.
const GLOBAL_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::UNSPECIFIED, 3),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 4),
    (Ipv6Addr::new(0x3000, 0, 0, 0, 0, 0, 0, 0), 4),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
];

/// The two halves of each family.
const HALVES_V4: [Ipv4Addr; 2] = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(128, 0, 0, 0)];
const HALVES_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::UNSPECIFIED,
    Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0),
];

impl Routes<'_> {
    pub(super) fn add_default_routes(&mut self) -> Result<(), PlanError> {
        let v6 = self.want.default_v6.filter(|_| self.v6);
        match self.want.default_v4 {
            Some(DefaultV4::Halves) => self.lead_all(false),
            Some(DefaultV4::Replace) => self.replace(),
            Some(DefaultV4::Rules) | None => {}
        }
        if self.want.block_local {
            self.block_local();
        }
        if v6 == Some(DefaultV6::Global) && !self.want.block_ipv6 {
            self.lead_all(true);
        }
        // IPv6 that the tunnel cannot carry must not leave through the host's own uplink.
        let cut_off = self.want.default_v6.is_some() && !self.v6;
        if self.want.block_ipv6 || cut_off {
            self.block_all_v6();
        }
        for own in self.want.addresses.iter().filter(|it| it.addr.is_ipv6()) {
            if !self.v6 && own.prefix < 128 {
                self.block(masked(own.addr, own.prefix), own.prefix);
            }
        }
        let v4 = self.want.default_v4 == Some(DefaultV4::Rules);
        let v6 = v6 == Some(DefaultV6::Rules);
        if !self.facts.suppress_prefixlength {
            if v4 || v6 {
                self.add_halves(v4, v6);
            }
            return self.keep_covered();
        }
        let mut ranges = self.take_covering();
        if v4 {
            ranges.push((Ipv4Addr::UNSPECIFIED.into(), 0));
        }
        if v6 {
            ranges.push((Ipv6Addr::UNSPECIFIED.into(), 0));
        }
        self.keep_covered()?;
        match ranges.is_empty() {
            true => Ok(()),
            false => self.add_rules(&ranges),
        }
    }

    /// Adds a route into the tunnel to the main table.
    fn lead(&mut self, dst: IpAddr, prefix: u8, optional: bool) {
        let via = self.router().filter(|_| dst.is_ipv4());
        self.lead_in(Step::Route {
            dst,
            prefix,
            via,
            metric: None,
            table: MAIN,
            optional,
            first: true,
        });
    }

    /// Leads all packets of a family by routes that win over every default route of the host, whatever its metric and
    /// however late it is added.
    pub(super) fn lead_all(&mut self, v6: bool) {
        if !v6 {
            return self.lead_halves(&HALVES_V4);
        }
        for (network, prefix) in GLOBAL_V6 {
            self.lead(network.into(), prefix, false);
        }
    }

    /// Makes the global IPv6 networks unreachable.
    pub(super) fn block_all_v6(&mut self) {
        for (network, prefix) in GLOBAL_V6 {
            self.block(network.into(), prefix);
        }
    }

    fn lead_halves<A: Copy + Into<IpAddr>>(&mut self, halves: &[A; 2]) {
        for &half in halves {
            self.lead(half.into(), 1, false);
        }
    }

    /// Adds a default route, or two halves if the host's default route has several next hops and could not be restored.
    fn replace(&mut self) {
        // Our default route has metric 0: only one with that metric is in the way.
        let in_the_way = |metric: Option<u32>| metric.unwrap_or(0) == 0;
        let defaults = self.facts.defaults.iter();
        let mut displaced = Vec::new();
        for route in defaults.filter(|r| r.dst.is_ipv4() && in_the_way(r.metric)) {
            let Some(saved) = SavedRoute::new(route) else {
                self.plan.warnings.push(
                    "the default route has several ways and is not replaced: two halves win over \
                     it, as with def1"
                        .to_owned(),
                );
                return self.lead_all(false);
            };
            displaced.push(Step::Displace(saved));
        }
        self.displaced.append(&mut displaced);
        self.lead(Ipv4Addr::UNSPECIFIED.into(), 0, false);
    }

    /// Leads two halves of the local network into the tunnel, except its gateway.
    fn block_local(&mut self) {
        let Some(default) = self.facts.default_of(false) else {
            return;
        };
        let (Some(gateway), Some(dev)) = (default.via, default.dev) else {
            return;
        };
        // The server itself is on that network: two halves would cut it off.
        let mut endpoints = self.facts.endpoints.iter();
        if endpoints.any(|way| way.via.is_none() || way.addr == gateway) {
            self.plan
                .warnings
                .push("block-local is left out: the server is on the local network".to_owned());
            return;
        }
        push_once(
            &mut self.past,
            Step::OuterRoute {
                dst: gateway,
                prefix: 32,
                via: None,
                dev,
                metric: FIRST_METRIC,
                towards: None,
            },
        );
        for &(addr, prefix) in &self.facts.local_networks {
            let IpAddr::V4(low) = masked(addr, prefix) else {
                continue;
            };
            if prefix >= 31 {
                continue;
            }
            let half = 1_u32 << (31 - prefix);
            for bits in [low.to_bits(), low.to_bits() | half] {
                self.lead(Ipv4Addr::from_bits(bits).into(), prefix + 1, true);
            }
        }
    }

    /// Adds routes in a table of the tunnel's own, for all packets but the tunnel's.
    fn add_rules(&mut self, ranges: &[(IpAddr, u8)]) -> Result<(), PlanError> {
        let table = match self.want.fwmark {
            0 => (FIRST_TABLE..FIRST_TABLE + TABLES_TRIED)
                .find(|table| !self.facts.used_tables.contains(table))
                .ok_or(PlanError::NoTable)?,
            mark => mark,
        };
        self.plan.fwmark = table;
        if ranges.iter().any(|(network, _)| network.is_ipv4()) {
            self.please_strict_filter();
            self.add_rules_of(false, ranges, table);
            self.mark_is_valid();
        }
        if ranges.iter().any(|(network, _)| network.is_ipv6()) {
            self.add_rules_of(true, ranges, table);
        }
        Ok(())
    }

    /// Adds the routes of one family, and two rules for each length of their prefixes. They make the main table decide
    /// only where its prefix is longer than the tunnel's.
    fn add_rules_of(&mut self, v6: bool, ranges: &[(IpAddr, u8)], table: u32) {
        let mut lengths = BTreeSet::new();
        for &(dst, prefix) in ranges.iter().filter(|(network, _)| network.is_ipv6() == v6) {
            lengths.insert(prefix);
            self.rules.push(Step::Route {
                dst,
                prefix,
                via: None,
                metric: None,
                table,
                optional: false,
                first: false,
            });
        }
        // Before all rules but the local table's, where the kernel would put them too. Different priorities distinguish
        // them from the rules of another full tunnel.
        let count: u32 = lengths.iter().map(|_| 2).sum();
        let mut priority = self.facts.first_rule.max(count + 1);
        let mut shorter = None;
        for bits in lengths {
            priority -= 2;
            self.rules.extend([
                Step::UnmarkedRule {
                    v6,
                    mark: table,
                    table,
                    priority: priority + 1,
                    passes: shorter,
                },
                Step::MainRule {
                    v6,
                    priority,
                    passes: bits,
                },
            ]);
            shorter = Some(bits);
        }
    }

    /// Makes the reverse-path filter consider marks.
    fn mark_is_valid(&mut self) {
        match self.facts.src_valid_mark.as_deref() {
            Some("1") => {}
            Some(before) => self.rules.push(Step::Sysctl {
                key: SRC_VALID_MARK.to_owned(),
                value: "1".to_owned(),
                before: before.to_owned(),
            }),
            None => self.plan.warnings.push(
                "this kernel has no src_valid_mark: a strict rp_filter may drop the server's \
                 answers"
                    .to_owned(),
            ),
        }
    }

    /// Leads all packets on kernels without the rules. Two halves win over the default route without replacing it, and
    /// the endpoints keep their current routes.
    fn add_halves(&mut self, v4: bool, v6: bool) {
        if v4 {
            self.lead_halves(&HALVES_V4);
        }
        if v6 {
            self.lead_halves(&HALVES_V6);
        }
        self.plan.warnings.push(
            "this kernel cannot pass over default routes: the endpoints got routes by the present \
             gateway, which do not follow when that changes"
                .to_owned(),
        );
    }
}
