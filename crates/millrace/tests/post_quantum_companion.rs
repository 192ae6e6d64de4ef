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
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// A value of the interface's only peer, as `wg show` prints it.
fn shown(host: &Host, what: &str) -> String {
    let text = host.output("wg", ["show", WG, what]).unwrap();
    text.split_whitespace().last().unwrap().to_owned()
}

fn held(host: &Host) -> String {
    shown(host, "preshared-keys")
}

/// Ends A's session with B: the next packet begins a handshake. (wireguard-go keeps sessions while its link is down.)
fn begin_anew(net: &Net, tunnel: &Tunnel<'_>) {
    let key = held(&net.a);
    let key = if key == "(none)" { NONE } else { &key };
    let (at, ranges) = (format!("{}:{PORT_B}", net.link.b4()), format!("{B4}/32"));
    let peer = &tunnel.keys_b.public;
    let words = [
        "peer",
        peer,
        "remove",
        "peer",
        peer,
        "endpoint",
        &at,
        "allowed-ips",
        &ranges,
        "preshared-key",
        "/dev/stdin",
    ];
    tunnel.a.set_with_input(&words, key).unwrap();
}

/// Sets the preshared key of an interface's only peer, as other programs do.
fn set(end: &RunningPeer<'_>, peer: &Keys, key: &str) {
    let words = ["peer", &peer.public, "preshared-key", "/dev/stdin"];
    end.set_with_input(&words, key).unwrap();
}

/// Waits until the companion says that the session is protected. A session right after an exchange does not count yet,
/// so another begins when the companion has had time to look.
fn protected(net: &Net, tunnel: &Tunnel<'_>, process: &Process) {
    until(PROTECTED, || {
        let began = shown(&net.a, "latest-handshakes").parse();
        let age =
            SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(began.unwrap()));
        if age.is_ok_and(|age| age > Duration::from_secs(8)) {
            begin_anew(net, tunnel);
        }
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
    for companion in [&a, &b] {
        protected(&net, &tunnel, companion);
        let status = format!("/proc/{}/status", companion.id());
        let status = fs::read_to_string(status).unwrap();
        assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    }

    // `wg syncconf` restores the file's key, and the companion the last exchange's.
    let key = held(&net.a);
    set(&tunnel.a, keys_b, NONE);
    until("the exchange's key is back", || held(&net.a) == key);

    // A companion that starts again finds its key in the interface.
    drop(b);
    let b = serve_b();
    protected(&net, &tunnel, &b);

    // The called end loses the keys and its sessions, as after a power cut.
    drop(b);
    let ranges = format!("{A4}/32");
    let (peer, ranges) = (&keys_a.public, ["allowed-ips", &ranges]);
    let words = [&["peer", peer, "remove", "peer", peer], &ranges[..]].concat();
    tunnel.b.set_with_input(&words, "").unwrap();
    begin_anew(&net, &tunnel);
    let b = serve_b();
    reaches(&net.a, B4);
    agree(&net);
    protected(&net, &tunnel, &b);
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
