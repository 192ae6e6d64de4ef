//! Traffic of AmneziaWG comes back after a new key, a move of the caller, and a new start of either end.

use std::net::{IpAddr, SocketAddr};
use std::thread;

use lab::Host;
use lab::acceptance::{
    A4, A6, B4, B6, Net, PORT_A, PORT_B, WG, interface, ip, millrace, pings, reaches, ready, until,
    usable,
};
use lab::peer::{
    AmneziaWg, Keys, PeerOptions, PeerStatus, RunningPeer, WgInterface, WgPeer, WireGuardPeer,
};

use super::{V10, V15, V20, V31, set};

/// Times in seconds, of generation 3.0: new keys and the end of silence come soon. They need not be equal at both ends.
const QUICK: &str = "rekey_after_time=2\nrekey_timeout=1\nkeepalive_timeout=1\n";

/// One end of a tunnel.
struct End<'h> {
    program: Box<dyn WireGuardPeer>,
    host: &'h Host,
    interface: WgInterface,
    addresses: [&'static str; 2],
    settings: String,
    running: Option<RunningPeer<'h>>,
}

impl End<'_> {
    /// Whether the program knows the times.
    fn is_quick(&self) -> bool {
        ["millrace", AmneziaWg::V31.name()].contains(&self.program.name())
    }

    /// Starts the program, or starts it anew.
    fn start(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().unwrap();
        }
        let options = PeerOptions::default();
        let running = self.program.start(self.host, WG, &options).unwrap();
        running.configure(&self.interface).unwrap();
        let times = if self.is_quick() { QUICK } else { "" };
        set(&running, &format!("{}{times}", self.settings));
        let [v4, v6] = self.addresses;
        let addresses = [(ip(v4), 24), (ip(v6), 64)];
        running.bring_up(&addresses, 1300).unwrap();
        usable(self.host, v6);
        self.running = Some(running);
    }

    /// The status of the other end.
    fn peer(&self) -> PeerStatus {
        let status = self.running.as_ref().unwrap().status().unwrap();
        let peer = status.peer(&self.interface.peers[0].public_key);
        peer.unwrap().clone()
    }
}

/// Makes a tunnel between A, which calls, and B.
fn ends<'h>(
    net: &'h Net,
    programs: [Box<dyn WireGuardPeer>; 2],
    settings: &str,
    v6: bool,
) -> [End<'h>; 2] {
    let keys = [&net.a, &net.b].map(|host| Keys::generate(host).unwrap());
    let to: SocketAddr = match v6 {
        true => (net.link.b6(), PORT_B).into(),
        false => (net.link.b4(), PORT_B).into(),
    };
    let peer = |at: usize, [v4, v6]: [&str; 2]| {
        let peer = WgPeer::new(&keys[at].public);
        peer.allow(ip(v4), 32).allow(ip(v6), 128)
    };
    let peers = [peer(1, [B4, B6]).at(to), peer(0, [A4, A6])];
    let [a, b] = programs;
    let [b_of_a, a_of_b] = peers;
    let end = |program, host, interface, addresses| End {
        program,
        host,
        interface,
        addresses,
        settings: settings.to_owned(),
        running: None,
    };
    let mut ends = [
        end(
            a,
            &net.a,
            interface(&keys[0], PORT_A, vec![b_of_a]),
            [A4, A6],
        ),
        end(
            b,
            &net.b,
            interface(&keys[1], PORT_B, vec![a_of_b]),
            [B4, B6],
        ),
    ];
    ends.iter_mut().rev().for_each(End::start);
    ends
}

/// Gives the host another address.
fn moves(host: &Host, from: IpAddr, to: IpAddr, prefix: u8) {
    let mut netlink = host.netlink().unwrap();
    let index = netlink.index_of("eth0").unwrap();
    netlink.remove_address(index, from, prefix, None).unwrap();
    host.add_address("eth0", to, prefix).unwrap();
    usable(host, &to.to_string());
}

fn comes_back(programs: [Box<dyn WireGuardPeer>; 2], settings: &str, v6: bool) {
    let net = Net::new();
    let both_reach = || {
        reaches(&net.a, B4);
        reaches(&net.b, A6);
    };
    let [mut a, mut b] = ends(&net, programs, settings, v6);
    both_reach();
    for _ in 0..if a.is_quick() { 2 } else { 0 } {
        let before = a.peer().latest_handshake;
        until("a new key", || {
            pings(&net.a, B4, 1);
            a.peer().latest_handshake != before
        });
    }
    let (from, to, prefix) = match v6 {
        true => (net.link.a6(), "fd00:1::77", 64),
        false => (net.link.a4(), "192.168.1.77", 24),
    };
    moves(&net.a, from, ip(to), prefix);
    both_reach();
    assert_eq!(b.peer().endpoint, Some((ip(to), PORT_A).into()));
    a.start();
    both_reach();
    b.start();
    both_reach();
}

/// Tests both programs as callers, over both families; the waits of the four tunnels overlap.
#[track_caller]
fn survives(other: AmneziaWg, settings: &str) {
    if !ready() || lab::require(other.available()).is_none() {
        return;
    }
    thread::scope(|scope| {
        for (millrace_calls, v6) in [(true, false), (true, true), (false, false), (false, true)] {
            scope.spawn(move || {
                let mut programs: [Box<dyn WireGuardPeer>; 2] =
                    [Box::new(millrace()), Box::new(other)];
                if !millrace_calls {
                    programs.reverse();
                }
                comes_back(programs, settings, v6);
            });
        }
    });
}

#[test]
fn traffic_of_1_0_comes_back() {
    survives(AmneziaWg::V10, V10);
}

#[test]
fn traffic_of_1_5_comes_back() {
    survives(AmneziaWg::V15, V15);
}

#[test]
fn traffic_of_2_0_comes_back() {
    survives(AmneziaWg::V20, V20);
}

#[test]
fn traffic_of_3_1_comes_back() {
    survives(AmneziaWg::V31, V31);
}

#[test]
fn traffic_of_millrace_with_itself_comes_back() {
    if !ready() {
        return;
    }
    for v6 in [false, true] {
        comes_back([Box::new(millrace()), Box::new(millrace())], V31, v6);
    }
}
