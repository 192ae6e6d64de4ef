//! One connection to one server, from the first packet to the last.

use super::super::conduit::{Conduit, Way};
use super::super::connect::{Attempts, Socket, Target};
use super::super::office::Desk as _;
use super::super::plane::{Arrival, ClientWire};
use super::super::policy::log_lines::outer;
use super::super::policy::management::State;
use super::super::policy::scripts::{Hook, ipchange_arguments};
use super::super::secrets::SecretError;
use super::super::signals::Signal;
use super::super::{device, sizes, terms};
use super::{Client, Outcome, WRONG_ADDRESS};
use engine::{Moving, Notice, Routes, Sockets, Stream, Tunnel};
use netio::poll::Poller;
use netio::udp::Endpoint;
use openvpn::data::signal::Signal as DataSignal;
use openvpn::key_method::Credentials;
use openvpn::message::Message;
use openvpn::push::Refusal;
use openvpn::session::{CloseReason, Output, Session};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

mod desk;

const INBOX: u64 = 0;
const SIGNAL: u64 = 1;
const NEWS: u64 = 2;
const VISITOR: u64 = 3;

/// Control packets that are served before everything else gets a turn.
const ARRIVALS_AT_ONCE: usize = 256;

/// How often the use of keys is looked at: a cipher with short blocks may be good for a second.
const TRAFFIC: Duration = Duration::from_millis(500);

/// A connection while it lasts.
struct Attempt<'c, 'a> {
    client: &'c mut Client<'a>,
    target: &'c Target,
    remote: SocketAddr,
    session: Session,
    conduit: Conduit,
    /// The newest keys, and the bytes of both directions before them.
    keys: Option<(u8, u64)>,
    traffic_at: Instant,
    ended: Option<CloseReason>,
    leaving: Option<Signal>,
    heard: bool,
    /// The server has shown its certificate.
    certified: bool,
    /// When the next server is tried if this one has not said a word (`server-poll-timeout`).
    patience: Instant,
    /// The session is up, and nobody was told because routes are yet to come.
    unannounced: bool,
    /// When the session began, or later was up.
    since: SystemTime,
}

impl Client<'_> {
    /// Connects to a server and stays until the connection ends.
    pub(super) fn attempt(&mut self, target: &Target, attempts: &mut Attempts) -> Outcome {
        let outcome = self.connected(target);
        if self.was_up {
            attempts.succeeded();
        }
        match outcome {
            Ok(Ok(reason)) => self.after(&reason, attempts),
            Ok(Err(signal)) => Outcome::Signal(signal),
            Err(error) => match error.downcast_ref::<SecretError>() {
                // Nobody is there who could mend it by the next time.
                Some(SecretError::File { .. } | SecretError::NoTerminal { .. }) => {
                    self.context.fatal(&*error);
                    Outcome::Exit(1)
                }
                _ => {
                    log::error!("{error}");
                    Outcome::Again
                }
            },
        }
    }

    /// The reason why it ended, or the signal that ended it.
    fn connected(
        &mut self,
        target: &Target,
    ) -> Result<Result<CloseReason, Signal>, Box<dyn std::error::Error>> {
        self.was_up = false;
        let context = self.context;
        let config = &context.config;
        let connection = &target.connection;
        let wrap = self.wrap(connection)?;
        let credentials = self.credentials()?;
        self.device(target)?;
        let inbox = Arc::clone(&self.inbox);
        let Some((tunnel, _)) = &self.device else {
            return Err("no interface".into());
        };
        // What the last connection left behind is nobody's now.
        while inbox.next_arrival().is_some() || inbox.next_message().is_some() {}
        inbox.take_notices();
        inbox.take_closed();

        let prompted = target.proxy_credentials();
        let login = prompted.map(|it| self.proxy_login(it)).transpose()?;
        // A tunnel that stays up must not carry the way to its next server.
        if let Some(inside) = self.set.as_mut().and_then(|set| set.inside.as_mut()) {
            inside.keep_outside(target.remote.ip())?;
        }
        let tcp = connection.protocol.transport.is_tcp();
        self.state(if tcp { State::TcpConnect } else { State::Wait }, "");
        let way = match target.open(login.as_ref(), &context.stop())? {
            None => match context.signals.take() {
                Some(signal) => return Ok(Err(signal)),
                None => return Ok(Ok(CloseReason::Local)),
            },
            Some(Socket::Udp(remote)) => {
                let family = device::family_of(remote);
                let sockets =
                    device::open_udp(config, connection, &context.dataplane, Some(family))?;
                tunnel.set_sockets(sockets);
                log::info!(
                    "UDPv{} link remote: {}",
                    if remote.is_ipv4() { 4 } else { 6 },
                    outer(remote)
                );
                Way::Datagrams(Endpoint::new(remote))
            }
            Some(Socket::Tcp(socket)) => {
                tunnel.set_sockets(Sockets::default());
                self.streams += 1;
                let stream = Arc::new(Stream::new(self.streams, socket)?);
                let remote = stream.endpoint().addr;
                log::info!("TCP connection established with {}", outer(remote));
                self.state(State::Wait, "");
                Way::Stream(stream)
            }
        };
        let remote = way.addr();
        let moving = if connection.float {
            Moving::Tell
        } else {
            Moving::Stay
        };
        let mut conduit = Conduit::new(tunnel, 0, way, moving, config.data.allow_insecure);
        let mut routes = Routes::default();
        for (net, bits) in device::EVERYWHERE {
            routes.insert(net, bits, Arc::clone(&conduit.peer));
        }
        tunnel.set_routes(routes);
        if let Way::Stream(stream) = conduit.way() {
            tunnel.add_stream(stream)?;
        }

        self.crl.refresh(config, &self.tls);
        let settings = terms::client(config, connection, Arc::clone(&self.tls), wrap);
        let login = credentials.map(|login| Credentials {
            username: login.name.into_bytes(),
            password: login.password.as_bytes().to_vec(),
        });
        let mut out = Vec::new();
        let now = Instant::now();
        let session = Session::client(Arc::new(settings), login, now, SystemTime::now(), &mut out)?;
        conduit.control = Arc::clone(session.control_traffic());
        let mut attempt = Attempt {
            client: self,
            target,
            remote,
            session,
            conduit,
            keys: None,
            traffic_at: now + TRAFFIC,
            ended: None,
            leaving: None,
            heard: false,
            certified: false,
            patience: now + Duration::from_secs(connection.connect_timeout.into()),
            unannounced: false,
            since: SystemTime::now(),
        };
        let result = attempt.perform(out).and_then(|()| attempt.serve());
        attempt.clear();
        let leaving = attempt.leaving;
        let ended = attempt.ended.take();
        result?;
        Ok(match leaving {
            Some(signal) => Err(signal),
            None => Ok(ended.unwrap_or(CloseReason::Local)),
        })
    }
}

type Failure = Box<dyn std::error::Error>;

impl Attempt<'_, '_> {
    fn tunnel(&self) -> Result<&Tunnel<ClientWire>, Failure> {
        match &self.client.device {
            Some((tunnel, _)) => Ok(tunnel),
            None => Err("no interface".into()),
        }
    }

    fn clear(&mut self) {
        self.client.is_connected = false;
        if let Some((tunnel, _)) = &self.client.device {
            self.conduit.clear(tunnel);
            tunnel.set_routes(Routes::default());
            tunnel.set_sockets(Sockets::default());
        }
    }

    /// Serves until the session ends.
    fn serve(&mut self) -> Result<(), Failure> {
        let inbox = Arc::clone(&self.client.inbox);
        let context = self.client.context;
        let poller = Poller::new()?;
        poller.add(&*inbox, INBOX)?;
        poller.add(&*context.signals, SIGNAL)?;
        context.watch(&poller, NEWS, VISITOR)?;
        while self.ended.is_none() {
            let now = Instant::now();
            let mut deadline = self.session.next_deadline();
            if self.keys.is_some() {
                deadline = Some(deadline.map_or(self.traffic_at, |d| d.min(self.traffic_at)));
            }
            let late = self.client.set.as_ref().and_then(|set| set.routes_at);
            let patience = (!self.heard).then_some(self.patience);
            let deadlines = deadline.into_iter().chain(late).chain(patience);
            deadline = context.deadline(deadlines.min());
            let timeout = deadline.map(|at| at.saturating_duration_since(now));
            for token in poller.wait(timeout)?.iter() {
                match token {
                    INBOX => inbox.waker.clear(),
                    SIGNAL => self.signal()?,
                    NEWS => self.network_changed()?,
                    _ => {}
                }
            }
            self.hear()?;
            self.tick()?;
            self.client.set_late_routes()?;
            self.announce();
            context.serve(self);
        }
        Ok(())
    }

    fn signal(&mut self) -> Result<(), Failure> {
        match self.client.context.signals.take() {
            None => {}
            Some(Signal::Status) => {
                self.client
                    .context
                    .office
                    .borrow()
                    .log_status(&self.status());
            }
            Some(signal) => {
                if self.leaving.replace(signal).is_some() {
                    // Asked twice: no more patience.
                    self.ended = Some(CloseReason::Local);
                    return Ok(());
                }
                let mut out = Vec::new();
                self.session.leave(Instant::now(), &mut out);
                self.perform(out)?;
            }
        }
        Ok(())
    }

    /// What workers have left in the inbox.
    fn hear(&mut self) -> Result<(), Failure> {
        let inbox = Arc::clone(&self.client.inbox);
        for _ in 0..ARRIVALS_AT_ONCE {
            let Some(arrival) = inbox.next_arrival() else {
                break;
            };
            self.arrived(&arrival)?;
        }
        while let Some((_, message)) = inbox.next_message() {
            if DataSignal::of(&message) == Some(DataSignal::Exit) {
                let mut out = Vec::new();
                self.session.peer_exits(Instant::now(), &mut out);
                self.perform(out)?;
            }
        }
        for (_, notice) in inbox.take_notices() {
            match notice {
                Notice::Compressed { unpacked: true } => log::warn!(
                    "the server compresses packets: they are unpacked, but their lengths tell who \
                     listens something of what is in them (VORACLE). Remove comp-lzo and compress \
                     at the server, or set `comp-lzo no` there"
                ),
                Notice::Compressed { unpacked: false } => log::error!(
                    "the server compresses packets, and not as agreed or allowed: they are \
                     dropped. Remove comp-lzo and compress at the server, or set `comp-lzo no` there"
                ),
                Notice::Moved { to } => {
                    log::info!("the server floated from {} to {to}", self.remote);
                    self.remote = to;
                    if let Some((tunnel, _)) = &self.client.device {
                        self.conduit.moved(tunnel, to);
                    }
                }
                Notice::Refresh { .. } => {
                    let mut out = Vec::new();
                    self.session.renegotiate(Instant::now(), &mut out);
                    self.perform(out)?;
                }
                _ => {}
            }
        }
        if !inbox.take_closed().is_empty() && matches!(self.conduit.way(), Way::Stream(_)) {
            log::info!("Connection reset, restarting [0]");
            self.ended.get_or_insert(CloseReason::Local);
        }
        if inbox.device_is_gone() {
            return Err("the interface was deleted by somebody else".into());
        }
        Ok(())
    }

    fn arrived(&mut self, arrival: &Arrival) -> Result<(), Failure> {
        let stream = arrival.stream.is_some();
        // A stream of an earlier attempt, or a stranger's datagram.
        if stream != matches!(self.conduit.way(), Way::Stream(_))
            || (!stream && arrival.from.addr != self.remote && !self.target.connection.float)
        {
            self.client.refusals.count(WRONG_ADDRESS);
            return Ok(());
        }
        let mut out = Vec::new();
        let now = Instant::now();
        match self.session.receive(&arrival.bytes, now, &mut out) {
            Ok(()) if !self.heard => {
                self.heard = true;
                self.client.state(State::Auth, "");
                log::info!("TLS: Initial packet from {}", outer(self.remote));
            }
            Ok(()) => {}
            // Whoever can reach the port can cause this: never more than a debug line.
            Err(why) => {
                self.client.refusals.count(why.name());
                log::debug!("control packet from {}: {why}", outer(arrival.from.addr));
            }
        }
        if !self.certified && self.session.certificate().is_some() {
            self.certified = true;
            self.client.state(State::GetConfig, "");
        }
        self.perform(out)
    }

    fn tick(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        let mut out = Vec::new();
        if !self.heard && now >= self.patience {
            log::info!("Server poll timeout, restarting");
            log::info!("SIGUSR1[soft,server_poll] received, process restarting");
            self.ended.get_or_insert(CloseReason::Local);
            return Ok(());
        }
        self.session.activity(self.conduit.times());
        if self.session.next_deadline().is_some_and(|at| at <= now) {
            self.session.expired(now, &mut out);
        }
        if now >= self.traffic_at {
            self.traffic_at = now + TRAFFIC;
            let client = &mut *self.client;
            client.crl.refresh(&client.context.config, &client.tls);
            if let Some((key_id, bytes)) = self.keys {
                let usage = self.conduit.usage(self.tunnel()?, key_id, bytes);
                self.session.traffic(&usage, now, &mut out);
            }
        }
        self.perform(out)
    }

    /// Does what the session asks for, in order.
    fn perform(&mut self, out: Vec<Output>) -> Result<(), Failure> {
        for output in out {
            self.one(output)?;
        }
        Ok(())
    }

    fn one(&mut self, output: Output) -> Result<(), Failure> {
        match output {
            Output::Send(packet) => self.conduit.send_control(self.tunnel()?, &packet),
            Output::InstallKeys(keys) => {
                let Some((tunnel, _)) = &self.client.device else {
                    return Ok(());
                };
                self.conduit.install(tunnel, &keys)?;
                self.keys = Some((keys.key_id, self.conduit.bytes()));
                log::info!(
                    "Data Channel: cipher '{}'{}",
                    keys.cipher.name(),
                    self.conduit
                        .cipher()
                        .map(|(_, backend)| format!(", {backend}"))
                        .unwrap_or_default()
                );
            }
            Output::UseForSending { key_id } => {
                if let Some((tunnel, _)) = &self.client.device {
                    self.conduit.seal_with(tunnel, key_id);
                }
            }
            Output::RemoveKeys { key_id } => {
                if let Some((tunnel, _)) = &self.client.device {
                    self.conduit.remove(tunnel, key_id);
                }
            }
            Output::SendPing => self.conduit.ping(self.tunnel()?),
            Output::SendData(payload) => self.tunnel()?.inject(&self.conduit.peer, &payload),
            Output::Pushed(reply) => self.pushed(&reply)?,
            Output::AuthToken(token) => {
                self.client.context.office.borrow_mut().auth_token(&token);
                self.client.keep_token(&token);
            }
            Output::Message(message) => self.message(&message),
            Output::Connected => self.connected()?,
            Output::Renegotiated { key_id } => {
                log::info!("new data channel keys, key id {key_id}");
            }
            Output::Closed(reason) => self.ended = Some(reason),
            // A server's.
            Output::Authenticate(_) | Output::PushRequested => {}
        }
        Ok(())
    }

    /// The server's options: what is sealed from now on has their shape, and the interface gets
    /// their addresses.
    fn pushed(&mut self, reply: &openvpn::push::PushReply) -> Result<(), Failure> {
        for (option, why) in &reply.refused {
            match why {
                // Servers push what other systems need to everyone.
                Refusal::NoEffect => log::debug!("pushed option '{option}': {why}"),
                _ => log::warn!("pushed option '{option}' is not taken: {why}"),
            }
        }
        self.client.hear(reply);
        let config = &self.client.context.config;
        let connection = &self.target.connection;
        let mtu = reply
            .tun_mtu
            .and_then(|mtu| u16::try_from(mtu).ok())
            .unwrap_or_else(|| terms::tun_mtu(connection));
        let framing = match &reply.compression {
            Some(pushed) => sizes::pushed(pushed),
            None => sizes::configured(config.data.framing),
        };
        if let Some(agreed) = self.session.data_channel() {
            self.conduit.shape =
                sizes::shape(config, connection, agreed, framing, mtu, self.remote)?;
        }
        self.tunnel()?.set_mtu(mtu.into());
        self.client.state(State::AssignIp, "");
        // What must stay outside of the tunnel is where the outer packets go: a proxy, maybe.
        self.client.bring_up(reply, mtu, self.target.remote)?;
        if !std::mem::replace(&mut self.client.unprivileged, true) {
            self.client.context.drop_privileges()?;
        }
        Ok(())
    }

    fn connected(&mut self) -> Result<(), Failure> {
        let client = &mut *self.client;
        let mut environment = client.hooks.base.clone();
        environment.set_peer("trusted", self.remote);
        let script = client.context.config.scripts.ipchange.as_ref();
        let arguments = ipchange_arguments(self.remote);
        client
            .hooks
            .tell(Hook::IpChange, script, arguments, &environment);
        let peer = self.session.certificate().map(|c| c.common_name.clone());
        log::info!(
            "[{}] Peer Connection Initiated with {}",
            peer.unwrap_or_default(),
            outer(self.remote)
        );
        client.restarted = true;
        client.was_up = true;
        self.since = SystemTime::now();
        self.unannounced = true;
        self.announce();
        Ok(())
    }

    fn message(&self, message: &Message) {
        if matches!(message, Message::AuthPending { .. }) {
            self.client.state(State::AuthPending, "");
        }
        match message {
            Message::Info(text) | Message::InfoPre(text) => {
                log::info!("Info command was pushed by server ('{text}')");
            }
            Message::AuthPending { .. } => log::info!("AUTH_PENDING received, waiting"),
            other => log::debug!("{other:?}"),
        }
    }

    fn network_changed(&mut self) -> Result<(), Failure> {
        if self.client.context.network_changed()
            && let Some(set) = &mut self.client.set
            && let Some(inside) = &mut set.inside
        {
            inside.follow()?;
        }
        Ok(())
    }
}
