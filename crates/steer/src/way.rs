//! How packets of each family leave: through a tunnel, or not at all.

use std::fmt;

use netio::netlink::{Family, Link, Route};

use crate::facts::Facts;

/// Route of one family's packets that are not for the LAN.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Way {
    /// Into a tunnel.
    Through {
        /// Interface of the tunnel.
        device: String,
        /// Index of the interface.
        index: u32,
    },
    /// No route: the packets are blocked.
    Held(Why),
}

/// Why packets are blocked.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Why {
    /// No tunnel's interface exists.
    NoDevice {
        /// Names of the configured tunnels.
        tunnels: String,
    },
    /// No tunnel is both in the list and in the guard's file, so packets never have a route.
    NoTunnel,
    /// The tunnel's interface is not up.
    Down {
        /// Name of the interface.
        device: String,
    },
    /// The tunnel has no address of the family, so no route is added to it.
    NoAddress {
        /// Name of the interface.
        device: String,
    },
    /// The table has no default route.
    NoRoute {
        /// Name of the interface.
        device: String,
        /// Number of the routing table.
        table: u32,
    },
    /// The table leads to a device that is not a tunnel.
    Elsewhere {
        /// The interface that the table leads to.
        device: String,
        /// Number of the routing table.
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
                "the guard's file and only_through have no tunnel in common; change one of them",
            ),
            Self::Down { device } => write!(f, "the tunnel's device {device} is not up"),
            Self::NoAddress { device } => {
                write!(f, "{device} has no address of this family")
            }
            Self::NoRoute { device, table } => write!(
                f,
                "{device} is up, but table {table} has no default route, and no tunnel makes one; `millrace guard \
                 refresh` (with `lead = true`), or for the policy `millrace policy refresh`, makes it, or says why the \
                 kernel refuses it"
            ),
            Self::Elsewhere { device, table } => write!(
                f,
                "the default route of table {table} uses {device}, which is not a tunnel"
            ),
        }
    }
}

impl Way {
    /// Finds the route of a family: through the default route of a table, into one of these tunnels that exist, the
    /// preferred first. `names` lists all tunnels that may be used.
    pub(crate) fn of(
        names: &str,
        tunnels: &[&Link],
        table: u32,
        facts: &Facts,
        family: Family,
    ) -> Self {
        let route = facts.defaults(table, family).into_iter().next();
        let device = |link: &Link| link.name.clone();
        if let Some(link) = route.and_then(|route| facts.link(route.dev?)) {
            if !tunnels.contains(&link) {
                let device = device(link);
                return Self::Held(Why::Elsewhere { device, table });
            }
            if link.up {
                let (device, index) = (device(link), link.index);
                return Self::Through { device, index };
            }
        }
        let mut up = tunnels.iter().filter(|link| link.up);
        let ready = up
            .clone()
            .find(|link| facts.has_address(link.index, family));
        Self::Held(match (ready, up.next(), tunnels.first()) {
            _ if names.is_empty() => Why::NoTunnel,
            (Some(link), ..) => Why::NoRoute {
                device: device(link),
                table,
            },
            (None, Some(link), _) => Why::NoAddress {
                device: device(link),
            },
            (None, None, Some(link)) => Why::Down {
                device: device(link),
            },
            (None, None, None) => Why::NoDevice {
                tunnels: names.to_owned(),
            },
        })
    }

    /// Interface of the tunnel, if there is a route.
    pub(crate) fn device(&self) -> Option<&str> {
        match self {
            Self::Through { device, .. } => Some(device),
            Self::Held(_) => None,
        }
    }

    /// Index of the tunnel's interface, if there is a route.
    pub(crate) fn index(&self) -> Option<u32> {
        match self {
            Self::Through { index, .. } => Some(*index),
            Self::Held(_) => None,
        }
    }
}

/// The default route of a table into a tunnel. `None` for a tunnel that is down or has no address of the family:
/// packets would vanish, and programs would wait.
pub(crate) fn lead(
    link: &Link,
    table: u32,
    metric: u32,
    facts: &Facts,
    family: Family,
) -> Option<Route> {
    (link.up && facts.has_address(link.index, family)).then(|| Route {
        metric: Some(metric),
        ..Route::default_of(family).dev(link.index).table(table)
    })
}
