//! A server: protocol sessions behind a listener, and a data plane per client.

use super::data_plane::{DataPlane, Says, is_data, peer_id};
use openvpn::message::{AuthFailed, Message, Restart};
use openvpn::negotiate::{OccOptions, Transport};
use openvpn::push::PushOptions;
use openvpn::role::Role;
use openvpn::server::{ClientId, Listener, ListenerSettings, Remote, ServerOutput};
use openvpn::session::{Decision, Output, ServerSettings, Settings};
use openvpn::tls::TlsSettings;
use openvpn::wrap::WrapSettings;
use plane::Endpoint;
use plane::Now;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Password that the server accepts.
pub(super) const PASSWORD: &str = "right";

fn certificate(name: &str) -> Vec<u8> {
    std::fs::read(super::certificate(name)).unwrap()
}

fn tls() -> Arc<TlsSettings> {
    static TLS: OnceLock<Arc<TlsSettings>> = OnceLock::new();
    let settings = TLS.get_or_init(|| {
        let mut options = openvpn::tls::TlsOptions::new(Role::Server);
        options.ca = certificate("ca.crt");
        let (cert, key) = (certificate("server.crt"), certificate("server.key"));
        let identity = openvpn::identity::Identity::from_pem(&cert, &key, b"", None);
        options.identity = Some(identity.unwrap());
        Arc::new(TlsSettings::new(options).unwrap())
    });
    Arc::clone(settings)
}

fn settings(transport: Transport) -> Arc<ServerSettings> {
    let occ = OccOptions {
        dev_type: "tun",
        tun_mtu: 1500,
        transport,
        comp_lzo: false,
        comp_byte: false,
        fragment: false,
        key_direction: None,
        cipher: crypto::Cipher::Aes256Gcm,
        cipher_allowed: true,
        auth: crypto::Digest::Sha1,
        tls_auth: false,
    };
    let mut settings = ServerSettings::new(Settings::new(tls(), occ));
    settings.common.timers.ping = Some(Duration::from_secs(10));
    settings.common.timers.ping_restart = Some(Duration::from_secs(120));
    Arc::new(settings)
}

/// A packet in transit to a client.
pub(super) type Sent = (Remote, Vec<u8>);

pub(super) struct Server {
    pub(super) address: SocketAddr,
    listener: Listener,
    planes: HashMap<ClientId, DataPlane>,
    /// The server reads and sends packets.
    pub(super) answers: bool,
    /// The server admits clients.
    pub(super) accepts: bool,
    /// Options to push.
    pub(super) options: Vec<String>,
    /// Number of admissions.
    pub(super) admitted: usize,
    /// The server answers options requests.
    pub(super) has_options: bool,
}

fn listener(now: Now) -> Listener {
    let mut settings_of = ListenerSettings::new(settings(Transport::Udp), WrapSettings::none());
    settings_of.streams = Some(settings(Transport::Tcp));
    settings_of.max_clients = 1024;
    settings_of.starts = None;
    Listener::new(settings_of, now.monotonic, now.wall)
}

impl Server {
    pub(super) fn new(address: SocketAddr, now: Now) -> Self {
        let options = "route-gateway 10.8.0.1,topology subnet,ifconfig 10.8.0.2 255.255.255.0,\
            route 10.9.0.0 255.255.0.0,dhcp-option DNS 10.8.0.1,ping 10,ping-restart 60";
        Self {
            address,
            listener: listener(now),
            planes: HashMap::new(),
            answers: true,
            accepts: true,
            options: options.split(',').map(str::to_owned).collect(),
            admitted: 0,
            has_options: true,
        }
    }

    /// Restarts the server process: it forgets its clients.
    pub(super) fn lose_everything(&mut self, now: Now) {
        self.listener = listener(now);
        self.planes.clear();
    }

    /// Sends a message to all clients, this many times.
    pub(super) fn say(&mut self, message: &Message, times: usize, now: Now) -> Vec<Sent> {
        let mut out = Vec::new();
        for id in self.listener.clients().collect::<Vec<_>>() {
            self.listener.with(id, &mut out, |session, out| {
                for _ in 0..times {
                    session.send_message(message, now.monotonic, out);
                }
            });
        }
        self.perform(out, now)
    }

    /// Disconnects all clients.
    pub(super) fn send_away(&mut self, restart: &Restart, now: Now) -> Vec<Sent> {
        let mut out = Vec::new();
        for id in self.listener.clients().collect::<Vec<_>>() {
            self.listener.with(id, &mut out, |session, out| {
                session.restart(restart.clone(), now.monotonic, out);
            });
        }
        self.perform(out, now)
    }

    /// Renews the keys of all clients.
    pub(super) fn renew(&mut self, now: Now) -> Vec<Sent> {
        let mut out = Vec::new();
        for id in self.listener.clients().collect::<Vec<_>>() {
            self.listener.with(id, &mut out, |session, out| {
                session.renegotiate(now.monotonic, out);
            });
        }
        self.perform(out, now)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.listener.next_deadline().filter(|_| self.answers)
    }

    pub(super) fn expired(&mut self, now: Now) -> Vec<Sent> {
        let mut out = Vec::new();
        let planes = &self.planes;
        let times = |id: ClientId| planes.get(&id).map(|it| it.times).unwrap_or_default();
        self.listener.expired(now.monotonic, times, &mut out);
        self.perform(out, now)
    }

    pub(super) fn receive(&mut self, packet: &[u8], from: Remote, now: Now) -> Vec<Sent> {
        if !self.answers {
            return Vec::new();
        }
        let mut out = Vec::new();
        if is_data(packet) {
            let id = ClientId(peer_id(packet));
            let Some(plane) = self.planes.get_mut(&id) else {
                return Vec::new();
            };
            if !plane.open(packet, now.monotonic) {
                return Vec::new();
            }
            let asked = self.has_options && Says::of(packet) == Says::Request;
            let answer = asked.then(|| plane.seal(Says::Options, now.monotonic));
            if !from.is_stream() && !self.knows(id, from) {
                self.listener
                    .floated(id, Endpoint::new(from.address), &mut out);
            }
            let mut sent = self.perform(out, now);
            sent.extend(self.listener.remote(id).zip(answer.flatten()));
            return sent;
        }
        // Ignored: the listener counts dropped packets.
        let _ = self
            .listener
            .receive(packet, from, None, now.monotonic, &mut out);
        self.perform(out, now)
    }

    fn knows(&self, id: ClientId, at: Remote) -> bool {
        self.listener.remote(id) == Some(at)
    }

    /// Ends the TCP connection of this client.
    pub(super) fn disconnected(&mut self, from: Remote, now: Now) -> Vec<Sent> {
        let mut out = Vec::new();
        self.listener.disconnected(from, &mut out);
        self.perform(out, now)
    }

    fn perform(&mut self, out: Vec<ServerOutput>, now: Now) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut waiting = VecDeque::from(out);
        while let Some(output) = waiting.pop_front() {
            let (id, output) = match output {
                ServerOutput::Send { to, datagram, .. } => {
                    sent.push((to, datagram));
                    continue;
                }
                ServerOutput::Started { client, .. } => {
                    self.planes.insert(client, DataPlane::default());
                    continue;
                }
                ServerOutput::Client { client, output } => (client, output),
            };
            let mut more = Vec::new();
            let plane = self.planes.entry(id).or_default();
            match output {
                Output::InstallKeys(keys) => plane.install(*keys),
                Output::UseForSending { key_id } => plane.seal_with(key_id),
                Output::RemoveKeys { key_id } => plane.remove(key_id),
                Output::SendPing => {
                    let packet = plane.seal(Says::Nothing, now.monotonic);
                    sent.extend(self.listener.remote(id).zip(packet));
                }
                Output::Authenticate(request) => {
                    let asks = !request.username.is_empty();
                    let right = self.accepts && (!asks || *request.password == *PASSWORD);
                    self.admitted += usize::from(right);
                    let decision = match right {
                        true => Decision::Accept,
                        false => Decision::Reject(AuthFailed::because("wrong password")),
                    };
                    self.listener.with(id, &mut more, |session, out| {
                        session.authenticated(request.id, decision, now.monotonic, out);
                    });
                }
                Output::PushRequested => {
                    let options = PushOptions {
                        options: self.options.clone(),
                        tun_mtu: Some(1500),
                        peer_id: Some(id.0),
                    };
                    self.listener.with(id, &mut more, |session, out| {
                        session.push(&options, now.monotonic, out);
                    });
                }
                _ => {}
            }
            // Outputs that result from this one are processed before the waiting ones.
            for output in more.into_iter().rev() {
                waiting.push_front(output);
            }
        }
        sent
    }
}
