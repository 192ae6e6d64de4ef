//! A protocol for tests: keys are distinguishable, packet numbers are readable on the wire, and damage is detected.

use plane::{
    Batch, CipherName, Class, Endpoint, Format, Formats, Joined, Packet, Payload, Protocol, Record,
    ReplayWindow, SessionName, Wire, ZeroizeOnDrop,
};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Header: type, sender's session number, receiver index, packet number.
pub(crate) const HEADER: usize = 14;
/// Length field in front of each packet on a stream.
pub(crate) const RECORD_HEADER: usize = 2;
/// Length of the tag.
pub(crate) const TAG: usize = 4;
/// Maximum number of bytes that a key may add between header and payload.
const EXTRA_MAX: usize = 32;

const NAMED: u8 = 1;
const OF_SENDER: u8 = 2;
/// First byte of control messages.
pub(crate) const CONTROL: u8 = 3;

/// First byte of payloads that are not IP packets.
pub(crate) const MESSAGE: u8 = 0xff;
const PIECE: u8 = 0xfe;
pub(crate) const PACKED: u8 = 0xfd;
pub(crate) const PACKED_WRONGLY: u8 = 0xfc;
pub(crate) const NONSENSE: u8 = 0xfb;
/// Stands before packets that lack the agreed framing.
pub(crate) const UNFRAMED: u8 = 0xfa;

/// The protocol. `STAGES`: packets wait for a session.
#[derive(Default)]
pub(crate) struct Toy<const STAGES: bool>;

/// The formats that seal and open the packets of a session.
pub(crate) struct Pair(pub(crate) Arc<dyn Format>, pub(crate) Arc<dyn Format>);

impl ZeroizeOnDrop for Pair {}

impl<const STAGES: bool> Protocol for Toy<STAGES> {
    type Keys = Pair;
    type Error = Infallible;

    fn formats(&self, Pair(seal, open): &Pair) -> Result<Formats, Infallible> {
        Ok(Formats {
            seal: Arc::clone(seal),
            open: Arc::clone(open),
            cipher: CipherName::default(),
        })
    }
}

impl<const STAGES: bool> Wire for Toy<STAGES> {
    const HEAD_MAX: usize = RECORD_HEADER + HEADER + EXTRA_MAX;
    const TAIL_MAX: usize = TAG + 16;
    const STAGES: bool = STAGES;
    const ECN: bool = true;
    const RECORD_HEADER: usize = RECORD_HEADER;
    type Window = ReplayWindow;
    type Reader = ();

    /// Settings lengthen datagrams: refusals of trains are notices.
    fn prefix(&self) -> usize {
        1
    }

    fn classify(&self, (): &(), datagram: &[u8]) -> Class {
        match datagram.first() {
            Some(&kind @ (NAMED | OF_SENDER)) if datagram.len() >= HEADER + TAG => {
                let (receiver, counter) = names(datagram);
                Class::Data {
                    session: if kind == NAMED {
                        SessionName::Index(receiver)
                    } else {
                        SessionName::OfSender(datagram[1])
                    },
                    counter,
                    header: HEADER,
                    or_control: false,
                }
            }
            Some(&CONTROL) => Class::Control,
            _ => Class::Malformed,
        }
    }

    fn record(bytes: &[u8], longest: usize) -> Record {
        let Some(len) = bytes.first_chunk() else {
            return Record::Partial;
        };
        match usize::from(u16::from_be_bytes(*len)) {
            len if len == 0 || len > longest => Record::Malformed,
            len if RECORD_HEADER + len > bytes.len() => Record::Partial,
            len => Record::Whole { len },
        }
    }

    fn to_record(packet: &[u8]) -> Option<Vec<u8>> {
        let len = u16::try_from(packet.len()).ok()?;
        Some([&len.to_be_bytes(), packet].concat())
    }

    fn loops(&self, datagram: &[u8], to: SocketAddr, receiver: u32, endpoint: &Endpoint) -> bool {
        to == endpoint.addr
            && datagram.first() == Some(&NAMED)
            && datagram.len() >= HEADER
            && names(datagram).0 == receiver
    }
}

fn names(datagram: &[u8]) -> (u32, u64) {
    let receiver = u32::from_be_bytes(datagram[2..6].try_into().unwrap());
    (
        receiver,
        u64::from_be_bytes(datagram[6..14].try_into().unwrap()),
    )
}

type Hook = Box<dyn Fn(&[Packet]) + Send + Sync>;

/// A key and its packet format.
#[derive(Default)]
pub(crate) struct Key {
    pub(crate) secret: u8,
    /// The receiver's index for the session, written into headers.
    pub(crate) receiver: u32,
    /// The session's number at the sender, for packets that do not name their session.
    pub(crate) of_sender: Option<u8>,
    /// Number of meaningless bytes between header and payload.
    pub(crate) extra: usize,
    /// Whether packets are records of a stream.
    pub(crate) records: bool,
    /// Bytes of a packet in each piece, if packets are split.
    pub(crate) pieces: Option<usize>,
    /// Hook that is called before a batch is sealed.
    pub(crate) on_seal: Option<Hook>,
    /// Hook that is called before a batch is opened.
    pub(crate) on_open: Option<Hook>,
    /// Changes packets before they are sealed and after they are opened.
    pub(crate) on_adjust: Option<fn(&mut [u8])>,
    /// Number of paddings drawn so far, each longer than the one before; `None` to pad to 16 bytes.
    pub(crate) paddings: Option<AtomicUsize>,
    /// The pieces of the packet that is being joined.
    pub(crate) pieces_so_far: Mutex<Vec<u8>>,
}

impl Key {
    /// Key number `secret` for packets with receiver index `receiver`.
    pub(crate) fn new(secret: u8, receiver: u32) -> Self {
        Self {
            secret,
            receiver,
            ..Self::default()
        }
    }

    pub(crate) fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    fn mask(&self, counter: u64, payload: &mut [u8]) {
        let start = self.secret.wrapping_mul(31) ^ counter as u8;
        for (i, byte) in payload.iter_mut().enumerate() {
            *byte ^= start.wrapping_add(i as u8);
        }
    }

    fn tag(&self, counter: u64, sealed: &[u8]) -> [u8; TAG] {
        let mut sum = u32::from(self.secret).wrapping_mul(0x9e37_79b9) ^ counter as u32;
        for byte in sealed {
            sum = (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
        sum.to_be_bytes()
    }

    /// Builds a datagram as the other end does.
    pub(crate) fn datagram(&self, counter: u64, payload: &[u8]) -> Vec<u8> {
        let (head, tail) = (self.head(), self.tail(payload.len()));
        let mut memory = vec![0; head + payload.len() + tail];
        memory[head..head + payload.len()].copy_from_slice(payload);
        let mut packets = [Packet {
            start: head as u32,
            len: payload.len() as u32,
            counter,
            authentic: false,
        }];
        self.write(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
        memory
    }

    /// Opens a datagram as the other end does: number and payload, padding included. `None` if it was sealed with
    /// another key.
    pub(crate) fn opened(&self, datagram: &[u8]) -> Option<(u64, Vec<u8>)> {
        let (receiver, counter) = names(datagram);
        let mut memory = datagram.to_vec();
        let mut packets = [Packet {
            start: HEADER as u32,
            len: (datagram.len() - HEADER) as u32,
            counter,
            authentic: false,
        }];
        self.read(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
        let [packet] = packets;
        let payload = packet.start as usize..(packet.start + packet.len) as usize;
        (packet.authentic && receiver == self.receiver).then(|| (counter, memory[payload].to_vec()))
    }

    fn write(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter() {
            let (start, len) = (packet.start as usize, packet.len as usize);
            self.mask(packet.counter, &mut batch.memory[start..start + len]);
            let tag = self.tag(packet.counter, &batch.memory[start..start + len]);
            batch.memory[start + len..start + len + TAG].copy_from_slice(&tag);
            let at = start - self.extra - HEADER;
            if self.records {
                let length = (HEADER + self.extra + len + TAG) as u16;
                batch.memory[at - RECORD_HEADER..at].copy_from_slice(&length.to_be_bytes());
            }
            let header = &mut batch.memory[at..start];
            header[0] = self.of_sender.map_or(NAMED, |_| OF_SENDER);
            header[1] = self.of_sender.unwrap_or(0);
            header[2..6].copy_from_slice(&self.receiver.to_be_bytes());
            header[6..14].copy_from_slice(&packet.counter.to_be_bytes());
            header[HEADER..].fill(0xee);
        }
    }

    fn read(&self, batch: &mut Batch<'_>) {
        for packet in batch.packets.iter_mut() {
            let range = packet.start as usize..(packet.start + packet.len) as usize;
            if range.len() < self.extra + TAG {
                continue;
            }
            let payload = range.start + self.extra..range.end - TAG;
            let tag = self.tag(packet.counter, &batch.memory[payload.clone()]);
            if batch.memory[payload.end..range.end] == tag {
                self.mask(packet.counter, &mut batch.memory[payload.clone()]);
                packet.accept(&payload);
            }
        }
    }
}

impl Format for Key {
    fn padded(&self, len: usize, mtu: usize) -> usize {
        let drawn = self.paddings.as_ref();
        let drawn = drawn.map(|number| 10 + 7 * number.fetch_add(1, Ordering::Relaxed));
        let padded = drawn.map_or_else(|| len.next_multiple_of(16), |more| len + more);
        padded.min(mtu.max(len))
    }

    fn head(&self) -> usize {
        HEADER + self.extra + if self.records { RECORD_HEADER } else { 0 }
    }

    fn tail(&self, _: usize) -> usize {
        TAG
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        if let Some(hook) = &self.on_seal {
            hook(batch.packets);
        }
        self.write(batch);
    }

    fn open(&self, batch: &mut Batch<'_>) {
        if let Some(hook) = &self.on_open {
            hook(batch.packets);
        }
        self.read(batch);
    }

    fn reveal(&self, memory: &mut [u8], packet: &mut Packet) -> Payload {
        if packet.len == 0 {
            return Payload::Keepalive;
        }
        match memory[packet.start as usize] {
            MESSAGE => Payload::Message,
            PIECE | PACKED | PACKED_WRONGLY | UNFRAMED => Payload::Piece,
            NONSENSE => Payload::Malformed,
            _ => Payload::Inner,
        }
    }

    fn adjust(&self, packet: &mut [u8]) {
        if let Some(change) = self.on_adjust {
            change(packet);
        }
    }

    fn splits(&self) -> bool {
        self.pieces.is_some()
    }

    fn split(&self, packet: &[u8], emit: &mut dyn FnMut(&[u8], &[u8])) {
        let mut pieces = packet.chunks(self.pieces.unwrap()).peekable();
        while let Some(piece) = pieces.next() {
            emit(&[PIECE, u8::from(pieces.peek().is_none())], piece);
        }
    }

    fn join(&self, piece: &[u8], whole: &mut Vec<u8>) -> Joined {
        whole.clear();
        match piece {
            [PIECE, last @ (0 | 1), rest @ ..] => {
                let mut so_far = self.pieces_so_far.lock().unwrap();
                so_far.extend(rest);
                if *last == 0 {
                    return Joined::Waits;
                }
                whole.append(&mut so_far);
                Joined::Packet
            }
            [PACKED, rest @ ..] => {
                whole.extend(rest);
                Joined::Unpacked
            }
            [PACKED_WRONGLY, ..] => Joined::Compressed,
            [UNFRAMED, ..] => Joined::Unframed,
            _ => Joined::Malformed,
        }
    }
}
