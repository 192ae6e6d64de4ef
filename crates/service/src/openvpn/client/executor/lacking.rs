//! Detects a precondition that an attempt may have lacked: the right time, a default route.

use crate::clock_watch::ClockWatch;
use netio::netlink::Netlink;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Documentation addresses (RFC 5737, RFC 3849), which only a default route covers.
const ANYWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Watches the clock and the default route.
pub(super) struct Lacking {
    /// Reports when the clock is set.
    pub(super) clock: ClockWatch,
    /// Whether the last check found a default route.
    routed: bool,
    mark: u32,
}

impl Lacking {
    /// `mark` is the firewall mark of the tunnel's own packets.
    ///
    /// # Errors
    /// Too many open descriptors.
    pub(super) fn new(mark: u32) -> io::Result<Self> {
        Ok(Self {
            clock: ClockWatch::new()?,
            routed: is_routed(mark),
            mark,
        })
    }

    /// Checks the routes after a change. Returns whether a default route has appeared.
    pub(super) fn is_routed_again(&mut self) -> bool {
        let before = std::mem::replace(&mut self.routed, is_routed(self.mark));
        self.routed && !before
    }
}

fn is_routed(mark: u32) -> bool {
    let Ok(mut netlink) = Netlink::open() else {
        return true;
    };
    ANYWHERE
        .into_iter()
        .any(|to| netlink.route_get(to, mark).is_ok())
}
