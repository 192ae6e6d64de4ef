//! Packets in flight, and the agenda of coming events.

use crate::openvpn::server::machine::{ClientKey, Done, JobId};
use openvpn::session::Handshaken;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// A data packet: unencrypted, but tagged with data that only the key's holders have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataPacket {
    pub(super) peer_id: u32,
    pub(super) key_id: u8,
    pub(super) secret: [u8; 64],
}

#[derive(Clone, Debug)]
pub(super) enum Packet {
    Control(Vec<u8>),
    Data(DataPacket),
}

/// Event on the agenda.
pub(super) enum Item {
    ToServer(SocketAddr, Packet),
    ToClient(SocketAddr, Packet),
    /// A client starts a session.
    Begin(usize),
    /// Deadline of a client's session.
    Timer(usize),
    /// A client sends a data packet.
    Talk(usize),
    /// A background job ends with this result.
    JobDone(JobId, Done),
    /// A handshake step ends.
    Handshaken(ClientKey, Box<Handshaken>),
    /// A fault is injected.
    Trouble,
}

/// Coming events, ordered by time.
#[derive(Default)]
pub(super) struct Agenda {
    items: BTreeMap<(Instant, u64), Item>,
    next: u64,
}

impl Agenda {
    pub(super) fn add(&mut self, at: Instant, item: Item) {
        self.next += 1;
        self.items.insert((at, self.next), item);
    }

    pub(super) fn next_time(&self) -> Option<Instant> {
        self.items.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the first event, if it is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Item> {
        if self.next_time()? > now {
            return None;
        }
        self.items.pop_first().map(|(_, item)| item)
    }
}
