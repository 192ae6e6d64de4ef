//! Events for an interface.

use super::effect::LookUp;
use super::probing::ProbePlan;
use crate::lines::LineFacts;
use config::types::{self, Key32};
use config::uapi::SetDevice;
use plane::{Endpoint, Line, LineId, Notice, PeerId};
use std::net::SocketAddr;

/// An event, or the result of an [`Effect`](super::Effect).
#[derive(Debug)]
pub enum Event {
    /// The interface starts, and needs its sockets.
    Start,
    /// A datagram that is not a data packet.
    Handshake {
        /// The line and the sender, with the address of ours that it called.
        from: Line,
        /// The datagram.
        bytes: Box<[u8]>,
        /// Number of messages that wait behind it.
        waiting: usize,
    },
    /// Notices of the data plane about peers, in any order.
    Notices(Vec<(PeerId, Notice)>),
    /// A client configures the interface.
    Configure {
        /// The client's number, which the [`Answer`](super::Effect::Answer) repeats.
        client: u64,
        /// The requested settings.
        set: SetDevice,
    },
    /// The file sets a peer's endpoint: an address or a name.
    SetEndpoint {
        /// The peer's public key. An unknown key is ignored.
        public_key: Key32,
        /// The endpoint.
        endpoint: types::Endpoint,
    },
    /// Peers that had sessions with this interface a moment ago, before its restart, with their addresses and the
    /// address of ours that each called. Each peer is called once.
    Recall(Vec<(Key32, Endpoint)>),
    /// Call the peers with these keys at their endpoints until they answer.
    Call(Vec<Key32>),
    /// A look-up has ended.
    LookedUp {
        /// The look-up.
        lookup: LookUp,
        /// The addresses found, or why the look-up failed.
        found: Result<Vec<SocketAddr>, String>,
    },
    /// The result of [`Bind`](super::Effect::Bind): the sockets' port, or an error. After an error, the previous
    /// sockets are still open.
    Bound(Result<u16, String>),
    /// The result of [`Mark`](super::Effect::Mark).
    Marked(Result<(), String>),
    /// Plan of the MTU probes; `None` turns probes off.
    ProbePaths(Option<Box<ProbePlan>>),
    /// A peer has sent a message inside a data packet: an answer to a probe.
    Message(PeerId, Box<[u8]>),
    /// This host refuses a probe because of its length. Names the peer, and the probe's number.
    ProbeTooLong(PeerId, u64),
    /// The host's addresses or routes have changed.
    NetworkChanged,
    /// The host's devices or addresses have changed. Only lines depend on it.
    LinksChanged,
    /// Host facts of each uplink, in configuration order; `None` where the uplink's device is missing.
    LinesRead(Vec<Option<LineFacts>>),
    /// The result of [`OpenLine`](super::Effect::OpenLine): the sockets' port, or an error.
    LineOpened(LineId, Result<u16, String>),
    /// The bytes that each line has carried, from [`DataPlane::carried`](plane::DataPlane::carried).
    LinesCounted(Vec<u64>),
    /// The interface ends; the last count of the lines' bytes came before this.
    LinesEnd,
    /// The index of the interface by which the host now reaches each peer; `None` for an unreachable peer.
    RoutesRead(Vec<(PeerId, Option<u32>)>),
    /// The link's state, whether or not it changed.
    Link {
        /// The link is up.
        up: bool,
        /// The link's MTU in bytes.
        mtu: u32,
    },
    /// The interface was moved to another network namespace, from which no news come.
    LinkMoved,
    /// The interface has been deleted, or the data plane has stopped.
    LinkGone,
    /// The configuration socket's file has been removed.
    SocketRemoved,
    /// A signal to end.
    Terminate(i32),
    /// A signal to read the configuration again.
    Reload,
    /// The [deadline](super::Machine::next_deadline) has come.
    Deadline,
}
