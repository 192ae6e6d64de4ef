//! Server state machine: takes an event and the time, returns effects. The executor does the I/O, reads the clock and
//! runs the threads.
//!
//! Some effects have an answer, which is always the next event. A session writes its own log lines at once; every other
//! log line is an effect.

mod admission;
mod authorization;
mod client;
mod connected;
mod connections;
mod effect;
mod event;
mod held;
mod keys;
mod moved;
mod new_client;
mod outputs;
mod reload;
#[cfg(test)]
mod simulation;
mod status;
mod told;

pub(super) use connections::{Admission, Connections};
pub(super) use effect::{Effect, Job, JobId, JobKind, LoginChecks};
pub(super) use event::{
    ClientFile, ClientKey, ConfigurationRead, Done, Event, Login, Now, PlaneCall, Polled, peer,
};
pub(super) use reload::is_tcp;
pub(super) use status::Figures;

use super::super::Ended;
use super::super::console::{Speaking, Who};
use super::super::hooks::Hooks;
use super::super::management::State;
use super::super::plane_call::Look;
use super::super::policy::clients::ServerSide;
use super::super::policy::environment::Environment;
use super::super::policy::htpasswd::PasswordFile;
use super::super::policy::persist;
use super::super::policy::pool::Pool;
use super::super::policy::timestamp::Clock;
use crate::lines::TheirLines;
use crate::status::Refusals;
use client::{Client, Deferred};
use config::openvpn::{Connection, OpenVpn};
use held::Held;
use openvpn::message::Restart;
use openvpn::server::{ClientId, Listener};
use openvpn::session::{CloseReason, ControlTraffic, Output, Session};
use plane::SourceNetwork;
use plane::{Guesses, LineId};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the use of keys and the files of slow scripts are looked at.
const ROUND: Duration = Duration::from_secs(1);

/// Bytes that are kept for strangers when there are many.
const CROWD: u64 = 512 << 10;

/// How long clients have to acknowledge that the server goes.
const FAREWELL: Duration = Duration::from_secs(2);

/// A line that the log gets as an effect, about the client that the machine is busy with. A line that is not shown is not
/// made: strangers cause many.
macro_rules! line {
    ($machine:expr, $level:ident, $($text:tt)+) => {
        if log::Level::$level <= log::max_level() {
            $machine.out.push($crate::openvpn::server::machine::Effect::Log {
                level: log::Level::$level,
                who: $machine.who.clone(),
                text: format!($($text)+),
            });
        }
    };
}
use line;

/// Parts of a new [`Machine`].
pub(super) struct Setup<'a> {
    /// The configuration, which has a server in it and a connection.
    pub(super) config: &'a OpenVpn,
    /// A digest of the files that only a new start reads; `None` if one cannot be read.
    pub(super) material: Option<[u8; 32]>,
    /// The configuration's scripts.
    pub(super) hooks: Hooks<'a>,
    /// Where files for scripts are made if the configuration does not say.
    pub(super) temporary: PathBuf,
    /// How times of day are written.
    pub(super) clock: Clock,
    /// The MTU of the interface.
    pub(super) mtu: u16,
    /// All sessions of the server.
    pub(super) listener: Listener,
    /// The TCP connections.
    pub(super) connections: Connections,
    /// The server's own side of the network.
    pub(super) side: ServerSide,
    /// The addresses for clients, if it gives any.
    pub(super) pool: Option<Pool>,
    /// The file of names and password hashes, if there is one.
    pub(super) passwords: Option<Arc<PasswordFile>>,
}

/// A client that is gone, of which a script is to be told with the bytes that it sent and got.
struct Departed {
    environment: Environment,
    lasted: Duration,
    control: Arc<ControlTraffic>,
}

/// A server.
pub(super) struct Machine<'a> {
    /// The configuration as last read.
    config: &'a OpenVpn,
    /// How clients are answered that call by several lines. As it was at the start.
    theirs: TheirLines,
    material: Option<[u8; 32]>,
    hooks: Hooks<'a>,
    temporary: PathBuf,
    clock: Clock,
    mtu: u16,
    listener: Listener,
    connections: Connections,
    side: ServerSide,
    pool: Option<Pool>,
    passwords: Option<Arc<PasswordFile>>,
    /// Each in a place of its own: a table that grows has as much room again, empty.
    clients: HashMap<ClientId, Box<Client>>,
    departed: HashMap<u64, Departed>,
    /// Clients so far.
    counted: u64,
    /// Background jobs so far.
    submitted: u64,
    /// The client of each running background job. Script notifications have no entry.
    jobs: HashMap<JobId, ClientKey>,
    /// Wrong passwords of late.
    guesses: Guesses<SourceNetwork>,
    /// Logins that are judged later, after wrong passwords from the same place: each from when on.
    shut: Vec<(Instant, ClientKey, SourceNetwork, Job)>,
    /// Sessions that came to nothing.
    refusals: Refusals,
    /// First packets that are answered later.
    held: Held,
    /// Many strangers have come, and not gone yet.
    crowded: bool,
    /// When the system gets back what they had.
    gives_back_at: Option<Instant>,
    /// When the log last told that there are as many clients as may be.
    full_told: Option<Instant>,
    round: Instant,
    persist_at: Option<Instant>,
    /// How it ends, and when at the latest.
    leaving: Option<(Ended, Instant)>,
    /// It has ended: nothing happens any more.
    ended: bool,
    /// When the event happened that is dealt with.
    now: Now,
    /// The client that lines of the log are about.
    who: Option<Who>,
    out: Vec<Effect>,
}

impl<'a> Machine<'a> {
    /// A server without clients, whose interface is not up yet.
    pub(super) fn new(setup: Setup<'a>, now: Now) -> Self {
        Self {
            config: setup.config,
            material: setup.material,
            hooks: setup.hooks,
            temporary: setup.temporary,
            clock: setup.clock,
            mtu: setup.mtu,
            listener: setup.listener,
            connections: setup.connections,
            side: setup.side,
            pool: setup.pool,
            passwords: setup.passwords,
            clients: HashMap::new(),
            departed: HashMap::new(),
            counted: 0,
            submitted: 0,
            jobs: HashMap::new(),
            guesses: Guesses::default(),
            shut: Vec::new(),
            refusals: Refusals::new(CloseReason::REFUSALS),
            theirs: TheirLines::new(&setup.config.lines),
            held: Held::default(),
            crowded: false,
            gives_back_at: None,
            full_told: None,
            round: now.instant + ROUND,
            persist_at: None,
            leaving: None,
            ended: false,
            now,
            who: None,
            out: Vec::new(),
        }
    }

    /// Takes note of an event at its time, and says what is to be done for it, in order.
    pub(super) fn handle(&mut self, event: Event<'a>, now: Now) -> Vec<Effect> {
        // `client-disconnect` needs the peer's final state, which arrives after the client has gone.
        if self.ended && !matches!(event, Event::PeerState(..)) {
            return Vec::new();
        }
        self.now = now;
        self.listener.set_wall_clock(now.instant, now.system);
        // A management client has its answer before it is told that the server ends.
        let asked = matches!(event, Event::Kill(_) | Event::KillClient(_));
        self.told(event);
        if !self.ended {
            self.answer_held();
        }
        if let Some((ended, until)) = self.leaving
            && !asked
            && (now.instant >= until || self.listener.is_empty())
        {
            self.end(ended);
        }
        self.give_memory_back();
        std::mem::take(&mut self.out)
    }

    /// After a crowd of strangers has gone the system gets back what they had: when the data plane, too, has closed their
    /// connections.
    fn give_memory_back(&mut self) {
        let now = self.now.instant;
        let bytes = self.listener.stranger_bytes();
        if bytes >= CROWD {
            self.crowded = true;
        } else if self.crowded && bytes <= CROWD / 4 {
            self.crowded = false;
            self.gives_back_at = Some(now + ROUND);
        }
        if self.gives_back_at.take_if(|at| *at <= now).is_some() {
            self.out.push(Effect::GiveMemoryBack);
        }
    }

    /// When [`Event::DeadlinePassed`] is to be told.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let at = [
            self.listener.next_deadline(),
            (!self.clients.is_empty()).then_some(self.round),
            self.leaving.map(|(_, until)| {
                // The last client may have gone by what a management client asked for.
                let over = self.listener.is_empty();
                if over { self.now.instant } else { until }
            }),
            self.connections.next_deadline(),
            self.gives_back_at,
            self.persist_at,
            self.held_until(),
            self.shut.iter().map(|it| it.0).min(),
        ];
        at.into_iter().flatten().min()
    }

    /// Sets the variables about the interface for scripts of clients, beside those about the client.
    pub(super) fn tell_interface(&mut self, environment: Environment) {
        self.hooks.interface = environment;
    }

    /// The configuration as it was last read.
    pub(super) fn config(&self) -> &'a OpenVpn {
        self.config
    }

    /// The TCP connections.
    pub(super) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Handles the deadlines that have passed.
    fn deadline_passed(&mut self) {
        let now = self.now.instant;
        for id in self.listener.due(now) {
            match self.clients.get(&id).map(|client| client.key(id)) {
                Some(key) => self.plane(PlaneCall::Peer(key, Look::Timers)),
                None => self.with(id, |session, now, out| session.expired(now, out)),
            }
        }
        if now >= self.round {
            self.round = now + ROUND;
            self.out.push(Effect::RefreshRevocations);
            self.poll_deferred();
            self.locate_moved();
            self.watch_keys();
        }
        if self.persist_at.is_some_and(|at| now >= at) {
            self.persist_pool();
        }
        self.forget_held();
        self.judge_shut();
        for stream in self.connections.expired(now) {
            self.plane(PlaneCall::RemoveStream(stream));
        }
    }

    /// Talks to a session and does what it asks for.
    fn with(&mut self, id: ClientId, call: impl FnOnce(&mut Session, Instant, &mut Vec<Output>)) {
        self.about(id, |machine| {
            let mut out = Vec::new();
            let now = machine.now.instant;
            // A session writes to the log by itself.
            let speaking = machine.who.clone().map(Speaking::of);
            let listener = &mut machine.listener;
            listener.with(id, &mut out, |session, out| call(session, now, out));
            drop(speaking);
            machine.perform(out);
        });
    }

    /// Lines that are logged meanwhile are about this client.
    fn about(&mut self, id: ClientId, act: impl FnOnce(&mut Self)) {
        match self.clients.get(&id).map(|it| it.who()) {
            Some(who) => self.about_whom(Some(who), act),
            None => act(self),
        }
    }

    fn about_whom(&mut self, who: Option<Who>, act: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.who, who);
        act(self);
        self.who = before;
    }

    fn plane(&mut self, call: PlaneCall) {
        self.out.push(Effect::Plane(call));
    }

    /// Starts a background job, of a client or of the server's own.
    fn start(&mut self, source: Option<SourceNetwork>, job: Job) -> JobId {
        let id = JobId(self.submitted);
        self.submitted += 1;
        self.out.push(Effect::StartJob(id, source, Box::new(job)));
        id
    }

    /// Starts a background job whose end is about a client.
    fn start_for(&mut self, client: ClientKey, source: SourceNetwork, job: Job) {
        let id = self.start(Some(source), job);
        self.jobs.insert(id, client);
    }

    /// Whether this client is still there, and not another that has its number.
    fn is_there(&self, key: ClientKey) -> bool {
        let client = self.clients.get(&key.id);
        client.is_some_and(|client| client.number == key.number)
    }

    /// Waits for the files of a script, or waits no more. The files of the one before it are not needed.
    fn defer(&mut self, id: ClientId, deferred: Option<Deferred>) {
        let Some(client) = self.clients.get_mut(&id) else {
            if let Some(deferred) = deferred {
                self.out.push(Effect::ForgetFiles(deferred.job()));
            }
            return;
        };
        let kept = deferred.map(Deferred::job);
        let before = std::mem::replace(&mut client.deferred, deferred);
        if let Some(before) = before.map(Deferred::job)
            && kept != Some(before)
        {
            self.out.push(Effect::ForgetFiles(before));
        }
    }

    /// Tells every client that the server goes, as `explicit-exit-notify` says.
    fn say_goodbye(&mut self) {
        let ids: Vec<ClientId> = self.listener.clients().collect();
        for id in ids {
            let stream = self.clients.get(&id).is_some_and(|it| it.is_stream());
            let notify = self.connection_of(stream).exit_notify;
            self.with(id, |session, now, out| {
                if notify == 0 {
                    return session.close(CloseReason::Local, out);
                }
                let restart = Restart {
                    next_remote: notify > 1,
                    ..Restart::default()
                };
                session.restart(restart, now, out);
            });
        }
    }

    /// Returns the settings for clients over TCP (`stream`) or over UDP.
    fn connection_of(&self, stream: bool) -> &'a Connection {
        let all = &self.config.connections;
        let like = |it: &&Connection| it.protocol.transport.is_tcp() == stream;
        // A configuration has one at least.
        all.iter().find(like).unwrap_or(&all[0])
    }

    /// Begins to leave: clients are told, and have a while to say that they have heard.
    fn leave(&mut self, ended: Ended) {
        if self.leaving.is_some() {
            return self.end(ended);
        }
        self.listener.close();
        self.out.push(Effect::StopListening);
        self.say_goodbye();
        self.leaving = Some((ended, self.now.instant + FAREWELL));
    }

    /// Leaves nothing behind.
    fn end(&mut self, ended: Ended) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let ids: Vec<ClientId> = self.listener.clients().collect();
        for id in ids {
            self.with(id, |session, _, out| session.close(CloseReason::Local, out));
        }
        self.persist_pool();
        self.out.push(Effect::TakeDown);
        self.plane(PlaneCall::CloseLine(LineId::FIRST));
        self.out.push(Effect::WriteLastStatus);
        self.out.push(Effect::State(State::Exiting, "SIGTERM"));
        self.out.push(Effect::Exit(ended));
    }

    fn persist_pool(&mut self) {
        self.persist_at = None;
        let server = self.config.server();
        let persist = server.and_then(|server| server.pool_persist.as_ref());
        if let (Some(persist), Some(pool)) = (persist, &self.pool)
            && persist.seconds > 0
        {
            let path = self.config.path(&persist.path);
            self.out.push(Effect::WriteFile(path, persist::text(pool)));
        }
    }
}
