//! A public relay: floods from thousands of addresses cost a few log lines and little memory, and it still serves a
//! client. It also does so beside a client that moves with each hello. A host that sent no hello gets at most a
//! client's rate. Clients are answered from the address to which they send.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use lab::acceptance::exposed::{Exposed, Payloads};
use lab::acceptance::forged::{Random, frame, mac_of, seen};
use lab::acceptance::{Directory, PATIENCE, PROGRAM, until, until_some, usable};
use lab::{Host, Process};
use lines::relay::{Key, Tai64n};
use netio::packet::PacketSocket;
use nix::sys::signal::Signal;

/// The clients' keys.
const KEYS: [u8; 2] = [b'a', b'b'];

/// The relay's port, and its target's: both on B.
const PORT: u16 = 51821;
const TARGET: u16 = 51820;

/// A client on A, and a relay and its target on B.
struct World {
    net: Exposed,
    directory: Directory,
    target: UdpSocket,
    client: UdpSocket,
    /// The timestamp of the client's last hello.
    stamp: Cell<u64>,
    /// Number of other senders' datagrams that reached the target.
    of_others: Cell<usize>,
}

fn socket(host: &Host, at: SocketAddr) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    socket
}

fn hello(key: u8, stamp: u64) -> Vec<u8> {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&stamp.to_be_bytes());
    Key::new(&[key; 32]).hello(Tai64n(bytes)).to_vec()
}

/// The next datagram, if one comes soon, and its source.
fn next(socket: &UdpSocket) -> Option<(String, SocketAddr)> {
    let mut bytes = [0; 2048];
    match socket.recv_from(&mut bytes) {
        Ok((len, from)) => Some((String::from_utf8_lossy(&bytes[..len]).into_owned(), from)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

impl World {
    fn new() -> Self {
        let net = Exposed::new();
        Self {
            target: socket(&net.b, ([127, 0, 0, 1], TARGET).into()),
            client: socket(&net.a, ([0; 4], 0).into()),
            directory: Directory::new(),
            net,
            stamp: Cell::new(0),
            of_others: Cell::new(0),
        }
    }

    fn relay(&self) -> Process {
        let keys = [
            "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=",
            "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=",
        ];
        let clients = keys.iter().enumerate().map(|(number, key)| {
            format!("[Client]\nName = c{number}\nKey = {key}\nPackets = 100\n")
        });
        let clients: String = clients.collect();
        let text = format!("[Relay]\nListen = {PORT}\nTarget = 127.0.0.1:{TARGET}\n{clients}");
        let file = self.directory.file("relay.conf", &text);
        let command = self.net.b.command(PROGRAM).args(["-vv", "relay"]);
        let mut relay = command.arg(file).spawn().unwrap();
        let words = "relaying from port";
        relay
            .wait_for_line(words, PATIENCE, |line| line.contains(words))
            .unwrap();
        relay
    }

    /// Sends a hello to this address of the relay, and checks both directions. Returns the relay's port towards the
    /// target.
    fn is_served(&self, at: IpAddr) -> SocketAddr {
        let at = SocketAddr::new(at, PORT);
        let mut link = None;
        until("an answer to the client", || {
            let stamp = self.stamp.get() + 1;
            self.stamp.set(stamp);
            let words = format!("question {stamp}");
            for bytes in [&hello(KEYS[0], stamp), words.as_bytes()] {
                self.client.send_to(bytes, at).unwrap();
            }
            // Answers to earlier attempts may come first.
            while let Some((text, from)) = next(&self.target) {
                let of_other = usize::from(!text.starts_with("question"));
                self.of_others.set(self.of_others.get() + of_other);
                link = Some(from);
                self.target.send_to(b"answer", from).unwrap();
                if text == words {
                    break;
                }
            }
            next(&self.client).is_some_and(|answer| {
                assert_eq!(answer, ("answer".to_owned(), at));
                true
            })
        });
        while next(&self.client).is_some() {}
        link.unwrap()
    }

    /// Attacks the relay while it serves the client.
    fn attack(&self, relay: &Process, attack: (&str, Payloads)) {
        self.net.attack((relay, PORT), attack, || {
            self.is_served(self.net.link.b4());
        });
    }
}

fn end(relay: Process) {
    relay.stop().unwrap().success().unwrap();
}

#[test]
fn strangers_cost_little_get_nothing_and_lock_nobody_out() {
    if !lab::may_enter() {
        return;
    }
    let world = World::new();
    let relay = world.relay();
    world.is_served(world.net.link.b4());
    let tap = world.net.tap();
    let attacks: [(&str, Payloads); 5] = [
        (
            "hellos of unknown keys",
            Box::new(|random| hello(random.number() as u8 | 0x80, 1 << 40)),
        ),
        (
            "hellos with a wrong MAC",
            Box::new(|_| {
                let mut forged = hello(KEYS[0], 1 << 40);
                forged[40] ^= 1;
                forged
            }),
        ),
        ("a recorded hello", Box::new(|_| hello(KEYS[0], 1))),
        (
            "malformed hellos",
            Box::new(|random| {
                let length = 4 + random.number() as usize % 40;
                hello(KEYS[0], 1 << 40)[..length].to_vec()
            }),
        ),
        (
            "data of strangers",
            Box::new(|random| {
                let length = random.number() as usize % 1400;
                random.bytes(length)
            }),
        ),
    ];
    for attack in attacks {
        world.attack(&relay, attack);
    }
    assert_eq!((seen(&tap, PORT), world.of_others.get()), (vec![], 0));
    let told = relay.stderr();
    assert!(told.contains("hello from 11."), "{told}");
    end(relay);
}

#[test]
fn a_client_that_moves_with_each_hello_costs_little_and_locks_nobody_out() {
    if !lab::may_enter() {
        return;
    }
    let world = World::new();
    let relay = world.relay();
    world.is_served(world.net.link.b4());
    let mut stamp = 0;
    let payloads = move |_: &mut Random| {
        stamp += 1;
        hello(KEYS[1], stamp)
    };
    world.attack(&relay, ("a client that moves", Box::new(payloads)));
    assert!(relay.stderr().contains("client c1 moved"));
    end(relay);
}

/// An on-path attacker records a client's hello and a datagram, and replays both from a victim's address. A restarted
/// relay recognises the hello. After a reboot it accepts the hello; the victim then gets at most the client's rate, and
/// nothing after the client's next hello.
#[test]
fn a_recorded_hello_leads_no_more_to_a_victim_than_the_rate() {
    if !lab::may_enter() {
        return;
    }
    let world = World::new();
    let relay = world.relay();
    let at = world.net.link.b4();
    world.is_served(at);
    let recorded = hello(KEYS[0], world.stamp.get());
    let macs = [
        mac_of(&world.net.attacker, "eth0"),
        mac_of(&world.net.b, "eth1"),
    ];
    let victim = (Ipv4Addr::new(11, 1, 2, 3), 7);
    let open = || PacketSocket::open("eth0");
    let injector = world.net.attacker.run(open).unwrap().unwrap();
    let tap = world.net.tap();
    let to = (world.net.called(), PORT);
    let replay = || {
        for payload in [recorded.as_slice(), b"of a victim"] {
            let frame = frame(macs, victim, to, payload);
            until("room for a frame", || injector.send(&frame).is_ok());
        }
    };
    let kill = |relay: Process| {
        relay.signal(Signal::SIGKILL).unwrap();
        relay.wait_at_most(PATIENCE).unwrap();
    };

    kill(relay);
    let relay = world.relay();
    replay();
    // The relay serves its sockets in order: no datagram of the victim's came before this one.
    world.is_served(at);
    assert_eq!((seen(&tap, PORT), world.of_others.get()), (vec![], 0));

    kill(relay);
    let stamps = || std::fs::remove_file("/run/millrace/relay-any-51821.stamps");
    world.net.b.run(stamps).unwrap().unwrap();
    let relay = world.relay();
    let (_, link) = until_some("the victim's question", || {
        replay();
        next(&world.target)
    });
    // 100 datagrams a second, and a burst of 64.
    let began = Instant::now();
    for _ in 0..5_000 {
        world.target.send_to(b"answer", link).unwrap();
    }
    let served = world.is_served(at);
    assert_eq!(served, link, "the client's own port");
    let took = began.elapsed().as_secs() + 1;
    let came = seen(&tap, PORT).len() as u64;
    assert!(came <= 64 + 100 * took, "{came} datagrams in {took} s");
    for _ in 0..100 {
        world.target.send_to(b"answer", link).unwrap();
    }
    world.is_served(at);
    assert_eq!(seen(&tap, PORT), []);
    end(relay);
}

/// The address that clients send to is the cable's second one, or belongs to another device.
#[test]
fn clients_are_answered_from_the_address_that_they_call() {
    if !lab::may_enter() {
        return;
    }
    let mut world = World::new();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let called = [
        ("eth0", ip("192.168.1.22"), 24),
        ("eth0", ip("fd00:1::22"), 64),
        ("lo", ip("203.0.113.7"), 32),
        ("lo", ip("2001:db8::7"), 128),
    ];
    for (device, address, prefix) in called {
        world.net.b.add_address(device, address, prefix).unwrap();
        usable(&world.net.b, &address.to_string());
        let via = match address {
            IpAddr::V4(_) => world.net.link.b4(),
            IpAddr::V6(_) => world.net.link.b6(),
        };
        if device != "eth0" {
            world.net.a.add_route((address, prefix), via).unwrap();
        }
    }
    usable(&world.net.a, &world.net.link.a6().to_string());
    let relay = world.relay();
    let own = [world.net.link.b4(), world.net.link.b6()];
    let called = called.map(|(_, address, _)| address);
    for address in called.into_iter().chain(own) {
        let any: IpAddr = match address {
            IpAddr::V4(_) => [0; 4].into(),
            IpAddr::V6(_) => [0; 16].into(),
        };
        world.client = socket(&world.net.a, (any, 0).into());
        // The relay also answers with a burst.
        let link = world.is_served(address);
        for _ in 0..20 {
            world.target.send_to(b"answer", link).unwrap();
        }
        for _ in 0..20 {
            let (_, from) = until_some("an answer", || next(&world.client));
            assert_eq!(from, (address, PORT).into());
        }
    }
    end(relay);
}
