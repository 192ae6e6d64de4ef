//! Events for an interface.

use super::effect::LookUp;
use super::probing::ProbePlan;
use crate::lines::LineFacts;
use config::types::{self, Key32};
use config::uapi::SetDevice;
use plane::{Endpoint, Line, LineId, Notice, PeerId};
use std::net::SocketAddr;

/// Something that happened, or the end of something that an [`Effect`](super::Effect) began.
#[derive(Debug)]
pub enum Event {
    /// The interface begins: its sockets are to be opened.
    Start,
    /// A datagram that is not a data packet.
    Handshake {
        /// The way that it came, with which of our addresses it called.
        from: Line,
        /// The datagram.
        bytes: Box<[u8]>,
        /// How many more wait behind it.
        waiting: usize,
    },
    /// Notices of the data plane about peers, in any order.
    Notices(Vec<(PeerId, Notice)>),
    /// A client configures the interface.
    Configure {
        /// The number that the [`Answer`](super::Effect::Answer) will have.
        client: u64,
        /// The requested settings.
        set: SetDevice,
    },
    /// The file says where a peer is, by an address or a name.
    SetEndpoint {
        /// The peer's public key. Nothing happens where there is no such peer.
        public_key: Key32,
        /// Where it is.
        endpoint: types::Endpoint,
    },
    /// Peers had sessions with this interface a moment ago, before it started again, and were there, calling that address of
    /// ours: each is called once.
    Recall(Vec<(Key32, Endpoint)>),
    /// The peers with these keys are called at their endpoints until they answer.
    Call(Vec<Key32>),
    /// A look-up has ended.
    LookedUp {
        /// The look-up.
        lookup: LookUp,
        /// The addresses that were found, or why there are none.
        found: Result<Vec<SocketAddr>, String>,
    },
    /// The sockets that [`Bind`](super::Effect::Bind) asked for: their port, or why there are none. What was open before
    /// an attempt that failed is still open.
    Bound(Result<u16, String>),
    /// The end of [`Mark`](super::Effect::Mark).
    Marked(Result<(), String>),
    /// Plan of the MTU probes; `None` turns probes off.
    ProbePaths(Option<Box<ProbePlan>>),
    /// A peer has sent a message inside a data packet: an answer to a probe.
    Message(PeerId, Box<[u8]>),
    /// This host refuses a probe for its length: whose, and its number.
    ProbeTooLong(PeerId, u64),
    /// The host's addresses or routes are others.
    NetworkChanged,
    /// The host's devices or addresses are others. Matters only where there are lines.
    LinksChanged,
    /// Host facts of each uplink, in configuration order; `None` where the uplink's device is missing.
    LinesRead(Vec<Option<LineFacts>>),
    /// The sockets of a line that [`OpenLine`](super::Effect::OpenLine) asked for: their port, or why there are none.
    LineOpened(LineId, Result<u16, String>),
    /// [`DataPlane::carried`](plane::DataPlane::carried): what each line has carried.
    LinesCounted(Vec<u64>),
    /// The interface ends, and what lines have carried was told for the last time.
    LinesEnd,
    /// Through which interface the host now reaches peers, by its index; `None` where it does not.
    RoutesRead(Vec<(PeerId, Option<u32>)>),
    /// The link's state, whether or not it changed.
    Link {
        /// It is up.
        up: bool,
        /// Its MTU in bytes.
        mtu: u32,
    },
    /// The interface was moved to another network namespace, from which nothing is heard.
    LinkMoved,
    /// The interface has been deleted, or the data plane has stopped.
    LinkGone,
    /// The configuration socket's file has been removed.
    SocketRemoved,
    /// A signal that says to end.
    Terminate(i32),
    /// A signal that says to read the configuration again.
    Reload,
    /// The [deadline](super::Machine::next_deadline) has come.
    Deadline,
}
