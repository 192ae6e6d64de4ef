//! Floods against an OpenVPN server: they cost little memory and few log lines, keep no client out, and the server
//! returns the memory afterwards.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::{Net, pings, until};
use lab::openvpn::{
    KeyKind, OpenVpn as _, READY_LINE, RunningOpenVpn, Setup, StockOpenVpn, Transport,
};
use lab::{Host, Link, LinkOptions};

/// Log text of both ends about each TLS handshake.
const HANDSHAKE: &str = "Control Channel: TLSv1";

/// Maximum memory that strangers may cost, in bytes, as docs/architecture/security.md says.
const MEMORY: usize = 8_000_000;

/// Resident bytes of a process that belong to no file.
fn anonymous(server: &RunningOpenVpn<'_>) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.id())).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<usize>().unwrap() << 10
}

fn lines(server: &RunningOpenVpn<'_>) -> usize {
    server.process.stdout().lines().count()
}

/// Builds a control packet of session `name`.
fn packet(opcode: u8, name: [u8; 8], rest: &[&[u8]]) -> Vec<u8> {
    [&[opcode << 3], &name[..], &rest.concat()].concat()
}

fn reset(name: [u8; 8]) -> Vec<u8> {
    packet(7, name, &[&[0; 5]])
}

/// Packets that follow the server's answer to a reset: the beginning of an endless `ClientHello`.
fn endless_hello(name: [u8; 8], answer: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    // A record of 16,000 bytes, inside it a message of 60,000.
    let mut hello = vec![22, 3, 1, 0x3e, 0x80, 1, 0, 0xea, 0x60, 3, 3];
    hello.resize(12_000, 7);
    let theirs = answer[1..9].to_vec();
    (1_u32..11).map(move |number| {
        let part = &hello[1200 * (number as usize - 1)..][..1200];
        packet(
            4,
            name,
            &[&[1, 0, 0, 0, 0], &theirs, &number.to_be_bytes(), part],
        )
    })
}

/// A stranger that opens sessions over UDP, continues each answered one, and completes none. Few resets stay
/// unanswered, so that a slow machine can keep up.
#[derive(Default)]
struct OverUdp {
    unanswered: VecDeque<(UdpSocket, [u8; 8])>,
    sessions: Vec<UdpSocket>,
    /// Sends without waiting for answers.
    full_speed: bool,
}

impl OverUdp {
    fn begin(&mut self, from: IpAddr, to: SocketAddr, number: usize) -> io::Result<()> {
        let socket = UdpSocket::bind((from, 0))?;
        socket.connect(to)?;
        let name = (number as u64 + 1).to_be_bytes();
        socket.send(&reset(name))?;
        self.unanswered.push_back((socket, name));
        if self.unanswered.len() > 50 {
            self.unanswered.pop_front();
        }
        if self.sessions.len() > 600 {
            self.sessions.clear();
        }
        let mut answer = [0; 100];
        for newer in (0..self.unanswered.len()).rev() {
            let Some((socket, name)) = self.unanswered.pop_front() else {
                break;
            };
            // Waits briefly for the newest answer only.
            socket.set_nonblocking(newer > 0 || self.full_speed)?;
            socket.set_read_timeout(Some(Duration::from_millis(2)))?;
            if socket.recv(&mut answer).is_ok() && answer[0] >> 3 == 8 {
                for packet in endless_hello(name, &answer) {
                    socket.send(&packet)?;
                }
                self.sessions.push(socket);
            } else {
                self.unanswered.push_back((socket, name));
            }
        }
        Ok(())
    }
}

/// Hellos over TCP. The stranger takes no answers, and leaves its last record unfinished. It waits for the first answer
/// of each connection, so that a slow machine can keep up.
struct OverTcp(VecDeque<TcpStream>);

impl OverTcp {
    fn begin(&mut self, from: IpAddr, to: SocketAddr, number: usize) -> io::Result<()> {
        let options = netio::tcp::TcpOptions {
            local: Some((from, 0).into()),
            ..Default::default()
        };
        let connecting = netio::tcp::Connecting::new(to, &options).map_err(io::Error::other)?;
        until("a connection", || connecting.is_done().unwrap_or(true));
        let mut stream = connecting.into_stream();
        let mut record = vec![0, 14];
        record.extend(reset((number as u64 + 1).to_be_bytes()));
        // Another 200 resets that get answers, and the beginning of a long record.
        let mut records = record.repeat(200);
        records.extend([15, 0xa0]);
        records.resize(records.len() + 3900, 7);
        // The server may have closed the connection already.
        let _ = stream.write_all(&records);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_millis(100)))?;
        let _ = stream.peek(&mut [0]);
        self.0.push_back(stream);
        if self.0.len() > 1500 {
            self.0.pop_front();
        }
        Ok(())
    }
}

/// A flood that lasts until it is dropped.
struct Flood {
    over: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Flood {
    /// Calls `begin` with one address after the other and an increasing number.
    fn start(
        host: &Host,
        addresses: Vec<IpAddr>,
        mut begin: impl FnMut(IpAddr, usize) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let (over, begun) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (stop, count) = (Arc::clone(&over), Arc::clone(&begun));
        let flood = move || {
            for (number, address) in addresses.iter().cycle().enumerate() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                begin(*address, number)?;
                count.store(number, Ordering::Relaxed);
            }
            Ok(())
        };
        Self {
            over,
            begun,
            thread: Some(host.spawn("flood", flood).unwrap()),
        }
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    fn end(mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Half-open sessions from `hosts` hosts while a client connects over another network. With several senders at full
/// speed, an unoptimised server cannot answer in time; the client then connects afterwards.
fn half_open(transport: Transport, hosts: u8, senders: usize) {
    println!("{transport:?}, {hosts} hosts, {senders} senders");
    let net = Net::new();
    let other = Host::private("other").unwrap();
    let link = LinkOptions::numbered(2);
    Link::new(&other, "eth0", &net.b, "eth1", &link).unwrap();
    let mut setup = Setup {
        transport,
        ..Setup::default()
    };
    setup.server.line("hand-window 10");
    if transport == Transport::Udp {
        // This limit suits a stranger that waits for every answer.
        setup.server.line("connect-freq-initial 10000 1");
    }
    let keys = credentials(KeyKind::Ecdsa);
    let mut file = setup.server_file(&millrace(), keys, net.link.b4()).unwrap();
    file.remove("local");
    let server = millrace().start(&net.b, &file).unwrap();
    // The client's own time limit to connect, in seconds.
    setup.client.line("hand-window 5");
    let file = setup.client_file(&StockOpenVpn, keys, link.b4()).unwrap();
    let inner = setup.inner4(1).to_string();
    let client = StockOpenVpn.start(&other, &file).unwrap();
    pings(&other, &inner, 1);
    client.stop().unwrap();
    let (before, lines_before) = (anonymous(&server), lines(&server));
    let addresses: Vec<IpAddr> = (0..hosts)
        .map(|at| IpAddr::from([192, 168, 1, 100 + at]))
        .collect();
    for address in &addresses {
        net.a.add_address("eth0", *address, 24).unwrap();
    }
    let to = SocketAddr::from((net.link.b4(), 1194));
    let floods: Vec<Flood> = (0..senders)
        .map(|_| {
            let mut over_udp = OverUdp {
                full_speed: senders > 1,
                ..OverUdp::default()
            };
            let mut over_tcp = OverTcp(VecDeque::new());
            Flood::start(
                &net.a,
                addresses.clone(),
                move |from, number| match transport {
                    Transport::Udp => over_udp.begin(from, to, number),
                    Transport::Tcp => over_tcp.begin(from, to, number),
                },
            )
        })
        .collect();
    let begun = || floods.iter().map(Flood::begun).sum::<usize>();
    let mut most = 0;
    until("600 sessions", || {
        most = most.max(anonymous(&server));
        begun() >= 600
    });
    let start_client = || {
        let client = StockOpenVpn.start(&other, &file).unwrap();
        pings(&other, &inner, 3);
        client
    };
    let beside = (senders == 1).then(start_client);
    let before_client = begun();
    until("more", || {
        most = most.max(anonymous(&server));
        begun() >= before_client + if senders == 1 { 300 } else { 5000 }
    });
    let lines = lines(&server) - lines_before;
    let grown = most.saturating_sub(before);
    println!(
        "{before_client} sessions before the client was in, {} KB, {lines} lines",
        grown >> 10
    );
    assert!(grown <= MEMORY, "{} KB for strangers", grown >> 10);
    assert!(lines < 300, "{lines}");
    floods.into_iter().for_each(Flood::end);
    until("the memory is given back", || {
        anonymous(&server) <= before + MEMORY / 3
    });
    let client = beside.unwrap_or_else(start_client);
    pings(&other, &inner, 3);
    assert_eq!(client.said("TLS Error"), 0);
    assert_eq!(client.said(READY_LINE), 1);
}

#[test]
fn half_open_sessions_of_one_host() {
    if ready() {
        half_open(Transport::Udp, 1, 1);
    }
}

#[test]
fn half_open_sessions_of_many_hosts() {
    if ready() {
        half_open(Transport::Udp, 100, 1);
    }
}

#[test]
fn half_open_sessions_of_two_senders_at_full_speed() {
    if ready() {
        half_open(Transport::Udp, 100, 2);
    }
}

#[test]
fn half_open_connections_of_one_host() {
    if ready() {
        half_open(Transport::Tcp, 1, 1);
    }
}

#[test]
fn half_open_connections_of_many_hosts() {
    if ready() {
        half_open(Transport::Tcp, 100, 1);
    }
}

/// A forwarder that relays datagrams and answers; once it moves, each datagram leaves from a new port.
struct Mover {
    moves: Arc<AtomicBool>,
    ours: UdpSocket,
    server: SocketAddr,
    client: Option<SocketAddr>,
    sockets: VecDeque<UdpSocket>,
}

impl Mover {
    fn pass(&mut self) -> io::Result<()> {
        let mut buffer = [0; 2048];
        // The socket has a read timeout.
        if let Ok((length, from)) = self.ours.recv_from(&mut buffer) {
            self.client = Some(from);
            if self.moves.load(Ordering::Relaxed) || self.sockets.is_empty() {
                let socket = UdpSocket::bind((self.ours.local_addr()?.ip(), 0))?;
                socket.set_nonblocking(true)?;
                self.sockets.push_front(socket);
                self.sockets.truncate(500);
            }
            self.sockets[0].send_to(&buffer[..length], self.server)?;
        }
        for socket in &self.sockets {
            while let (Ok(length), Some(client)) = (socket.recv(&mut buffer), self.client) {
                self.ours.send_to(&buffer[..length], client)?;
            }
        }
        Ok(())
    }
}

/// Every packet of a client comes from another port. The server stores nothing per port and logs no line for each. When
/// the client stays at one port, both ends renew keys as before.
#[test]
fn a_client_that_changes_its_port_with_every_packet() {
    if !ready() {
        return;
    }
    for stock in [true, false] {
        println!("stock: {stock}");
        let net = Net::new();
        let mut setup = Setup::default();
        setup.server.line("reneg-sec 6");
        let keys = credentials(KeyKind::Ecdsa);
        let file = setup.server_file(&millrace(), keys, net.link.b4()).unwrap();
        let server = millrace().start(&net.b, &file).unwrap();
        let here = net.link.a4();
        let ours = net.a.run(|| UdpSocket::bind((here, setup.port)).unwrap());
        let ours = ours.unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(2)))
            .unwrap();
        let moves = Arc::<AtomicBool>::default();
        let mut mover = Mover {
            moves: Arc::clone(&moves),
            ours,
            server: (net.link.b4(), setup.port).into(),
            client: None,
            sockets: VecDeque::new(),
        };
        let passing = Flood::start(&net.a, vec![here], move |_, _| mover.pass());
        let file = setup.client_file(&StockOpenVpn, keys, here).unwrap();
        let client = match stock {
            true => StockOpenVpn.start(&net.a, &file).unwrap(),
            false => millrace().start(&net.a, &file).unwrap(),
        };
        let inner = setup.inner4(1);
        pings(&net.a, &inner.to_string(), 3);
        moves.store(true, Ordering::Relaxed);
        let (before, lines_before) = (anonymous(&server), lines(&server));
        let load = net
            .a
            .run(|| UdpSocket::bind((IpAddr::from([0; 4]), 0)).unwrap());
        let load = load.unwrap();
        for _ in 0..250 {
            for _ in 0..20 {
                load.send_to(&[7; 100], (inner, 9)).unwrap();
            }
            pings(&net.a, &inner.to_string(), 1);
        }
        let (grown, lines) = (
            anonymous(&server).saturating_sub(before),
            lines(&server) - lines_before,
        );
        println!("5000 ports: {} KB, {lines} lines", grown >> 10);
        assert!(
            grown <= MEMORY && lines < 100,
            "{grown} bytes, {lines} lines"
        );
        moves.store(false, Ordering::Relaxed);
        let handshakes = server.said(HANDSHAKE);
        until("two changes of keys", || {
            server.said(HANDSHAKE) >= handshakes + 2
        });
        pings(&net.a, &inner.to_string(), 3);
        assert_eq!(client.said(READY_LINE), 1);
        passing.end();
    }
}
