//! `millrace up FILE` applies the file's settings while it runs, and removes all of them afterwards.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::PathBuf;

use lab::acceptance::{
    A4, B4, B6, PATIENCE, PORT_B, PROGRAM, inhabitants, pings, ready, run_files, status_of,
    tcp_both_ways, until,
};
use lab::peer::{Keys, PeerOptions, RunningPeer, WgPeer, WireGuardPeer as _};
use lab::{Exit, Host, Process};
use nix::sys::signal::Signal;

/// The interface that the file makes.
const UP: &str = "up0";
/// An address behind B, reachable only through the tunnel.
const BEHIND: &str = "203.0.113.1";
const BEHIND6: &str = "2001:db8:113::1";

/// A, which runs the file, and B, which runs already.
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
        let behind = [(BEHIND, 32), (BEHIND6, 128)];
        let b = self.0.server(&[("fd01::1", 128)], &behind);
        lab::acceptance::usable(&self.net.b, B6);
        b
    }

    /// Writes a file with these lines and ranges.
    fn file(&self, lines: &str, ranges: &str) -> PathBuf {
        let lines = format!("Address = {A4}/24, fd01::1/64\n{lines}");
        let endpoint = self.net.link.b4().to_string();
        self.0.file(UP, &lines, &endpoint, ranges, "")
    }

    fn command(&self, file: &PathBuf, more: &[&str]) -> lab::HostCommand<'_> {
        self.net.a.command(PROGRAM).arg("up").args(more).arg(file)
    }

    /// Starts the tunnel and waits until it reports that it is up.
    fn up(&self, file: &PathBuf, more: &[&str]) -> Process {
        let mut process = self.command(file, more).spawn().unwrap();
        process
            .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
            .unwrap();
        process
    }

    /// Runs the tunnel until it ends by itself.
    fn refused(&self, file: &PathBuf, more: &[&str]) -> Exit {
        let exit = self
            .command(file, more)
            .spawn()
            .unwrap()
            .wait_at_most(PATIENCE)
            .unwrap();
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        self.nothing_is_left();
        exit
    }

    fn nothing_is_left(&self) {
        until("the end of all processes", || {
            inhabitants(&self.net.a).is_empty()
        });
        assert!(!self.net.a.has_interface(UP).unwrap());
        assert_eq!(run_files(&self.net.a), Vec::<String>::new());
    }
}

/// Every part of the network state that could be left behind.
fn network(host: &Host) -> String {
    let mut all = String::new();
    for words in [
        &["-4", "rule"][..],
        &["-6", "rule"],
        &["-4", "route", "show", "table", "all"],
        &["-6", "route", "show", "table", "all"],
    ] {
        all += &host.output("ip", words).unwrap();
    }
    let mark = fs::read_to_string;
    all += &host
        .run(|| mark("/proc/sys/net/ipv4/conf/all/src_valid_mark"))
        .unwrap()
        .unwrap();
    // Leaves out entries with ages, which the kernel learned by itself.
    let mut lines: Vec<&str> = all
        .lines()
        .filter(|line| !line.contains("expires"))
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn ends(process: Process, signal: Signal) {
    process.signal(signal).unwrap();
    let exit = process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    assert!(!exit.stderr.contains("error"), "{exit:?}");
}

/// In the foreground the user reads which peer is called, why it may be silent, and what the tunnel leads once it answers.
#[test]
fn the_foreground_says_what_happens() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let file = site.file("", &format!("10.0.0.0/24, {BEHIND}/32"));
    let mut process = site.command(&file, &[]).spawn().unwrap();
    let mut line = |words: &'static str| {
        process
            .wait_for_line(words, PATIENCE, |line| line.contains(words))
            .unwrap()
    };
    let calling = line("up0: connecting to ");
    let endpoint = site.net.link.b4().to_string();
    assert!(
        calling.contains(&endpoint) && calling.contains(" over "),
        "{calling}"
    );
    line("has not answered for 5 s");
    let _server = site.server();
    let connected = line("up0: connected in ");
    let leads = format!(" s: traffic to {BEHIND}/32 and 10.0.0.0/24 goes through up0");
    assert!(connected.ends_with(&leads), "{connected}");
    ends(process, Signal::SIGINT);
    site.nothing_is_left();
}

#[test]
fn networks_go_into_the_tunnel_and_back() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let a = &site.net.a;
    let before = network(a);
    let ranges = format!("10.0.0.0/24, {BEHIND}/32, fd01::/64, {BEHIND6}/128");
    let file = site.file("MTU = 1380\nListenPort = 4444", &ranges);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let process = site.up(&file, &[]);
        let link = a.netlink().unwrap().link(UP).unwrap();
        assert!(link.up && link.mtu == 1380, "{link:?}");
        let addresses = a.output("ip", ["-o", "addr", "show", "dev", UP]).unwrap();
        assert!(
            addresses.contains("10.0.0.1/24") && addresses.contains("fd01::1/64"),
            "{addresses}"
        );
        assert_eq!(
            a.output("wg", ["show", UP, "listen-port"]).unwrap().trim(),
            "4444"
        );
        lab::acceptance::usable(a, "fd01::1");
        // B may still have a session with the previous A, under which its first answer is lost.
        lab::acceptance::reaches(a, B4);
        for target in [B4, B6, BEHIND, BEHIND6] {
            pings(a, target, 2);
        }
        tcp_both_ways(a, &site.net.b, BEHIND, 1_000_000);
        // There is no default route, so neither a mark nor rules are needed.
        assert_eq!(
            a.output("wg", ["show", UP, "fwmark"]).unwrap().trim(),
            "off"
        );
        ends(process, signal);
        site.nothing_is_left();
        assert_eq!(network(a), before);
    }
}

/// If the file gives no MTU, the path to the endpoint determines it.
#[test]
fn mtu_follows_the_way_to_the_endpoint() {
    if !ready() {
        return;
    }
    let site = Site::new();
    site.net.a.set_mtu("eth0", 1492).unwrap();
    let process = site.up(&site.file("", "10.0.0.0/24"), &[]);
    assert_eq!(site.net.a.netlink().unwrap().link(UP).unwrap().mtu, 1412);
    ends(process, Signal::SIGINT);
}

/// A full tunnel takes everything except its own datagrams; after a kill, the next start cleans up.
#[test]
fn everything_goes_into_a_full_tunnel() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let server = site.server();
    let a = &site.net.a;
    a.add_default_route(site.net.link.b4()).unwrap();
    a.add_default_route(site.net.link.b6()).unwrap();
    let before = network(a);
    let file = site.file("", "0.0.0.0/0, ::/0");
    let check = || {
        let rules = a.output("ip", ["rule"]).unwrap();
        assert!(rules.contains("suppress_prefixlength 0"), "{rules}");
        let mark = a.output("wg", ["show", UP, "fwmark"]).unwrap();
        assert_ne!(mark.trim(), "off");
        lab::acceptance::usable(a, "fd01::1");
        lab::acceptance::reaches(a, BEHIND);
        let received = lab::acceptance::peer(&server, &site.keys_a).received;
        pings(a, BEHIND, 3);
        pings(a, BEHIND6, 3);
        assert!(lab::acceptance::peer(&server, &site.keys_a).received >= received + 6 * 128);
        // A directly connected network is still reached beside the tunnel.
        let received = lab::acceptance::peer(&server, &site.keys_a).received;
        pings(a, &site.net.link.b4().to_string(), 3);
        assert!(lab::acceptance::peer(&server, &site.keys_a).received < received + 3 * 128);
    };
    let process = site.up(&file, &[]);
    check();
    ends(process, Signal::SIGINT);
    site.nothing_is_left();
    assert_eq!(network(a), before);

    // After a kill the interface is gone, and the rules stay until the next start.
    let process = site.up(&file, &[]);
    process.signal(Signal::SIGKILL).unwrap();
    assert!(!process.wait_at_most(PATIENCE).unwrap().status.success());
    assert_ne!(network(a), before);
    let process = site.up(&file, &[]);
    check();
    ends(process, Signal::SIGTERM);
    site.nothing_is_left();
    assert_eq!(network(a), before);
}

/// Another server on B, with an address of its own and the port after that of the first.
struct Second<'s> {
    peer: RunningPeer<'s>,
    keys: Keys,
}

impl Second<'_> {
    const NAME: &'static str = "wg1";
    const ADDRESS: &'static str = "198.51.100.9";
    const PORT: u16 = PORT_B + 1;

    fn start(site: &Site) -> Second<'_> {
        let b = &site.net.b;
        b.add_address("lo", lab::acceptance::ip(Self::ADDRESS), 32)
            .unwrap();
        let keys = Keys::generate(b).unwrap();
        let program = lab::acceptance::millrace();
        let peer = program.start(b, Self::NAME, &PeerOptions::default());
        let peer = peer.unwrap();
        let a = WgPeer::new(&site.keys_a.public).allow(lab::acceptance::ip(A4), 32);
        let interface = lab::acceptance::interface(&keys, Self::PORT, vec![a]);
        peer.configure(&interface).unwrap();
        peer.bring_up(&[], 1420).unwrap();
        // Answers to A leave by the first server while that has its route.
        let way = [
            "route",
            "add",
            "10.0.0.0/24",
            "dev",
            Self::NAME,
            "metric",
            "500",
        ];
        b.output("ip", way).unwrap();
        Second { peer, keys }
    }

    /// The line of a pool for this server.
    fn line(&self) -> String {
        let (at, key) = (Self::ADDRESS, &self.keys.public);
        format!("#! Server = second {at}:{} {key}\n", Self::PORT)
    }

    fn received(&self, site: &Site) -> u64 {
        lab::acceptance::peer(&self.peer, &site.keys_a).received
    }
}

/// The name of the pool's server that a tunnel of A uses.
fn in_use(site: &Site) -> String {
    let status = status_of(&site.net.a, UP);
    let server = status["peers"][0]["name"].as_str();
    server.unwrap_or_default().to_owned()
}

/// The first server of a pool falls silent under a full tunnel. The next one takes over, and nothing of the first is left.
#[test]
fn the_next_server_of_a_pool_takes_over() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let first = site.server();
    let second = Second::start(&site);
    let a = &site.net.a;
    let b4 = site.net.link.b4();
    a.add_default_route(b4).unwrap();
    let before = network(a);
    let pool = format!(
        "#! [Pool]\n#! Server = first {b4}:{PORT_B}\n{}",
        second.line()
    );
    let file = site.file(&pool, "0.0.0.0/0, ::/0");
    let mut process = site.up(&file, &[]);
    lab::acceptance::reaches(a, BEHIND);
    assert_eq!(in_use(&site), "first");
    assert_eq!(second.received(&site), 0);

    // Its port stays open, so nothing tells A that it is gone.
    first.process.signal(Signal::SIGSTOP).unwrap();
    let gone = ["route", "del", "10.0.0.0/24", "dev", lab::acceptance::WG];
    site.net.b.output("ip", gone).unwrap();
    lab::acceptance::reaches(a, BEHIND);
    assert_eq!(in_use(&site), "second");
    let words = "up0: no answer from first";
    let line = process
        .wait_for_line(words, PATIENCE, |line| line.contains(words))
        .unwrap();
    assert!(line.contains("; calling second ("), "{line}");
    let status = status_of(a, UP);
    assert!(status["failed_servers"]["first"].is_u64(), "{status}");
    let peers = a.output("wg", ["show", UP, "allowed-ips"]).unwrap();
    assert_eq!(peers.lines().count(), 1, "{peers}");
    assert!(peers.starts_with(&second.keys.public), "{peers}");
    let received = second.received(&site);
    pings(a, BEHIND, 3);
    assert!(second.received(&site) >= received + 3 * 128);
    // The handshakes with the second do not go through the tunnel, and other packets do.
    let mark = a.output("wg", ["show", UP, "fwmark"]).unwrap();
    let way = |more: &[&str]| {
        let words = ["route", "get", Second::ADDRESS].iter().chain(more);
        a.output("ip", words.copied()).unwrap()
    };
    assert!(way(&[]).contains(UP));
    assert!(way(&["mark", mark.trim()]).contains("eth0"));

    // It stays with the second although the first is back.
    first.process.signal(Signal::SIGCONT).unwrap();
    pings(a, BEHIND, 2);
    assert_eq!(in_use(&site), "second");
    ends(process, Signal::SIGINT);
    site.nothing_is_left();
    assert_eq!(network(a), before);
}

/// At the start some servers are dead or have no route; a changed `Use` is obeyed at once.
#[test]
fn a_pool_begins_with_a_server_that_answers() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _first = site.server();
    let second = Second::start(&site);
    let a = &site.net.a;
    let b4 = site.net.link.b4();
    a.add_default_route(b4).unwrap();
    let servers = format!(
        "#! Server = nowhere [2001:db8::7]:1\n#! Server = dead {b4}:9\n#! Server = live {b4}:{PORT_B}\n"
    );
    let before = network(a);
    for choose in ["order", "fastest", "random"] {
        let pool = |wanted: &str, more: &str| {
            format!("#! [Pool]\n#! Use = {wanted}\n#! Choose = {choose}\n{servers}{more}")
        };
        // The dead server has a key of its own, so that all can be called at once.
        let servers = second.line().replace("second", "dead2");
        let servers = servers.replace(&Second::PORT.to_string(), "9");
        let servers = servers + &second.line();
        let ranges = "10.0.0.0/24\nPersistentKeepalive = 25";
        let file = site.file(&pool("nowhere, dead2, live", &servers), ranges);
        let process = site.up(&file, &[]);
        until("an answer of the live server", || in_use(&site) == "live");
        lab::acceptance::reaches(a, B4);
        let name = file.to_str().unwrap();
        let shown = a.output(PROGRAM, ["pool", name]).unwrap();
        let line = |server: &str| shown.lines().find(|it| it.contains(server)).unwrap();
        assert!(line(" live ").ends_with("  in use"), "{shown}");
        assert!(line(" second ").ends_with("  left out"), "{shown}");
        let received = second.received(&site);
        a.output(PROGRAM, ["pool", name, "use", "sec*"]).unwrap();
        until("the second server", || {
            in_use(&site) == "second" && second.received(&site) > received
        });
        // It was called once: the answer to the first of two calls would be lost.
        let flood = &status_of(&site.net.b, Second::NAME)["refused"]["flood"];
        assert_eq!(flood.as_u64(), Some(0), "{choose}");
        ends(process, Signal::SIGINT);
        site.nothing_is_left();
        assert_eq!(network(a), before);
    }
}

#[test]
fn table_is_the_files_choice() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let a = &site.net.a;
    let ranges = format!("{BEHIND}/32");
    let table = |number: &str| {
        a.output("ip", ["route", "show", "table", number])
            .unwrap_or_default()
    };
    let process = site.up(&site.file("Table = off", &ranges), &[]);
    assert!(!table("all").contains(BEHIND), "{}", table("all"));
    ends(process, Signal::SIGINT);
    let process = site.up(&site.file("Table = 123", &ranges), &[]);
    assert!(table("123").contains(BEHIND), "{}", table("all"));
    assert!(!table("main").contains(BEHIND), "{}", table("all"));
    ends(process, Signal::SIGINT);
    site.nothing_is_left();
}

#[test]
fn saved_file_has_what_wg_changed() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let a = &site.net.a;
    let file = site.file("SaveConfig = true", "10.0.0.0/24");
    let other = Keys::generate(a).unwrap();
    let process = site.up(&file, &[]);
    let words = [
        "set",
        UP,
        "listen-port",
        "5555",
        "peer",
        &other.public,
        "allowed-ips",
        "10.9.0.0/16",
    ];
    a.output("wg", words).unwrap();
    ends(process, Signal::SIGTERM);
    let text = fs::read_to_string(&file).unwrap();
    for wanted in [
        &*other.public,
        "10.9.0.0/16",
        "5555",
        &site.keys_b.public,
        "SaveConfig = true",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // The saved file can be read again.
    let process = site.up(&file, &[]);
    assert_eq!(
        a.output("wg", ["show", UP, "peers"])
            .unwrap()
            .lines()
            .count(),
        2
    );
    ends(process, Signal::SIGINT);
}

#[test]
fn scripts_run_only_where_they_may() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let log = site.directory.path().join("log");
    let line = |phase: &str| format!("{phase} = echo {phase} %i >> {}\n", log.display());
    let lines: String = ["PreUp", "PostUp", "PreDown", "PostDown"]
        .map(line)
        .concat();
    let file = site.file(&lines, "10.0.0.0/24");
    let exit = site.refused(&file, &[]);
    assert!(
        exit.stderr.contains("PostUp") && exit.stderr.contains("up0.conf:5"),
        "{exit:?}"
    );
    assert!(!log.exists());

    let process = site.up(&file, &["--ignore-refused"]);
    ends(process, Signal::SIGINT);
    assert!(!log.exists());

    let process = site.up(&file, &["--allow-scripts"]);
    assert_eq!(fs::read_to_string(&log).unwrap(), "PreUp up0\nPostUp up0\n");
    ends(process, Signal::SIGINT);
    let all = "PreUp up0\nPostUp up0\nPreDown up0\nPostDown up0\n";
    assert_eq!(fs::read_to_string(&log).unwrap(), all);

    // A failing script takes everything down again.
    let file = site.file("PostUp = exit 3", "10.0.0.0/24");
    let before = network(&site.net.a);
    let exit = site.refused(&file, &["--allow-scripts"]);
    assert!(exit.stderr.contains("exit 3"), "{exit:?}");
    assert_eq!(network(&site.net.a), before);
}

#[test]
fn wrong_files_are_refused_with_their_lines() {
    if !ready() {
        return;
    }
    let site = Site::new();
    for (lines, ranges, wanted) in [
        ("MTU = many", "10.0.0.0/24", "up0.conf:4"),
        ("NoSuchKey = 1", "10.0.0.0/24", "up0.conf:4"),
        ("ListenPort = 70000", "10.0.0.0/24", "up0.conf:4"),
        ("", "10.0.0.0/40", "up0.conf:8"),
    ] {
        let exit = site.refused(&site.file(lines, ranges), &[]);
        assert!(exit.stderr.contains(wanted), "{wanted}: {exit:?}");
    }
    let missing = PathBuf::from("/nonexistent/up0.conf");
    let exit = site.refused(&missing, &[]);
    assert!(exit.stderr.contains("/nonexistent/up0.conf"), "{exit:?}");
}

#[test]
fn second_start_is_refused_and_the_first_goes_on() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let file = site.file("", "10.0.0.0/24");
    let process = site.up(&file, &[]);
    let exit = site
        .command(&file, &[])
        .spawn()
        .unwrap()
        .wait_at_most(PATIENCE)
        .unwrap();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(exit.stderr.contains("millrace down up0"), "{exit:?}");
    pings(&site.net.a, B4, 2);
    ends(process, Signal::SIGINT);
    site.nothing_is_left();
}

/// A router's owner learns what a full tunnel lacks: masquerading for the LAN, a program for name servers, a key of its
/// own, an answer.
#[test]
fn a_full_tunnel_says_what_it_lacks() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let a = &site.net.a;
    a.add_default_route(site.net.link.b4()).unwrap();
    let lan = Host::private("lan").unwrap();
    lab::Link::new(a, "br-lan", &lan, "eth0", &lab::LinkOptions::numbered(9)).unwrap();
    a.sysctl("net/ipv4/ip_forward", "1").unwrap();
    let file = site.file("DNS = 192.0.2.53", "0.0.0.0/0");
    // No program for name servers is in this PATH.
    let up = |file: &PathBuf, more: &[&str]| {
        let command = site.command(file, more);
        let path = site.directory.path().display().to_string();
        command.env("PATH", path).spawn().unwrap()
    };
    let process = up(&file, &[]);
    until("the connection", || {
        process.stderr().contains("connected in")
    });
    let said = process.stderr();
    for words in [
        "devices of br-lan (192.168.9.0/24) get no answers through up0",
        "DNS cannot be applied",
        "goes through up0, IPv6 leaves outside it, names are looked up as before",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let doctor = || a.command(PROGRAM).arg("doctor").exit().unwrap().stdout;
    let found = doctor();
    assert!(found.contains("masquerade: devices of br-lan"), "{found}");
    assert!(!found.contains("has no carrier"), "{found}");
    // Another tunnel with the same key, whose server is silent.
    let text = fs::read_to_string(&file).unwrap();
    let silent = text.replace(&format!(":{PORT_B}"), ":9");
    let second = site.directory.file("up1.conf", &silent);
    let exit = up(&second, &["--daemon", "--wait", "1"]);
    let exit = exit.wait_at_most(PATIENCE).unwrap();
    assert_eq!(exit.status.code(), Some(3), "{exit:?}");
    for words in [
        "the tunnel up0 is up with the same PrivateKey",
        "this host has no Internet",
        "`millrace down up1` ends it",
    ] {
        assert!(exit.stderr.contains(words), "{words}: {exit:?}");
    }
    a.output(PROGRAM, ["down", "up1"]).unwrap();
    ends(process, Signal::SIGINT);
    // A LAN that is masqueraded causes no warning.
    let rules = "table ip nat {\nchain post {\ntype nat hook postrouting priority 100\n\
                 oifname \"up*\" masquerade\n}\n}\n";
    a.nft(rules).unwrap();
    let process = up(&file, &[]);
    until("the connection", || {
        process.stderr().contains("connected in")
    });
    assert!(
        !process.stderr().contains("no answers"),
        "{}",
        process.stderr()
    );
    // The uplink's cable comes out.
    site.net.b.set_up("eth0", false).unwrap();
    let mut found = String::new();
    until("the carrier's end", || {
        found = doctor();
        found.contains("route: the uplink eth0 has no carrier")
    });
    assert!(!found.contains("masquerade:"), "{found}");
    ends(process, Signal::SIGINT);
    site.nothing_is_left();
}

/// Deleting the link of a tunnel in the background also removes its rules.
#[test]
fn background_tunnel_ends_with_its_link() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server();
    let a = &site.net.a;
    a.add_default_route(site.net.link.b4()).unwrap();
    let before = network(a);
    let file = site.file("", "0.0.0.0/0");
    let exit = site
        .command(&file, &["--daemon"])
        .spawn()
        .unwrap()
        .wait_at_most(PATIENCE)
        .unwrap();
    assert!(exit.status.success(), "{exit:?}");
    pings(a, BEHIND, 2);
    a.output("ip", ["link", "delete", UP]).unwrap();
    site.nothing_is_left();
    assert_eq!(network(a), before);
}

/// The program passes name servers to their manager, and removes them again.
#[test]
fn name_servers_are_set_and_taken_back() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let log = site.directory.path().join("log");
    let text = format!(
        "#!/bin/sh\necho \"$@\" >> {0}\n[ \"$1\" = -a ] && cat >> {0}\nexit 0\n",
        log.display()
    );
    let program = site.directory.file("resolvconf", &text);
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    let path = format!(
        "{}:{}",
        site.directory.path().display(),
        std::env::var("PATH").unwrap()
    );
    let file = site.file("DNS = 192.0.2.53, example.com", "10.0.0.0/24");
    let start = |more: &[&str]| {
        let mut process = site
            .command(&file, more)
            .env("PATH", &path)
            .spawn()
            .unwrap();
        process
            .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
            .unwrap();
        process
    };
    ends(start(&["--no-dns"]), Signal::SIGINT);
    assert!(!log.exists());
    let process = start(&[]);
    let said = fs::read_to_string(&log).unwrap();
    assert!(
        said.contains("-a") && said.contains(UP) && said.contains("nameserver 192.0.2.53"),
        "{said}"
    );
    assert!(said.contains("example.com"), "{said}");
    ends(process, Signal::SIGINT);
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.lines().last().unwrap().starts_with("-d"), "{said}");
}
