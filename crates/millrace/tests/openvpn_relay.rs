//! OpenVPN over lines, one of which uses a relay on a second server: our client at a stock server, which supports
//! neither.

use std::net::SocketAddr;

use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::{Directory, Relayed, ip, pings, status_of, until};
use lab::openvpn::{KeyKind, OpenVpn as _, READY_LINE, Setup, StockOpenVpn};
use nix::sys::signal::Signal;

/// Either path suffices: with the direct path cut, after a restart of the killed relay, and for a session that begins
/// through the relay.
#[test]
fn a_stock_server_is_reached_by_a_relay_when_the_direct_way_is_cut() {
    if !ready() {
        return;
    }
    let net = Relayed::new();
    let directory = Directory::new();
    let mut setup = Setup::default();
    setup.client.verbatim(&format!(
        "#! [Uplinks]\n#! Mode = failover\n#! Hold = 1\n#! [Uplink]\n#! Name = direct\n#! Interface = eth0\n\
         #! [Uplink]\n#! Name = relayed\n#! Relay = {}\n#! RelayKey = {}\n#! Priority = 20",
        net.relay,
        Relayed::KEY,
    ));
    let (keys, called) = (credentials(KeyKind::Ecdsa), ip(Relayed::SERVER));
    let target = SocketAddr::from((called, setup.port));
    let (stock, ours) = (StockOpenVpn, millrace());
    let file = setup.server_file(&stock, keys, called).unwrap();
    let _server = stock.start(&net.b, &file).unwrap();
    let relay = net.relay(&directory, target);
    let file = setup.client_file(&ours, keys, called).unwrap();
    let client = ours.start(&net.a, &file).unwrap();
    let inner = setup.inner4(1).to_string();
    let are = |states: [&str; 2]| {
        until(&format!("direct and relayed {states:?}"), || {
            let status = status_of(&net.a, client.interface());
            let lines = &status["peers"][0]["lines"];
            (0..2).all(|at| lines[at]["state"] == states[at])
        });
    };
    are(["up", "up"]);
    pings(&net.a, &inner, 3);

    net.cable.cut(true);
    are(["down", "up"]);
    pings(&net.a, &inner, 3);
    net.cable.cut(false);
    are(["up", "up"]);

    relay.signal(Signal::SIGKILL).unwrap();
    drop(relay);
    are(["up", "down"]);
    pings(&net.a, &inner, 3);

    // A restarted relay does not know its client until the next hello.
    let relay = net.relay(&directory, target);
    are(["up", "up"]);
    net.cable.cut(true);
    are(["down", "up"]);
    pings(&net.a, &inner, 3);
    assert_eq!(client.said(READY_LINE), 1, "one session");

    client.process.signal(Signal::SIGUSR1).unwrap();
    until("another session", || client.said(READY_LINE) == 2);
    pings(&net.a, &inner, 3);
    relay.stop().unwrap().success().unwrap();
}
