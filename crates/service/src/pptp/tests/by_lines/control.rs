//! Calls whose control connection is lost, as one end notices before the other.

use super::*;

/// A call over the first line alone, with packets all the time.
fn busy() -> Lines {
    let mut lines = Lines::joined("failover", "duplicate", "");
    lines.wires[1].cut = true;
    transfer_slowly(&mut lines, 10);
    lines
}

/// Sends packets in both directions for this many seconds.
fn transfer_slowly(lines: &mut Lines, seconds: u32) {
    for number in 0..seconds * 10 {
        lines.exchange(number);
        lines.pass(SECOND / 10);
    }
}

fn server_calls(lines: &Lines) -> usize {
    let mut status = Status::default();
    lines.server.describe(&mut status);
    status.peers.len()
}

#[test]
fn a_server_that_notices_first_waits_until_the_client_probes() {
    // Tries every time since the last probe.
    for after in 0..10 {
        let mut lines = busy();
        lines.pass(SECOND * after);
        lines.hang_up();
        transfer_slowly(&mut lines, 60);
        assert_eq!(server_calls(&lines), 1, "{after}: {:?}", lines.log);
        assert_eq!((lines.ups, lines.dialled.len()), (1, 1), "{:?}", lines.log);
    }
}

#[test]
fn a_client_that_notices_first_does_not_rely_on_one_probe() {
    let mut lines = busy();
    lines.stream = None;
    lines.wires[0].cut = true;
    lines.tell(Event::Ended(ONLY));
    lines.tell(Event::Closed(ONLY));
    lines.pass(SECOND / 10);
    lines.wires[0].cut = false;
    transfer_slowly(&mut lines, 60);
    assert_eq!(server_calls(&lines), 1, "{:?}", lines.log);
    assert_eq!((lines.ups, lines.dialled.len()), (1, 1), "{:?}", lines.log);
}

#[test]
fn a_call_that_the_server_has_forgotten_is_made_anew_soon() {
    for mode in ["failover", "duplicate"] {
        let mut lines = Lines::joined(mode, "duplicate", "");
        for wire in &mut lines.wires {
            wire.cut = true;
        }
        lines.hang_up();
        lines.pass(SECOND * 40);
        assert_eq!(server_calls(&lines), 0);
        for wire in &mut lines.wires {
            wire.cut = false;
        }
        lines.pass(SECOND * 12);
        assert_eq!(lines.ups, 2, "{mode}: {:?}", lines.log);
        lines.pass(SECOND * 12);
        lines.arrived();
        lines.transfer(100);
        assert_eq!(lines.arrived().map(|it| it.len()), [100, 100]);
    }
}

#[test]
fn a_call_that_the_server_has_not_forgotten_outlives_all_its_lines_being_cut() {
    for mode in ["failover", "duplicate"] {
        for cut in [3, 12, 22] {
            let mut lines = Lines::joined(mode, "duplicate", "");
            for wire in &mut lines.wires {
                wire.cut = true;
            }
            lines.pass(SECOND * cut);
            for wire in &mut lines.wires {
                wire.cut = false;
            }
            lines.pass(SECOND * 30);
            let calls = (lines.ups, lines.dialled.len());
            assert_eq!(calls, (1, 1), "{mode}, {cut} s: {:?}", lines.log);
            assert_eq!(lines.server_peer().lines.len(), 2);
        }
    }
}

#[test]
fn a_client_that_is_given_up_is_told() {
    let mut lines = busy();
    lines.client_is_gone = true;
    lines.hang_up();
    lines.pass(SECOND * 40);
    assert_eq!(server_calls(&lines), 0);
    let told = lines.log.iter().any(|it| it.contains("PPP link"));
    assert!(told, "{:?}", lines.log);
}
