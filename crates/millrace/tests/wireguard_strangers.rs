//! A public WireGuard server: floods from thousands of addresses cost a few log lines and little memory, and a client
//! still connects. The same holds for a peer that moves with each packet, and with AmneziaWG's settings.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crypto::header_key::HeaderKey;
use crypto::x25519::{PrivateKey, PublicKey};
use crypto::{Key, aead};
use lab::acceptance::exposed::{Exposed, MEMORY, Payloads};
use lab::acceptance::forged::{PAYLOAD, Pace, Random, anonymous_memory, sign};
use lab::acceptance::{
    A4, B4, Directory, PATIENCE, PORT_A, PORT_B, PROGRAM, hex, internet_checksum, key_bytes,
    reaches, ready, status_of,
};
use lab::peer::Keys;
use lab::{Host, Process};
use netio::packet::{FrameBatch, PacketSocket};
use nix::sys::signal::Signal;
use wireguard::amnezia::{Profile, Settings};
use wireguard::message::TAG_LEN;
use wireguard::{DATA_HEADER_LEN, DataHeader, Device, Output};

/// Inner address of the moving peer.
const MOVING: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 66);

/// A client on A, a server on B, and a peer that moves.
struct World {
    net: Exposed,
    directory: Directory,
    client: Keys,
    server: Keys,
    moving: Keys,
    /// Lines of both files' `[Interface]`: settings of AmneziaWG.
    settings: String,
}

impl World {
    fn new() -> Self {
        Self::with("")
    }

    fn with(settings: &str) -> Self {
        let net = Exposed::new();
        let keys = || Keys::generate(&net.a).unwrap();
        Self {
            client: keys(),
            server: keys(),
            moving: keys(),
            directory: Directory::new(),
            settings: settings.to_owned(),
            net,
        }
    }

    fn up(&self, host: &Host, name: &str, text: &str) -> Process {
        let file = self.directory.file(name, text);
        let command = host.command(PROGRAM).args(["-vv", "up"]).arg(file);
        let mut process = command.spawn().unwrap();
        process
            .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
            .unwrap();
        process
    }

    /// Starts the server, with `head` as the first lines of its file.
    fn server(&self, head: &str) -> Process {
        let text = format!(
            "{head}[Interface]\nPrivateKey = {}\nListenPort = {PORT_B}\nAddress = {B4}/24\n{}\
             [Peer]\nPublicKey = {}\nAllowedIPs = {A4}/32\n\
             [Peer]\nPublicKey = {}\nAllowedIPs = {MOVING}/32\n",
            self.server.private, self.settings, self.client.public, self.moving.public,
        );
        self.up(&self.net.b, "wg1.conf", &text)
    }

    fn client(&self) -> Process {
        let text = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = {PORT_A}\nAddress = {A4}/24\n{}\
             [Peer]\nPublicKey = {}\nEndpoint = {}:{PORT_B}\nAllowedIPs = {B4}/32\n",
            self.client.private,
            self.settings,
            self.server.public,
            self.net.link.b4(),
        );
        self.up(&self.net.a, "wg0.conf", &text)
    }

    /// Attacks the server; a new client still connects meanwhile.
    fn attack(&self, server: &Process, attack: (&str, Payloads)) {
        let name = attack.0;
        self.net.attack((server, PORT_B), attack, || {
            let began = Instant::now();
            let client = self.client();
            reaches(&self.net.a, B4);
            println!("{name}: connected in {:?}", began.elapsed());
            end(client);
        });
    }

    /// Attacks the server in each of these ways.
    fn attacks<const N: usize>(&self, server: &Process, attacks: [(&str, Payloads); N]) {
        let before = anonymous_memory(server);
        for attack in attacks {
            self.attack(server, attack);
        }
        let grown = anonymous_memory(server).saturating_sub(before);
        assert!(grown <= MEMORY, "{grown} bytes in the end");
    }

    /// Opens a session of the moving peer: the server's index, and the sending key.
    fn session(&self) -> (u32, Key) {
        let at = SocketAddr::new(self.net.called().into(), PORT_B);
        let socket = || UdpSocket::bind((self.net.cable.a4(), 0));
        let socket = self.net.attacker.run(socket).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let initiation = self.initiation(key_bytes(&self.moving.private));
        let (mut device, sent) = initiation;
        socket.send_to(&sent, at).unwrap();
        let mut response = [0; 200];
        let (length, _) = socket.recv_from(&mut response).unwrap();
        let mut out = Vec::new();
        let response = &response[..length];
        device
            .receive(response, at, Instant::now(), false, &mut out)
            .unwrap();
        let keys = out.into_iter().find_map(|output| match output {
            Output::AddKeys { keys, .. } => Some((keys.remote, keys.material.seal.clone())),
            _ => None,
        });
        keys.unwrap()
    }

    /// Builds an initiation from this key to the server, and the device that waits for the answer.
    fn initiation(&self, key: [u8; 32]) -> (Device, Vec<u8>) {
        let (now, mut out) = (Instant::now(), Vec::new());
        let mut device = Device::new(now, SystemTime::now(), 1);
        device.set_private_key(Some(PrivateKey::new(key)), now, &mut out);
        device.set_profile(self.profile(), now, &mut out);
        let peer = device.add_peer(PublicKey::from(key_bytes(&self.server.public)));
        let peer = peer.unwrap();
        device.set_endpoint(peer, Some(([192, 0, 2, 1], 1).into()), now, &mut out);
        device.need_session(peer, now, &mut out);
        let sent = out.into_iter().find_map(|output| match output {
            Output::Send { datagram, .. } => Some(datagram.as_bytes().to_vec()),
            _ => None,
        });
        (device, sent.unwrap())
    }

    fn profile(&self) -> Option<Arc<Profile>> {
        let mut settings = Settings::default();
        for (name, value) in self.settings.lines().filter_map(|it| it.split_once(" = ")) {
            let value = match name {
                "HeaderProtectionKey" => hex(value),
                _ => value.to_owned(),
            };
            settings.set(name, &value).unwrap();
        }
        Profile::new(settings).unwrap()
    }
}

fn end(process: Process) {
    process.signal(Signal::SIGTERM).unwrap();
    let exit = process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
}

/// Builds a response with a valid MAC, which needs only the server's public key, and random content.
fn response(random: &mut Random, server: &[u8; 32]) -> Vec<u8> {
    let mut message = random.bytes(92);
    message[..4].copy_from_slice(&[2, 0, 0, 0]);
    sign(&mut message, server);
    message
}

/// The first initiation that this tap has captured.
fn recorded(tap: &PacketSocket) -> Vec<u8> {
    first(tap, |it| it.len() == 148 && it.starts_with(&[1, 0, 0, 0]))
}

/// The first datagram of this kind that this tap has captured.
fn first(tap: &PacketSocket, is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut batch = FrameBatch::new(2048);
    while tap.receive(&mut batch).unwrap() > 0 {
        let mut payloads = batch.frames().filter_map(|it| it.frame.get(PAYLOAD..));
        let found = payloads.find(|it| is_it(it));
        if let Some(found) = found {
            return found.to_vec();
        }
    }
    panic!("no initiation was seen");
}

#[test]
fn floods_of_handshakes_cost_little_and_lock_nobody_out() {
    if !ready() {
        return;
    }
    let world = World::new();
    let server = world.server("");
    let tap = || PacketSocket::open("eth0");
    let tap = world.net.b.run(tap).unwrap().unwrap();
    let client = world.client();
    reaches(&world.net.a, B4);
    end(client);
    let recorded = recorded(&tap);
    let public = key_bytes(&world.server.public);
    let strangers = |number: u8| world.initiation([number; 32]).1;
    let strangers: Vec<Vec<u8>> = (1..65).map(strangers).collect();
    let forged = strangers.clone();
    let any = |of: &[Vec<u8>], random: &mut Random| of[random.number() as usize % of.len()].clone();
    let attacks: [(&str, Payloads); 4] = [
        (
            "initiations of unknown keys",
            Box::new(move |random| any(&strangers, random)),
        ),
        (
            "initiations with a wrong MAC",
            Box::new(move |random| {
                let mut message = any(&forged, random);
                message[148 - 32] ^= 1;
                message
            }),
        ),
        ("a recorded initiation", Box::new(move |_| recorded.clone())),
        (
            "responses to nothing",
            Box::new(move |random| response(random, &public)),
        ),
    ];
    world.attacks(&server, attacks);
    // The server saw them, and logged them.
    let told = server.stderr();
    assert!(told.contains("handshake message from 11."), "{told}");
    end(server);
}

/// The header protection key of [`AMNEZIA`].
const HEADER_KEY: &str = "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";

/// Settings of AmneziaWG with which each datagram costs the server a block of ChaCha20, apart from the key.
const AMNEZIA: &str = "S1 = 30\nS2 = 40\nS3 = 25\nS4 = 16\nH1 = 100000-200000\nH2 = 300000-400000\n\
    H3 = 500000-600000\nH4 = 700000-800000\n";

/// Attacks a server of AmneziaWG, by senders who know its settings.
fn amneziawg_is_attacked(more: &str) {
    if !ready() {
        return;
    }
    let settings = format!("{AMNEZIA}HeaderProtectionKey = {HEADER_KEY}\n{more}");
    let mut world = World::with(&settings);
    // An unoptimised server on a busy machine cannot keep up with 50,000 initiations a second, and loses the client's.
    world.net.pace = match cfg!(debug_assertions) {
        true => Pace::New(Duration::from_millis(2)),
        false => Pace::Repeat,
    };
    let server = world.server("");
    let tap = || PacketSocket::open("eth0");
    let tap = world.net.b.run(tap).unwrap().unwrap();
    let client = world.client();
    reaches(&world.net.a, B4);
    end(client);
    let recorded = first(&tap, |it| it.len() == 30 + 148);
    let strangers = |number: u8| world.initiation([number; 32]).1;
    let strangers: Vec<Vec<u8>> = (1..65).map(strangers).collect();
    let forged = strangers.clone();
    let any = |of: &[Vec<u8>], random: &mut Random| of[random.number() as usize % of.len()].clone();
    let header_key = HeaderKey::new(Key::from(key_bytes(HEADER_KEY)));
    let attacks: [(&str, Payloads); 5] = [
        (
            "random datagrams",
            Box::new(|random| {
                let length = random.number() as usize % 1400;
                random.bytes(length)
            }),
        ),
        (
            "data of unknown sessions",
            Box::new(move |random| {
                let mut datagram = random.bytes(16 + 16 + 32);
                datagram[16..20].copy_from_slice(&750_000_u32.to_le_bytes());
                let nonce = *datagram.first_chunk().unwrap();
                header_key.apply(&nonce, &mut datagram[16..32]);
                datagram
            }),
        ),
        (
            "initiations with a wrong MAC",
            Box::new(move |random| {
                let mut message = any(&forged, random);
                message[30 + 148 - 32] ^= 1;
                message
            }),
        ),
        (
            "initiations of unknown keys",
            Box::new(move |random| any(&strangers, random)),
        ),
        ("a recorded initiation", Box::new(move |_| recorded.clone())),
    ];
    world.attacks(&server, attacks);
    end(server);
}

#[test]
fn floods_of_amneziawg_lock_nobody_out() {
    amneziawg_is_attacked("");
}

#[test]
fn floods_of_amneziawg_without_cookies_lock_nobody_out() {
    amneziawg_is_attacked("DisableCookies = on\n");
}

#[test]
fn floods_of_other_datagrams_cost_little_and_lock_nobody_out() {
    if !ready() {
        return;
    }
    let world = World::new();
    let server = world.server("");
    let client = world.client();
    reaches(&world.net.a, B4);
    end(client);
    let of_kind = |kind: u8, length: usize| -> Payloads {
        Box::new(move |random| {
            let mut message = random.bytes(length);
            message[..4].copy_from_slice(&[kind, 0, 0, 0]);
            message
        })
    };
    let attacks: [(&str, Payloads); 3] = [
        (
            "random datagrams",
            Box::new(|random| {
                let length = random.number() as usize % 1400;
                random.bytes(length)
            }),
        ),
        ("cookie replies", of_kind(3, 64)),
        ("data of unknown sessions", of_kind(4, 128)),
    ];
    world.attacks(&server, attacks);
    end(server);
}

/// A ping from the moving peer.
fn ping() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0];
    packet.extend(MOVING.octets());
    packet.extend(B4.parse::<Ipv4Addr>().unwrap().octets());
    let sum = internet_checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    packet.extend([8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    // WireGuard pads its packets.
    packet.resize(32, 0);
    packet
}

/// The server follows the peer or, with several lines, adds each address as one more line: both are bounded.
#[test]
fn a_peer_that_moves_with_each_packet_costs_little_and_locks_nobody_out() {
    if !ready() {
        return;
    }
    for head in ["", "#! [Uplinks]\n#! Mode = duplicate\n#! Reorder = yes\n"] {
        let world = World::new();
        let server = world.server(head);
        let client = world.client();
        reaches(&world.net.a, B4);
        end(client);
        let ((receiver, key), ping, mut counter) = (world.session(), ping(), 0);
        let payloads = move |_: &mut Random| {
            let header = DataHeader { receiver, counter };
            let mut packet = header.emit().to_vec();
            packet.extend(&ping);
            packet.resize(DATA_HEADER_LEN + ping.len() + TAG_LEN, 0);
            let sealed = &mut packet[DATA_HEADER_LEN..];
            aead::seal(&key, counter, &[], sealed);
            counter += 1;
            packet
        };
        world.attack(&server, ("a peer that moves", Box::new(payloads)));
        let status = status_of(&world.net.b, "wg1");
        let peers = status["peers"].as_array().unwrap();
        let heard = |peer: &serde_json::Value| peer["rx_bytes"].as_u64().unwrap() > 10_000;
        assert!(peers.iter().any(heard), "{status}");
        end(server);
    }
}
