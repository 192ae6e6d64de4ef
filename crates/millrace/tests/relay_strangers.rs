//! A relay forwards only for clients with a key: it is not a reflector, and gives others no path to its target.
//!
//! A relay serves each socket in order. The tests follow each datagram to be dropped with one to be forwarded, so that
//! they never wait for silence.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use lab::acceptance::{Directory, Net, PATIENCE, PROGRAM, usable};
use lab::{Host, Process};
use lines::relay::{Key, Tai64n};
use nix::sys::signal::Signal;

/// Keys as bytes, and as written in files.
const KEYS: [(u8, &str); 2] = [
    (b'a', "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="),
    (b'b', "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI="),
];

/// The relay's port, and its target's: both on B.
const PORT: u16 = 51821;
const TARGET: u16 = 51820;

struct World {
    net: Net,
    directory: Directory,
    /// Socket of the relay's target.
    target: UdpSocket,
    /// The relay's address for A.
    at: SocketAddr,
}

fn socket(host: &Host, at: SocketAddr) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn hello(key: usize, stamp: u8) -> Vec<u8> {
    Key::new(&[KEYS[key].0; 32])
        .hello(Tai64n([stamp; 12]))
        .to_vec()
}

/// The next datagram and its source.
fn next(socket: &UdpSocket) -> (String, SocketAddr) {
    let mut bytes = [0; 2048];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    (String::from_utf8_lossy(&bytes[..len]).into_owned(), from)
}

#[track_caller]
fn has_nothing(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    let error = socket.recv_from(&mut [0; 2048]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
}

impl World {
    /// Adds an address of the requested family on B, for the target.
    fn new(called: fn(&Net) -> IpAddr, target: &str) -> Self {
        let net = Net::new();
        let target: IpAddr = target.parse().unwrap();
        let prefix = if target.is_ipv4() { 32 } else { 128 };
        net.b.add_address("lo", target, prefix).unwrap();
        let at = called(&net);
        for (host, address) in [(&net.b, at), (&net.b, target), (&net.a, net.link.a6())] {
            usable(host, &address.to_string());
        }
        Self {
            target: socket(&net.b, (target, TARGET).into()),
            at: (at, PORT).into(),
            net,
            directory: Directory::new(),
        }
    }

    fn file(&self, clients: &str) -> PathBuf {
        let target = self.target.local_addr().unwrap();
        let text = format!("[Relay]\nListen = {PORT}\nTarget = {target}\n{clients}");
        self.directory.file("relay.conf", &text)
    }

    fn relay(&self, clients: &str) -> Process {
        let command = self.net.b.command(PROGRAM).arg("relay");
        let mut relay = command.arg(self.file(clients)).spawn().unwrap();
        said(&mut relay, "relaying from port");
        relay
    }

    /// Opens a sending socket on A.
    fn sender(&self) -> UdpSocket {
        let any: IpAddr = match self.at {
            SocketAddr::V4(_) => [0; 4].into(),
            SocketAddr::V6(_) => [0; 16].into(),
        };
        socket(&self.net.a, (any, 0).into())
    }

    fn send(&self, from: &UdpSocket, bytes: impl AsRef<[u8]>) {
        from.send_to(bytes.as_ref(), self.at).unwrap();
    }

    /// Checks the target's next datagram, and returns its source.
    #[track_caller]
    fn target_gets(&self, words: &str) -> SocketAddr {
        let (text, from) = next(&self.target);
        assert_eq!(text, words);
        from
    }
}

fn said(process: &mut Process, words: &str) -> String {
    let told = process.wait_for_line(words, PATIENCE, |line| line.contains(words));
    told.unwrap()
}

fn client(at: usize, more: &str) -> String {
    format!("[Client]\nName = c{at}\nKey = {}\n{more}", KEYS[at].1)
}

/// Tests each combination of families.
#[test]
fn only_those_with_a_key_are_forwarded_for_and_answered() {
    if !lab::may_enter() {
        return;
    }
    let v4: fn(&Net) -> IpAddr = |net| net.link.b4();
    let v6: fn(&Net) -> IpAddr = |net| net.link.b6();
    for (called, target) in [
        (v4, "203.0.113.9"),
        (v6, "203.0.113.9"),
        (v4, "2001:db8::9"),
        (v6, "2001:db8::9"),
    ] {
        strangers(&World::new(called, target));
    }
}

fn strangers(world: &World) {
    let mut relay = world.relay(&(client(0, "") + &client(1, "")));
    let [c, d, stranger] = [(); 3].map(|()| world.sender());

    // Hellos without key, with an unknown key, and with a wrong MAC.
    world.send(&stranger, "no hello");
    let unknown = Key::new(&[7; 32]).hello(Tai64n([1; 12]));
    let mut forged = hello(0, 200);
    forged[40] ^= 1;
    for bytes in [&unknown[..], &forged, &forged[..20], &hello(0, 200)[..43]] {
        world.send(&stranger, bytes);
        world.send(&stranger, "with a bad hello");
    }
    world.send(&c, hello(0, 1));
    world.send(&c, "one");
    let port = world.target_gets("one");
    // A hello gets no answer, so this is the client's first datagram.
    world.target.send_to(b"answer", port).unwrap();
    assert_eq!(next(&c), ("answer".to_owned(), world.at));

    // A replayed hello does not move the client.
    world.send(&stranger, hello(0, 1));
    world.send(&stranger, "after a replay");
    world.send(&c, "two");
    assert_eq!(world.target_gets("two"), port);
    world.target.send_to(b"still here", port).unwrap();
    assert_eq!(next(&c).0, "still here");

    // The relay's port towards the target accepts datagrams from the target only.
    let other = socket(
        &world.net.b,
        (world.target.local_addr().unwrap().ip(), 0).into(),
    );
    other.send_to(b"not the target", port).unwrap();
    world.target.send_to(b"the target", port).unwrap();
    assert_eq!(next(&c).0, "the target");

    // Each client has its own port towards the target, and gets its own answers.
    world.send(&d, hello(1, 1));
    world.send(&d, "of another");
    let second = world.target_gets("of another");
    assert_ne!(second, port);
    world.target.send_to(b"to another", second).unwrap();
    assert_eq!(next(&d).0, "to another");

    // A moved client keeps its port towards the target; its old address no longer works.
    let moved = world.sender();
    world.send(&moved, hello(0, 2));
    world.send(&c, "from the old address");
    world.send(&moved, "three");
    assert_eq!(world.target_gets("three"), port);
    world.target.send_to(b"moved", port).unwrap();
    assert_eq!(next(&moved).0, "moved");

    for it in [&stranger, &c, &d, &moved, &other] {
        has_nothing(it);
    }
    has_nothing(&world.target);
    relay.signal(Signal::SIGUSR1).unwrap();
    let dropped = said(&mut relay, "dropped: ");
    for words in [
        "7 from strangers",
        "1 not from the target",
        "1 with unknown keys",
        "1 not newer",
    ] {
        assert!(dropped.contains(words), "{dropped}");
    }
    let exit = relay.stop().unwrap();
    let log = exit.stderr.clone();
    exit.success().unwrap();
    for (_, key) in KEYS {
        assert!(!log.contains(key), "{log}");
    }
}

#[test]
fn a_client_gets_no_more_through_than_its_rate() {
    if !lab::may_enter() {
        return;
    }
    let world = World::new(|net| net.link.b4(), "203.0.113.9");
    let mut relay = world.relay(&(client(0, "Packets = 1\n") + &client(1, "")));
    let (c, d) = (world.sender(), world.sender());
    world.send(&c, hello(0, 1));
    world.send(&d, hello(1, 1));
    // The rate limit passes a burst of 64, and one datagram a second besides.
    for _ in 0..500 {
        world.send(&c, "of one");
    }
    world.send(&d, "of the other");
    let came = std::iter::repeat_with(|| next(&world.target).0);
    let passed = came.take_while(|words| words == "of one").count();
    assert!((64..500).contains(&passed), "{passed}");
    relay.signal(Signal::SIGUSR1).unwrap();
    let told = said(&mut relay, "client c0: ");
    assert!(
        told.contains(&format!("to the target {passed} datagrams")),
        "{told}"
    );
    let over = format!("{} dropped over the rate", 500 - passed);
    assert!(told.contains(&over), "{told}");
    relay.stop().unwrap().success().unwrap();
}

#[test]
fn keys_are_read_again_and_those_that_stay_are_not_disturbed() {
    if !lab::may_enter() {
        return;
    }
    let world = World::new(|net| net.link.b4(), "203.0.113.9");
    let mut relay = world.relay(&client(0, ""));
    let (c, d) = (world.sender(), world.sender());
    world.send(&c, hello(0, 1));
    world.send(&c, "one");
    let port = world.target_gets("one");

    world.file(&(client(1, "") + &client(0, "")));
    relay.signal(Signal::SIGHUP).unwrap();
    said(
        &mut relay,
        "read again: relaying to 203.0.113.9:51820, for 2 client(s)",
    );
    world.send(&c, "two");
    assert_eq!(world.target_gets("two"), port);
    world.send(&d, hello(1, 1));
    world.send(&d, "three");
    assert_ne!(world.target_gets("three"), port);

    world.file("[Client]\nName = c0\n");
    relay.signal(Signal::SIGHUP).unwrap();
    let told = said(&mut relay, "the old configuration stays in use");
    assert!(told.contains("relay.conf:4: Key: is missing"), "{told}");
    world.send(&d, "four");
    world.target_gets("four");

    world.file(&client(1, ""));
    relay.signal(Signal::SIGHUP).unwrap();
    said(&mut relay, "for 1 client(s)");
    relay
        .wait_for_lines("two", 2, PATIENCE, |line| line.contains("for 1 client(s)"))
        .unwrap();
    world.send(&c, hello(0, 2));
    world.send(&c, "of a key that is gone");
    world.send(&d, "five");
    world.target_gets("five");
    // Sends SIGINT, as Ctrl-C does.
    relay.signal(Signal::SIGINT).unwrap();
    relay.wait().unwrap().success().unwrap();
}
