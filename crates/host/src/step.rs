//! One change to the host, as it is planned, done, written down and undone.

use std::net::IpAddr;

use netio::netlink::{Family, Route, RouteKind, Rule};
use serde::{Deserialize, Serialize};

use self::written::Written;
use super::dns::{NameServers, Resolver};

mod written;

/// Prefixes of so many bits or fewer lead the whole world, or a part of it that a tunnel redirects.
pub(super) const WORLD_BITS: u8 = 4;

/// The main routing table.
pub const MAIN: u32 = netio::netlink::TABLE_MAIN;

/// The names of the packet filter's tables in which servers of this host masquerade: [`netio::netlink::ChainsWatch`] hears
/// when another program deletes one, and [`Applied::follow`](crate::Applied::follow) makes it again.
pub const MASQUERADE_TABLES: &str = "millrace_*";

/// With it the reverse-path filter looks at marks.
pub(super) const SRC_VALID_MARK: &str = "net/ipv4/conf/all/src_valid_mark";

/// Forwarding of IPv4 and of IPv6, for all interfaces.
pub(super) const FORWARD_V4: &str = "net/ipv4/ip_forward";
pub(super) const FORWARD_V6: &str = "net/ipv6/conf/all/forwarding";

/// Whether an interface takes what routers advertise.
pub(super) fn accept_ra(ifname: &str) -> String {
    format!("net/ipv6/conf/{ifname}/accept_ra")
}

/// Whether a step of this crate sets what is of this path below `/proc/sys`.
pub(super) fn is_setting_of_ours(key: &str) -> bool {
    let of_interface = || {
        let name = key.strip_prefix("net/ipv6/conf/")?;
        let name = name.strip_suffix("/accept_ra")?;
        (!name.contains('/') && !matches!(name, "" | "." | "..")).then_some(())
    };
    [SRC_VALID_MARK, FORWARD_V4, FORWARD_V6].contains(&key) || of_interface().is_some()
}

/// One change. Those that outlive the interface are written to the journal as they are here.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "Written")]
pub enum Step {
    /// An address of the tunnel's interface.
    Address {
        /// The address.
        addr: IpAddr,
        /// Bits of the prefix.
        prefix: u8,
        /// The other end of a point-to-point interface, where the two share no network; the prefix
        /// is not used then.
        peer: Option<IpAddr>,
    },
    /// The interface's MTU in bytes.
    Mtu {
        /// Bytes.
        mtu: u32,
    },
    /// The interface goes up.
    Up,
    /// A route into the tunnel.
    Route {
        /// Destination.
        dst: IpAddr,
        /// Bits of the prefix.
        prefix: u8,
        /// The gateway; none for what is on the link.
        via: Option<IpAddr>,
        /// The route's metric; the kernel's default where there is none.
        metric: Option<u32>,
        /// Number of the routing table.
        table: u32,
        /// The tunnel is of use without it: what the kernel refuses is left out.
        optional: bool,
        /// In the main table it goes before a route of others to the same network, and does not fail because of one.
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
    /// Packets that the tunnel did not send itself look into its table.
    UnmarkedRule {
        /// Whether it is about IPv6.
        v6: bool,
        /// The firewall mark.
        mark: u32,
        /// Number of the routing table.
        table: u32,
        /// Priority of the rule; the lowest number is looked at first.
        priority: u32,
        /// Routes of that table with so many bits or fewer are passed over, and left to a later rule.
        passes: Option<u8>,
    },
    /// Before that, the main table decides where it has a longer prefix than the tunnel's table.
    MainRule {
        /// Whether it is about IPv6.
        v6: bool,
        /// Priority of the rule; the lowest number is looked at first.
        priority: u32,
        /// Routes of prefixes of so many bits or fewer are passed over: 0 for default routes only.
        passes: u8,
    },
    /// A setting below `/proc/sys`, and its value before.
    Sysctl {
        /// The setting's path below `/proc/sys`.
        key: String,
        /// The new value.
        value: String,
        /// The value before.
        before: String,
    },

    /// Packets of those who call leave with the host's own address: a table of nftables that is the
    /// tunnel's own.
    Masquerade {
        /// The interface that they come by, which the table is named after.
        interface: String,
        /// Their networks, each with the bits of its prefix.
        sources: Vec<(IpAddr, u8)>,
        /// Networks to which they keep their addresses.
        except: Vec<(IpAddr, u8)>,
    },
    /// A route past the tunnel in the main table.
    OuterRoute {
        /// Destination.
        dst: IpAddr,
        /// Bits of the prefix.
        prefix: u8,
        /// The gateway; none for what is on the link.
        via: Option<IpAddr>,
        /// Number of the interface.
        dev: u32,
        /// Raised until no other route to the destination has it: of several tunnels that need the
        /// same route each has its own.
        metric: u32,
        /// When the way to here changes, the route changes with it. A network's all-zero address
        /// stands for the default route.
        towards: Option<IpAddr>,
    },
    /// Packets to there are answered with "unreachable".
    Unreachable {
        /// Destination.
        dst: IpAddr,
        /// Bits of the prefix.
        prefix: u8,
        /// The metric; see [`Step::OuterRoute`].
        metric: u32,
    },
    /// A route of the host that is in the way is taken out, and put back in the end.
    Displace(SavedRoute),
}

/// A route of the main table with what it takes to restore it.
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
    /// Saves a unicast route; `None` for one that is of another kind, in another table, or has
    /// several ways, and so could not be put back as it was.
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

    /// The route.
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
    /// True for what stays when the interface goes.
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

    /// True for what goes with the interface but is taken back while that is still there: it may
    /// stay (persistent ones), or get other addresses when the tunnel comes back.
    pub(super) const fn belongs_to_interface(&self) -> bool {
        matches!(self, Self::Address { .. } | Self::Route { .. })
    }

    /// True for what several tunnels may need and only one can make.
    pub(super) const fn may_be_shared(&self) -> bool {
        matches!(
            self,
            Self::UnmarkedRule { .. } | Self::MainRule { .. } | Self::Sysctl { .. }
        )
    }

    /// True when the same route, rule or setting would be made and taken back by both.
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sysctl { key: a, .. }, Self::Sysctl { key: b, .. }) => a == b,
            _ => self.may_be_shared() && self == other,
        }
    }

    /// True for what is undone by the interface's name, which another interface may have by then.
    pub(super) const fn is_by_interface_name(&self) -> bool {
        matches!(
            self,
            Self::Dns { .. } | Self::Address { .. } | Self::Route { .. }
        )
    }

    /// The table of a step that makes one, for this interface: one of [`MASQUERADE_TABLES`].
    pub(super) fn table_of(interface: &str) -> String {
        format!("millrace_{interface}")
    }

    /// True for a route that must lead or block its packets, or there is no tunnel.
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

    /// The step's name in sentences.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Address { addr, prefix, .. } => format!("the address {addr}/{prefix}"),
            Self::Route { dst, prefix, .. } | Self::Unreachable { dst, prefix, .. } => {
                format!("the route {dst}/{prefix}")
            }
            Self::Sysctl { key, .. } => format!("the setting {}", key.replace('/', ".")),
            Self::Masquerade { .. } => "the masquerading of those who call".to_owned(),
            _ => "a routing rule".to_owned(),
        }
    }

    /// True when the tunnel is of use without it.
    pub(super) fn is_optional(&self) -> bool {
        match self {
            Self::Route { optional, .. } => *optional,
            // Settings are read-only in many containers.
            Self::Masquerade { .. } | Self::Sysctl { .. } => true,
            // Without the way to the server everything stands still.
            Self::OuterRoute { dst, towards, .. } => *towards != Some(*dst),
            _ => false,
        }
    }

    /// The consequence for the host where an optional step was refused.
    pub(super) fn without(&self) -> &'static str {
        match self {
            Self::Route { .. } => "packets to there do not go through the tunnel",
            Self::UnmarkedRule { .. } | Self::MainRule { .. } => {
                "packets may not go through the tunnel"
            }
            Self::Unreachable { .. } => "packets to there are not kept from leaving",
            Self::OuterRoute { .. } => "packets to there may go through the tunnel",
            Self::Sysctl { key, .. } if key == SRC_VALID_MARK => {
                "a strict rp_filter may drop the server's answers"
            }
            Self::Sysctl { .. } => "packets of those who call may not be forwarded",
            Self::Masquerade { .. } => {
                "packets of those who call keep their addresses, and may not be answered"
            }
            _ => "the tunnel goes on without it",
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

    /// True when this was made for the `planned` step, whose metric may have been taken by another route.
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

    /// The route of a step that is one; `dev` is the tunnel's interface.
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

    /// The rule of a step that is one.
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
