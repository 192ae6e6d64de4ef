//! Decides what has to be done for a tunnel. Pure: a model and facts in, steps out.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::tunnel::{Table, Tunnel};
use config::types::{AllowedIp, InterfaceAddr, family_bits};
use thiserror::Error;

use super::facts::Facts;
pub(super) use super::step::{MAIN, SRC_VALID_MARK, Step};

/// The mark, and the table, that a full tunnel takes when the file names none: the number that
/// every WireGuard tool begins with.
const FIRST_TABLE: u32 = 51820;

/// Tables that are tried from [`FIRST_TABLE`] on.
const TABLES_TRIED: u32 = 1000;

/// Outer IPv6 and UDP headers, WireGuard's header and tag, in bytes: 40 + 8 + 16 + 16.
const OVERHEAD: u32 = 80;

/// Below this MTU the kernel has no IPv6 on an interface.
const IPV6_MTU_MIN: u32 = 1280;

/// What the user said beside the file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Leave the host's name servers alone.
    pub(crate) no_dns: bool,
}

/// Everything that is to be done, in order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Plan {
    /// The changes.
    pub(crate) steps: Vec<Step>,
    /// The mark that the tunnel's datagrams must have **before** the plan is applied, or they
    /// would be routed into the tunnel themselves; 0 for none.
    pub(crate) fwmark: u32,
    /// The MTU that the interface will have, in bytes.
    pub(crate) mtu: u32,
    /// What the user should know, one sentence each.
    pub(crate) warnings: Vec<String>,
}

/// Why there is no plan.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub(crate) enum PlanError {
    /// A thousand tunnels, or somebody fills tables.
    #[error(
        "no routing table from 51820 to 52819 is empty; set FwMark to the number of one that is"
    )]
    NoTable,
    /// Without rules and without a way to the endpoint the tunnel would carry itself.
    #[error(
        "this kernel cannot pass over default routes (it needs 3.12 and policy routing), and \
         there is no route to the endpoint {0} to keep outside the tunnel; add one, or set Table"
    )]
    NoWayToEndpoint(IpAddr),
}

impl Plan {
    /// Decides what `tunnel` needs on a host where `facts` hold.
    pub(crate) fn new(tunnel: &Tunnel, facts: &Facts, options: Options) -> Result<Self, PlanError> {
        let mut plan = Self {
            fwmark: tunnel.interface.fwmark.unwrap_or(0),
            ..Self::default()
        };
        plan.mtu = plan.choose_mtu(tunnel, facts);
        let v6 = plan.ipv6_works(tunnel, facts);
        let usable = |addr: IpAddr| v6 || addr.is_ipv4();
        let addresses = tunnel.interface.addresses.iter().copied();
        let addresses: Vec<InterfaceAddr> = addresses.filter(|a| usable(a.addr)).collect();
        for address in &addresses {
            let &InterfaceAddr { addr, prefix } = address;
            plan.steps.push(Step::Address { addr, prefix });
        }
        plan.steps.push(Step::Mtu { mtu: plan.mtu });
        plan.steps.push(Step::Up);
        plan.add_dns(tunnel, facts, options);
        // The most specific first, as wg-quick: a default route must not cut the way to an
        // endpoint before the route that keeps it is there.
        let mut ranges: Vec<AllowedIp> =
            tunnel.allowed_ips().filter(|r| usable(r.addr())).collect();
        ranges.sort_by_key(|range| Reverse(range.prefix()));
        ranges.dedup();
        match tunnel.interface.table {
            Table::Off => {}
            Table::Id(table) => ranges
                .iter()
                .for_each(|range| plan.add_route(*range, table)),
            Table::Auto => plan.add_main_routes(&ranges, &addresses, facts)?,
        }
        Ok(plan)
    }

    fn choose_mtu(&mut self, tunnel: &Tunnel, facts: &Facts) -> u32 {
        if let Some(mtu) = tunnel.interface.mtu {
            return mtu;
        }
        let ways = facts.endpoints.iter().filter_map(|way| way.mtu);
        // The widest, as wg-quick: the narrow ones are what path MTU discovery is for.
        let outer = ways.max().or(facts.default_mtu).unwrap_or(1500);
        outer.saturating_sub(OVERHEAD).clamp(68, 65535)
    }

    fn ipv6_works(&mut self, tunnel: &Tunnel, facts: &Facts) -> bool {
        let inside = |addr: IpAddr| addr.is_ipv6();
        let wanted = tunnel.interface.addresses.iter().any(|a| inside(a.addr))
            || tunnel.allowed_ips().any(|range| inside(range.addr()));
        let reason = if !facts.ipv6 {
            "IPv6 is off on this host"
        } else if self.mtu < IPV6_MTU_MIN {
            "the MTU is below 1280 bytes"
        } else {
            return true;
        };
        if wanted {
            self.warnings.push(format!(
                "{reason}: the tunnel's IPv6 addresses and routes are left out"
            ));
        }
        false
    }

    fn add_dns(&mut self, tunnel: &Tunnel, facts: &Facts, options: Options) {
        let interface = &tunnel.interface;
        // As wg-quick: search domains alone change nothing.
        if interface.dns.is_empty() {
            return;
        }
        if options.no_dns {
            let warning = "DNS is not applied, as asked; names are looked up as before";
            return self.warnings.push(warning.to_owned());
        }
        let Some(resolver) = facts.resolver.clone() else {
            let warning = "DNS cannot be applied: neither resolvconf nor resolvectl is installed. \
                Names are still looked up outside the tunnel: install openresolv, or set the \
                name servers by hand";
            return self.warnings.push(warning.to_owned());
        };
        self.steps.push(Step::Dns {
            resolver,
            servers: interface.dns.clone(),
            search: interface.dns_search.clone(),
            only: Vec::new(),
        });
    }

    fn add_route(&mut self, range: AllowedIp, table: u32) {
        self.steps.push(Step::Route {
            dst: range.addr(),
            prefix: range.prefix(),
            table,
        });
    }

    fn add_main_routes(
        &mut self,
        ranges: &[AllowedIp],
        addresses: &[InterfaceAddr],
        facts: &Facts,
    ) -> Result<(), PlanError> {
        let (defaults, networks): (Vec<AllowedIp>, Vec<AllowedIp>) =
            ranges.iter().copied().partition(AllowedIp::is_default);
        for range in networks {
            if !addresses.iter().any(|address| connects(*address, range)) {
                self.add_route(range, MAIN);
            }
        }
        if defaults.is_empty() {
            return Ok(());
        }
        if facts.suppress_prefixlength {
            self.add_default_rules(&defaults, facts)
        } else {
            self.add_default_halves(&defaults, facts)
        }
    }

    /// A default route in a table of its own, for everything but the tunnel's own datagrams.
    fn add_default_rules(
        &mut self,
        defaults: &[AllowedIp],
        facts: &Facts,
    ) -> Result<(), PlanError> {
        let table = match self.fwmark {
            0 => (FIRST_TABLE..FIRST_TABLE + TABLES_TRIED)
                .find(|table| !facts.used_tables.contains(table))
                .ok_or(PlanError::NoTable)?,
            mark => mark,
        };
        self.fwmark = table;
        if facts.strict_rp_filter && defaults.iter().any(|range| range.addr().is_ipv4()) {
            for way in facts.endpoints.iter().filter(|way| way.addr.is_ipv4()) {
                if let Some(step) = way.host_route() {
                    self.push_once(step);
                }
            }
        }
        for range in defaults {
            let v6 = range.addr().is_ipv6();
            self.add_route(*range, table);
            // Before all others but the local table's, which is where the kernel would put them
            // too. By their places they are told from those of another full tunnel.
            let first = facts.first_rule.max(3);
            self.steps.push(Step::UnmarkedRule {
                v6,
                mark: table,
                table,
                priority: first - 1,
            });
            self.steps.push(Step::MainRule {
                v6,
                priority: first - 2,
            });
            if v6 {
                continue;
            }
            match facts.src_valid_mark.as_deref() {
                Some("1") => {}
                Some(before) => self.steps.push(Step::Sysctl {
                    key: SRC_VALID_MARK.to_owned(),
                    value: "1".to_owned(),
                    before: before.to_owned(),
                }),
                None => self.warnings.push(
                    "this kernel has no src_valid_mark: a strict rp_filter may drop the \
                     server's answers"
                        .to_owned(),
                ),
            }
        }
        Ok(())
    }

    /// For kernels without the rules: two halves win over the default route without replacing
    /// it, and the endpoints keep the ways that they have now.
    fn add_default_halves(
        &mut self,
        defaults: &[AllowedIp],
        facts: &Facts,
    ) -> Result<(), PlanError> {
        for way in &facts.endpoints {
            let covered = |range: &AllowedIp| range.addr().is_ipv4() == way.addr.is_ipv4();
            if way.local || !defaults.iter().any(covered) {
                continue;
            }
            let step = way.host_route();
            self.push_once(step.ok_or(PlanError::NoWayToEndpoint(way.addr))?);
        }
        for range in defaults {
            let halves: [IpAddr; 2] = match range.addr() {
                IpAddr::V4(_) => [
                    Ipv4Addr::UNSPECIFIED.into(),
                    Ipv4Addr::new(128, 0, 0, 0).into(),
                ],
                IpAddr::V6(_) => [
                    Ipv6Addr::UNSPECIFIED.into(),
                    Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0).into(),
                ],
            };
            for dst in halves {
                self.steps.push(Step::Route {
                    dst,
                    prefix: 1,
                    table: MAIN,
                });
            }
        }
        self.warnings.push(
            "this kernel cannot pass over default routes: the endpoints got routes by the \
             present gateway, which do not follow when that changes"
                .to_owned(),
        );
        Ok(())
    }

    fn push_once(&mut self, step: Step) {
        if !self.steps.contains(&step) {
            self.steps.push(step);
        }
    }
}

/// True when the kernel makes a route for `range` by itself, because the address's network holds
/// all of it. An IPv4 address that is its own network gets none outside the local table.
fn connects(address: InterfaceAddr, range: AllowedIp) -> bool {
    if address.prefix > range.prefix() {
        return false;
    }
    if address.addr.is_ipv4() && address.prefix == family_bits(address.addr) {
        return false;
    }
    AllowedIp::new(address.addr, address.prefix).is_ok_and(|network| network.contains(range.addr()))
}

#[cfg(test)]
mod tests;
