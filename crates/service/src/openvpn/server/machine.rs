//! Server state machine: takes an event, and calls the data plane and its [`Host`] meanwhile. The executor reads the
//! clock and waits for the next event.

mod admission;
mod authorization;
mod client;
mod connected;
mod connections;
mod event;
mod held;
mod host;
mod outputs;
mod peers;
mod reload;
mod status;
#[cfg(test)]
mod tests;
mod told;

pub(super) use connections::{Admission, Connections};
pub(super) use event::{
    ClientFile, ClientKey, ConfigurationRead, Done, Event, Login, Polled, peer,
};
pub(super) use host::{Cx, Host, Job, JobId, LoginChecks};
pub(super) use reload::is_tcp;
pub(super) use status::Figures;

use crate::openvpn::{Ended, channel};
use crate::status::Refusals;
use client::{Client, Deferred};
use config::openvpn::{Connection, OpenVpn};
use held::Held;
use lines::control::TheirLines;
use openvpn::message::Restart;
use openvpn::server::{ClientId, Listener};
use openvpn::session::{AuthId, CloseReason, Output, Session};
use openvpn_host::accounts::ServerSide;
use openvpn_host::accounts::client_names::ClientNames;
use openvpn_host::accounts::htpasswd::PasswordFile;
use openvpn_host::accounts::persist;
use openvpn_host::accounts::pool::Pool;
use openvpn_host::console::Speaking;
use openvpn_host::hooks::Hooks;
use openvpn_host::management::State;
use openvpn_host::timestamp::Clock;
use plane::Now;
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

/// Logs a line. Lines below the log level are not formatted: strangers cause many.
macro_rules! line {
    ($cx:expr, $level:ident, $($text:tt)+) => {
        if log::Level::$level <= log::max_level() {
            $cx.host.log(log::Level::$level, &format!($($text)+));
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
    /// Hook scripts of the configuration.
    pub(super) hooks: Hooks<'a>,
    /// Directory for script files, unless the configuration names one.
    pub(super) temporary: PathBuf,
    /// Format of times of day.
    pub(super) clock: Clock,
    /// The MTU of the interface.
    pub(super) mtu: u16,
    /// All sessions of the server.
    pub(super) listener: Listener,
    /// TCP connections of clients.
    pub(super) connections: Connections,
    /// The server's own tunnel addresses.
    pub(super) side: ServerSide,
    /// The address pool, if the server has one.
    pub(super) pool: Option<Pool>,
    /// The file of names and password hashes, if there is one.
    pub(super) passwords: Option<Arc<PasswordFile>>,
    /// Names of clients that differ from those in their certificates.
    pub(super) names: ClientNames,
}

/// State machine of a server.
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
    names: ClientNames,
    /// Boxed: a growing table allocates double its size.
    clients: HashMap<ClientId, Box<Client>>,
    /// Clients counted since the start.
    counted: u64,
    /// Background jobs counted since the start.
    submitted: u64,
    /// The client of each running background job. Script notifications have no entry.
    jobs: HashMap<JobId, ClientKey>,
    /// Recent wrong passwords by source.
    guesses: Guesses<SourceNetwork>,
    /// Logins delayed after wrong passwords from the same source: when each is judged.
    shut: Vec<(Instant, ClientKey, SourceNetwork, (AuthId, LoginChecks))>,
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
            names: setup.names,
            clients: HashMap::new(),
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
            round: now.monotonic + ROUND,
            persist_at: None,
            leaving: None,
            ended: false,
        }
    }

    /// Handles an event.
    pub(super) fn handle(&mut self, event: Event<'a>, cx: &mut Cx<'_>) {
        if self.ended {
            return;
        }
        let now = cx.now;
        self.listener.set_wall_clock(now.monotonic, now.wall);
        // A management client gets its reply before the news that the server ends.
        let asked = matches!(event, Event::Kill(_) | Event::KillClient(_));
        self.told(cx, event);
        if !self.ended {
            self.answer_held(cx);
        }
        if let Some((ended, until)) = self.leaving
            && !asked
            && (now.monotonic >= until || self.listener.is_empty())
        {
            self.end(cx, ended);
        }
        self.give_memory_back(cx);
    }

    /// Returns memory to the system once a crowd of strangers is gone, after the data plane has closed their
    /// connections.
    fn give_memory_back(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        let bytes = self.listener.stranger_bytes();
        if bytes >= CROWD {
            self.crowded = true;
        } else if self.crowded && bytes <= CROWD / 4 {
            self.crowded = false;
            self.gives_back_at = Some(now + ROUND);
        }
        if self.gives_back_at.take_if(|at| *at <= now).is_some() {
            cx.host.give_memory_back();
        }
    }

    /// When [`Event::DeadlinePassed`] is due.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let at = [
            self.listener.next_deadline(),
            (!self.clients.is_empty()).then_some(self.round),
            self.leaving.map(|(_, until)| {
                // A management client's command may have removed the last client.
                let over = self.listener.is_empty();
                if over { now } else { until }
            }),
            self.connections.next_deadline(),
            self.gives_back_at,
            self.persist_at,
            self.held_until(now),
            self.shut.iter().map(|it| it.0).min(),
        ];
        at.into_iter().flatten().min()
    }

    /// The configuration in force.
    pub(super) fn config(&self) -> &'a OpenVpn {
        self.config
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Handles the deadlines that have passed.
    fn deadline_passed(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        for id in self.listener.due(now) {
            let client = self.clients.get_mut(&id);
            let state = client.map(|client| client.channel.look(cx.plane, peer(id)));
            self.with(cx, id, |session, now, out| {
                if let Some(state) = state {
                    session.activity(channel::times(&state));
                }
                session.expired(now, out);
            });
        }
        if now >= self.round {
            self.round = now + ROUND;
            cx.host.refresh_revocations(self.config);
            self.poll_deferred(cx);
            self.locate_moved(cx);
            self.watch_keys(cx);
        }
        if self.persist_at.is_some_and(|at| now >= at) {
            self.persist_pool(cx);
        }
        self.forget_held(cx);
        self.judge_shut(cx);
        for stream in self.connections.expired(now) {
            cx.host.remove_stream(stream);
        }
    }

    /// Calls into a session and performs its outputs.
    fn with(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        call: impl FnOnce(&mut Session, Instant, &mut Vec<Output>),
    ) {
        let _about = self.about(id);
        let mut out = Vec::new();
        let now = cx.now.monotonic;
        let listener = &mut self.listener;
        listener.with(id, &mut out, |session, out| call(session, now, out));
        self.perform(cx, out);
    }

    /// Ends a client's session for this reason.
    fn close(&mut self, cx: &mut Cx<'_>, id: ClientId, reason: CloseReason) {
        self.with(cx, id, |session, _, out| session.close(reason, out));
    }

    /// Attributes log lines to this client until the guard is dropped.
    fn about(&self, id: ClientId) -> Option<Speaking> {
        self.clients.get(&id).map(|it| Speaking::of(it.who()))
    }

    /// Starts a background job of a client's source, or the server's own.
    fn start(
        &mut self,
        cx: &mut Cx<'_>,
        source: Option<SourceNetwork>,
        job: Job,
    ) -> Result<JobId, String> {
        let id = JobId(self.submitted);
        self.submitted += 1;
        cx.host.start(id, source, job)?;
        Ok(id)
    }

    /// Starts a background job whose result is for a client.
    fn start_for(
        &mut self,
        cx: &mut Cx<'_>,
        client: ClientKey,
        source: SourceNetwork,
        job: Job,
    ) -> Result<(), String> {
        let id = self.start(cx, Some(source), job)?;
        self.jobs.insert(id, client);
        Ok(())
    }

    /// Whether this client is still connected; its number may have been reused.
    fn is_there(&self, key: ClientKey) -> bool {
        let client = self.clients.get(&key.id);
        client.is_some_and(|client| client.number == key.number)
    }

    /// Sets or clears the script files to wait for. Removes the previous script's files.
    fn defer(&mut self, cx: &mut Cx<'_>, id: ClientId, deferred: Option<Deferred>) {
        let Some(client) = self.clients.get_mut(&id) else {
            if let Some(deferred) = deferred {
                cx.host.forget(deferred.job());
            }
            return;
        };
        let kept = deferred.map(Deferred::job);
        let before = std::mem::replace(&mut client.deferred, deferred);
        if let Some(before) = before.map(Deferred::job)
            && kept != Some(before)
        {
            cx.host.forget(before);
        }
    }

    /// Informs every client that the server exits, as `explicit-exit-notify` says.
    fn say_goodbye(&mut self, cx: &mut Cx<'_>) {
        let ids: Vec<ClientId> = self.listener.clients().collect();
        for id in ids {
            let stream = self.clients.get(&id).is_some_and(|it| it.is_stream());
            let notify = self.connection_of(stream).exit_notify;
            self.with(cx, id, |session, now, out| {
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
    fn leave(&mut self, cx: &mut Cx<'_>, ended: Ended) {
        if self.leaving.is_some() {
            return self.end(cx, ended);
        }
        self.listener.close();
        cx.host.stop_listening();
        self.say_goodbye(cx);
        self.leaving = Some((ended, cx.now.monotonic + FAREWELL));
    }

    /// Removes all clients and host settings.
    fn end(&mut self, cx: &mut Cx<'_>, ended: Ended) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let ids: Vec<ClientId> = self.listener.clients().collect();
        for id in ids {
            self.close(cx, id, CloseReason::Local);
        }
        self.persist_pool(cx);
        cx.host.take_down();
        cx.plane.close_line(LineId::FIRST);
        cx.host.last_status(self.status(cx.plane, cx.now));
        cx.host.state(State::Exiting, "SIGTERM");
        cx.host.end(ended);
    }

    fn persist_pool(&mut self, cx: &mut Cx<'_>) {
        self.persist_at = None;
        let server = self.config.server();
        let persist = server.and_then(|server| server.pool_persist.as_ref());
        if let (Some(persist), Some(pool)) = (persist, &self.pool)
            && persist.seconds > 0
        {
            let path = self.config.path(&persist.path);
            cx.host.write_file(&path, &persist::text(pool));
        }
    }
}
