//! Lines of which one leads through a relay on a second server.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::ops::Deref;

use lab::Process;
use lab::acceptance::{
    A4, B4, Directory, PATIENCE, PORT_A, PORT_B, PROGRAM, Relayed, WG, interface, ip, pings, ready,
    status_of, until, wireguard_go,
};
use lab::peer::{Keys, PeerOptions, WgPeer};
use nix::sys::signal::Signal;

const NAMES: [&str; 2] = ["direct", "relayed"];
const SERVER: &str = Relayed::SERVER;
const KEY: &str = Relayed::KEY;

struct World {
    net: Relayed,
    keys: [Keys; 2],
    directory: Directory,
}

impl Deref for World {
    type Target = Relayed;

    fn deref(&self) -> &Relayed {
        &self.net
    }
}

impl World {
    fn new() -> Self {
        let net = Relayed::new();
        Self {
            keys: [
                Keys::generate(&net.a).unwrap(),
                Keys::generate(&net.b).unwrap(),
            ],
            net,
            directory: Directory::new(),
        }
    }

    /// Starts the relay. Programs that do not answer from the address that received the packet answer from that of the
    /// cable.
    fn relay(&self) -> Process {
        let target = (self.near, PORT_B).into();
        self.net.relay(&self.directory, target)
    }

    fn client(&self) -> Process {
        let text = format!(
            "#! [Uplinks]\n#! Mode = duplicate\n#! Reorder = yes\n\
             #! [Uplink]\n#! Name = direct\n#! Interface = eth0\n\
             #! [Uplink]\n#! Name = relayed\n#! Relay = {}\n#! RelayKey = {KEY}\n#! Priority = 20\n\
             [Interface]\nPrivateKey = {}\nListenPort = {PORT_A}\nAddress = {A4}/24\n\
             [Peer]\nPublicKey = {}\nEndpoint = {SERVER}:{PORT_B}\nAllowedIPs = {B4}/32\n",
            self.net.relay, self.keys[0].private, self.keys[1].public,
        );
        let file = self.directory.file("wg0.conf", &text);
        let command = self.a.command(PROGRAM).arg("up").arg(file);
        started(command.spawn().unwrap(), "is up")
    }

    /// Waits until A reports these states of its lines.
    fn are(&self, states: [&str; 2]) {
        until(&format!("{NAMES:?} {states:?}"), || {
            let status = status_of(&self.a, WG);
            let lines = &status["peers"][0]["lines"];
            (0..2).all(|at| lines[at]["state"] == states[at])
        });
    }

    /// The tunnel survives a cut of either path and a restart of the relay.
    fn either_way_is_enough(&self) {
        let mut relay = self.relay();
        let client = self.client();
        self.are(["up", "up"]);
        pings(&self.a, B4, 3);
        said(&mut relay, "client branch is at 192.168.2.1:");

        self.cable.cut(true);
        self.are(["down", "up"]);
        pings(&self.a, B4, 3);
        self.cable.cut(false);
        self.are(["up", "up"]);

        relay.signal(Signal::SIGKILL).unwrap();
        drop(relay);
        self.are(["up", "down"]);
        pings(&self.a, B4, 3);

        // A restarted relay does not know its client until the next hello.
        let mut relay = self.relay();
        self.are(["up", "up"]);
        said(&mut relay, "client branch is at 192.168.2.1:");
        self.cable.cut(true);
        self.are(["down", "up"]);
        pings(&self.a, B4, 3);

        client.stop().unwrap().success().unwrap();
        let exit = relay.stop().unwrap();
        let log = exit.success().unwrap();
        assert!(!log.contains(KEY), "{log}");
    }
}

fn started(mut process: Process, words: &str) -> Process {
    said(&mut process, words);
    process
}

fn said(process: &mut Process, words: &str) {
    let told = process.wait_for_line(words, PATIENCE, |line| line.contains(words));
    told.unwrap();
}

/// The server knows nothing of lines or relays.
#[test]
fn a_stock_server_is_reached_by_a_relay_when_the_direct_way_is_cut() {
    if !ready() {
        return;
    }
    let world = World::new();
    let Some(server) = wireguard_go() else { return };
    let server = server.start(&world.b, WG, &PeerOptions::default()).unwrap();
    let a = WgPeer::new(&world.keys[0].public).allow(ip(A4), 32);
    let configured = server.configure(&interface(&world.keys[1], PORT_B, vec![a]));
    configured.unwrap();
    server.bring_up(&[(ip(B4), 24)], 1420).unwrap();
    world.either_way_is_enough();
}

/// A server that answers on both paths.
#[test]
fn a_server_with_lines_answers_by_the_relay_and_directly() {
    if !ready() {
        return;
    }
    let world = World::new();
    let text = format!(
        "#! [Uplinks]\n#! Mode = duplicate\n#! Reorder = yes\n[Interface]\nPrivateKey = {}\nListenPort = {PORT_B}\n\
         Address = {B4}/24\n[Peer]\nPublicKey = {}\nAllowedIPs = {A4}/32\n",
        world.keys[1].private, world.keys[0].public,
    );
    let file = world.directory.file("wg1.conf", &text);
    let command = world.b.command(PROGRAM).arg("up").arg(file);
    let server = started(command.spawn().unwrap(), "is up");
    world.either_way_is_enough();
    server.stop().unwrap().success().unwrap();
}
