//! A kernel that refuses the same requests as the real one.

use crate::kernel::Kernel;
use crate::peer::{Inside, LONGEST};
use netio::netlink::{NetlinkError, OvpnFigures, OvpnKey, OvpnPeer, OvpnPeerState, OvpnSlot};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The kernel's state of a peer: the number of the key in either slot, and the last settings.
#[derive(Default)]
pub(super) struct Known {
    pub(super) primary: Option<u8>,
    pub(super) secondary: Option<u8>,
    pub(super) inside: Inside,
    pub(super) local: Option<IpAddr>,
    pub(super) remote: Option<SocketAddr>,
    pub(super) timers: Option<(u32, u32)>,
    pub(super) figures: OvpnFigures,
    pub(super) opened: OvpnFigures,
}

/// A kernel that follows the rules of `ovpn`.
#[derive(Default)]
pub(super) struct Simulated {
    pub(super) several: bool,
    pub(super) peers: BTreeMap<u32, Known>,
    pub(super) asked: Vec<String>,
    pub(super) routes: Vec<((IpAddr, u8), IpAddr)>,
    pub(super) refuses: bool,
    pub(super) looks: usize,
}

fn refused(errno: i32) -> NetlinkError {
    NetlinkError::Refused {
        operation: "be simulated",
        object: String::new(),
        error: io::Error::from_raw_os_error(errno),
        hint: String::new(),
    }
}

const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const EADDRINUSE: i32 = 98;

impl Simulated {
    fn known(&mut self, id: u32) -> Result<&mut Known, NetlinkError> {
        self.peers.get_mut(&id).ok_or_else(|| refused(ENOENT))
    }

    fn is_taken(&self, id: u32, inside: Inside) -> bool {
        let others = self.peers.iter().filter(|(it, _)| **it != id);
        let mut others = others.map(|(_, known)| known.inside);
        others.any(|(v4, v6)| (v4.is_some() && v4 == inside.0) || (v6.is_some() && v6 == inside.1))
    }
}

impl Kernel for Simulated {
    fn add_peer(&mut self, peer: &OvpnPeer<'_>) -> Result<(), NetlinkError> {
        self.asked.push(format!("peer {}", peer.id));
        let inside = (peer.inside_v4, peer.inside_v6);
        let has_address = inside != (None, None);
        if self.refuses || has_address != self.several {
            return Err(refused(EINVAL));
        }
        if self.is_taken(peer.id, inside) {
            return Err(refused(EADDRINUSE));
        }
        let known = Known {
            inside,
            local: peer.local,
            remote: Some(peer.remote),
            ..Known::default()
        };
        self.peers.insert(peer.id, known);
        Ok(())
    }

    fn move_peer(
        &mut self,
        id: u32,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<(), NetlinkError> {
        self.asked.push(format!("move {id} {remote}"));
        let known = self.known(id)?;
        (known.local, known.remote) = (local, Some(remote));
        Ok(())
    }

    fn set_inside(
        &mut self,
        id: u32,
        v4: Option<Ipv4Addr>,
        v6: Option<Ipv6Addr>,
    ) -> Result<(), NetlinkError> {
        if self.is_taken(id, (v4, v6)) {
            return Err(refused(EADDRINUSE));
        }
        if (v4, v6) == (None, None) {
            return Err(refused(EINVAL));
        }
        self.known(id)?.inside = (v4, v6);
        Ok(())
    }

    fn keep_alive(&mut self, id: u32, ping: u32, timeout: u32) -> Result<(), NetlinkError> {
        self.asked.push(format!("timers {id} {ping} {timeout}"));
        if ping.max(timeout) > LONGEST {
            return Err(refused(ERANGE));
        }
        self.known(id)?.timers = Some((ping, timeout));
        Ok(())
    }

    fn peer(&mut self, id: u32) -> Result<OvpnPeerState, NetlinkError> {
        self.looks += 1;
        let known = self.known(id)?;
        Ok(OvpnPeerState {
            id,
            remote: known.remote,
            outside: known.figures,
            inside: known.opened,
            ..OvpnPeerState::default()
        })
    }

    fn remove_peer(&mut self, id: u32) -> Result<(), NetlinkError> {
        self.asked.push(format!("no peer {id}"));
        self.peers
            .remove(&id)
            .map(drop)
            .ok_or_else(|| refused(ENOENT))
    }

    fn add_key(&mut self, key: &OvpnKey<'_>) -> Result<(), NetlinkError> {
        self.asked
            .push(format!("key {} {:?}", key.key_id, key.slot));
        let known = self.known(key.peer)?;
        match key.slot {
            OvpnSlot::Primary => known.primary = Some(key.key_id),
            OvpnSlot::Secondary => known.secondary = Some(key.key_id),
        }
        Ok(())
    }

    fn swap_keys(&mut self, peer: u32) -> Result<(), NetlinkError> {
        self.asked.push("swap".to_owned());
        let known = self.known(peer)?;
        std::mem::swap(&mut known.primary, &mut known.secondary);
        Ok(())
    }

    fn remove_key(&mut self, peer: u32, slot: OvpnSlot) -> Result<(), NetlinkError> {
        self.asked.push(format!("no key {slot:?}"));
        let known = self.known(peer)?;
        match slot {
            OvpnSlot::Primary => known.primary = None,
            OvpnSlot::Secondary => known.secondary = None,
        }
        Ok(())
    }

    fn add_route(&mut self, network: (IpAddr, u8), via: IpAddr) -> Result<(), NetlinkError> {
        self.routes.push((network, via));
        Ok(())
    }

    fn remove_route(&mut self, network: (IpAddr, u8), via: IpAddr) -> Result<(), NetlinkError> {
        self.routes.retain(|it| *it != (network, via));
        Ok(())
    }
}
