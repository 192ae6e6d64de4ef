//! Facts about the host that a plan needs. Gathering them changes nothing.

use std::net::IpAddr;
use std::path::Path;

use netio::netlink::{Address, Family, Link, NetlinkError, Route, RouteKind, Rule, TABLE_MAIN};

use crate::filter::Chains;
use crate::networks::Known;
use crate::system::System;

/// The families, in the order of all per-family arrays.
pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Longest prefix that counts as a default route: one half of IPv4, or the global IPv6 networks (2000::/3).
const DEFAULT_BITS: [u8; 2] = [1, 3];

/// The host as it is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Facts {
    /// Interfaces of this host.
    pub(crate) links: Vec<Link>,
    /// Addresses of the interfaces.
    pub(crate) addresses: Vec<Address>,
    /// Routes of the main table.
    pub(crate) main: Vec<Route>,
    /// Routes of the tables that these settings, or the earlier ones, may use.
    pub(crate) tables: Vec<Route>,
    /// Rules of IPv4 and of IPv6; `None` where the kernel has none for the family.
    pub(crate) rules: [Option<Vec<Rule>>; 2],
    /// The chains of the packet filter's table.
    pub(crate) chains: Chains,
    /// Known networks and ports of the devices that are blocked as a whole.
    pub(crate) known: Known,
    /// Whether the kernel has IPv6.
    pub(crate) ipv6: bool,
    /// Devices that are not tunnels of the guard, whatever their names.
    pub(crate) inner: Vec<String>,
    /// The guard's settings for the host's `dnsmasq`: `None` without a `dnsmasq`, else the content of the guard's file,
    /// if there is one.
    pub(crate) dnsmasq: Option<Option<String>>,
}

impl Facts {
    /// Inspects interfaces, addresses, routes and rules. `is_ours` selects the routing tables.
    pub(crate) fn gather(
        system: &mut System,
        is_ours: impl Fn(u32) -> bool,
    ) -> Result<Self, NetlinkError> {
        let netlink = &mut system.netlink;
        let (main, others): (Vec<Route>, Vec<Route>) = netlink
            .routes(None)?
            .into_iter()
            .filter(|it| it.table == TABLE_MAIN || is_ours(it.table))
            .partition(|it| it.table == TABLE_MAIN);
        Ok(Self {
            links: netlink.links()?,
            addresses: netlink.addresses(None)?,
            main,
            tables: others,
            rules: FAMILIES.map(|family| netlink.rules(family).ok()),
            ipv6: Path::new("/proc/sys/net/ipv6").exists(),
            ..Self::default()
        })
    }

    /// The rules of both families.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> + Clone {
        self.rules.iter().flatten().flatten()
    }

    /// The interface with this index.
    pub(crate) fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// The interface of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Names of the interfaces that are up.
    pub(crate) fn up(&self) -> impl Iterator<Item = &str> {
        let up = self.links.iter().filter(|it| it.up);
        up.map(|it| it.name.as_str())
    }

    /// Whether an interface has an address of the family beyond link-local ones.
    pub(crate) fn has_address(&self, index: u32, family: Family) -> bool {
        let is_local = |ip| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let mut own = self.addresses.iter().filter(|it| it.index == index);
        own.any(|it| Family::of(it.ip) == family && !is_local(it.ip))
    }

    /// An interface that packets of this family leave through, and whether it has an address of the family.
    pub(crate) fn exit(&self, index: Option<u32>, family: Family) -> Option<(u32, bool)> {
        index.map(|index| (index, self.has_address(index, family)))
    }

    /// The default routes of a table, the one that the kernel would choose first.
    pub(crate) fn defaults(&self, table: u32, family: Family) -> Vec<&Route> {
        let bits = DEFAULT_BITS[usize::from(family == Family::V6)];
        let all = self.main.iter().chain(&self.tables);
        let mut found: Vec<&Route> = all
            .filter(|it| it.table == table && it.kind == RouteKind::Unicast)
            .filter(|it| Family::of(it.dst) == family && it.prefix <= bits)
            .collect();
        found.sort_by_key(|it| (u8::MAX - it.prefix, it.metric.unwrap_or(0)));
        found
    }
}
