//! OpenVPN's packets, as the engine needs to tell them apart.

use engine::{Class, SessionName, Window, Wire};
use netio::udp::Endpoint;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use wireguard::ReplayWindow;

/// Our names for the keys of one peer: one for each key id, three bits.
pub(crate) const KEYS_PER_PEER: u32 = 8;

/// The peer-id of those who have none.
const NO_PEER_ID: u32 = 0x00ff_ffff;

/// Opcode, peer-id, HMAC-SHA512, IV, packet id, fragment header, framing, and TCP's length.
const HEAD_MAX: usize = 4 + 64 + 16 + 4 + 4 + 1 + engine::RECORD_HEADER;

/// A tag or a block of padding, and the framing's byte.
const TAIL_MAX: usize = 17;

/// The replay window: 8,192 packets and no clock. Stock's default is 64 packets and 15 seconds,
/// which loses packets on lines that reorder or stall.
#[derive(Default)]
pub(crate) struct Replay(ReplayWindow);

impl Window for Replay {
    fn accept(&mut self, counter: u64) -> bool {
        self.0.accept(counter)
    }
}

/// The byte that every packet begins with: opcode and key id.
fn opcode(datagram: &[u8]) -> Option<(u8, u8)> {
    datagram.first().map(|first| (first >> 3, first & 7))
}

const SOFT_RESET: u8 = 3;
const DATA_V1: u8 = 6;
const DATA_V2: u8 = 9;
const CONTROL_WKC: u8 = 11;
const HEADER_V1: usize = 1;
const HEADER_V2: usize = 4;

/// The rest of a classification: what is no data packet.
fn control(opcode: u8) -> Class {
    match opcode {
        // Resets of key method 1 have the lower numbers; nobody answers them any more.
        SOFT_RESET..=CONTROL_WKC => Class::Control,
        _ => Class::Malformed,
    }
}

fn data(session: SessionName, header: usize) -> Class {
    Class::Data {
        session,
        counter: 0,
        header,
    }
}

/// `allow-recursive-routing`. A process has one client, and the answer is asked for where there is
/// nothing of that client at hand.
static RECURSIVE: AtomicBool = AtomicBool::new(false);

/// Says whether packets for the server's outside may go through the tunnel.
pub(crate) fn allow_recursion(allow: bool) {
    RECURSIVE.store(allow, Ordering::Relaxed);
}

/// What is routed into the tunnel and meant for its other end's outside would go round for ever.
fn meets_itself(to: SocketAddr, endpoint: &Endpoint) -> bool {
    to == endpoint.addr
}

/// The client's side: there is one peer, whatever its packets call us.
pub(crate) enum ClientWire {}

impl Wire for ClientWire {
    const HEAD_MAX: usize = HEAD_MAX;
    const TAIL_MAX: usize = TAIL_MAX;
    const STAGES: bool = false;
    const ECN: bool = false;
    type Window = Replay;

    #[inline]
    fn classify(datagram: &[u8]) -> Class {
        let Some((opcode, key_id)) = opcode(datagram) else {
            return Class::Malformed;
        };
        match opcode {
            DATA_V2 => data(SessionName::Index(key_id.into()), HEADER_V2),
            DATA_V1 => data(SessionName::Index(key_id.into()), HEADER_V1),
            _ => control(opcode),
        }
    }

    fn loops(_datagram: &[u8], to: SocketAddr, _receiver: u32, endpoint: &Endpoint) -> bool {
        meets_itself(to, endpoint) && !RECURSIVE.load(Ordering::Relaxed)
    }
}

/// The server's side: packets name their client by its peer-id, or by their address.
pub(crate) enum ServerWire {}

impl Wire for ServerWire {
    const HEAD_MAX: usize = HEAD_MAX;
    const TAIL_MAX: usize = TAIL_MAX;
    const STAGES: bool = false;
    const ECN: bool = false;
    type Window = Replay;

    #[inline]
    fn classify(datagram: &[u8]) -> Class {
        let Some((opcode, key_id)) = opcode(datagram) else {
            return Class::Malformed;
        };
        match (opcode, datagram.first_chunk::<HEADER_V2>()) {
            (DATA_V2, Some(&[_, a, b, c])) => {
                let session = match u32::from_be_bytes([0, a, b, c]) {
                    NO_PEER_ID => SessionName::OfSender(key_id),
                    peer_id => SessionName::Index(peer_id * KEYS_PER_PEER + u32::from(key_id)),
                };
                data(session, HEADER_V2)
            }
            (DATA_V2, None) => Class::Malformed,
            (DATA_V1, _) => data(SessionName::OfSender(key_id), HEADER_V1),
            _ => control(opcode),
        }
    }

    fn loops(_datagram: &[u8], to: SocketAddr, _receiver: u32, endpoint: &Endpoint) -> bool {
        meets_itself(to, endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_packets_name_their_session() {
        let v2 = [DATA_V2 << 3 | 2, 0, 1, 4, 9];
        assert_eq!(
            ServerWire::classify(&v2),
            data(SessionName::Index(260 * 8 + 2), 4)
        );
        assert_eq!(ClientWire::classify(&v2), data(SessionName::Index(2), 4));
        let nameless = [DATA_V2 << 3 | 2, 0xff, 0xff, 0xff, 9];
        assert_eq!(
            ServerWire::classify(&nameless),
            data(SessionName::OfSender(2), 4)
        );
        let v1 = [DATA_V1 << 3 | 7, 9];
        assert_eq!(ServerWire::classify(&v1), data(SessionName::OfSender(7), 1));
        assert_eq!(ClientWire::classify(&v1), data(SessionName::Index(7), 1));
    }

    #[test]
    fn what_nobody_speaks_is_malformed() {
        for datagram in [&[][..], &[0], &[1 << 3], &[2 << 3, 1], &[12 << 3], &[0xff]] {
            assert_eq!(ServerWire::classify(datagram), Class::Malformed);
            assert_eq!(ClientWire::classify(datagram), Class::Malformed);
        }
        assert_eq!(
            ServerWire::classify(&[DATA_V2 << 3, 0, 1]),
            Class::Malformed
        );
        for opcode in [3, 4, 5, 7, 8, 10, 11] {
            assert_eq!(ServerWire::classify(&[opcode << 3]), Class::Control);
        }
    }
}
