//! Random schedules of loss, duplication, reordering and lines that die, over two and three lines.
//!
//! `MILLRACE_TEST_SCHEDULES` sets how many (20,000).

use super::emulator::{Jitter, Link, LinkSettings, Loss, Random};
use super::path::{Outcome, Sending, run};
use crate::reorder::{Jump, Late, Order, Settings, Verdict, WINDOW, Window};
use std::collections::HashMap;
use std::time::Duration;

struct Schedule {
    settings: Settings,
    links: Vec<LinkSettings>,
    sendings: Vec<Sending>,
    /// The index of a sending, the line, and whether it is cut or restored before that sending.
    cuts: Vec<(usize, usize, bool)>,
    /// Whether missing numbers are requested.
    repair: bool,
}

fn micros(random: &mut Random, below: u64) -> Duration {
    Duration::from_micros(random.below(below))
}

fn link(random: &mut Random) -> LinkSettings {
    let jitter = micros(random, 20_000);
    LinkSettings {
        delay: micros(random, 120_000),
        jitter: match random.below(3) {
            0 => Jitter::None,
            1 => Jitter::Even(jitter),
            _ => Jitter::Normal(jitter / 3),
        },
        keeps_order: random.chance(0.4),
        loss: match random.below(3) {
            0 => Loss::None,
            1 => Loss::Random(random.unit() * 0.3),
            _ => Loss::Bursts {
                begin: random.unit() * 0.05,
                end: 0.05 + random.unit() * 0.5,
            },
        },
        duplication: if random.chance(0.5) {
            random.unit() * 0.1
        } else {
            0.0
        },
        rate: random
            .chance(0.2)
            .then(|| 500_000 + random.below(20_000_000)),
        queue: 50_000,
    }
}

fn settings(random: &mut Random) -> Settings {
    let small = random.chance(0.5);
    let most = if small { 24 } else { WINDOW };
    Settings {
        packets_max: 1 + random.below(most) as usize,
        bytes_max: 500 + random.below(if small { 20_000 } else { 4 << 20 }) as usize,
        late: if random.chance(0.5) {
            Late::Deliver
        } else {
            Late::Drop
        },
        order: if random.chance(0.5) {
            Order::Strict
        } else {
            Order::ByFlow
        },
        jump: Jump::Trusted,
        line_rule: random.chance(0.9),
        ..Settings::default()
    }
}

fn schedule(seed: u64) -> Schedule {
    let random = &mut Random::new(seed);
    let lines = 2 + random.below(2) as usize;
    let count = 100 + random.below(400) as usize;
    let all = (1_u16 << lines) - 1;
    let mode = random.below(3);
    let flows = 1 + random.below(6) as u32;
    let spacing = 50 + random.below(4000);
    // Numbers around 2^32 among them.
    let base = [0, 1, 0xffff_ff00, 1 << 40][random.below(4) as usize];
    let mut at = Duration::ZERO;
    let sendings = (0..count)
        .map(|index| {
            if !random.chance(0.3) {
                at += micros(random, 2 * spacing);
            }
            if random.chance(0.005) {
                at += micros(random, 2_000_000);
            }
            let one = 1 << random.below(lines as u64);
            let lines = match mode {
                0 => all,
                1 => one,
                _ if random.chance(0.3) => all,
                _ => one,
            };
            Sending {
                at,
                number: base + index as u64,
                flow: random
                    .chance(0.95)
                    .then(|| random.below(flows.into()) as u32),
                lines,
            }
        })
        .collect();
    let cuts = (0..random.below(4))
        .map(|cut| {
            let line = random.below(lines as u64) as usize;
            (random.below(count as u64) as usize, line, cut % 2 == 0)
        })
        .collect();
    Schedule {
        settings: settings(random),
        links: (0..lines).map(|_| link(random)).collect(),
        sendings,
        cuts,
        repair: seed.is_multiple_of(3),
    }
}

fn play(seed: u64) -> (Schedule, Outcome) {
    let schedule = schedule(seed);
    let links = schedule
        .links
        .iter()
        .enumerate()
        .map(|(line, settings)| Link::new(*settings, seed ^ (line as u64 + 1) << 48))
        .collect();
    let mut window = Window::new(schedule.settings);
    window.set_repair(schedule.repair);
    let outcome = run(&schedule.sendings, links, window, |index, links| {
        for (before, line, cut) in &schedule.cuts {
            if *before == index {
                links[*line].cut(*cut);
            }
        }
    });
    (schedule, outcome)
}

/// Checks that no packet comes twice, and that waiting stays within the bounds of packets, bytes and time.
fn check_bounds(schedule: &Schedule, outcome: &Outcome) {
    let mut numbers: Vec<u64> = outcome.deliveries.iter().map(|d| d.number).collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "twice");
    let settings = &schedule.settings;
    let (packets, bytes) = outcome.waiting_max;
    assert!(packets <= settings.packets_max, "{packets} packets");
    assert!(
        bytes <= settings.bytes_max || packets == 1,
        "{bytes} bytes, {packets} packets"
    );
    for delivery in &outcome.deliveries {
        assert!(delivery.added <= settings.cap_max, "{delivery:?}");
    }
}

/// Checks that within a flow a packet is overtaken by at most as many as the order allows, and by none while it waits.
fn check_order(schedule: &Schedule, outcome: &Outcome) {
    let most = match schedule.settings.order {
        Order::Strict => 0,
        Order::ByFlow => 2,
    };
    let first = schedule.sendings[0].number;
    let mut flows: HashMap<Option<u32>, Vec<(u64, Duration)>> = HashMap::new();
    for delivery in &outcome.deliveries {
        let number = delivery.number;
        let flow = schedule.sendings[(number - first) as usize].flow;
        let delivered = flows.entry(flow).or_default();
        let before = delivered.iter().filter(|(other, _)| *other > number);
        let overtaken = before.clone().count();
        for (other, arrived) in before {
            assert!(*arrived <= delivery.arrived, "{other} passed {delivery:?}");
        }
        let most = if flow.is_none() { 0 } else { most };
        let late = delivery.verdict == Verdict::DeliverLate;
        assert!(late || overtaken <= most, "{delivery:?}: {overtaken}");
        assert!(!late || schedule.settings.late == Late::Deliver);
        delivered.push((number, delivery.arrived));
    }
    if schedule.settings.order == Order::Strict && schedule.settings.late == Late::Drop {
        let ascending = |pair: &[super::path::Delivery]| pair[0].number < pair[1].number;
        assert!(outcome.deliveries.windows(2).all(ascending));
    }
}

/// Checks that the counters agree with the packets sent and arrived.
fn check_identities(schedule: &Schedule, outcome: &Outcome) {
    let counters = outcome.counters;
    let copies = counters.copies;
    assert_eq!((copies.received(), copies.ignored), (outcome.copies, 0));
    assert_eq!(counters.waiting, 0);
    assert_eq!(copies.accepted + counters.given_up, counters.decided);
    let delivered = outcome.deliveries.len() as u64;
    match schedule.settings.late {
        Late::Deliver => assert_eq!(delivered, copies.accepted + copies.late),
        Late::Drop => assert_eq!(delivered, copies.accepted),
    }
    let Some(last) = outcome.arrived.iter().rposition(|arrived| *arrived) else {
        assert_eq!(counters.decided, 0);
        return;
    };
    // The window's first number is the first that arrived, or one a little below that arrived later.
    let decided = &outcome.arrived[last + 1 - counters.decided as usize..=last];
    let lost = decided.iter().filter(|arrived| !**arrived).count();
    assert_eq!(counters.lost(), lost as u64);
}

#[test]
fn random_schedules_keep_every_promise() {
    let count = std::env::var("MILLRACE_TEST_SCHEDULES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(20_000);
    let mut verdicts: HashMap<Verdict, u64> = HashMap::new();
    let (mut late, mut given_up, mut repaired) = (0, 0, 0);
    for seed in 0..count {
        let played = std::panic::catch_unwind(|| {
            let (schedule, outcome) = play(seed);
            check_bounds(&schedule, &outcome);
            check_order(&schedule, &outcome);
            check_identities(&schedule, &outcome);
            outcome
        });
        let outcome = played.unwrap_or_else(|_| panic!("schedule {seed}"));
        for delivery in &outcome.deliveries {
            *verdicts.entry(delivery.verdict).or_default() += 1;
        }
        late += outcome.counters.copies.late;
        given_up += outcome.counters.given_up;
        repaired += outcome.repairs.came;
    }
    // The schedules are useful only if they reach each case.
    for verdict in [
        Verdict::Deliver,
        Verdict::DeliverPast,
        Verdict::DeliverLate,
        Verdict::Held,
    ] {
        assert!(verdicts.get(&verdict).is_some_and(|count| *count > 1000));
    }
    assert!(late > 1000 && given_up > late && repaired > 1000);
}
