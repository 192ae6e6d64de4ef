//! The rules of the window, one by one.

use super::*;
use plane::LineId;
use std::time::{Duration, Instant};

const A: LineId = LineId(0);
const B: LineId = LineId(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A window whose packets are their numbers.
struct Bench {
    window: Window<u64>,
    start: Instant,
    out: Vec<u64>,
}

impl Bench {
    /// Makes a window over lines that are known to keep order.
    fn new(settings: Settings) -> Self {
        let mut window = Window::new(settings);
        window.expect(Reordering::NONE);
        Self {
            window,
            start: Instant::now(),
            out: Vec::new(),
        }
    }

    fn strict() -> Self {
        Self::new(Settings {
            order: Order::Strict,
            ..Settings::default()
        })
    }

    fn put(&mut self, number: u64, line: LineId, at: Duration) -> Verdict {
        self.put_arrival(&Arrival::new(number, line, 100), at)
    }

    fn put_arrival(&mut self, arrival: &Arrival, at: Duration) -> Verdict {
        let now = self.start + at;
        let verdict = self.window.arrived(arrival, now, || arrival.number);
        if verdict.deliver() {
            self.out.push(arrival.number);
        }
        self.due(at);
        verdict
    }

    fn due(&mut self, at: Duration) {
        while let Some(number) = self.window.due(self.start + at) {
            self.out.push(number);
        }
    }

    fn deadline(&self) -> Option<Duration> {
        let deadline = self.window.next_deadline()?;
        Some(deadline - self.start)
    }
}

#[test]
fn a_packet_behind_a_gap_waits_for_it() {
    let mut bench = Bench::strict();
    assert_eq!(bench.put(1, A, ms(0)), Verdict::Deliver);
    assert_eq!(bench.put(3, A, ms(1)), Verdict::Held);
    assert_eq!(bench.put(2, A, ms(1)), Verdict::Deliver);
    assert_eq!(bench.out, [1, 2, 3]);
    assert_eq!(bench.deadline(), None);
    assert_eq!(bench.put(4, A, ms(2)), Verdict::Deliver);
    let counters = bench.window.counters();
    assert_eq!((counters.copies.accepted, counters.copies.buffered), (4, 1));
    assert_eq!((counters.given_up, counters.waiting), (0, 0));
}

#[test]
fn a_gap_on_the_only_line_ends_after_the_lines_slack() {
    let mut bench = Bench::strict();
    bench.put(1, A, ms(0));
    bench.put(3, A, ms(1));
    // The line has shown no reordering: half a millisecond.
    assert_eq!(bench.deadline(), Some(Duration::from_micros(1500)));
    bench.due(Duration::from_micros(1499));
    assert_eq!(bench.out, [1]);
    bench.due(Duration::from_micros(1500));
    assert_eq!(bench.out, [1, 3]);
    assert_eq!(bench.window.counters().lost(), 1);
}

#[test]
fn a_session_begins_with_what_the_one_before_has_learnt() {
    let mut first = Window::new(Settings::default());
    let start = Instant::now();
    let put = |window: &mut Window<u64>, number, at| {
        window.arrived(&Arrival::new(number, A, 100), start + ms(at), || number)
    };
    put(&mut first, 0, 0);
    put(&mut first, 2, 1);
    assert_eq!(
        first.next_deadline(),
        Some(start + ms(101)),
        "it may be reordered by much"
    );
    put(&mut first, 1, 41);
    let mut second = Window::new(Settings::default());
    for lost in 0..8 {
        put(&mut first, 4 + 2 * lost, 1000 + 200 * lost);
        while first.due(start + ms(1150 + 200 * lost)).is_some() {}
    }
    second.expect(first.reordering(start + ms(2600)));
    put(&mut second, 0, 2600);
    put(&mut second, 2, 2601);
    let waits = second.next_deadline().unwrap() - start - ms(2601);
    assert!((ms(44)..ms(50)).contains(&waits), "{waits:?}");
}

#[test]
fn a_gap_ends_when_all_lines_that_are_alive_have_passed_it() {
    let mut bench = Bench::strict();
    let (mut at, mut number) = (ms(0), 1);
    // B is 30 ms behind A, and both carry all packets.
    for step in 0..300 {
        at = ms(step);
        bench.put(number, A, at);
        if number > 30 {
            bench.put(number - 30, B, at);
        }
        number += 1;
    }
    let delivered = bench.out.len();
    let lost = number;
    bench.put(lost + 1, A, at + ms(1));
    assert_eq!(bench.out.len(), delivered);
    assert!(
        bench.deadline().unwrap() > at + ms(25),
        "B may still bring it"
    );
    for step in 1..30 {
        bench.put(lost + 1 + step, A, at + ms(1 + step));
        bench.put(lost - 31 + step, B, at + ms(1 + step));
    }
    assert_eq!(bench.out.len(), delivered);
    bench.put(lost + 1, B, at + ms(31));
    bench.due(at + ms(32));
    assert_eq!(bench.out.len(), delivered + 30, "B has passed it");
}

#[test]
fn a_gap_that_is_filled_from_behind_is_not_waited_for_longer() {
    let mut bench = Bench::new(Settings {
        order: Order::Strict,
        floor: ms(100),
        cap: ms(100),
        cap_max: ms(100),
        line_rule: false,
        ..Settings::default()
    });
    bench.put(1, A, ms(0));
    for (number, at) in [(6, 10), (4, 50), (7, 60), (3, 90)] {
        assert_eq!(bench.put(number, A, ms(at)), Verdict::Held);
        assert_eq!(bench.deadline(), Some(ms(110)));
    }
    bench.put(2, A, ms(100));
    assert_eq!(bench.deadline(), Some(ms(110)), "5 is as old");
    bench.due(ms(110));
    assert_eq!(bench.out, [1, 2, 3, 4, 6, 7]);
}

#[test]
fn a_line_is_not_dead_because_nothing_was_sent() {
    let mut bench = Bench::strict();
    bench.put(1, A, ms(0));
    bench.put(1, B, ms(5));
    bench.put(2, A, ms(10_000));
    bench.put(4, A, ms(10_001));
    assert!(bench.deadline().unwrap() >= ms(10_006), "B may bring 3");
}

#[test]
fn late_and_duplicate_are_told_apart() {
    let mut bench = Bench::strict();
    bench.put(1, A, ms(0));
    bench.put(4, A, ms(1));
    bench.due(ms(500));
    assert_eq!(bench.put(2, B, ms(501)), Verdict::DeliverLate);
    assert_eq!(bench.put(2, A, ms(502)), Verdict::Duplicate);
    assert_eq!(bench.put(1, B, ms(503)), Verdict::Duplicate);
    assert_eq!(bench.put(4, B, ms(504)), Verdict::Duplicate);
    assert_eq!(bench.put(3, B, ms(505)), Verdict::DeliverLate);
    assert_eq!(bench.window.counters().lost(), 0);
    assert_eq!(bench.window.counters().given_up, 2);
}

#[test]
fn late_packets_are_dropped_where_order_is_all() {
    let mut bench = Bench::new(Settings {
        late: Late::Drop,
        ..Settings::default()
    });
    bench.put(1, A, ms(0));
    bench.put(3, A, ms(1));
    bench.due(ms(500));
    assert_eq!(bench.put(2, A, ms(501)), Verdict::Late);
    assert_eq!(bench.put(2, A, ms(501)), Verdict::Duplicate);
    assert_eq!(bench.out, [1, 3]);
}

#[test]
fn what_came_before_the_first_packet_is_late_and_what_is_older_ancient() {
    let mut bench = Bench::strict();
    bench.put(1000, A, ms(0));
    assert_eq!(bench.put(998, B, ms(1)), Verdict::DeliverLate);
    assert_eq!(bench.put(998, A, ms(1)), Verdict::Duplicate);
    assert_eq!(bench.window.counters().lost(), 1, "999");
    assert_eq!(bench.put(1, B, ms(2)), Verdict::Ancient);
}

#[test]
fn a_trusted_jump_counts_the_numbers_between_and_does_not_walk_them() {
    let mut bench = Bench::strict();
    bench.put(1, A, ms(0));
    bench.put(3, A, ms(0));
    let far = 1 << 60;
    assert_eq!(bench.put(far, A, ms(0)), Verdict::Held);
    bench.due(ms(500));
    assert_eq!(bench.out, [1, 3, far]);
    let counters = bench.window.counters();
    assert_eq!(counters.lost(), far - 3);
    assert_eq!(counters.decided, far);
    assert_eq!(bench.put(far - 5000, A, ms(500)), Verdict::DeliverLate);
    assert_eq!(bench.put(2, A, ms(500)), Verdict::Ancient);
}

#[test]
fn one_number_far_ahead_does_nothing_where_numbers_can_be_forged() {
    let mut bench = Bench::new(Settings {
        jump: Jump::Agreed,
        ..Settings::default()
    });
    bench.put(10, A, ms(0));
    assert_eq!(bench.put(9_000_000, A, ms(1)), Verdict::Ignored);
    assert_eq!(bench.put(11, A, ms(2)), Verdict::Deliver);
    assert_eq!(bench.deadline(), None);
    assert_eq!(bench.window.counters().given_up, 0);
    for (number, verdict) in [
        (9_000_000, Verdict::Ignored),
        (9_000_001, Verdict::Ignored),
        (9_000_002, Verdict::Held),
    ] {
        assert_eq!(bench.put(number, A, ms(3)), verdict);
    }
    bench.due(ms(500));
    assert_eq!(bench.put(9_000_003, A, ms(501)), Verdict::Deliver);
}

#[test]
fn a_peer_that_begins_anew_is_followed() {
    let mut bench = Bench::new(Settings {
        jump: Jump::Agreed,
        ..Settings::default()
    });
    bench.put(1_000_000, A, ms(0));
    bench.put(1_000_002, A, ms(0));
    bench.due(ms(1));
    assert_eq!(bench.put(0, A, ms(1)), Verdict::Ancient);
    assert_eq!(bench.put(1, A, ms(2)), Verdict::Ancient);
    assert_eq!(bench.put(2, A, ms(3)), Verdict::Deliver);
    assert_eq!(bench.put(3, A, ms(4)), Verdict::Deliver);
    assert_eq!(bench.out, [1_000_000, 1_000_002, 2, 3]);
    assert_eq!(bench.put(3, A, ms(4)), Verdict::Duplicate);
    let counters = bench.window.counters();
    assert_eq!(
        counters.copies.accepted + counters.given_up,
        counters.decided
    );
}

#[test]
fn a_full_window_gives_up_the_oldest_gap() {
    let mut bench = Bench::new(Settings {
        packets_max: 3,
        order: Order::Strict,
        ..Settings::default()
    });
    bench.put(0, A, ms(0));
    for number in [2, 4, 6, 8] {
        assert_eq!(bench.put(number, A, ms(0)), Verdict::Held);
    }
    assert_eq!(bench.out, [0, 2]);
    assert_eq!(bench.window.waiting(), (3, 300));
    assert_eq!(bench.put(5, A, ms(0)), Verdict::Held, "room is made for it");
    assert_eq!(bench.out, [0, 2, 4, 5, 6]);
    bench.window.flush();
    bench.due(ms(0));
    assert_eq!(bench.out, [0, 2, 4, 5, 6, 8]);
}

#[test]
fn a_packet_that_fills_the_gap_before_a_full_window_goes_first() {
    let mut bench = Bench::new(Settings {
        packets_max: 2,
        order: Order::Strict,
        ..Settings::default()
    });
    bench.put(0, A, ms(0));
    bench.put(5, A, ms(0));
    bench.put(6, A, ms(0));
    assert_eq!(
        bench.put(4, A, ms(0)),
        Verdict::Deliver,
        "1 to 3 are given up"
    );
    assert_eq!(bench.out, [0, 4, 5, 6]);
}

#[test]
fn two_packets_of_a_flow_go_past_a_gap_and_the_third_waits() {
    let mut bench = Bench::new(Settings::default());
    let packet = |number, flow| Arrival {
        flow: Some(flow),
        ..Arrival::new(number, A, 100)
    };
    bench.put_arrival(&packet(1, 1), ms(0));
    // 2 is missing.
    for (number, flow, verdict) in [
        (3, 1, Verdict::DeliverPast),
        (4, 1, Verdict::DeliverPast),
        (5, 1, Verdict::Held),
        (6, 2, Verdict::DeliverPast),
        (7, 1, Verdict::Held),
    ] {
        assert_eq!(bench.put_arrival(&packet(number, flow), ms(0)), verdict);
    }
    assert_eq!(bench.put_arrival(&packet(6, 2), ms(0)), Verdict::Duplicate);
    assert_eq!(bench.put_arrival(&packet(2, 1), ms(0)), Verdict::Deliver);
    assert_eq!(bench.out, [1, 3, 4, 6, 2, 5, 7]);
}

#[test]
fn urgent_packets_do_not_wait() {
    let mut bench = Bench::strict();
    bench.put(1, A, ms(0));
    let urgent = Arrival {
        urgent: true,
        ..Arrival::new(3, A, 100)
    };
    assert_eq!(bench.put_arrival(&urgent, ms(0)), Verdict::DeliverPast);
    assert_eq!(bench.put(4, A, ms(0)), Verdict::Held);
    assert_eq!(bench.put(2, A, ms(0)), Verdict::Deliver);
    assert_eq!(bench.out, [1, 3, 2, 4]);
}

#[test]
fn a_run_in_order_is_taken_whole() {
    let mut bench = Bench::strict();
    assert!(
        !bench.window.arrived_in_order(1, 5, A),
        "nothing is known yet"
    );
    bench.put(1, A, ms(0));
    assert!(bench.window.arrived_in_order(2, 100_000, A));
    assert!(!bench.window.arrived_in_order(100_003, 2, A), "a gap");
    assert!(
        !bench.window.arrived_in_order(100_002, 2, B),
        "another line"
    );
    assert_eq!(bench.window.counters().copies.accepted, 100_001);
    assert_eq!(bench.window.line_copies(A).accepted, 100_001);
    assert_eq!(bench.put(100_001, B, ms(1)), Verdict::Duplicate);
    assert_eq!(bench.put(100_001 - REMEMBERED, B, ms(1)), Verdict::Ancient);
    assert_eq!(bench.put(100_002, B, ms(1)), Verdict::Deliver);
    assert_eq!(bench.window.line_copies(B).accepted, 1);
    assert_eq!(bench.window.counters().decided, 100_002);
}

#[test]
fn the_greatest_numbers_do_no_harm() {
    let mut bench = Bench::strict();
    bench.put(u64::MAX - 1, A, ms(0));
    for number in [u64::MAX, u64::MAX, 0, u64::MAX - 7] {
        bench.put(number, A, ms(1));
        bench.put(number, LineId(255), ms(1));
    }
    bench.due(ms(2000));
    assert_eq!(bench.window.waiting(), (0, 0));
}

#[test]
fn what_two_lines_lost_is_counted() {
    // Both lines carry 1 to 10; A loses 2 and 5, B loses 5 and 7.
    let mut bench = Bench::strict();
    for number in 1..=10 {
        let at = ms(number * 200);
        if ![2, 5].contains(&number) {
            bench.put(number, A, at);
        }
        if ![5, 7].contains(&number) {
            bench.put(number, B, at + ms(1));
        }
    }
    bench.due(ms(10_000));
    let counters = bench.window.counters();
    assert_eq!((counters.decided, counters.lost()), (10, 1));
    assert_eq!(2 * counters.decided - counters.copies.received(), 4);
}

#[test]
fn the_number_before_the_wrap_may_be_lost() {
    let mut extender = Extender::new();
    extender.taken(0xffff_fffe);
    assert_eq!(extender.extend(0), Some(1 << 32));
    extender.taken(1 << 32);
    assert_eq!(extender.extend(0xffff_ffff), Some(0xffff_ffff));
    assert_eq!(extender.extend(1), Some((1 << 32) + 1));
}

#[test]
fn nothing_is_below_zero() {
    let mut extender = Extender::new();
    extender.taken(5);
    assert_eq!(extender.extend(0xffff_ffff), None);
    assert_eq!(extender.extend(0), Some(0));
}

#[test]
fn after_a_restart_the_first_number_is_taken_as_it_is() {
    let mut extender = Extender::new();
    extender.taken(7 << 32);
    extender.restart();
    assert_eq!(extender.extend(3), Some(3));
}
