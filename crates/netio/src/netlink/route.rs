//! Routes, which decide where packets go.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};

use super::request::Body;
use super::{Family, Netlink, NetlinkError, attributes, decode_ip, decode_u32};

/// The table of ordinary routes.
pub const TABLE_MAIN: u32 = 254;
/// The table of the host's own addresses, which the kernel fills.
pub const TABLE_LOCAL: u32 = 255;

/// Bytes of `struct rtmsg`.
const HEADER_SIZE: usize = 12;

// Message types of linux/rtnetlink.h.
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;

// Flag of linux/rtnetlink.h.
const RTNH_F_ONLINK: u32 = 4;

// Attribute numbers of linux/rtnetlink.h.
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_TABLE: u16 = 15;
const RTA_MARK: u16 = 16;
const RTAX_MTU: u16 = 2;

/// The treatment of a packet that a route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RouteKind {
    /// The kernel forwards the packet.
    #[default]
    Unicast,
    /// The kernel drops the packet silently.
    Blackhole,
    /// The kernel answers with "unreachable".
    Unreachable,
    /// The kernel answers with "administratively prohibited".
    Prohibit,
    /// The next rule decides.
    Throw,
    /// Destination is an address of this host.
    Local,
    /// One of the kinds that only the kernel makes (broadcast, anycast, multicast), by its number.
    Other(u8),
}

impl RouteKind {
    fn wire(self) -> u8 {
        match self {
            Self::Unicast => libc::RTN_UNICAST,
            Self::Blackhole => libc::RTN_BLACKHOLE,
            Self::Unreachable => libc::RTN_UNREACHABLE,
            Self::Prohibit => libc::RTN_PROHIBIT,
            Self::Throw => libc::RTN_THROW,
            Self::Local => libc::RTN_LOCAL,
            Self::Other(number) => number,
        }
    }

    fn from_wire(number: u8) -> Self {
        match number {
            libc::RTN_UNICAST => Self::Unicast,
            libc::RTN_BLACKHOLE => Self::Blackhole,
            libc::RTN_UNREACHABLE => Self::Unreachable,
            libc::RTN_PROHIBIT => Self::Prohibit,
            libc::RTN_THROW => Self::Throw,
            libc::RTN_LOCAL => Self::Local,
            _ => Self::Other(number),
        }
    }
}

/// A route to add, to delete, or as read from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The network that the route leads to.
    pub dst: IpAddr,
    /// Length of that network's prefix, in bits; 0 is the default route.
    pub prefix: u8,
    /// The gateway, if it is not directly reachable.
    pub via: Option<IpAddr>,
    /// Index of the interface.
    pub dev: Option<u32>,
    /// The routing table, by default [`TABLE_MAIN`].
    pub table: u32,
    /// The metric: the lowest one wins. `None` is the kernel's choice.
    pub metric: Option<u32>,
    /// The source address that the host prefers for packets on this route.
    pub src: Option<IpAddr>,
    /// The largest packet that fits, in bytes, if less than the interface's.
    pub mtu: Option<u32>,
    /// The treatment of matching packets.
    pub kind: RouteKind,
    /// Distance of the destination, as the kernel's number (0 anywhere, 253 on the link, 254 this host). `None` derives
    /// it from the other fields.
    pub scope: Option<u8>,
    /// The route's origin, as the kernel's number (2 the kernel, 3 at boot, 4 by hand, 16 DHCP). `None` means 4 for
    /// adding, and any for deleting.
    pub protocol: Option<u8>,
    /// Treats the gateway as directly reachable even if no network contains it.
    pub onlink: bool,
}

impl Route {
    /// A unicast route to `dst/prefix` in the main table, with neither gateway nor interface yet.
    pub fn new(dst: IpAddr, prefix: u8) -> Self {
        Self {
            dst,
            prefix,
            via: None,
            dev: None,
            table: TABLE_MAIN,
            metric: None,
            src: None,
            mtu: None,
            kind: RouteKind::Unicast,
            scope: None,
            protocol: None,
            onlink: false,
        }
    }

    /// The default route of a family.
    pub fn default_of(family: Family) -> Self {
        Self::new(family.unspecified(), 0)
    }

    /// Leads the route through the gateway `via`.
    #[must_use]
    pub fn via(mut self, via: IpAddr) -> Self {
        self.via = Some(via);
        self
    }

    /// Leads the route through the interface `dev`.
    #[must_use]
    pub fn dev(mut self, dev: u32) -> Self {
        self.dev = Some(dev);
        self
    }

    /// Puts the route into another table.
    #[must_use]
    pub fn table(mut self, table: u32) -> Self {
        self.table = table;
        self
    }

    /// Sets the kind of the route.
    #[must_use]
    pub fn kind(mut self, kind: RouteKind) -> Self {
        self.kind = kind;
        self
    }

    /// The scope that `ip` would choose. IPv6 has none; for IPv4 it tells networks on the link from those behind a
    /// gateway.
    fn wire_scope(&self) -> u8 {
        match (self.scope, self.kind) {
            (Some(scope), _) => scope,
            (None, RouteKind::Local) => libc::RT_SCOPE_HOST,
            (None, RouteKind::Unicast) if self.via.is_none() && self.dst.is_ipv4() => {
                libc::RT_SCOPE_LINK
            }
            _ => libc::RT_SCOPE_UNIVERSE,
        }
    }

    /// A message about this route; `protocol` and `scope` are the kernel's numbers for its origin and distance.
    fn message(&self, protocol: u8, scope: u8) -> Body {
        // An attribute holds a table number that is too large for the header's byte.
        let table = u8::try_from(self.table);
        let mut header = [0; HEADER_SIZE];
        header[0] = Family::of(self.dst).wire();
        header[1] = self.prefix;
        header[4] = table.unwrap_or(libc::RT_TABLE_UNSPEC);
        header[5] = protocol;
        header[6] = scope;
        header[7] = self.kind.wire();
        let flags = if self.onlink { RTNH_F_ONLINK } else { 0 };
        header[8..].copy_from_slice(&flags.to_ne_bytes());
        let mut body = Body::new(&header);
        body.push_number(RTA_TABLE, table.err().map(|_| self.table));
        body.push_ip(RTA_DST, (self.prefix > 0).then_some(self.dst));
        body.push_ip(RTA_GATEWAY, self.via);
        body.push_number(RTA_OIF, self.dev);
        body.push_number(RTA_PRIORITY, self.metric);
        body.push_ip(RTA_PREFSRC, self.src);
        if self.mtu.is_some() {
            let mut metrics = Body::attributes();
            metrics.push_number(RTAX_MTU, self.mtu);
            body.push_body(RTA_METRICS, &metrics);
        }
        body
    }

    /// The message that adds this route.
    fn new_message(&self) -> Body {
        let protocol = self.protocol.unwrap_or(libc::RTPROT_STATIC);
        self.message(protocol, self.wire_scope())
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.dst, self.prefix)?;
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        if let Some(dev) = self.dev {
            write!(f, " by interface number {dev}")?;
        }
        if self.table != TABLE_MAIN {
            write!(f, " in table {}", self.table)?;
        }
        Ok(())
    }
}

/// The route that a packet would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteLookup {
    /// Index of the interface.
    pub dev: u32,
    /// The source address that the host would use.
    pub src: Option<IpAddr>,
    /// The gateway, if the destination is not on the link.
    pub via: Option<IpAddr>,
    /// The table with the matching route.
    pub table: u32,
    /// [`RouteKind::Local`] if the destination is an address of this host.
    pub kind: RouteKind,
    /// The largest packet in bytes, if the route has an `mtu` metric or the kernel has learned the path's MTU (RFC
    /// 1191, RFC 8201).
    pub mtu: Option<u32>,
}

impl Netlink {
    /// Adds a route.
    ///
    /// # Errors
    /// [`NetlinkError::is_exists`] if a route with the same destination, metric and table exists;
    /// ENETUNREACH if the gateway is not on a link.
    pub fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.change(
            RTM_NEWROUTE,
            &route.new_message(),
            NLM_F_CREATE | NLM_F_EXCL,
            "add route",
            format_args!("{route}"),
        )
    }

    /// Adds a route in front of others with the same destination, metric and table, as `ip route prepend` does. Only
    /// for IPv4: the kernel puts an IPv6 route behind those of its metric.
    ///
    /// # Errors
    /// The errors of [`Netlink::add_route`]; [`NetlinkError::is_exists`] if an equal route exists.
    pub fn prepend_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.change(
            RTM_NEWROUTE,
            &route.new_message(),
            NLM_F_CREATE,
            "add route",
            format_args!("{route}"),
        )
    }

    /// Adds a route, or replaces the one with the same destination, metric and table.
    ///
    /// # Errors
    /// The errors of [`Netlink::add_route`], without "exists".
    pub fn replace_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.change(
            RTM_NEWROUTE,
            &route.new_message(),
            NLM_F_CREATE | NLM_F_REPLACE,
            "set route",
            format_args!("{route}"),
        )
    }

    /// Deletes the first route that matches every value given in `route`.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if there is none.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        // An attribute that was not given must not restrict the match.
        let protocol = route.protocol.unwrap_or(libc::RTPROT_UNSPEC);
        let scope = route.scope.unwrap_or(libc::RT_SCOPE_NOWHERE);
        self.change(
            RTM_DELROUTE,
            &route.message(protocol, scope),
            0,
            "delete route",
            format_args!("{route}"),
        )
    }

    /// The routes of one table, or of all, of both families.
    ///
    /// # Errors
    /// Only if the kernel refuses the dump or the socket fails.
    pub fn routes(&mut self, table: Option<u32>) -> Result<Vec<Route>, NetlinkError> {
        let all = Body::new(&[0; HEADER_SIZE]);
        self.dump(RTM_GETROUTE, &all, "list the routes", |body| {
            parse(body).filter(|route| table.is_none_or(|table| table == route.table))
        })
    }

    /// The route that a packet to `dst` with the firewall mark `mark` (0 for none) would take.
    ///
    /// # Errors
    /// ENETUNREACH, EHOSTUNREACH or EACCES if no route matches, or the matching one refuses packets.
    pub fn route_get(&mut self, dst: IpAddr, mark: u32) -> Result<RouteLookup, NetlinkError> {
        self.route_from(dst, None, mark)
    }

    /// The route that a packet from this host's address `src` to `dst` would take, by rules for that source, too.
    ///
    /// # Errors
    /// The errors of [`Netlink::route_get`], and EINVAL if an IPv4 `src` is not an address of this host.
    pub fn route_from(
        &mut self,
        dst: IpAddr,
        src: Option<IpAddr>,
        mark: u32,
    ) -> Result<RouteLookup, NetlinkError> {
        let family = Family::of(dst);
        let mut header = [0; HEADER_SIZE];
        header[0] = family.wire();
        header[1] = family.bits();
        if src.is_some() {
            header[2] = family.bits();
        }
        let mut body = Body::new(&header);
        body.push_ip(RTA_DST, Some(dst));
        body.push_ip(RTA_SRC, src);
        body.push_number(RTA_MARK, Some(mark).filter(|&mark| mark != 0));
        self.query(
            RTM_GETROUTE,
            &body,
            "find the route to",
            format_args!("{dst} (mark {mark:#x})"),
            |body| {
                let route = parse(body)?;
                Some(RouteLookup {
                    dev: route.dev?,
                    src: route.src,
                    via: route.via,
                    table: route.table,
                    kind: route.kind,
                    mtu: route.mtu.filter(|&mtu| mtu != 0),
                })
            },
        )
    }
}

fn parse(body: &[u8]) -> Option<Route> {
    let &[family, prefix, _, _, table, protocol, scope, kind, ..] = body else {
        return None;
    };
    let family = Family::from_wire(family)?;
    let mut route = Route::default_of(family);
    route.prefix = prefix;
    route.table = u32::from(table);
    route.scope = Some(scope);
    route.protocol = Some(protocol);
    let flags = decode_u32(body.get(8..HEADER_SIZE)?)?;
    route.onlink = flags & RTNH_F_ONLINK != 0;
    route.kind = RouteKind::from_wire(kind);
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            RTA_DST => route.dst = decode_ip(value)?,
            RTA_GATEWAY => route.via = decode_ip(value),
            RTA_OIF => route.dev = decode_u32(value),
            RTA_PRIORITY => route.metric = decode_u32(value),
            RTA_PREFSRC => route.src = decode_ip(value),
            RTA_TABLE => route.table = decode_u32(value)?,
            RTA_METRICS => {
                route.mtu = attributes(value)
                    .find(|(kind, _)| *kind == RTAX_MTU)
                    .and_then(|(_, value)| decode_u32(value));
            }
            _ => {}
        }
    }
    Some(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local() {
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.index_of("lo").unwrap();
        let way = netlink.route_get(IpAddr::from([127, 0, 0, 1]), 0).unwrap();
        assert_eq!((way.dev, way.kind), (lo, RouteKind::Local));
    }

    #[test]
    fn scope_follows_the_gateway() {
        let on_link = Route::new(IpAddr::from([10, 0, 0, 0]), 8).dev(3);
        assert_eq!(on_link.wire_scope(), libc::RT_SCOPE_LINK);
        let behind = on_link.via(IpAddr::from([192, 0, 2, 1]));
        assert_eq!(behind.wire_scope(), libc::RT_SCOPE_UNIVERSE);
        assert_eq!(
            Route::default_of(Family::V6).dev(3).wire_scope(),
            libc::RT_SCOPE_UNIVERSE
        );
    }

    #[test]
    fn short_bodies_are_refused() {
        for length in 0..12 {
            assert!(parse(&vec![2; length]).is_none());
        }
    }
}
