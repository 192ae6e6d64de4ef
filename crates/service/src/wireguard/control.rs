//! Carries the protocol's output to the data plane, and the data plane's notices to the protocol.

use super::effect::{Effect, PlaneRequest};
use super::machine::{Machine, Turn};
use crate::inbox::InboxLimits;
use plane::{Endpoint, Line, Notice, PeerId};
use wireguard::message::INITIATION_LEN;
use wireguard::{Activity, Output};

/// Limits of the control thread's inbox, with the kernel's queue length. A full inbox is at most a second's work on a
/// small core, while a client waits five seconds. The longest datagram is an initiation.
pub(super) const INBOX: InboxLimits = InboxLimits {
    datagrams: 4096,
    longest: INITIATION_LEN,
    // The only part of the answer to a probe that is read.
    message_head: INITIATION_LEN,
    active: true,
};

/// Number of waiting messages from which the device counts as under load, as in the kernel.
const UNDER_LOAD: usize = INBOX.datagrams / 8;

impl Machine {
    /// Handles a datagram that is not a data packet.
    pub(super) fn handshake(
        &mut self,
        from: Line,
        bytes: &[u8],
        waiting: usize,
        turn: &mut Turn<'_>,
    ) {
        let (now, under_load) = (turn.now.monotonic, waiting >= UNDER_LOAD);
        let mut out = Vec::new();
        let result = self
            .device
            .receive(bytes, from.endpoint.addr, now, under_load, &mut out);
        if let Err(why) = result {
            self.count(why);
            turn.effects
                .push(Effect::LogDropped(from.endpoint.addr, why));
        }
        self.translate(out, Some((from, bytes.len())), turn);
    }

    /// Handles the data plane's notices about peers.
    pub(super) fn notices(&mut self, mut notices: Vec<(PeerId, Notice)>, turn: &mut Turn<'_>) {
        // Confirmations first: the answer to the packet that confirmed a session may have found no
        // key yet and asked for one, and must not begin another handshake for it.
        notices.sort_by_key(|(id, notice)| (!matches!(notice, Notice::Confirmed { .. }), *id));
        for (id, notice) in notices {
            // The peer may be gone.
            if self.peers.contains_key(&id) {
                self.notice(id, notice, turn);
            }
        }
    }

    fn notice(&mut self, id: PeerId, notice: Notice, turn: &mut Turn<'_>) {
        let (now, mut out) = (turn.now.monotonic, Vec::new());
        match notice {
            Notice::NeedSession => {
                self.device.need_session(id, now, &mut out);
                // Part of a worker's batch may have been staged after control reported the new key. No further
                // handshake will come to send that part.
                turn.plane(PlaneRequest::SendStaged(id));
            }
            Notice::Confirmed { index } => self.device.confirmed(id, index, now, &mut out),
            Notice::Refresh { index } => self.device.refresh(id, index, now, &mut out),
            Notice::Moved { .. } => self.peers_changed(turn),
            // These notices are for OpenVPN only.
            Notice::Compressed { .. } | Notice::Silent | Notice::Failed => {}
            Notice::Active => {
                self.probing.stir(now);
                let activity = turn.peer(id).times.into();
                self.device.activity(id, &activity, now, &mut out);
            }
        }
        self.translate(out, None, turn);
    }

    /// Runs the protocol's timers that are due.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        let mut out = Vec::new();
        let activity = |id| Activity::from(turn.peer(id).times);
        self.device.expired(turn.now.monotonic, activity, &mut out);
        self.translate(out, None, turn);
    }

    /// Turns the protocol's outputs into effects. `received` names the sender and the length of the datagram that
    /// caused them.
    pub(super) fn translate(
        &mut self,
        out: Vec<Output>,
        received: Option<(Line, usize)>,
        turn: &mut Turn<'_>,
    ) {
        for output in out {
            self.output(output, received, turn);
        }
    }

    fn output(&mut self, output: Output, received: Option<(Line, usize)>, turn: &mut Turn<'_>) {
        match output {
            Output::Send {
                peer: None,
                to,
                datagram,
            } => {
                let from = received.map(|(from, _)| from);
                let from = from.filter(|it| it.endpoint.addr == to);
                let to = from.unwrap_or_else(|| Line::udp(Endpoint::new(to)));
                turn.plane(PlaneRequest::Send(to, datagram));
            }
            Output::Send {
                peer: Some(id),
                datagram,
                ..
            } => {
                let begins = datagram.is_initiation();
                if begins {
                    self.initiated(id, turn);
                    self.asked_by_line(id, turn.now.monotonic);
                }
                turn.plane(PlaneRequest::NoteSent(id, datagram.as_bytes().len()));
                if let Some((from, _)) = received.filter(|_| !begins && self.answers_by_line()) {
                    return turn.plane(PlaneRequest::Send(from, datagram));
                }
                // The data plane knows best where the peer is, and which address it called.
                turn.plane(PlaneRequest::SendToPeer(id, datagram));
            }
            Output::Heard { peer, from } => {
                let (from, bytes) = received.unwrap_or_else(|| (Line::udp(Endpoint::new(from)), 0));
                self.heard_by_line(peer, from, turn);
                turn.plane(PlaneRequest::NoteReceived(peer, bytes));
            }
            Output::AddKeys { peer, keys } => turn.plane(PlaneRequest::AddKeys(peer, keys)),
            Output::SendWith {
                peer,
                local_index,
                confirm,
            } => {
                turn.plane(PlaneRequest::SendWith(peer, local_index));
                // Staged packets leave with the new key, which confirms it too.
                if confirm && !turn.peer(peer).staged {
                    turn.plane(PlaneRequest::SendKeepalive(peer));
                }
            }
            Output::RemoveKeys { peer, local_index } => {
                turn.plane(PlaneRequest::RemoveKeys(peer, local_index));
            }
            Output::StopSending { peer } => turn.plane(PlaneRequest::StopSending(peer)),
            Output::SendKeepalive { peer } => {
                let staged = turn.peer(peer).staged;
                turn.plane(match staged {
                    true => PlaneRequest::SendStaged(peer),
                    false => PlaneRequest::SendKeepalive(peer),
                });
            }
            Output::DropStaged { peer } => turn.plane(PlaneRequest::DropStaged(peer)),
            Output::Disarmed { peer } => turn.plane(PlaneRequest::Disarm(peer)),
            Output::HandshakeComplete { peer, at } => {
                self.probing.stir(turn.now.monotonic);
                self.peers_changed(turn);
                if let Some(entry) = self.peers.get_mut(&peer) {
                    entry.last_handshake = Some((at, turn.now.monotonic));
                    let words = entry.silence.answered();
                    turn.effects
                        .extend(words.map(|words| Effect::LogPeer(peer, words.into())));
                }
                let from = received.map(|(from, _)| from.endpoint);
                let from = from.or_else(|| turn.endpoint(peer)).map(|it| it.addr);
                let name = self.names.get_mut(&peer);
                let good = name.and_then(|name| name.answered(from, turn.now.monotonic));
                turn.keep_address(good);
            }
            Output::PeerRemoved { peer } => self.forget_peer(peer, turn),
        }
    }

    /// Handles the start or the repetition of a handshake; a repetition tries the name's next address.
    fn initiated(&mut self, id: PeerId, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let Some(entry) = self.peers.get_mut(&id) else {
            return;
        };
        let (unanswered, words) = entry.silence.initiated();
        turn.effects
            .extend(words.map(|words| Effect::LogPeer(id, words.into())));
        let name = self.names.get_mut(&id).filter(|_| unanswered > 0);
        let next = name.and_then(|name| name.unanswered(now));
        let current = turn.endpoint(id).map(|endpoint| endpoint.addr);
        if let Some(addr) = next.filter(|next| current != Some(*next)) {
            self.call_by_lines(id, Endpoint::new(addr), turn);
            // The device has just begun a handshake, and puts out nothing for this.
            self.device
                .set_endpoint(id, Some(addr), now, &mut Vec::new());
        }
    }
}
