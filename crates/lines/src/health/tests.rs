//! Lines that appear, vanish and deteriorate.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A line whose peer answers after a round trip, or does not answer.
struct Bench {
    health: Health,
    now: Instant,
    changes: Vec<Change>,
    probes: usize,
    answers: bool,
    round_trip: Duration,
    /// For each answer in transit, when it arrives, and when the packet that it answers was sent.
    on_their_way: std::collections::VecDeque<(Instant, Instant)>,
}

impl Bench {
    fn new(settings: Settings) -> Self {
        Self {
            health: Health::new(settings),
            now: Instant::now(),
            changes: Vec::new(),
            probes: 0,
            answers: true,
            round_trip: MS * 30,
            on_their_way: std::collections::VecDeque::new(),
        }
    }

    /// Lets time pass, a millisecond a step, and calls `each` in every step.
    fn run(&mut self, millis: u32, mut each: impl FnMut(&mut Health, Instant, u32)) {
        for step in 0..millis {
            self.now += MS;
            if self.health.probe_due(self.now) {
                self.probes += 1;
                if self.answers {
                    self.on_their_way
                        .push_back((self.now + self.round_trip, self.now));
                }
            }
            while let Some((_, sent)) = self
                .on_their_way
                .front()
                .copied()
                .filter(|(at, _)| *at <= self.now)
            {
                self.on_their_way.pop_front();
                self.health.round_trip(self.now - sent, self.now);
                self.health.received(self.now);
            }
            each(&mut self.health, self.now, step);
            self.changes.extend(self.health.poll(self.now));
        }
    }

    fn idle(&mut self, millis: u32) {
        self.run(millis, |_, _, _| {});
    }

    fn states(&self) -> Vec<LineState> {
        self.changes.iter().map(|change| change.to).collect()
    }
}

#[test]
fn a_line_is_up_with_the_first_answer_and_down_when_answers_end() {
    let mut bench = Bench::new(Settings::default());
    bench.idle(100);
    assert_eq!(bench.states(), [LineState::Up]);
    assert_eq!(bench.changes[0].reason, Reason::FirstPacket);
    bench.idle(3000);
    bench.answers = false;
    let cut = bench.now;
    while bench.changes.len() == 1 && bench.now < cut + MS * 5000 {
        bench.idle(1);
    }
    assert_eq!(bench.states(), [LineState::Up, LineState::Down]);
    assert!(matches!(bench.changes[1].reason, Reason::Silent(_)));
    // The next probe of an idle line is due within a second; the line is down a little more than one after it.
    assert!(bench.now - cut < MS * 2400, "{:?}", bench.now - cut);
    bench.answers = true;
    bench.idle(3000);
    assert_eq!(bench.states()[2..], [LineState::Up]);
    assert!(matches!(bench.changes[2].reason, Reason::PacketsAgain(_)));
}

#[test]
fn a_line_with_traffic_is_down_soon_after_answers_end() {
    let mut bench = Bench::new(Settings::default());
    let traffic = |health: &mut Health, now, step: u32| {
        if step.is_multiple_of(10) {
            health.sent(now);
            health.received(now);
        }
    };
    bench.run(5000, traffic);
    assert!(bench.probes <= 1, "traffic tells enough: {}", bench.probes);
    bench.answers = false;
    let cut = bench.now;
    while bench.changes.len() == 1 && bench.now < cut + MS * 5000 {
        bench.run(1, |health, now, _| health.sent(now));
    }
    assert!(bench.now - cut < MS * 1300, "{:?}", bench.now - cut);
}

#[test]
fn an_idle_line_is_probed_once_an_interval() {
    let mut bench = Bench::new(Settings::default());
    bench.idle(20_000);
    assert!((17..=21).contains(&bench.probes), "{}", bench.probes);
    assert_eq!(bench.changes.len(), 1);
    assert_eq!(bench.health.smoothed(), Some(MS * 30));
}

/// Answers to what the protocol asks by itself, such as a handshake, do not answer a lost probe.
#[test]
fn lost_probes_and_uneven_round_trips_are_counted() {
    let mut bench = Bench::new(Settings::default());
    bench.idle(8000);
    assert_eq!(
        (bench.health.loss(), bench.health.jitter()),
        (None, Some(Duration::ZERO))
    );
    bench.idle(20_000);
    assert_eq!(bench.health.loss().unwrap().percent, 0);
    for number in 0..20 {
        bench.answers = number % 2 == 0;
        bench.round_trip = MS * (30 + number * 2);
        bench.run(1000, |health, now, step| {
            if step == 500 {
                health.round_trip(MS * 30, now);
            }
        });
    }
    let (loss, jitter) = (bench.health.loss().unwrap(), bench.health.jitter().unwrap());
    assert!((20..90).contains(&loss.percent), "{loss:?}");
    assert!((MS * 5..MS * 60).contains(&jitter), "{jitter:?}");
}

#[test]
fn one_answer_does_not_bring_a_line_back() {
    let mut bench = Bench::new(Settings::default());
    bench.idle(2000);
    bench.answers = false;
    bench.idle(5000);
    assert_eq!(bench.states(), [LineState::Up, LineState::Down]);
    bench.run(5000, |health, now, step| {
        if step == 100 {
            health.received(now);
        }
    });
    assert_eq!(bench.states(), [LineState::Up, LineState::Down]);
}

#[test]
fn a_line_that_is_asked_seldom_is_asked_again_soon_after_it_went_down() {
    let mut bench = Bench::new(Settings {
        probe_interval: Duration::from_secs(60),
        ..Settings::default()
    });
    bench.answers = false;
    bench.idle(3000);
    assert_eq!(bench.states(), [LineState::Down]);
    bench.answers = true;
    bench.idle(15_000);
    assert_eq!(bench.states(), [LineState::Down, LineState::Up]);

    // The line is still probed rarely if it stays down.
    bench.answers = false;
    bench.idle(300_000);
    let before = bench.probes;
    bench.idle(600_000);
    assert_eq!(bench.probes - before, 10);
}

#[test]
fn round_trips_that_grow_degrade_a_line_and_recovery_takes_longer() {
    let mut bench = Bench::new(Settings::default());
    bench.idle(10_000);
    bench.round_trip = MS * 400;
    bench.idle(2500);
    assert_eq!(bench.changes.len(), 1, "not yet");
    bench.idle(27_500);
    assert_eq!(bench.states(), [LineState::Up, LineState::Degraded]);
    assert!(matches!(bench.changes[1].reason, Reason::RoundTrip { .. }));
    bench.round_trip = MS * 200;
    bench.idle(40_000);
    assert_eq!(bench.changes.len(), 2, "between the two limits");
    bench.round_trip = MS * 30;
    bench.idle(10_000);
    assert_eq!(bench.changes.len(), 2);
    bench.idle(14_000);
    assert_eq!(bench.states()[2..], [LineState::Up]);
    assert!(matches!(bench.changes[2].reason, Reason::Recovered(_)));
}

#[test]
fn a_fault_is_a_reason_at_once() {
    let mut bench = Bench::new(Settings::default());
    bench.idle(2000);
    bench.health.fault(Some(Fault::NoCarrier));
    let change = bench.health.poll(bench.now).unwrap();
    assert_eq!(change.to, LineState::Down);
    assert_eq!(change.reason, Reason::Fault(Fault::NoCarrier));
    assert_eq!(bench.health.poll(bench.now), None, "said once");
    assert!(!bench.health.probe_due(bench.now + MS * 5000));
    bench.health.fault(Some(Fault::NoAddress));
    let change = bench.health.poll(bench.now).unwrap();
    assert_eq!(change.reason, Reason::Fault(Fault::NoAddress));
    bench.health.fault(None);
    let change = bench.health.poll(bench.now).unwrap();
    assert_eq!(change.to, LineState::Unknown);
    bench.changes.clear();
    bench.idle(2000);
    assert_eq!(bench.states(), [LineState::Up]);
}

#[test]
fn a_peer_without_probes_is_given_time() {
    let mut bench = Bench::new(Settings {
        probes: false,
        ..Settings::default()
    });
    bench.run(10, |health, now, _| health.received(now));
    bench.run(14_900, |health, now, _| health.sent(now));
    assert_eq!((bench.probes, bench.states()), (0, vec![LineState::Up]));
    bench.run(200, |health, now, _| health.sent(now));
    assert_eq!(bench.states(), [LineState::Up, LineState::Down]);
}

#[test]
fn time_in_which_nobody_asked_is_no_silence() {
    let mut bench = Bench::new(Settings::default());
    bench.idle(2000);
    bench.health.sent(bench.now);
    // The host slept.
    bench.now += MS * 3_600_000;
    assert_eq!(bench.health.poll(bench.now), None);
    bench.idle(3000);
    assert_eq!(bench.states(), [LineState::Up]);
}

#[test]
fn round_trips_are_smoothed() {
    let mut trips = RoundTrips::default();
    for _ in 0..100 {
        trips.sample(MS * 40);
        trips.sample(MS * 60);
    }
    let smoothed = trips.smoothed.unwrap();
    assert!((MS * 48..MS * 53).contains(&smoothed), "{smoothed:?}");
    assert!((MS * 40..MS * 41).contains(&trips.least));
    assert!(trips.timeout().unwrap() > MS * 80);
}
