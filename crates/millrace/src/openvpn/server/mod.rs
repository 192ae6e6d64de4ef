//! A server: many clients behind one port.

mod admission;
mod arrival;
mod desk;
mod jobs;
mod judgement;
mod network;
mod outputs;
mod presence;
mod reload;
mod served;
mod start;
mod streams;

use super::conduit::Way;
use super::console::{Speaking, Who};
use super::device::Link;
use super::hooks::Hooks;
use super::office::Status;
use super::plane::{Arrival, Inbox, ServerWire};
use super::policy::background::Background;
use super::policy::clients::ServerSide;
use super::policy::htpasswd::PasswordFile;
use super::policy::log_lines;
use super::policy::management::State;
use super::policy::pool::Pool;
use super::revocation::RevocationFile;
use super::signals::Signal;
use super::{Context, Ended};
use crate::status::Refusals;
use config::openvpn::{Connection, OpenVpn, RemapUsr1};
use engine::{Notice, Peer, Routes, Sockets, Tunnel};
use jobs::Done;
use netio::poll::{Poller, Waker};
use netio::udp::Endpoint;
use openvpn::data::signal::Signal as DataSignal;
use openvpn::message::Restart;
use openvpn::server::{ClientId, Listener, Refused, Remote, ServerOutput, Source};
use openvpn::session::CloseReason;
use openvpn::tls::TlsSettings;
use served::Served;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use streams::Streams;

const INBOX: u64 = 0;
const SIGNAL: u64 = 1;
const DONE: u64 = 2;
const NEWS: u64 = 3;
const SERVICE: u64 = 4;
/// The first listening TCP socket's; the others follow.
const LISTENERS: u64 = 16;

/// How often the use of keys and the files of slow scripts are looked at.
const ROUND: Duration = Duration::from_secs(1);

/// How long clients have to acknowledge that the server goes.
const FAREWELL: Duration = Duration::from_secs(2);

/// How often the log tells that there are as many clients as may be.
const FULL_AGAIN: Duration = Duration::from_secs(60);

/// Control packets that are served before everything else gets a turn.
const ARRIVALS_AT_ONCE: usize = 256;

type Failure = Box<dyn std::error::Error>;

/// A server.
struct Server<'a> {
    context: &'a Context,
    /// As it was last read.
    config: &'a OpenVpn,
    /// A digest of the files that only a new start reads; `None` if one cannot be read.
    material: Option<[u8; 32]>,
    hooks: Hooks<'a>,
    inbox: Arc<Inbox>,
    tunnel: Tunnel<ServerWire>,
    link: Link,
    mtu: u16,
    listener: Listener,
    tls: Arc<TlsSettings>,
    /// The revocation list as it was last read.
    crl: RevocationFile,
    side: ServerSide,
    pool: Option<Pool>,
    passwords: Option<Arc<PasswordFile>>,
    clients: HashMap<ClientId, Served>,
    /// Clients so far.
    counted: u64,
    routes: Routes<Arc<Peer>>,
    streams: Streams,
    /// Work of a source of clients, or the server's own.
    background: Background<Option<Source>, Done>,
    /// Whose work the numbers of the background are, and what it was for.
    jobs: HashMap<u64, (ClientId, u64)>,
    done: Arc<Waker>,
    set: Option<network::Set>,
    /// Sessions that came to nothing.
    refusals: Refusals,
    /// When the log last told that there are as many clients as may be.
    full_told: Option<Instant>,
    round: Instant,
    persist_at: Option<Instant>,
}

/// Runs a server until somebody says stop.
pub(super) fn run(context: &Context) -> Ended {
    let mut server = match Server::start(context) {
        Ok(server) => server,
        Err(error) => {
            context.fatal(&*error);
            return Ended::Exit(1);
        }
    };
    let ended = server.serve();
    server.stop();
    match ended {
        Ok(ended) => ended,
        Err(error) => {
            log::error!("{error}");
            Ended::Exit(1)
        }
    }
}

impl<'a> Server<'a> {
    /// Connections that wait.
    fn accept(&mut self) {
        for stream in self.streams.accept(Instant::now()) {
            let from = stream.endpoint().addr;
            let _who = Speaking::of(Who {
                label: from.to_string(),
                stranger: true,
            });
            log::info!("TCP connection established with {}", log_lines::outer(from));
            if let Err(error) = self.tunnel.add_stream(&stream) {
                log::warn!("{error}");
                self.streams.remove(stream.id());
            }
        }
    }

    /// What is logged is about this client, until the value is dropped.
    fn speak_of(&self, id: ClientId) -> Option<Speaking> {
        self.clients.get(&id).map(|it| Speaking::of(it.who()))
    }

    /// Control packets, signals, scripts, time: until somebody says stop.
    fn serve(&mut self) -> Result<Ended, Failure> {
        let poller = Poller::new()?;
        poller.add(&*self.inbox, INBOX)?;
        poller.add(&*self.context.signals, SIGNAL)?;
        poller.add(&*self.done, DONE)?;
        self.context.watch(&poller, NEWS, SERVICE)?;
        self.state(State::Connected, "SUCCESS");
        self.context.is_up();
        log::info!("Initialization Sequence Completed");
        let mut busy = false;
        let mut leaving: Option<(Ended, Instant)> = None;
        loop {
            let now = Instant::now();
            if let Some((ended, until)) = leaving
                && (now >= until || self.listener.is_empty())
            {
                return Ok(ended);
            }
            self.streams.watch(&poller, LISTENERS, now)?;
            let timeout = if busy {
                Some(Duration::ZERO)
            } else {
                let at = [
                    self.listener.next_deadline(),
                    (!self.clients.is_empty()).then_some(self.round),
                    leaving.map(|(_, until)| until),
                    self.streams.next_deadline(),
                    self.persist_at,
                ];
                let at = at.into_iter().flatten().min();
                let at = self.context.deadline(at);
                at.map(|at| at.saturating_duration_since(now))
            };
            for token in poller.wait(timeout)?.iter() {
                match token {
                    INBOX => self.inbox.waker.clear(),
                    DONE => self.done.clear(),
                    SIGNAL => {
                        if let Some(ended) = self.signal() {
                            if leaving.is_some() {
                                return Ok(ended);
                            }
                            self.listener.close();
                            self.streams.stop_listening();
                            self.say_goodbye();
                            leaving = Some((ended, Instant::now() + FAREWELL));
                        }
                    }
                    NEWS => {
                        self.context.network_changed();
                    }
                    LISTENERS.. => self.accept(),
                    _ => {}
                }
            }
            busy = self.hear()?;
            self.tick();
            let context = self.context;
            context.serve(self);
        }
    }

    fn signal(&mut self) -> Option<Ended> {
        match self.context.signals.take()? {
            Signal::Exit(name) => {
                log::info!("{name}[hard,] received, process exiting");
                Some(Ended::Exit(0))
            }
            Signal::Reload => self.reload(),
            Signal::Restart => {
                log::info!("SIGUSR1[hard,] received, process restarting");
                let service = &self.config.service;
                match service.remap_usr1 {
                    Some(RemapUsr1::Term) => Some(Ended::Exit(0)),
                    // Nothing is to be read anew, which a process without privileges could not.
                    None if service.persist_key && service.persist_tun => {
                        self.say_goodbye();
                        None
                    }
                    Some(RemapUsr1::Hup) | None => Some(Ended::Reload),
                }
            }
            Signal::Status => {
                let status = Status::Server(self.rows());
                self.context.office.borrow().log_status(&status);
                None
            }
        }
    }

    /// What workers have left in the inbox. Returns whether more waits.
    fn hear(&mut self) -> Result<bool, Failure> {
        let now = Instant::now();
        self.listener.set_wall_clock(now, SystemTime::now());
        for (id, result) in self.background.take_done() {
            self.finished(id, result);
        }
        let inbox = Arc::clone(&self.inbox);
        for stream in inbox.take_closed() {
            if let Some(addr) = self.streams.remove(stream) {
                let mut out = Vec::new();
                let gone = Remote::tcp(addr, stream);
                self.listener.disconnected(gone, &mut out);
                self.perform(out);
            }
        }
        while let Some((peer, message)) = inbox.next_message() {
            if DataSignal::of(&message) == Some(DataSignal::Exit) {
                self.with(ClientId(peer), |session, now, out| {
                    session.peer_exits(now, out);
                });
            }
        }
        for (peer, notice) in inbox.take_notices() {
            self.notice(ClientId(peer), notice);
        }
        if inbox.device_is_gone() {
            return Err("the interface was deleted by somebody else".into());
        }
        for _ in 0..ARRIVALS_AT_ONCE {
            match inbox.next_arrival() {
                Some(arrival) => self.arrived(&arrival),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn arrived(&mut self, arrival: &Arrival) {
        let mut out = Vec::new();
        let from = Remote {
            address: arrival.from.addr,
            connection: arrival.stream,
        };
        let now = Instant::now();
        let of = self.listener.at(from).and_then(|id| self.speak_of(id));
        let _who = of.unwrap_or_else(|| {
            Speaking::of(Who {
                label: from.to_string(),
                stranger: true,
            })
        });
        if let Err(why) = self.listener.receive(&arrival.bytes, from, now, &mut out) {
            // Whoever can reach the port can cause this: rarely more than a debug line.
            match why {
                Refused::Full if self.full_told.is_none_or(|at| now >= at + FULL_AGAIN) => {
                    self.full_told = Some(now);
                    log::warn!(
                        "MULTI: new incoming connection would exceed maximum number of clients ({})",
                        self.config.server().map_or(0, |it| it.max_clients)
                    );
                }
                why => log::debug!("control packet: {why}"),
            }
        }
        self.perform_from(out, Some(arrival.from));
    }

    fn notice(&mut self, id: ClientId, notice: Notice) {
        let _who = self.speak_of(id);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        match notice {
            Notice::Compressed { unpacked: true } => log::warn!(
                "the client compresses packets: they are unpacked, but their lengths tell who \
                 listens something of what is in them (VORACLE). Set `compress migrate` or push \
                 `comp-lzo no`"
            ),
            Notice::Compressed { unpacked: false } => log::error!(
                "the client compresses packets, and not as agreed or allowed: they are dropped. \
                 Set `compress migrate` or push `comp-lzo no`"
            ),
            Notice::Refresh { .. } => {
                self.with(id, |session, now, out| session.renegotiate(now, out));
            }
            Notice::Moved { to } => {
                let before = client.from;
                let mut out = Vec::new();
                if client.is_stream() {
                    // Its connection is where it is.
                    return;
                }
                if self.listener.floated(id, to, &mut out) {
                    log::info!("peer {} floated from {before} to {to}", id.0);
                    client.from = to;
                    client.environment.set_peer("trusted", to);
                    client.conduit.moved(&self.tunnel, to);
                } else {
                    log::warn!("it may not take the address {to} of another");
                    client.conduit.peer.set_endpoint(Endpoint::new(before));
                }
                self.perform(out);
            }
            _ => {}
        }
    }

    /// Does what time asks for.
    fn tick(&mut self) {
        let now = Instant::now();
        for id in self.listener.due(now) {
            let _who = self.speak_of(id);
            let times = self.clients.get(&id).map(|client| client.conduit.times());
            self.with(id, |session, now, out| {
                session.activity(times.unwrap_or_default());
                session.expired(now, out);
            });
        }
        if now >= self.round {
            self.round = now + ROUND;
            self.crl.refresh(self.config, &self.tls);
            self.poll_deferred();
            let used: Vec<_> = self
                .clients
                .iter()
                .filter_map(|(id, client)| {
                    let (key_id, bytes) = client.keys?;
                    Some((*id, client.conduit.usage(&self.tunnel, key_id, bytes)))
                })
                .collect();
            for (id, usage) in used {
                self.with(id, |session, now, out| session.traffic(&usage, now, out));
            }
        }
        if self.persist_at.is_some_and(|at| now >= at) {
            self.persist_pool();
        }
        for stream in self.streams.expired(now) {
            self.tunnel.remove_stream(&stream);
        }
    }

    /// Talks to a session and does what it asks for.
    fn with(
        &mut self,
        id: ClientId,
        call: impl FnOnce(&mut openvpn::session::Session, Instant, &mut Vec<openvpn::session::Output>),
    ) {
        let _who = self.speak_of(id);
        let mut out = Vec::new();
        let now = Instant::now();
        self.listener
            .with(id, &mut out, |session, out| call(session, now, out));
        self.perform(out);
    }

    fn perform(&mut self, out: Vec<ServerOutput>) {
        self.perform_from(out, None);
    }

    /// Tells every client that the server goes, as `explicit-exit-notify` says.
    fn say_goodbye(&mut self) {
        let ids: Vec<ClientId> = self.listener.clients().collect();
        for id in ids {
            let stream = self.clients.get(&id).is_some_and(Served::is_stream);
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

    /// What the configuration says of clients over TCP, or over UDP.
    fn connection_of(&self, stream: bool) -> &'a Connection {
        let all = &self.config.connections;
        let like = |it: &&Connection| it.protocol.transport.is_tcp() == stream;
        // A configuration has one at least.
        all.iter().find(like).unwrap_or(&all[0])
    }

    /// The way to a client; `None` if its connection has ended. `heard` is our end of it, where that is known.
    fn way(&self, to: Remote, heard: Option<Endpoint>) -> Option<Way> {
        match to.connection {
            Some(id) => self.streams.get(id).cloned().map(Way::Stream),
            None => {
                let heard = heard.filter(|it| it.addr == to.address);
                Some(Way::Datagrams(
                    heard.unwrap_or_else(|| Endpoint::new(to.address)),
                ))
            }
        }
    }

    /// Leaves nothing behind.
    fn stop(&mut self) {
        let mut out = Vec::new();
        let ids: Vec<ClientId> = self.listener.clients().collect();
        for id in ids {
            self.listener.with(id, &mut out, |session, out| {
                session.close(CloseReason::Local, out);
            });
        }
        self.perform(out);
        self.persist_pool();
        self.take_down();
        self.tunnel.set_sockets(Sockets::default());
        let status = Status::Server(self.rows());
        self.context.office.borrow().last_status(&status);
        self.state(State::Exiting, "SIGTERM");
    }
}
