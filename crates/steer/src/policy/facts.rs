//! Facts about the host that a plan needs. Gathering them changes nothing.

use std::ops::RangeInclusive;

use crate::guard::networks::{Known, Network, of_devices};
use crate::guard::system::System;
use config::policy::{Mac, Policy, TUNNELS_MAX};
use host::tunnel_devices::server_ports;
use netio::netlink::{Address, Family, Link, NetlinkError, Route, Rule, TABLE_MAIN};

use crate::policy::leases::{Names, addresses};
use crate::policy::others::is_mwan3;
use crate::policy::resolved::{Resolved, apart, resolved};
use crate::policy::routes::{is_any_full, lines};
use crate::policy::second::{Near, devices, held, is_held, macs, near, of_neighbours};
use crate::policy::table::{FORWARD, Surroundings, TABLE, WantedTable};
use crate::policy::ways::Ways;

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
    /// Routes of the policy's tables, including those of the earlier settings.
    pub tables: Vec<Route>,
    /// Rules of IPv4 and of IPv6; `None` where the kernel has none for the family.
    pub rules: [Option<Vec<Rule>>; 2],
    /// Hardware addresses, by the names of leases.
    pub names: Names,
    /// IP addresses of the hardware addresses that entries name.
    pub near: Near,
    /// Known networks, ports and indices of the devices that are held as a whole.
    pub known: Known,
    /// Whether the kernel has IPv6.
    pub ipv6: bool,
}

/// The state of the packet filter's table.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum TableFact {
    /// The table does not exist.
    #[default]
    Absent,
    /// The table exists, unchanged or not.
    There {
        /// Whether all of it is unchanged.
        whole: bool,
        /// Packets that it has refused since it was made.
        refused: u64,
    },
    /// The table cannot be read, for this reason.
    Unseen(String),
}

/// The routing tables that settings may use.
fn tables(first: u32) -> RangeInclusive<u32> {
    first..=first.saturating_add(TUNNELS_MAX as u32)
}

impl Facts {
    /// Inspects the host, as far as these settings need it. `earlier` is the first table of the earlier settings.
    ///
    /// # Errors
    /// When the kernel refuses to list interfaces, addresses or routes.
    pub(crate) fn gather(
        policy: &Policy,
        names: Names,
        earlier: Option<u32>,
        system: &mut System,
    ) -> Result<Self, NetlinkError> {
        let netlink = &mut system.netlink;
        let ours = tables(policy.table);
        let before = earlier.map(tables);
        let (mut main, mut own) = (Vec::new(), Vec::new());
        for route in netlink.routes(None)? {
            let is_before = before.as_ref().is_some_and(|it| it.contains(&route.table));
            if route.table == TABLE_MAIN {
                main.push(route);
            } else if ours.contains(&route.table) || is_before {
                own.push(route);
            }
        }
        Ok(Self {
            links: netlink.links()?,
            addresses: netlink.addresses(None)?,
            main,
            tables: own,
            rules: FAMILIES.map(|family| netlink.rules(family).ok()),
            names,
            near: Near::new(),
            known: Known::default(),
            ipv6: std::path::Path::new("/proc/sys/net/ipv6").exists(),
        })
    }

    /// Adds the present addresses of the entries' devices, and the present networks of the LAN, to those known before.
    pub(crate) fn learn(
        &mut self,
        policy: &Policy,
        entries: &[Resolved],
        (near_before, known): (&Near, &Known),
        system: &mut System,
    ) {
        let devices = devices(policy, self);
        if !devices.is_empty() {
            let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
            self.known = known.with(&devices, &self.links, &self.addresses, &self.main);
        }
        let macs = macs(entries);
        if macs.is_empty() {
            return;
        }
        // Leases first: the neighbours' present addresses take precedence.
        let mut used = addresses(policy);
        let [now, idle] = of_neighbours(&system.netlink.neighbours().unwrap_or_default());
        used.retain(|it| !now.iter().chain(&idle).any(|other| other.1 == it.1));
        used.extend(now);
        self.near = near(&macs, near_before, &used, &idle);
    }

    /// The interface with this index.
    #[must_use]
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// Whether an interface has an address of the family beyond link-local ones.
    #[must_use]
    pub fn has_address(&self, index: u32, family: Family) -> bool {
        let is_known = |it: &&Address| match it.ip {
            std::net::IpAddr::V6(ip) => !ip.is_unicast_link_local(),
            std::net::IpAddr::V4(_) => true,
        };
        let mut own = self.addresses.iter().filter(|it| it.index == index);
        own.any(|it| Family::of(it.ip) == family && is_known(&it))
    }

    /// Whether packets need the way around tunnels: only if a tunnel has the host's default route. Beside mwan3, which
    /// chooses an uplink for each packet, mwan3 decides.
    #[must_use]
    pub(crate) fn is_around(&self, policy: &Policy) -> bool {
        let mut rules = self.rules.iter().flatten().flatten();
        is_any_full(policy, self) && !rules.any(is_mwan3)
    }

    /// Networks of both families whose packets are held, sorted.
    fn held_networks(&self, policy: &Policy) -> Vec<Network> {
        let held = FAMILIES.into_iter().flat_map(|it| held(policy, self, it));
        let held = held
            .filter(|it| it.to.is_none())
            .filter_map(|it| match it.from {
                // Its networks stand for a device that is held as a whole.
                None => None,
                from => from,
            });
        apart(held.chain(self.known.networks.iter().copied()).collect())
    }

    /// Facts that the packet filter's table depends on.
    pub(crate) fn surroundings(&self, policy: &Policy) -> Surroundings {
        let lan: Vec<&str> = policy.lan.iter().map(String::as_str).collect();
        let known = self.known.clone().sorted();
        Surroundings {
            devices: devices(policy, self),
            servers: server_ports(&self.links),
            ports: known.ports,
            indices: known.indices.into_iter().map(|it| it.0).collect(),
            lan: policy.lan.clone(),
            networks: of_devices(&self.links, &self.addresses, &self.main, &lan),
            masquerade: policy.masquerade,
            lines: match self.is_around(policy) {
                true => lines(policy, self),
                false => Vec::new(),
            },
            held: self.held_networks(policy),
            macs: held_macs(policy, &self.names),
        }
    }
}

/// Hardware addresses whose packets are held.
fn held_macs(policy: &Policy, names: &Names) -> Vec<Mac> {
    let ways = Ways::new(policy);
    let mut entries = resolved(policy, names);
    entries.retain(|it| it.is_everywhere() && is_held(it, &ways));
    macs(&entries)
}

/// Reads the packet filter's table.
pub(crate) fn look(wanted: &WantedTable, system: &mut System) -> TableFact {
    let Some(netfilter) = &mut system.netfilter else {
        return TableFact::Unseen("the kernel has no packet filter".to_owned());
    };
    let mut refused = 0;
    let mut chains = Vec::new();
    for name in wanted.names() {
        let chain = match netfilter.chain(TABLE, name) {
            Ok(chain) => chain,
            Err(error) if error.is_permission() => {
                let why = "this user may not look at it; run this as root";
                return TableFact::Unseen(why.to_owned());
            }
            Err(error) => {
                return TableFact::Unseen(format!("the kernel has no nftables ({error})"));
            }
        };
        if let (FORWARD, Some(chain)) = (name, &chain) {
            refused = chain.rules.iter().filter_map(|it| it.packets).sum();
        }
        chains.push(chain);
    }
    match chains.iter().any(Option::is_some) {
        true => TableFact::There {
            whole: wanted.is(&chains),
            refused,
        },
        false => TableFact::Absent,
    }
}
