//! One change to the host: planned, done, recorded and undone.

use std::net::IpAddr;

use netio::netlink::{Family, Route, RouteKind, Rule};
use serde::Serialize;

use super::dns::{NameServers, Resolver};

mod written;

/// Longest prefix, in bits, of a route for the whole Internet, or for a part of it that a tunnel redirects.
pub(super) const WORLD_BITS: u8 = 4;

/// Metric of a [`Step::Unreachable`] for a network that was behind a server's client. Any other route wins.
const CLOSED_METRIC: u32 = 1 << 30;

/// The main routing table.
pub const MAIN: u32 = netio::netlink::TABLE_MAIN;

/// Pattern of the nftables tables in which this host's servers masquerade. [`netio::netlink::ChainsWatch`] reports when
/// another program deletes one, and [`Applied::follow`](crate::Applied::follow) restores it.
pub const MASQUERADE_TABLES: &str = "millrace_*";

/// Setting that makes the reverse-path filter consider marks.
pub(super) const SRC_VALID_MARK: &str = "net/ipv4/conf/all/src_valid_mark";

/// Forwarding of IPv4 and of IPv6, for all interfaces.
pub(super) const FORWARD_V4: &str = "net/ipv4/ip_forward";
pub(super) const FORWARD_V6: &str = "net/ipv6/conf/all/forwarding";

/// Whether an IPv4 interface, or `all`, tells senders of a shorter way. The kernel does if one of the two is set.
pub(super) fn send_redirects(ifname: &str) -> String {
    format!("net/ipv4/conf/{ifname}/send_redirects")
}

/// Setting for whether an interface accepts router advertisements.
pub(super) fn accept_ra(ifname: &str) -> String {
    format!("net/ipv6/conf/{ifname}/accept_ra")
}

/// Whether a step of this crate sets the value `key` below `/proc/sys`.
pub(super) fn is_setting_of_ours(key: &str) -> bool {
    let of_interface = || {
        let accepts = || {
            key.strip_prefix("net/ipv6/conf/")?
                .strip_suffix("/accept_ra")
        };
        let redirects = || {
            key.strip_prefix("net/ipv4/conf/")?
                .strip_suffix("/send_redirects")
        };
        let name = accepts().or_else(redirects)?;
        (!name.contains('/') && !matches!(name, "" | "." | "..")).then_some(())
    };
    [SRC_VALID_MARK, FORWARD_V4, FORWARD_V6].contains(&key) || of_interface().is_some()
}

/// One change. The journal stores those that outlive the interface in this form.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub enum Step {
    /// An address of the tunnel's interface.
    Address {
        /// Address on the interface.
        addr: IpAddr,
        /// Bits of the prefix.
        prefix: u8,
        /// The other end of a point-to-point interface, if the two ends share no network; `prefix` is unused then.
        peer: Option<IpAddr>,
    },
    /// The interface's MTU in bytes.
    Mtu {
        /// The new MTU, in bytes.
        mtu: u32,
    },
    /// Brings the interface up.
    Up,
    /// A route into the tunnel.
    Route {
        /// Network address of the destination.
        dst: IpAddr,
        /// Bits of the prefix.
        prefix: u8,
        /// The gateway; `None` for a destination on the link.
        via: Option<IpAddr>,
        /// The route's metric; the kernel's default where there is none.
        metric: Option<u32>,
        /// Number of the routing table.
        table: u32,
        /// The tunnel works without this route: if the kernel refuses it, it is left out.
        optional: bool,
        /// In the main table, goes before another program's route to the same network, which is then no error.
        first: bool,
    },
    /// Name servers and search domains.
    Dns {
        /// The program that manages the host's name servers.
        resolver: Resolver,
        /// The name servers for the interface.
        #[serde(flatten)]
        wanted: NameServers,
    },
    /// A rule: packets that the tunnel did not send itself use its table.
    UnmarkedRule {
        /// Whether it is about IPv6.
        v6: bool,
        /// Firewall mark to match.
        mark: u32,
        /// Number of the routing table.
        table: u32,
        /// Priority of the rule; the lowest number is looked at first.
        priority: u32,
        /// The rule ignores routes of that table with a prefix of at most this many bits, and leaves those packets to a
        /// later rule.
        passes: Option<u8>,
    },
    /// An earlier rule: the main table decides where its prefix is longer than the one in the tunnel's table.
    MainRule {
        /// Whether it is about IPv6.
        v6: bool,
        /// Priority of the rule; the lowest number is looked at first.
        priority: u32,
        /// The rule ignores routes with a prefix of at most this many bits: 0 for default routes only.
        passes: u8,
    },
    /// A setting below `/proc/sys`, and its value before.
    Sysctl {
        /// The setting's path below `/proc/sys`.
        key: String,
        /// Value to write.
        value: String,
        /// Value to restore.
        before: String,
    },

    /// An nftables table of the tunnel's own, which gives the clients' packets the host's address when they leave.
    Masquerade {
        /// The interface that the clients' packets come in on; the table is named after it.
        interface: String,
        /// The clients' networks, each with the bits of its prefix.
        sources: Vec<(IpAddr, u8)>,
        /// Destinations for which clients keep their own addresses.
        except: Vec<(IpAddr, u8)>,
    },
    /// A route past the tunnel in the main table.
    OuterRoute {
        /// Network address of the destination.
        dst: IpAddr,
        /// Bits of the prefix.
        prefix: u8,
        /// The gateway; `None` for a destination on the link.
        via: Option<IpAddr>,
        /// Number of the interface.
        dev: u32,
        /// Raised until no other route to the destination has it. Each of several tunnels that need the same route adds
        /// its own.
        metric: u32,
        /// The address whose route this route follows when it changes. A network's all-zero address stands for the
        /// default route.
        towards: Option<IpAddr>,
    },
    /// Packets to this destination are answered with "unreachable".
    Unreachable {
        /// Network address of the destination.
        dst: IpAddr,
        /// Bits of the prefix.
        prefix: u8,
        /// The metric; see [`Step::OuterRoute`].
        metric: u32,
    },
    /// Removes a route of the host that conflicts with the tunnel's; undoing puts it back.
    Displace(SavedRoute),
}

/// A route of the main table, with everything needed to restore it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct SavedRoute {
    dst: IpAddr,
    prefix: u8,
    via: Option<IpAddr>,
    dev: Option<u32>,
    metric: Option<u32>,
    src: Option<IpAddr>,
    mtu: Option<u32>,
    scope: Option<u8>,
    protocol: Option<u8>,
    onlink: bool,
}

impl SavedRoute {
    /// Saves a unicast route of the main table. `None` if the route could not be restored: another kind, another table,
    /// or several next hops.
    pub fn new(route: &Route) -> Option<Self> {
        if route.kind != RouteKind::Unicast || route.table != MAIN || route.dev.is_none() {
            return None;
        }
        Some(Self {
            dst: route.dst,
            prefix: route.prefix,
            via: route.via,
            dev: route.dev,
            metric: route.metric,
            src: route.src,
            mtu: route.mtu,
            scope: route.scope,
            protocol: route.protocol,
            onlink: route.onlink,
        })
    }

    /// Route as the system interface takes it.
    pub(super) fn route(&self) -> Route {
        Route {
            via: self.via,
            dev: self.dev,
            metric: self.metric,
            src: self.src,
            mtu: self.mtu,
            scope: self.scope,
            protocol: self.protocol,
            onlink: self.onlink,
            ..Route::new(self.dst, self.prefix)
        }
    }
}

impl Step {
    /// True for steps whose effect stays when the interface goes.
    pub const fn outlives_interface(&self) -> bool {
        match self {
            Self::Address { .. } | Self::Mtu { .. } | Self::Up | Self::Route { .. } => false,
            Self::Dns { .. }
            | Self::UnmarkedRule { .. }
            | Self::MainRule { .. }
            | Self::Sysctl { .. }
            | Self::Masquerade { .. }
            | Self::OuterRoute { .. }
            | Self::Unreachable { .. }
            | Self::Displace(_) => true,
        }
    }

    /// True for steps whose effect goes with the interface, but that are undone while it still exists. A persistent
    /// interface stays, and a tunnel that comes back may get other addresses.
    pub(super) const fn belongs_to_interface(&self) -> bool {
        matches!(self, Self::Address { .. } | Self::Route { .. })
    }

    /// True for steps that several tunnels may need but only one can do.
    pub(super) const fn may_be_shared(&self) -> bool {
        matches!(
            self,
            Self::UnmarkedRule { .. } | Self::MainRule { .. } | Self::Sysctl { .. }
        )
    }

    /// True when both steps would make, and undo, the same rule or setting.
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sysctl { key: a, .. }, Self::Sysctl { key: b, .. }) => a == b,
            _ => self.may_be_shared() && self == other,
        }
    }

    /// True for steps that are undone by the interface's name, which another interface may have by then.
    pub(super) fn is_by_interface_name(&self, ifname: &str) -> bool {
        match self {
            Self::Dns { .. } | Self::Address { .. } | Self::Route { .. } => true,
            // The key of an interface's setting: net/ipv4/conf/NAME/…
            Self::Sysctl { key, .. } => key.split('/').nth(3) == Some(ifname),
            _ => false,
        }
    }

    /// True for a step that makes an nftables table.
    pub(super) const fn masquerades(&self) -> bool {
        matches!(self, Self::Masquerade { .. })
    }

    /// The nftables table of a [`Step::Masquerade`] for this interface: one of [`MASQUERADE_TABLES`].
    pub(super) fn table_of(interface: &str) -> String {
        format!("millrace_{interface}")
    }

    /// True for a route that must lead or block its packets: without it the tunnel fails.
    pub(super) const fn must_win(&self) -> bool {
        match self {
            Self::Route {
                optional: false,
                first,
                prefix,
                ..
            } => *first || *prefix <= WORLD_BITS,
            Self::Unreachable { .. } => true,
            _ => false,
        }
    }

    /// The step's name in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Address { addr, prefix, .. } => format!("the address {addr}/{prefix}"),
            Self::Route { dst, prefix, .. } | Self::Unreachable { dst, prefix, .. } => {
                format!("the route {dst}/{prefix}")
            }
            Self::Sysctl { key, .. } => format!("the setting {}", key.replace('/', ".")),
            Self::Masquerade { .. } => "masquerading for clients".to_owned(),
            _ => "a routing rule".to_owned(),
        }
    }

    /// Makes a network unreachable that was behind a server's client.
    pub(super) const fn close((dst, prefix): (IpAddr, u8)) -> Self {
        Self::Unreachable {
            dst,
            prefix,
            metric: CLOSED_METRIC,
        }
    }

    /// The network that [`Step::close`] makes unreachable. The kernel's route may have a higher metric.
    pub(super) const fn closed(&self) -> Option<(IpAddr, u8)> {
        match *self {
            Self::Unreachable {
                dst,
                prefix,
                metric: CLOSED_METRIC..,
            } => Some((dst, prefix)),
            _ => None,
        }
    }

    /// True when the tunnel works without this step.
    pub(super) fn is_optional(&self) -> bool {
        match self {
            Self::Route { optional, .. } => *optional,
            // Settings are read-only in many containers.
            Self::Masquerade { .. } | Self::Sysctl { .. } => true,
            // A route to the server itself is needed: without it the tunnel carries nothing.
            Self::OuterRoute { dst, towards, .. } => *towards != Some(*dst),
            _ => false,
        }
    }

    /// The consequence for the host where an optional step was refused.
    pub(super) fn without(&self) -> &'static str {
        match self {
            Self::Route { .. } => "packets to it do not use the tunnel",
            Self::UnmarkedRule { .. } | Self::MainRule { .. } => {
                "some packets might bypass the tunnel"
            }
            Self::Unreachable { .. } => "packets to it are not blocked",
            Self::OuterRoute { .. } => "packets to it may use the tunnel",
            Self::Sysctl { key, .. } if key == SRC_VALID_MARK => {
                "a strict rp_filter may drop the server's answers"
            }
            Self::Sysctl { key, .. } if key.ends_with("/send_redirects") => {
                "clients that talk to each other may be told of a shorter way, which they do not have"
            }
            Self::Sysctl { .. } => "the host might not forward clients' packets",
            Self::Masquerade { .. } => {
                "clients' packets are not masqueraded, so answers might not come back"
            }
            _ => "the tunnel continues without it",
        }
    }

    /// The address whose route this route past the tunnel follows, if it follows any.
    pub(super) const fn towards(&self) -> Option<IpAddr> {
        match self {
            Self::OuterRoute { towards, .. } => *towards,
            _ => None,
        }
    }

    /// Whether both are routes past the tunnel to the same network.
    pub(super) fn leads_where(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::OuterRoute { dst, prefix, .. },
                Self::OuterRoute {
                    dst: to,
                    prefix: bits,
                    ..
                },
            ) => (dst, prefix) == (to, bits),
            _ => false,
        }
    }

    /// True when this step was done for `planned`, possibly with another metric because the planned one was taken.
    pub(super) fn is_made_for(&self, planned: &Self) -> bool {
        let mut made = planned.clone();
        match (&mut made, self) {
            (
                Self::Route {
                    metric,
                    first: true,
                    ..
                },
                Self::Route { metric: own, .. },
            ) if metric.is_none() => *metric = *own,
            (Self::OuterRoute { metric, .. }, Self::OuterRoute { metric: own, .. })
            | (Self::Unreachable { metric, .. }, Self::Unreachable { metric: own, .. }) => {
                *metric = *own;
            }
            _ => {}
        }
        made == *self
    }

    /// The route of this step, if it has one; `dev` is the tunnel's interface.
    pub(super) fn route(&self, dev: Option<u32>) -> Option<Route> {
        let new = |dst: IpAddr, prefix: u8| Route::new(dst, prefix);
        Some(match *self {
            Self::Route {
                dst,
                prefix,
                via,
                metric,
                table,
                ..
            } => Route {
                via,
                dev,
                metric,
                ..new(dst, prefix).table(table)
            },
            Self::OuterRoute {
                dst,
                prefix,
                via,
                dev,
                metric,
                ..
            } => Route {
                via,
                metric: Some(metric),
                ..new(dst, prefix).dev(dev)
            },
            Self::Unreachable {
                dst,
                prefix,
                metric,
            } => Route {
                metric: Some(metric),
                ..new(dst, prefix).kind(RouteKind::Unreachable)
            },
            _ => return None,
        })
    }

    /// The rule of this step, if it has one.
    pub(super) fn rule(&self) -> Option<Rule> {
        let family = |v6: bool| if v6 { Family::V6 } else { Family::V4 };
        match *self {
            Self::UnmarkedRule {
                v6,
                mark,
                table,
                priority,
                passes,
            } => Some(Rule {
                priority: Some(priority),
                suppress_prefixlength: passes.map(u32::from),
                ..Rule::not_marked(family(v6), mark, table)
            }),
            Self::MainRule {
                v6,
                priority,
                passes,
            } => Some(Rule {
                priority: Some(priority),
                suppress_prefixlength: Some(passes.into()),
                ..Rule::main_without_default(family(v6))
            }),
            _ => None,
        }
    }
}
