//! Endpoints given as names: resolved when possible, tried at every address, and resolved again when no peer answers.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use lab::Process;
use lab::acceptance::dns::{NameServer, ask};
use lab::acceptance::{A4, B4, PATIENCE, PORT_B, PROGRAM, WG, ip, pings, reaches, ready, until};
use lab::load::{PingOptions, ping};
use lab::peer::{Keys, RunningPeer};
use nix::sys::signal::Signal;

/// The name of B, and addresses that no host has.
const NAME: &str = "vpn.test";
const UNUSED: &str = "192.168.1.77";
const UNUSED6: &str = "fd00:1::77";
/// B's new address after it moves.
const MOVED: &str = "192.168.1.3";

/// A, whose file names B by host name, and B, which answers.
struct Site(lab::acceptance::Site);

impl std::ops::Deref for Site {
    type Target = lab::acceptance::Site;

    fn deref(&self) -> &lab::acceptance::Site {
        &self.0
    }
}

impl Site {
    fn new() -> Self {
        let site = lab::acceptance::Site::new();
        ask(&site.net.a, site.net.link.b4());
        Self(site)
    }

    fn server(&self) -> RunningPeer<'_> {
        self.0.server(&[], &[])
    }

    fn file(&self, ranges: &str) -> PathBuf {
        self.0
            .file(WG, &format!("Address = {A4}/24"), NAME, ranges, "")
    }

    fn up(&self, ranges: &str) -> Process {
        let file = self.file(ranges);
        let command = self.net.a.command(PROGRAM).arg("up").arg(file);
        command.spawn().unwrap()
    }

    /// Makes B's old address dead for the tunnel in both directions, because A misses B only once it no longer hears B.
    /// The name server stays reachable there.
    fn moves(&self) {
        let table = "table ip t { chain c { type filter hook input priority 0; \
            ip daddr 192.168.1.2 udp dport 1002 drop; }; \
            chain d { type filter hook output priority 0; \
            ip saddr 192.168.1.2 udp sport 1002 drop; }; }";
        self.net.b.output("nft", [table]).unwrap();
    }

    fn dns(&self, addresses: &[IpAddr]) -> NameServer {
        let server = NameServer::start(&self.net.b, self.net.link.b4());
        server.set(NAME, addresses);
        server
    }
}

fn says(process: &mut Process, words: &str) {
    process
        .wait_for_line(words, PATIENCE, |line| line.contains(words))
        .unwrap();
}

fn ends(process: Process) {
    process.signal(Signal::SIGTERM).unwrap();
    let exit = process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    assert!(!exit.stderr.contains("error"), "{exit:?}");
}

/// A router boots without line or name server; they come up one after the other.
#[test]
fn a_tunnel_that_starts_before_its_line_and_its_dns_comes_up_when_they_do() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let a = &site.net.a;
    a.set_up("eth0", false).unwrap();
    let rules = || a.output("ip", ["rule"]).unwrap();
    let before = rules();
    let mut process = site.up("0.0.0.0/0");
    says(
        &mut process,
        "not up yet: waiting for an address of vpn.test",
    );
    // No rule yet routes into a tunnel that would block the lookup of the name.
    assert_eq!(rules(), before);
    let status = a
        .output(PROGRAM, ["status", "--json", "--no-rate"])
        .unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status[0]["state"], "waiting", "{status}");
    let what = format!("an address of {NAME}:{PORT_B}");
    assert_eq!(status[0]["waiting_for"], what, "{status}");
    let list = a.output(PROGRAM, ["list"]).unwrap();
    assert!(list.contains("  waiting  "), "{list}");
    a.set_up("eth0", true).unwrap();
    let dns = site.dns(&[]);
    until("a query", || dns.asked() > 0);
    assert_eq!(rules(), before);
    dns.set(NAME, &[site.net.link.b4()]);
    says(&mut process, "is up");
    let list = a.output(PROGRAM, ["list"]).unwrap();
    assert!(list.contains("  up  "), "{list}");
    assert!(rules().contains("suppress_prefixlength 0"), "{}", rules());
    reaches(a, B4);
    pings(a, B4, 2);
    ends(process);
    assert_eq!(rules(), before);
}

/// Servers of a pool may be names. One without an address is passed over, at the start and under a full tunnel.
#[test]
fn a_pool_passes_over_names_without_an_address() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let _dns = site.dns(&[site.net.link.b4()]);
    let a = &site.net.a;
    let before = a.output("ip", ["rule"]).unwrap();
    let nobody = Keys::generate(a).unwrap().public;
    let dead = format!("#! Server = dead 192.168.1.2:9 {nobody}\n");
    let gone = "#! Server = gone gone.test:1\n";
    for first in [[gone, dead.as_str()], [dead.as_str(), gone]] {
        let lines = format!(
            "Address = {A4}/24\n#! [Pool]\n{}#! Server = live {NAME}:{PORT_B}\n",
            first.concat()
        );
        let file = site.0.file(WG, &lines, NAME, "0.0.0.0/0", "");
        let mut process = a.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
        says(&mut process, "calling live");
        reaches(a, B4);
        let status = lab::acceptance::status_of(a, WG);
        assert_eq!(status["peers"][0]["name"], "live", "{status}");
        ends(process);
        assert_eq!(a.output("ip", ["rule"]).unwrap(), before);
    }
}

/// A tunnel that waits for a line and name servers can be ended, and leaves nothing behind.
#[test]
fn a_tunnel_that_waits_for_its_name_ends_when_it_is_told() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let mut process = site.up("0.0.0.0/0");
    says(&mut process, "waiting for an address of vpn.test");
    assert!(site.net.a.has_interface(WG).unwrap());
    ends(process);
    assert!(!site.net.a.has_interface(WG).unwrap());
}

#[test]
fn every_address_of_a_name_is_tried() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let dns = site.dns(&[ip(UNUSED6), ip(UNUSED), site.net.link.b4()]);
    let mut process = site.up("10.0.0.0/24");
    says(&mut process, "is up");
    reaches(&site.net.a, B4);
    ends(process);
    dns.set(NAME, &[ip(UNUSED6), ip(UNUSED), site.net.link.b6()]);
    let mut process = site.up("10.0.0.0/24");
    says(&mut process, "is up");
    reaches(&site.net.a, B4);
    let endpoint = site.net.a.output("wg", ["show", WG, "endpoints"]).unwrap();
    assert!(
        endpoint.contains(&site.net.link.b6().to_string()),
        "{endpoint}"
    );
    ends(process);
}

/// A peer whose address changes is found at its new one, and the log says that it was gone and is back.
#[test]
fn a_peer_that_moves_is_looked_up_anew() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let dns = site.dns(&[site.net.link.b4()]);
    let (a, b) = (&site.net.a, &site.net.b);
    b.add_address("eth0", ip(MOVED), 24).unwrap();
    let mut process = site.up("10.0.0.0/24");
    reaches(a, B4);
    says(&mut process, "is connected");

    site.moves();
    let asked = dns.asked();
    until("a query", || {
        ping(a, ip(B4), &PingOptions::count(1)).unwrap();
        dns.asked() > asked
    });
    // The name changes only now: an earlier answer with the new address could prevent the message about the old one.
    says(&mut process, "does not answer any more");
    dns.set(NAME, &[ip(MOVED)]);
    says(&mut process, "answers again");
    reaches(a, B4);
    let endpoint = a.output("wg", ["show", WG, "endpoints"]).unwrap();
    assert!(endpoint.contains(MOVED), "{endpoint}");
    ends(process);
}

/// The full tunnel carries every query of the host, but no name server in it answers any more.
#[test]
fn a_peer_that_moves_is_found_past_a_full_tunnel_with_its_own_name_servers() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let dns = site.dns(&[site.net.link.b4()]);
    let (a, b) = (&site.net.a, &site.net.b);
    b.add_address("eth0", ip(MOVED), 24).unwrap();
    let script = "#!/bin/sh\nprintf 'nameserver 10.0.0.53\\noptions timeout:1 attempts:1\\n' > /etc/resolv.conf\n";
    let program = site.directory.file("resolvconf", script);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let path = format!(
        "{}:{}",
        site.directory.path().display(),
        std::env::var("PATH").unwrap()
    );
    let file = site.file("0.0.0.0/0");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("[Peer]", "DNS = 10.0.0.53\n[Peer]");
    let file = site.directory.file(&format!("{WG}.conf"), &text);
    let command = a.command(PROGRAM).env("PATH", path).arg("up").arg(file);
    let mut process = command.spawn().unwrap();
    says(&mut process, "is up");
    reaches(a, B4);
    let resolver = a.run(|| fs::read_to_string("/etc/resolv.conf")).unwrap();
    assert!(resolver.unwrap().contains("10.0.0.53"));

    dns.set(NAME, &[ip(MOVED)]);
    site.moves();
    let asked = dns.asked();
    until("a query", || {
        ping(a, ip(B4), &PingOptions::count(1)).unwrap();
        dns.asked() > asked
    });
    says(&mut process, "answers again");
    reaches(a, B4);
    ends(process);
}

/// A start without a reachable name server tries the last good address. If a name server answers that the name does not
/// exist, it does not.
#[test]
fn the_last_good_address_is_kept_over_a_start() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let dns = site.dns(&[site.net.link.b4()]);
    let a = &site.net.a;
    let mut process = site.up("0.0.0.0/0");
    says(&mut process, "is up");
    reaches(a, B4);
    ends(process);
    drop(dns);
    let mut process = site.up("0.0.0.0/0");
    says(&mut process, "trying its last good address");
    says(&mut process, "is up");
    reaches(a, B4);
    ends(process);
    // A captive portal answers with its own address, where no peer runs; then no server answers. The test ages the
    // file, because it is written at most every ten minutes.
    let age = "for file in /var/lib/millrace/endpoints /etc/millrace/endpoints; do \
        test ! -e $file || touch -d '20 minutes ago' $file; done";
    a.output("sh", ["-ec", age]).unwrap();
    let portal = site.dns(&[ip(UNUSED)]);
    let mut process = site.up("0.0.0.0/0");
    says(&mut process, "is up");
    until("a second query", || {
        ping(a, ip(B4), &PingOptions::count(1)).unwrap();
        portal.asked() > 2
    });
    ends(process);
    let kept = "cat /var/lib/millrace/endpoints /etc/millrace/endpoints 2> /dev/null || true";
    let kept = a.output("sh", ["-c", kept]).unwrap();
    assert!(kept.contains(NAME) && !kept.contains(UNUSED), "{kept}");
    drop(portal);
    let mut process = site.up("0.0.0.0/0");
    says(&mut process, "trying its last good address");
    says(&mut process, "is up");
    reaches(a, B4);
    ends(process);
    let _dns = site.dns(&[]);
    let mut process = site.up("0.0.0.0/0");
    says(&mut process, "waiting for an address of vpn.test");
    ends(process);
}

/// A line with its own name servers, as OpenWrt records them, uses these even if the host's resolver answers nothing.
#[test]
fn a_lines_own_name_servers_are_asked_by_the_line() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let a = &site.net.a;
    ask(a, ip(UNUSED));
    let dns = site.dns(&[site.net.link.b4()]);
    let auto = "mkdir -p /run/resolvconf/interfaces && echo nameserver 192.168.1.2 > /run/resolvconf/interfaces/eth0";
    a.output("sh", ["-ec", auto]).unwrap();
    let settings = site.directory.file(
        "lines.toml",
        "[[uplink]]\nname = \"wan\"\ninterface = \"eth0\"\n",
    );
    let file = site.file("10.0.0.0/24");
    let command = a.command(PROGRAM).arg("up").arg(file);
    let mut process = command.arg("--config").arg(settings).spawn().unwrap();
    says(&mut process, "is up");
    reaches(a, B4);
    assert_eq!(dns.asked(), 2, "addresses of both families");
    ends(process);
}

/// An address set by `wg` replaces the name.
#[test]
fn an_address_that_wg_sets_takes_the_place_of_the_name() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let dns = site.dns(&[ip(UNUSED)]);
    let a = &site.net.a;
    let mut process = site.up("10.0.0.0/24");
    says(&mut process, "is up");
    let endpoint = format!("{}:{PORT_B}", site.net.link.b4());
    let words = [
        "set",
        WG,
        "peer",
        &site.keys_b.public,
        "endpoint",
        &endpoint,
    ];
    a.output("wg", words).unwrap();
    reaches(a, B4);
    let asked = dns.asked();
    let shown = a.output("wg", ["show", WG, "endpoints"]).unwrap();
    assert!(shown.contains(&endpoint), "{shown}");
    assert_eq!(dns.asked(), asked);
    // The file keeps the name.
    assert!(
        fs::read_to_string(site.file("10.0.0.0/24"))
            .unwrap()
            .contains(NAME)
    );
    ends(process);
}
