//! Between the state machine and the data plane: what one puts out, the other is told.

use super::inbox::{Inbox, UNDER_LOAD};
use super::interface::Interface;
use super::peers::PeerEntry;
use super::wire::DataFormat;
use engine::{Format, KeyLimits, Notice};
use netio::udp::Endpoint;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wireguard::message::{REJECT_AFTER_MESSAGES, REKEY_AFTER_MESSAGES};
use wireguard::{Lifetime, Output, PeerId};

/// Most handshake messages served before everything else gets a turn: signals, timers and
/// configuration must get through even during a flood.
const MESSAGES_AT_ONCE: usize = 64;

impl Interface {
    /// Serves what workers have left in the inbox. Returns whether more waits.
    pub(super) fn serve(&mut self, inbox: &Inbox) -> bool {
        let now = self.now();
        let mut out = Vec::new();
        // Confirmations first: the answer to the packet that confirmed a session may have found no
        // key yet and asked for one, and must not begin another handshake for it.
        let (confirmed, others): (Vec<_>, Vec<_>) = inbox
            .take_notices()
            .into_iter()
            .partition(|(_, notice)| matches!(notice, Notice::Confirmed { .. }));
        for (peer, notice) in confirmed.into_iter().chain(others) {
            self.notice(PeerId(peer), notice, now, &mut out);
        }
        for _ in 0..MESSAGES_AT_ONCE {
            let Some((message, waiting)) = inbox.next_message() else {
                return false;
            };
            let from = message.from;
            let bytes = message.bytes();
            let under_load = waiting >= UNDER_LOAD;
            if let Err(why) = self
                .device
                .receive(bytes, from.addr, now, under_load, &mut out)
            {
                self.refusals.count(why.name());
                // Whoever can reach the port can cause this: never more than a debug line.
                log::debug!("handshake message from {}: {why}", from.addr);
            }
            perform(self, &mut out, now, Some((from, bytes.len())));
        }
        true
    }

    fn notice(&mut self, id: PeerId, notice: Notice, now: Instant, out: &mut Vec<Output>) {
        match notice {
            Notice::NeedSession => {
                self.device.need_session(id, now, out);
                // The rest of a worker's batch may have been staged after a new key was told, and
                // with that key no handshake will come that sends it.
                if let Some(entry) = self.peers.get(&id) {
                    self.tunnel.flush_staged(&entry.engine);
                }
            }
            Notice::Confirmed { index } => self.device.confirmed(id, index, now, out),
            Notice::Refresh { index } => self.device.refresh(id, index, now, out),
            // WireGuard's peers roam unasked, and compress nothing.
            Notice::Moved { .. } | Notice::Compressed { .. } => {}
            Notice::Active => {
                if let Some(entry) = self.peers.get(&id) {
                    let activity = entry.activity();
                    self.device.activity(id, &activity, now, out);
                }
            }
        }
        self.perform(out, now);
    }

    /// Runs the timers that are due.
    pub(super) fn expire(&mut self) {
        let now = self.now();
        let mut out = Vec::new();
        let peers = &self.peers;
        self.device.expired(
            now,
            |id| peers.get(&id).map(PeerEntry::activity).unwrap_or_default(),
            &mut out,
        );
        self.perform(&mut out, now);
    }

    /// How long nothing has to be done.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let deadline = self.device.next_deadline()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Does what the state machine asks for.
    pub(super) fn perform(&mut self, out: &mut Vec<Output>, now: Instant) {
        perform(self, out, now, None);
    }

    /// The packets of a session that the receiver calls `receiver`.
    fn format(&self, receiver: u32, key: &crypto::Key) -> Arc<dyn Format> {
        let cipher = self.cipher(key.as_bytes());
        Arc::new(DataFormat { receiver, cipher })
    }
}

fn limits(lifetime: &Lifetime) -> KeyLimits {
    KeyLimits {
        expires: lifetime.reject_after,
        messages_max: REJECT_AFTER_MESSAGES,
        refresh_at: lifetime.refresh_after,
        refresh_messages: if lifetime.refresh_after.is_some() {
            REKEY_AFTER_MESSAGES
        } else {
            u64::MAX
        },
    }
}

/// Does what the state machine asks for, in order. `received` is the datagram that led to it:
/// where it came from and its length.
fn perform(
    interface: &mut Interface,
    out: &mut Vec<Output>,
    now: Instant,
    received: Option<(Endpoint, usize)>,
) {
    // What is done can lead to more, at the end of the list.
    while !out.is_empty() {
        for output in std::mem::take(out) {
            one(interface, output, out, now, received);
        }
    }
}

fn one(
    interface: &mut Interface,
    output: Output,
    out: &mut Vec<Output>,
    now: Instant,
    received: Option<(Endpoint, usize)>,
) {
    let tunnel = &interface.tunnel;
    let peer = |id: PeerId| interface.peers.get(&id).map(|p| Arc::clone(&p.engine));
    match output {
        Output::Send {
            peer: Some(id),
            to,
            datagram,
        } => {
            let Some(peer) = peer(id) else { return };
            if datagram.is_initiation() {
                initiated(interface, id, &peer, now);
            }
            let tunnel = &interface.tunnel;
            // The data plane knows best where the peer is, and which address it called.
            let endpoint = peer.endpoint().unwrap_or_else(|| Endpoint::new(to));
            peer.handshake_sent(now, datagram.as_bytes().len());
            if tunnel.send(endpoint, datagram.as_bytes()).source_gone {
                peer.clear_source();
            }
        }
        Output::Send {
            peer: None,
            to,
            datagram,
        } => {
            let endpoint = received.map_or_else(|| Endpoint::new(to), |(from, _)| from);
            tunnel.send(endpoint, datagram.as_bytes());
        }
        Output::Heard { peer: id, from } => {
            let Some(peer) = peer(id) else { return };
            let (endpoint, bytes) = received.unwrap_or_else(|| (Endpoint::new(from), 0));
            peer.set_endpoint(endpoint);
            peer.handshake_received(now, bytes);
        }
        Output::InstallReceiveKey {
            peer: id,
            local_index,
            key,
            lifetime,
            confirm,
        } => {
            let Some(peer) = peer(id) else { return };
            let format = interface.format(local_index, &key);
            let answer = confirm.map(|answer| {
                let format = interface.format(answer.remote_index, &answer.key);
                (answer.remote_index, format, limits(&answer.lifetime))
            });
            tunnel.add_receive_key(local_index, &peer, format, limits(&lifetime), answer);
        }
        Output::InstallSendKey {
            peer: id,
            remote_index,
            local_index,
            key,
            lifetime,
            confirm,
        } => {
            let Some(peer) = peer(id) else { return };
            let staged = peer.has_staged();
            let indices = (remote_index, local_index);
            let format = interface.format(remote_index, &key);
            tunnel.set_send_key(&peer, indices, format, limits(&lifetime));
            if confirm && !staged {
                tunnel.send_keepalive(&peer);
            }
        }
        Output::RemoveReceiveKey { local_index, .. } => tunnel.remove_receive_key(local_index),
        Output::ClearSendKey { peer: id } => {
            if let Some(peer) = peer(id) {
                tunnel.clear_send_key(&peer);
            }
        }
        Output::SendKeepalive { peer: id } => {
            let Some(peer) = peer(id) else { return };
            if peer.has_staged() {
                tunnel.flush_staged(&peer);
            } else {
                tunnel.send_keepalive(&peer);
            }
        }
        Output::DropStaged { peer: id } => {
            if let Some(peer) = peer(id) {
                tunnel.drop_staged(&peer);
            }
        }
        Output::Disarmed { peer: id } => disarmed(interface, id, out, now),
        Output::HandshakeComplete { peer: id, at } => {
            if let Some(entry) = interface.peers.get_mut(&id) {
                entry.last_handshake = Some((at, now));
                if let Some(words) = entry.silence.answered() {
                    log::info!("{} {words}", whom(entry));
                }
                if let Some(name) = interface.names.get_mut(&id) {
                    name.answered();
                }
            }
        }
        Output::PeerRemoved { peer: id } => interface.forget_peer(id),
    }
}

/// A handshake begins, or begins once more: then the next address of a name has its turn.
fn initiated(interface: &mut Interface, id: PeerId, peer: &engine::Peer, now: Instant) {
    let Some(entry) = interface.peers.get_mut(&id) else {
        return;
    };
    let (unanswered, words) = entry.silence.initiated();
    if let Some(words) = words {
        log::info!("{} {words}", whom(entry));
    }
    if unanswered > 0
        && let Some(name) = interface.names.get_mut(&id)
        && let Some(addr) = name.unanswered(now)
        && peer.endpoint().is_none_or(|known| known.addr != addr)
    {
        peer.set_endpoint(Endpoint::new(addr));
        // It has just begun a handshake, and puts out nothing for this.
        let device = &mut interface.device;
        device.set_endpoint(id, Some(addr), now, &mut Vec::new());
    }
}

/// A peer as log lines name it.
fn whom(entry: &PeerEntry) -> String {
    let key = entry.public_key.to_base64();
    match entry.engine.endpoint() {
        Some(endpoint) => format!("peer {} ({})", key.as_str(), endpoint.addr),
        None => format!("peer {}", key.as_str()),
    }
}

/// Nothing is expected of this peer: workers report its next activity. What happened between the
/// last look and now was reported to nobody, so look once more.
fn disarmed(interface: &mut Interface, id: PeerId, out: &mut Vec<Output>, now: Instant) {
    let Some(entry) = interface.peers.get(&id) else {
        return;
    };
    entry.engine.disarm();
    let activity = entry.activity();
    let active = activity.unanswered_since.is_some() || activity.unacknowledged_since.is_some();
    if active && entry.engine.arm() {
        interface.device.activity(id, &activity, now, out);
    }
}
