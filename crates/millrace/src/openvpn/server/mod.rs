//! A server: many clients behind one port.

mod admission;
mod network;
mod outputs;
mod served;
mod streams;

use super::conduit::{Conduit, Way};
use super::device::{self, Link};
use super::hooks::Hooks;
use super::office::{Desk, Status};
use super::plane::{Arrival, Inbox, ServerWire};
use super::policy::background::Background;
use super::policy::clients::ServerSide;
use super::policy::htpasswd::PasswordFile;
use super::policy::management::{State, Victim};
use super::policy::pool::{Ipv4Range, Ipv6Range, Layout, Pool};
use super::policy::status_file::{ClientRow, RouteRow, ServerStatus, real_address};
use super::policy::{log_lines, persist};
use super::signals::Signal;
use super::{Context, Ended, client, setup, terms};
use admission::Done;
use config::openvpn::{Connection, Topology};
use engine::{Moving, Notice, Peer, Routes, Sockets, Tunnel};
use netio::poll::{Poller, Waker};
use netio::udp::Endpoint;
use openvpn::data::signal::Signal as DataSignal;
use openvpn::message::Restart;
use openvpn::server::{ClientId, Listener, ListenerSettings, ServerOutput};
use openvpn::session::{CloseReason, TokenKeeper};
use openvpn::tls::TlsSettings;
use served::{Served, Step};
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

/// Control packets that are served before everything else gets a turn.
const ARRIVALS_AT_ONCE: usize = 256;

/// Scripts and password checks that run at once, and that wait.
const SCRIPTS: (usize, usize) = (4, 4096);

type Failure = Box<dyn std::error::Error>;

/// A server.
struct Server<'a> {
    context: &'a Context,
    hooks: Hooks<'a>,
    connection: &'a Connection,
    inbox: Arc<Inbox>,
    tunnel: Tunnel<ServerWire>,
    link: Link,
    mtu: u16,
    listener: Listener,
    tls: Arc<TlsSettings>,
    /// The revocation list as it was last read.
    crl: Option<Vec<u8>>,
    side: ServerSide,
    pool: Option<Pool>,
    passwords: Option<Arc<PasswordFile>>,
    clients: HashMap<ClientId, Served>,
    /// Clients so far.
    counted: u64,
    routes: Routes<Arc<Peer>>,
    streams: Streams,
    background: Background<Done>,
    /// Whose work the numbers of the background are, and what it was for.
    jobs: HashMap<u64, (ClientId, u64)>,
    done: Arc<Waker>,
    set: Option<network::Set>,
    round: Instant,
    persist_at: Option<Instant>,
}

/// Runs a server until somebody says stop.
pub(super) fn run(context: &Context) -> Ended {
    let mut server = match Server::start(context) {
        Ok(server) => server,
        Err(error) => {
            log::error!("{error}");
            log::info!("Exiting due to fatal error");
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
    fn start(context: &'a Context) -> Result<Self, Failure> {
        let config = &context.config;
        let (Some(wanted), Some(connection)) = (config.server(), config.connections.first()) else {
            return Err("no server in the configuration".into());
        };
        if config.connections.len() > 1 {
            log::warn!("WARNING: only the first of several addresses to listen on is used");
        }
        let now = Instant::now();
        let tls = Arc::new(client::load_tls(context)?);
        for warning in tls.warnings() {
            log::warn!("WARNING: {warning}");
        }
        let wrap = setup::wrap_settings(config, connection)?;
        let tokens = match &wanted.auth_token {
            None => None,
            Some(token) => {
                let secret = setup::token_secret(config, token)?;
                let lifetime = Some(token.lifetime).filter(|n| *n > 0);
                let renewal = match (token.renewal, config.timers.renegotiation.seconds) {
                    (0, 0) => 3600,
                    (0, n) | (n, _) => n,
                };
                Some(Arc::new(TokenKeeper::new(
                    &secret,
                    lifetime.map(|n| Duration::from_secs(n.into())),
                    Duration::from_secs(renewal.into()),
                )))
            }
        };
        let settings = Arc::new(terms::server(config, connection, Arc::clone(&tls), tokens));
        let mut settings = ListenerSettings::new(settings, wrap);
        settings.max_clients = wanted.max_clients as usize;
        let resets = wanted.connect_freq_initial;
        settings.resets = (resets.count, Duration::from_secs(resets.seconds.into()));
        settings.force_cookie = config.tls.force_cookie;

        let passwords = match &wanted.password_file {
            None => None,
            Some(path) => {
                let (file, bad) = PasswordFile::load(&config.path(path))?;
                for line in bad {
                    log::warn!("WARNING: {}: {line}", path.display());
                }
                log::info!("{} users in {}", file.users(), path.display());
                Some(Arc::new(file))
            }
        };
        let topology = config.network.topology.unwrap_or_default();
        let side = ServerSide {
            topology,
            ifconfig: config.network.ifconfig,
            ifconfig_v6: config.network.ifconfig_v6,
            pool_netmask: wanted.pool.and_then(|pool| pool.netmask),
            pool_bits_v6: wanted.pool_v6.map(|pool| pool.bits),
        };
        let pool = make_pool(config, topology)?;

        let inbox = Arc::new(Inbox::new()?);
        let mtu = terms::tun_mtu(connection);
        let (tunnel, link) = device::start::<ServerWire>(
            &config.device,
            &context.dataplane,
            mtu,
            connection.mtu.fragment.is_some(),
            &inbox,
            false,
        )?;
        if link.index != 0 {
            log::info!("TUN/TAP device {} opened", link.name);
        }
        tunnel.set_hairpin(wanted.client_to_client);
        let mut streams = Streams::default();
        if connection.protocol.transport.is_tcp() {
            streams.listen(config, connection)?;
        } else {
            let sockets = device::open_udp(config, connection, &context.dataplane, None)?;
            for socket in sockets.iter() {
                log::info!(
                    "UDP{:?} link local (bound): port {}",
                    socket.family(),
                    socket.port()
                );
            }
            tunnel.set_sockets(sockets);
        }
        let done = Arc::new(Waker::new()?);
        let ring = Arc::clone(&done);
        let mut server = Self {
            context,
            hooks: Hooks::new(config, context.file.as_deref(), SystemTime::now()),
            connection,
            inbox,
            tunnel,
            link,
            mtu,
            listener: Listener::new(settings, now, SystemTime::now()),
            tls,
            crl: setup::crl(config)?,
            side,
            pool,
            passwords,
            clients: HashMap::new(),
            counted: 0,
            routes: Routes::default(),
            streams,
            background: Background::new(SCRIPTS.0, SCRIPTS.1, move || ring.wake()),
            jobs: HashMap::new(),
            done,
            set: None,
            round: now + ROUND,
            persist_at: None,
        };
        server.bring_up()?;
        context.drop_privileges()?;
        Ok(server)
    }

    /// Connections that wait.
    fn accept(&mut self) {
        while let Some(stream) = self.streams.accept() {
            log::info!(
                "TCP connection established with {}",
                log_lines::outer(stream.endpoint().addr)
            );
            if let Err(error) = self.tunnel.add_stream(&stream) {
                log::warn!("{error}");
                self.streams.remove(stream.id());
            }
        }
    }

    /// Control packets, signals, scripts, time: until somebody says stop.
    fn serve(&mut self) -> Result<Ended, Failure> {
        let poller = Poller::new()?;
        poller.add(&*self.inbox, INBOX)?;
        poller.add(&self.context.signals, SIGNAL)?;
        poller.add(&*self.done, DONE)?;
        self.context.watch(&poller, NEWS, SERVICE)?;
        for (n, listener) in (0..).zip(self.streams.listeners()) {
            poller.add(listener, LISTENERS + n)?;
        }
        self.state(State::Connected, "SUCCESS");
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
            context.serve(self, &poller);
        }
    }

    fn signal(&mut self) -> Option<Ended> {
        match self.context.signals.take()? {
            Signal::Exit(name) => {
                log::info!("{name}[hard,] received, process exiting");
                Some(Ended::Exit(0))
            }
            Signal::Reload => {
                log::info!("SIGHUP[hard,] received, process restarting");
                Some(Ended::Reload)
            }
            Signal::Restart => {
                log::info!("SIGUSR1[hard,] received, process restarting");
                Some(Ended::Reload)
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
        for (id, result) in self.background.take_done() {
            self.finished(id, result);
        }
        let inbox = Arc::clone(&self.inbox);
        for stream in inbox.take_closed() {
            if let Some(addr) = self.streams.remove(stream) {
                let mut out = Vec::new();
                self.listener.disconnected(addr, &mut out);
                self.perform(out);
            }
        }
        while let Some((peer, message)) = inbox.next_message() {
            if DataSignal::of(&message) == Some(DataSignal::Exit) {
                self.with(ClientId(peer), |session, now, out| {
                    session.peer_exits(now, out)
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
        let (from, now) = (arrival.from, Instant::now());
        if let Err(why) = self
            .listener
            .receive(&arrival.bytes, from.addr, now, &mut out)
        {
            // Whoever can reach the port can cause this: never more than a debug line.
            log::debug!("control packet from {}: {why}", from.addr);
        }
        self.perform_from(out, Some(from));
    }

    fn notice(&mut self, id: ClientId, notice: Notice) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        match notice {
            Notice::Compressed => log::error!(
                "{}: the client compresses packets, which is not undone here: they are dropped. \
                 Set `compress migrate` or push `comp-lzo no`",
                client.label()
            ),
            Notice::Refresh { .. } => {
                self.with(id, |session, now, out| session.renegotiate(now, out));
            }
            Notice::Moved { to } => {
                let before = client.from;
                let mut out = Vec::new();
                if self.listener.floated(id, to, &mut out) {
                    log::info!("peer {} floated from {before} to {to}", id.0);
                    client.from = to;
                    client.environment.set_peer("trusted", to);
                    client.conduit.moved(&self.tunnel, to);
                } else {
                    log::warn!(
                        "{}: may not take the address {to} of another",
                        client.label()
                    );
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
        let mut out = Vec::new();
        let clients = &self.clients;
        self.listener.expired(
            now,
            |id| {
                clients
                    .get(&id)
                    .map(|client| client.conduit.times())
                    .unwrap_or_default()
            },
            &mut out,
        );
        self.perform(out);
        if now >= self.round {
            self.round = now + ROUND;
            self.reload_crl();
            self.poll_deferred();
            let used: Vec<_> = self
                .clients
                .iter()
                .filter_map(|(id, client)| {
                    let (key_id, bytes) = client.keys?;
                    Some((*id, client.conduit.usage(key_id, bytes)))
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

    /// Takes a revocation list that was written anew.
    fn reload_crl(&mut self) {
        match setup::crl(&self.context.config) {
            Ok(Some(list)) if self.crl.as_ref() != Some(&list) => {
                match self.tls.replace_crl(&list) {
                    Ok(()) => log::info!("crl-verify: the list was read anew"),
                    Err(error) => log::warn!("crl-verify: {error}; the earlier list is used"),
                }
                self.crl = Some(list);
            }
            Ok(_) => {}
            Err(error) => log::debug!("{error}"),
        }
    }

    /// Talks to a session and does what it asks for.
    fn with(
        &mut self,
        id: ClientId,
        call: impl FnOnce(&mut openvpn::session::Session, Instant, &mut Vec<openvpn::session::Output>),
    ) {
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
        let notify = self.connection.exit_notify;
        let ids: Vec<ClientId> = self.listener.clients().collect();
        for id in ids {
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

    /// The way to somebody who was heard from there.
    fn way(&self, from: Endpoint) -> Option<Way> {
        if self.connection.protocol.transport.is_tcp() {
            self.streams.at(from.addr).cloned().map(Way::Stream)
        } else {
            Some(Way::Datagrams(from))
        }
    }

    /// A session began.
    fn started(
        &mut self,
        id: ClientId,
        from: Endpoint,
        metadata: Option<openvpn::keyfile::v2::Metadata>,
    ) {
        let Some(way) = self.way(from) else {
            self.with(id, |session, _, out| session.close(CloseReason::Local, out));
            return;
        };
        if let Way::Stream(stream) = &way {
            self.streams.begun(stream.id());
        }
        let config = &self.context.config;
        log::info!(
            "{} TLS: Initial packet from {}",
            from.addr,
            log_lines::outer(from.addr)
        );
        let conduit = Conduit::new(
            &self.tunnel,
            id.0,
            way,
            Moving::Tell,
            config.data.allow_insecure,
        );
        self.counted += 1;
        let mut environment = self.hooks.base.clone();
        environment.set_peer("untrusted", from.addr);
        let served = Served {
            conduit,
            from: from.addr,
            step: Step::Arriving,
            since: SystemTime::now(),
            common_name: String::new(),
            username: String::new(),
            number: self.counted - 1,
            environment,
            metadata,
            framing: super::sizes::configured(config.data.framing),
            deferred: None,
            settings: Default::default(),
            lease: None,
            addresses: Default::default(),
            networks: Vec::new(),
            keys: None,
            announced: false,
        };
        self.clients.insert(id, served);
    }

    /// Sends a client away, which will come again.
    fn send_away(&mut self, id: ClientId) {
        self.with(id, |session, now, out| {
            session.restart(Restart::default(), now, out);
        });
    }

    fn rows(&self) -> ServerStatus {
        let mut status = ServerStatus::default();
        let inside = self
            .clients
            .iter()
            .filter(|(_, c)| matches!(c.step, Step::In));
        for (id, client) in inside {
            let peer = &client.conduit.peer;
            let real = real_address(client.from);
            status.clients.push(ClientRow {
                common_name: client.common_name.clone(),
                real_address: real.clone(),
                ipv4: client.addresses.ifconfig.map(|i| i.local),
                ipv6: client.addresses.ifconfig_v6.map(|i| i.local),
                bytes_received: peer.rx_bytes.value(),
                bytes_sent: peer.tx_bytes.value(),
                connected_since: client.since,
                username: client.username.clone(),
                client_id: client.number,
                peer_id: id.0,
                cipher: self
                    .listener
                    .session(*id)
                    .and_then(openvpn::session::Session::data_channel)
                    .map(|(cipher, _)| cipher.name().to_owned())
                    .unwrap_or_default(),
            });
            for (address, bits) in &client.networks {
                let whole = if address.is_ipv4() { 32 } else { 128 };
                status.routes.push(RouteRow {
                    address: *address,
                    prefix: (*bits != whole).then_some(*bits),
                    cached: false,
                    common_name: client.common_name.clone(),
                    real_address: real.clone(),
                    last_reference: SystemTime::now(),
                });
            }
        }
        status
    }

    fn persist_pool(&mut self) {
        self.persist_at = None;
        let server = self.context.config.server();
        let persist = server.and_then(|server| server.pool_persist.as_ref());
        if let (Some(persist), Some(pool)) = (persist, &self.pool)
            && persist.seconds > 0
        {
            let path = self.context.config.path(&persist.path);
            let text = persist::text(pool);
            if let Err(e) = super::policy::status_file::write_atomically(&path, &text) {
                log::warn!("WARNING: {}: {e}", path.display());
            }
        }
    }

    fn state(&self, state: State, detail: &str) {
        let own = self.context.config.network.ifconfig.map(|i| i.local);
        self.context
            .office
            .borrow_mut()
            .state(state, detail, own, None);
    }

    /// Leaves nothing behind.
    fn stop(&mut self) {
        let mut out = Vec::new();
        let ids: Vec<ClientId> = self.listener.clients().collect();
        for id in ids {
            self.listener.with(id, &mut out, |session, out| {
                session.close(CloseReason::Local, out)
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

fn make_pool(
    config: &config::openvpn::OpenVpn,
    topology: Topology,
) -> Result<Option<Pool>, Failure> {
    let Some(server) = config.server() else {
        return Ok(None);
    };
    if server.pool.is_none() && server.pool_v6.is_none() {
        return Ok(None);
    }
    let v4 = server.pool.map(|pool| Ipv4Range {
        start: pool.start,
        end: pool.end,
        layout: match topology {
            Topology::Net30 => Layout::Net30,
            Topology::P2p | Topology::Subnet => Layout::Single,
        },
    });
    let v6 = server.pool_v6.map(|pool| Ipv6Range {
        start: pool.base,
        prefix: pool.bits,
    });
    let mut pool = Pool::new(v4, v6, server.duplicate_cn)?;
    if let Some(wanted) = &server.pool_persist {
        persist::load(&config.path(&wanted.path), &mut pool, wanted.seconds == 0)?;
    }
    Ok(Some(pool))
}

impl Desk for Server<'_> {
    fn status(&self) -> Status {
        Status::Server(self.rows())
    }

    fn kill(&mut self, victim: &Victim) -> usize {
        let fits = |client: &Served| match victim {
            Victim::CommonName(name) => client.common_name == *name,
            Victim::Address(addr) => client.from == *addr,
        };
        let doomed: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, client)| fits(client))
            .map(|(id, _)| *id)
            .collect();
        for id in &doomed {
            // Without a word, as stock: whoever is to stay away shall not come back at once.
            self.with(*id, |session, _, out| {
                session.close(CloseReason::Local, out)
            });
        }
        doomed.len()
    }

    fn kill_client(&mut self, number: u64) -> bool {
        let found = self.clients.iter().find(|(_, c)| c.number == number);
        let found = found.map(|(id, _)| *id);
        if let Some(id) = found {
            self.send_away(id);
        }
        found.is_some()
    }
}
