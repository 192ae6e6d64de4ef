//! Strangers cause no lasting harm to an OpenVPN server and its clients.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::{
    Directory, Net, NoDescriptors, PATIENCE, PROGRAM, pings, tcp_both_ways, until, until_some,
};
use lab::openvpn::{
    KeyKind, Management, MillraceOpenVpn, OpenVpn as _, READY_LINE, Setup, StockOpenVpn, Transport,
};
use lab::{Host, Link, LinkOptions};
use netio::tcp::{Connecting, TcpOptions};

/// A reset over TCP that begins session `name`.
fn reset(name: u8) -> Vec<u8> {
    let mut record = vec![0, 14, 7 << 3];
    record.extend([name; 8]);
    record.extend([0; 5]);
    record
}

/// Opens a TCP connection from `host` and this port.
fn call(host: &Host, from: SocketAddr, to: SocketAddr) -> TcpStream {
    let options = TcpOptions {
        local: Some(from),
        ..TcpOptions::default()
    };
    let connecting = host.run(|| Connecting::new(to, &options).unwrap()).unwrap();
    until("a connection", || connecting.is_done().unwrap());
    let stream = connecting.into_stream();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A client over UDP and a stranger over TCP share an address and port, as behind a NAT. The stranger's session comes
/// and goes; the client keeps its session, including the control channel.
#[test]
fn a_stranger_over_tcp_does_nothing_to_a_client_at_the_same_address_over_udp() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let (client_at, server_at): (IpAddr, IpAddr) = (net.link.a4(), net.link.b4());
    let mut setup = Setup::default();
    setup.server.line("reneg-sec 0");
    setup.client.line("reneg-sec 2").line("lport 40000");
    let keys = credentials(KeyKind::Ecdsa);
    let mut file = setup.server_file(&millrace(), keys, server_at).unwrap();
    file.remove("local").remove("proto");
    for (port, transport) in [("1194", "udp"), ("1195", "tcp")] {
        file.words("local", [&server_at.to_string(), port, transport]);
    }
    let server = millrace().start(&net.b, &file).unwrap();
    let mut file = setup.client_file(&StockOpenVpn, keys, server_at).unwrap();
    file.remove("nobind");
    let client = StockOpenVpn.start(&net.a, &file).unwrap();
    let inner = setup.inner4(1).to_string();
    pings(&net.a, &inner, 3);

    let mut stranger = call(&net.a, (client_at, 40_000).into(), (server_at, 1195).into());
    stranger.write_all(&reset(7)).unwrap();
    let mut answer = [0; 16];
    stranger.read_exact(&mut answer).unwrap();
    assert_eq!(answer[2] >> 3, 8, "the server's own reset");
    let handshakes = || client.said("Control Channel: TLSv1");
    let before = handshakes();
    until("two changes of keys", || handshakes() >= before + 2);
    pings(&net.a, &inner, 3);
    drop(stranger);
    until("the end of the stranger's session", || {
        server.said("the peer exited") == 1
    });
    let before = handshakes();
    until("a change of keys", || handshakes() > before);
    pings(&net.a, &inner, 3);
    tcp_both_ways(&net.a, &net.b, &inner, 300_000);
    assert_eq!(client.said(READY_LINE), 1);
}

/// The program with a limit on open files.
fn with_open_files(directory: &Directory, most: u32) -> MillraceOpenVpn {
    let text = format!("#!/bin/sh\nulimit -n {most}\nexec {PROGRAM} \"$@\"\n");
    let program = directory.file("millrace", &text);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    MillraceOpenVpn::new(program)
}

fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.peek(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// More connections than file descriptors: they neither fill the log nor keep out a client from another address, and
/// the server idles while they stay open.
#[test]
fn connections_of_one_stranger_take_neither_the_log_nor_the_last_place() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let other = Host::private("other").unwrap();
    let link = LinkOptions::numbered(2);
    Link::new(&other, "eth0", &net.b, "eth1", &link).unwrap();
    let directory = Directory::new();
    let setup = Setup {
        transport: Transport::Tcp,
        ..Setup::default()
    };
    let keys = credentials(KeyKind::Ecdsa);
    let mut file = setup.server_file(&millrace(), keys, net.link.b4()).unwrap();
    file.remove("local");
    let program = with_open_files(&directory, 120);
    let server = program.start(&net.b, &file).unwrap();
    let process = server.process.id();
    assert!(open_files(process) < 60, "room for the test's connections");

    let to: SocketAddr = (net.link.b4(), 1194).into();
    let strangers: Vec<TcpStream> = net
        .a
        .run(|| {
            (0..300)
                .map(|number| {
                    let mut stream = TcpStream::connect(to).unwrap();
                    // Half of them begin a session, which costs them 14 bytes.
                    if number % 2 == 0 {
                        let _ = stream.write_all(&reset(7));
                    }
                    stream
                })
                .collect()
        })
        .unwrap();
    let file = setup.client_file(&StockOpenVpn, keys, link.b4()).unwrap();
    let client = StockOpenVpn.start(&other, &file).unwrap();
    pings(&other, &setup.inner4(1).to_string(), 3);
    assert!(open_files(process) < 120);
    let said = server.process.stdout();
    assert!(said.lines().count() < 1000, "{}", said.lines().count());
    assert_eq!(server.said("Too many open files"), 0);
    drop(strangers);
    let left = |at: usize| open_files(process) <= at;
    until("the connections are closed", || left(60));
    pings(&other, &setup.inner4(1).to_string(), 3);
    assert_eq!(client.said(READY_LINE), 1);
}

/// Without any free descriptor the server closes new connections, logs it once, and waits.
#[test]
fn a_server_without_descriptors_says_so_once() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let setup = Setup {
        transport: Transport::Tcp,
        ..Setup::default()
    };
    let keys = credentials(KeyKind::Ecdsa);
    let file = setup.server_file(&millrace(), keys, net.link.b4()).unwrap();
    let server = millrace().start(&net.b, &file).unwrap();
    let limited = NoDescriptors::of(&net.b, server.process.id());
    let to: SocketAddr = (net.link.b4(), 1194).into();
    let call = || net.a.run(|| TcpStream::connect(to)).unwrap().unwrap();
    let strangers: Vec<TcpStream> = (0..limited.free + 5).map(|_| call()).collect();
    // The server closes these connections instead of letting them wait.
    until("five that are turned away", || {
        strangers.iter().filter(|it| is_closed(it)).count() >= 5
    });
    until("one line of the log", || {
        server.said("connections are refused") == 1
    });
    drop((strangers, limited));
    let file = setup.client_file(&StockOpenVpn, keys, net.link.b4());
    let _client = StockOpenVpn.start(&net.a, &file.unwrap()).unwrap();
    pings(&net.a, &setup.inner4(1).to_string(), 3);
}

/// The management port also closes a connection if no descriptor is free, and accepts the next one once there is one.
#[test]
fn a_management_port_without_descriptors_turns_its_client_away() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let mut setup = Setup {
        transport: Transport::Tcp,
        ..Setup::default()
    };
    setup.server.line(Management::DIRECTIVE);
    let keys = credentials(KeyKind::Ecdsa);
    let file = setup.server_file(&millrace(), keys, net.link.b4()).unwrap();
    let server = millrace().start(&net.b, &file).unwrap();
    let limited = NoDescriptors::of(&net.b, server.process.id());
    let to: SocketAddr = (net.link.b4(), 1194).into();
    let call = || net.a.run(|| TcpStream::connect(to)).unwrap().unwrap();
    // More connections than free descriptors: the count may include a file that was open only briefly.
    let strangers: Vec<TcpStream> = (0..limited.free + 5).map(|_| call()).collect();
    until("no descriptor is free", || strangers.iter().any(is_closed));
    let mut client = UnixStream::connect(server.directory().join(Management::SOCKET)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    until("a line of the log for each port", || {
        server.said("connections are refused") == 2
    });
    drop((strangers, limited));
    let mut port = until_some("the management port", || server.management().ok());
    assert!(port.command("pid").unwrap()[0].contains("pid="));
}

/// Sessions over TCP that the server ends leave no descriptor behind.
#[test]
fn sessions_that_the_server_ends_leave_no_descriptor() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let mut setup = Setup {
        transport: Transport::Tcp,
        ..Setup::default()
    };
    setup.server.line(Management::DIRECTIVE);
    let keys = credentials(KeyKind::Ecdsa);
    let file = setup.server_file(&millrace(), keys, net.link.b4()).unwrap();
    let server = millrace().start(&net.b, &file).unwrap();
    let file = setup.client_file(&StockOpenVpn, keys, net.link.b4());
    let mut client = StockOpenVpn.start(&net.a, &file.unwrap()).unwrap();
    let mut port = server.management().unwrap();
    let process = server.process.id();
    let before = open_files(process);
    for times in 2..7 {
        let said = port.command("kill client").unwrap();
        assert!(said.iter().any(|line| line.contains("SUCCESS")), "{said:?}");
        client.wait_until_ready(times).unwrap();
    }
    until("as many descriptors as before", || {
        open_files(process) <= before
    });
}
