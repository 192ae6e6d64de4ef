//! The host's side of an interface, except the data plane.

use config::types::Key32;
use lines::control::{LineFacts, LineUsage};
use lines::names::LookUp;
use plane::{Endpoint, LineId};
use std::net::IpAddr;
#[cfg(feature = "amnezia")]
use std::sync::Arc;
use std::time::SystemTime;
#[cfg(feature = "amnezia")]
use wireguard::amnezia::Profile;

/// The calls that a [`Machine`](super::Machine) makes to its host. None of them calls the machine back.
pub trait Host {
    /// Opens new sockets for a line and closes its old ones, which stay open after an error. An interface without lines
    /// has one, [`LineId::FIRST`]. `port` 0 means any, `mark` 0 means none. Returns the port.
    ///
    /// # Errors
    /// A message for the log.
    fn open_sockets(&mut self, line: LineId, port: u16, mark: u32) -> Result<u16, String>;

    /// Sets the mark of packets from the open sockets, except those of lines with a mark of their own.
    ///
    /// # Errors
    /// A message for the log.
    fn set_mark(&mut self, mark: u32) -> Result<(), String>;

    /// Returns the state of each uplink's device, in configuration order; `None` where the device is missing.
    fn line_facts(&mut self) -> Vec<Option<LineFacts>>;

    /// Writes the bytes that lines have carried to their file, for the next start.
    fn keep_usage(&mut self, usage: &[LineUsage]);

    /// Writes the floor, the latest timestamp that may be sent, to its file. The write is on the disk when this
    /// returns.
    fn keep_floor(&mut self, floor: SystemTime);

    /// Writes to a file that the other end has authenticated at this address of this name, for a start at which no
    /// name server answers.
    fn keep_address(&mut self, name: &str, address: IpAddr);

    /// Writes the addresses of peers with a session to a file, so that the next start begins handshakes with them
    /// ([`Event::Recall`](super::Event::Recall)).
    fn keep_peers(&mut self, peers: &[(Key32, Endpoint)]);

    /// Begins to look a name up; [`Event::LookedUp`](super::Event::LookedUp) tells the result. At most [`LOOKUPS_MAX`]
    /// run at a time.
    fn look_up(&mut self, lookup: LookUp);

    /// Returns the index of the interface through which packets of this mark leave the host, for each destination and
    /// source; `None` for destinations that it does not reach, and for sources that are not the host's. Returns nothing
    /// if the routes cannot be read.
    fn interfaces_to(&mut self, mark: u32, ways: &[(IpAddr, IpAddr)]) -> Vec<Option<u32>>;

    /// Ends the interface if the kernel has deleted it.
    fn check_link(&mut self);

    /// Gives data packets another form, that of AmneziaWG or WireGuard's own, from the next session on.
    #[cfg(feature = "amnezia")]
    fn set_profile(&mut self, profile: Option<Arc<Profile>>) {
        let _ = profile;
    }

    /// Hands up to this many rejected datagrams to the machine from now on, as [`Event::Handshake`](super::Event::Handshake).
    #[cfg(feature = "amnezia")]
    fn sample(&mut self, count: u32) {
        let _ = count;
    }

    /// Takes our index of the session that a keepalive without `S4` named since the last call. Anyone may have sent it.
    #[cfg(feature = "amnezia")]
    fn take_bare_keepalive(&mut self) -> Option<u32> {
        None
    }

    /// The interface's addresses, with the prefix lengths of their networks; empty if they cannot be read.
    #[cfg(feature = "postquantum")]
    fn own_addresses(&mut self) -> super::OwnAddresses;

    /// Begins a job on another thread; [`Event::Computed`](super::Event::Computed) tells the outcome.
    #[cfg(feature = "postquantum")]
    fn compute(&mut self, peer: plane::PeerId, job: postquantum::Job);

    /// Takes answers to pings with this token out of the peers' packets; 0 for none.
    fn watch_echoes(&mut self, token: u64);

    /// Informs the owner that the host's settings may need a change.
    fn changed(&mut self);

    /// Asks the kernel for the path MTUs to the peers: it does not report them by itself.
    fn look_at_path(&mut self);

    /// Writes to the log.
    fn log(&mut self, level: log::Level, words: &str);
}

/// Maximum number of look-ups at a time: each may wait long for a resolver that does not answer.
pub const LOOKUPS_MAX: usize = 4;

/// Why a configuration was refused. Settings before the fault are in force, as with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Error number for the `wg` tool.
    pub errno: i32,
    /// Message for the log.
    pub words: String,
}

/// Why an interface ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal of this number ended the interface.
    Signal(i32),
    /// The interface was deleted.
    LinkDeleted,
    /// The configuration socket was removed.
    SocketRemoved,
}

impl Ended {
    /// The reason in words, for the log.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Signal(_) => "by a signal",
            Self::LinkDeleted => "the interface was deleted",
            Self::SocketRemoved => "the configuration socket was removed",
        }
    }
}
