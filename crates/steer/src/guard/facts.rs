//! Facts about the host that a plan needs. Gathering them changes nothing.

use config::guard::{Guard, tables};
use netio::netlink::{Address, Chain, Family, Link, NetlinkError, Route, Rule, TABLE_MAIN};

use crate::guard::chain::{CHAIN, FURTHER, TABLE};
use crate::guard::networks::Known;
use crate::guard::system::System;
use crate::guard::way::inner;

/// The families, in the order of all per-family arrays.
pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// The host as it is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Facts {
    /// Interfaces.
    pub links: Vec<Link>,
    /// Addresses of the interfaces.
    pub addresses: Vec<Address>,
    /// Routes of the main table.
    pub main: Vec<Route>,
    /// Routes of the guard's tables: those of these settings, of possible groups, and of the earlier settings.
    pub tables: Vec<Route>,
    /// Rules of IPv4 and of IPv6; `None` where the kernel has none for the family.
    pub rules: [Option<Vec<Rule>>; 2],
    /// The guard's chain.
    pub chain: ChainFact,
    /// The guard's further chains, by name.
    pub further: Vec<(&'static str, ChainFact)>,
    /// Devices that are not tunnels, whatever their names.
    pub inner: Vec<String>,
    /// Networks and ports of the LAN from the record.
    pub known: Known,
    /// The guard's settings for the host's `dnsmasq`.
    pub dnsmasq: DnsmasqFact,
    /// Whether the kernel has IPv6.
    pub ipv6: bool,
}

/// The state of the guard's chain.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum ChainFact {
    /// The chain does not exist.
    #[default]
    Absent,
    /// The chain exists, unchanged or not.
    There(Chain),
    /// The chain cannot be read, for this reason.
    Unseen(String),
}

/// The state of the guard's settings for `dnsmasq`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum DnsmasqFact {
    /// The host has no `dnsmasq`.
    #[default]
    None,
    /// The content of the guard's file; `None` if the file does not exist.
    File(Option<String>),
}

impl Facts {
    /// Inspects the host, as far as these settings need it. `earlier` is the table of the file's devices in the earlier
    /// settings.
    ///
    /// # Errors
    /// When the kernel refuses to list interfaces, addresses or routes.
    pub(crate) fn gather(
        guard: &Guard,
        earlier: Option<u32>,
        system: &mut System,
    ) -> Result<Self, NetlinkError> {
        let netlink = &mut system.netlink;
        let is_ours = |table: u32| {
            table == guard.table
                || earlier == Some(table)
                || tables().contains(&table)
                || guard.groups.iter().any(|it| it.table == table)
        };
        let links = netlink.links()?;
        let (mut main, mut own) = (Vec::new(), Vec::new());
        for route in netlink.routes(None)? {
            if route.table == TABLE_MAIN {
                main.push(route);
            } else if is_ours(route.table) {
                own.push(route);
            }
        }
        Ok(Self {
            inner: inner(guard, &links),
            links,
            addresses: netlink.addresses(None)?,
            main,
            tables: own,
            rules: FAMILIES.map(|family| netlink.rules(family).ok()),
            chain: chain(system, CHAIN),
            further: FURTHER.map(|name| (name, chain(system, name))).to_vec(),
            known: Known::default(),
            dnsmasq: match &system.dnsmasq {
                Some(dnsmasq) => DnsmasqFact::File(dnsmasq.read(crate::guard::dns::FILE)),
                None => DnsmasqFact::None,
            },
            ipv6: std::path::Path::new("/proc/sys/net/ipv6").exists(),
        })
    }

    /// One of the further chains.
    pub(crate) fn further(&self, name: &str) -> &ChainFact {
        let found = self.further.iter().find(|it| it.0 == name);
        found.map_or(&ChainFact::Absent, |it| &it.1)
    }

    /// The routes in one of the guard's tables.
    pub(crate) fn of_table(&self, table: u32) -> impl Iterator<Item = &Route> {
        self.tables.iter().filter(move |it| it.table == table)
    }

    /// The interface with this index.
    #[must_use]
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// Whether an interface has an address of the family beyond link-local ones.
    #[must_use]
    pub fn has_address(&self, index: u32, family: Family) -> bool {
        let mut own = self.addresses.iter().filter(|it| it.index == index);
        own.any(|it| Family::of(it.ip) == family && !is_link_local(it))
    }

    /// Whether the kernel has any part of the guard.
    #[must_use]
    pub fn is_any_there(&self) -> bool {
        let rules = self.rules.iter().flatten().flatten();
        matches!(self.chain, ChainFact::There(_))
            || rules.into_iter().any(crate::guard::rules::is_ours)
    }
}

fn is_link_local(address: &Address) -> bool {
    matches!(address.ip, std::net::IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn chain(system: &mut System, name: &str) -> ChainFact {
    let Some(netfilter) = &mut system.netfilter else {
        return ChainFact::Unseen("the kernel has no packet filter".to_owned());
    };
    match netfilter.chain(TABLE, name) {
        Ok(Some(chain)) => ChainFact::There(chain),
        Ok(None) => ChainFact::Absent,
        Err(error) if error.is_permission() => {
            ChainFact::Unseen("this user may not look at it; run this as root".to_owned())
        }
        Err(error) => ChainFact::Unseen(format!("the kernel has no nftables ({error})")),
    }
}
