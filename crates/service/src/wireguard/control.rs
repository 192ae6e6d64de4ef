//! Carries the protocol's output to the data plane, and the data plane's notices to the protocol.

use super::machine::{Cx, Machine};
use super::peers::LOST_AFTER;
use crate::inbox::InboxLimits;
use host::strangers;
use plane::{Endpoint, Line, Notice, PeerId};
use wireguard::message::INITIATION_LEN;
use wireguard::{Activity, Dropped, Output};

/// Limits of the control thread's inbox, with the kernel's queue length. A full inbox is at most a second's work on a
/// small core, while a client waits five seconds.
pub(super) const INBOX: InboxLimits = InboxLimits {
    datagrams: 4096,
    longest: LONGEST,
    // The only part of the answer to a probe that is read. Messages of an exchange of keys are read to their end.
    message_head: if cfg!(feature = "postquantum") {
        LONGEST
    } else {
        INITIATION_LEN
    },
    active: true,
};

/// Bytes of the longest handshake datagram: an initiation, or one of AmneziaWG behind the longest prefix and before the
/// longest trailer of other programs; or the longest message inside a data packet, of an exchange of post-quantum keys.
const LONGEST: usize = if cfg!(any(feature = "amnezia", feature = "postquantum")) {
    2048
} else {
    INITIATION_LEN
};

/// Number of waiting messages from which the device counts as under load, as in the kernel.
const UNDER_LOAD: usize = INBOX.datagrams / 8;

impl Machine {
    /// Handles a datagram that is not a data packet.
    pub(super) fn handshake(&mut self, from: Line, bytes: &[u8], waiting: usize, cx: &mut Cx<'_>) {
        let (now, under_load) = (cx.now.monotonic, waiting >= UNDER_LOAD);
        let mut out = Vec::new();
        let result = self
            .device
            .receive(bytes, from.endpoint.addr, now, under_load, &mut out);
        if let Err(why) = result {
            self.count(why);
            // Any sender that can reach the port can cause most of these. A peer that was removed knows our key.
            let level = match why {
                Dropped::UnknownPeer => log::Level::Info,
                _ => log::Level::Debug,
            };
            strangers::log(
                level,
                format_args!(
                    "dropped a handshake message from {}: {why}",
                    from.endpoint.addr
                ),
            );
            #[cfg(feature = "amnezia")]
            self.diagnose(bytes, from.endpoint.addr, why, cx);
        }
        self.translate(out, Some((from, bytes.len())), cx);
    }

    /// Handles the data plane's notices about peers.
    pub(super) fn notices(&mut self, mut notices: Vec<(PeerId, Notice)>, cx: &mut Cx<'_>) {
        // Confirmations first: the answer to the packet that confirmed a session may have found no
        // key yet and asked for one, and must not begin another handshake for it.
        notices.sort_by_key(|(id, notice)| (!matches!(notice, Notice::Confirmed { .. }), *id));
        for (id, notice) in notices {
            // The peer may be gone.
            if self.peers.contains_key(&id) {
                self.notice(id, notice, cx);
            }
        }
        #[cfg(feature = "amnezia")]
        self.look_for_bare_keepalives(cx);
    }

    fn notice(&mut self, id: PeerId, notice: Notice, cx: &mut Cx<'_>) {
        let (now, mut out) = (cx.now.monotonic, Vec::new());
        match notice {
            Notice::NeedSession => {
                self.device.need_session(id, now, &mut out);
                // Part of a worker's batch may have been staged after control reported the new key. No further
                // handshake will come to send that part.
                cx.plane.send_staged(id);
            }
            Notice::Confirmed { index } => self.device.confirmed(id, index, now, &mut out),
            Notice::Refresh { index } => self.device.refresh(id, index, now, &mut out),
            Notice::Moved { .. } => self.peers_changed(cx),
            // The owner derives the MTU from the path again, as after a change of the network.
            #[cfg(feature = "amnezia")]
            Notice::TooLong => self.network_changed(now),
            #[cfg(not(feature = "amnezia"))]
            Notice::TooLong => {}
            // These notices are for OpenVPN only.
            Notice::Compressed { .. } | Notice::Unframed | Notice::Silent | Notice::Failed => {}
            Notice::Active => {
                self.probing.stir(now);
                let activity = cx.peer(id).times.into();
                self.device.activity(id, &activity, now, &mut out);
            }
        }
        self.translate(out, None, cx);
    }

    /// Runs the protocol's timers that are due.
    pub(super) fn expire(&mut self, cx: &mut Cx<'_>) {
        let mut out = Vec::new();
        let activity = |id| Activity::from(cx.peer(id).times);
        self.device.expired(cx.now.monotonic, activity, &mut out);
        self.translate(out, None, cx);
    }

    /// Carries out the protocol's outputs. `received` names the sender and the length of the datagram that
    /// caused them.
    pub(super) fn translate(
        &mut self,
        out: Vec<Output>,
        received: Option<(Line, usize)>,
        cx: &mut Cx<'_>,
    ) {
        if !out.is_empty() {
            self.keep_floor(self.device.latest_timestamp(), cx);
        }
        for output in out {
            self.output(output, received, cx);
        }
    }

    fn output(&mut self, output: Output, received: Option<(Line, usize)>, cx: &mut Cx<'_>) {
        match output {
            // The device is not told to exchange keys yet.
            Output::Send {
                peer: None,
                to,
                datagram,
            } => {
                let from = received.map(|(from, _)| from);
                let from = from.filter(|it| it.endpoint.addr == to);
                let to = from.unwrap_or_else(|| Line::udp(Endpoint::new(to)));
                cx.plane.send(&to, datagram.as_bytes());
            }
            Output::Send {
                peer: Some(id),
                datagram,
                ..
            } => {
                let begins = datagram.is_initiation();
                if begins {
                    self.initiated(id, cx);
                    self.asked_by_line(id, cx.now.monotonic);
                }
                let bytes = datagram.as_bytes();
                for junk in datagram.before() {
                    cx.plane.send_to_peer(id, None, junk);
                }
                cx.plane.note_sent(id, cx.now.monotonic, bytes.len());
                if let Some((from, _)) = received.filter(|_| !begins && self.answers_by_line()) {
                    cx.plane.send(&from, bytes);
                    return;
                }
                // The data plane knows best where the peer is, and which of our addresses it sends to.
                cx.plane.send_to_peer(id, None, bytes);
            }
            Output::Heard { peer, from, begins } => {
                let (from, bytes) = received.unwrap_or_else(|| (Line::udp(Endpoint::new(from)), 0));
                if let Some(entry) = self.peers.get_mut(&peer).filter(|_| begins) {
                    let received = cx.peer(peer).times.last_received;
                    #[cfg(feature = "postquantum")]
                    if !entry.silence.is_last(received) {
                        self.device.heard_between_handshakes(peer);
                    }
                    entry.silence.called(cx.now.monotonic, received);
                }
                self.heard_by_line(peer, from, cx);
                #[cfg(feature = "amnezia")]
                let times = cx.peer(peer).times;
                cx.plane.note_received(peer, cx.now.monotonic, bytes);
                #[cfg(feature = "amnezia")]
                match begins {
                    true => self.begun(peer, from.endpoint.addr, cx),
                    false => self.answered(peer, &times, cx),
                }
            }
            Output::AddKeys { peer, keys } => {
                if let Err(error) = cx.plane.add_keys(peer, keys) {
                    cx.log(log::Level::Error, &error.to_string());
                }
            }
            Output::SendWith {
                peer,
                local_index,
                confirm,
            } => {
                // Staged packets leave with the new key, which confirms it too.
                let staged = cx.peer(peer).staged;
                cx.plane.send_with(peer, local_index);
                if confirm && !staged {
                    cx.plane.send_keepalive(peer);
                }
            }
            Output::RemoveKeys { peer, local_index } => {
                cx.plane.remove_keys(peer, local_index);
            }
            Output::StopSending { peer } => cx.plane.stop_sending(peer),
            Output::SendKeepalive { peer } => {
                let _sent = match cx.peer(peer).staged {
                    true => cx.plane.send_staged(peer),
                    false => cx.plane.send_keepalive(peer),
                };
            }
            #[cfg(feature = "postquantum")]
            Output::SendInside {
                peer,
                local_index,
                payload,
            } => self.send_inside(peer, local_index, &payload, cx),
            #[cfg(feature = "postquantum")]
            Output::Compute { peer, job } => cx.host.compute(peer, job),
            Output::DropStaged { peer } => cx.plane.drop_staged(peer),
            Output::Disarmed { peer } => cx.disarm(peer),
            Output::HandshakeComplete { peer, at } => {
                self.probing.stir(cx.now.monotonic);
                self.peers_changed(cx);
                if let Some(entry) = self.peers.get_mut(&peer) {
                    let words = entry.answered((at, cx.now.monotonic));
                    if let Some(words) = words {
                        self.log_peer(peer, words, cx);
                    }
                }
                let from = received.map(|(from, _)| from.endpoint);
                let from = from.or_else(|| cx.endpoint(peer)).map(|it| it.addr);
                let name = self.names.get_mut(&peer);
                let good = name.and_then(|name| name.answered(from, cx.now.monotonic));
                cx.keep_address(good);
                #[cfg(feature = "postquantum")]
                self.tell_protection(peer, cx);
                #[cfg(feature = "server")]
                self.succeed(peer, cx);
            }
            Output::PeerRemoved { peer } => self.forget_peer(peer, cx),
        }
    }

    /// Handles the start or the repetition of a handshake; a repetition tries the name's next address. A peer that has
    /// moved, and is silent, is called at the file's address, too: the other end may have moved by mistake, as a host
    /// with two uplinks does. Lines call that address anyway.
    fn initiated(&mut self, id: PeerId, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        let Some(entry) = self.peers.get_mut(&id) else {
            return;
        };
        let (unanswered, words) = entry.silence.initiated();
        if let Some(words) = words.filter(|_| !self.is_told) {
            #[cfg(feature = "amnezia")]
            let words = &format!("{words}{}", self.hint(id));
            self.log_peer(id, words, cx);
        }
        if unanswered > 0 && self.lines.is_none() {
            // Our address may be that of an uplink which no longer reaches the peer. Without a key, no other check
            // finds that out.
            cx.plane.forget_source(id);
        }
        let current = cx.endpoint(id).map(|endpoint| endpoint.addr);
        let next = match self.names.get_mut(&id) {
            Some(name) if unanswered > 0 => name.unanswered(now),
            None if unanswered >= LOST_AFTER && self.lines.is_none() => {
                let silent = self.peers.get(&id);
                let silent = silent.is_some_and(|it| self.is_silent(&id, it, now, cx.plane));
                let entry = self.peers.get_mut(&id).filter(|_| silent);
                entry.zip(current).and_then(|(it, at)| it.other_address(at))
            }
            _ => None,
        };
        if let Some(addr) = next.filter(|next| current != Some(*next)) {
            self.call_by_lines(id, Endpoint::new(addr), cx);
            // The device has just begun a handshake, and emits nothing for this.
            self.device
                .set_endpoint(id, Some(addr), now, &mut Vec::new());
        }
    }
}
