//! One client of a server.

use super::told::stranger;
use super::{ClientKey, Cx, JobId, Machine, Speaking, channel, line, peer};
use crate::openvpn::channel::Channel;
use config::openvpn::ClientSettings;
use openvpn::keyfile::v2::Metadata;
use openvpn::server::{ClientId, Remote};
use openvpn::session::{AuthId, CloseReason, ControlTraffic, Session};
use openvpn_host::accounts::Addresses;
use openvpn_host::accounts::pool::Lease;
use openvpn_host::console::Who;
use openvpn_host::console::log_lines;
use openvpn_host::scripts::environment::Environment;
use plane::{Moving, Reorder};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Login progress of a client. Renewed keys do not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The TLS handshake or the exchange of options is in progress.
    Arriving,
    /// A script or password file checks the client's login.
    Judged,
    /// A script is choosing the client's settings.
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

/// A client of the server.
pub(super) struct Client {
    /// The client's address and connection.
    pub(super) from: Remote,
    pub(super) step: Step,
    pub(super) since: SystemTime,
    /// The client's certificate and password are accepted.
    pub(super) authorised: bool,
    /// Common name from its certificate or user name; empty before login.
    pub(super) common_name: String,
    /// The client's name, if it differs.
    pub(super) name: Option<Box<str>>,
    pub(super) username: String,
    /// Client number for the management port; the server counts up.
    pub(super) number: u64,
    pub(super) environment: Environment,
    pub(super) metadata: Option<Metadata>,
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
    /// Byte counters of the client's control packets.
    pub(super) control: Arc<ControlTraffic>,
    /// The client's keys in the data plane.
    pub(super) channel: Channel,
    /// A script was told of the client's arrival and must be told of its departure.
    pub(super) announced: bool,
    /// When the server last answered the client's options request.
    pub(super) options_told: Option<Instant>,
    /// When the data plane was last asked for the client's address after a move.
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
                let name = self.name.as_deref().unwrap_or(&self.common_name);
                format!("{name}/{}", self.from)
            } else {
                self.from.to_string()
            },
            stranger: !self.authorised,
        }
    }
}

impl Machine<'_> {
    /// Handles a new session.
    pub(super) fn started(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        from: Remote,
        metadata: Option<Metadata>,
    ) {
        if let Some(stream) = from.connection {
            if !self.connections.has(stream) {
                return self.close(cx, id, CloseReason::Local);
            }
            self.connections.begun(stream);
        }
        let about = Speaking::of(stranger(from.address));
        let outer = log_lines::outer(from.address);
        line!(cx, Info, "TLS: Initial packet from {outer}");
        drop(about);
        let begun = self.listener.session(id);
        let control = begun.map(Session::control_traffic).map(Arc::clone);
        let control = control.unwrap_or_default();
        let line = self.listener.line(id).unwrap_or_else(|| from.line(None));
        // A TCP connection cannot move between lines.
        let gathered = self.theirs.gathered.filter(|_| from.connection.is_none());
        let moving = match gathered {
            Some(_) => Moving::Gather,
            None => Moving::Tell,
        };
        channel::add_peer(cx.plane, peer(id), line, moving);
        if let Some(mode) = gathered {
            cx.plane.set_line_mode(peer(id), mode);
        }
        if self.config.data.reorder && from.connection.is_none() {
            cx.plane.set_reorder(peer(id), Some(Reorder::default()));
        }
        let number = self.counted;
        self.counted += 1;
        let mut environment = self.hooks.base.clone();
        environment.set_peer("untrusted", from.address);
        let client = Client {
            from,
            step: Step::Arriving,
            since: cx.now.wall,
            authorised: false,
            common_name: String::new(),
            name: None,
            username: String::new(),
            number,
            environment,
            metadata,
            deferred: None,
            settings: Default::default(),
            scripted: Default::default(),
            options: Vec::new(),
            lease: None,
            addresses: Default::default(),
            networks: Vec::new(),
            control,
            channel: Channel::new(from.is_stream()),
            announced: false,
            options_told: None,
            located: None,
            moved: false,
            move_told: None,
        };
        self.clients.insert(id, Box::new(client));
    }
}
