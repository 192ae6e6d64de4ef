//! One client of a server.

use super::super::conduit::{Conduit, Way};
use super::super::console::Who;
use super::super::policy::auth_script::AuthFiles;
use super::super::policy::clients::Addresses;
use super::super::policy::connect_script::ConnectFiles;
use super::super::policy::environment::Environment;
use super::super::policy::pool::Lease;
use config::openvpn::ClientSettings;
use openvpn::data::framing::Framing;
use openvpn::keyfile::v2::Metadata;
use openvpn::session::AuthId;
use std::net::{IpAddr, SocketAddr};
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

/// What a script will say later.
pub(super) enum Deferred {
    /// Whether the client may come in.
    Login(AuthId, AuthFiles),
    /// What its settings are.
    Settings(ConnectFiles),
}

/// A client.
pub(super) struct Served {
    pub(super) conduit: Conduit,
    pub(super) from: SocketAddr,
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
    /// What it was pushed by these settings.
    pub(super) options: Vec<String>,
    pub(super) lease: Option<Lease>,
    pub(super) addresses: Addresses,
    /// The addresses and networks that are routed to it.
    pub(super) networks: Vec<(IpAddr, u8)>,
    /// The newest keys, and the bytes of both directions before them.
    pub(super) keys: Option<(u8, u64)>,
    /// A script was told that it came, and is to be told when it goes.
    pub(super) announced: bool,
}

impl Served {
    /// Whether it comes over TCP.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.conduit.way(), Way::Stream(_))
    }

    /// When a packet of the networks behind it went to it or came from it last; before the first
    /// one, when it came. Stock keeps this for each route, here all routes of a client share it.
    pub(super) fn last_reference(&self) -> SystemTime {
        let times = self.conduit.peer.times();
        let last = times.last_data_sent.max(times.last_data_received);
        let ago = last.map(|at| Instant::now().saturating_duration_since(at));
        let last = ago.and_then(|ago| SystemTime::now().checked_sub(ago));
        last.map_or(self.since, |last| last.max(self.since))
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
