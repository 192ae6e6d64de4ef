//! Draws the lines as a call and a download saw them: figures, and when.

use std::time::Duration;

use super::call::{EACH, Packets, Sent};
use crate::bench::statistics::number;
use crate::bench::table::Table;

/// A packet that takes longer is of no use to a call.
const LATE: Duration = Duration::from_millis(150);
/// Blocks in a drawn line.
const BLOCKS: usize = 48;

/// The result of one way to use the lines.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    name: &'static str,
    /// Share of the call's packets that never came, and of those that came too late.
    lost: f64,
    late: f64,
    /// The longest time without a packet in either direction.
    silence: Duration,
    /// The time that 99 of 100 packets of those that came took at most.
    delay: Duration,
    /// Bits a second.
    download: f64,
    /// Of each part of the time, the share of the packets that came in time.
    parts: Vec<f64>,
}

impl Shown {
    pub(super) fn new(
        name: &'static str,
        time: Duration,
        directions: &[Packets; 2],
        downloaded: u64,
    ) -> Self {
        let all = || directions.iter().flatten();
        let sent = all().count().max(1) as f64;
        let share = |of: &dyn Fn(&Sent) -> bool| all().filter(|it| of(it)).count() as f64 / sent;
        let is_late = |it: &Sent| it.took.is_some_and(|took| took > LATE);
        let mut took: Vec<Duration> = all().filter_map(|it| it.took).collect();
        took.sort_unstable();
        let delay = took.get(took.len() * 99 / 100).copied().unwrap_or_default();
        let silence = directions.iter().map(|it| silence(it, time)).max();
        let parts = (0..BLOCKS).map(|part| {
            let at = |it: &&Sent| {
                let of = it.at.as_secs_f64() / time.as_secs_f64() * BLOCKS as f64;
                of as usize == part
            };
            let here = all().filter(at).count().max(1);
            let good = |it: &&Sent| it.took.is_some_and(|took| took <= LATE);
            all().filter(at).filter(good).count() as f64 / here as f64
        });
        Self {
            name,
            lost: share(&|it| it.took.is_none()),
            late: share(&is_late),
            silence: silence.unwrap_or_default(),
            delay,
            download: downloaded as f64 * 8.0 / time.as_secs_f64(),
            parts: parts.collect(),
        }
    }
}

/// The longest time between two packets that came, the ends of the call included.
fn silence(packets: &Packets, time: Duration) -> Duration {
    let mut times: Vec<Duration> = packets
        .iter()
        .filter_map(|it| Some(it.at + it.took?))
        .collect();
    times.push(Duration::ZERO);
    times.push(time.saturating_sub(EACH));
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.max().unwrap_or_default()
}

/// A row for each way.
pub(super) fn table(shown: &[Shown]) -> Table {
    let mut table = Table::new([
        "",
        "call: lost, %",
        "late, %",
        "silence, ms",
        "p99, ms",
        "download, Mbit/s",
    ]);
    for of in shown {
        let ms = |time: Duration| number(time.as_secs_f64() * 1e3);
        table.row([
            of.name.to_owned(),
            number(of.lost * 100.0),
            number(of.late * 100.0),
            ms(of.silence),
            ms(of.delay),
            number(of.download / 1e6),
        ]);
    }
    table
}

/// The call over time, a drawn line for each way; `dsl` is cut in the middle third.
pub(super) fn picture(shown: &[Shown]) -> String {
    let cut = BLOCKS / 3;
    let mut text = format!(
        "{:>12}  {}{}{}\n",
        "cable of dsl",
        "─".repeat(cut),
        "✂".repeat(cut),
        "─".repeat(cut)
    );
    for of in shown {
        let blocks: String = of.parts.iter().map(|share| block(*share)).collect();
        text += &format!("{:>12}  {blocks}\n", of.name);
    }
    text
}

/// Full where every packet came in time, a dot where none did.
fn block(share: f64) -> char {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    match share {
        none if none <= 0.0 => '·',
        all if all >= 1.0 => '█',
        // Never the full one, and at least the lowest.
        some => HEIGHTS[(some * 7.0) as usize],
    }
}

/// An explanation of the figures.
pub(super) fn words() -> String {
    format!(
        "A block is full where every packet of the call came in time, within {} ms, in both directions; a dot is\n\
         none. The call has 50 packets a second each way; lost are those that never came. Silence is the longest\n\
         time without one. The download is by 8 connections beside it.",
        LATE.as_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(of: impl Fn(u32) -> Option<u64>) -> Packets {
        let packet = |number| Sent {
            at: EACH * number,
            took: of(number).map(Duration::from_millis),
        };
        (0..600).map(packet).collect()
    }

    #[test]
    fn figures_are_those_of_the_packets() {
        let time = Duration::from_secs(12);
        let good = packets(|_| Some(20));
        // One second of nothing, and a packet in ten too late.
        let bad = packets(|number| match number {
            200..250 => None,
            _ if number % 10 == 0 => Some(200),
            _ => Some(30),
        });
        let shown = Shown::new("way", time, &[good.clone(), bad], 15_000_000);
        assert!((shown.lost - 50.0 / 1200.0).abs() < 1e-9);
        assert!((shown.late - 55.0 / 1200.0).abs() < 1e-9);
        assert!(
            shown.silence >= Duration::from_secs(1),
            "{:?}",
            shown.silence
        );
        assert!(
            shown.silence < Duration::from_millis(1200),
            "{:?}",
            shown.silence
        );
        assert_eq!(shown.delay, Duration::from_millis(200));
        assert!((shown.download - 1e7).abs() < 1.0);
        let all = Shown::new("all", time, &[good.clone(), good], 0);
        let none = packets(|_| None);
        let nothing = Shown::new("none", time, &[none.clone(), none], 0);
        assert!(nothing.silence >= time - 2 * EACH);
        let drawn = picture(&[all, nothing]);
        let rows: Vec<&str> = drawn.lines().collect();
        assert!(rows[1].ends_with(&"█".repeat(BLOCKS)), "{drawn}");
        assert!(rows[2].ends_with(&"·".repeat(BLOCKS)), "{drawn}");
        assert!(rows.iter().all(|row| row.chars().count() <= 80));
        let table = table(&[shown]).render();
        assert!(
            table.lines().all(|row| row.chars().count() <= 80),
            "{table}"
        );
    }
}
