//! Client and server: each has a data plane, and the control code that handles what the workers leave.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use crypto::Digest;
use engine::fuzzing::{Plane, connection};
use engine::{Sockets, Stream, TunnelOptions};
use netio::tun::{GsoKind, VNET_HDR_LEN, VnetHdr};
use openvpn::data::format::{Framing, Shape};
use openvpn::data::inband::PING;
use openvpn::data::protocol::{Material, session, session_keys};
use openvpn::data::wire::OpenVpn;
use openvpn::identity::Identity;
use openvpn::negotiate::{Cipher, OccOptions, Transport};
use openvpn::push::PushOptions;
use openvpn::role::Role;
use openvpn::server::{ClientId, Listener, ListenerSettings, Remote, ServerOutput};
use openvpn::session::{
    ClientSettings, DataKeys, Decision, Output, ServerSettings, Session, Settings, Times,
};
use openvpn::tls::{TlsOptions, TlsSettings};
use openvpn::wrap::WrapSettings;
use plane::{Endpoint, Line, Moving, PeerId, RouteChange, Sender, StreamId, Transports};
use service::inbox::Inbox;
use service::openvpn::INBOX;

/// The other end's id in each data plane.
pub(crate) const PEER: PeerId = PeerId(0);

/// The number of each end's connection.
const STREAM: StreamId = StreamId(1);

/// Maximum number of bytes in transit in one direction.
const TRANSIT: usize = 1 << 20;

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 40_000);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1194);

fn tls(role: Role) -> Arc<TlsSettings> {
    macro_rules! file {
        ($name:literal) => {
            include_bytes!(concat!("../../../crates/openvpn/tests/certs/p256/", $name))
        };
    }
    let (certificate, key): (&[u8], &[u8]) = match role {
        Role::Client => (file!("client.crt"), file!("client.key")),
        Role::Server => (file!("server.crt"), file!("server.key")),
    };
    let mut options = TlsOptions::new(role);
    options.ca = file!("ca.crt").to_vec();
    options.identity = Some(Identity::from_pem(certificate, key, b"", None).expect("a pair"));
    Arc::new(TlsSettings::new(options).expect("our own certificates"))
}

fn common(role: Role) -> Settings {
    let occ = OccOptions {
        dev_type: "tun",
        tun_mtu: 1500,
        transport: Transport::Tcp,
        comp_lzo: false,
        comp_byte: false,
        fragment: false,
        key_direction: None,
        cipher: Cipher::Aes256Gcm,
        cipher_allowed: true,
        auth: Digest::Sha1,
        tls_auth: false,
    };
    Settings::new(tls(role), occ)
}

fn client_settings() -> Arc<ClientSettings> {
    static MADE: OnceLock<Arc<ClientSettings>> = OnceLock::new();
    let make = || {
        Arc::new(ClientSettings::new(
            common(Role::Client),
            WrapSettings::none(),
        ))
    };
    Arc::clone(MADE.get_or_init(make))
}

fn server_settings() -> Arc<ServerSettings> {
    static MADE: OnceLock<Arc<ServerSettings>> = OnceLock::new();
    let make = || Arc::new(ServerSettings::new(common(Role::Server)));
    Arc::clone(MADE.get_or_init(make))
}

/// The data plane's half of an end.
pub(crate) struct End {
    pub(crate) plane: Plane<OpenVpn>,
    shape: Shape,
    pub(crate) stream: Arc<Stream>,
    pub(crate) inbox: Arc<Inbox>,
    /// The other end of this end's connection.
    wire: UnixStream,
    /// Bytes that this end has sent and the other has not received.
    pub(crate) sent: VecDeque<u8>,
    /// Packets that came out at the interface.
    pub(crate) came: usize,
}

impl End {
    fn new(peer: SocketAddr, framing: Framing, backpressure: bool) -> Self {
        let options = TunnelOptions {
            workers: 1,
            parallel: false,
            mtu: 1500,
            gso_max_segs: 64,
            coalescing: true,
            backpressure,
        };
        let inbox = Arc::new(Inbox::new(INBOX).expect("a descriptor"));
        let control: Arc<Inbox> = Arc::clone(&inbox);
        let packets = if backpressure {
            OpenVpn::Client { recursive: false }
        } else {
            OpenVpn::Server
        };
        let plane = Plane::new(packets, control, &options).expect("descriptors");
        let (stream, wire) = connection(STREAM, peer).expect("descriptors");
        plane.tunnel.add_stream(&stream).expect("descriptors");
        let end = Self {
            plane,
            shape: Shape {
                framing,
                stream: true,
                mss: 1300,
                ..Shape::default()
            },
            stream,
            inbox,
            wire,
            sent: VecDeque::new(),
            came: 0,
        };
        let calls = end.calls();
        calls.add_peer(PEER, Moving::Stay);
        calls.set_line(PEER, Line::tcp(Endpoint::new(peer), STREAM));
        calls.set_sender(PEER, Sender::Stream(STREAM), session(PEER, 0));
        let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        calls.change_routes(&all.map(|address| RouteChange::Add {
            address,
            len: 0,
            peer: PEER,
        }));
        calls.set_hairpin(!backpressure);
        end
    }

    /// The object through which control calls the data plane.
    pub(crate) fn calls(
        &self,
    ) -> &dyn Transports<Protocol = OpenVpn, Sockets = Sockets, Connection = TcpStream> {
        &self.plane.tunnel
    }

    /// Takes the written bytes off the wire, and lets the end write more, until nothing is left.
    fn collect(&mut self) {
        let mut buffer = [0; 16_384];
        while self.sent.len() < TRANSIT {
            match self.wire.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => self.sent.extend(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if !self.stream.is_congested() {
                        break;
                    }
                    self.plane.stream(STREAM);
                }
                Err(_) => break,
            }
        }
    }

    /// Passes the end the packets that wait at its interface, and collects its output.
    pub(crate) fn outward(&mut self) {
        loop {
            self.plane.interface();
            let held_back = self.plane.is_held_back();
            self.collect();
            if self.sent.len() >= TRANSIT || self.stream.is_closed() {
                break;
            }
            assert!(!self.plane.is_held_back(), "the stream has room");
            if !held_back {
                break;
            }
        }
    }

    /// Puts a packet in front of the end's interface.
    pub(crate) fn give(&mut self, hdr: &VnetHdr, packet: &[u8]) {
        let bytes = [&hdr.emit()[..], packet].concat();
        if self.plane.host.send(&bytes).is_err() {
            self.outward();
            let _ = self.plane.host.send(&bytes);
        }
    }

    /// Lets the end read `bytes`, as many at once as the kernel takes.
    pub(crate) fn hear(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.wire.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            self.plane.stream(STREAM);
            self.emerge();
        }
        self.collect();
    }

    /// Checks what the end has written to its interface.
    fn emerge(&mut self) {
        let mut buffer = [0; 70_000];
        while let Ok(len) = self.plane.host.recv(&mut buffer) {
            let hdr = VnetHdr::parse(&buffer[..len]).expect("a header");
            let packet = &buffer[VNET_HDR_LEN..len];
            assert!(!packet.is_empty());
            if hdr.gso == GsoKind::None {
                self.came += 1;
                continue;
            }
            assert!(hdr.needs_csum && hdr.gso_size > 0 && packet.len() <= 65_535 + 40);
            // `hdr_len` is how much the kernel copies into one place, which may be more than the packet's headers.
            let ip = match packet[0] >> 4 {
                4 => usize::from(packet[0] & 0xf) * 4,
                _ => 40,
            };
            let header = match hdr.gso {
                GsoKind::Tcp4 | GsoKind::Tcp6 => ip + usize::from(packet[ip + 12] >> 4) * 4,
                _ => ip + 8,
            };
            assert!((header..=packet.len()).contains(&usize::from(hdr.hdr_len)));
            let payload = packet.len() - header;
            let count = payload.div_ceil(usize::from(hdr.gso_size));
            assert!((2..=64).contains(&count), "{count} packets joined");
            self.came += count;
            engine::fuzzing::gso(&buffer[..len]);
        }
    }

    /// Performs an output that concerns the data plane.
    fn perform(&mut self, output: Output) {
        match output {
            Output::Send(packet) => {
                self.calls().send_to_peer(PEER, None, &packet);
            }
            Output::InstallKeys(keys) => self.install(keys),
            Output::UseForSending { key_id } => self.send_with(key_id),
            Output::RemoveKeys { key_id } => self.remove_keys(key_id),
            Output::SendPing => self.calls().inject(PEER, &PING),
            Output::SendData(payload) => self.calls().inject(PEER, &payload),
            _ => {}
        }
    }

    pub(crate) fn install(&self, keys: Box<DataKeys>) {
        let material = Material {
            keys,
            shape: self.shape.clone(),
            allow_insecure: false,
        };
        // The data plane refuses insecure ciphers.
        let keys = session_keys(PEER, material, Instant::now());
        let _ = self.calls().add_keys(PEER, keys);
    }

    pub(crate) fn send_with(&self, key_id: u8) {
        self.calls().send_with(PEER, session(PEER, key_id));
    }

    pub(crate) fn remove_keys(&self, key_id: u8) {
        self.calls().remove_keys(PEER, session(PEER, key_id));
    }

    /// The times that a session's timers need.
    fn times(&self) -> Times {
        let state = self.calls().peer(PEER).unwrap_or_default();
        Times {
            last_received: state.times.last_received,
            last_sent: state.times.last_sent,
            payload_bytes: state.rx_bytes + state.tx_bytes,
        }
    }
}

/// Both ends, with their sessions, and the time.
pub(crate) struct World {
    pub(crate) client: End,
    pub(crate) server: End,
    session: Session,
    listener: Listener,
    pub(crate) now: Instant,
}

impl World {
    /// A client that has begun, and a server that has heard nothing yet.
    pub(crate) fn new(framing: Framing) -> Self {
        let now = Instant::now();
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let settings = ListenerSettings::new(server_settings(), WrapSettings::none());
        let mut out = Vec::new();
        let session = Session::client(client_settings(), None, now, wall, &mut out);
        let mut world = Self {
            client: End::new(SERVER, framing, true),
            server: End::new(CLIENT, framing, false),
            session: session.expect("a client"),
            listener: Listener::new(settings, now, wall),
            now,
        };
        world.perform_client(out);
        world
    }

    fn perform_client(&mut self, out: Vec<Output>) {
        for output in out {
            self.client.perform(output);
        }
        self.client.outward();
    }

    fn perform_server(&mut self, out: Vec<ServerOutput>) {
        let now = self.now;
        let mut waiting = VecDeque::from(out);
        while let Some(output) = waiting.pop_front() {
            let (client, output) = match output {
                ServerOutput::Send { datagram, .. } => {
                    self.server.perform(Output::Send(datagram));
                    continue;
                }
                ServerOutput::Started { .. } => continue,
                ServerOutput::Client { client, output } => (client, output),
            };
            let mut more = Vec::new();
            match output {
                Output::Authenticate(request) => {
                    self.listener.with(client, &mut more, |session, out| {
                        session.authenticated(request.id, Decision::Accept, now, out);
                    });
                }
                Output::PushRequested => {
                    let options = PushOptions {
                        options: vec!["ifconfig 10.8.0.2 255.255.255.0".to_owned()],
                        tun_mtu: Some(1500),
                        peer_id: Some(client.0),
                    };
                    self.listener.with(client, &mut more, |session, out| {
                        session.push(&options, now, out);
                    });
                }
                // The data plane knows only one client.
                output if client == ClientId(0) => self.server.perform(output),
                _ => {}
            }
            waiting.extend(more);
        }
        self.server.outward();
    }

    /// Runs control at both ends.
    pub(crate) fn control(&mut self) {
        while let Some((arrival, _)) = self.client.inbox.next_arrival() {
            let mut out = Vec::new();
            let _ = self.session.receive(&arrival.bytes, self.now, &mut out);
            self.perform_client(out);
        }
        while let Some((arrival, _)) = self.server.inbox.next_arrival() {
            let mut out = Vec::new();
            let from = Remote::tcp(CLIENT, STREAM);
            let bytes = &arrival.bytes;
            let _ = self.listener.receive(bytes, from, None, self.now, &mut out);
            self.perform_server(out);
        }
        self.client.inbox.take_messages();
        self.server.inbox.take_messages();
        self.client.inbox.take_notices();
        self.server.inbox.take_notices();
        if !self.server.inbox.take_closed().is_empty() {
            let mut out = Vec::new();
            let from = Remote::tcp(CLIENT, STREAM);
            self.listener.disconnected(from, &mut out);
            self.perform_server(out);
        }
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, by: Duration) {
        self.now += by;
        let mut out = Vec::new();
        if self
            .session
            .next_deadline()
            .is_some_and(|at| at <= self.now)
        {
            self.session.expired(self.now, &mut out);
        }
        self.perform_client(out);
        let mut out = Vec::new();
        let times = self.server.times();
        self.listener.expired(self.now, |_| times, &mut out);
        self.perform_server(out);
    }

    /// Delivers all bytes in transit, until none are left.
    pub(crate) fn settle(&mut self) {
        for _ in 0..64 {
            let to_server: Vec<u8> = self.client.sent.drain(..).collect();
            let to_client: Vec<u8> = self.server.sent.drain(..).collect();
            if to_server.is_empty() && to_client.is_empty() {
                break;
            }
            self.server.hear(&to_server);
            self.client.hear(&to_client);
            self.control();
        }
    }

    /// Whether both sessions are up.
    pub(crate) fn is_up(&self) -> bool {
        self.session.is_up()
            && self
                .listener
                .session(ClientId(0))
                .is_some_and(Session::is_up)
    }
}
