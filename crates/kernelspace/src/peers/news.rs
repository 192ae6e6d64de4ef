//! Turns the kernel's news into events for control.

use super::{Peers, elsewhere};
use crate::kernel::Kernel;
use netio::netlink::{OvpnEvent, PeerEnd};
use plane::{LineId, Notice, PeerId};
use std::net::SocketAddr;

impl<K: Kernel> Peers<K> {
    /// Handles an event. Returns the notice for control, and the peer that it is about.
    pub(crate) fn hear(&mut self, event: OvpnEvent) -> Option<(PeerId, Notice)> {
        match event {
            // Control has removed the peer itself, or the interface ends.
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
                // The next look at the peers shows the change.
                log::debug!("news of peers were lost");
                None
            }
            _ => None,
        }
    }

    /// The peer that has this number in the kernel.
    pub(super) fn by_number(&self, number: u32) -> Option<PeerId> {
        self.numbers.get(&number).copied()
    }

    /// Notes that the kernel now sends to another address of a peer. Returns the peer.
    pub(super) fn floated(&mut self, number: u32, to: SocketAddr) -> Option<PeerId> {
        let id = self.by_number(number)?;
        let line = self.peers.get_mut(&id)?.line.as_mut()?;
        line.endpoint = elsewhere(line.endpoint, to);
        Some(id)
    }

    /// Notes that the kernel has removed a peer. Returns the peer, unless control knows that already.
    pub(super) fn lost(&mut self, number: u32) -> Option<PeerId> {
        let id = self.by_number(number)?;
        let peer = self.peers.get_mut(&id)?;
        (!std::mem::replace(&mut peer.silent, true)).then_some(id)
    }
}
