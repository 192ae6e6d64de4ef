//! Steps from the choice of a server to an open socket.

use super::connection::End;
use super::ending::Outcome;
use super::{Machine, Phase};
use crate::openvpn::Ended;
use crate::openvpn::client::host::Cx;
use crate::openvpn::client::logins::Shown;
use crate::openvpn::device;
use openvpn_host::connect::{Next, ProxyLogin, ResolveError, Target};
use openvpn_host::console::log_lines::outer;
use openvpn_host::management::State;
use openvpn_host::secrets::Login;
use plane::StreamId;
use std::net::SocketAddr;
use std::time::Duration;

/// The resolver's own patience is usually less.
pub(in crate::openvpn::client) const LOOK_UP_MAX: Duration = Duration::from_secs(40);

/// How long to wait for a line. A longer wait starts the attempt again, as the server may have moved.
const LINE_MAX: Duration = Duration::from_secs(30);

/// The next server, and the credentials to show it.
pub(super) struct Candidate {
    pub(super) target: Box<Target>,
    pub(super) login: Option<Login>,
}

impl Machine<'_> {
    /// Continues with the next server, or with the step before it.
    pub(super) fn next_attempt(&mut self, cx: &mut Cx<'_>) {
        match self.attempts.next(cx.now.monotonic) {
            Next::Target(target) => {
                self.hurries = false;
                self.show_login(target, None, cx);
            }
            Next::Wait(..) if std::mem::take(&mut self.hurries) => {
                self.attempts.hurry();
                self.next_attempt(cx);
            }
            Next::Wait(until, begins) => {
                if let Some(pause) = begins {
                    cx.info(format!("Restart pause, {} second(s)", pause.as_secs()));
                }
                self.phase = Phase::Pause(until);
            }
            Next::LookUp(name) => {
                let number = self.request();
                let until = cx.now.monotonic + LOOK_UP_MAX;
                self.phase = Phase::LookUp(number, name.host.clone(), until);
                cx.later(move |host| host.look_up(number, name));
            }
            Next::GiveUp(why) => {
                cx.error(why.to_string());
                self.end(Ended::Exit(1), cx);
            }
        }
    }

    /// Whether a TCP connection to the server is open or being made.
    pub(in crate::openvpn::client) fn calls_by_stream(&self) -> bool {
        match &self.phase {
            Phase::Dial(..) => true,
            Phase::Connection(it) => it.stream.is_some(),
            _ => false,
        }
    }

    /// Calls the same server again at once: packets from the source address of the TCP connection, or of the dial, no
    /// longer reach it.
    pub(super) fn moved(&mut self, cx: &mut Cx<'_>) {
        match &self.phase {
            Phase::Connection(it) if it.stream.is_some() => self.with_connection(cx, |_, it, _| {
                it.end.get_or_insert(End::Moved);
            }),
            Phase::Dial(..) => {
                cx.later(|host| host.cancel());
                let outcome = self.calls_anew(cx);
                self.after_attempt(outcome, cx);
            }
            _ => self.hurry(cx),
        }
    }

    /// Ends the pause, or skips the next one if an attempt is under way: the cause of its failure may be gone.
    pub(super) fn hurry(&mut self, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Pause(_) => {
                self.attempts.hurry();
                self.next_attempt(cx);
            }
            Phase::Connection(_) => {}
            _ => self.hurries = true,
        }
    }

    pub(super) fn looked_up(
        &mut self,
        number: u64,
        found: Result<Vec<SocketAddr>, ResolveError>,
        cx: &mut Cx<'_>,
    ) {
        // Ignores a late answer to an earlier request.
        if !matches!(self.phase, Phase::LookUp(wanted, ..) if wanted == number) {
            return;
        }
        if let Some((level, text)) = self.attempts.looked_up(found, cx.now.monotonic) {
            cx.log(level, text);
        }
        self.next_attempt(cx);
    }

    pub(super) fn look_up_is_late(&mut self, cx: &mut Cx<'_>) {
        if let Phase::LookUp(number, host, _) = &self.phase {
            let (number, host) = (*number, host.clone());
            cx.later(|host| host.cancel());
            self.looked_up(number, Err(ResolveError::Late { host }), cx);
        }
    }

    /// Gets the credentials for the server; `answer` is the user's latest answer.
    fn show_login(&mut self, target: Box<Target>, answer: Option<Login>, cx: &mut Cx<'_>) {
        match self.logins.next(self.config, answer) {
            Shown::Known(login) => self.open_interface(Candidate { target, login }, cx),
            Shown::Ask => {
                let login = None;
                self.phase = Phase::Login(Candidate { target, login });
                cx.step(|host| host.ask_login());
            }
        }
    }

    pub(super) fn login(&mut self, login: Result<Login, String>, cx: &mut Cx<'_>) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Login(candidate) => match login {
                Ok(login) => self.show_login(candidate.target, Some(login), cx),
                Err(error) => self.no_login(error, cx),
            },
            // The event answers a question of an abandoned attempt.
            other => self.phase = other,
        }
    }

    /// Ends the client without a login: another attempt could not provide one.
    fn no_login(&mut self, error: String, cx: &mut Cx<'_>) {
        cx.host.fatal(error);
        self.after_attempt(Outcome::Exit(1), cx);
    }

    fn open_interface(&mut self, candidate: Candidate, cx: &mut Cx<'_>) {
        if self.ifname.is_some() {
            return self.ask_proxy_login(candidate, cx);
        }
        let connection = candidate.target.connection.clone();
        self.phase = Phase::Interface(candidate);
        cx.step(move |host| host.open_interface(&connection));
    }

    pub(super) fn opened(&mut self, ifname: String, cx: &mut Cx<'_>) {
        self.ifname = Some(ifname);
        self.open_lines(cx);
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Interface(candidate) => self.ask_proxy_login(candidate, cx),
            other => self.phase = other,
        }
    }

    fn ask_proxy_login(&mut self, candidate: Candidate, cx: &mut Cx<'_>) {
        match candidate.target.proxy_credentials().cloned() {
            None => self.dial(candidate, None, cx),
            Some(prompted) => {
                self.phase = Phase::ProxyLogin(candidate);
                cx.step(move |host| host.ask_proxy_login(&prompted));
            }
        }
    }

    pub(super) fn proxy_login(&mut self, login: Result<Login, String>, cx: &mut Cx<'_>) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::ProxyLogin(candidate) => match login {
                Ok(Login { name, password }) => {
                    self.dial(candidate, Some(ProxyLogin { name, password }), cx);
                }
                Err(error) => self.no_login(error, cx),
            },
            other => self.phase = other,
        }
    }

    pub(super) fn dial(
        &mut self,
        candidate: Candidate,
        login: Option<ProxyLogin>,
        cx: &mut Cx<'_>,
    ) {
        let mut target = candidate.target.clone();
        let tcp = target.connection.protocol.transport.is_tcp();
        if tcp && self.waits_for_line() {
            let until = cx.now.monotonic + LINE_MAX;
            self.phase = Phase::Await(candidate, login, until);
            return;
        }
        if tcp
            && let Some(line) = self.choose_line(cx.now)
            && let Some(settings) = self.config.lines.lines.get(line.index())
        {
            cx.info(format!("connecting through uplink {}", settings.name));
            target = Box::new(target.by_line(settings));
        }
        // The next server must be reached outside a tunnel that stays up.
        if self.network.is_some() {
            let server = target.remote.ip();
            cx.step(move |host| host.keep_outside(server));
        }
        self.calling.begin(&target, cx);
        cx.state(if tcp { State::TcpConnect } else { State::Wait }, "");
        let number = self.request();
        self.phase = Phase::Dial(number, cx.now.monotonic, candidate);
        cx.step(move |host| host.dial(number, target, login));
    }

    /// Handles a failed dial; `of_line` says whether another line may do better.
    pub(super) fn dial_failed(&mut self, number: u64, error: &str, of_line: bool, cx: &mut Cx<'_>) {
        let Phase::Dial(wanted, since, candidate) = &self.phase else {
            return;
        };
        if *wanted != number {
            return;
        }
        let time = cx.now.monotonic.saturating_duration_since(*since);
        let tcp = candidate.target.connection.protocol.transport.is_tcp();
        cx.error(error);
        let outcome = match tcp && of_line && self.line_failed(time, cx) {
            true => Outcome::Same,
            false => Outcome::Again,
        };
        self.after_attempt(outcome, cx);
    }

    /// Handles an open socket: a session begins.
    pub(super) fn dialled(
        &mut self,
        number: u64,
        remote: SocketAddr,
        stream: Option<StreamId>,
        cx: &mut Cx<'_>,
    ) {
        if !matches!(self.phase, Phase::Dial(wanted, ..) if wanted == number) {
            if let Some(stream) = stream {
                cx.plane(|plane| plane.remove_stream(stream));
            }
            return;
        }
        let Phase::Dial(_, _, candidate) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        let remote_name = outer(remote);
        if stream.is_some() {
            cx.info(format!("TCP connection established with {remote_name}"));
            cx.state(State::Wait, "");
            self.line_reached(cx);
        } else {
            let version = match device::family_of(remote) {
                netio::udp::Family::V4 => 4,
                netio::udp::Family::V6 => 6,
            };
            cx.info(format!("UDPv{version} link remote: {remote_name}"));
        }
        if stream.is_some() || self.has_line() {
            return self.begin_session(candidate, remote, stream, cx);
        }
        let until = cx.now.monotonic + LINE_MAX;
        self.phase = Phase::Line(candidate, remote, until);
    }
}
