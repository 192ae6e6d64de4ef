//! One change to the host, as it is planned, done, written down and undone.

use std::net::IpAddr;

use netio::netlink::{Family, Route, RouteKind};
use serde::{Deserialize, Serialize};

use super::dns::Resolver;

/// The main routing table.
pub(crate) const MAIN: u32 = netio::netlink::TABLE_MAIN;

/// With it the reverse-path filter looks at marks.
pub(super) const SRC_VALID_MARK: &str = "net/ipv4/conf/all/src_valid_mark";

/// One change. Those that outlive the interface are written to the journal as they are here.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Step {
    /// An address of the tunnel's interface.
    Address { addr: IpAddr, prefix: u8 },
    /// The interface's MTU in bytes.
    Mtu { mtu: u32 },
    /// The interface goes up.
    Up,
    /// A route into the tunnel.
    Route { dst: IpAddr, prefix: u8, table: u32 },
    /// Name servers and search domains.
    Dns {
        resolver: Resolver,
        servers: Vec<IpAddr>,
        search: Vec<String>,
        /// The servers are asked about these domains only; empty for all names.
        #[serde(default)]
        only: Vec<String>,
    },
    /// A route outside the tunnel, to a peer's endpoint.
    HostRoute {
        dst: IpAddr,
        via: Option<IpAddr>,
        dev: u32,
    },
    /// Packets that the tunnel did not send itself look into its table.
    UnmarkedRule {
        v6: bool,
        mark: u32,
        table: u32,
        priority: u32,
    },
    /// Before that, the main table decides where it has more than a default route.
    MainRule { v6: bool, priority: u32 },
    /// A setting below `/proc/sys`, and its value before.
    Sysctl {
        key: String,
        value: String,
        before: String,
    },

    // Those of interfaces that may stay when the tunnel goes, and of routes that others push:
    /// As [`Step::Address`], with the other end's address where the two share no network.
    TunnelAddress {
        addr: IpAddr,
        prefix: u8,
        peer: Option<IpAddr>,
    },
    /// A route into the tunnel in the main table. What the kernel does not take is left out.
    TunnelRoute {
        dst: IpAddr,
        prefix: u8,
        via: Option<IpAddr>,
        metric: Option<u32>,
    },
    /// A route past the tunnel in the main table.
    OuterRoute {
        dst: IpAddr,
        prefix: u8,
        via: Option<IpAddr>,
        dev: u32,
        /// Raised until it is a metric that nobody else's route to there has: of several tunnels
        /// that need the same route each has its own.
        metric: u32,
        /// When the way to here changes, the route changes with it. A network's all-zero address
        /// stands for the default route.
        towards: Option<IpAddr>,
    },
    /// Packets to there are answered with "unreachable".
    Unreachable {
        dst: IpAddr,
        prefix: u8,
        /// As in [`Step::OuterRoute`].
        metric: u32,
    },
    /// A route of the host that is in the way is taken out, and put back in the end.
    Displace(SavedRoute),
}

/// A route of the main table with what it takes to restore it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct SavedRoute {
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
    pub(crate) fn new(route: &Route) -> Option<Self> {
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
    pub(crate) const fn outlives_interface(&self) -> bool {
        match self {
            Self::Address { .. }
            | Self::Mtu { .. }
            | Self::Up
            | Self::Route { .. }
            | Self::TunnelAddress { .. }
            | Self::TunnelRoute { .. } => false,
            Self::Dns { .. }
            | Self::HostRoute { .. }
            | Self::UnmarkedRule { .. }
            | Self::MainRule { .. }
            | Self::Sysctl { .. }
            | Self::OuterRoute { .. }
            | Self::Unreachable { .. }
            | Self::Displace(_) => true,
        }
    }

    /// True for what goes with the interface but is taken back while that is still there: it may
    /// stay (persistent ones), or get other addresses when the tunnel comes back.
    pub(super) const fn belongs_to_interface(&self) -> bool {
        matches!(self, Self::TunnelAddress { .. } | Self::TunnelRoute { .. })
    }

    /// True for what several tunnels may need and only one can make.
    pub(super) const fn may_be_shared(&self) -> bool {
        matches!(
            self,
            Self::HostRoute { .. }
                | Self::UnmarkedRule { .. }
                | Self::MainRule { .. }
                | Self::Sysctl { .. }
        )
    }

    /// True when the same route, rule or setting would be made and taken back by both.
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::HostRoute { dst: a, .. }, Self::HostRoute { dst: b, .. }) => a == b,
            (Self::Sysctl { key: a, .. }, Self::Sysctl { key: b, .. }) => a == b,
            _ => self.may_be_shared() && self == other,
        }
    }

    /// True for what is undone by the interface's name, whoever has it by then.
    pub(super) const fn is_by_interface_name(&self) -> bool {
        matches!(
            self,
            Self::Dns { .. } | Self::TunnelAddress { .. } | Self::TunnelRoute { .. }
        )
    }

    /// True when the tunnel is of use without it.
    pub(super) fn is_optional(&self) -> bool {
        match self {
            Self::TunnelRoute { .. } => true,
            // Without the way to the server everything stands still.
            Self::OuterRoute { dst, towards, .. } => *towards != Some(*dst),
            _ => false,
        }
    }

    /// The route of a step that is one; `dev` is the tunnel's interface.
    pub(super) fn route(&self, dev: Option<u32>) -> Option<Route> {
        let new = |dst: IpAddr, prefix: u8| Route::new(dst, prefix);
        Some(match *self {
            Self::Route { dst, prefix, table } => Route {
                dev,
                ..new(dst, prefix).table(table)
            },
            Self::HostRoute { dst, via, dev } => Route {
                via,
                ..new(dst, Family::of(dst).bits()).dev(dev)
            },
            Self::TunnelRoute {
                dst,
                prefix,
                via,
                metric,
            } => Route {
                via,
                dev,
                metric,
                ..new(dst, prefix)
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
}
