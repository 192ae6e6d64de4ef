//! State of one client of a server.

use super::{ClientKey, JobId, Now};
use crate::openvpn::console::Who;
use crate::openvpn::policy::clients::Addresses;
use crate::openvpn::policy::environment::Environment;
use crate::openvpn::policy::pool::Lease;
use config::openvpn::ClientSettings;
use openvpn::data::format::{Framing, Shape};
use openvpn::data::wire::KEYS_PER_PEER;
use openvpn::keyfile::v2::Metadata;
use openvpn::server::{ClientId, Remote};
use openvpn::session::{AuthId, ControlTraffic};
use plane::CipherName;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Login progress of a client. Renewed keys do not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The TLS handshake or options are under way.
    Arriving,
    /// A script or password file checks its login.
    Judged,
    /// A script makes its settings.
    Settled,
    /// The client is admitted and has its addresses.
    In,
}

/// Answer that a script will write to its job's files later.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deferred {
    /// Whether to admit the client.
    Login(AuthId, JobId),
    /// The client's settings.
    Settings(JobId),
}

impl Deferred {
    /// Returns the script's job.
    pub(super) const fn job(self) -> JobId {
        match self {
            Self::Login(_, job) | Self::Settings(job) => job,
        }
    }
}

/// A client.
pub(super) struct Client {
    /// The client's address and connection.
    pub(super) from: Remote,
    pub(super) step: Step,
    pub(super) since: SystemTime,
    /// Its certificate and password are accepted.
    pub(super) authorised: bool,
    /// Common name from its certificate or user name; empty before login.
    pub(super) common_name: String,
    pub(super) username: String,
    /// Client number for the management port; the server counts up.
    pub(super) number: u64,
    pub(super) environment: Environment,
    pub(super) metadata: Option<Metadata>,
    pub(super) framing: Framing,
    pub(super) deferred: Option<Deferred>,
    pub(super) settings: ClientSettings,
    /// The part of the settings that a script made.
    pub(super) scripted: ClientSettings,
    /// Options that the server pushed to the client for these settings.
    pub(super) options: Vec<String>,
    pub(super) lease: Option<Lease>,
    pub(super) addresses: Addresses,
    /// Addresses and networks that are routed to the client.
    pub(super) networks: Vec<(IpAddr, u8)>,
    /// Byte counters of its control packets.
    pub(super) control: Arc<ControlTraffic>,
    /// Packet properties that all its keys share.
    pub(super) shape: Shape,
    /// Bytes of its data packets, both directions, at the last count.
    pub(super) bytes: u64,
    /// Value of `bytes` when each key id's keys were installed.
    pub(super) bytes_before: [u64; KEYS_PER_PEER as usize],
    /// When the newest keys were installed, on both clocks.
    pub(super) renewed: Option<Now>,
    /// Cipher of the newest keys.
    pub(super) cipher: Option<CipherName>,
    /// A script was told of its arrival and must be told of its departure.
    pub(super) announced: bool,
    /// When the server last answered its options request.
    pub(super) options_told: Option<Instant>,
    /// When the data plane was last asked for its address after a move.
    pub(super) located: Option<Instant>,
    /// The client moved again; the next round asks the data plane.
    pub(super) moved: bool,
    /// When the log last reported a move.
    pub(super) move_told: Option<Instant>,
}

impl Client {
    /// Whether the client is connected over TCP.
    pub(super) const fn is_stream(&self) -> bool {
        self.from.is_stream()
    }

    /// Returns its key: peer id and number.
    pub(super) const fn key(&self, id: ClientId) -> ClientKey {
        ClientKey {
            id,
            number: self.number,
        }
    }

    /// Whether the client has its addresses or waits for its settings script.
    pub(super) fn is_admitted(&self) -> bool {
        matches!(self.step, Step::Settled | Step::In)
    }

    /// Returns its name for the log: its address, or `name/address` once authenticated.
    pub(super) fn who(&self) -> Who {
        Who {
            label: if self.authorised {
                format!("{}/{}", self.common_name, self.from)
            } else {
                self.from.to_string()
            },
            stranger: !self.authorised,
        }
    }
}
