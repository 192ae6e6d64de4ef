//! One peer in the data plane: the way to it and its keys.
//!
//! A fuzz target is built from this file and `plane`, which therefore use nothing else of the program.

use super::plane::{DataFormat, KEYS_PER_PEER, Shape};
use crypto::openvpn::DataChannelError;
use engine::{KeyLimits, Moving, Peer, Stream, Tunnel, Wire};
use netio::udp::Endpoint;
use openvpn::data::signal::PING;
use openvpn::session::{ControlTraffic, DataFormat as Layout, DataKeys, KeyUsage, Times};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Keys die when the session says so; this is only what the engine needs to hear.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The packet id within a packet's number, whose upper 16 bits are the epoch where there is one.
const PACKET_ID: u64 = (1 << 48) - 1;

/// A moment, by the clock and by the timer.
pub(crate) type Since = (SystemTime, Instant);

/// How a peer is reached.
#[derive(Clone)]
pub(crate) enum Way {
    /// By datagrams to this address.
    Datagrams(Endpoint),
    /// Through this connection.
    Stream(Arc<Stream>),
}

impl Way {
    /// The peer's outer address.
    pub(crate) fn addr(&self) -> SocketAddr {
        match self {
            Self::Datagrams(endpoint) => endpoint.addr,
            Self::Stream(stream) => stream.endpoint().addr,
        }
    }
}

/// A peer of the data plane, as control sees it.
pub(crate) struct Conduit {
    pub(crate) peer: Arc<Peer>,
    way: Way,
    /// Our name for the session with key id 0; those of the others follow.
    first: u32,
    /// What all keys have in common. To be set before the first key.
    pub(crate) shape: Shape,
    allow_insecure: bool,
    /// What to seal with, of keys that do not seal yet.
    waiting: HashMap<u8, (Arc<DataFormat>, Layout)>,
    /// Our names for the keys that open, and which of them seals.
    opening: Vec<u8>,
    sealing: Option<(u8, Arc<DataFormat>)>,
    cipher: Option<(&'static str, &'static str)>,
    /// Payload bytes of the peer's counters when the session began.
    before: u64,
    /// When the newest keys came.
    installed: Option<Since>,
    /// Bytes of the session's control packets. To be set when there is a session.
    pub(crate) control: Arc<ControlTraffic>,
}

impl Conduit {
    /// Tells the data plane of a peer.
    pub(crate) fn new<W: Wire>(
        tunnel: &Tunnel<W>,
        id: u32,
        way: Way,
        moving: Moving,
        allow_insecure: bool,
    ) -> Self {
        let peer = tunnel.new_peer(id);
        peer.set_moving(moving);
        let first = id * KEYS_PER_PEER;
        let stream = matches!(way, Way::Stream(_));
        match &way {
            Way::Datagrams(endpoint) => peer.set_endpoint(*endpoint),
            Way::Stream(stream) => {
                stream.set_sessions(first);
                peer.set_stream(Some(Arc::clone(stream)));
            }
        }
        Self {
            peer,
            way,
            first,
            shape: Shape {
                stream,
                ..Shape::default()
            },
            allow_insecure,
            waiting: HashMap::new(),
            opening: Vec::new(),
            sealing: None,
            cipher: None,
            before: 0,
            installed: None,
            control: Arc::default(),
        }
    }

    /// Where the peer is, as control was last told.
    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    /// The name of the data cipher and whose code runs.
    pub(crate) fn cipher(&self) -> Option<(&'static str, &'static str)> {
        self.cipher
    }

    /// When the newest keys came.
    pub(crate) fn installed(&self) -> Option<Since> {
        self.installed
    }

    /// Sends a packet of the control channel.
    pub(crate) fn send_control<W: Wire>(&self, tunnel: &Tunnel<W>, packet: &[u8]) {
        match &self.way {
            Way::Datagrams(endpoint) => {
                // The data plane knows best which of our addresses the peer calls.
                let now = self.peer.endpoint().filter(|e| e.addr == endpoint.addr);
                if tunnel.send(now.unwrap_or(*endpoint), packet).source_gone {
                    self.peer.clear_source();
                }
            }
            Way::Stream(stream) => {
                tunnel.send_record(stream, packet);
            }
        }
    }

    /// The peer sends from elsewhere now.
    pub(crate) fn moved<W: Wire>(&mut self, tunnel: &Tunnel<W>, to: SocketAddr) {
        if let Way::Datagrams(endpoint) = &mut self.way {
            tunnel.clear_sender(endpoint.addr, self.first);
            *endpoint = Endpoint::new(to);
            tunnel.set_sender(to, self.first);
        }
    }

    /// Opens with these keys from now on.
    ///
    /// # Errors
    /// The cipher is not to be used.
    pub(crate) fn install<W: Wire>(
        &mut self,
        tunnel: &Tunnel<W>,
        keys: &DataKeys,
    ) -> Result<(), DataChannelError> {
        let (seal, open) = DataFormat::pair(keys, &self.shape, self.allow_insecure)?;
        self.cipher = Some(seal.cipher());
        self.installed = Some((SystemTime::now(), Instant::now()));
        let key_id = keys.key_id;
        if let Way::Datagrams(endpoint) = &self.way {
            // For packets without a peer-id, which are known by where they come from.
            tunnel.set_sender(endpoint.addr, self.first);
        }
        let index = self.first + u32::from(key_id);
        tunnel.add_receive_key(index, &self.peer, open, limits(keys.format), None);
        if !self.opening.contains(&key_id) {
            self.opening.push(key_id);
        }
        self.waiting.insert(key_id, (seal, keys.format));
        Ok(())
    }

    /// Seals with the keys of this number from now on.
    pub(crate) fn seal_with<W: Wire>(&mut self, tunnel: &Tunnel<W>, key_id: u8) {
        if let Some((format, layout)) = self.waiting.remove(&key_id) {
            let index = self.first + u32::from(key_id);
            let sealing = Arc::clone(&format);
            tunnel.set_send_key(&self.peer, (index, index), format, limits(layout));
            self.sealing = Some((key_id, sealing));
        }
    }

    /// Forgets the keys of this number.
    pub(crate) fn remove<W: Wire>(&mut self, tunnel: &Tunnel<W>, key_id: u8) {
        tunnel.remove_receive_key(self.first + u32::from(key_id));
        self.opening.retain(|id| *id != key_id);
        self.waiting.remove(&key_id);
        if self.sealing.as_ref().is_some_and(|(id, _)| *id == key_id) {
            tunnel.clear_send_key(&self.peer);
            self.sealing = None;
        }
    }

    /// Forgets everything: the peer is gone.
    pub(crate) fn clear<W: Wire>(&mut self, tunnel: &Tunnel<W>) {
        for key_id in std::mem::take(&mut self.opening) {
            tunnel.remove_receive_key(self.first + u32::from(key_id));
        }
        self.waiting.clear();
        self.sealing = None;
        tunnel.clear_send_key(&self.peer);
        match &self.way {
            Way::Datagrams(endpoint) => tunnel.clear_sender(endpoint.addr, self.first),
            Way::Stream(stream) => tunnel.remove_stream(stream),
        }
    }

    /// Sends a ping.
    pub(crate) fn ping<W: Wire>(&self, tunnel: &Tunnel<W>) {
        tunnel.inject(&self.peer, &PING);
    }

    /// What the session's timers need to know.
    pub(crate) fn times(&self) -> Times {
        let times = self.peer.times();
        Times {
            last_received: times.last_received,
            last_sent: times.last_sent,
            payload_bytes: self.bytes().saturating_sub(self.before),
        }
    }

    /// How much the keys of this number were used since the peer's counters said `bytes`.
    pub(crate) fn usage<W: Wire>(&self, tunnel: &Tunnel<W>, key_id: u8, bytes: u64) -> KeyUsage {
        let bytes = self.bytes().saturating_sub(bytes);
        let receive = tunnel.receive_usage(self.first + u32::from(key_id));
        KeyUsage {
            key_id,
            bytes,
            sealed: self.peer.sent_on_key().unwrap_or(0),
            // Of both directions, so neither is underestimated.
            blocks_sealed: bytes / 16,
            blocks_opened: bytes / 16,
            opened: receive.opened & PACKET_ID,
            failed: receive.forged,
            epoch: self
                .sealing
                .as_ref()
                .map_or(0, |(_, format)| format.epoch()),
        }
    }

    /// Bytes of data and control packets that came from the peer.
    pub(crate) fn received(&self) -> u64 {
        self.peer.rx_bytes.value() + self.control.received()
    }

    /// Bytes of data and control packets that went to the peer.
    pub(crate) fn sent(&self) -> u64 {
        self.peer.tx_bytes.value() + self.control.sent()
    }

    /// Bytes of data packets, of both directions.
    pub(crate) fn bytes(&self) -> u64 {
        self.peer.rx_bytes.value() + self.peer.tx_bytes.value()
    }
}

/// Numbers of packets that a key may have, and after which it is to be renewed.
fn limits(layout: Layout) -> KeyLimits {
    let (most, renew) = match layout {
        Layout::V1 | Layout::V2 { .. } => (0xffff_fffe, 0xff00_0000),
        // Ids go on over epochs, and stock takes one of 2^36 for a key that is used up.
        Layout::Epoch { .. } => (1 << 36, 1 << 35),
    };
    KeyLimits {
        expires: Instant::now() + FOR_EVER,
        messages_max: most,
        refresh_at: None,
        refresh_messages: renew,
    }
}

#[cfg(test)]
mod tests;
