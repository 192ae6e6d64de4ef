//! A complete relay in this process, with clients and targets on the loopback interface, so that no privileges are
//! needed. The test reads the relay's log, and sends this process the signals that users send.

#![cfg(feature = "relay")]
// Every function serves tests only.
#![allow(clippy::unwrap_used)]

use config::relay::{Client, Listen, Relay};
use config::settings::DataplaneSettings;
use config::types::Key32;
use lines::relay::{Key, Tai64n};
use log::{LevelFilter, Log, Metadata, Record};
use nix::sys::signal::{Signal, raise};
use service::relay;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Limit for everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The relay's address: no other test uses it, so that none can take the port.
const ADDRESS: [u8; 4] = [127, 0, 0, 81];

/// Sends the lines of the log to the test.
struct ToTest(Mutex<Sender<String>>);

impl Log for ToTest {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let _ = self.0.lock().unwrap().send(record.args().to_string());
    }

    fn flush(&self) {}
}

fn log_lines() -> Receiver<String> {
    static LOGGER: OnceLock<ToTest> = OnceLock::new();
    let (sender, lines) = mpsc::channel();
    let logger = LOGGER.get_or_init(|| ToTest(Mutex::new(sender)));
    log::set_logger(logger).unwrap();
    log::set_max_level(LevelFilter::Debug);
    lines
}

/// Returns the next line of the log that begins so.
fn wait_for(lines: &Receiver<String>, start: &str) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left);
        let line = line.unwrap_or_else(|_| panic!("the log has no line: {start}"));
        if line.starts_with(start) {
            return line;
        }
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Receives a datagram with this text. Returns its sender.
fn receive(socket: &UdpSocket, text: &str) -> SocketAddr {
    let mut bytes = [0; 64];
    let (length, from) = socket.recv_from(&mut bytes).unwrap();
    assert_eq!(std::str::from_utf8(&bytes[..length]).unwrap(), text);
    from
}

fn hello(key: u8, stamp: u8) -> [u8; 44] {
    Key::new(&[key; 32]).hello(Tai64n([stamp; 12]))
}

fn model(port: u16, target: SocketAddr, clients: &[(&str, u8)]) -> Relay {
    let client = |(name, key): &(&str, u8)| Client {
        name: (*name).to_owned(),
        key: Key32::new([*key; 32]),
        rate: 100_000_000,
        packets: 50_000,
    };
    Relay {
        listen: Listen {
            address: Some(IpAddr::from(ADDRESS)),
            port,
        },
        target: target.into(),
        clients: clients.iter().map(client).collect(),
    }
}

#[test]
fn a_relay_forwards_for_its_clients_and_nobody_else_until_a_signal_ends_it() {
    let lines = log_lines();
    let port = UdpSocket::bind((IpAddr::from(ADDRESS), 0)).unwrap();
    let at = port.local_addr().unwrap();
    drop(port);
    let (targets, clients) = ([socket(), socket()], [socket(), socket()]);
    let address = |socket: &UdpSocket| socket.local_addr().unwrap();
    let first = model(at.port(), address(&targets[0]), &[("a", 1), ("b", 2)]);
    let (answer, answers) = mpsc::channel();
    let running = thread::spawn(move || {
        let again = || answers.recv().unwrap();
        relay::run(first, &DataplaneSettings::default(), &again)
    });
    let words = format!(
        "relaying from port {} to {}",
        at.port(),
        address(&targets[0])
    );
    let line = wait_for(&lines, &words);
    assert!(line.ends_with("for 2 client(s)"), "{line}");

    // A stranger's datagrams go nowhere: the next that arrives is the client's.
    socket().send_to(b"stranger", at).unwrap();
    let [a, b] = &clients;
    for (socket, key, name) in [(a, 1, "a"), (b, 2, "b")] {
        socket.send_to(&hello(key, 1), at).unwrap();
        let place = format!("client {name} is at {}", address(socket));
        wait_for(&lines, &place);
    }
    a.send_to(b"from a", at).unwrap();
    let way_a = receive(&targets[0], "from a");
    b.send_to(b"from b", at).unwrap();
    let way_b = receive(&targets[0], "from b");
    assert_ne!(
        way_a, way_b,
        "the target tells clients apart by their ports"
    );
    // Only the target's answers come back, each to its client.
    targets[1].send_to(b"not the target", way_a).unwrap();
    targets[0].send_to(b"to a", way_a).unwrap();
    targets[0].send_to(b"to b", way_b).unwrap();
    assert_eq!(receive(a, "to a"), at);
    assert_eq!(receive(b, "to b"), at);

    // Whoever has recorded a hello cannot take the client's place, but the client itself can move.
    let moved = socket();
    moved.send_to(&hello(1, 1), at).unwrap();
    let refused = format!("hello from {}: not newer than the last", address(&moved));
    wait_for(&lines, &refused);
    moved.send_to(&hello(9, 1), at).unwrap();
    let refused = format!("hello from {}: of an unknown key", address(&moved));
    wait_for(&lines, &refused);
    moved.send_to(&hello(1, 2), at).unwrap();
    let words = format!(
        "client a has moved from {} to {}",
        address(a),
        address(&moved)
    );
    wait_for(&lines, &words);
    targets[0].send_to(b"to a again", way_a).unwrap();
    assert_eq!(receive(&moved, "to a again"), at);

    // A file that cannot be read changes nothing.
    answer.send(Err("relay.conf:3: no key".to_owned())).unwrap();
    raise(Signal::SIGHUP).unwrap();
    wait_for(&lines, "relay.conf:3: no key; going on as before");
    // The client that stays keeps its place and its port.
    let next = model(at.port(), address(&targets[1]), &[("c", 3), ("a", 1)]);
    answer.send(Ok(next)).unwrap();
    raise(Signal::SIGHUP).unwrap();
    let words = format!("the file was read again: to {}", address(&targets[1]));
    wait_for(&lines, &words);
    b.send_to(b"from b, who is out", at).unwrap();
    moved.send_to(b"from a", at).unwrap();
    assert_eq!(receive(&targets[1], "from a").port(), way_a.port());
    targets[1].send_to(b"to a", way_a).unwrap();
    assert_eq!(receive(&moved, "to a"), at);

    raise(Signal::SIGUSR1).unwrap();
    let of_a = wait_for(&lines, "client a: ");
    let words = format!(
        "client a: at {}; 2 hellos; to the target 2 datagrams",
        address(&moved)
    );
    assert!(of_a.starts_with(&words), "{of_a}");
    assert!(of_a.contains("; back 3 datagrams"), "{of_a}");
    let dropped = wait_for(&lines, "dropped: ");
    for part in [
        "dropped: 2 from strangers",
        " 1 from elsewhere than the target",
        " 1 of unknown keys",
        " 1 not newer than the last",
    ] {
        assert!(dropped.contains(part), "{part}: {dropped}");
    }
    raise(Signal::SIGTERM).unwrap();
    running.join().unwrap().unwrap();
    // As root, the relay has kept the stamps of its hellos.
    let stamps = format!("/run/millrace/relay-{}-{}.stamps", at.ip(), at.port());
    let _ = std::fs::remove_file(stamps);
}

#[test]
fn a_relay_whose_port_is_taken_says_which() {
    let taken = UdpSocket::bind("127.0.0.82:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut model = model(port, ([127, 0, 0, 1], 9).into(), &[("a", 1)]);
    model.listen.address = Some([127, 0, 0, 82].into());
    let again = || panic!("nobody asked for a reload");
    let error = relay::run(model, &DataplaneSettings::default(), &again).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("UDP port {port} is in use by another program: choose another Listen")
    );
}
