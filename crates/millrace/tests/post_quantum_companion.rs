//! `millrace pq serve` beside wireguard-go: both ends agree on preshared keys, and recover when one loses them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::{
    A4, B4, Directory, Net, PATIENCE, PORT_B, PROGRAM, Setup, Tunnel, WG, pings, reaches, ready,
    until, wireguard_go,
};
use lab::peer::{Keys, RunningPeer};
use lab::{Host, Process};

/// The line of the log about a protected session.
const PROTECTED: &str = "the session has a post-quantum key";

/// The all-zero key, which means "no key".
const NONE: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Starts a companion with a file that lets the interface's only peer take part.
fn serve(host: &Host, [own, peer]: [&Keys; 2], directory: &Directory) -> Process {
    let text = format!(
        "[Interface]\nPrivateKey = {}\n[Peer]\n#! PostQuantum = prefer\nPublicKey = {}\n",
        own.private, peer.public
    );
    let file = directory.file(&format!("{}.conf", host.name()), &text);
    let command = host.command(PROGRAM).args(["pq", "serve", WG, "--file"]);
    command.arg(file).spawn().unwrap()
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

fn protected(process: &mut Process) {
    let line = process.wait_for_line(PROTECTED, PATIENCE, |line| line.contains(PROTECTED));
    line.unwrap();
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
    let mut a = serve(&net.a, [keys_a, keys_b], &directory);
    let serve_b = || serve(&net.b, [keys_b, keys_a], &directory);
    let mut b = serve_b();
    agree(&net);
    let at_b = format!("{}:{PORT_B}", net.link.b4());
    let ranges_of_b = format!("{B4}/32");
    let begin = || {
        let more = ["endpoint", &at_b, "allowed-ips", &ranges_of_b];
        begin_anew(&tunnel.a, keys_b, &held(&net.a), &more);
    };
    begin();
    pings(&net.a, B4, 3);
    protected(&mut a);
    protected(&mut b);

    // A companion that starts again finds its key in the interface.
    drop(b);
    let mut b = serve_b();
    protected(&mut b);

    // The called end loses the keys and its sessions, as after a power cut.
    drop(b);
    let ranges_of_a = format!("{A4}/32");
    begin_anew(&tunnel.b, keys_a, NONE, &["allowed-ips", &ranges_of_a]);
    begin();
    let mut b = serve_b();
    reaches(&net.a, B4);
    agree(&net);
    begin();
    pings(&net.a, B4, 3);
    protected(&mut b);
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
