//! Shows how a call and a download fared on the lines: a table, and a chart over time.

use std::time::Duration;

use super::call::{EACH, Packets, Sent};
use crate::bench::table::{Table, number};

/// A longer delay makes a packet useless for a call.
const LATE: Duration = Duration::from_millis(150);
/// Blocks in a row of the chart.
const BLOCKS: usize = 48;

/// The results of one way to use the lines.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    name: &'static str,
    /// Fractions of the call's packets: `lost` never arrived, `late` arrived too late.
    lost: f64,
    late: f64,
    /// The longest gap without packets in either direction.
    silence: Duration,
    /// The delay that 99 of 100 arrived packets did not exceed.
    delay: Duration,
    /// The download's rate in bits per second.
    download: f64,
    /// For each interval, the fraction of packets that arrived in time.
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

/// The longest gap between two arrived packets, counting the call's start and end.
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

/// The table, with a row for each way.
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

/// The chart of the call over time, a row for each way; `dsl` is cut in the middle third.
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

/// A full block if every packet came in time, a dot if none did.
fn block(share: f64) -> char {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    match share {
        none if none <= 0.0 => '·',
        all if all >= 1.0 => '█',
        // At least the lowest block, but never the full one.
        some => HEIGHTS[(some * 7.0) as usize],
    }
}

/// Explains the figures.
pub(super) fn words() -> String {
    format!(
        "A block is full where every packet of the call arrived within {} ms in both directions; a dot means \
         none\ndid. The call has 50 packets per second each way; lost packets never arrived. Silence is the \
         longest\ntime without a packet. The download uses 8 connections beside it.",
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
        // One second without packets, and one packet in ten too late.
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
