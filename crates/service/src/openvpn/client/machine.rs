//! Client state machine: connects to one server at a time and reconnects until told to stop.
//!
//! [`Machine::handle`] takes an event, and calls the data plane and the host. The executor waits for events: the end of
//! slow work is an event, and later work is a deadline.

mod calling;
mod connection;
mod dialling;
mod ending;
mod environment;
mod interface;
mod lines;
mod network;
mod relays;
mod stream_lines;
mod verdict;

pub(super) use connection::Connection;

use super::WRONG_ADDRESS;
use super::event::{Event, Realm};
use super::host::{Cx, SERVER};
use super::logins::Logins;
use crate::openvpn::channel::Plane;
use crate::openvpn::kernel_plane::Choice;
use crate::status::Refusals;
use ::lines::floor::Floor;
use calling::Calling;
use config::openvpn::{AuthRetry, ControlWrap, OpenVpn};
use dialling::Candidate;
use ending::Outcome;
use host::strangers::Strangers;
use lines::ServerLines;
use network::TunnelState;
use openvpn::session::{CloseReason, Dropped};
use openvpn::tls::TlsSettings;
use openvpn::wrap::WrapSettings;
use openvpn_host::connect::{Attempts, ProxyLogin};
use openvpn_host::hooks::Hooks;
use openvpn_host::management::State;
use openvpn_host::signals::Signal;
use openvpn_host::status_file::ClientStatus;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use stream_lines::StreamLines;

/// Parts of a new [`Machine`].
pub(super) struct Parts<'a> {
    pub(super) config: &'a OpenVpn,
    /// The scripts and their common variables.
    pub(super) hooks: Hooks<'a>,
    pub(super) tls: Arc<TlsSettings>,
    /// The wraps of the control channel, by configuration.
    pub(super) wraps: Vec<(ControlWrap, WrapSettings)>,
    /// Leaves the host's name servers unchanged.
    pub(super) no_dns: bool,
    /// Action after a refused password.
    pub(super) auth_retry: AuthRetry,
    /// Who moves the packets.
    pub(super) mover: &'a Choice,
    /// The exit status when the server refuses this client, or a handshake fails and `tls-exit` is set.
    pub(super) given_up: u8,
}

/// Where the connection attempt stands.
enum Phase {
    /// Idle: no attempt has started.
    Idle,
    /// Pauses until the next attempt at this time.
    Pause(Instant),
    /// Looks up a name: the request's number, and the deadline.
    LookUp(u64, String, Instant),
    /// Asks for the server's name and password.
    Login(Candidate),
    /// Makes the interface.
    Interface(Candidate),
    /// Asks for the proxy's name and password.
    ProxyLogin(Candidate),
    /// Waits, up to this time, for a line to dial over.
    Await(Candidate, Option<ProxyLogin>, Instant),
    /// Dials: the request's number, and the start time.
    Dial(u64, Instant, Candidate),
    /// Waits, up to this time, for a line to send over.
    Line(Candidate, SocketAddr, Instant),
    /// Has a socket and a session.
    Connection(Box<Connection>),
    /// Waits for a management client's release.
    Hold,
    /// The client has ended.
    Over,
}

/// State machine of a client.
pub(super) struct Machine<'a> {
    config: &'a OpenVpn,
    hooks: Hooks<'a>,
    tls: Arc<TlsSettings>,
    wraps: Vec<(ControlWrap, WrapSettings)>,
    no_dns: bool,
    mover: &'a Choice,
    given_up: u8,
    auth_retry: AuthRetry,
    attempts: Attempts,
    logins: Logins,
    calling: Calling,
    phase: Phase,
    /// Number of the last request.
    number: u64,
    /// The next pause is skipped, as the cause of a failure of the present attempt may be gone.
    hurries: bool,
    /// The interface, while there is one.
    ifname: Option<String>,
    /// Addresses, routes and name servers that are set.
    network: Option<TunnelState>,
    /// `up` is running. Until it ends the connection stays, because `down` must follow.
    up_runs: bool,
    /// Another program deleted the interface; its settings must be taken down.
    is_gone: bool,
    /// An earlier session was up: scripts are told of a restart.
    restarted: bool,
    /// The present session was up.
    was_up: bool,
    /// The tunnel is up with its addresses and routes.
    is_connected: bool,
    /// Surplus privileges were dropped (`user`, `group`).
    unprivileged: bool,
    /// Refused packets and sessions.
    refusals: Refusals,
    /// The lines to the server, if there are several: `lines` for UDP, `stream_lines` for TCP.
    lines: Option<Box<ServerLines>>,
    stream_lines: Option<Box<StreamLines>>,
    /// Lower bound of the clock, for timestamps in hellos to relays.
    floor: Floor,
    /// Rate limit of log lines that the server causes.
    talk: Strangers,
}

impl<'a> Machine<'a> {
    pub(super) fn new(parts: Parts<'a>) -> Self {
        let Parts {
            config,
            hooks,
            tls,
            wraps,
            no_dns,
            auth_retry,
            mover,
            given_up,
        } = parts;
        Self {
            config,
            hooks,
            tls,
            wraps,
            no_dns,
            mover,
            given_up,
            auth_retry,
            attempts: Attempts::new(config),
            logins: Logins::new(config),
            calling: Calling::default(),
            phase: Phase::Idle,
            number: 0,
            hurries: false,
            ifname: None,
            network: None,
            up_runs: false,
            is_gone: false,
            restarted: false,
            was_up: false,
            is_connected: false,
            unprivileged: false,
            lines: ServerLines::new(config),
            stream_lines: StreamLines::new(config),
            floor: Floor::default(),
            talk: Strangers::new(),
            refusals: Refusals::new(
                Dropped::REASONS
                    .into_iter()
                    .chain(CloseReason::REFUSALS)
                    .chain([WRONG_ADDRESS]),
            ),
        }
    }

    /// Handles an event.
    pub(super) fn handle(&mut self, event: Event, cx: &mut Cx<'_>) {
        cx.steps.begin();
        match event {
            _ if matches!(self.phase, Phase::Over) => {}
            Event::Begin => {
                cx.state(State::Connecting, "");
                self.read_stream_lines(cx);
                if let Some(it) = &mut self.lines {
                    it.lines.name_relays(cx.now.monotonic);
                }
                self.look_up_relays(cx);
                self.next_attempt(cx);
            }
            Event::LookedUp(number, found) => self.looked_up(number, found, cx),
            Event::Login(Realm::Server, login) => self.login(login, cx),
            Event::Login(Realm::Proxy, login) => self.proxy_login(login, cx),
            Event::Opened(ifname) => self.opened(ifname, cx),
            Event::Connected {
                number,
                remote,
                stream,
            } => self.dialled(number, remote, stream, cx),
            Event::DialFailed(number, error, of_line) => {
                self.dial_failed(number, &error, of_line, cx);
            }
            Event::RelayLookedUp(line, found) => self.relay_looked_up(line, found, cx),
            Event::LineTried(line, result) => self.line_tried(line, result, cx),
            Event::Released => {
                if matches!(self.phase, Phase::Hold) {
                    self.next_attempt(cx);
                }
            }
            Event::Forget => self.logins.forget(),
            Event::AuthRetry(how) => self.auth_retry = how,
            Event::Signal(Signal::Status) => {
                let status = self.status(cx.plane.as_deref());
                cx.host.log_status(status);
            }
            Event::Signal(signal) => self.signal(signal, cx),
            Event::NetworkChanged => {
                self.hurry_relays(cx.now);
                if self.network.is_some() {
                    cx.follow();
                }
                // If the routes cannot follow, uplinks are tested all the same.
                cx.steps.begin();
                self.read_lines(cx);
            }
            Event::Moved => self.moved(cx),
            Event::Hurry => self.hurry(cx),
            Event::InterfaceGone => {
                // The notice may come more than once.
                self.is_gone = self.ifname.is_some();
                if self.is_gone {
                    if self.connection().is_none() {
                        self.leave_interface(cx);
                    }
                    let error = "another program deleted the interface".to_owned();
                    self.failed(error, cx);
                }
            }
            Event::Failed(error) => self.failed(error, cx),
            Event::ScriptFinished(hook, result) => {
                self.script_finished(hook, result, cx);
            }
            Event::Deadline => {
                self.calling.deadline(cx);
                self.look_up_relays(cx);
                self.lines_deadline(cx);
                if self
                    .stream_lines_due()
                    .is_some_and(|at| at <= cx.now.monotonic)
                {
                    self.follow_stream_lines(cx);
                }
                self.deadline(cx);
            }
            // The connection that requested the settings is gone.
            Event::InterfaceSet(_) if self.connection().is_none() => cx.later(|host| host.undo()),
            event => self.with_connection(cx, |machine, it, cx| {
                machine.connection_event(it, event, cx);
            }),
        }
    }

    fn deadline(&mut self, cx: &mut Cx<'_>) {
        match &self.phase {
            Phase::Pause(until) if *until <= cx.now.monotonic => self.next_attempt(cx),
            Phase::LookUp(_, _, until) if *until <= cx.now.monotonic => {
                self.look_up_is_late(cx);
            }
            Phase::Line(_, _, until) | Phase::Await(_, _, until) if *until <= cx.now.monotonic => {
                self.attempt_failed("cannot open any uplink", cx);
            }
            Phase::Connection(_) => self.with_connection(cx, |machine, it, cx| {
                machine.tick(it, cx);
            }),
            _ => {}
        }
    }

    /// When [`Event::Deadline`] is due; `None` if only another event continues.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Pause(until)
            | Phase::LookUp(_, _, until)
            | Phase::Line(_, _, until)
            | Phase::Await(_, _, until) => Some(*until),
            Phase::Connection(connection) => {
                let routes = self.network.as_ref().and_then(TunnelState::routes_at);
                connection.next_deadline().into_iter().chain(routes).min()
            }
            _ => None,
        };
        let lines = self.lines_due().or_else(|| self.stream_lines_due());
        let due = lines.into_iter().chain(self.relays_due());
        let due = due.chain(self.calling.due());
        phase.into_iter().chain(due).min()
    }

    /// The connection to a server, while there is one.
    pub(super) fn connection(&self) -> Option<&Connection> {
        match &self.phase {
            Phase::Connection(connection) => Some(connection),
            _ => None,
        }
    }

    /// Whether the tunnel is up with its addresses and routes.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// The client's byte counts.
    pub(super) fn status(&self, plane: Option<&Plane>) -> ClientStatus {
        let Some((connection, plane)) = self.connection().zip(plane) else {
            return ClientStatus::default();
        };
        let statistics = plane.statistics();
        let state = plane.peer(SERVER).unwrap_or_default();
        let control = connection.session().control_traffic();
        ClientStatus {
            tun_read: statistics.outbound.bytes,
            tun_write: statistics.inbound.bytes,
            link_read: state.rx_bytes + control.received(),
            link_write: state.tx_bytes + control.sent(),
            auth_read: state.rx_bytes,
        }
    }

    /// Refused packets and sessions.
    pub(super) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// The last name shown to a server; empty if none.
    pub(super) fn user(&self) -> &str {
        self.logins.user()
    }

    /// The interface's address of each family, while set.
    pub(super) fn addresses(&self) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        let network = self.network.as_ref();
        network.map(TunnelState::addresses).unwrap_or_default()
    }

    /// Returns a new request number, to recognise late answers.
    fn request(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Runs `call` with the connection, if there is one, and handles the connection's end.
    fn with_connection(
        &mut self,
        cx: &mut Cx<'_>,
        call: impl FnOnce(&mut Self, &mut Connection, &mut Cx<'_>),
    ) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let Phase::Connection(mut connection) = phase else {
            self.phase = phase;
            return;
        };
        call(self, &mut connection, cx);
        if self.up_runs {
            self.phase = Phase::Connection(connection);
            return;
        }
        match connection.end.take() {
            None => self.phase = Phase::Connection(connection),
            Some(end) => self.connection_ended(&connection, end, cx),
        }
    }

    fn signal(&mut self, signal: Signal, cx: &mut Cx<'_>) {
        if matches!(self.phase, Phase::Connection(_)) {
            self.with_connection(cx, |machine, it, cx| {
                machine.leave(it, signal, cx);
            });
        } else {
            cx.later(|host| host.cancel());
            self.after_attempt(Outcome::Signal(signal), cx);
        }
    }

    /// Handles the failure of a step.
    fn failed(&mut self, error: String, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Connection(_) => self.with_connection(cx, |_, it, _| it.fail(error)),
            Phase::Login(_)
            | Phase::Interface(_)
            | Phase::ProxyLogin(_)
            | Phase::Await(..)
            | Phase::Dial(..)
            | Phase::Line(..) => {
                cx.later(|host| host.cancel());
                self.attempt_failed(&error, cx);
            }
            _ => cx.error(error),
        }
    }
}
