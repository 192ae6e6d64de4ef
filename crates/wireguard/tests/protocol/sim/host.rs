//! A host: a device, the state and keys of its data plane, and a log of events.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use crypto::Key;
use crypto::x25519::PrivateKey;
use plane::{KeyLimits, PeerId, ReplayWindow};
use wireguard::{Activity, Device, Dropped};

/// Events of a host, for tests to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Initiation,
    Response,
    CookieReply,
    Keepalive,
    Data,
    Received(Vec<u8>),
    KeepaliveReceived,
    Replayed,
    Dropped(Dropped),
    Complete,
    DropStaged,
    Cleared,
    Disarmed,
}

pub(crate) struct ReceiveKey {
    pub(crate) peer: PeerId,
    pub(crate) key: Key,
    pub(crate) limits: KeyLimits,
    pub(crate) confirm: bool,
    pub(crate) window: ReplayWindow,
    /// The new key for sending, until it is in use.
    pub(crate) send: Option<SendKey>,
}

/// Whether packets with this text may not pass on a session that carries only the exchange of keys.
pub(crate) fn is_barred(only_exchange: bool, text: &[u8]) -> bool {
    #[cfg(feature = "postquantum")]
    let is_exchange = postquantum::is_exchange(text);
    #[cfg(not(feature = "postquantum"))]
    let is_exchange = false;
    only_exchange && !text.is_empty() && !is_exchange
}

pub(crate) struct SendKey {
    pub(crate) remote_index: u32,
    pub(crate) local_index: u32,
    pub(crate) key: Key,
    pub(crate) limits: KeyLimits,
    pub(crate) counter: u64,
    pub(crate) reported: bool,
    /// Carries only the exchange of post-quantum keys.
    pub(crate) only_exchange: bool,
}

#[derive(Default)]
pub(crate) struct Plane {
    pub(crate) send: Option<SendKey>,
    pub(crate) staged: VecDeque<Vec<u8>>,
    pub(crate) endpoint: Option<SocketAddr>,
    pub(crate) notes: Activity,
    pub(crate) armed: bool,
}

pub(crate) struct Host {
    pub(crate) device: Device,
    pub(crate) address: SocketAddr,
    /// The clock's time at the start of the simulation, adjusted for later changes of the clock.
    pub(crate) wall: SystemTime,
    pub(crate) under_load: bool,
    pub(crate) up: bool,
    pub(crate) events: Vec<(Duration, Event)>,
    pub(crate) receive: HashMap<u32, ReceiveKey>,
    pub(crate) planes: HashMap<PeerId, Plane>,
}

impl Host {
    /// Restarts the host with the same key, without peers.
    pub(crate) fn restart(&mut self, key: PrivateKey, now: Instant) {
        self.device = Device::new(now, self.wall, 0);
        self.device.set_private_key(Some(key), now, &mut Vec::new());
        self.receive.clear();
        self.planes.clear();
    }

    /// The times at which `event` happened.
    pub(crate) fn times(&self, event: &Event) -> Vec<Duration> {
        self.events
            .iter()
            .filter(|(_, e)| e == event)
            .map(|&(at, _)| at)
            .collect()
    }

    pub(crate) fn count(&self, event: &Event) -> usize {
        self.times(event).len()
    }

    pub(crate) fn received(&self) -> Vec<Vec<u8>> {
        let text = |event: &Event| match event {
            Event::Received(text) => Some(text.clone()),
            _ => None,
        };
        self.events
            .iter()
            .filter_map(|(_, event)| text(event))
            .collect()
    }

    pub(crate) fn receive_keys(&self) -> usize {
        self.receive.len()
    }

    pub(crate) fn can_send(&self, peer: PeerId) -> bool {
        self.planes
            .get(&peer)
            .is_some_and(|plane| plane.send.is_some())
    }

    pub(crate) fn endpoint(&self, peer: PeerId) -> Option<SocketAddr> {
        self.planes.get(&peer)?.endpoint
    }
}
