//! Events for an interface.

use super::probing::ProbePlan;
use config::types::{self, Key32};
use lines::names::LookUp;
use plane::{Endpoint, Line, Notice, PeerId};
use std::net::SocketAddr;

/// An event outside of a machine.
#[derive(Debug)]
pub enum Event {
    /// The interface starts, and needs its sockets.
    Start,
    /// A datagram that is not a data packet.
    Handshake {
        /// The line and the sender, with our address that it sent to.
        from: Line,
        /// Handshake message.
        bytes: Box<[u8]>,
        /// Number of messages that wait behind this one.
        waiting: usize,
    },
    /// Notices of the data plane about peers, in any order.
    Notices(Vec<(PeerId, Notice)>),
    /// The file sets a peer's endpoint: an address or a name.
    SetEndpoint {
        /// The peer's public key. An unknown key is ignored.
        public_key: Key32,
        /// New endpoint.
        endpoint: types::Endpoint,
    },
    /// Peers that had sessions with this interface a moment ago, before its restart, with their addresses and our
    /// address that each sent to. Each gets one handshake.
    Recall(Vec<(Key32, Endpoint)>),
    /// Peers as in [`Recall`](Self::Recall). Those whose endpoints are names are called there until their names have
    /// addresses.
    #[cfg(feature = "handover")]
    RecallNamed(Vec<(Key32, Endpoint)>),
    /// Start handshakes with the peers of these keys, at their endpoints, until they answer.
    Call(Vec<Key32>),
    /// A look-up has ended.
    LookedUp {
        /// Look-up that ended.
        lookup: LookUp,
        /// The addresses found, or why the look-up failed.
        found: Result<Vec<SocketAddr>, String>,
    },
    /// Plan of the MTU probes; `None` turns probes off.
    ProbePaths(Option<Box<ProbePlan>>),
    /// A peer has sent a message inside a data packet: an answer to a probe, or a part of an exchange of post-quantum keys.
    Message(PeerId, Box<[u8]>),
    /// A job of [`Host::compute`](super::Host::compute) has ended.
    #[cfg(feature = "postquantum")]
    Computed(PeerId, postquantum::Outcome),
    /// The host's addresses or routes have changed.
    NetworkChanged,
    /// The host's devices or addresses have changed. Only lines depend on them.
    LinksChanged,
    /// The link's state, whether or not it changed.
    Link {
        /// The link is up.
        up: bool,
        /// The link's MTU in bytes.
        mtu: u32,
    },
    /// The interface was moved to another network namespace, from which no news come.
    LinkMoved,
    /// The [deadline](super::Machine::next_deadline) has come.
    Deadline,
}
