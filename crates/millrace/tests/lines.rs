//! Several lines to a peer without support for lines.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use lab::acceptance::two_lines::{SENT, mostly_arrive};
use lab::acceptance::{
    A4, B4, Directory, PATIENCE, PORT_A, PORT_B, PROGRAM, TwoLines, WG, drops, interface, ip,
    millrace, peer, pings, ready, status_of, tcp_both_ways, tcp_both_ways_while, until,
    wireguard_go,
};
use lab::load::{UDP_QUIET, UdpLoad, udp_load};
use lab::peer::{Keys, PeerOptions, RunningPeer, WgPeer, WireGuardPeer as _};
use lab::{Impairment, Process, Side};
use serde_json::Value;

/// Host A with two lines to B, and a key for each host.
struct World {
    net: TwoLines,
    keys: [Keys; 2],
    directory: Directory,
}

impl Deref for World {
    type Target = TwoLines;

    fn deref(&self) -> &TwoLines {
        &self.net
    }
}

const NAMES: [&str; 2] = TwoLines::NAMES;
const SERVER: &str = TwoLines::SERVER;

impl World {
    fn new() -> Self {
        let net = TwoLines::new();
        let keys = [
            Keys::generate(&net.a).unwrap(),
            Keys::generate(&net.b).unwrap(),
        ];
        Self {
            net,
            keys,
            directory: Directory::new(),
        }
    }

    /// Starts B, which waits for A's handshake.
    fn server(&self) -> Option<RunningPeer<'_>> {
        let options = PeerOptions::default();
        let b = wireguard_go()?.start(&self.b, WG, &options).unwrap();
        let a = WgPeer::new(&self.keys[0].public).allow(ip(A4), 32);
        b.configure(&interface(&self.keys[1], PORT_B, vec![a]))
            .unwrap();
        b.bring_up(&[(ip(B4), 24)], 1420).unwrap();
        Some(b)
    }

    /// Starts B with Millrace, which answers on all lines.
    fn millrace_server(&self, mode: &str) -> Process {
        let text = format!(
            "#! [Uplinks]\n#! Mode = {mode}\n#! Reorder = yes\n[Interface]\nPrivateKey = {}\nListenPort = {PORT_B}\n\
             Address = {B4}/24\n[Peer]\nPublicKey = {}\nAllowedIPs = {A4}/32\n",
            self.keys[1].private, self.keys[0].public,
        );
        let file = self.directory.file("wg1.conf", &text);
        let command = self.b.command(PROGRAM).arg("up").arg(file);
        let mut server = command.spawn().unwrap();
        server
            .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
            .unwrap();
        server
    }

    /// Starts A with `lines` as comments in front of a plain file.
    fn client(&self, lines: &str) -> Process {
        let text = format!(
            "{lines}\n[Interface]\nPrivateKey = {}\nListenPort = {PORT_A}\nAddress = {A4}/24\n\
             [Peer]\nPublicKey = {}\nEndpoint = {SERVER}:{PORT_B}\nAllowedIPs = {B4}/32\n",
            self.keys[0].private, self.keys[1].public,
        );
        let file = self.directory.file("wg0.conf", &text);
        let command = self.a.command(PROGRAM).arg("up").arg(file);
        let mut process = command.spawn().unwrap();
        process
            .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
            .unwrap();
        process
    }

    /// A's status of a line.
    fn line(&self, at: usize) -> Value {
        let status = status_of(&self.a, WG);
        status["peers"][0]["lines"][at].clone()
    }

    fn in_use(&self) -> Option<usize> {
        (0..2).find(|at| self.line(*at)["in_use"] == true)
    }

    fn is(&self, at: usize, state: &str) {
        let (name, mut last) = (NAMES[at], Value::Null);
        until(&format!("{name} {state}"), || {
            let line = self.line(at);
            let now = line["state"].clone();
            if now != last {
                println!("{line}");
                last = now.clone();
            }
            now == state
        });
    }

    fn uses(&self, at: usize) {
        until(&format!("{} in use", NAMES[at]), || {
            self.in_use() == Some(at)
        });
    }

    /// Waits until B sends to A's address on this line.
    fn answered_on(&self, b: &RunningPeer<'_>, at: usize) {
        let there = Some((self.links[at].a4(), PORT_A).into());
        until("answers on the line in use", || {
            peer(b, &self.keys[0]).endpoint == there
        });
    }
}

const FAILOVER: &str = "#! [Uplinks]\n#! Mode = failover\n#! Hold = 1\n\
    #! [Uplink]\n#! Name = dsl\n#! Interface = dsl\n\
    #! [Uplink]\n#! Name = lte\n#! Interface = lte\n#! Priority = 20";

/// A cable beyond the first hop is cut: the host notices nothing, but the tunnel does.
#[test]
fn a_transfer_survives_the_cut_of_its_line_and_the_tunnel_goes_back() {
    if !ready() {
        return;
    }
    let world = World::new();
    let Some(b) = world.server() else { return };
    let mut client = world.client(FAILOVER);
    for at in [0, 1] {
        world.is(at, "up");
    }
    world.uses(0);
    pings(&world.a, B4, 2);
    world.answered_on(&b, 0);

    tcp_both_ways_while(&world.a, &world.b, ip(B4), 12_000_000, |seen| {
        until("a part of it", || seen.load(Ordering::Relaxed) > 1_000_000);
        world.cables[0].cut(true);
        world.is(0, "down");
        world.uses(1);
    });
    let reason = world.line(0)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("not answered"), "{reason}");
    world.answered_on(&b, 1);

    world.cables[0].cut(false);
    world.is(0, "up");
    world.uses(0);
    pings(&world.a, B4, 3);
    world.answered_on(&b, 0);
    for words in [
        "uplink dsl is down: the peer has not answered on it for",
        "uplink lte is used now: the uplink in use has failed",
        "uplink dsl is up: the peer answers on it again, after",
        "uplink dsl is used now: it is preferred and has worked for 1 s",
    ] {
        let told = client.wait_for_line(words, PATIENCE, |line| line.contains(words));
        told.unwrap();
    }
    client.stop().unwrap().success().unwrap();
}

/// An interface configured by `wg` has no file for lines, so it uses those of the settings file.
#[test]
fn an_interface_of_wg_has_the_lines_of_the_settings_file() {
    if !ready() {
        return;
    }
    let world = World::new();
    let Some(b) = world.server() else { return };
    let settings = "[uplinks]\nhold = 1\n[[uplink]]\nname = \"dsl\"\ninterface = \"dsl\"\n\
        [[uplink]]\nname = \"lte\"\ninterface = \"lte\"\npriority = 20\n";
    let settings = world.directory.file("millrace.toml", settings);
    let options = PeerOptions {
        arguments: vec!["--config".to_owned(), settings.display().to_string()],
        ..PeerOptions::default()
    };
    let a = millrace().start(&world.a, WG, &options).unwrap();
    let mut theirs = WgPeer::new(&world.keys[1].public).allow(ip(B4), 32);
    theirs.endpoint = Some((ip(SERVER), PORT_B).into());
    a.configure(&interface(&world.keys[0], PORT_A, vec![theirs]))
        .unwrap();
    a.bring_up(&[(ip(A4), 24)], 1420).unwrap();
    for at in [0, 1] {
        world.is(at, "up");
    }
    world.uses(0);
    pings(&world.a, B4, 2);

    world.cables[0].cut(true);
    world.uses(1);
    pings(&world.a, B4, 2);
    world.answered_on(&b, 1);

    world.cables[0].cut(false);
    world.uses(0);
    pings(&world.a, B4, 2);
    world.answered_on(&b, 0);
}

/// The tunnel notices a removed device without any packet, and uses the device again without a restart.
#[test]
fn a_line_goes_with_its_device_and_comes_back_with_it() {
    if !ready() {
        return;
    }
    let world = World::new();
    let Some(b) = world.server() else { return };
    world.a.set_up("lte", false).unwrap();
    let client = world.client(FAILOVER);
    world.is(0, "up");
    world.is(1, "down");
    let reason = world.line(1)["reason"].clone();
    assert_eq!(reason, "its device has no carrier");
    pings(&world.a, B4, 2);

    world.a.set_up("lte", true).unwrap();
    world.lead(1);
    world.is(1, "up");
    world.a.set_up("dsl", false).unwrap();
    world.uses(1);
    pings(&world.a, B4, 2);
    world.answered_on(&b, 1);

    world.a.set_up("dsl", true).unwrap();
    world.lead(0);
    world.uses(0);
    pings(&world.a, B4, 2);
    client.stop().unwrap().success().unwrap();
}

/// The stored usage of a tunnel's lines, removed at the end so that later tests start at zero.
struct Kept;

impl Kept {
    fn paths() -> [PathBuf; 2] {
        ["/var/lib", "/etc"].map(|it| Path::new(it).join(format!("millrace/{WG}.uplinks")))
    }

    fn new() -> Self {
        drop(Self);
        Self
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for path in Self::paths() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The usage count survives a restart, and starts again if its file is damaged.
#[test]
fn a_line_that_has_carried_what_it_may_is_left_after_a_restart_too() {
    if !ready() {
        return;
    }
    let _kept = Kept::new();
    let world = World::new();
    let Some(_b) = world.server() else { return };
    let lines = FAILOVER.replace("Interface = dsl", "Interface = dsl\n#! Cap = 1M");
    let used = || world.line(0)["cap"]["used_bytes"].as_u64().unwrap();
    let client = world.client(&lines);
    world.uses(0);
    tcp_both_ways(&world.a, &world.b, B4, 1_000_000);
    world.uses(1);
    assert!(used() >= 1_000_000, "{}", used());
    assert_eq!(world.line(0)["cap"]["left_bytes"], 0);
    client.stop().unwrap().success().unwrap();

    let client = world.client(&lines);
    for at in [0, 1] {
        world.is(at, "up");
    }
    world.uses(1);
    pings(&world.a, B4, 2);
    assert!(used() >= 1_000_000, "{}", used());
    client.stop().unwrap().success().unwrap();

    // Each host has its own directory for data that survives a reboot.
    let damaged = Kept::paths().iter().any(|path| {
        let path = path.display();
        let damage =
            format!("test -e {path} && head -c 5000 /dev/zero | tr '\\000' '\\377' >{path}");
        world.a.output("sh", ["-c", damage.as_str()]).is_ok()
    });
    assert!(damaged);
    let client = world.client(&lines);
    world.uses(0);
    assert!(used() < 1_000_000, "{}", used());
    client.stop().unwrap().success().unwrap();
}

const DUPLICATE: &str = "#! [Uplinks]\n#! Mode = duplicate\n#! Reorder = yes\n\
    #! [Uplink]\n#! Name = dsl\n#! Interface = dsl\n\
    #! [Uplink]\n#! Name = lte\n#! Interface = lte\n#! Priority = 20";

/// The peer drops the later copy as it would drop a replayed packet.
#[test]
fn a_peer_that_knows_nothing_of_copies_gets_what_either_line_brings() {
    if !ready() {
        return;
    }
    let world = World::new();
    let Some(_b) = world.server() else { return };
    let client = world.client(DUPLICATE);
    for at in [0, 1] {
        world.is(at, "up");
        until("both used", || world.line(at)["in_use"] == true);
    }
    pings(&world.a, B4, 2);
    world.lose(0.05);
    mostly_arrive(&world.a, &world.b, B4);

    world.cut_costs_little(B4);
    world.is(0, "down");
    client.stop().unwrap().success().unwrap();
}

/// Both ends support lines: both directions use them, and packets stay in order.
#[test]
fn a_peer_that_answers_on_each_line_is_heard_by_either() {
    if !ready() {
        return;
    }
    let world = World::new();
    let server = world.millrace_server("duplicate");
    let client = world.client(DUPLICATE);
    for at in [0, 1] {
        world.is(at, "up");
        until("both used", || world.line(at)["in_use"] == true);
    }
    pings(&world.a, B4, 3);
    until("the server hears both lines", || {
        let status = status_of(&world.b, "wg1");
        let lines = status["peers"][0]["lines"].as_array().unwrap().clone();
        lines.len() == 2 && lines.iter().all(|line| line["state"] == "up")
    });
    world.lose(0.05);
    mostly_arrive(&world.a, &world.b, B4);
    mostly_arrive(&world.b, &world.a, A4);
    for (host, name) in [(&world.a, WG), (&world.b, "wg1")] {
        let status = status_of(host, name);
        let peer = &status["peers"][0];
        let order = &peer["order"];
        let number = |value: &Value| value.as_u64().unwrap();
        assert!(number(&order["accepted"]) > SENT / 100 * 95, "{peer}");
        assert!(number(&order["lost"]) < SENT / 40, "{peer}");
        let copies = peer["lines"].as_array().unwrap().iter();
        let copies: u64 = copies.map(|line| number(&line["duplicated"])).sum();
        assert!(copies > SENT / 2, "{peer}");
    }
    client.stop().unwrap().success().unwrap();
    server.stop().unwrap().success().unwrap();
}

const BALANCE_PACKETS: &str = "#! [Uplinks]\n#! Mode = balance-packets\n#! Reorder = yes\n\
    #! [Uplink]\n#! Name = dsl\n#! Interface = dsl\n\
    #! [Uplink]\n#! Name = lte\n#! Interface = lte";

/// Two ends that balance packets retransmit packets that a line has lost.
#[test]
fn what_one_of_two_lines_loses_is_sent_once_more() {
    if !ready() {
        return;
    }
    let world = World::new();
    let server = world.millrace_server("balance-packets");
    let client = world.client(BALANCE_PACKETS);
    for at in [0, 1] {
        world.is(at, "up");
        until("both used", || world.line(at)["in_use"] == true);
    }
    pings(&world.a, B4, 3);
    world.lose(0.01);
    let load = UdpLoad {
        target: (ip(B4), 5000).into(),
        size: 1200,
        rate: 2000.0,
        duration: Duration::from_secs(5),
        quiet: UDP_QUIET,
    };
    let report = udp_load(&world.a, &world.b, &load).unwrap();
    let status = status_of(&world.b, "wg1");
    let order = &status["peers"][0]["order"];
    // Without retransmission a hundred packets would be lost.
    let lost = report.sent - report.received;
    assert!(lost <= report.sent / 400, "{report:?} {order}");
    // On a busy machine, whether a packet came because of a request cannot be told.
    assert!(order["asked"].as_u64().unwrap() > 30, "{order}");
    client.stop().unwrap().success().unwrap();
    server.stop().unwrap().success().unwrap();
}

/// `wg-quick`, and Millrace without lines, treat the settings as comments.
#[test]
fn without_lines_there_is_one_way_and_no_word_of_lines() {
    if !ready() {
        return;
    }
    let world = World::new();
    let Some(_b) = world.server() else { return };
    let client = world.client("# [Uplink]\n# Name = dsl");
    pings(&world.a, B4, 2);
    let status = status_of(&world.a, WG);
    assert_eq!(status["peers"][0]["lines"], Value::Null);
    client.stop().unwrap().success().unwrap();
}

const FULL: &str = "#! [Uplink]\n#! Name = dsl\n#! Interface = dsl\n#! Rate = 5M";

/// Sends three times the line's rate. Without a rate limit, the packets would fill the modem's queue and delay all
/// others.
#[test]
fn what_is_too_much_for_a_line_is_dropped_before_it_and_not_in_its_queue() {
    if !ready() {
        return;
    }
    let world = World::new();
    let Some(_b) = world.server() else { return };
    world.cables[0].set_both(Impairment {
        rate: Some(5_000_000),
        queue: 32 << 10,
        ..Impairment::NONE
    });
    let lost = |lines: &str| {
        let _client = world.client(lines);
        world.is(0, "up");
        let modem = || world.cables[0].counters(Side::A).queue_full;
        let before = modem();
        let load = UdpLoad {
            target: (ip(B4), 5000).into(),
            size: 1200,
            rate: 1500.0,
            duration: Duration::from_secs(2),
            quiet: UDP_QUIET,
        };
        let report = udp_load(&world.a, &world.b, &load).unwrap();
        assert!(report.received > 0, "{report:?}");
        (drops(&world.a, "queue"), modem() - before)
    };
    let (ours, modems) = lost(&format!("#! [Uplinks]\n#! Mode = single\n{FULL}"));
    assert!(ours == 0 && modems > 0, "{ours} {modems}");
    let (ours, modems) = lost(&format!(
        "#! [Uplinks]\n#! Mode = single\n#! Shape = yes\n{FULL}"
    ));
    assert!(ours > 0 && modems == 0, "{ours} {modems}");
}

/// Each block of the page, except the relay's, stands before a plain file as the page says: Millrace accepts it, and
/// each line has an effect.
#[test]
fn the_recipes_are_honoured_word_by_word() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/uplinks.md");
    let text = std::fs::read_to_string(page).unwrap();
    let blocks = text.split("```ini\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|it| it.split("```").next()).collect();
    assert_eq!(blocks.len(), 8);
    let directory = Directory::new();
    for block in blocks {
        let block = block.replace(
            "= KEY\n",
            "= Y2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2M=\n",
        );
        let private = "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=";
        let public = "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=";
        let calls = match block.contains("[Uplink]") && !block.contains("eth0") {
            true => "Endpoint = vpn.example.com:51820\n",
            false => "",
        };
        let tunnel = format!(
            "{block}[Interface]\nPrivateKey = {private}\nAddress = 10.0.0.2/24\n[Peer]\nPublicKey = {public}\n{calls}\
             AllowedIPs = 10.0.0.1/32\n"
        );
        let relay = block.starts_with("[Relay]");
        let path = directory.file("office.conf", if relay { &block } else { &tunnel });
        let output = std::process::Command::new(PROGRAM)
            .args(["check", "--json"])
            .arg(&path)
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["usable"], true, "{block}{report:#}");
        let others = ["ignored", "refused"].map(|verdict| report[verdict].as_u64());
        assert_eq!(others, [Some(0), Some(0)], "{block}{report:#}");
    }
}
