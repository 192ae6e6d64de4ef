//! Tests calls over several lines.

use super::*;
use plane::LineId;
use world::{Lines, MALLORY, SECOND};

mod control;
mod failures;
mod world;

#[test]
fn copies_by_two_lines_that_lose_packets_lose_the_product_only() {
    for more in ["", "mppe = \"128,stateful\"\n"] {
        let mut lines = Lines::joined("duplicate", "duplicate", more);
        for wire in &mut lines.wires {
            wire.loss = 100;
        }
        lines.transfer(5000);
        for arrived in lines.arrived() {
            let overtaken = overtaken(&arrived);
            assert!(overtaken < 50, "{more}: {overtaken} overtaken");
            let lost = 5000 - arrived.len();
            // Both lines lose one packet in a hundred; in one stream, ten losses a second cost a round trip each.
            let most = if more.is_empty() { 90 } else { 2500 };
            assert!((15..most).contains(&lost), "{more}: {lost} lost");
        }
        let mut distinct = arrived_twice(&lines.sent);
        distinct.extend(arrived_twice(&lines.answered));
        assert!(
            distinct.iter().all(|same| *same),
            "the same ciphertext by each line"
        );
        assert_eq!(lines.dialled, [LineId(0)]);
    }
}

/// Number of packets that came after a packet with a greater number.
fn overtaken(arrived: &[u32]) -> usize {
    let mut greatest = 0;
    let behind = arrived.iter().filter(|&&number| {
        let behind = number < greatest;
        greatest = greatest.max(number);
        behind
    });
    behind.count()
}

/// Returns, for each numbered packet on the second line since both were in use, whether the first line carried it too.
fn arrived_twice(sent: &[Vec<Vec<u8>>; 2]) -> Vec<bool> {
    let first: std::collections::HashSet<&Vec<u8>> = sent[0].iter().collect();
    let data = sent[1].iter().filter(|packet| packet[0] & 0x10 != 0);
    let found: Vec<bool> = data.map(|packet| first.contains(packet)).collect();
    assert!(found.len() > 1000);
    found
}

#[test]
fn a_line_that_is_cut_costs_nothing_with_copies() {
    let mut lines = Lines::joined("duplicate", "duplicate", "");
    lines.transfer(500);
    lines.wires[0].cut = true;
    lines.transfer(4000);
    lines.wires[0].cut = false;
    lines.transfer(500);
    for arrived in lines.arrived() {
        assert_eq!(arrived.len(), 5000);
    }
    assert_eq!((lines.ups, lines.dialled.len()), (1, 1), "{:?}", lines.log);
}

#[test]
fn a_line_that_is_cut_costs_two_seconds_and_no_call_with_failover() {
    let mut lines = Lines::joined("failover", "duplicate", "");
    assert_eq!(lines.in_use(), ["fibre"]);
    lines.transfer(500);
    assert!(
        lines.answered[1].iter().all(|it| it[0] & 0x10 == 0),
        "no copies"
    );
    lines.arrived();
    lines.wires[0].cut = true;
    lines.transfer(3000);
    lines.arrived();
    assert_eq!(lines.in_use(), ["lte"], "{:?}", lines.log);
    lines.transfer(1000);
    for arrived in lines.arrived() {
        assert_eq!(arrived.len(), 1000);
    }
    // The first line is back, and the waiting line carries no copies.
    lines.wires[0].cut = false;
    for _ in 0..25 {
        lines.transfer(500);
    }
    assert_eq!(lines.in_use(), ["fibre"], "{:?}", lines.log);
    assert_eq!((lines.ups, lines.dialled.len()), (1, 1), "{:?}", lines.log);
    // A line without a carrier is left at once.
    lines.arrived();
    lines.wires[0].unplugged = true;
    lines.tell(Event::LinksChanged);
    lines.pass(SECOND / 10);
    lines.transfer(1000);
    for arrived in lines.arrived() {
        assert!(arrived.len() > 990, "{}", arrived.len());
    }
}

#[test]
fn packets_that_are_shared_out_arrive_in_order() {
    for more in ["", "mppe = \"128,stateful\"\n"] {
        let mut lines = Lines::joined("balance-packets", "balance-packets", more);
        assert_eq!(lines.in_use(), ["fibre", "lte"]);
        let before = [lines.sent[1].len(), lines.answered[1].len()];
        lines.transfer(2000);
        for arrived in lines.arrived() {
            let overtaken = overtaken(&arrived);
            // Only the first packets, which reveal the second line, are overtaken.
            assert!(overtaken < 40, "{more}: {overtaken} overtaken");
            assert!(arrived.len() >= 1980, "{more}: {}", arrived.len());
        }
        for (after, before) in [lines.sent[1].len(), lines.answered[1].len()]
            .into_iter()
            .zip(before)
        {
            assert!(after - before > 800, "{more}: by the second line");
        }
    }
}

#[test]
fn a_call_goes_on_without_its_control_connection_while_a_line_lives() {
    let mut lines = Lines::joined("duplicate", "duplicate", "");
    lines.wires[0].cut = true;
    lines.pass(SECOND * 5);
    lines.break_control();
    lines.pass(SECOND * 600);
    lines.transfer(1000);
    for arrived in lines.arrived() {
        assert_eq!(arrived.len(), 1000);
    }
    assert_eq!((lines.ups, lines.dialled.len()), (1, 1), "{:?}", lines.log);
    // LCP reports the end of the call.
    lines.tell(Event::Stop);
    lines.pass(SECOND);
    let mut status = Status::default();
    lines.server.describe(&mut status);
    assert!(status.peers.is_empty());
}

#[test]
fn a_call_without_control_connection_ends_when_its_lines_do_and_is_made_anew() {
    let mut lines = Lines::joined("duplicate", "duplicate", "");
    for wire in &mut lines.wires {
        wire.cut = true;
    }
    lines.pass(SECOND * 3);
    lines.break_control();
    lines.pass(SECOND * 40);
    let mut status = Status::default();
    lines.server.describe(&mut status);
    assert!(status.peers.is_empty(), "the server has freed it");
    lines.wires[1].cut = false;
    lines.pass(SECOND * 60);
    assert_eq!(lines.ups, 2, "{:?}", lines.log);
    lines.arrived();
    lines.transfer(100);
    assert_eq!(lines.arrived().map(|it| it.len()), [100, 100]);
}

#[test]
fn a_client_that_has_vanished_is_forgotten() {
    let mut lines = Lines::joined("duplicate", "duplicate", "");
    lines.client_is_gone = true;
    lines.hang_up();
    lines.pass(SECOND * 4);
    let mut status = Status::default();
    lines.server.describe(&mut status);
    assert_eq!(status.peers.len(), 1);
    lines.pass(SECOND * 30);
    let mut status = Status::default();
    lines.server.describe(&mut status);
    assert!(status.peers.is_empty());
}

#[test]
fn what_is_recorded_and_sent_from_elsewhere_gives_nobody_packets() {
    let mut lines = Lines::joined("duplicate", "duplicate", "");
    let is_probe = |packet: &&Vec<u8>| ::pptp::lines::is_probe(packet);
    let probes: Vec<Vec<u8>> = lines
        .sent
        .iter()
        .flatten()
        .filter(is_probe)
        .cloned()
        .collect();
    assert!(probes.len() > 4);
    let mut notes = Notes::default();
    for mut packet in probes.clone() {
        let from = Way::first(MALLORY);
        let (server, mut cx) = (&mut lines.server, notes.cx(lines.now));
        server.inbound(from, &mut packet, &mut cx);
        packet[30] ^= 1;
        server.inbound(from, &mut packet, &mut cx);
    }
    let long = |effect: &Effect| matches!(effect, Effect::Gre(_, packet) if packet.len() > 52);
    assert!(
        notes.delivered.is_empty() && !notes.effects.iter().any(long),
        "an answer is no longer than what it answers"
    );
    assert_eq!(
        World::drops(&lines.server, "forged_probe"),
        probes.len() as u64
    );
    assert!(World::drops(&lines.server, "replayed_probe") > 2);
    lines.transfer(10);
    let peer = lines.server_peer();
    let names: Vec<&str> = peer.lines.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["192.0.2.1", "198.51.100.1"]);
    // Data from that address does not belong to the call.
    let before = World::drops(&lines.server, "no_session");
    let mut data = lines.sent[0].last().unwrap().clone();
    let from = Way::first(MALLORY);
    let server = &mut lines.server;
    server.inbound(from, &mut data, &mut notes.cx(lines.now));
    assert!(notes.delivered.is_empty());
    assert_eq!(World::drops(&lines.server, "no_session"), before + 1);
}

#[test]
fn a_server_that_knows_nothing_of_lines_is_called_anew_by_another() {
    for (mode, more) in [
        ("failover", ""),
        ("duplicate", ""),
        ("duplicate", "mppe = \"none\"\n"),
    ] {
        let answers = if more.is_empty() {
            ""
        } else {
            "[uplinks]\nmode = \"duplicate\""
        };
        let mut lines = Lines::new(mode, answers, more);
        lines.tell(Event::Start);
        lines.pass(SECOND * 30);
        assert_eq!(lines.dialled, [LineId(0)], "{:?}", lines.log);
        assert_eq!(lines.in_use(), ["fibre"]);
        let said = lines
            .log
            .iter()
            .any(|it| it.contains("one uplink is used at a time"));
        assert_eq!(said, mode == "duplicate", "{:?}", lines.log);
        assert!(
            lines
                .sent
                .iter()
                .flatten()
                .all(|it| !::pptp::lines::is_probe(it))
        );
        lines.wires[0].cut = true;
        lines.transfer(6000);
        assert_eq!(lines.dialled, [LineId(0), LineId(1)], "{:?}", lines.log);
        assert_eq!(lines.in_use(), ["lte"], "{:?}", lines.log);
        // The line is used again after the hold time.
        lines.wires[0].cut = false;
        lines.pass(SECOND * 60);
        assert_eq!(
            lines.dialled,
            [LineId(0), LineId(1), LineId(0)],
            "{:?}",
            lines.log
        );
        // The line is no longer used as soon as its carrier is lost.
        lines.wires[0].unplugged = true;
        lines.tell(Event::LinksChanged);
        lines.pass(SECOND);
        assert_eq!(lines.in_use(), ["lte"], "{:?}", lines.log);
        assert_eq!(lines.ups, 4);
    }
}

#[test]
fn a_server_that_is_out_of_reach_by_the_first_line_is_called_by_the_second() {
    let mut lines = Lines::new("duplicate", "[uplinks]\nmode = \"duplicate\"", "");
    lines.wires[0].cut = true;
    lines.tell(Event::Start);
    lines.pass(SECOND * 12);
    assert_eq!(
        (lines.ups, lines.in_use()),
        (1, vec!["lte".to_owned()]),
        "{:?}",
        lines.log
    );
    lines.wires[0].cut = false;
    lines.pass(SECOND * 30);
    assert_eq!(lines.in_use().len(), 2, "{:?}", lines.log);
}

#[test]
fn a_line_that_only_a_call_of_its_own_goes_by_is_used_when_the_other_has_failed() {
    let answers = "[uplinks]\nmode = \"duplicate\"";
    let mut lines = Lines::new("duplicate", answers, "");
    lines.wires[1].tcp_only = true;
    lines.tell(Event::Start);
    lines.pass(SECOND * 20);
    assert_eq!(lines.in_use(), ["fibre"], "{:?}", lines.log);
    lines.wires[0].cut = true;
    // A NAT that has seen the control connection knows where to forward GRE.
    lines.wires[1].tcp_only = false;
    lines.pass(SECOND * 20);
    assert_eq!(lines.in_use(), ["lte"], "{:?}", lines.log);
    lines.transfer(100);
    assert_eq!(lines.arrived().map(|it| it.len()), [100, 100]);
}

#[test]
fn a_server_that_has_died_is_called_anew_at_once() {
    let answers = "[uplinks]\nmode = \"duplicate\"";
    let mut lines = Lines::joined("duplicate", "duplicate", "");
    lines.server = Lines::new("duplicate", answers, "").server;
    // The client's kernel closes its connections.
    lines.stream = None;
    lines.tell(Event::Ended(ONLY));
    lines.tell(Event::Closed(ONLY));
    lines.pass(SECOND * 15);
    assert_eq!(lines.ups, 2, "{:?}", lines.log);
    assert_eq!(lines.in_use().len(), 2, "{:?}", lines.log);
}
