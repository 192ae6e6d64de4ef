//! Requests to the kernel, behind a trait so that a test can answer them.

use netio::netlink::{
    Netlink, NetlinkError, Ovpn, OvpnKey, OvpnPeer, OvpnPeerState, OvpnSlot, Route,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The kernel's peers and keys of one interface.
pub(crate) trait Kernel: Send {
    /// [`Ovpn::add_peer`].
    fn add_peer(&mut self, peer: &OvpnPeer<'_>) -> Result<(), NetlinkError>;
    /// [`Ovpn::move_peer`].
    fn move_peer(
        &mut self,
        id: u32,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<(), NetlinkError>;
    /// See [`Ovpn::set_inside`].
    fn set_inside(
        &mut self,
        id: u32,
        v4: Option<Ipv4Addr>,
        v6: Option<Ipv6Addr>,
    ) -> Result<(), NetlinkError>;
    /// [`Ovpn::keep_alive`].
    fn keep_alive(&mut self, id: u32, ping: u32, timeout: u32) -> Result<(), NetlinkError>;
    /// [`Ovpn::peer`].
    fn peer(&mut self, id: u32) -> Result<OvpnPeerState, NetlinkError>;
    /// [`Ovpn::remove_peer`].
    fn remove_peer(&mut self, id: u32) -> Result<(), NetlinkError>;
    /// [`Ovpn::add_key`].
    fn add_key(&mut self, key: &OvpnKey<'_>) -> Result<(), NetlinkError>;
    /// [`Ovpn::swap_keys`].
    fn swap_keys(&mut self, peer: u32) -> Result<(), NetlinkError>;
    /// [`Ovpn::remove_key`].
    fn remove_key(&mut self, peer: u32, slot: OvpnSlot) -> Result<(), NetlinkError>;
    /// Routes a network through the interface to the peer with this inner address.
    fn add_route(&mut self, network: (IpAddr, u8), via: IpAddr) -> Result<(), NetlinkError>;
    /// Removes a route that [`Self::add_route`] added.
    fn remove_route(&mut self, network: (IpAddr, u8), via: IpAddr) -> Result<(), NetlinkError>;
}

/// The real kernel.
#[derive(Debug)]
pub(crate) struct Linux {
    pub(crate) ovpn: Ovpn,
    pub(crate) netlink: Netlink,
    pub(crate) index: u32,
}

/// Metric of routes to networks behind a peer. A network that the host is on comes first (IPv4, metric 0). The
/// tunnel's own route to that network, which names no peer, comes last (metric 200 by default). The values are
/// OpenVPN's (DCO_IROUTE_METRIC and DCO_DEFAULT_METRIC in its dco.h).
const METRIC: u32 = 100;

impl Linux {
    fn route(&self, (network, bits): (IpAddr, u8), via: IpAddr) -> Route {
        Route {
            metric: Some(METRIC),
            ..Route::new(network, bits).via(via).dev(self.index)
        }
    }
}

impl Kernel for Linux {
    fn add_peer(&mut self, peer: &OvpnPeer<'_>) -> Result<(), NetlinkError> {
        self.ovpn.add_peer(peer)
    }

    fn move_peer(
        &mut self,
        id: u32,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<(), NetlinkError> {
        self.ovpn.move_peer(id, remote, local)
    }

    fn set_inside(
        &mut self,
        id: u32,
        v4: Option<Ipv4Addr>,
        v6: Option<Ipv6Addr>,
    ) -> Result<(), NetlinkError> {
        self.ovpn.set_inside(id, v4, v6)
    }

    fn keep_alive(&mut self, id: u32, ping: u32, timeout: u32) -> Result<(), NetlinkError> {
        self.ovpn.keep_alive(id, ping, timeout)
    }

    fn peer(&mut self, id: u32) -> Result<OvpnPeerState, NetlinkError> {
        self.ovpn.peer(id)
    }

    fn remove_peer(&mut self, id: u32) -> Result<(), NetlinkError> {
        self.ovpn.remove_peer(id)
    }

    fn add_key(&mut self, key: &OvpnKey<'_>) -> Result<(), NetlinkError> {
        self.ovpn.add_key(key)
    }

    fn swap_keys(&mut self, peer: u32) -> Result<(), NetlinkError> {
        self.ovpn.swap_keys(peer)
    }

    fn remove_key(&mut self, peer: u32, slot: OvpnSlot) -> Result<(), NetlinkError> {
        self.ovpn.remove_key(peer, slot)
    }

    fn add_route(&mut self, network: (IpAddr, u8), via: IpAddr) -> Result<(), NetlinkError> {
        self.netlink.add_route(&self.route(network, via))
    }

    fn remove_route(&mut self, network: (IpAddr, u8), via: IpAddr) -> Result<(), NetlinkError> {
        self.netlink.delete_route(&self.route(network, via))
    }
}
