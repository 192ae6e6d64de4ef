//! Lines that go up and down under each mode.

use super::*;
use LineState::{Degraded, Down, Up};
use std::time::Duration;

const A: LineId = LineId(0);
const B: LineId = LineId(1);
const C: LineId = LineId(2);

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn set(lines: &[LineId]) -> LineSet {
    lines.iter().copied().collect()
}

/// The lines over which packets may leave.
fn chosen(scheduler: &Scheduler) -> LineSet {
    match scheduler.line_mode() {
        LineMode::Single => scheduler.active().into_iter().collect(),
        mode => mode.lines(),
    }
}

/// A is preferred to B, and twice as fast; both are up.
fn two(mode: Mode, now: Instant) -> Scheduler {
    let mut scheduler = Scheduler::new(mode, FailoverSettings::default());
    for (line, priority, rate) in [(A, 1, 100_000_000), (B, 2, 50_000_000)] {
        let settings = LineSettings {
            priority,
            rate: Some(rate),
            ..LineSettings::default()
        };
        scheduler.add(line, settings);
        scheduler.set_state(line, Up, now);
    }
    scheduler
}

#[test]
fn single_stays_whatever_happens() {
    let now = Instant::now();
    let mut scheduler = two(Mode::Single, now);
    assert_eq!(chosen(&scheduler), set(&[A]));
    assert_eq!(scheduler.set_state(A, Down, now), None);
    assert_eq!(chosen(&scheduler), set(&[A]));
    assert_eq!(scheduler.next_deadline(), None);
}

#[test]
fn failover_goes_at_once_and_comes_back_after_the_hold_time() {
    let now = Instant::now();
    let mut scheduler = two(Mode::Failover, now);
    assert_eq!(chosen(&scheduler), set(&[A]));
    let switch = scheduler.set_state(A, Down, now).unwrap();
    assert_eq!((switch.from, switch.to), (Some(A), B));
    assert_eq!(switch.reason, SwitchReason::Failed);
    assert_eq!(chosen(&scheduler), set(&[B]));
    assert_eq!(scheduler.set_state(A, Up, now + secs(10)), None);
    assert_eq!(scheduler.next_deadline(), Some(now + secs(40)));
    assert_eq!(scheduler.poll(now + secs(39)), None);
    let switch = scheduler.poll(now + secs(40)).unwrap();
    assert_eq!(switch.to, A);
    assert_eq!(
        switch.reason.to_string(),
        "it is preferred and has worked for 30 s"
    );
    assert_eq!(scheduler.next_deadline(), None);
}

#[test]
fn a_line_that_comes_and_goes_is_not_waited_for() {
    let now = Instant::now();
    let mut scheduler = two(Mode::Failover, now);
    scheduler.set_state(A, Down, now);
    for step in 1..20 {
        scheduler.set_state(A, Up, now + secs(step * 20));
        assert_eq!(
            scheduler.set_state(A, Down, now + secs(step * 20 + 15)),
            None
        );
    }
    assert_eq!(chosen(&scheduler), set(&[B]));
}

#[test]
fn ping_pong_is_damped_and_forgiven() {
    let mut now = Instant::now();
    let mut scheduler = two(Mode::Failover, now);
    scheduler.set_state(A, Down, now);
    // A comes back, is used again, and fails ten seconds later.
    let mut holds = Vec::new();
    for _ in 0..7 {
        scheduler.set_state(A, Up, now);
        let back = scheduler.next_deadline().unwrap();
        holds.push((back - now).as_secs());
        now = back;
        assert_eq!(scheduler.poll(now).unwrap().to, A);
        now += secs(10);
        assert_eq!(scheduler.set_state(A, Down, now).unwrap().to, B);
    }
    assert_eq!(holds, [30, 60, 120, 240, 480, 900, 900]);
    scheduler.set_state(A, Up, now);
    now = scheduler.next_deadline().unwrap();
    scheduler.poll(now);
    now += secs(3600);
    assert_eq!(scheduler.poll(now), None);
    scheduler.set_state(A, Down, now);
    scheduler.set_state(A, Up, now);
    assert_eq!(scheduler.next_deadline(), Some(now + secs(30)));
}

#[test]
fn a_line_that_has_degraded_is_left_for_one_that_has_not() {
    let now = Instant::now();
    let mut scheduler = two(Mode::Failover, now);
    let switch = scheduler.set_state(A, Degraded, now).unwrap();
    assert_eq!((switch.to, switch.reason), (B, SwitchReason::Degraded));
    assert_eq!(scheduler.set_state(B, Degraded, now), None, "held");
    assert_eq!(scheduler.next_deadline(), Some(now + secs(30)));
}

#[test]
fn a_metered_line_is_for_when_no_other_works() {
    let now = Instant::now();
    let mut scheduler = two(Mode::Duplicate, now);
    let metered = LineSettings {
        priority: 0,
        metered: true,
        ..LineSettings::default()
    };
    scheduler.add(C, metered);
    scheduler.set_state(C, Up, now);
    assert_eq!(chosen(&scheduler), set(&[A, B]));
    scheduler.set_state(A, Degraded, now);
    scheduler.set_state(B, Down, now);
    assert_eq!(chosen(&scheduler), set(&[A]));
    scheduler.set_state(A, Down, now);
    assert_eq!(chosen(&scheduler), set(&[C]));
}

#[test]
fn a_line_whose_cap_is_used_up_is_left_at_once_and_gone_back_to_when_a_month_begins() {
    let now = Instant::now();
    let mut scheduler = two(Mode::Failover, now);
    let left = scheduler.set_used_up(A, true, now + secs(60)).unwrap();
    assert_eq!((left.to, left.reason), (B, SwitchReason::UsedUp));
    assert_eq!(scheduler.set_used_up(A, false, now + secs(70)), None);
    assert_eq!(scheduler.poll(now + secs(99)), None, "the hold time");
    let back = scheduler.poll(now + secs(100)).unwrap();
    let held = SwitchReason::Preferred(secs(30));
    assert_eq!((back.to, back.reason), (A, held));
}

#[test]
fn a_line_whose_cap_is_used_up_is_the_last_resort() {
    let now = Instant::now();
    let mut scheduler = two(Mode::Failover, now);
    let metered = LineSettings {
        priority: 3,
        metered: true,
        ..LineSettings::default()
    };
    scheduler.add(C, metered);
    scheduler.set_state(C, Up, now);
    scheduler.set_used_up(B, true, now);
    let mut fails = |line| scheduler.set_state(line, Down, now).map(|it| it.to);
    assert_eq!(fails(A), Some(C), "a metered one that has something left");
    assert_eq!(fails(C), Some(B));
    assert_eq!(chosen(&scheduler), set(&[B]));
    // The cap of the line in use was exhausted, so a better line must first prove itself.
    assert_eq!(scheduler.set_state(A, Up, now + secs(10)), None);
    assert_eq!(scheduler.poll(now + secs(40)).unwrap().to, A);
}

#[test]
fn lines_that_are_used_up_get_neither_copies_nor_shares() {
    let now = Instant::now();
    for mode in [Mode::Duplicate, Mode::BalanceFlows, Mode::BalancePackets] {
        let mut scheduler = two(mode, now);
        scheduler.set_used_up(A, true, now);
        assert_eq!(chosen(&scheduler), set(&[B]), "{mode:?}");
        scheduler.set_state(B, Down, now);
        assert_eq!(chosen(&scheduler), set(&[A]), "{mode:?}");
    }
}

#[test]
fn a_data_plane_is_told_the_choice_that_the_scheduler_makes() {
    let now = Instant::now();
    let told = |mode| {
        let scheduler = two(mode, now);
        (scheduler.active(), scheduler.line_mode())
    };
    let both = set(&[A, B]);
    assert_eq!(told(Mode::Failover).1, LineMode::Single);
    assert_eq!(told(Mode::Duplicate), (Some(A), LineMode::Duplicate(both)));
    assert_eq!(told(Mode::Critical), (Some(A), LineMode::Critical(both)));
    let LineMode::Balance(shares) = told(Mode::BalanceFlows).1 else {
        panic!("flows are shared");
    };
    assert_eq!(shares[A.index()], 2 * shares[B.index()]);
    let by_packets = LineMode::BalancePackets(shares);
    assert_eq!(told(Mode::BalancePackets), (Some(A), by_packets));
    for mode in [Mode::Duplicate, Mode::Critical, Mode::BalanceFlows] {
        let mut scheduler = two(mode, now);
        scheduler.set_state(A, Down, now);
        assert_eq!(scheduler.line_mode().lines(), set(&[B]), "{mode:?}");
    }
}

#[test]
fn streams_take_part_in_failover_only() {
    let now = Instant::now();
    let mut scheduler = two(Mode::Duplicate, now);
    let stream = LineSettings {
        stream: true,
        ..LineSettings::default()
    };
    scheduler.add(C, stream);
    scheduler.set_state(C, Up, now);
    assert_eq!(chosen(&scheduler), set(&[A, B]));
    scheduler.set_state(A, Down, now);
    scheduler.set_state(B, Down, now);
    assert_eq!(chosen(&scheduler), set(&[C]));
}

#[test]
fn where_no_line_works_packets_go_where_they_went() {
    let now = Instant::now();
    for mode in [
        Mode::Failover,
        Mode::Duplicate,
        Mode::Critical,
        Mode::BalanceFlows,
        Mode::BalancePackets,
    ] {
        let mut scheduler = two(mode, now);
        scheduler.set_state(A, Down, now);
        scheduler.set_state(B, Down, now);
        assert_eq!(chosen(&scheduler), set(&[B]), "{mode:?}");
        scheduler.remove(B, now);
        assert_eq!(chosen(&scheduler), set(&[A]), "{mode:?}");
        scheduler.remove(A, now);
        assert_eq!(chosen(&scheduler), LineSet::EMPTY);
    }
}

#[test]
fn lines_that_nothing_is_known_of_are_tried() {
    let mut scheduler = Scheduler::new(Mode::Duplicate, FailoverSettings::default());
    scheduler.add(B, LineSettings::default());
    scheduler.poll(Instant::now());
    assert_eq!(chosen(&scheduler), set(&[B]));
}

#[test]
fn while_no_line_is_known_to_work_the_guess_is_one_that_may() {
    let mut scheduler = Scheduler::new(Mode::Failover, FailoverSettings::default());
    let now = Instant::now();
    for (line, priority) in [(0, 10), (1, 20)] {
        let settings = LineSettings {
            priority,
            ..LineSettings::default()
        };
        scheduler.add(LineId(line), settings);
    }
    scheduler.poll(now);
    assert_eq!(scheduler.active(), Some(LineId(0)));
    scheduler.set_state(LineId(0), Down, now);
    assert_eq!(scheduler.active(), Some(LineId(1)));
    scheduler.set_state(LineId(1), Down, now);
    assert_eq!(scheduler.active(), Some(LineId(0)), "neither");
}
