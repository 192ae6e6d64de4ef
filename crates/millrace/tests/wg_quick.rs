//! `wg-quick` with the program as its user-space implementation.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::path::Path;
use std::time::Duration;

use common::{
    A4, B4, Directory, Net, PORT_B, PROGRAM, WG, inhabitants, interface, ip, millrace, pings,
    ready, run_files, until,
};
use lab::peer::{Keys, PeerOptions, WgPeer, WireGuardPeer};
use lab::tools;

/// `wg-quick up` and `down`, with the program as its user-space implementation: by its own name for
/// that, and through a script.
#[test]
fn wg_quick_brings_tunnels_up_and_down() {
    if !ready() {
        return;
    }
    if let Err(error) = tools::find("wg-quick") {
        eprintln!("skipped: {error}");
        return;
    }
    if Path::new("/sys/module/wireguard").exists() {
        eprintln!("skipped: this kernel has WireGuard itself, and wg-quick would take that");
        return;
    }
    let directory = Directory::new();
    let named = directory.path().join("millrace-wireguard");
    std::os::unix::fs::symlink(PROGRAM, &named).unwrap();
    let text = format!("#!/bin/sh\nexec {PROGRAM} wireguard \"$1\"\n");
    let script = directory.file("script", &text);
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&script, executable).unwrap();

    for (implementation, everything) in [(&named, false), (&script, true)] {
        let net = Net::new();
        let (keys_a, keys_b) = (
            Keys::generate(&net.a).unwrap(),
            Keys::generate(&net.b).unwrap(),
        );
        let b = millrace()
            .start(&net.b, WG, &PeerOptions::default())
            .unwrap();
        let a_of_b = WgPeer::new(&keys_a.public).allow(ip(A4), 32);
        b.configure(&interface(&keys_b, PORT_B, vec![a_of_b]))
            .unwrap();
        b.bring_up(&[(ip(B4), 24)], 1420).unwrap();
        let ranges = if everything {
            "0.0.0.0/0, ::/0"
        } else {
            "10.0.0.0/24"
        };
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = {A4}/32\n\n\
             [Peer]\nPublicKey = {}\nEndpoint = {}:{PORT_B}\nAllowedIPs = {ranges}\n",
            keys_a.private,
            keys_b.public,
            net.link.b4(),
        );
        let file = directory.file("quick0.conf", &text);
        let quick = |what: &str| {
            let command = net.a.command("wg-quick").arg(what).arg(&file);
            let command = command.env("WG_QUICK_USERSPACE_IMPLEMENTATION", implementation);
            let exit = command
                .spawn()
                .unwrap()
                .wait_at_most(Duration::from_secs(60))
                .unwrap();
            exit.success().unwrap();
        };
        let before = net.a.output("ip", ["rule"]).unwrap();
        quick("up");
        assert!(net.a.has_interface("quick0").unwrap());
        pings(&net.a, B4, 3);
        quick("down");
        assert!(!net.a.has_interface("quick0").unwrap());
        until("the program ends with its interface", || {
            inhabitants(&net.a).is_empty()
        });
        assert_eq!(run_files(&net.a), Vec::<String>::new());
        assert_eq!(net.a.output("ip", ["rule"]).unwrap(), before);
    }
}
