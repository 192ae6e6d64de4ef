//! Seven pairs of lines, 8000 packets at one a millisecond, with the figures that the algorithm had when it was chosen.

use super::emulator::{Jitter, Link, LinkSettings, Loss};
use super::path::{Outcome, Sending, run};
use crate::reorder::{Late, Reordering, Settings, Window};
use std::time::Duration;

const PACKETS: u64 = 8000;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    lines: &'static [LinkSettings],
    /// Whether packets go over all lines, or over one after the other.
    duplicate: bool,
}

const fn line(delay: u64, jitter: u64, loss: Loss) -> LinkSettings {
    LinkSettings {
        delay: ms(delay),
        jitter: Jitter::Normal(ms(jitter)),
        keeps_order: false,
        loss,
        duplication: 0.0,
        rate: None,
        queue: 0,
    }
}

const BURSTS: Loss = Loss::Bursts {
    begin: 0.006,
    end: 0.2,
};
const A: Scenario = Scenario {
    name: "A split 3ms+-1ms both, no loss",
    lines: &[line(3, 1, Loss::None), line(3, 1, Loss::None)],
    duplicate: false,
};
const B: Scenario = Scenario {
    name: "B split 10/40ms j2, loss 1%",
    lines: &[
        line(10, 2, Loss::Random(0.01)),
        line(40, 2, Loss::Random(0.01)),
    ],
    duplicate: false,
};
const C: Scenario = Scenario {
    name: "C dup 150/250ms j5, loss 10%/0",
    lines: &[line(150, 5, Loss::Random(0.1)), line(250, 5, Loss::None)],
    duplicate: true,
};
const D: Scenario = Scenario {
    name: "D dup 150/250ms j5, loss 10%/10%",
    lines: &[
        line(150, 5, Loss::Random(0.1)),
        line(250, 5, Loss::Random(0.1)),
    ],
    duplicate: true,
};
const E: Scenario = Scenario {
    name: "E dup 150/550ms j5",
    lines: &[line(150, 5, Loss::Random(0.1)), line(550, 5, Loss::None)],
    duplicate: true,
};
const F: Scenario = Scenario {
    name: "F dup 20/30ms j2 burst loss",
    lines: &[line(20, 2, BURSTS), line(30, 2, BURSTS)],
    duplicate: true,
};
const G: Scenario = Scenario {
    name: "G one line 3+-1ms, loss .5%",
    lines: &[line(3, 1, Loss::Random(0.005))],
    duplicate: false,
};

/// Delays in milliseconds, of the packets that were delivered in order.
#[derive(Debug)]
struct Figures {
    /// Packets that were never delivered.
    lost: u64,
    /// Delivered out of order.
    late: u64,
    median: f64,
    p99: f64,
    p999: f64,
    added_mean: f64,
    waiting: usize,
}

fn figures(scenario: &Scenario, settings: Settings, seed: u64) -> Figures {
    let lines = scenario.lines.len() as u64;
    let sendings: Vec<Sending> = (0..PACKETS)
        .map(|number| Sending {
            at: ms(number),
            number: number + 1,
            flow: None,
            lines: if scenario.duplicate {
                (1 << lines) - 1
            } else {
                1 << (number % lines)
            },
        })
        .collect();
    let links = scenario
        .lines
        .iter()
        .enumerate()
        .map(|(line, settings)| Link::new(*settings, seed * 64 + line as u64))
        .collect();
    let mut window = Window::new(settings);
    // The algorithm of the table trusts lines from the start.
    window.expect(Reordering::NONE);
    let outcome = run(&sendings, links, window, |_, _| {});
    let of_table = outcome.figures();
    println!("{:36} {of_table:.1?}", scenario.name);
    of_table
}

impl Outcome {
    fn figures(&self) -> Figures {
        let in_order = || {
            self.deliveries
                .iter()
                .filter(|delivery| delivery.verdict != crate::reorder::Verdict::DeliverLate)
        };
        let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
        let mut delays: Vec<f64> = in_order().map(|delivery| millis(delivery.delay)).collect();
        delays.sort_by(f64::total_cmp);
        let at = |part: f64| delays[(delays.len() as f64 * part) as usize];
        let added: f64 = in_order().map(|delivery| millis(delivery.added)).sum();
        Figures {
            lost: PACKETS - self.deliveries.len() as u64,
            late: self.counters.copies.late,
            median: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            added_mean: added / delays.len() as f64,
            waiting: self.waiting_max.0,
        }
    }
}

/// The table's values for the line rule with the adaptive timer: given up, median, 99 and 99.9 in a hundred, mean of
/// the window's delay, most packets that wait.
struct Row(u64, f64, f64, f64, f64, usize);

/// Checks a row over several seeds: the mean of each figure is no worse than the table's by more than a twentieth and
/// what its last digit hides. `lost_for_good` is what the lines lose by chance, with room for chance.
fn reproduces(scenario: &Scenario, row: &Row, lost_for_good: f64) {
    const SEEDS: u64 = 5;
    let runs: Vec<Figures> = (0..SEEDS)
        .map(|seed| figures(scenario, Settings::default(), seed))
        .collect();
    let mean = |of: fn(&Figures) -> f64| runs.iter().map(of).sum::<f64>() / SEEDS as f64;
    let name = scenario.name;
    let check = |what: &str, found: f64, most: f64| {
        assert!(found <= most, "{name}: {what} is {found:.2}, not {most:.2}");
    };
    let most = |value: f64| value * 1.05 + 0.1;
    check("lost", mean(|run| run.lost as f64), lost_for_good);
    let given_up = mean(|run| (run.lost + run.late) as f64);
    // One in a thousand may come too late, and is delivered then. If more do, the window waits longer.
    check(
        "given up",
        given_up,
        row.0 as f64 * 1.25 + PACKETS as f64 / 1000.0,
    );
    check("median", mean(|run| run.median), most(row.1));
    check("p99", mean(|run| run.p99), most(row.2));
    check("p99.9", mean(|run| run.p999), most(row.3));
    check("added", mean(|run| run.added_mean), most(row.4));
    check(
        "waiting",
        mean(|run| run.waiting as f64),
        row.5 as f64 * 1.1 + 2.0,
    );
}

#[test]
fn table_a_two_lines_that_jitter() {
    reproduces(&A, &Row(0, 3.2, 5.3, 6.1, 0.23, 5), 0.0);
}

#[test]
fn table_b_split_over_lines_of_different_delay() {
    reproduces(&B, &Row(98, 39.9, 47.5, 50.1, 14.99, 29), 95.0);
}

#[test]
fn table_c_twice_where_one_line_loses() {
    reproduces(&C, &Row(19, 244.1, 258.2, 262.3, 80.85, 110), 0.0);
}

#[test]
fn table_d_twice_where_both_lose() {
    reproduces(&D, &Row(89, 246.1, 267.5, 272.6, 84.80, 121), 95.0);
}

#[test]
fn table_e_twice_with_lines_further_apart_than_the_cap() {
    reproduces(&E, &Row(54, 543.7, 558.2, 562.3, 336.47, 385), 0.0);
}

#[test]
fn table_f_twice_where_both_lose_in_bursts() {
    reproduces(&F, &Row(5, 21.2, 31.8, 40.4, 1.42, 23), 12.0);
}

#[test]
fn table_g_one_line_that_jitters_and_loses() {
    reproduces(&G, &Row(57, 3.2, 5.7, 7.2, 0.27, 6), 50.0);
}

#[test]
fn a_fixed_wait_stalls_where_the_adaptive_one_does_not() {
    let fixed = Settings {
        floor: ms(333),
        cap: ms(333),
        cap_max: ms(333),
        line_rule: false,
        late: Late::Drop,
        ..Settings::default()
    };
    let fixed = figures(&G, fixed, 1);
    let adaptive = figures(&G, Settings::default(), 1);
    assert!(fixed.median > 100.0 && adaptive.median < 3.5);
    assert!(adaptive.lost <= fixed.lost);
}
