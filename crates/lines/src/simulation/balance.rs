//! One stream over two lines, with packets shared between them.

use super::emulator::{Link, LinkSettings, Loss};
use super::path::{Outcome, Sending, run};
use crate::health::LineState;
use crate::reorder::{Order, Settings, Window};
use crate::scheduler::{FailoverSettings, LineSettings, Mode, PacketShare, Scheduler};
use plane::{LineId, LineMode};
use std::time::{Duration, Instant};

/// A line of so many Mbit/s and milliseconds.
fn line(rate: u64, delay: u64, loss: Loss) -> LinkSettings {
    LinkSettings {
        delay: Duration::from_millis(delay),
        loss,
        rate: Some(rate * 1_000_000),
        queue: 100_000,
        keeps_order: true,
        ..LinkSettings::default()
    }
}

/// Packets of 1000 bytes at `rate` Mbit/s for two seconds, over 100 Mbit/s with 10 ms and 50 Mbit/s with 40 ms.
fn sendings(rate: u64) -> Vec<Sending> {
    let mut scheduler = Scheduler::new(Mode::BalancePackets, FailoverSettings::default());
    for (line, rate) in [(LineId(0), 100_000_000), (LineId(1), 50_000_000)] {
        let settings = LineSettings {
            rate: Some(rate),
            ..LineSettings::default()
        };
        scheduler.add(line, settings);
        scheduler.set_state(line, LineState::Up, Instant::now());
    }
    let LineMode::BalancePackets(weights) = scheduler.line_mode() else {
        panic!("packets are shared");
    };
    let mut packets = PacketShare::new();
    packets.share(&weights);
    (0..rate * 250)
        .map(|number| Sending {
            at: Duration::from_nanos(number * 8_000_000 / rate),
            number,
            flow: Some(1),
            lines: 1 << packets.next(1000).unwrap().0,
        })
        .collect()
}

fn settings() -> Settings {
    Settings {
        order: Order::Strict,
        ..Settings::default()
    }
}

#[test]
fn one_stream_fills_both_lines_in_order() {
    let sendings = sendings(142);
    let links = vec![
        Link::new(line(100, 10, Loss::None), 1),
        Link::new(line(50, 40, Loss::None), 2),
    ];
    let outcome = run(&sendings, links, Window::new(settings()), |_, _| {});
    // Until the slower line is known, its first packets come late.
    let late = outcome.counters.copies.late;
    assert_eq!(outcome.deliveries.len(), sendings.len());
    assert!(late < sendings.len() as u64 / 100, "{late}");
    let settled = outcome.deliveries.iter().skip(3000);
    let longest = settled.map(|delivery| delivery.delay).max().unwrap();
    assert!(longest < Duration::from_millis(50), "{longest:?}");
    assert!(outcome.waiting_max.0 < 600, "{:?}", outcome.waiting_max);
}

#[test]
fn a_loss_on_one_line_stalls_a_stream_for_no_longer_than_the_slower_takes() {
    let sendings = sendings(135);
    let links = vec![
        Link::new(line(100, 10, Loss::None), 1),
        Link::new(line(50, 40, Loss::Random(0.01)), 2),
    ];
    let outcome = run(&sendings, links, Window::new(settings()), |_, _| {});
    let mut delays: Vec<Duration> = outcome
        .deliveries
        .iter()
        .skip(3000)
        .map(|d| d.delay)
        .collect();
    delays.sort();
    let p999 = delays[delays.len() * 999 / 1000];
    assert!(p999 < Duration::from_millis(55), "{p999:?}");
    let lost = sendings.len() - outcome.deliveries.len();
    let third = sendings.len() / 3;
    assert!(lost > third / 200 && lost < third / 60, "{lost}");
}

/// Sends at a rate over both lines, with losses on each, and requests missing packets.
fn repaired(rate: u64, losses: [Loss; 2]) -> (usize, Outcome) {
    let sendings = sendings(rate);
    let links = vec![
        Link::new(line(100, 10, losses[0]), 1),
        Link::new(line(50, 40, losses[1]), 2),
    ];
    let mut window = Window::new(settings());
    window.set_repair(true);
    (sendings.len(), run(&sendings, links, window, |_, _| {}))
}

#[test]
fn what_is_asked_for_again_is_not_lost() {
    let lossy = Loss::Random(0.01);
    let none = Loss::None;
    for losses in [[lossy, none], [none, lossy], [lossy, lossy]] {
        let (sent, outcome) = repaired(135, losses);
        // At first all packets of the slower line count as missing, and the credit for repairs does not cover them all.
        let lost = (0..sent).filter(|at| !outcome.arrived[*at]);
        let (early, later): (Vec<_>, Vec<_>) = lost.partition(|at| *at < 3000);
        assert!(later.is_empty(), "{losses:?}: {later:?}");
        assert!(early.len() < 15, "{early:?}");
        let late = outcome.counters.copies.late;
        assert!(late < sent as u64 / 100, "{late}");
        let asked = outcome.repairs.asked;
        assert!(
            (sent as u64 / 400..sent as u64 / 30).contains(&asked),
            "{asked}"
        );
        let settled = outcome.deliveries.iter().skip(3000);
        let mut delays: Vec<Duration> = settled.map(|d| d.delay).collect();
        delays.sort();
        let p999 = delays[delays.len() * 999 / 1000];
        assert!(p999 < Duration::from_millis(150), "{p999:?}");
    }
}

#[test]
fn losses_of_lines_that_are_full_are_not_hidden() {
    let (sent, outcome) = repaired(170, [Loss::None; 2]);
    let lost = sent - outcome.deliveries.len();
    assert!(lost > sent / 20, "{lost} of {sent}");
    assert!(outcome.repairs.asked < sent as u64 / 25);
    assert!(outcome.waiting_max.0 <= 2048, "{:?}", outcome.waiting_max);
}
