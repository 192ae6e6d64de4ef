//! A data channel that carries pings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crypto::{Batch, Packet, PacketCipher};
use openvpn::data::cipher;
use openvpn::session::{DataKeys, KeyMaterial, Output, Times};

const PING: [u8; 16] = [
    0x2a, 0x18, 0x7b, 0xf3, 0x64, 0x1e, 0xb4, 0xcb, 0x07, 0xed, 0x2d, 0x0a, 0x98, 0x1f, 0xc7, 0x48,
];

struct Key {
    header: Vec<u8>,
    seal: Arc<dyn PacketCipher>,
    open: Arc<dyn PacketCipher>,
    counter: u64,
}

#[derive(Default)]
pub(crate) struct Data {
    keys: BTreeMap<u8, Key>,
    sealing: Option<u8>,
    /// Number of opened pings.
    pub(crate) opened: u32,
    /// Number of data packets that failed to open.
    pub(crate) failed: u32,
    pub(crate) times: Times,
}

impl Data {
    /// Applies outputs about keys, and returns all others.
    pub(crate) fn perform(&mut self, output: Output) -> Option<Output> {
        match output {
            Output::InstallKeys(keys) => {
                self.keys.insert(keys.key_id, Key::new(&keys));
            }
            Output::UseForSending { key_id } => self.sealing = Some(key_id),
            Output::RemoveKeys { key_id } => {
                self.keys.remove(&key_id);
            }
            other => return Some(other),
        }
        None
    }

    pub(crate) fn ping(&mut self) -> Option<Vec<u8>> {
        self.seal(&PING)
    }

    pub(crate) fn seal(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let key = self.keys.get_mut(&self.sealing?)?;
        key.counter += 1;
        let (front, len) = (key.header.len() + key.seal.head(), payload.len());
        let mut memory = key.header.clone();
        memory.resize(front, 0);
        memory.extend_from_slice(payload);
        memory.resize(front + len + key.seal.tail(len), 0);
        let mut packets = [Packet {
            start: front as u32,
            len: len as u32,
            counter: key.counter,
            authentic: false,
        }];
        key.seal.seal(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
        self.times.last_sent = Some(Instant::now());
        Some(memory)
    }

    pub(crate) fn open(&mut self, datagram: &[u8]) {
        let Some(key) = self.keys.get(&(datagram[0] & 7)) else {
            self.failed += 1;
            return;
        };
        let mut memory = datagram.to_vec();
        let start = key.header.len();
        let mut packets = [Packet {
            start: start as u32,
            len: (memory.len() - start) as u32,
            ..Packet::default()
        }];
        key.open.open(&mut Batch {
            memory: &mut memory,
            packets: &mut packets,
        });
        let [packet] = packets;
        if !packet.authentic {
            self.failed += 1;
            return;
        }
        self.times.last_received = Some(Instant::now());
        let range = packet.start as usize..(packet.start + packet.len) as usize;
        if memory[range] == PING {
            self.opened += 1;
        }
    }
}

impl Key {
    fn new(keys: &DataKeys) -> Self {
        let layout = keys.layout;
        let header = layout.header(keys.key_id)[..layout.header_len()].to_vec();
        let make =
            |material: &KeyMaterial| cipher::new(keys.cipher, keys.auth, material, layout).unwrap();
        Self {
            header,
            seal: make(&keys.send),
            open: make(&keys.receive),
            counter: 0,
        }
    }
}
