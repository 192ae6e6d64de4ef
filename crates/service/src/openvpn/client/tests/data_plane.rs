//! A recording data plane: one peer's keys, and the times of its packets.
//!
//! A data packet holds the key id, the peer id, the sealing key itself and its content. Only an end that installed that
//! key for opening, under that key id, can open it.
//! under that number, can open it.

use openvpn::session::{DataKeys, Layout, Times};
use std::collections::BTreeMap;
use std::time::Instant;

/// Opcode of data packets with a peer id.
const DATA_V2: u8 = 9;

/// Bytes of a data packet.
const LENGTH: usize = 1 + 4 + 64 + 64 + 1;

/// Content of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// A ping, or a packet of the tunnel.
    Nothing,
    /// A request for the options.
    Request,
    /// Reply with the options.
    Options,
}

impl Says {
    /// Reads the content of the model's data packet.
    pub(super) fn of(packet: &[u8]) -> Self {
        let all = [Self::Nothing, Self::Request, Self::Options];
        all[usize::from(packet[LENGTH - 1])]
    }
}

/// Whether this is a data packet of the model.
pub(super) fn is_data(packet: &[u8]) -> bool {
    packet.len() == LENGTH && packet[0] >> 3 == DATA_V2
}

/// The peer id of a data packet.
pub(super) fn peer_id(packet: &[u8]) -> u32 {
    u32::from_be_bytes([packet[1], packet[2], packet[3], packet[4]])
}

#[derive(Default)]
pub(super) struct DataPlane {
    pub(super) keys: BTreeMap<u8, DataKeys>,
    pub(super) sealing: Option<u8>,
    pub(super) times: Times,
    /// Number of keys ever installed.
    pub(super) installed: usize,
    /// Reordering is on.
    pub(super) reorders: bool,
    /// Send rate limit in bits per second.
    pub(super) rate: Option<u64>,
    /// Send rate limits per uplink in bits per second, one entry per `SetLineRates`.
    pub(super) rates: Vec<[u64; 2]>,
}

impl DataPlane {
    pub(super) fn install(&mut self, keys: DataKeys) {
        self.keys.insert(keys.key_id, keys);
        self.installed += 1;
        assert!(self.keys.len() <= 3, "three sets of keys at most");
    }

    pub(super) fn seal_with(&mut self, key_id: u8) {
        assert!(self.keys.contains_key(&key_id), "installed first");
        self.sealing = Some(key_id);
    }

    pub(super) fn remove(&mut self, key_id: u8) {
        self.keys.remove(&key_id);
        self.sealing = self.sealing.filter(|sealing| *sealing != key_id);
    }

    /// Returns a sealed packet, if the rate and keys permit one.
    pub(super) fn seal(&mut self, says: Says, now: Instant) -> Option<Vec<u8>> {
        let keys = self.keys.get(&self.sealing?)?;
        let peer_id = match keys.layout {
            Layout::V1 => u32::MAX,
            Layout::V2 { peer_id } | Layout::Epoch { peer_id } => peer_id,
        };
        let mut packet = vec![DATA_V2 << 3 | keys.key_id];
        packet.extend_from_slice(&peer_id.to_be_bytes());
        packet.extend_from_slice(&keys.send.cipher);
        packet.extend_from_slice(&keys.send.hmac);
        packet.push(says as u8);
        self.times.last_sent = Some(now);
        Some(packet)
    }

    /// Whether a key opens the packet.
    pub(super) fn open(&mut self, packet: &[u8], now: Instant) -> bool {
        let keys = self.keys.get(&(packet[0] & 7));
        let authentic = keys.is_some_and(|keys| {
            packet[5..69] == keys.receive.cipher && packet[69..LENGTH - 1] == keys.receive.hmac
        });
        if authentic {
            self.times.last_received = Some(now);
        }
        authentic
    }
}
