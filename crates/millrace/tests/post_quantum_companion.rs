//! `millrace pq serve` beside wireguard-go: both ends agree on preshared keys, and recover when one loses them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::{
    A4, B4, Directory, Net, PORT_B, PROGRAM, Setup, Tunnel, WG, pings, reaches, ready, until,
    wireguard_go,
};
use lab::peer::{Keys, RunningPeer};
use lab::{Host, HostCommand, Process};
use std::fs;
use std::path::{Path, PathBuf};

/// The line of the log about a protected session.
const PROTECTED: &str = "the session has a post-quantum key";

/// The all-zero key, which means "no key".
const NONE: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Writes an interface's file, in which its only peer takes part; `more` are other lines of the interface.
fn file(host: &Host, [own, peer]: [&Keys; 2], more: &str, directory: &Directory) -> PathBuf {
    let text = format!(
        "[Interface]\nPrivateKey = {}\n{more}[Peer]\n#! PostQuantum = prefer\nPublicKey = {}\n",
        own.private, peer.public
    );
    directory.file(&format!("{}.conf", host.name()), &text)
}

fn serve<'h>(host: &'h Host, file: &Path) -> HostCommand<'h> {
    let command = host.command(PROGRAM).args(["pq", "serve", WG, "--file"]);
    command.arg(file)
}

/// The preshared key of the interface's only peer, as `wg` prints it.
fn held(host: &Host) -> String {
    let text = host.output("wg", ["show", WG, "preshared-keys"]).unwrap();
    text.split_whitespace().last().unwrap().to_owned()
}

/// Ends an interface's session with its peer, whose preshared key becomes `key`: the next packet begins a handshake. `more`
/// are the peer's other settings.
fn begin_anew(end: &RunningPeer<'_>, peer: &Keys, key: &str, more: &[&str]) {
    let peer = &peer.public;
    let words = [
        "peer",
        peer,
        "remove",
        "peer",
        peer,
        "preshared-key",
        "/dev/stdin",
    ];
    end.set_with_input(&[&words, more].concat(), key).unwrap();
}

/// Waits until the companion says that the session is protected; `begin` begins new sessions meanwhile. A session right
/// after an exchange does not count yet.
fn protected(net: &Net, process: &Process, begin: &dyn Fn()) {
    until(PROTECTED, || {
        begin();
        pings(&net.a, B4, 2);
        process.stderr().contains(PROTECTED)
    });
}

/// Waits until both ends hold the same new key, while packets go on.
fn agree(net: &Net) {
    until("both ends hold one new key", || {
        pings(&net.a, B4, 1);
        let (a, b) = (held(&net.a), held(&net.b));
        a == b && a != "(none)"
    });
}

#[test]
fn two_companions_agree_and_recover() {
    let Some((a, b)) = ready()
        .then(|| wireguard_go().zip(wireguard_go()))
        .flatten()
    else {
        return;
    };
    let (net, directory) = (Net::new(), Directory::new());
    let setup = Setup {
        a,
        b,
        ..Setup::default()
    };
    let tunnel = Tunnel::new(&net, &setup);
    let (keys_a, keys_b) = (&tunnel.keys_a, &tunnel.keys_b);
    let saves = file(&net.a, [keys_a, keys_b], "SaveConfig = true\n", &directory);
    let refused = serve(&net.a, &saves).exit().unwrap();
    assert!(refused.stderr.contains("SaveConfig"), "{}", refused.stderr);
    let a = file(&net.a, [keys_a, keys_b], "", &directory);
    let a = serve(&net.a, &a).spawn().unwrap();
    let file_b = file(&net.b, [keys_b, keys_a], "", &directory);
    let serve_b = || serve(&net.b, &file_b).spawn().unwrap();
    let b = serve_b();
    agree(&net);
    let at_b = format!("{}:{PORT_B}", net.link.b4());
    let ranges_of_b = format!("{B4}/32");
    let begin = || {
        let more = ["endpoint", &at_b, "allowed-ips", &ranges_of_b];
        begin_anew(&tunnel.a, keys_b, &held(&net.a), &more);
    };
    for companion in [&a, &b] {
        protected(&net, companion, &begin);
        let status = format!("/proc/{}/status", companion.id());
        let status = fs::read_to_string(status).unwrap();
        assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    }

    // `wg syncconf` restores the file's key, and the companion the last exchange's.
    let key = held(&net.a);
    let words = ["peer", &keys_b.public, "preshared-key", "/dev/stdin"];
    tunnel.a.set_with_input(&words, NONE).unwrap();
    until("the exchange's key is back", || held(&net.a) == key);

    // A companion that starts again finds its key in the interface.
    drop(b);
    let b = serve_b();
    protected(&net, &b, &begin);
    assert_eq!(held(&net.b), key);

    // The called end loses the keys and its sessions, as after a power cut.
    drop(b);
    let ranges_of_a = format!("{A4}/32");
    begin_anew(&tunnel.b, keys_a, NONE, &["allowed-ips", &ranges_of_a]);
    begin();
    let b = serve_b();
    reaches(&net.a, B4);
    agree(&net);
    protected(&net, &b, &begin);
}

#[test]
fn interfaces_that_a_companion_cannot_serve_are_refused() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let refused = |arguments: &[&str]| {
        let command = net.a.command(PROGRAM).args(["pq", "serve"]);
        let exit = command.args(arguments).exit().unwrap();
        assert!(!exit.status.success(), "{}", exit.stderr);
        exit.stderr
    };
    let none = refused(&["wg9", "--all"]);
    assert!(none.contains("wg9"), "{none}");
    let _tunnel = Tunnel::new(&net, &Setup::default());
    let own = refused(&[WG, "--all"]);
    assert!(own.contains("served by Millrace"), "{own}");
}
