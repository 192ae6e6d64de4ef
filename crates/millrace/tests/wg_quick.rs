//! Tests `wg-quick` with the program as its userspace implementation.

use std::time::Duration;

use lab::acceptance::quick::{hide_kernel_modules, make_executable, without_the_kernels};
use lab::acceptance::{
    A4, B4, Directory, Net, PORT_B, PROGRAM, WG, inhabitants, interface, ip, millrace, pings,
    ready, run_files, until,
};
use lab::peer::{Keys, PeerOptions, WgPeer, WireGuardPeer};
use lab::tools;

/// Runs `wg-quick up` and `down` with the program as userspace implementation: under its own name, and through a
/// script.
#[test]
fn wg_quick_brings_tunnels_up_and_down() {
    if !ready() {
        return;
    }
    let Some(original) = lab::require(tools::find("wg-quick")) else {
        return;
    };
    let directory = Directory::new();
    let wg_quick = without_the_kernels(&directory, &original);
    let named = directory.path().join("millrace-wireguard");
    std::os::unix::fs::symlink(PROGRAM, &named).unwrap();
    let text = format!("#!/bin/sh\nexec {PROGRAM} wireguard \"$1\"\n");
    let script = directory.file("script", &text);
    make_executable(&script);

    for (implementation, everything) in [(&named, false), (&script, true)] {
        let net = Net::new();
        hide_kernel_modules(&net.a);
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
            let command = net.a.command(&wg_quick).arg(what).arg(&file);
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
        let link = net.a.output("ip", ["-details", "link", "show", "quick0"]);
        assert!(link.as_ref().unwrap().contains("tun type tun"), "{link:?}");
        assert_eq!(inhabitants(&net.a).len(), 1, "the program serves it");
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
