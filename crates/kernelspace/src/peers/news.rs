//! Turns the kernel's news into events for control.

use super::super::kernel::Kernel;
use super::{Peers, elsewhere};
use netio::netlink::{OvpnEvent, PeerEnd};
use plane::{LineId, Notice, PeerId};
use std::net::SocketAddr;

impl<K: Kernel> Peers<K> {
    /// Takes news in. Returns what control is to be told, and of whom.
    pub(crate) fn hear(&mut self, event: OvpnEvent) -> Option<(PeerId, Notice)> {
        match event {
            // Control has asked for it, or need not be told as the interface goes.
            OvpnEvent::PeerGone {
                why: PeerEnd::Asked | PeerEnd::Teardown,
                ..
            } => None,
            OvpnEvent::PeerGone { peer, why } => {
                let id = self.lost(peer)?;
                if why == PeerEnd::Expired {
                    return Some((id, Notice::Silent));
                }
                log::error!("the kernel has let go of peer {peer}: {why}");
                Some((id, Notice::Failed))
            }
            OvpnEvent::KeyWorn { peer, .. } => {
                let id = self.by_number(peer)?;
                let index = self.peers.get(&id)?.slots.primary?;
                Some((id, Notice::Refresh { index }))
            }
            OvpnEvent::Floated { peer, to } => {
                let line = LineId::FIRST;
                Some((self.floated(peer, to)?, Notice::Moved { line }))
            }
            OvpnEvent::Overrun => {
                // The next look at the peers shows what the news were.
                log::debug!("news of peers were lost");
                None
            }
            _ => None,
        }
    }

    /// The peer that the kernel has this number for.
    pub(super) fn by_number(&self, number: u32) -> Option<PeerId> {
        self.numbers.get(&number).copied()
    }

    /// The kernel sends to a peer at another address now. Returns whose it is.
    pub(super) fn floated(&mut self, number: u32, to: SocketAddr) -> Option<PeerId> {
        let id = self.by_number(number)?;
        let line = self.peers.get_mut(&id)?.line.as_mut()?;
        line.endpoint = elsewhere(line.endpoint, to);
        Some(id)
    }

    /// The kernel has let go of a peer. Returns whose it was, unless that is known.
    pub(super) fn lost(&mut self, number: u32) -> Option<PeerId> {
        let id = self.by_number(number)?;
        let peer = self.peers.get_mut(&id)?;
        (!std::mem::replace(&mut peer.silent, true)).then_some(id)
    }
}
