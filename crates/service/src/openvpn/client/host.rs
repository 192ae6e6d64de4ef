//! The context of a client's machine while it handles an event: the time, the data plane and its host.

use super::event::Event;
use super::steps::{Kind, Steps};
use crate::openvpn::Ended;
use crate::openvpn::channel::Plane;
use config::openvpn::{Connection, Prompted};
use lines::control::{LineFacts, LineUsage};
use lines::floor::Floor;
use log::Level;
use openvpn::push::PushReply;
use openvpn_host::connect::{Name, ProxyLogin, Target};
pub(super) use openvpn_host::management::Told;
use openvpn_host::management::{Addresses, State};
use openvpn_host::scripts::{Hook, Invocation};
use openvpn_host::status_file::ClientStatus;
use plane::Now;
use plane::{LineId, PeerId};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// The server's number in the data plane, which has no other peer.
pub(super) const SERVER: PeerId = PeerId(0);

/// An error of a step, in words.
pub(super) type Failure = Box<dyn std::error::Error>;

/// Result of a step: the event that reports it, unless the event comes later or there is nothing to report.
pub(super) type Done = Result<Option<Event>, Failure>;

/// The process and system around a client. No method calls back into the machine.
///
/// Methods that return [`Done`] fail with a message for the log; [`Steps`] says what follows then.
pub(super) trait Host {
    /// Writes a line to the log. With `waits`, it is also the reason why the tunnel is not up yet, for the service
    /// manager.
    fn log(&mut self, level: Level, text: &str, waits: bool);

    /// Writes a line for the user who started the tunnel, besides OpenVPN's log.
    fn say(&mut self, level: Level, text: &str);

    /// Logs why the process cannot continue.
    fn fatal(&mut self, why: String);

    /// Notifies management clients.
    fn tell(&mut self, told: Told);

    /// Writes the status to the log.
    fn log_status(&mut self, status: ClientStatus);

    /// Looks up a name: [`Event::LookedUp`] with this number.
    fn look_up(&mut self, number: u64, name: Name);

    /// Looks up the name of a line's relay: [`Event::RelayLookedUp`].
    fn look_up_relay(&mut self, line: LineId, name: Name);

    /// Gets a socket to a server: [`Event::Connected`] or [`Event::DialFailed`] with this number.
    fn dial(&mut self, number: u64, target: Box<Target>, login: Option<ProxyLogin>) -> Done;

    /// Finds out whether a server can be reached over a line: [`Event::LineTried`].
    fn try_line(&mut self, line: LineId, target: Target);

    /// Abandons the current look-up or dial.
    fn cancel(&mut self);

    /// Asks for the name and password for the server: [`Event::Login`].
    fn ask_login(&mut self) -> Done;

    /// Asks for the name and password for a proxy: [`Event::Login`].
    fn ask_proxy_login(&mut self, prompted: &Prompted) -> Done;

    /// Makes the interface: [`Event::Opened`].
    fn open_interface(&mut self, connection: &Connection) -> Done;

    /// Removes the interface.
    fn close_interface(&mut self);

    /// Returns the state of each uplink's device, in configuration order; `None` where the device is missing.
    fn line_facts(&mut self) -> Vec<Option<LineFacts>>;

    /// Replaces a line's sockets, with this port (0 for any) and this mark (0 for none).
    ///
    /// # Errors
    /// A message for the log.
    fn open_line(&mut self, line: LineId, port: u16, mark: u32) -> Result<(), String>;

    /// Saves the lines' byte counts for the next start.
    fn keep_usage(&mut self, usage: &[LineUsage]);

    /// Saves the floor, the latest timestamp that may be sent. The write is on the disk when this returns.
    fn keep_floor(&mut self, floor: SystemTime);

    /// Saves the address at which the server of this name proved itself, for a start without a working name server.
    fn keep_address(&mut self, name: &str, address: IpAddr);

    /// Plans the interface's settings for the server's push reply, an MTU in bytes and the destination of the outer
    /// packets: [`Event::Planned`] with this number, at once or after the look-up of names in routes.
    fn plan(&mut self, number: u64, reply: &PushReply, mtu: u16, remote: IpAddr) -> Done;

    /// Undoes the current settings, then sets the planned addresses and, unless `no_dns`, the name servers:
    /// [`Event::InterfaceSet`].
    fn set_interface(&mut self, no_dns: bool) -> Done;

    /// Sets the routes: [`Event::RoutesSet`].
    fn set_routes(&mut self) -> Done;

    /// Routes packets to this address outside the tunnel.
    fn keep_outside(&mut self, address: IpAddr) -> Done;

    /// Routes packets to an uplink's relay outside the tunnel. Only logs a failure: other relays may work.
    fn keep_relay_outside(&mut self, relay: IpAddr);

    /// Adapts the routes outside the tunnel to the host's current ones.
    fn follow(&mut self) -> Done;

    /// Undoes all settings.
    fn undo(&mut self);

    /// Runs a program: [`Event::ScriptFinished`].
    fn run_script(&mut self, hook: Hook, program: Invocation);

    /// Runs `tls-verify` for each certificate until it refuses one: [`Event::Judged`] with this number.
    fn judge(&mut self, number: u64, programs: Vec<Invocation>);

    /// Reads the list of revoked certificates again if it has changed.
    fn refresh_revocations(&mut self);

    /// Drops surplus privileges.
    fn drop_privileges(&mut self) -> Done;

    /// Waits for a management client where `management-hold` says so: [`Event::Released`].
    fn hold(&mut self) -> Done;

    /// The device through which packets to an address leave, for the log.
    fn device_to(&mut self, address: IpAddr) -> Option<String>;

    /// Tells the program that manages the interface why no server answers; `None` once one does.
    fn silent(&mut self, why: Option<&str>);

    /// Logs that the tunnel is up after `took` and every script has run, and tells the waiting parent process.
    fn is_up(&mut self, took: Duration);

    /// Reports that the connection is lost and will be made again.
    fn is_lost(&mut self);

    /// Whether the client has ended; no step runs after that.
    fn has_ended(&self) -> bool;

    /// Ends the client.
    fn end(&mut self, ended: Ended);
}

/// Whether a notification follows a running script. A server can cause the others without limit.
fn waits(told: &Told) -> bool {
    match told {
        Told::State(state, ..) => *state != State::AuthPending,
        Told::UpDown(..) | Told::Closed => true,
        Told::AuthToken(_) | Told::Echo(_) | Told::VerificationFailed(_) => false,
    }
}

/// Context of an event.
pub(super) struct Cx<'a> {
    /// Time of the event.
    pub(super) now: Now,
    /// The data plane at the start of the event, if there was an interface. A step may close the interface.
    pub(super) plane: Option<Rc<Plane>>,
    /// Whether the tunnel is up with its addresses and routes.
    pub(super) connected: bool,
    pub(super) host: &'a mut dyn Host,
    pub(super) steps: &'a mut Steps,
}

impl Cx<'_> {
    /// Calls the data plane, if there is an interface.
    pub(super) fn plane<T>(&self, call: impl FnOnce(&Plane) -> T) -> Option<T> {
        self.plane.as_deref().map(call)
    }

    /// Calls the host at once, or after the running script.
    pub(super) fn step(&mut self, step: impl FnOnce(&mut dyn Host) -> Done + 'static) {
        self.steps.add(Kind::Plain, Box::new(step), self.host);
    }

    /// Makes a call without a result, as a [`step`](Self::step).
    pub(super) fn later(&mut self, call: impl FnOnce(&mut dyn Host) + 'static) {
        self.step(|host| {
            call(host);
            Ok(None)
        });
    }

    /// Runs a script after the one that runs.
    pub(super) fn run_script(&mut self, hook: Hook, program: Invocation) {
        let run = move |host: &mut dyn Host| {
            host.run_script(hook, program);
            Ok(None)
        };
        self.steps.add(Kind::Script, Box::new(run), self.host);
    }

    /// Adapts the routes outside the tunnel, once for all changes during a script.
    pub(super) fn follow(&mut self) {
        let follow = |host: &mut dyn Host| host.follow();
        self.steps.add(Kind::Follow, Box::new(follow), self.host);
    }

    /// Saves the floor before a stamp is used, if it has to be raised for that.
    pub(super) fn keep_floor(&mut self, floor: &mut Floor, used: SystemTime) {
        if let Some(floor) = floor.use_up(used, self.now.wall) {
            self.host.keep_floor(floor);
        }
    }

    pub(super) fn log(&mut self, level: Level, text: impl Into<String>) {
        let text = text.into();
        let waits = level == Level::Error && !self.connected;
        self.host.log(level, &text, waits);
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

    pub(super) fn say(&mut self, level: Level, text: String) {
        self.later(move |host| host.say(level, &text));
    }

    pub(super) fn tell(&mut self, told: Told) {
        if waits(&told) {
            self.later(|host| host.tell(told));
        } else {
            self.host.tell(told);
        }
    }

    pub(super) fn state(&mut self, state: State, detail: &str) {
        let told = Told::State(state, detail.to_owned(), Addresses::default());
        self.tell(told);
    }
}
