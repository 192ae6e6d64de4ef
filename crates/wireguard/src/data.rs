//! WireGuard's data packets, as a data plane needs to know them (white paper, section 5.4.6).

use crate::disguise::{Form, Reader, SharedForms};
use crate::echo::EchoWatch;
use crate::message::{INITIATION_LEN, TAG_LEN, TYPE_DATA, kind};
use crypto::packet_aead::{self, AeadLayout};
use crypto::{Cipher, Key, PacketCipher};
use plane::{
    Batch, CipherName, Class, Endpoint, Format, Formats, Packet, Payload, Protocol, ReplayWindow,
    SessionName, Wire, ZeroizeOnDrop, mss,
};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Bytes before the sealed packet in a data packet.
pub const DATA_HEADER_LEN: usize = 16;
/// Bytes of the shortest data packet, which is a keepalive: a header and a tag.
pub const DATA_MIN_LEN: usize = DATA_HEADER_LEN + TAG_LEN;

/// The bytes before the sealed bytes of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// The receiver's index of the key.
    pub receiver: u32,
    /// The packet's number under that key.
    pub counter: u64,
}

impl DataHeader {
    /// Reads the header of a whole datagram, or `None` if it is not a data packet with room for a tag.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        if datagram.len() < DATA_MIN_LEN || kind(datagram) != Some(TYPE_DATA) {
            return None;
        }
        let (receiver, rest) = datagram[4..].split_first_chunk()?;
        let counter = rest.first_chunk()?;
        Some(Self {
            receiver: u32::from_le_bytes(*receiver),
            counter: u64::from_le_bytes(*counter),
        })
    }

    /// The header's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; DATA_HEADER_LEN] {
        let mut bytes = [0; DATA_HEADER_LEN];
        bytes[..4].copy_from_slice(&TYPE_DATA.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.receiver.to_le_bytes());
        bytes[8..].copy_from_slice(&self.counter.to_le_bytes());
        bytes
    }
}

/// The data packet format: type, receiver index, counter; ChaCha20-Poly1305's tag behind.
#[derive(Clone, Debug)]
pub struct WireGuard {
    /// Schedules a key. Called for each key, never for a packet.
    schedule: fn(&Key) -> Arc<dyn PacketCipher>,
    /// The largest TCP segment over IPv4 in bytes, 0 for any; `None` leaves segments as they are.
    clamp: Option<Arc<AtomicU16>>,
    /// Finds the answers to our own pings.
    echoes: Arc<EchoWatch>,
    /// The form of datagrams.
    forms: SharedForms,
}

impl WireGuard {
    /// Creates the standard protocol.
    #[must_use]
    pub fn new() -> Self {
        Self::with_cipher(|key| {
            let (cipher, layout) = (Cipher::ChaCha20Poly1305, AeadLayout::NoNumber);
            // Cannot fail: the cipher is an AEAD, and unless a back end is requested there is always one.
            #[allow(clippy::unwrap_used)]
            packet_aead::new(None, cipher, key.as_bytes(), layout).unwrap()
        })
    }

    /// Seals packets with another cipher, which no other program speaks: to measure a data plane without encryption.
    #[must_use]
    pub fn with_cipher(schedule: fn(&Key) -> Arc<dyn PacketCipher>) -> Self {
        Self {
            schedule,
            clamp: None,
            echoes: Arc::default(),
            forms: SharedForms::default(),
        }
    }

    /// Has TCP connections in either direction use segments that fit the interface.
    #[must_use]
    pub fn clamping(self) -> Self {
        Self {
            clamp: Some(Arc::default()),
            ..self
        }
    }

    /// Finds the answers to our own pings, which become messages; shared by all clones of this protocol.
    #[must_use]
    pub fn echoes(&self) -> &EchoWatch {
        &self.echoes
    }

    #[cfg(feature = "amnezia")]
    pub(crate) fn forms(&self) -> &crate::disguise::Forms {
        &self.forms
    }

    /// The cipher that seals and opens packets.
    #[must_use]
    pub fn cipher(&self) -> CipherName {
        name(&*(self.schedule)(&Key::ZERO))
    }
}

impl Default for WireGuard {
    fn default() -> Self {
        Self::new()
    }
}

fn name(cipher: &dyn PacketCipher) -> CipherName {
    CipherName {
        cipher: cipher.name(),
        backend: cipher.backend(),
    }
}

/// The keys and names of one session's packets. The keys are erased when this is dropped.
#[derive(Debug)]
pub struct DataKeys {
    /// The peer's index of the session, which packets to the peer carry.
    pub remote_index: u32,
    /// Seals packets to the peer.
    pub seal: Key,
    /// Opens packets from the peer.
    pub open: Key,
    /// Whether, and where, the session carries the exchange of post-quantum keys.
    #[cfg(feature = "postquantum")]
    pub exchange: Option<Carriage>,
}

/// A session's carriage of the exchange of post-quantum keys.
#[cfg(feature = "postquantum")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carriage {
    /// UDP port of the exchange inside the tunnel.
    pub port: u16,
    /// The session carries nothing else, in either direction.
    pub only: bool,
}

// Each `Key` erases itself.
impl ZeroizeOnDrop for DataKeys {}

impl Protocol for WireGuard {
    type Keys = DataKeys;
    type Error = Infallible;

    fn formats(&self, keys: &DataKeys) -> Result<Formats, Infallible> {
        let format = |key: &Key| DataFormat {
            receiver: keys.remote_index,
            cipher: (self.schedule)(key),
            clamp: self.clamp.clone(),
            echoes: Arc::clone(&self.echoes),
            form: self.forms.current(),
            #[cfg(feature = "postquantum")]
            exchange: keys.exchange,
        };
        let seal = format(&keys.seal);
        Ok(Formats {
            cipher: name(&*seal.cipher),
            seal: Arc::new(seal),
            open: Arc::new(format(&keys.open)),
        })
    }
}

impl Wire for WireGuard {
    const HEAD_MAX: usize = DATA_HEADER_LEN;
    const TAIL_MAX: usize = TAG_LEN;
    const STAGES: bool = true;
    const ECN: bool = true;
    const MESSAGES_ARE_DATA: bool = true;
    type Window = ReplayWindow;
    type Reader = Reader;

    fn prefix(&self) -> usize {
        self.forms.prefix()
    }

    #[inline]
    fn prepare(&self, reader: &mut Reader) {
        reader.read(&self.forms);
    }

    #[inline]
    fn look_ahead<'a>(&self, reader: &mut Reader, datagrams: impl Iterator<Item = &'a [u8]>) {
        reader.look_ahead(datagrams);
    }

    #[inline]
    fn classify(&self, reader: &Reader, datagram: &[u8]) -> Class {
        if let Some(class) = reader.classify(&self.forms, datagram) {
            return class;
        }
        if let Some(header) = DataHeader::parse(datagram) {
            return Class::Data {
                session: SessionName::Index(header.receiver),
                counter: header.counter,
                header: DATA_HEADER_LEN,
                or_control: false,
            };
        }
        match kind(datagram) {
            // A data packet too short for a tag.
            None | Some(TYPE_DATA) => self.forms.rejected(datagram),
            Some(_) if datagram.len() > INITIATION_LEN => self.forms.rejected(datagram),
            Some(_) => Class::Control,
        }
    }

    fn follow_mtu(&self, mtu: usize) {
        if let Some(clamp) = &self.clamp {
            clamp.store(mss::most(mtu).unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// A packet of the tunnel that is routed into the tunnel would come back longer each time, and in the end as
    /// fragments that loop as well.
    #[inline]
    fn loops(&self, datagram: &[u8], to: SocketAddr, receiver: u32, endpoint: &Endpoint) -> bool {
        if self.forms.were_set()
            && to == endpoint.addr
            && let Some(loops) = self.forms.current().is_data_for(datagram, receiver)
        {
            return loops;
        }
        DataHeader::parse(datagram).is_some_and(|header| header.receiver == receiver)
    }
}

/// Pads to a multiple of 16 bytes, but not beyond the MTU (white paper section 5.4.6). A packet longer than the MTU, such
/// as a super-packet that the kernel cuts, is padded as its last segment would be.
#[inline]
fn padded(len: usize, mtu: usize) -> usize {
    let last = if mtu > 0 && len > mtu { len % mtu } else { len };
    let padded = last.next_multiple_of(16);
    len - last
        + if mtu > 0 {
            padded.min(mtu).max(last)
        } else {
            padded
        }
}

/// One key's packets: the receiver's index of the session in front, the tag behind.
struct DataFormat {
    /// The receiver's index of the session. Opening ignores it: the caller found the session by it.
    receiver: u32,
    /// Cipher of the key.
    cipher: Arc<dyn PacketCipher>,
    /// The tunnel's largest segment of TCP over IPv4, 0 for any; `None` where segments are left as they are.
    clamp: Option<Arc<AtomicU16>>,
    /// Finds the answers to our own pings.
    echoes: Arc<EchoWatch>,
    /// The form of the packets: the same for as long as the key lives.
    form: Form,
    /// The exchange of post-quantum keys.
    #[cfg(feature = "postquantum")]
    exchange: Option<Carriage>,
}

impl Format for DataFormat {
    fn head(&self) -> usize {
        self.form.prefix() + DATA_HEADER_LEN
    }

    fn tail(&self, len: usize) -> usize {
        self.cipher.tail(len)
    }

    fn padded(&self, len: usize, mtu: usize) -> usize {
        let special = self.form.padded(len, mtu);
        special.unwrap_or_else(|| padded(len, mtu))
    }

    fn adjust(&self, packet: &mut [u8]) {
        let Some(clamp) = &self.clamp else { return };
        let most = clamp.load(Ordering::Relaxed);
        if most > 0 {
            mss::clamp(packet, most);
        }
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        if !self.form.is_plain() {
            self.form
                .write_heads(batch.memory, self.receiver, batch.packets);
            return self.cipher.seal(batch);
        }
        for packet in batch.packets.iter() {
            let start = packet.start as usize;
            let header = DataHeader {
                receiver: self.receiver,
                counter: packet.counter,
            };
            batch.memory[start - DATA_HEADER_LEN..start].copy_from_slice(&header.emit());
        }
        self.cipher.seal(batch);
    }

    fn open(&self, batch: &mut Batch<'_>) {
        self.cipher.open(batch);
    }

    fn reveal(&self, memory: &mut [u8], packet: &mut Packet) -> Payload {
        if packet.len == 0 {
            return Payload::Keepalive;
        }
        let start = packet.start as usize;
        let inner = &memory[start..start + packet.len as usize];
        // A keepalive that AmneziaWG has padded: a peer may do that on its own. Requests for lost packets begin with one
        // zero, and go on otherwise.
        if inner.iter().take(4).all(|byte| *byte == 0) {
            return Payload::Keepalive;
        }
        #[cfg(feature = "postquantum")]
        if let Some(exchange) = self.exchange {
            if crate::inside::is_exchange(inner, exchange.port) {
                return Payload::Message;
            }
            if exchange.only {
                return Payload::Malformed;
            }
        }
        if self.echoes.takes(inner) {
            return Payload::Message;
        }
        Payload::Inner
    }

    #[cfg(feature = "postquantum")]
    fn only_messages(&self) -> bool {
        self.exchange.is_some_and(|exchange| exchange.only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_lie_where_the_paper_puts_them() {
        let mut data: Vec<u8> = (0..32).collect();
        data[..4].copy_from_slice(&[4, 0, 0, 0]);
        let parsed = DataHeader::parse(&data).unwrap();
        assert_eq!(
            parsed,
            DataHeader {
                receiver: 0x0706_0504,
                counter: 0x0f0e_0d0c_0b0a_0908
            }
        );
        assert_eq!(parsed.emit(), data[..16]);
        assert_eq!(DataHeader::parse(&data[..31]), None);
    }

    proptest! {
        #[test]
        fn a_header_that_parses_emits_itself(kind in 0_u32..6, mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(front) = bytes.first_chunk_mut::<4>() {
                *front = kind.to_le_bytes();
            }
            if let Some(header) = DataHeader::parse(&bytes) {
                prop_assert_eq!(&header.emit()[..], &bytes[..16]);
            }
        }
    }

    #[test]
    fn packets_are_padded_to_sixteen_but_not_beyond_the_mtu() {
        for (len, mtu, padded) in [
            (0, 1420, 0),
            (1, 1420, 16),
            (84, 1420, 96),
            (1420, 1420, 1420),
            (1409, 1420, 1420),
            (1500, 1420, 1500),
            (1510, 1420, 1516),
            (30, 0, 32),
        ] {
            assert_eq!(super::padded(len, mtu), padded, "{len} at {mtu}");
        }
    }

    fn classify(datagram: &[u8]) -> Class {
        WireGuard::new().classify(&Reader::default(), datagram)
    }

    #[test]
    fn what_a_stranger_sends_is_classified_without_reading_too_far() {
        for (len, class) in [(148, Class::Control), (149, Class::Malformed)] {
            assert_eq!(classify(&vec![1; len]), class);
        }
        assert_eq!(classify(&[]), Class::Malformed);
        assert_eq!(classify(&[4, 0, 0, 0, 1]), Class::Malformed);
        assert_eq!(classify(&[1, 0, 0, 0]), Class::Control);
        let mut data = [0; 32];
        let header = DataHeader {
            receiver: 7,
            counter: 1 << 40,
        };
        data[..DATA_HEADER_LEN].copy_from_slice(&header.emit());
        assert_eq!(
            classify(&data),
            Class::Data {
                session: SessionName::Index(7),
                counter: 1 << 40,
                header: DATA_HEADER_LEN,
                or_control: false
            }
        );
    }

    #[test]
    fn what_one_end_seals_the_other_opens_and_carries_the_index_of_the_receiver() {
        let ends = |remote_index, seal, open| {
            let keys = DataKeys {
                remote_index,
                seal: Key::from([seal; 32]),
                open: Key::from([open; 32]),
                #[cfg(feature = "postquantum")]
                exchange: None,
            };
            WireGuard::new().formats(&keys).unwrap()
        };
        let (here, there) = (ends(7, 1, 2), ends(9, 2, 1));
        assert_eq!(here.cipher, WireGuard::new().cipher());
        for (from, to, receiver) in [(&here, &there, 7), (&there, &here, 9)] {
            let (head, tail) = (from.seal.head(), from.seal.tail(16));
            let mut memory = vec![5; head + 16 + tail];
            let packet = Packet {
                start: head as u32,
                len: 16,
                counter: 3,
                authentic: false,
            };
            let packets = &mut [packet];
            let memory = &mut memory[..];
            from.seal.seal(&mut Batch { memory, packets });
            let header = DataHeader::parse(memory).unwrap();
            assert_eq!((header.receiver, header.counter), (receiver, 3));
            packets[0].len += tail as u32;
            let opens = |format: &dyn Format, memory: &mut [u8]| {
                let packets = &mut packets.clone();
                format.open(&mut Batch { memory, packets });
                packets[0].authentic
            };
            assert!(!opens(&*from.open, &mut memory.to_vec()));
            assert!(opens(&*to.open, memory));
            assert_eq!(memory[head..head + 16], [5; 16]);
        }
    }

    #[test]
    fn zeros_are_a_keepalive_and_a_request_for_lost_packets_is_not() {
        let keys = DataKeys {
            remote_index: 7,
            seal: Key::from([1; 32]),
            open: Key::from([2; 32]),
            #[cfg(feature = "postquantum")]
            exchange: None,
        };
        let formats = WireGuard::new().formats(&keys).unwrap();
        for (inner, keepalive) in [
            (&[][..], true),
            (&[0; 4], true),
            (&[0; 40], true),
            (&[0, 0, 0, 1, 9], false),
            (&[0x45, 0, 0, 20], false),
        ] {
            let mut packet = Packet {
                start: 0,
                len: inner.len() as u32,
                counter: 0,
                authentic: true,
            };
            let payload = formats.open.reveal(&mut inner.to_vec(), &mut packet);
            assert_eq!(
                matches!(payload, Payload::Keepalive),
                keepalive,
                "{inner:?}"
            );
        }
    }

    /// A SYN over IPv4 that requests segments of 1460 bytes. Its checksum is not valid; only the change to it matters.
    fn syn() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 6, 0, 0];
        packet.extend([10, 8, 0, 1, 10, 8, 0, 2]);
        packet.extend([0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0]);
        packet.extend([0x60, 0x02, 0xff, 0xff, 0x80, 0, 0, 0, 2, 4, 0x05, 0xb4]);
        packet
    }

    #[test]
    fn segments_follow_the_mtu_in_both_directions_of_every_session() {
        let keys = DataKeys {
            remote_index: 7,
            seal: Key::from([1; 32]),
            open: Key::from([2; 32]),
            #[cfg(feature = "postquantum")]
            exchange: None,
        };
        let clamping = WireGuard::new().clamping();
        clamping.follow_mtu(1420);
        let formats = clamping.formats(&keys).unwrap();
        let plain = WireGuard::new();
        plain.follow_mtu(1280);
        let plain = plain.formats(&keys).unwrap();
        let asked = |format: &dyn Format| {
            let mut packet = syn();
            format.adjust(&mut packet);
            let value = u16::from_be_bytes([packet[42], packet[43]]);
            let sum = u16::from_be_bytes([packet[36], packet[37]]);
            assert_eq!(u32::from(sum) + u32::from(value), 0x8000 + 1460);
            value
        };
        for (mtu, expected) in [
            (1420, 1380),
            (1280, 1240),
            (1500, 1460),
            (9000, 1460),
            (0, 1460),
        ] {
            clamping.follow_mtu(mtu);
            assert_eq!(asked(&*formats.seal), expected, "to the peer at {mtu}");
            assert_eq!(asked(&*formats.open), expected, "from the peer at {mtu}");
        }
        assert_eq!(asked(&*plain.seal), 1460);
        assert_eq!(asked(&*plain.open), 1460);
    }
}
