//! Lines on which the server answers TCP, but no call comes up or lasts.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A server that supports several lines, and one that does not.
const ANSWERS: [&str; 2] = ["[uplinks]\nmode = \"duplicate\"", ""];

#[test]
fn a_preferred_line_that_drops_gre_does_not_keep_the_server_from_being_called_by_another() {
    for answers in ANSWERS {
        let mut lines = Lines::new("failover", answers, "");
        lines.wires[0].tcp_only = true;
        lines.tell(Event::Start);
        lines.pass(MINUTE);
        assert_eq!(lines.in_use(), ["lte"], "{answers}: {:?}", lines.log);
        // A fault of TCP alone does not end a call that works.
        lines.pass(MINUTE * 2);
        assert_eq!((lines.ups, lines.dialled.len()), (1, 2), "{:?}", lines.log);
        lines.arrived();
        lines.transfer(100);
        assert_eq!(lines.arrived().map(|it| it.len()), [100, 100]);
    }
}

#[test]
fn a_line_that_drops_gre_is_tried_again_more_and_more_seldom_and_used_once_it_works() {
    let mut lines = Lines::new("failover", "", "");
    lines.wires[0].tcp_only = true;
    lines.tell(Event::Start);
    let mut tried = Vec::new();
    for _ in 0..4 {
        let before = lines.dialled.len();
        lines.pass(MINUTE * 30);
        let of = &lines.dialled[before..];
        tried.push(of.iter().filter(|line| **line == LineId(0)).count());
        assert_eq!(lines.in_use(), ["lte"], "{:?}", lines.log);
    }
    assert!(tried[0] >= 3 && tried[0] <= 5, "{tried:?}");
    assert!(tried[1..].iter().sum::<usize>() <= 3, "{tried:?}");
    lines.wires[0].tcp_only = false;
    lines.pass(MINUTE * 70);
    assert_eq!(lines.in_use(), ["fibre"], "{:?}", lines.log);
}

#[test]
fn a_call_that_has_fallen_silent_is_made_anew_by_another_line() {
    let mut lines = Lines::new("failover", "", "");
    lines.tell(Event::Start);
    lines.pass(SECOND * 30);
    assert_eq!(lines.in_use(), ["fibre"], "{:?}", lines.log);
    lines.wires[0].tcp_only = true;
    lines.pass(MINUTE * 3);
    assert_eq!(lines.in_use(), ["lte"], "{:?}", lines.log);
    let calls = lines.dialled.len();
    lines.pass(MINUTE);
    assert_eq!(lines.dialled.len(), calls, "{:?}", lines.log);
}

#[test]
fn where_all_lines_drop_gre_each_has_its_turn() {
    for answers in ANSWERS {
        let mut lines = Lines::new("failover", answers, "");
        for wire in &mut lines.wires {
            wire.tcp_only = true;
        }
        lines.tell(Event::Start);
        lines.pass(MINUTE * 5);
        let turns: Vec<u8> = lines.dialled.iter().map(|line| line.0).collect();
        assert!(turns.len() >= 5, "{turns:?}");
        assert!(turns.windows(2).all(|it| it[0] != it[1]), "{turns:?}");
        lines.wires[1].tcp_only = false;
        lines.pass(MINUTE * 2);
        assert_eq!(lines.in_use(), ["lte"], "{:?}", lines.log);
    }
}

#[test]
fn a_line_that_comes_back_is_called_by_although_a_call_by_it_has_failed() {
    let mut lines = Lines::new("failover", "", "");
    lines.wires[0].tcp_only = true;
    lines.wires[1].cut = true;
    lines.tell(Event::Start);
    lines.pass(MINUTE);
    lines.wires[0].tcp_only = false;
    lines.pass(MINUTE + SECOND * 15);
    assert_eq!(lines.in_use(), ["fibre"], "{:?}", lines.log);
}
