//! Tests tunnels that reload their file, and the log of tunnels in the background.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use lab::acceptance::{
    A4, B4, Net, PATIENCE, PROGRAM, WG, inhabitants, millrace, peer, pings, reaches, ready, until,
};
use lab::peer::{Keys, PeerOptions, RunningPeer, WireGuardPeer};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Addresses behind B.
const BEHIND: &str = "203.0.113.1";
const OTHER: &str = "203.0.113.2";

/// A, whose file changes, and B.
struct Site(lab::acceptance::Site);

impl std::ops::Deref for Site {
    type Target = lab::acceptance::Site;

    fn deref(&self) -> &lab::acceptance::Site {
        &self.0
    }
}

impl Site {
    fn new() -> Self {
        Self(lab::acceptance::Site::new())
    }

    fn server(&self) -> RunningPeer<'_> {
        self.0
            .server(&[("10.0.0.9", 32)], &[(BEHIND, 32), (OTHER, 32)])
    }

    fn file(&self, lines: &str, ranges: &str, more: &str) -> PathBuf {
        let endpoint = self.net.link.b4().to_string();
        self.0.file(WG, lines, &endpoint, ranges, more)
    }

    fn the_only_process(&self) -> Pid {
        let all = inhabitants(&self.net.a);
        assert_eq!(all.len(), 1, "{all:?}");
        Pid::from_raw(all[0].cast_signed())
    }
}

#[test]
fn a_file_that_is_read_again_changes_what_it_says_and_disturbs_nothing_else() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let server = site.server();
    let a = &site.net.a;
    let other = Keys::generate(a).unwrap();
    let ranges = format!("10.0.0.0/24, {BEHIND}/32");
    let more = format!(
        "[Peer]\nPublicKey = {}\nAllowedIPs = 10.7.0.0/16",
        other.public
    );
    let file = site.file(&format!("Address = {A4}/24\nMTU = 1380"), &ranges, &more);
    let command = a.command(PROGRAM).arg("up").arg(&file);
    let mut process = command.spawn().unwrap();
    process
        .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
        .unwrap();
    reaches(a, BEHIND);
    let shaken = peer(&server, &site.keys_a).latest_handshake;
    let port = a.output("wg", ["show", WG, "listen-port"]).unwrap();

    // A faulty file changes nothing, and the tunnel stays up.
    site.file("Address = 10.0.0.1/24\nMTU = many", &ranges, "");
    process.signal(Signal::SIGHUP).unwrap();
    process
        .wait_for_line("a refusal", PATIENCE, |line| {
            line.contains("the old configuration stays in use")
        })
        .unwrap();
    assert!(
        a.output("wg", ["show", WG, "peers"])
            .unwrap()
            .contains(&other.public)
    );
    pings(a, BEHIND, 1);

    let ranges = format!("10.0.0.0/24, {OTHER}/32");
    site.file(
        "Address = 10.0.0.1/24, 10.0.0.9/24\nMTU = 1370",
        &ranges,
        "",
    );
    process.signal(Signal::SIGHUP).unwrap();
    process
        .wait_for_line("the new file", PATIENCE, |line| {
            line.contains("was read again")
        })
        .unwrap();
    reaches(a, OTHER);
    let state = |words: &[&str]| a.output("ip", words).unwrap();
    let routes = state(&["route"]);
    assert!(
        routes.contains(OTHER) && !routes.contains(BEHIND),
        "{routes}"
    );
    assert!(!routes.contains("10.7."), "{routes}");
    let addresses = state(&["-o", "addr", "show", "dev", WG]);
    assert!(
        addresses.contains("10.0.0.1/24") && addresses.contains("10.0.0.9/24"),
        "{addresses}"
    );
    assert_eq!(a.netlink().unwrap().link(WG).unwrap().mtu, 1370);
    assert!(
        !a.output("wg", ["show", WG, "peers"])
            .unwrap()
            .contains(&other.public)
    );
    // The session continues from the same port.
    assert_eq!(peer(&server, &site.keys_a).latest_handshake, shaken);
    assert_eq!(a.output("wg", ["show", WG, "listen-port"]).unwrap(), port);

    // Ranges change from everything but a default route to one, and back.
    for (ranges, full) in [("0.0.0.0/0", true), ("10.0.0.0/24", false)] {
        site.file(&format!("Address = {A4}/24"), ranges, "");
        process.signal(Signal::SIGHUP).unwrap();
        until("the rules", || {
            state(&["rule"]).contains("suppress_prefixlength 0") == full
        });
        until("the mark", || {
            (a.output("wg", ["show", WG, "fwmark"]).unwrap().trim() != "off") == full
        });
        reaches(a, B4);
    }
    process.signal(Signal::SIGTERM).unwrap();
    let exit = process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    assert!(!a.has_interface(WG).unwrap());
}

/// The kernel removes an interface's routes with its last address, and packets would then leave in clear.
#[test]
fn another_address_leaves_the_default_route_where_it_is() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let a = &site.net.a;
    let file = site.file(&format!("Address = {A4}/24"), "0.0.0.0/0", "");
    let command = a.command(PROGRAM).arg("up").arg(&file);
    let mut process = command.spawn().unwrap();
    process
        .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
        .unwrap();
    for last in 11..17 {
        let address = format!("10.0.0.{last}");
        site.file(&format!("Address = {address}/24"), "0.0.0.0/0", "");
        process.signal(Signal::SIGHUP).unwrap();
        let shown = || {
            a.output("ip", ["-o", "-4", "addr", "show", "dev", WG])
                .unwrap()
        };
        until("the address", || {
            let shown = shown();
            shown.contains(&address) && shown.lines().count() == 1
        });
        let way = a.output("ip", ["route", "get", BEHIND]).unwrap();
        assert!(way.contains(&format!("dev {WG}")), "{way}");
    }
    process.signal(Signal::SIGTERM).unwrap();
    let exit = process.wait_at_most(PATIENCE).unwrap();
    assert!(!exit.stderr.contains("another program"), "{}", exit.stderr);
}

/// An occupied port does not block the file's changes to peers, and the program tries the port again.
#[test]
fn a_port_that_is_taken_keeps_nothing_else_from_a_reload() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let a = &site.net.a;
    let gone = Keys::generate(a).unwrap().public;
    let more = format!("[Peer]\nPublicKey = {gone}\nAllowedIPs = 10.7.0.0/16");
    let address = format!("Address = {A4}/24");
    let file = site.file(&address, "10.0.0.0/24", &more);
    let command = a.command(PROGRAM).arg("up").arg(&file);
    let mut process = command.spawn().unwrap();
    process
        .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
        .unwrap();
    let taken = a.run(|| UdpSocket::bind("0.0.0.0:5555")).unwrap().unwrap();
    site.file(&format!("{address}\nListenPort = 5555"), "10.0.0.0/24", "");
    let warned = || {
        a.output(PROGRAM, ["status"])
            .unwrap()
            .contains("is not applied")
    };
    process.signal(Signal::SIGHUP).unwrap();
    until("the warning", warned);
    assert!(
        !a.output("wg", ["show", WG, "peers"])
            .unwrap()
            .contains(&gone)
    );
    drop(taken);
    process.signal(Signal::SIGHUP).unwrap();
    until("the port", || {
        a.output("wg", ["show", WG, "listen-port"]).unwrap().trim() == "5555"
    });
    until("no warning", || !warned());
    process.signal(Signal::SIGTERM).unwrap();
    process.wait_at_most(PATIENCE).unwrap();
}

#[test]
fn an_interface_without_a_file_is_not_ended_by_sighup() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let peer = millrace()
        .start(&net.a, WG, &PeerOptions::default())
        .unwrap();
    for _ in 0..3 {
        peer.process.signal(Signal::SIGHUP).unwrap();
        peer.status().unwrap();
    }
    // A reload together with SIGTERM does not hide the SIGTERM.
    peer.process.signal(Signal::SIGTERM).unwrap();
    peer.process.signal(Signal::SIGHUP).unwrap();
    let exit = peer.stop().unwrap();
    assert!(exit.status.success(), "{exit:?}");
}

/// Mounts a private /dev in a host, with the devices that a tunnel needs.
fn own_dev(net: &Net) {
    let script = "set -e; mkdir /run/dev; mount -t tmpfs dev /run/dev; mkdir /run/dev/net; \
        for f in null zero random urandom net/tun; do \
            touch /run/dev/$f; mount --bind /dev/$f /run/dev/$f; \
        done; mount --move /run/dev /dev";
    net.a.output("sh", ["-c", script]).unwrap();
}

#[test]
fn a_tunnel_in_the_background_logs_to_the_system_log_or_its_file() {
    if !ready() {
        return;
    }
    let site = Site::new();
    own_dev(&site.net);
    let _server = site.server();
    let a = &site.net.a;
    let log = a.run(|| UnixDatagram::bind("/dev/log")).unwrap().unwrap();
    log.set_read_timeout(Some(PATIENCE)).unwrap();
    let file = site.file(&format!("Address = {A4}/24"), "10.0.0.0/24", "");
    let up = |more: &[&str]| {
        let command = a.command(PROGRAM).args(["up", "--daemon"]).args(more);
        command.arg(&file).output().unwrap();
    };
    up(&[]);
    reaches(a, B4);
    // `up` has waited for the peer, so its messages went to the terminal until now.
    kill(site.the_only_process(), Signal::SIGHUP).unwrap();
    loop {
        let mut line = [0; 512];
        let count = log.recv(&mut line).unwrap();
        let line = String::from_utf8_lossy(&line[..count]).into_owned();
        assert!(
            line.starts_with("<30>") && line.contains(" millrace-wg0["),
            "{line}"
        );
        if line.contains("was read again") {
            break;
        }
    }
    kill(site.the_only_process(), Signal::SIGTERM).unwrap();
    until("its end", || inhabitants(a).is_empty());

    let path = site.directory.path().join("log");
    let text = || fs::read_to_string(&path).unwrap_or_default();
    up(&["--log", path.to_str().unwrap()]);
    reaches(a, B4);
    until("a line", || text().contains("is connected"));
    // Log rotation: the file is moved away, and SIGHUP opens a new one.
    fs::rename(&path, site.directory.path().join("log.1")).unwrap();
    kill(site.the_only_process(), Signal::SIGHUP).unwrap();
    until("a new file", || text().contains("was read again"));
    kill(site.the_only_process(), Signal::SIGTERM).unwrap();
    until("its end", || inhabitants(a).is_empty());
    assert!(text().contains("ended: by a signal"), "{}", text());
}
