//! Seals one packet outside the pipelines and sends it in one datagram that routers must not fragment.

use crate::key::SendKey;
use crate::peer::Peer;
use crate::tunnel::Tunnel;
use netio::udp::Family;
use plane::{Batch, Packet, Whole, Wire};
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::Instant;

impl SendKey {
    /// The datagram of a packet padded to `padded` bytes; `None` if the key has no numbers left.
    pub(crate) fn sealed(&self, packet: &[u8], padded: usize) -> Option<Vec<u8>> {
        let counter = self.take(1)?;
        let (head, tail) = (self.format.head(), self.format.tail(padded));
        let mut datagram = vec![0; head + padded + tail];
        let inner = &mut datagram[head..head + packet.len()];
        inner.copy_from_slice(packet);
        // The session is often made for a connection's first packet, so its MSS is adjusted too.
        self.format.adjust(inner);
        let mut packets = [Packet {
            start: head as u32,
            len: padded as u32,
            counter,
            authentic: false,
        }];
        self.format.seal(&mut Batch {
            memory: &mut datagram,
            packets: &mut packets,
        });
        Some(datagram)
    }
}

impl<W: Wire> Tunnel<W> {
    /// Seals `payload` without padding, and sends it unfragmented over the peer's line in use.
    pub(crate) fn send_whole(&self, peer: &Peer, payload: &[u8]) -> Whole {
        let now = Instant::now();
        let key = peer.send_key.load_full().filter(|key| key.alive(now));
        let (Some(key), Some(endpoint), None) = (key, peer.endpoint(), peer.stream()) else {
            return Whole::Nowhere;
        };
        let line = peer.lines.used_id();
        let family = match endpoint.addr {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        };
        let shared = self.shared();
        let lines = shared.lines.load();
        let Some(socket) = lines.socket(line, family) else {
            return Whole::Nowhere;
        };
        let Some(datagram) = key.sealed(payload, payload.len()) else {
            return Whole::Nowhere;
        };
        let report = {
            // The lock is held while the socket has changed options.
            let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            socket.send_whole(&mut scratch, &datagram, endpoint)
        };
        if report.sent == 0 {
            return match report.too_long() {
                true => Whole::TooLong,
                false => Whole::Nowhere,
            };
        }
        let bytes = datagram.len() as u64;
        shared.carried.datagrams(line, family, 1, bytes);
        if let Some(line) = peer.lines.get(line) {
            if report.source_gone {
                line.clear_source();
            }
            line.counts.note_sent(1, bytes);
        }
        peer.message_bytes.add(bytes);
        peer.tx_bytes.add(bytes);
        peer.note_sent(shared.epoch.millis(now), false);
        Whole::Sent
    }
}
