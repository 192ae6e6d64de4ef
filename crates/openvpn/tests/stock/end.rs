//! Our ends: a session or a listener on a socket, with a data channel that carries pings.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use openvpn::identity::Identity;
use openvpn::negotiate::{Cipher, OccOptions, PeerInfo, Transport};
use openvpn::push::{PushOptions, PushReply};
use openvpn::role::Role;
use openvpn::server::{Listener, ListenerSettings, Remote, ServerOutput};
use openvpn::session::{
    AuthRequest, ClientSettings, CloseReason, Credentials, Decision, Output, ServerSettings,
    Session, Settings,
};
use openvpn::tls::{TlsOptions, TlsSettings};
use openvpn::wrap::WrapSettings;

use crate::data::Data;
use crate::program::{PATIENCE, Stock};

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/certs/p256/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

pub(crate) fn common(role: Role) -> Settings {
    let name = match role {
        Role::Client => "client",
        Role::Server => "server",
    };
    let (cert, key) = (file(&format!("{name}.crt")), file(&format!("{name}.key")));
    let mut options = TlsOptions::new(role);
    options.ca = file("ca.crt");
    options.identity = Some(Identity::from_pem(&cert, &key, b"", None).unwrap());
    let occ = OccOptions {
        // The stock program's device name in these tests.
        dev_type: match role {
            Role::Client => "tun",
            Role::Server => "null",
        },
        tun_mtu: 1500,
        transport: Transport::Udp,
        comp_lzo: false,
        comp_byte: false,
        fragment: false,
        key_direction: None,
        cipher: Cipher::BlowfishCbc,
        cipher_allowed: false,
        auth: crypto::Digest::None,
        tls_auth: false,
    };
    Settings::new(Arc::new(TlsSettings::new(options).unwrap()), occ)
}

fn wait(socket: &UdpSocket, deadline: Option<Instant>) -> Option<(Vec<u8>, SocketAddr)> {
    let longest = Duration::from_millis(200);
    let wait = deadline.map_or(longest, |it| it.saturating_duration_since(Instant::now()));
    let wait = wait.clamp(Duration::from_millis(1), longest);
    socket.set_read_timeout(Some(wait)).unwrap();
    let mut buffer = [0; 4096];
    let (len, from) = socket.recv_from(&mut buffer).ok()?;
    Some((buffer[..len].to_vec(), from))
}

fn is_data(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|it| matches!(it >> 3, 6 | 9))
}

pub(crate) struct ClientEnd {
    socket: UdpSocket,
    session: Session,
    pub(crate) data: Data,
    pub(crate) renewed: u32,
    pub(crate) tokens: u32,
    pub(crate) pushed: Option<PushReply>,
    pub(crate) closed: Option<CloseReason>,
}

impl ClientEnd {
    pub(crate) fn begin(
        mut settings: ClientSettings,
        port: u16,
        credentials: Option<Credentials>,
    ) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", port)).unwrap();
        settings.peer_info = PeerInfo::parse("IV_VER=0.1\nIV_PLAT=linux\n");
        settings.explicit_exit_notify = Some(1);
        let (now, mut out) = (Instant::now(), Vec::new());
        let wall = SystemTime::now();
        let session =
            Session::client(Arc::new(settings), credentials, now, wall, &mut out).unwrap();
        let mut end = Self {
            socket,
            session,
            data: Data::default(),
            renewed: 0,
            tokens: 0,
            pushed: None,
            closed: None,
        };
        end.perform(out);
        end
    }

    fn perform(&mut self, out: Vec<Output>) {
        for output in out {
            let packet = match self.data.perform(output) {
                Some(Output::Send(datagram)) => Some(datagram),
                Some(Output::SendPing) => self.data.ping(),
                Some(Output::SendData(payload)) => self.data.seal(&payload),
                Some(Output::Renegotiated { .. }) => {
                    self.renewed += 1;
                    None
                }
                Some(Output::AuthToken(_)) => {
                    self.tokens += 1;
                    None
                }
                Some(Output::Pushed(reply)) => {
                    self.pushed = Some(*reply);
                    None
                }
                Some(Output::Closed(reason)) => {
                    self.closed = Some(reason);
                    None
                }
                _ => None,
            };
            if let Some(packet) = packet {
                // The stock program may have ended.
                let _ = self.socket.send(&packet);
            }
        }
    }

    fn step(&mut self) {
        let received = wait(&self.socket, self.session.next_deadline());
        let (now, mut out) = (Instant::now(), Vec::new());
        match received {
            Some((datagram, _)) if is_data(&datagram) => self.data.open(&datagram),
            Some((datagram, _)) => {
                if let Err(why) = self.session.receive(&datagram, now, &mut out) {
                    eprintln!("client: {why}");
                }
            }
            None => {}
        }
        self.session.activity(self.data.times);
        self.session.expired(now, &mut out);
        self.perform(out);
    }

    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool, what: &str, stock: &Stock) {
        let start = Instant::now();
        while !done(self) {
            let over = self.closed.is_some() || start.elapsed() > PATIENCE;
            assert!(!over, "{what}: {:?}\n{}", self.closed, stock.log());
            self.step();
        }
    }

    pub(crate) fn leave(&mut self) {
        let mut out = Vec::new();
        self.session.leave(Instant::now(), &mut out);
        self.perform(out);
        while self.closed.is_none() {
            self.step();
        }
    }
}

type Judge = Box<dyn FnMut(&AuthRequest) -> Decision>;

pub(crate) struct ServerEnd {
    socket: UdpSocket,
    listener: Listener,
    pub(crate) data: Data,
    pub(crate) renewed: u32,
    pub(crate) closed: Option<CloseReason>,
    pub(crate) judge: Judge,
}

impl ServerEnd {
    pub(crate) fn begin(settings: ServerSettings, wrap: WrapSettings) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let settings = ListenerSettings::new(Arc::new(settings), wrap);
        Self {
            socket,
            listener: Listener::new(settings, Instant::now(), SystemTime::now()),
            data: Data::default(),
            renewed: 0,
            closed: None,
            judge: Box::new(|_| Decision::Accept),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.socket.local_addr().unwrap().port()
    }

    fn perform(&mut self, out: Vec<ServerOutput>) {
        let mut waiting = std::collections::VecDeque::from(out);
        while let Some(output) = waiting.pop_front() {
            let (client, output) = match output {
                ServerOutput::Send { to, datagram, .. } => {
                    let _ = self.socket.send_to(&datagram, to.address);
                    continue;
                }
                ServerOutput::Started { .. } => continue,
                ServerOutput::Client { client, output } => (client, output),
            };
            let (now, mut more) = (Instant::now(), Vec::new());
            match self.data.perform(output) {
                Some(Output::SendPing) => {
                    let to = self.listener.remote(client);
                    if let (Some(to), Some(packet)) = (to, self.data.ping()) {
                        let _ = self.socket.send_to(&packet, to.address);
                    }
                }
                Some(Output::Authenticate(request)) => {
                    let decision = (self.judge)(&request);
                    self.listener.with(client, &mut more, |session, out| {
                        session.authenticated(request.id, decision, now, out);
                    });
                }
                Some(Output::PushRequested) => {
                    let options = [
                        "topology subnet",
                        "ifconfig 10.8.0.2 255.255.255.0",
                        "ping 1",
                        "ping-restart 60",
                    ];
                    let options = PushOptions {
                        options: options.map(str::to_owned).to_vec(),
                        tun_mtu: Some(1500),
                        peer_id: Some(client.0),
                    };
                    self.listener.with(client, &mut more, |session, out| {
                        session.push(&options, now, out);
                    });
                }
                Some(Output::Renegotiated { .. }) => self.renewed += 1,
                Some(Output::Closed(reason)) => self.closed = Some(reason),
                _ => {}
            }
            waiting.extend(more);
        }
    }

    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool, what: &str, stock: &Stock) {
        let start = Instant::now();
        while !done(self) {
            let over = self.closed.is_some() || start.elapsed() > PATIENCE;
            assert!(!over, "{what}: {:?}\n{}", self.closed, stock.log());
            let received = wait(&self.socket, self.listener.next_deadline());
            let (now, mut out) = (Instant::now(), Vec::new());
            match received {
                Some((datagram, _)) if is_data(&datagram) => self.data.open(&datagram),
                Some((datagram, from)) => {
                    if let Err(why) =
                        self.listener
                            .receive(&datagram, Remote::udp(from), None, now, &mut out)
                    {
                        eprintln!("server: {why}");
                    }
                }
                None => {}
            }
            let times = self.data.times;
            self.listener.expired(now, |_| times, &mut out);
            self.perform(out);
        }
    }
}
