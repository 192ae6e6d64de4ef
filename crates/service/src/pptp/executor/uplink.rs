//! The uplink of a client. A call keeps the source address that it began with, so a call over another address or
//! uplink needs new sockets.

use super::Outside;
use crate::pptp::machine::ONLY;
use netio::netlink::Netlink;
use nix::sys::socket::{setsockopt, sockopt::BindToDevice};
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// Time between a change of the host's network and a look at it: an address comes before its routes.
const SETTLE: Duration = Duration::from_millis(200);

/// A documentation address (RFC 5737), which only a default route covers.
const ANYWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Index of the device that leads to the server, and its source address.
type Way = (u32, IpAddr);

/// Where packets to the server leave this host.
#[derive(Debug)]
pub(super) struct Uplink {
    /// The server that was called last.
    server: Ipv4Addr,
    /// The way of the call; between calls, the way at the last look.
    way: Option<Way>,
    /// When to look at the host's network, after a change.
    pub(super) look_at: Option<Instant>,
}

impl Default for Uplink {
    fn default() -> Self {
        Self {
            server: ANYWHERE,
            way: None,
            look_at: None,
        }
    }
}

impl Uplink {
    /// Looks at the host's network soon, as it has changed.
    pub(super) fn changed(&mut self, now: Instant) {
        self.look_at.get_or_insert(now + SETTLE);
    }
}

impl Outside<'_> {
    /// Records the way to a server, just before it is called.
    pub(super) fn calls(&mut self, server: Ipv4Addr) {
        let way = self.way(server).ok();
        if let Some(uplink) = &mut self.uplink {
            (uplink.server, uplink.way) = (server, way);
        }
    }

    /// Looks at the host's network if that is due. Returns whether to call the server at once: the call's source
    /// address does not belong to the device that leads to the server now, or a way has appeared between calls. A call
    /// stays while the host has no way at all, because the same address may return.
    pub(super) fn has_moved(&mut self, now: Instant) -> bool {
        let due = |uplink: &mut Uplink| uplink.look_at.take_if(|at| *at <= now).is_some();
        let Some(server) = self
            .uplink
            .as_mut()
            .and_then(|it| due(it).then_some(it.server))
        else {
            return false;
        };
        let (way, calls) = (self.way(server).ok(), self.streams.contains_key(&ONLY));
        let before = match &mut self.uplink {
            Some(uplink) if !calls => std::mem::replace(&mut uplink.way, way),
            uplink => uplink.as_ref().and_then(|it| it.way),
        };
        let stays = || {
            calls
                && way
                    .zip(before)
                    .is_some_and(|(way, before)| self.reaches(way, before))
        };
        way.is_some() && way != before && !stays()
    }

    /// Whether packets of a call that began on the way `before` can take the present way: its device has their source
    /// address, and is the one that the sockets are bound to.
    fn reaches(&self, way: Way, before: Way) -> bool {
        let has = |mut netlink: Netlink| netlink.addresses(Some(way.0));
        let has = Netlink::open().and_then(has);
        let is_same = self.options.bind_device.is_none() || way.0 == before.0;
        is_same && has.is_ok_and(|all| all.iter().any(|it| it.ip == before.1))
    }

    /// The host's way to a server.
    ///
    /// # Errors
    /// The host has none outside the tunnel.
    fn way(&self, server: Ipv4Addr) -> io::Result<Way> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        if let Some(device) = &self.options.bind_device {
            setsockopt(&socket, BindToDevice, &device.into())?;
        }
        // Chooses the source address, and sends nothing.
        socket.connect((server, 1))?;
        let source = socket.local_addr()?.ip();
        let mut netlink = Netlink::open().map_err(io::Error::other)?;
        let dev = match &self.options.bind_device {
            Some(device) => netlink.index_of(device).map_err(io::Error::other)?,
            None => {
                let all = netlink.addresses(None).map_err(io::Error::other)?;
                let found = all.iter().find(|it| it.ip == source);
                found.ok_or(io::ErrorKind::AddrNotAvailable)?.index
            }
        };
        let inside = netlink.index_of(self.tun.name());
        match inside.is_ok_and(|inside| inside == dev) {
            true => Err(io::ErrorKind::NetworkUnreachable.into()),
            false => Ok((dev, source)),
        }
    }
}
