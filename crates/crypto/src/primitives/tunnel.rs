//! A tunnel's work on packets, head and tail included.

use std::sync::Arc;

use super::algorithm::{Operation, Task};
use crate::packet_aead::{self, AeadLayout};
use crate::{Backend, Batch, Cipher, Digest, Packet, PacketCbc, PacketCipher};

/// Bytes of a header, which AEADs authenticate.
const HEADER: usize = 4;

/// Seals or opens a batch of packets with `bytes` bytes of payload.
pub(super) fn task(
    (cipher, digest): (Cipher, Digest),
    operation: Operation,
    backend: Backend,
    batch: usize,
    bytes: usize,
) -> Option<Box<dyn Task>> {
    let cipher = make(cipher, digest, backend)?;
    let sealing = Sealing::new(cipher, batch, bytes);
    match operation {
        Operation::Seal => Some(Box::new(sealing)),
        Operation::Open => Some(Box::new(Opening::new(sealing, bytes))),
        _ => None,
    }
}

/// The cipher of a tunnel; an AEAD also authenticates four bytes of header. `keys` are the cipher's and the HMAC's; an
/// AEAD's salt is the beginning of the second.
///
/// `None` if this machine has no such back end for it.
#[must_use]
pub fn packet_cipher(
    backend: Option<Backend>,
    (cipher, digest): (Cipher, Digest),
    keys: &[[u8; 64]; 2],
) -> Option<Arc<dyn PacketCipher>> {
    let [key, second] = keys;
    if cipher.is_aead() {
        let mut salt = [0; 8];
        salt.copy_from_slice(&second[..8]);
        let header = HEADER;
        return packet_aead::new(backend, cipher, key, AeadLayout::Number32 { header, salt });
    }
    Some(Arc::new(PacketCbc::new(
        backend,
        (cipher, key),
        (digest, second),
    )?))
}

fn make(cipher: Cipher, digest: Digest, backend: Backend) -> Option<Arc<dyn PacketCipher>> {
    let mut keys = [[0; 64]; 2];
    crate::random(keys.as_flattened_mut());
    if cipher == Cipher::ChaCha20Poly1305 {
        return packet_aead::new(Some(backend), cipher, &keys[0], AeadLayout::NoNumber);
    }
    packet_cipher(Some(backend), (cipher, digest), &keys)
}

/// Packets of one length, sealed over and over under the same numbers.
struct Sealing {
    cipher: Arc<dyn PacketCipher>,
    memory: Vec<u8>,
    packets: Vec<Packet>,
}

impl Sealing {
    fn new(cipher: Arc<dyn PacketCipher>, batch: usize, bytes: usize) -> Self {
        let front = (HEADER + cipher.head()).next_multiple_of(16);
        let stride = (front + bytes + cipher.tail(bytes)).next_multiple_of(16) + 16;
        let packet = |number: usize| Packet {
            start: (number * stride + front) as u32,
            len: bytes as u32,
            counter: number as u64 + 1,
            authentic: false,
        };
        Self {
            cipher,
            memory: (0..stride * batch).map(|at| (at * 31) as u8).collect(),
            packets: (0..batch).map(packet).collect(),
        }
    }
}

impl Task for Sealing {
    fn run(&mut self) -> bool {
        self.cipher.seal(&mut Batch {
            memory: &mut self.memory,
            packets: &mut self.packets,
        });
        true
    }

    fn implementation(&self) -> &'static str {
        self.cipher.backend()
    }
}

/// Packets that are opened again and again.
struct Opening {
    opened: Sealing,
    sealed: Vec<u8>,
    datagrams: Vec<Packet>,
    bytes: usize,
}

impl Opening {
    fn new(mut sealing: Sealing, bytes: usize) -> Self {
        sealing.run();
        let (head, tail) = (sealing.cipher.head(), sealing.cipher.tail(bytes));
        let datagram = |packet: &Packet| Packet {
            start: packet.start - head as u32,
            len: (head + bytes + tail) as u32,
            ..*packet
        };
        Self {
            sealed: sealing.memory.clone(),
            datagrams: sealing.packets.iter().map(datagram).collect(),
            opened: sealing,
            bytes,
        }
    }
}

impl Task for Opening {
    /// Restores the ciphertext, which opening has replaced.
    fn prepare(&mut self) {
        self.opened.memory.copy_from_slice(&self.sealed);
        self.opened.packets.copy_from_slice(&self.datagrams);
    }

    fn is_prepared(&self) -> bool {
        true
    }

    fn run(&mut self) -> bool {
        self.opened.cipher.open(&mut Batch {
            memory: &mut self.opened.memory,
            packets: &mut self.opened.packets,
        });
        let right = |packet: &Packet| packet.authentic && packet.len as usize == self.bytes;
        self.opened.packets.iter().all(right)
    }

    fn implementation(&self) -> &'static str {
        self.opened.cipher.backend()
    }
}
