//! The uplink under a client whose sockets keep the source address that they began with: TCP, and the GRE of PPTP.
//! Over another address or uplink, such a client needs new sockets.

use netio::netlink::Netlink;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

/// Time between a change of the host's network and a look at it: an address comes before its routes.
const SETTLE: Duration = Duration::from_millis(200);

/// Time after which another way must still be there to end a call: when a lease is renewed, one may appear for a moment.
const CONFIRM: Duration = Duration::from_millis(300);

/// How the packets of a tunnel leave this host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving<'a> {
    /// The device to which the sockets are bound.
    pub(crate) device: Option<&'a str>,
    /// The firewall mark, 0 for none.
    pub(crate) mark: u32,
    /// The tunnel's own interface, through which they must not leave.
    pub(crate) tunnel: &'a str,
}

/// Index of the device that leads to the server, and its source address.
type Way = (u32, IpAddr);

/// Where packets to the server leave this host.
#[derive(Debug, Default)]
pub(crate) struct Uplink {
    /// The server that was called last.
    server: Option<IpAddr>,
    /// The way of the call, or the other way that ended it.
    way: Option<Way>,
    /// The way at the last look.
    last: Option<Way>,
    /// Another way, found at the last look.
    seen: Option<Way>,
    /// When to look at the host's network, after a change.
    pub(crate) look_at: Option<Instant>,
}

impl Uplink {
    /// The uplink towards an address, until a server is called.
    #[cfg(feature = "pptp")]
    pub(crate) fn towards(address: IpAddr, leaving: Leaving<'_>) -> Self {
        let mut uplink = Self::default();
        uplink.calls(address, leaving);
        uplink
    }

    /// Looks at the host's network soon, as it has changed.
    pub(crate) fn changed(&mut self, now: Instant) {
        self.look_at.get_or_insert(now + SETTLE);
    }

    /// Records the way to a server that is about to be called. A look that is due stays due.
    pub(crate) fn calls(&mut self, server: IpAddr, leaving: Leaving<'_>) {
        self.server = Some(server);
        self.begins(way(server, leaving).ok());
    }

    fn begins(&mut self, way: Option<Way>) {
        (self.way, self.last, self.seen) = (way, way, None);
    }

    /// Looks at the host's network if that is due. Returns whether to call the server at once: the call's source
    /// address does not belong to the device that leads to the server now, or a way has appeared between calls. A call
    /// stays while the host has no way at all, because the same address may return.
    pub(crate) fn has_moved(&mut self, now: Instant, in_call: bool, leaving: Leaving<'_>) -> bool {
        let due = self.look_at.take_if(|at| *at <= now).is_some();
        let Some(server) = self.server.filter(|_| due) else {
            return false;
        };
        let way = way(server, leaving).ok();
        let stays = |way, before| reaches(way, before, leaving);
        self.leaves(now, in_call, way, stays, |before| !is_gone(before))
    }

    /// Decides about the present way. `stays` tells whether packets of a call that began on the second way can take the
    /// first one, and `works` whether the host still has the way's source address.
    fn leaves(
        &mut self,
        now: Instant,
        in_call: bool,
        way: Option<Way>,
        stays: impl Fn(Way, Way) -> bool,
        works: impl Fn(Way) -> bool,
    ) -> bool {
        let last = std::mem::replace(&mut self.last, way);
        let before = if in_call { self.way } else { last };
        let stays = |way| in_call && before.is_some_and(|it| stays(way, it));
        let moved = way.is_some_and(|it| before != Some(it) && !stays(it));
        let is_doubtful = moved && in_call && self.seen != way && before.is_some_and(works);
        self.seen = way.filter(|_| is_doubtful);
        if is_doubtful {
            self.look_at = Some(now + CONFIRM);
        } else if moved {
            self.way = way;
        }
        moved && !is_doubtful
    }
}

/// Whether no device has the source address of a call any more.
fn is_gone(way: Way) -> bool {
    let all = Netlink::open().and_then(|mut netlink| netlink.addresses(None));
    all.is_ok_and(|all| all.iter().all(|it| it.ip != way.1))
}

/// Whether packets of a call that began on the way `before` can take the present way: its device has their source
/// address, and is the one that the sockets are bound to.
fn reaches(way: Way, before: Way, leaving: Leaving<'_>) -> bool {
    let has = |mut netlink: Netlink| netlink.addresses(Some(way.0));
    let has = Netlink::open().and_then(has);
    let is_same = leaving.device.is_none() || way.0 == before.0;
    is_same && has.is_ok_and(|all| all.iter().any(|it| it.ip == before.1))
}

/// The host's way to a server.
///
/// # Errors
/// The host has none outside the tunnel.
fn way(server: IpAddr, leaving: Leaving<'_>) -> io::Result<Way> {
    let any: IpAddr = match server {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    if let Some(device) = leaving.device {
        setsockopt(&socket, sockopt::BindToDevice, &device.into())?;
    }
    if leaving.mark != 0 {
        setsockopt(&socket, sockopt::Mark, &leaving.mark)?;
    }
    // Chooses the source address, and sends nothing.
    socket.connect((server, 1))?;
    let source = socket.local_addr()?.ip();
    let mut netlink = Netlink::open().map_err(io::Error::other)?;
    let dev = match leaving.device {
        Some(device) => netlink.index_of(device).map_err(io::Error::other)?,
        None => {
            let all = netlink.addresses(None).map_err(io::Error::other)?;
            let found = all.iter().find(|it| it.ip == source);
            found.ok_or(io::ErrorKind::AddrNotAvailable)?.index
        }
    };
    match netlink.index_of(leaving.tunnel) {
        Ok(inside) if inside == dev => Err(io::ErrorKind::NetworkUnreachable.into()),
        _ => Ok((dev, source)),
    }
}

#[cfg(test)]
mod tests;
