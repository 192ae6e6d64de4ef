//! PPTP over several lines, with our program at both ends: copies over lossy lines, a cable that is cut during
//! connections, and a server that does not support lines.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::atomic::Ordering;
use std::thread;

use lab::acceptance::two_lines::mostly_arrive;
use lab::acceptance::{
    Directory, PATIENCE, PROGRAM, TwoLines, ip, pings, status_of, tcp_both_ways_while, until,
};
use lab::{Host, Process, tools};
use serde_json::Value;

/// Inner addresses.
const SERVER: &str = "10.9.0.1";
const CLIENT: &str = "10.9.0.2";

/// The server's setting to answer clients on all their lines.
const ANSWERS: &str = "[uplinks]\nmode = \"duplicate\"\n";

fn ready() -> bool {
    lab::may_enter() && lab::require(tools::tun()).is_some()
}

fn lines(mode: &str) -> String {
    format!(
        "[uplinks]\nmode = \"{mode}\"\nhold = 1\n[[uplink]]\nname = \"dsl\"\ninterface = \"dsl\"\n\
         [[uplink]]\nname = \"lte\"\ninterface = \"lte\"\npriority = 20\n"
    )
}

/// A server on B, and a client on A that connects to it over two lines.
struct World<'n> {
    net: &'n TwoLines,
    server: Process,
    client: Process,
    _directory: Directory,
}

impl<'n> World<'n> {
    fn new(net: &'n TwoLines, theirs: &str, ours: &str) -> Self {
        let directory = Directory::new();
        let common = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\ninterface = \"pptp0\"\n";
        let address = TwoLines::SERVER;
        let text = format!(
            "{common}listen = \"{address}\"\naddress = \"{SERVER}/24\"\n{theirs}[users]\nalice = \"word\"\n"
        );
        let server = up(&net.b, &directory, "server.toml", &text);
        let text = format!(
            "{common}server = \"{address}\"\nusername = \"alice\"\npassword = \"word\"\n{ours}"
        );
        let client = up(&net.a, &directory, "client.toml", &text);
        Self {
            net,
            server,
            client,
            _directory: directory,
        }
    }

    /// A's status of a line.
    fn line(&self, at: usize) -> Value {
        let status = status_of(&self.net.a, "pptp0");
        status["peers"][0]["lines"][at].clone()
    }

    fn is(&self, at: usize, state: &str) {
        let name = TwoLines::NAMES[at];
        until(&format!("{name} {state}"), || {
            self.line(at)["state"] == state
        });
    }

    fn uses(&self, at: usize) {
        let name = TwoLines::NAMES[at];
        until(&format!("{name} in use"), || {
            self.line(at)["in_use"] == true && self.line(1 - at)["in_use"] == false
        });
    }

    fn uses_both(&self) {
        for at in [0, 1] {
            self.is(at, "up");
            until("both used", || self.line(at)["in_use"] == true);
        }
        until("the server hears both lines", || {
            let status = status_of(&self.net.b, "pptp0");
            let lines = status["peers"][0]["lines"].as_array().cloned();
            lines.is_some_and(|it| it.len() == 2 && it.iter().all(|line| line["in_use"] == true))
        });
    }

    /// The number of calls that have come up.
    fn calls(&self) -> usize {
        self.client.stderr().matches("connected to").count()
    }
}

fn up(host: &Host, directory: &Directory, name: &str, text: &str) -> Process {
    let file = directory.file(name, text);
    let mut process = host.command(PROGRAM).arg("up").arg(&file).spawn().unwrap();
    let is_up = |line: &str| line.contains("pptp0 is up");
    let waited = process.wait_for_line("the tunnel", PATIENCE, is_up);
    waited.unwrap_or_else(|error| panic!("{error}\n{}", process.stderr()));
    process
}

/// Prints the programs' output for the report of a failed test.
impl Drop for World<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            for (name, end) in [("server", &self.server), ("client", &self.client)] {
                println!("---- the {name}:\n{}{}", end.stdout(), end.stderr());
            }
        }
    }
}

/// Both directions use both lines: neither packet loss nor a cut of the line of the call costs much.
#[test]
fn copies_over_two_lines_that_lose_packets_mostly_arrive_and_a_cut_breaks_nothing() {
    if !ready() {
        return;
    }
    let net = TwoLines::new();
    let world = World::new(&net, ANSWERS, &lines("duplicate"));
    world.uses_both();
    pings(&net.a, SERVER, 3);
    net.lose(0.05);
    mostly_arrive(&net.a, &net.b, SERVER);
    mostly_arrive(&net.b, &net.a, CLIENT);
    tcp_both_ways_while(&net.a, &net.b, ip(SERVER), 6_000_000, |seen| {
        until("a part of it", || seen.load(Ordering::Relaxed) > 500_000);
        net.cables[0].cut(true);
        world.is(0, "down");
    });
    assert_eq!(world.calls(), 1);
    let order = status_of(&net.b, "pptp0")["peers"][0]["order"].clone();
    assert!(order["accepted"].as_u64().unwrap() > 1000, "{order}");
}

/// A cable beyond the first hop is cut: the tunnel notices, and its call moves to the other line and back.
#[test]
fn a_call_survives_the_cut_of_its_line_and_goes_back() {
    if !ready() {
        return;
    }
    let net = TwoLines::new();
    let world = World::new(&net, ANSWERS, &lines("failover"));
    for at in [0, 1] {
        world.is(at, "up");
    }
    world.uses(0);
    pings(&net.a, SERVER, 2);
    tcp_both_ways_while(&net.a, &net.b, ip(SERVER), 12_000_000, |seen| {
        until("a part of it", || seen.load(Ordering::Relaxed) > 1_000_000);
        net.cables[0].cut(true);
        world.is(0, "down");
        world.uses(1);
    });
    net.cables[0].cut(false);
    world.is(0, "up");
    world.uses(0);
    pings(&net.a, SERVER, 3);
    assert_eq!(world.calls(), 1);
}

/// A single connection is spread over both lines, and arrives complete.
#[test]
fn packets_of_one_connection_go_by_both_lines() {
    if !ready() {
        return;
    }
    let net = TwoLines::new();
    let answers = ANSWERS.replace("duplicate", "balance-packets");
    let world = World::new(&net, &answers, &lines("balance-packets"));
    world.uses_both();
    tcp_both_ways_while(&net.a, &net.b, ip(SERVER), 12_000_000, |_| {});
    for at in [0, 1] {
        let line = world.line(at);
        assert!(line["sent_bytes"].as_u64().unwrap() > 3_000_000, "{line}");
        assert!(
            line["received_bytes"].as_u64().unwrap() > 3_000_000,
            "{line}"
        );
    }
    assert_eq!(world.calls(), 1);
}

/// At a server that does not support lines, the client makes a new call over the other line, and later over the better
/// one.
#[test]
fn a_server_that_knows_nothing_of_lines_is_called_anew() {
    if !ready() {
        return;
    }
    let net = TwoLines::new();
    let world = World::new(&net, "", &lines("duplicate"));
    world.uses(0);
    assert!(
        world
            .client
            .stderr()
            .contains("one uplink is used at a time")
    );
    net.cables[0].cut(true);
    world.uses(1);
    until("another call", || world.calls() == 2);
    pings(&net.a, SERVER, 2);
    net.cables[0].cut(false);
    world.uses(0);
    until("and a third", || world.calls() == 3);
    pings(&net.a, SERVER, 2);
}
