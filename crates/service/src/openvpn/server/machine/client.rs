//! One client of a server.

use super::super::super::console::Who;
use super::super::super::policy::clients::Addresses;
use super::super::super::policy::environment::Environment;
use super::super::super::policy::pool::Lease;
use super::{ClientKey, JobId, Now};
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

/// How far a client has come in. New keys of a client that is in change nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It negotiates.
    Arriving,
    /// A script or file judges its password.
    Judged,
    /// A script makes its settings.
    Settled,
    /// It has its addresses.
    In,
}

/// Answer that a script will give later, in the files of its job.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deferred {
    /// Whether the client may come in.
    Login(AuthId, JobId),
    /// The client's settings.
    Settings(JobId),
}

impl Deferred {
    /// The job whose script it is.
    pub(super) const fn job(self) -> JobId {
        match self {
            Self::Login(_, job) | Self::Settings(job) => job,
        }
    }
}

/// A client.
pub(super) struct Client {
    /// Where it is.
    pub(super) from: Remote,
    pub(super) step: Step,
    pub(super) since: SystemTime,
    /// Its certificate and its password are good.
    pub(super) authorised: bool,
    /// From its certificate or its user name; empty until it is known.
    pub(super) common_name: String,
    pub(super) username: String,
    /// Counted by the server, for the management port.
    pub(super) number: u64,
    pub(super) environment: Environment,
    pub(super) metadata: Option<Metadata>,
    pub(super) framing: Framing,
    pub(super) deferred: Option<Deferred>,
    pub(super) settings: ClientSettings,
    /// The part of them that a script made.
    pub(super) scripted: ClientSettings,
    /// Options that the server pushed to it under these settings.
    pub(super) options: Vec<String>,
    pub(super) lease: Option<Lease>,
    pub(super) addresses: Addresses,
    /// The addresses and networks that are routed to it.
    pub(super) networks: Vec<(IpAddr, u8)>,
    /// Bytes of its control packets.
    pub(super) control: Arc<ControlTraffic>,
    /// Packet properties that all its keys share.
    pub(super) shape: Shape,
    /// Bytes of its data packets, of both directions, when they were counted last.
    pub(super) bytes: u64,
    /// Value of `bytes` when the keys of each key id came.
    pub(super) bytes_before: [u64; KEYS_PER_PEER as usize],
    /// When the newest keys came, by both clocks.
    pub(super) renewed: Option<Now>,
    /// Cipher of the newest keys.
    pub(super) cipher: Option<CipherName>,
    /// A script was told that it came, and is to be told when it goes.
    pub(super) announced: bool,
    /// When it was told our options last.
    pub(super) options_told: Option<Instant>,
    /// When the data plane was asked last where it is, as it had moved.
    pub(super) located: Option<Instant>,
    /// It has moved since: the data plane is asked again in the next round.
    pub(super) moved: bool,
    /// When the log last told that it moved.
    pub(super) move_told: Option<Instant>,
}

impl Client {
    /// Whether it comes over TCP.
    pub(super) const fn is_stream(&self) -> bool {
        self.from.is_stream()
    }

    /// Names it, with its peer id.
    pub(super) const fn key(&self, id: ClientId) -> ClientKey {
        ClientKey {
            id,
            number: self.number,
        }
    }

    /// Whether it has its addresses, or waits for a script that makes its settings.
    pub(super) fn is_admitted(&self) -> bool {
        matches!(self.step, Step::Settled | Step::In)
    }

    /// How logs name it: by its address, and once its name is proved by `name/address`.
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
