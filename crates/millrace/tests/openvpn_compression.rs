//! Packets compressed by a stock peer arrive. Where compression is not allowed, Millrace drops them and logs it.
//! Millrace never compresses. A client follows the framing that a server pushes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;

use lab::Host;
use lab::acceptance::openvpn::{Ends, Pair, ready};
use lab::acceptance::{Net, PATIENCE, ip, pings_of};
use lab::openvpn::{RunningOpenVpn, Setup, Transport};

const UNPACKED: &str = "compresses packets; they are accepted";
const DROPPED: &str = "not agreed or allowed; they are dropped";
const UNFRAMED: &str = "lack the agreed framing of comp-lzo or compress; they are dropped";

/// Text without repeated lines; each packet shrinks to half when compressed.
fn text() -> Vec<u8> {
    let line = |number| format!("line {number} is much like the line that was before this one\n");
    (0..6000).map(line).collect::<String>().into_bytes()
}

/// Sends the text over TCP from one host to the other, and compares what arrives.
fn carries_text(from: &Host, to: &Host, target: &str) {
    let listener = to.run(|| TcpListener::bind((ip(target), 0)));
    let listener = listener.unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let stream = from.run(|| TcpStream::connect_timeout(&at, PATIENCE));
            let mut stream = stream.unwrap().unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&text()).unwrap();
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == text(), "other text than was sent");
    });
}

/// Sends pings of both extreme sizes and the text, in both directions.
fn carries_all_sizes(ends: &Ends<'_>) {
    let client4 = ends.setup.inner4(2).to_string();
    let (client, server) = (ends.client.host(), ends.server.host());
    for (from, to, target) in [(client, server, &ends.server4), (server, client, &client4)] {
        pings_of(from, target, 3, 0);
        // Fills the MTU of 1500 bytes.
        pings_of(from, target, 3, 1472);
        carries_text(from, to, target);
    }
}

/// A tunnel with these lines at both ends, where the stock end may compress.
fn setup(lines: &str, transport: Transport, fragment: Option<u16>) -> Setup {
    let mut setup = Setup {
        transport,
        fragment,
        ..Setup::default()
    };
    for file in [&mut setup.server, &mut setup.client] {
        for line in lines.lines() {
            file.line(line);
        }
    }
    setup
}

/// The Millrace end of the pair.
fn ours<'e, 'h>(ends: &'e Ends<'h>, pair: Pair) -> &'e RunningOpenVpn<'h> {
    match pair {
        Pair::Client => &ends.client,
        _ => &ends.server,
    }
}

#[test]
fn what_a_stock_peer_compresses_is_unpacked() {
    if !ready() {
        return;
    }
    let cases = [
        ("comp-lzo yes", Transport::Udp, None),
        ("comp-lzo yes", Transport::Tcp, None),
        ("compress lzo", Transport::Udp, None),
        ("compress lz4", Transport::Udp, None),
        ("compress lz4", Transport::Tcp, None),
        ("compress lz4-v2", Transport::Udp, None),
        ("comp-lzo yes", Transport::Udp, Some(900)),
        ("compress lz4", Transport::Udp, Some(900)),
    ];
    for (number, (framing, transport, fragment)) in cases.into_iter().enumerate() {
        let pairs = [Pair::Client, Pair::Server];
        // With fragments only one pair is tested.
        let pairs = if fragment.is_some() {
            &pairs[number % 2..][..1]
        } else {
            &pairs
        };
        for &pair in pairs {
            println!("{framing}, {transport:?}, {fragment:?}, {pair:?}");
            let net = Net::new();
            let lines = format!("{framing}\nallow-compression yes");
            let setup = setup(&lines, transport, fragment);
            let ends = Ends::new(&net, &setup, pair.programs(false));
            let (client, server) = (ends.client.host(), ends.server.host());
            let client4 = ends.setup.inner4(2).to_string();
            carries_text(client, server, &ends.server4);
            carries_text(server, client, &client4);
            ends.carries(100_000);
            assert_eq!(ours(&ends, pair).said(UNPACKED), 1);
            assert_eq!(ours(&ends, pair).said(DROPPED), 0);
        }
    }
}

/// Sends compressible text from the server to a port without listener; the client drops the packet before that.
fn server_sends_text(net: &Net, ends: &Ends<'_>) {
    let client4 = ends.setup.inner4(2).to_string();
    let socket = net.b.run(|| UdpSocket::bind(("0.0.0.0", 0)));
    let socket = socket.unwrap().unwrap();
    socket.send_to(&text()[..1000], (ip(&client4), 9)).unwrap();
}

#[test]
fn where_compression_is_not_allowed_the_log_says_what_is_dropped() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let mut setup = setup("comp-lzo yes", Transport::Udp, None);
    setup.server.line("allow-compression yes");
    setup.client.line("allow-compression no");
    let mut ends = Ends::new(&net, &setup, Pair::Client.programs(false));
    server_sends_text(&net, &ends);
    ends.client.wait_for_lines(DROPPED, 1).unwrap();
    assert_eq!(ends.client.said(UNPACKED), 0);
}

#[test]
fn where_the_server_does_not_frame_what_it_pushes_the_log_says_so() {
    if !ready() {
        return;
    }
    for transport in [Transport::Udp, Transport::Tcp] {
        let net = Net::new();
        let mut setup = setup("", transport, None);
        setup.server.words("push", ["comp-lzo no"]);
        let mut ends = Ends::new(&net, &setup, Pair::Client.programs(false));
        server_sends_text(&net, &ends);
        ends.client.wait_for_lines(UNFRAMED, 1).unwrap();
    }
}

#[test]
fn a_pushed_framing_needs_no_line_in_the_clients_file() {
    if !ready() {
        return;
    }
    // A stock server does not frame what it only pushes: its own client, too, needs the filter.
    let cases = [("comp-lzo no", ""), ("", "pull-filter ignore comp")];
    for transport in [Transport::Udp, Transport::Tcp] {
        for (server, client) in cases {
            println!("{transport:?}, server: {server:?}, client: {client:?}");
            let net = Net::new();
            let mut setup = setup("", transport, None);
            setup.server.words("push", ["comp-lzo no"]).verbatim(server);
            setup.client.verbatim(client);
            let ends = Ends::new(&net, &setup, Pair::Client.programs(false));
            carries_all_sizes(&ends);
            ends.carries(100_000);
            for complaint in [UNPACKED, DROPPED, UNFRAMED] {
                assert_eq!(ends.client.said(complaint), 0);
            }
        }
    }
}
