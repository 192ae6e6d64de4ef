//! Tests every installed WireGuard program at both ends of a tunnel.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::net::IpAddr;

use lab::peer::{Keys, PeerOptions, PresharedKey, WgInterface, WgPeer, others};
use lab::{Host, Link, LinkOptions, may_enter, tools};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn installed_programs_carry_pings() {
    if !may_enter() {
        return;
    }
    if lab::require(tools::tun().and_then(|()| tools::find("wg"))).is_none() {
        return;
    }
    for program in others() {
        if lab::require(program.available()).is_none() {
            continue;
        }
        let (a, b) = (Host::private("a").unwrap(), Host::private("b").unwrap());
        let link = LinkOptions::numbered(1);
        Link::new(&a, "eth0", &b, "eth0", &link).unwrap();
        let (keys_a, keys_b) = (Keys::generate(&a).unwrap(), Keys::generate(&b).unwrap());
        let psk = PresharedKey::generate(&a).unwrap();
        let options = PeerOptions::default();
        let at_a = program.start(&a, "wg0", &options).unwrap();
        let at_b = program.start(&b, "wg0", &options).unwrap();
        let interface = |keys: &Keys, port, mut peer: WgPeer| {
            peer.preshared_key = Some(psk.clone());
            WgInterface {
                keys: keys.clone(),
                listen_port: Some(port),
                fwmark: None,
                peers: vec![peer],
            }
        };
        let b_of_a = WgPeer::new(&keys_b.public)
            .at((link.b4(), 2).into())
            .allow(ip("10.0.0.2"), 32);
        let a_of_b = WgPeer::new(&keys_a.public).allow(ip("10.0.0.1"), 32);
        at_a.configure(&interface(&keys_a, 1, b_of_a)).unwrap();
        at_b.configure(&interface(&keys_b, 2, a_of_b)).unwrap();
        at_a.bring_up(&[(ip("10.0.0.1"), 24)], 1420).unwrap();
        at_b.bring_up(&[(ip("10.0.0.2"), 24)], 1420).unwrap();

        common::answered(&a, ip("10.0.0.2"), 10);
        let status = at_a.status().unwrap();
        let peer = status.peer(&keys_b.public).unwrap();
        // boringtun counts only inner bytes, and reports the age of the handshake instead of its time.
        assert!(peer.received >= 10 * 84, "{}: {peer:?}", program.name());
        println!("{}: {} bytes received", program.name(), peer.received);
        drop(at_a);
        // The interface disappears with the program.
        assert!(!a.has_interface("wg0").unwrap());
    }
}
