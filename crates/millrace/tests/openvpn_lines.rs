//! OpenVPN over several lines: our client at a stock server, which does not support lines, and at our server.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::atomic::Ordering;
use std::thread;

use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::two_lines::mostly_arrive;
use lab::acceptance::{TwoLines, ip, pings, status_of, tcp_both_ways_while, until};
use lab::openvpn::{KeyKind, OpenVpn, RunningOpenVpn, Setup, StockOpenVpn, Transport};
use serde_json::Value;

fn lines(mode: &str) -> String {
    format!(
        "#! [Uplinks]\n#! Mode = {mode}\n#! Hold = 1\n#! [Uplink]\n#! Name = dsl\n#! Interface = dsl\n\
         #! [Uplink]\n#! Name = lte\n#! Interface = lte\n#! Priority = 20"
    )
}

/// A server on B, and a client on A that connects to it over two lines.
struct World<'h> {
    net: &'h TwoLines,
    server: RunningOpenVpn<'h>,
    client: RunningOpenVpn<'h>,
    /// The server's inner address.
    inner: String,
    _programs: [Box<dyn OpenVpn>; 2],
}

impl<'h> World<'h> {
    fn new(net: &'h TwoLines, server: Box<dyn OpenVpn>, theirs: &str, ours: &str) -> Self {
        Self::of(Setup::default(), net, server, theirs, ours)
    }

    fn of(
        mut setup: Setup,
        net: &'h TwoLines,
        server: Box<dyn OpenVpn>,
        theirs: &str,
        ours: &str,
    ) -> Self {
        setup.server.verbatim(theirs);
        setup.client.verbatim(ours);
        let client: Box<dyn OpenVpn> = Box::new(millrace());
        let (keys, called) = (credentials(KeyKind::Ecdsa), ip(TwoLines::SERVER));
        let file = setup.server_file(server.as_ref(), keys, called).unwrap();
        let at_server = server.start(&net.b, &file).unwrap();
        let file = setup.client_file(client.as_ref(), keys, called).unwrap();
        let at_client = client.start(&net.a, &file).unwrap();
        Self {
            net,
            server: at_server,
            client: at_client,
            inner: setup.inner4(1).to_string(),
            _programs: [server, client],
        }
    }

    /// A's status of a line.
    fn line(&self, at: usize) -> Value {
        let status = status_of(&self.net.a, self.client.interface());
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
    }

    /// The number of sessions the client has begun.
    fn sessions(&self) -> usize {
        self.client.said(lab::openvpn::READY_LINE)
    }
}

/// Prints the programs' output for the report of a failed test.
impl Drop for World<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            for (name, end) in [("server", &self.server), ("client", &self.client)] {
                let said = (end.process.stdout(), end.process.stderr());
                println!("---- the {name}:\n{}{}", said.0, said.1);
            }
        }
    }
}

/// A cable beyond the first hop is cut: the host notices nothing, but the tunnel does, and its session continues.
#[test]
fn a_session_survives_the_cut_of_its_line_and_goes_back() {
    if !ready() {
        return;
    }
    let net = TwoLines::new();
    let world = World::new(&net, Box::new(StockOpenVpn), "", &lines("failover"));
    for at in [0, 1] {
        world.is(at, "up");
    }
    world.uses(0);
    pings(&net.a, &world.inner, 2);
    tcp_both_ways_while(&net.a, &net.b, ip(&world.inner), 12_000_000, |seen| {
        until("a part of it", || seen.load(Ordering::Relaxed) > 1_000_000);
        net.cables[0].cut(true);
        world.is(0, "down");
        world.uses(1);
    });
    net.cables[0].cut(false);
    world.is(0, "up");
    world.uses(0);
    pings(&net.a, &world.inner, 3);
    assert_eq!(world.sessions(), 1);
}

/// Over TCP the line in use is cut during a transfer. The client reconnects over the other line, and returns when the
/// better line accepts connections again.
#[test]
fn a_connection_over_tcp_is_made_anew_by_the_other_line_and_back() {
    if !ready() {
        return;
    }
    let net = TwoLines::new();
    let setup = Setup {
        transport: Transport::Tcp,
        ..Setup::default()
    };
    let ours = format!("persist-tun\n{}", lines("failover"));
    let world = World::of(setup, &net, Box::new(StockOpenVpn), "", &ours);
    world.is(0, "up");
    world.uses(0);
    pings(&net.a, &world.inner, 2);
    tcp_both_ways_while(&net.a, &net.b, ip(&world.inner), 4_000_000, |seen| {
        until("a part of it", || seen.load(Ordering::Relaxed) > 1_000_000);
        net.cables[0].cut(true);
        world.uses(1);
        until("another session", || world.sessions() == 2);
    });
    world.is(0, "down");
    pings(&net.a, &world.inner, 3);

    net.cables[0].cut(false);
    world.uses(0);
    until("a third session", || world.sessions() == 3);
    pings(&net.a, &world.inner, 3);

    // The client leaves a removed device at once, whatever state the kernel reports for the connection.
    net.a.set_up("dsl", false).unwrap();
    world.uses(1);
    until("a fourth session", || world.sessions() == 4);
    pings(&net.a, &world.inner, 3);
}

/// The preferred line does not reach the server, so the handshake uses the other line.
#[test]
fn a_handshake_goes_by_the_line_that_works() {
    if !ready() {
        return;
    }
    let net = TwoLines::new();
    net.cables[0].cut(true);
    let world = World::new(&net, Box::new(StockOpenVpn), "", &lines("failover"));
    world.uses(1);
    pings(&net.a, &world.inner, 2);
    net.cables[0].cut(false);
    world.uses(0);
    pings(&net.a, &world.inner, 2);
    assert_eq!(world.sessions(), 1);
}

/// The server drops the later copy as it would drop a replayed packet.
#[test]
fn a_server_that_knows_nothing_of_copies_gets_what_either_line_brings() {
    if !ready() {
        return;
    }
    let net = TwoLines::new();
    let world = World::new(&net, Box::new(StockOpenVpn), "", &lines("duplicate"));
    world.uses_both();
    pings(&net.a, &world.inner, 2);
    net.lose(0.05);
    mostly_arrive(&net.a, &net.b, &world.inner);

    net.cut_costs_little(&world.inner);
    world.is(0, "down");
    assert_eq!(world.sessions(), 1);
}

/// Both ends support lines: both directions use them.
#[test]
fn a_server_that_answers_on_each_line_is_heard_by_either() {
    if !ready() {
        return;
    }
    let net = TwoLines::new();
    let theirs = "#! [Uplinks]\n#! Mode = duplicate\n#! Reorder = yes";
    let world = World::new(&net, Box::new(millrace()), theirs, &lines("duplicate"));
    world.uses_both();
    pings(&net.a, &world.inner, 3);
    until("the server hears both lines", || {
        let status = status_of(&net.b, world.server.interface());
        let lines = status["peers"][0]["lines"].as_array().cloned();
        lines.is_some_and(|it| it.len() == 2 && it.iter().all(|line| line["state"] == "up"))
    });
    net.lose(0.05);
    mostly_arrive(&net.a, &net.b, &world.inner);
    let client = world.client.addresses().unwrap();
    let client = client.iter().find(|it| it.is_ipv4()).unwrap().to_string();
    mostly_arrive(&net.b, &net.a, &client);
    assert_eq!(world.sessions(), 1);
}
