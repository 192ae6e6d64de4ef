//! The way of guarded devices' packets in each family: through a tunnel, or none.

use std::fmt;

use config::guard::{Guard, Part};
use host::tunnel_devices::SERVER_GROUP;
use netio::netlink::{Family, Link, Route, RouteKind};

use crate::guard::facts::Facts;

/// Longest prefix that counts as a default route: one half of IPv4, or the global IPv6 networks (2000::/3).
const DEFAULT_BITS: [u8; 2] = [1, 3];

/// The way of one family's packets that are not for the LAN.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Way {
    /// Into a tunnel.
    Through {
        /// Its interface.
        device: String,
        /// The interface's index.
        index: u32,
    },
    /// No way: packets are held.
    Held(Why),
}

/// Why packets are held.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Why {
    /// No tunnel's interface exists.
    NoDevice {
        /// The configured tunnels.
        tunnels: String,
    },
    /// No tunnel is both in the list and in the guard's file, so packets never have a way.
    NoTunnel,
    /// The tunnel's interface is not up.
    Down {
        /// The interface.
        device: String,
    },
    /// The tunnel has no address of the family, so the guard adds no route to it.
    NoAddress {
        /// The interface.
        device: String,
    },
    /// The guard's table has no default route.
    NoRoute {
        /// The tunnel's interface.
        device: String,
        /// The guard's table.
        table: u32,
    },
    /// The guard's table leads to a device that is not a tunnel.
    Elsewhere {
        /// The interface that the table leads to.
        device: String,
        /// The guard's table.
        table: u32,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice { tunnels } => {
                write!(f, "no tunnel is up: there is no device {tunnels}")
            }
            Self::NoTunnel => f.write_str(
                "the guard's file and only_through have no tunnel in common: change one of them",
            ),
            Self::Down { device } => write!(f, "the tunnel's device {device} is not up"),
            Self::NoAddress { device } => {
                write!(f, "{device} has no address of this family")
            }
            Self::NoRoute { device, table } => write!(
                f,
                "{device} is up, and table {table} has no default route: no tunnel makes one; with `lead = true` \
                 `millrace guard refresh` makes it, or says why the kernel refuses it"
            ),
            Self::Elsewhere { device, table } => write!(
                f,
                "the default route of table {table} leads to {device}, which is no tunnel"
            ),
        }
    }
}

impl Way {
    /// Finds the way of a family.
    #[must_use]
    pub fn of(part: &Part<'_>, facts: &Facts, family: Family) -> Self {
        let route = default_route(part.table, facts, family);
        let link = route.and_then(|route| facts.link(route.dev?));
        if let Some(link) = link {
            if rank(part, facts, &link.name).is_none() {
                return Self::Held(Why::Elsewhere {
                    device: link.name.clone(),
                    table: part.table,
                });
            }
            if link.up {
                return Self::Through {
                    device: link.name.clone(),
                    index: link.index,
                };
            }
        }
        Self::Held(why(part, facts, family))
    }

    /// The tunnel's interface, where there is a way.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Through { device, .. } => Some(device),
            Self::Held(_) => None,
        }
    }

    /// Index of the tunnel's interface, where there is a way.
    #[must_use]
    pub fn index(&self) -> Option<u32> {
        match self {
            Self::Through { index, .. } => Some(*index),
            Self::Held(_) => None,
        }
    }
}

/// The devices of VPN servers on this host, except those that the settings name exactly as a tunnel.
pub(crate) fn servers(guard: &Guard, links: &[Link]) -> Vec<String> {
    let links = links.iter();
    let servers = links.filter(|it| it.group == SERVER_GROUP && !guard.names_tunnel(&it.name));
    servers.map(|it| it.name.clone()).collect()
}

/// Devices that are not tunnels, whatever their names: servers, and the LAN and the devices that it may reach.
pub(crate) fn inner(guard: &Guard, links: &[Link]) -> Vec<String> {
    let within = guard.within().into_iter().map(str::to_owned);
    servers(guard, links).into_iter().chain(within).collect()
}

/// The rank of a device among a part's tunnels; `None` for a device that is no tunnel.
fn rank(part: &Part<'_>, facts: &Facts, name: &str) -> Option<usize> {
    part.rank(name)
        .filter(|_| !facts.inner.iter().any(|it| it == name))
}

/// The tunnels that exist, the preferred first.
pub(crate) fn tunnels<'f>(part: &Part<'_>, facts: &'f Facts) -> Vec<&'f Link> {
    let ranked = facts.links.iter().filter_map(|link| {
        let rank = rank(part, facts, &link.name)?;
        Some((rank, link))
    });
    let mut ranked: Vec<(usize, &Link)> = ranked.collect();
    ranked.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    ranked.into_iter().map(|(_, link)| link).collect()
}

/// The default route that the kernel would choose in a table.
fn default_route(table: u32, facts: &Facts, family: Family) -> Option<&Route> {
    let bits = DEFAULT_BITS[usize::from(family == Family::V6)];
    facts
        .of_table(table)
        .filter(|it| Family::of(it.dst) == family && it.prefix <= bits)
        .filter(|it| it.kind == RouteKind::Unicast)
        .min_by_key(|it| (u8::MAX - it.prefix, it.metric.unwrap_or(0)))
}

fn why(part: &Part<'_>, facts: &Facts, family: Family) -> Why {
    if part.tunnels.is_empty() {
        return Why::NoTunnel;
    }
    let tunnels = tunnels(part, facts);
    let Some(first) = tunnels.first() else {
        let names: Vec<String> = part.tunnels.iter().map(ToString::to_string).collect();
        return Why::NoDevice {
            tunnels: names.join(", "),
        };
    };
    let Some(up) = tunnels.iter().find(|link| link.up) else {
        return Why::Down {
            device: first.name.clone(),
        };
    };
    let mut up_all = tunnels.iter().filter(|link| link.up);
    match up_all.find(|link| facts.has_address(link.index, family)) {
        Some(link) => Why::NoRoute {
            device: link.name.clone(),
            table: part.table,
        },
        None => Why::NoAddress {
            device: up.name.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::fixture::{facts, guard, link, route, tunnel};

    fn way(facts: &Facts, family: Family) -> Way {
        Way::of(&guard().parts()[0], facts, family)
    }

    fn held(facts: &Facts) -> String {
        match way(facts, Family::V4) {
            Way::Held(why) => why.to_string(),
            way => panic!("{way:?}"),
        }
    }

    #[test]
    fn why_is_told_and_what_leads_is_named() {
        let mut facts = facts();
        assert!(held(&facts).contains("no device mr-*, tun0"));
        facts.links.push(link(7, "mr-office", false));
        assert!(held(&facts).contains("mr-office is not up"));
        facts.links[3].up = true;
        assert!(held(&facts).contains("mr-office has no address"));
        tunnel(&mut facts, 7, "10.8.0.2");
        assert!(held(&facts).contains("table 77 has no default route"));
        facts.tables.push(route("0.0.0.0", 0, 3, 77));
        assert!(held(&facts).contains("leads to wan"));
        facts.tables.clear();
        facts.tables.push(route("0.0.0.0", 0, 7, 77));
        assert_eq!(way(&facts, Family::V4).index(), Some(7));
        assert_eq!(way(&facts, Family::V6).index(), None);
    }

    #[test]
    fn halves_are_as_good_and_the_best_metric_counts() {
        let mut facts = facts();
        facts.links.push(link(7, "mr-office", true));
        facts.links.push(link(8, "tun0", true));
        for half in ["0.0.0.0", "128.0.0.0"] {
            facts.tables.push(route(half, 1, 8, 77));
        }
        facts.tables.push(route("0.0.0.0", 0, 7, 77));
        assert_eq!(way(&facts, Family::V4).index(), Some(8));
        let mut late = route("::", 0, 7, 77);
        late.metric = Some(9000);
        facts.tables.push(late);
        facts.tables.push(route("::", 0, 8, 77));
        assert_eq!(way(&facts, Family::V6).index(), Some(8));
    }
}
