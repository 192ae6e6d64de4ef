//! Server state machine: takes an event and the time, returns effects. The executor does the I/O, reads the clock and
//! runs the threads.
//!
//! An effect with an answer gets it as the very next event. A session writes its own log lines at once; every other log
//! line is an effect.

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
mod tests;
mod status;
mod told;

pub(super) use connections::{Admission, Connections};
pub(super) use effect::{Effect, Job, JobId, JobKind, LoginChecks};
pub(super) use event::{
    ClientFile, ClientKey, ConfigurationRead, Done, Event, Login, Now, PlaneCall, Polled, peer,
};
pub(super) use reload::is_tcp;
pub(super) use status::Figures;

use crate::lines::TheirLines;
use crate::openvpn::Ended;
use crate::openvpn::console::{Speaking, Who};
use crate::openvpn::hooks::Hooks;
use crate::openvpn::management::State;
use crate::openvpn::plane_call::Look;
use crate::openvpn::policy::clients::ServerSide;
use crate::openvpn::policy::environment::Environment;
use crate::openvpn::policy::htpasswd::PasswordFile;
use crate::openvpn::policy::persist;
use crate::openvpn::policy::pool::Pool;
use crate::openvpn::policy::timestamp::Clock;
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

/// Interval of checks on key usage and on the files of deferred scripts.
const ROUND: Duration = Duration::from_secs(1);

/// Memory in use by strangers' sessions, in bytes, that counts as a crowd.
const CROWD: u64 = 512 << 10;

/// How long clients have to acknowledge the server's exit.
const FAREWELL: Duration = Duration::from_secs(2);

/// Logs a line, as an effect, about the client that the machine is handling. Lines below the log level are not
/// formatted: strangers cause many.
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
    /// The configuration, with a server and at least one connection.
    pub(super) config: &'a OpenVpn,
    /// A digest of the files that only a new start reads; `None` if one cannot be read.
    pub(super) material: Option<[u8; 32]>,
    /// The configuration's scripts.
    pub(super) hooks: Hooks<'a>,
    /// Directory for script files, unless the configuration names one.
    pub(super) temporary: PathBuf,
    /// Format of times of day.
    pub(super) clock: Clock,
    /// The MTU of the interface.
    pub(super) mtu: u16,
    /// All sessions of the server.
    pub(super) listener: Listener,
    /// The TCP connections.
    pub(super) connections: Connections,
    /// The server's own tunnel addresses.
    pub(super) side: ServerSide,
    /// The address pool, if the server has one.
    pub(super) pool: Option<Pool>,
    /// The file of names and password hashes, if there is one.
    pub(super) passwords: Option<Arc<PasswordFile>>,
}

/// A departed client whose `client-disconnect` script waits for its final byte counts.
struct Departed {
    environment: Environment,
    lasted: Duration,
    control: Arc<ControlTraffic>,
}

/// A server.
pub(super) struct Machine<'a> {
    /// The configuration as last read.
    config: &'a OpenVpn,
    /// Replies to clients that use several uplinks, fixed at the start.
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
    /// Boxed: a growing table allocates double its size.
    clients: HashMap<ClientId, Box<Client>>,
    departed: HashMap<u64, Departed>,
    /// Clients counted since the start.
    counted: u64,
    /// Background jobs counted since the start.
    submitted: u64,
    /// The client of each running background job. Script notifications have no entry.
    jobs: HashMap<JobId, ClientKey>,
    /// Recent wrong passwords by source.
    guesses: Guesses<SourceNetwork>,
    /// Logins delayed after wrong passwords from the same source: when each is judged.
    shut: Vec<(Instant, ClientKey, SourceNetwork, Job)>,
    /// Refused packets and sessions.
    refusals: Refusals,
    /// First packets whose answer waits.
    held: Held,
    /// Strangers hold much memory.
    crowded: bool,
    /// When to return that memory to the system.
    gives_back_at: Option<Instant>,
    /// When the log last said that the server is full.
    full_told: Option<Instant>,
    round: Instant,
    persist_at: Option<Instant>,
    /// The reason for leaving, and the deadline.
    leaving: Option<(Ended, Instant)>,
    /// The server has ended and handles no more events.
    ended: bool,
    /// Time of the event being handled.
    now: Now,
    /// The client that log lines are about.
    who: Option<Who>,
    out: Vec<Effect>,
}

impl<'a> Machine<'a> {
    /// Makes a server without clients, before its interface is up.
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

    /// Handles an event and returns the effects, in order.
    pub(super) fn handle(&mut self, event: Event<'a>, now: Now) -> Vec<Effect> {
        // `client-disconnect` needs the peer's final state, which arrives after the client has gone.
        if self.ended && !matches!(event, Event::PeerState(..)) {
            return Vec::new();
        }
        self.now = now;
        self.listener.set_wall_clock(now.instant, now.system);
        // A management client gets its reply before the news that the server ends.
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

    /// Returns memory to the system once a crowd of strangers is gone, after the data plane has closed their
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

    /// When [`Event::DeadlinePassed`] is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let at = [
            self.listener.next_deadline(),
            (!self.clients.is_empty()).then_some(self.round),
            self.leaving.map(|(_, until)| {
                // A management client's command may have removed the last client.
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

    /// Sets the interface variables for clients' scripts.
    pub(super) fn tell_interface(&mut self, environment: Environment) {
        self.hooks.interface = environment;
    }

    /// The configuration in force.
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

    /// Calls into a session and performs its outputs.
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

    /// Runs `act` with log lines attributed to this client.
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

    /// Starts a background job of a client's source, or the server's own.
    fn start(&mut self, source: Option<SourceNetwork>, job: Job) -> JobId {
        let id = JobId(self.submitted);
        self.submitted += 1;
        self.out.push(Effect::StartJob(id, source, Box::new(job)));
        id
    }

    /// Starts a background job whose result is for a client.
    fn start_for(&mut self, client: ClientKey, source: SourceNetwork, job: Job) {
        let id = self.start(Some(source), job);
        self.jobs.insert(id, client);
    }

    /// Whether this client is still connected; its number may have been reused.
    fn is_there(&self, key: ClientKey) -> bool {
        let client = self.clients.get(&key.id);
        client.is_some_and(|client| client.number == key.number)
    }

    /// Sets or clears the script files to wait for. Removes the previous script's files.
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

    /// Tells every client that the server exits, as `explicit-exit-notify` says.
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
        // Every configuration has at least one.
        all.iter().find(like).unwrap_or(&all[0])
    }

    /// Begins to leave: clients get a notice and some time to acknowledge it.
    fn leave(&mut self, ended: Ended) {
        if self.leaving.is_some() {
            return self.end(ended);
        }
        self.listener.close();
        self.out.push(Effect::StopListening);
        self.say_goodbye();
        self.leaving = Some((ended, self.now.instant + FAREWELL));
    }

    /// Removes all clients and host settings.
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
