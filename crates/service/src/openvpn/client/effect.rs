//! Effects: actions that the client machine asks its executor for.

use super::super::Ended;
use super::super::connect::{Name, ProxyLogin, Target};
use super::super::management::{Addresses, State};
use super::super::plane_call;
use super::super::policy::environment::Environment;
use super::super::policy::scripts::{Hook, Invocation};
use crate::lines::LineUsage;
use config::openvpn::{Connection, Prompted};
use log::Level;
use openvpn::push::PushReply;
use plane::{LineId, PeerId};
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;
use zeroize::Zeroizing;

/// Something to do. Effects are done in [order](super::order::Order); after one that cannot be done come no more of
/// its batch, but [`Event::Failed`](super::event::Event::Failed).
pub(super) enum Effect {
    /// A line of the log.
    Log(Level, String),
    /// A line for whoever has brought the tunnel up, beside a log that is OpenVPN's.
    Say(Level, String),
    /// Why the process cannot go on.
    Fatal(String),
    /// Management clients are told.
    Tell(Told),
    /// The status goes into the log.
    LogStatus,
    /// Look up a name: [`Event::LookedUp`](super::event::Event::LookedUp) with this number.
    LookUp(u64, Name),
    /// Look up the name of a line's relay: [`Event::RelayLookedUp`](super::event::Event::RelayLookedUp).
    LookUpRelay(LineId, Name),
    /// Get a socket to a server: [`Event::Connected`](super::event::Event::Connected) or
    /// [`Event::DialFailed`](super::event::Event::DialFailed) with this number.
    Dial(u64, Box<Target>, Option<ProxyLogin>),
    /// Find out whether a server can be reached by a line: [`Event::LineTried`](super::event::Event::LineTried).
    Try(LineId, Box<Target>),
    /// Abandon the current look-up or dial.
    Cancel,
    /// Ask for the name and password for the server: [`Event::Login`](super::event::Event::Login).
    AskLogin,
    /// Ask for the name and password for a proxy.
    AskProxyLogin(Prompted),
    /// Make the interface: [`Event::Opened`](super::event::Event::Opened).
    OpenInterface(Box<Connection>),
    /// Remove it.
    CloseInterface,
    /// A call of the data plane. Answers are events, see [`PlaneAnswer`](plane_call::PlaneAnswer).
    Plane(PlaneCall),
    /// Read what the host says of the lines: [`Event::LinesRead`](super::event::Event::LinesRead).
    ReadLines,
    /// Open the sockets of a line in the place of those that are open, of this port (0 for any) and this mark (0 for none):
    /// [`Event::LineOpened`](super::event::Event::LineOpened).
    OpenLine(LineId, u16, u32),
    /// Ask the data plane what each line has carried: [`Event::LinesCounted`](super::event::Event::LinesCounted).
    CountLines,
    /// Write down what lines have carried, for the next start.
    KeepUsage(Vec<LineUsage>),
    /// Write down, before anything else is done, that this host has come to this time.
    KeepFloor(SystemTime),
    /// Write down that the other end has proved itself at this address of this name, for a start at which no name server
    /// answers.
    KeepAddress(String, IpAddr),
    /// A step of the host's network.
    Host(HostStep),
    /// Run a program: [`Event::ScriptFinished`](super::event::Event::ScriptFinished). What has its place behind it waits
    /// for its end, see [`Order`](super::order::Order).
    RunScript(Hook, Box<Invocation>),
    /// Run `tls-verify` for each of these certificates, until one is refused:
    /// [`Event::Judged`](super::event::Event::Judged) with this number.
    Judge(u64, Vec<Invocation>),
    /// Read the list of revoked certificates again if it has changed.
    RefreshRevocations,
    /// Give up the rights that are not needed any more.
    DropPrivileges,
    /// Wait for a management client where `management-hold` says so:
    /// [`Event::Released`](super::event::Event::Released).
    Hold,
    /// The tunnel is up, and every script has run: a line of the log, and the process that waits for it is told.
    Up,
    /// The connection is gone, and will be made again.
    Lost,
    /// It is over. Nothing follows.
    End(Ended),
}

/// Notifications to management clients.
pub(super) enum Told {
    /// How far the tunnel is.
    State(State, String, Addresses),
    /// A token takes the place of the password.
    AuthToken(Zeroizing<String>),
    /// The server said something by `echo`.
    Echo(String),
    /// The password was refused; what the server said of it.
    VerificationFailed(Option<String>),
    /// The interface went up or down.
    UpDown(bool, Environment),
    /// The tunnel has ended.
    Closed,
}

/// How the data plane calls the server, which is its only peer.
pub(super) const SERVER: PeerId = PeerId(0);

/// A call of the data plane.
pub(super) type PlaneCall = plane_call::PlaneCall<PeerId>;

/// A step of the host's network.
#[derive(Debug)]
pub(super) enum HostStep {
    /// Decide what the interface is to get: [`Event::Planned`](super::event::Event::Planned) with this number, at once
    /// or when the names in routes were looked up.
    Plan {
        /// The request.
        number: u64,
        /// The server's push reply.
        reply: Box<PushReply>,
        /// The tunnel's MTU in bytes.
        mtu: u16,
        /// Where the outer packets go.
        remote: SocketAddr,
    },
    /// Undo what is set, and set the addresses and name servers that were decided:
    /// [`Event::InterfaceSet`](super::event::Event::InterfaceSet).
    SetInterface {
        /// The name servers are left as they are.
        no_dns: bool,
    },
    /// Set the routes: [`Event::RoutesSet`](super::event::Event::RoutesSet).
    SetRoutes,
    /// Lead packets to this address past the tunnel.
    KeepOutside(IpAddr),
    /// Lead packets to an uplink's relay past the tunnel. The executor only logs a failure: other relays may work.
    KeepRelayOutside(IpAddr),
    /// Lead what goes past the tunnel where it goes now.
    Follow,
    /// Undo everything that is set.
    Undo,
}

/// Effects in the making.
#[derive(Default)]
pub(super) struct Effects(pub(super) Vec<Effect>);

impl Effects {
    pub(super) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    pub(super) fn log(&mut self, level: Level, text: impl Into<String>) {
        self.push(Effect::Log(level, text.into()));
    }

    pub(super) fn info(&mut self, text: impl Into<String>) {
        self.log(Level::Info, text);
    }

    pub(super) fn warn(&mut self, text: impl Into<String>) {
        self.log(Level::Warn, text);
    }

    pub(super) fn error(&mut self, text: impl Into<String>) {
        self.log(Level::Error, text);
    }

    pub(super) fn debug(&mut self, text: impl Into<String>) {
        self.log(Level::Debug, text);
    }

    pub(super) fn tell(&mut self, told: Told) {
        self.push(Effect::Tell(told));
    }

    pub(super) fn state(&mut self, state: State, detail: &str) {
        let told = Told::State(state, detail.to_owned(), Addresses::default());
        self.tell(told);
    }

    /// An address of a name is good, if it is told which.
    pub(super) fn keep_address(&mut self, good: Option<(String, IpAddr)>) {
        if let Some((name, address)) = good {
            self.push(Effect::KeepAddress(name, address));
        }
    }

    pub(super) fn plane(&mut self, call: PlaneCall) {
        self.push(Effect::Plane(call));
    }

    pub(super) fn host(&mut self, step: HostStep) {
        self.push(Effect::Host(step));
    }
}
