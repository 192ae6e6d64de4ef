//! Effects: actions that the client machine asks its executor for.

use crate::openvpn::Ended;
use crate::openvpn::channel::Plane;
use crate::openvpn::connect::{Name, ProxyLogin, Target};
use crate::openvpn::management::{Addresses, State};
use crate::openvpn::scripts::environment::Environment;
use crate::openvpn::scripts::{Hook, Invocation};
use config::openvpn::{Connection, Prompted};
use lines::control::LineUsage;
use log::Level;
use openvpn::push::PushReply;
use plane::Now;
use plane::{LineId, PeerId};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use zeroize::Zeroizing;

/// An action. Effects run in [order](super::order::Order). If one fails, the rest of its batch is dropped and the
/// machine gets [`Event::Failed`](super::event::Event::Failed).
pub(super) enum Effect {
    /// A line of the log.
    Log(Level, String),
    /// A line for the user who started the tunnel, besides OpenVPN's log.
    Say(Level, String),
    /// Log why the process cannot go on.
    Fatal(String),
    /// Notify management clients.
    Tell(Told),
    /// Write the status to the log.
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
    /// Remove the interface.
    CloseInterface,
    /// Read the host's state of the uplinks: [`Event::LinesRead`](super::event::Event::LinesRead).
    ReadLines,
    /// Replace a line's sockets, with this port (0 for any) and this mark (0 for none):
    /// [`Event::LineOpened`](super::event::Event::LineOpened).
    OpenLine(LineId, u16, u32),
    /// Save the lines' byte counts for the next start.
    KeepUsage(Vec<LineUsage>),
    /// Save the address at which the server of this name proved itself, for a start without a working name server.
    KeepAddress(String, IpAddr),
    /// Perform a step on the host's network.
    Host(HostStep),
    /// Run a program: [`Event::ScriptFinished`](super::event::Event::ScriptFinished). Effects that must follow it wait
    /// for its end, see [`Order`](super::order::Order).
    RunScript(Hook, Box<Invocation>),
    /// Run `tls-verify` for each certificate until it refuses one: [`Event::Judged`](super::event::Event::Judged) with
    /// this number.
    Judge(u64, Vec<Invocation>),
    /// Read the list of revoked certificates again if it has changed.
    RefreshRevocations,
    /// Drop surplus privileges.
    DropPrivileges,
    /// Wait for a management client where `management-hold` says so:
    /// [`Event::Released`](super::event::Event::Released).
    Hold,
    /// The tunnel is up and every script has run: log it and tell the waiting parent process.
    Up,
    /// Report that the connection is lost and will be made again.
    Lost,
    /// End the client. No effect follows.
    End(Ended),
}

/// Notifications to management clients.
pub(super) enum Told {
    /// The tunnel's state changed.
    State(State, String, Addresses),
    /// The server sent a token in place of the password.
    AuthToken(Zeroizing<String>),
    /// The server sent an `echo` text.
    Echo(String),
    /// The server refused the password; with its reason.
    VerificationFailed(Option<String>),
    /// The interface went up or down.
    UpDown(bool, Environment),
    /// The tunnel has ended.
    Closed,
}

/// The data plane's name for the server, its only peer.
pub(super) const SERVER: PeerId = PeerId(0);

/// A step of the host's network.
#[derive(Debug)]
pub(super) enum HostStep {
    /// Plan the interface's settings: [`Event::Planned`](super::event::Event::Planned) with this number, at once or
    /// after the look-up of names in routes.
    Plan {
        /// Number of the request.
        number: u64,
        /// The server's push reply.
        reply: Box<PushReply>,
        /// The tunnel's MTU in bytes.
        mtu: u16,
        /// Destination of the outer packets.
        remote: SocketAddr,
    },
    /// Undo the current settings, then set the planned addresses and name servers:
    /// [`Event::InterfaceSet`](super::event::Event::InterfaceSet).
    SetInterface {
        /// Leave the name servers unchanged.
        no_dns: bool,
    },
    /// Set the routes: [`Event::RoutesSet`](super::event::Event::RoutesSet).
    SetRoutes,
    /// Route packets to this address outside the tunnel.
    KeepOutside(IpAddr),
    /// Route packets to an uplink's relay outside the tunnel. The executor only logs a failure: other relays may work.
    KeepRelayOutside(IpAddr),
    /// Adapt the routes outside the tunnel to the host's current ones.
    Follow,
    /// Undo all settings.
    Undo,
}

/// Context of an event: collects effects, and calls the data plane at once.
pub(super) struct Cx {
    /// Time of the event.
    pub(super) now: Now,
    /// The data plane, while there is an interface.
    plane: Option<Rc<Plane>>,
    /// The effects, in order.
    pub(super) effects: Vec<Effect>,
}

impl Cx {
    pub(super) const fn new(now: Now, plane: Option<Rc<Plane>>) -> Self {
        Self {
            now,
            plane,
            effects: Vec::new(),
        }
    }

    /// Calls the data plane, if there is an interface.
    pub(super) fn plane<T>(&self, call: impl FnOnce(&Plane) -> T) -> Option<T> {
        self.plane.as_deref().map(call)
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
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

    /// Saves the proved address of a name, if there is one.
    pub(super) fn keep_address(&mut self, good: Option<(String, IpAddr)>) {
        if let Some((name, address)) = good {
            self.push(Effect::KeepAddress(name, address));
        }
    }

    pub(super) fn host(&mut self, step: HostStep) {
        self.push(Effect::Host(step));
    }
}
