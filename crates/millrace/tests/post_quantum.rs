//! Post-quantum keys of Millrace's own WireGuard: between two tunnels, with a companion at the other end, over restarts,
//! and with programs that do not exchange keys.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use lab::acceptance::{
    A4, B4, Directory, Net, PATIENCE, PORT_A, PORT_B, PROGRAM, Site, WG, hex, ip, no_ping, pings,
    reaches, reaches_within, ready, status_of, tcp_both_ways, uapi, until, wireguard_go,
};
use lab::load::{PingOptions, ping};
use lab::peer::Keys;
use lab::{Host, Process};
use nix::sys::signal::Signal;

const HYBRID: &str = "X25519 + ML-KEM-768";

/// Values of AmneziaWG, which both ends share.
const AMNEZIA: &str = "Jc = 3\nJmin = 50\nJmax = 100\nS1 = 30\nS2 = 40\nS3 = 25\nS4 = 17\n";

/// Two ends whose files require post-quantum keys.
struct Pair {
    net: Net,
    directory: Directory,
    keys: [Keys; 2],
    /// More lines of both `[Interface]` sections.
    lines: &'static str,
}

impl Pair {
    fn new(lines: &'static str) -> Self {
        let net = Net::new();
        let keys = [&net.a, &net.b].map(|host| Keys::generate(host).unwrap());
        Self {
            net,
            directory: Directory::new(),
            keys,
            lines,
        }
    }

    fn up(&self, end: usize) -> Process {
        let host = [&self.net.a, &self.net.b][end];
        let (own, peer) = ([A4, B4][end], [B4, A4][end]);
        let endpoint = match end {
            0 => format!("Endpoint = {}:{PORT_B}\n", self.net.link.b4()),
            _ => String::new(),
        };
        let text = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = {}\nAddress = {own}/24\n{}\
             [Peer]\n#! PostQuantum = require\nPublicKey = {}\nAllowedIPs = {peer}/32\n{endpoint}",
            self.keys[end].private,
            [PORT_A, PORT_B][end],
            self.lines,
            self.keys[1 - end].public,
        );
        let file = self.directory.file(&format!("{WG}.conf"), &text);
        start(host, &file)
    }
}

fn start(host: &Host, file: &Path) -> Process {
    let command = host.command(PROGRAM).arg("up").arg(file);
    let mut process = command.spawn().unwrap();
    process
        .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
        .unwrap();
    process
}

/// The key exchange of the only peer's session, and whether it is post-quantum, as the status says.
fn protection(host: &Host) -> (Option<String>, Option<bool>) {
    let peer = &status_of(host, WG)["peers"][0];
    let name = peer["key_exchange"].as_str().map(str::to_owned);
    (name, peer["post_quantum"].as_bool())
}

#[track_caller]
fn is_protected(host: &Host) {
    assert_eq!(protection(host), (Some(HYBRID.to_owned()), Some(true)));
}

#[test]
fn required_keys_are_exchanged_and_again_after_a_restart() {
    if !ready() {
        return;
    }
    let pair = Pair::new("");
    let (a, b) = (&pair.net.a, &pair.net.b);
    let (_at_a, at_b) = (pair.up(0), pair.up(1));
    pings(a, B4, 3);
    is_protected(a);
    is_protected(b);
    tcp_both_ways(a, b, B4, 3_000_000);
    // A killed end has lost its keys and tells nobody, as after a power cut.
    at_b.signal(Signal::SIGKILL).unwrap();
    drop(at_b);
    let _at_b = pair.up(1);
    reaches(a, B4);
    is_protected(a);
    is_protected(b);
    tcp_both_ways(b, a, A4, 3_000_000);
}

#[test]
fn amneziawg_carries_the_exchange() {
    if !ready() {
        return;
    }
    let pair = Pair::new(AMNEZIA);
    let _ends = [pair.up(1), pair.up(0)];
    pings(&pair.net.a, B4, 3);
    is_protected(&pair.net.a);
    is_protected(&pair.net.b);
}

#[test]
fn a_plain_peer_gets_packets_only_if_keys_are_preferred() {
    let Some(plain) = ready().then(wireguard_go).flatten() else {
        return;
    };
    let site = Site::new();
    let a = &site.net.a;
    let _server = site.server_by(&*plain, &[], &[]);
    let file = |policy: &str| {
        let endpoint = site.net.link.b4().to_string();
        let policy = format!("#! PostQuantum = {policy}");
        let address = format!("Address = {A4}/24");
        site.file(WG, &address, &endpoint, &format!("{B4}/32"), &policy)
    };
    let tunnel = start(a, &file("prefer"));
    pings(a, B4, 3);
    assert_eq!(protection(a), (Some("X25519".to_owned()), Some(false)));
    // Read again, the file requires keys: the session ends, and the next carries no packets.
    file("require");
    tunnel.signal(Signal::SIGHUP).unwrap();
    until("the end of packets", || {
        let report = ping(a, ip(B4), &PingOptions::count(1));
        report.unwrap().received == 0
    });
    drop(tunnel);
    let _tunnel = start(a, &file("require"));
    no_ping(a, B4);
    until("a session", || protection(a).1 == Some(false));
    no_ping(a, B4);
}

/// The preshared key that another program at this host holds for its only peer.
fn held(host: &Host) -> String {
    let text = host.output("wg", ["show", WG, "preshared-keys"]).unwrap();
    text.split_whitespace().last().unwrap().to_owned()
}

/// Waits until both ends count the session as protected by one key; no ping is lost meanwhile. Returns the key.
fn agrees(site: &Site, companion: &Process, up: &Process) -> String {
    let (a, b) = (&site.net.a, &site.net.b);
    until("a protected session", || {
        pings(a, B4, 1);
        let told = companion.stderr();
        protection(a).1 == Some(true) && told.contains("the session has a post-quantum key")
    });
    is_protected(a);
    let key = held(b);
    let shows = |host: &Host| host.output("wg", ["showconf", WG]).unwrap();
    assert!(shows(b).contains(&key), "{key}");
    let status = |more: &str| {
        a.output(PROGRAM, ["status", WG, more, "--no-rate"])
            .unwrap()
    };
    let get = uapi(a, WG, "get=1\n\n");
    for text in [shows(a), get, status("--json"), status("-v"), up.stderr()] {
        has_no_key(&text, &key);
    }
    key
}

/// Asserts that the text has no preshared key: neither this one nor, as none is configured, another.
#[track_caller]
fn has_no_key(text: &str, key: &str) {
    assert!(!text.contains(key) && !text.contains(&hex(key)), "{text}");
    let none = format!("preshared_key={}", "0".repeat(64));
    let rest = text.replace(&none, "").to_lowercase();
    assert!(!rest.replace('_', "").contains("presharedkey"), "{text}");
}

/// Time for both ends to hold one key again. A companion sees after 20 seconds that handshakes fail, and then each of its
/// keys has a turn of up to 20 seconds.
const RECOVERY: Duration = Duration::from_secs(120);

/// A tunnel of Millrace that requires keys, and wireguard-go with a companion. The key of an exchange is in memory only.
#[test]
fn a_tunnel_and_a_companion_agree_and_recover_and_tell_no_key() {
    let Some(plain) = ready().then(wireguard_go).flatten() else {
        return;
    };
    let site = Site::new();
    let (a, b) = (&site.net.a, &site.net.b);
    let at_b = site.server_by(&*plain, &[], &[]);
    let text = format!(
        "[Interface]\nPrivateKey = {}\n[Peer]\n#! PostQuantum = prefer\nPublicKey = {}\n",
        site.keys_b.private, site.keys_a.public
    );
    let file_b = site.directory.file("b.conf", &text);
    let serve = || {
        let command = b.command(PROGRAM).args(["pq", "serve", WG, "--file"]);
        command.arg(&file_b).spawn().unwrap()
    };
    let companion = serve();
    // Sessions follow each other soon: the companion counts one that begins well after an exchange.
    let lines = format!("Address = {A4}/24\nSaveConfig = true\nRekeyAfterTime = 8\n");
    let (to, range) = (site.net.link.b4().to_string(), format!("{B4}/32"));
    let file = site.file(WG, &lines, &to, &range, "#! PostQuantum = require");
    let up = start(a, &file);
    agrees(&site, &companion, &up);

    // A companion that starts again finds its key in the interface: packets go on, also over another exchange.
    drop(companion);
    let companion = serve();
    let first = agrees(&site, &companion, &up);

    // The tunnel saves its file, forgets the key, and starts again with the file.
    up.signal(Signal::SIGTERM).unwrap();
    let exit = up.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    let saved = fs::read_to_string(&file).unwrap();
    has_no_key(&saved, &first);
    assert!(saved.contains("#! PostQuantum = require"), "{saved}");
    let up = start(a, &file);
    reaches_within(RECOVERY, a, B4);
    let second = agrees(&site, &companion, &up);
    assert_ne!(second, first);

    // wireguard-go loses the key and its sessions, as after a power cut.
    drop(companion);
    let (peer, ranges) = (&site.keys_a.public, format!("{A4}/32"));
    let words = ["peer", peer, "remove", "peer", peer, "allowed-ips", &ranges];
    at_b.set(&words).unwrap();
    let companion = serve();
    reaches_within(RECOVERY, a, B4);
    let third = agrees(&site, &companion, &up);
    assert!(![first, second].contains(&third));
}
