//! What strangers can do to an OpenVPN server and its clients: nothing that lasts.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};

use common::openvpn::{credentials, millrace, ready};
use common::{Net, PATIENCE, pings, tcp_both_ways, until};
use lab::Host;
use lab::openvpn::{KeyKind, OpenVpn as _, READY_LINE, Setup, StockOpenVpn};
use netio::tcp::{Connecting, TcpOptions};

/// What begins a session, as a record of TCP: a reset whose session is called `name`.
fn reset(name: u8) -> Vec<u8> {
    let mut record = vec![0, 14, 7 << 3];
    record.extend([name; 8]);
    record.extend([0; 5]);
    record
}

/// A TCP connection from `host`, out of this port.
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

/// A client over UDP and a stranger over TCP have one address and port, as behind a NAT: the stranger's session comes
/// and goes, and the client keeps its own, control channel and all.
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
        server.said("the peer exits") == 1
    });
    let before = handshakes();
    until("a change of keys", || handshakes() > before);
    pings(&net.a, &inner, 3);
    tcp_both_ways(&net.a, &net.b, &inner, 300_000);
    assert_eq!(client.said(READY_LINE), 1);
}
