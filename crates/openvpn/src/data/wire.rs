//! The head of OpenVPN's packets, how a data plane tells them apart, and their records over TCP.
//!
//! ```text
//! DATA_V1  6<<3 | key_id
//! DATA_V2  9<<3 | key_id, peer id: u24
//! ```

use plane::{Class, Endpoint, Record, ReplayWindow, SessionName, Wire};
use std::net::SocketAddr;

/// The greatest key id; after it comes 1, since 0 is only for the first key of a session.
pub const MAX_KEY_ID: u8 = 7;

/// Bytes of `DATA_V1`'s head.
pub const V1_LEN: usize = 1;

/// Bytes of `DATA_V2`'s head.
pub const V2_LEN: usize = 4;

/// The peer id of a peer that has none.
pub const NO_PEER_ID: u32 = 0x00ff_ffff;

/// Bytes in front of a packet over TCP: `length:u16, packet`, big-endian.
pub const RECORD_HEADER_LEN: usize = 2;

/// The kind of packet: the upper five bits of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Begins the next key of an established session.
    SoftResetV1 = 3,
    /// Bytes of the TLS stream.
    ControlV1 = 4,
    /// Acknowledgements without a message.
    AckV1 = 5,
    /// A packet of the tunnel.
    DataV1 = 6,
    /// Begins a session; from the client.
    HardResetClientV2 = 7,
    /// Answers the client's reset.
    HardResetServerV2 = 8,
    /// A packet of the tunnel, with the peer id of its sender.
    DataV2 = 9,
    /// Begins a session; from a client with a tls-crypt-v2 key, which is appended wrapped.
    HardResetClientV3 = 10,
    /// [`Opcode::ControlV1`] with the wrapped key appended once more, for a server that remembered nothing.
    ControlWkcV1 = 11,
}

impl Opcode {
    /// The opcode of this number. `None` for unknown numbers and for the resets 1 and 2 of key method 1, which
    /// no version since 2.0 uses.
    #[must_use]
    #[inline]
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            3 => Self::SoftResetV1,
            4 => Self::ControlV1,
            5 => Self::AckV1,
            6 => Self::DataV1,
            7 => Self::HardResetClientV2,
            8 => Self::HardResetServerV2,
            9 => Self::DataV2,
            10 => Self::HardResetClientV3,
            11 => Self::ControlWkcV1,
            _ => return None,
        })
    }

    /// Whether the opcode belongs to the data channel.
    #[must_use]
    pub const fn is_data(self) -> bool {
        matches!(self, Self::DataV1 | Self::DataV2)
    }

    /// Whether the opcode begins a session: stock's three hard resets.
    #[must_use]
    pub const fn is_hard_reset(self) -> bool {
        matches!(
            self,
            Self::HardResetClientV2 | Self::HardResetServerV2 | Self::HardResetClientV3
        )
    }

    /// Whether a wrapped client key of tls-crypt-v2 is appended.
    #[must_use]
    pub const fn carries_client_key(self) -> bool {
        matches!(self, Self::HardResetClientV3 | Self::ControlWkcV1)
    }
}

/// The first byte of every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kind of packet.
    pub opcode: Opcode,
    /// Key id, 0..=7: the key of the session that the packet belongs to.
    pub key_id: u8,
}

impl Head {
    /// Reads the first byte. `None` if there is none or its opcode is unknown.
    #[must_use]
    #[inline]
    pub fn peek(packet: &[u8]) -> Option<Self> {
        let first = *packet.first()?;
        Some(Self {
            opcode: Opcode::from_u8(first >> 3)?,
            key_id: first & MAX_KEY_ID,
        })
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn emit(self) -> u8 {
        // The opcode of a variant is its number.
        (self.opcode as u8) << 3 | (self.key_id & MAX_KEY_ID)
    }
}

/// Our names for the keys of one peer: one for each key id, three bits.
pub const KEYS_PER_PEER: u32 = 8;

/// The packets of a client or of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenVpn {
    /// One peer, the server, whatever peer-id its packets carry.
    Client {
        /// `allow-recursive-routing`: packets for the server's own address may go through the tunnel.
        recursive: bool,
    },
    /// Packets name their client by its peer-id, or by the address that they come from.
    Server,
}

impl OpenVpn {
    /// The session of a packet with a peer-id; `None` where the packet is too short for one.
    fn session(self, datagram: &[u8], key_id: u8) -> Option<SessionName> {
        let &[_, a, b, c] = datagram.first_chunk::<V2_LEN>()?;
        Some(match u32::from_be_bytes([0, a, b, c]) {
            NO_PEER_ID => SessionName::OfSender(key_id),
            peer_id => SessionName::Index(peer_id * KEYS_PER_PEER + u32::from(key_id)),
        })
    }
}

fn data(session: SessionName, header: usize) -> Class {
    Class::Data {
        session,
        counter: 0,
        header,
        or_control: false,
    }
}

impl Wire for OpenVpn {
    /// Opcode, peer-id, HMAC-SHA512, IV, packet id, fragment header, framing, and TCP's length.
    const HEAD_MAX: usize = 4 + 64 + 16 + 4 + 4 + 1 + RECORD_HEADER_LEN;
    /// A tag or a block of padding, and the framing's byte.
    const TAIL_MAX: usize = 17;
    const STAGES: bool = false;
    const ECN: bool = false;

    const RECORD_HEADER: usize = RECORD_HEADER_LEN;

    /// 8,128 packets and no clock. Stock's default is 64 packets and 15 seconds, which loses packets on lines that
    /// reorder or stall.
    type Window = ReplayWindow;
    type Reader = ();

    #[inline]
    fn classify(&self, (): &(), datagram: &[u8]) -> Class {
        let Some(Head { opcode, key_id }) = Head::peek(datagram) else {
            return Class::Malformed;
        };
        match (opcode, self) {
            (Opcode::DataV2, Self::Client { .. }) => {
                data(SessionName::Index(key_id.into()), V2_LEN)
            }
            (Opcode::DataV1, Self::Client { .. }) => {
                data(SessionName::Index(key_id.into()), V1_LEN)
            }
            (Opcode::DataV2, Self::Server) => match self.session(datagram, key_id) {
                Some(session) => data(session, V2_LEN),
                None => Class::Malformed,
            },
            (Opcode::DataV1, Self::Server) => data(SessionName::OfSender(key_id), V1_LEN),
            _ => Class::Control,
        }
    }

    /// The record that `bytes` begin with. A length of 0, which stock does not send either, or above `longest` is
    /// malformed.
    fn record(bytes: &[u8], longest: usize) -> Record {
        let Some(len) = bytes.first_chunk() else {
            return Record::Partial;
        };
        let len = usize::from(u16::from_be_bytes(*len));
        if len == 0 || len > longest {
            Record::Malformed
        } else if RECORD_HEADER_LEN + len <= bytes.len() {
            Record::Whole { len }
        } else {
            Record::Partial
        }
    }

    /// A packet as a record; `None` where its length does not fit into 16 bits.
    fn to_record(packet: &[u8]) -> Option<Vec<u8>> {
        let len = u16::try_from(packet.len()).ok()?;
        Some([&len.to_be_bytes(), packet].concat())
    }

    /// A packet that is routed into the tunnel and addressed to the peer's outer address would loop for ever.
    fn loops(&self, _datagram: &[u8], to: SocketAddr, _receiver: u32, endpoint: &Endpoint) -> bool {
        to == endpoint.addr && *self != Self::Client { recursive: true }
    }
}

/// The bytes before the sealed part, and the numbering of packets, as the ends have agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `DATA_V1`, with packet ids of 32 bits: peers that know no peer id.
    V1,
    /// `DATA_V2`, with packet ids of 32 bits.
    V2 {
        /// The 24-bit number in the head, of packets both sent and received.
        peer_id: u32,
    },
    /// `DATA_V2`, with packet ids of 16 bits of epoch and 48 of counter: both ends of version 2.7, with AEAD ciphers.
    Epoch {
        /// The 24-bit number in the head, of packets both sent and received.
        peer_id: u32,
    },
}

impl Layout {
    /// Bytes before the sealed part.
    #[must_use]
    pub const fn header_len(self) -> usize {
        match self {
            Self::V1 => V1_LEN,
            Self::V2 { .. } | Self::Epoch { .. } => V2_LEN,
        }
    }

    /// Bytes of the packet id.
    #[must_use]
    pub const fn packet_id_len(self) -> usize {
        match self {
            Self::V1 | Self::V2 { .. } => 4,
            Self::Epoch { .. } => 8,
        }
    }

    /// Whether packets are numbered by epochs.
    #[must_use]
    pub const fn has_epochs(self) -> bool {
        matches!(self, Self::Epoch { .. })
    }

    /// The head of the packets of one key: the first [`header_len`](Self::header_len) of these bytes.
    #[must_use]
    pub const fn header(self, key_id: u8) -> [u8; V2_LEN] {
        match self {
            Self::V1 => [
                Head {
                    opcode: Opcode::DataV1,
                    key_id,
                }
                .emit(),
                0,
                0,
                0,
            ],
            Self::V2 { peer_id } | Self::Epoch { peer_id } => {
                let [_, a, b, c] = peer_id.to_be_bytes();
                [
                    Head {
                        opcode: Opcode::DataV2,
                        key_id,
                    }
                    .emit(),
                    a,
                    b,
                    c,
                ]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA_V1: u8 = Opcode::DataV1 as u8;
    const DATA_V2: u8 = Opcode::DataV2 as u8;
    const CLIENT: OpenVpn = OpenVpn::Client { recursive: false };

    #[test]
    fn data_packets_name_their_session() {
        let v2 = [DATA_V2 << 3 | 2, 0, 1, 4, 9];
        assert_eq!(
            OpenVpn::Server.classify(&(), &v2),
            data(SessionName::Index(260 * 8 + 2), 4)
        );
        assert_eq!(CLIENT.classify(&(), &v2), data(SessionName::Index(2), 4));
        let nameless = [DATA_V2 << 3 | 2, 0xff, 0xff, 0xff, 9];
        assert_eq!(
            OpenVpn::Server.classify(&(), &nameless),
            data(SessionName::OfSender(2), 4)
        );
        let v1 = [DATA_V1 << 3 | 7, 9];
        assert_eq!(
            OpenVpn::Server.classify(&(), &v1),
            data(SessionName::OfSender(7), 1)
        );
        assert_eq!(CLIENT.classify(&(), &v1), data(SessionName::Index(7), 1));
    }

    #[test]
    fn unknown_opcodes_are_malformed() {
        for datagram in [&[][..], &[0], &[1 << 3], &[2 << 3, 1], &[12 << 3], &[0xff]] {
            assert_eq!(OpenVpn::Server.classify(&(), datagram), Class::Malformed);
            assert_eq!(CLIENT.classify(&(), datagram), Class::Malformed);
        }
        assert_eq!(
            OpenVpn::Server.classify(&(), &[DATA_V2 << 3, 0, 1]),
            Class::Malformed
        );
        for opcode in [3, 4, 5, 7, 8, 10, 11] {
            assert_eq!(
                OpenVpn::Server.classify(&(), &[opcode << 3]),
                Class::Control
            );
        }
    }

    #[test]
    fn records_are_whole_or_awaited_or_refused() {
        assert_eq!(OpenVpn::record(&[], 10), Record::Partial);
        assert_eq!(OpenVpn::record(&[0], 10), Record::Partial);
        assert_eq!(OpenVpn::record(&[0, 3, 1, 2], 10), Record::Partial);
        assert_eq!(
            OpenVpn::record(&[0, 3, 1, 2, 3, 9], 10),
            Record::Whole { len: 3 }
        );
        assert_eq!(OpenVpn::record(&[0, 0, 1], 10), Record::Malformed, "empty");
        assert_eq!(
            OpenVpn::record(&[0, 11], 10),
            Record::Malformed,
            "refused before its bytes come"
        );
    }

    #[test]
    fn what_is_too_long_is_no_record() {
        assert_eq!(OpenVpn::to_record(&[7; 3]), Some(vec![0, 3, 7, 7, 7]));
        let longest = OpenVpn::to_record(&[7; 65_535]).unwrap();
        assert_eq!(
            OpenVpn::record(&longest, 65_535),
            Record::Whole { len: 65_535 }
        );
        assert_eq!(OpenVpn::to_record(&[7; 65_536]), None);
    }

    #[test]
    fn heads_name_key_and_peer() {
        assert_eq!(Layout::V1.header(5), [0x35, 0, 0, 0]);
        assert_eq!(Layout::V1.header_len(), 1);
        for layout in [
            Layout::V2 { peer_id: 0x01_0203 },
            Layout::Epoch { peer_id: 0x01_0203 },
        ] {
            assert_eq!(layout.header(2), [0x4a, 1, 2, 3]);
            assert_eq!(layout.header_len(), 4);
        }
    }
}
