//! Tables of `tune`: each cipher on the CPU and on its accelerator, by sizes and batches, and what they say.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Arg, ArgMatches, value_parser};
use crypto::accelerator::{
    self, Costs, Crossover, Device, Direction, Sample, Side, Task, Timing, Tuner,
};
use serde_json::json;
use service::profile::OnAccelerator;

use super::Run;
use crate::arguments::option;

/// Sizes of single packets, in bytes.
const SIZES: [usize; 9] = [16, 64, 256, 1024, 1408, 4096, 8192, 16_384, 65_536];

/// Numbers of packets in a batch; each packet has [`FULL`] bytes.
const BATCHES: [usize; 6] = [2, 4, 8, 16, 32, 64];

/// Bytes of a full-size packet in a tunnel.
const FULL: usize = 1408;

/// Longer packets are shown, but do not affect the choice for tunnels.
const LONGEST: usize = 16_384;

/// The batch size for judging whether an accelerator is worth using.
const USUAL: usize = 32;

/// Number of rows of all tables, both ways. An accelerator adds more.
pub(super) const ROWS: usize = Task::ALL.len() * 2 * (SIZES.len() + BATCHES.len() + 1);

/// The option for the measuring time of each figure.
pub(super) fn milliseconds() -> Arg {
    option("milliseconds", "N", "Time for each figure")
        .default_value("20")
        .value_parser(value_parser!(u64).range(1..=10_000))
}

/// The measuring time of each figure.
pub(super) fn enough(matches: &ArgMatches) -> Duration {
    Duration::from_millis(matches.get_one("milliseconds").copied().unwrap_or(20))
}

/// One row of a table.
struct Row {
    packets: usize,
    bytes: usize,
    cpu: Timing,
    accelerator: Option<Timing>,
    both: Option<Timing>,
}

impl Run {
    /// Measures every cipher. Returns the choices for the profile.
    pub(super) fn accelerators(&self) -> Vec<OnAccelerator> {
        let devices = accelerator::devices();
        if devices.is_empty() {
            self.show(
                &json!({ "accelerators": [], "built": true }),
                "accelerators       none",
            );
        }
        let device = |task| devices.iter().find(|device| device.task == task);
        let tasks = Task::ALL.into_iter();
        tasks
            .filter_map(|task| self.task(task, device(task)))
            .collect()
    }

    /// Measures both directions of a task. Returns the choice for the profile, if there is an accelerator.
    fn task(&self, task: Task, device: Option<&Device>) -> Option<OnAccelerator> {
        let tuner = Tuner::new(task, None)?;
        let mut crossovers = [Crossover::NEVER; 2];
        let mut tables = Vec::new();
        for (direction, crossover) in DIRECTIONS.into_iter().zip(&mut crossovers) {
            let rows = self.rows(task, direction, &tuner, device.is_some())?;
            *crossover = fit(&rows).unwrap_or(Crossover::NEVER);
            tables.push(rows);
        }
        let worth: Vec<_> = tables
            .iter()
            .zip(&crossovers)
            .map(|(rows, crossover)| worth(rows, crossover))
            .collect();
        let kept: Vec<_> = crossovers
            .iter()
            .zip(&worth)
            .map(|(crossover, worth)| match worth {
                Ok(()) => *crossover,
                Err(_) => Crossover::NEVER,
            })
            .collect();
        let used = worth.iter().any(Result::is_ok);
        let shared = Tuner::new(task, Some([kept[0], kept[1]]));
        for (at, direction) in DIRECTIONS.into_iter().enumerate() {
            let rows = &mut tables[at];
            if let Some(tuner) = shared.as_ref().filter(|_| worth[at].is_ok()) {
                for row in rows.iter_mut() {
                    self.progress_row(task, direction, row.packets, row.bytes);
                    row.both =
                        tuner.time(Side::Both, direction, row.packets, row.bytes, self.enough);
                }
            }
            self.table(task, direction, device, rows);
            if device.is_some() {
                self.verdict(task, direction, &crossovers[at], &worth[at]);
            }
        }
        device.map(|device| OnAccelerator {
            algorithm: task.name().to_owned(),
            driver: device.driver.clone(),
            by: device.by.to_owned(),
            used,
            seal: kept[0].into(),
            open: kept[1].into(),
        })
    }

    fn rows(
        &self,
        task: Task,
        direction: Direction,
        tuner: &Tuner,
        accelerator: bool,
    ) -> Option<Vec<Row>> {
        let shapes = SIZES.map(|bytes| (1, bytes)).into_iter();
        let shapes = shapes.chain(BATCHES.map(|packets| (packets, FULL)));
        let mut rows = Vec::new();
        for (packets, bytes) in shapes.chain([(USUAL, 64)]) {
            self.progress_row(task, direction, packets, bytes);
            let time = |side| tuner.time(side, direction, packets, bytes, self.enough);
            rows.push(Row {
                packets,
                bytes,
                cpu: time(Side::Cpu)?,
                accelerator: accelerator.then(|| time(Side::Accelerator)).flatten(),
                both: None,
            });
        }
        Some(rows)
    }

    fn table(&self, task: Task, direction: Direction, device: Option<&Device>, rows: &[Row]) {
        let mut text = format!(
            "\n{}, {}, MB/s",
            full_name(task),
            operation(task, direction)
        );
        if let Some(device) = device {
            let _ = write!(text, "; accelerator: {} by {}", device.driver, device.by);
        }
        text.push_str("\n packets   bytes        CPU");
        if device.is_some() {
            text.push_str("  accelerator       both  accelerator's share of the CPU time");
        }
        for row in rows {
            let rate = |timing: &Timing| {
                let megabytes = (row.packets * row.bytes) as f64 / 1e6;
                format!("{:.2}", megabytes / (timing.wall.max(1) as f64 / 1e9))
            };
            let _ = write!(
                text,
                "\n{:>8} {:>7} {:>10}",
                row.packets,
                row.bytes,
                rate(&row.cpu)
            );
            if device.is_some() {
                let rate =
                    |timing: &Option<Timing>| timing.as_ref().map_or_else(|| "-".to_owned(), rate);
                let share = row.accelerator.map_or_else(
                    || "-".to_owned(),
                    |accelerator| {
                        format!("{:.2}", accelerator.cpu as f64 / row.cpu.cpu.max(1) as f64)
                    },
                );
                let (accelerator, both) = (rate(&row.accelerator), rate(&row.both));
                let _ = write!(text, " {accelerator:>12} {both:>10} {share:>12}");
            }
            for (side, timing) in [
                ("cpu", Some(row.cpu)),
                ("accelerator", row.accelerator),
                ("both", row.both),
            ] {
                let Some(timing) = timing else { continue };
                let rate = (row.packets * row.bytes) as u64 * 1_000_000 / timing.wall.max(1);
                self.show(
                    &json!({
                        "algorithm": full_name(task),
                        "operation": operation(task, direction),
                        "side": side,
                        "batch": row.packets,
                        "bytes": row.bytes,
                        "nanoseconds": timing.wall,
                        "cpu_nanoseconds": timing.cpu,
                        "kilobytes_per_second": rate,
                    }),
                    "",
                );
            }
        }
        if !self.json {
            self.print(&text);
        }
    }

    fn verdict(
        &self,
        task: Task,
        direction: Direction,
        crossover: &Crossover,
        worth: &Result<(), &'static str>,
    ) {
        let from = |packets| crossover.bytes(packets, LONGEST);
        let text = match worth {
            Err(why) => format!("stays on the CPU: {why}"),
            Ok(()) => {
                let told = |packets| match from(packets) {
                    Some(bytes) => format!("from {bytes} bytes on"),
                    None => "never".to_owned(),
                };
                format!(
                    "to the accelerator: single packets {}, batches of {USUAL} {}; of {USUAL} x {FULL} bytes {} \
                     packets",
                    told(1),
                    told(USUAL),
                    crossover.share(USUAL, USUAL * FULL)
                )
            }
        };
        let crossover = json!({
            "algorithm": full_name(task),
            "operation": operation(task, direction),
            "used": worth.is_ok(),
            "why_not": worth.err(),
            "crossover_bytes": { "1": from(1), "8": from(8), "32": from(32) },
        });
        self.show(&crossover, &text);
    }

    fn progress_row(&self, task: Task, direction: Direction, packets: usize, bytes: usize) {
        let what = operation(task, direction);
        self.progress.borrow_mut().begin(&format!(
            "{} {what}: {packets} x {bytes} bytes",
            full_name(task)
        ));
    }
}

/// The directions, in the order in which a profile lists them.
const DIRECTIONS: [Direction; 2] = [Direction::Encrypt, Direction::Decrypt];

/// The algorithm, with the length of the measured key.
fn full_name(task: Task) -> &'static str {
    match task {
        Task::AesCbc => "aes-256-cbc",
        Task::AesGcm => "aes-256-gcm",
        Task::ChaCha20Poly1305 => "chacha20-poly1305",
    }
}

fn operation(task: Task, direction: Direction) -> &'static str {
    match (task, direction) {
        (Task::AesCbc, Direction::Encrypt) => "encrypt",
        (Task::AesCbc, Direction::Decrypt) => "decrypt",
        (_, Direction::Encrypt) => "seal",
        (_, Direction::Decrypt) => "open",
    }
}

/// Fits cost lines to a table's rows.
fn fit(rows: &[Row]) -> Option<Crossover> {
    let lines = |timing: &dyn Fn(&Row) -> Option<Timing>| {
        let samples: Vec<_> = rows
            .iter()
            .filter(|row| row.bytes <= LONGEST)
            .filter_map(|row| {
                Some(Sample {
                    packets: row.packets,
                    bytes: row.bytes,
                    nanoseconds: timing(row)?.wall,
                })
            })
            .collect();
        Costs::fit(&samples)
    };
    Some(Crossover {
        cpu: lines(&|row| Some(row.cpu))?,
        accelerator: lines(&|row| row.accelerator)?,
    })
}

/// Whether an accelerator gains anything for typical packets, or why not.
fn worth(rows: &[Row], crossover: &Crossover) -> Result<(), &'static str> {
    let usual = rows
        .iter()
        .find(|row| (row.packets, row.bytes) == (USUAL, FULL))
        .and_then(|row| Some((row.cpu, row.accelerator?)));
    let Some((cpu, accelerator)) = usual else {
        return Err("the accelerator has failed");
    };
    if crossover.share(USUAL, USUAL * FULL) == 0 {
        return Err("the CPU is faster alone");
    }
    // When every core handles packets, the accelerator must save CPU time.
    if accelerator.cpu >= cpu.cpu {
        return Err("passing packets to the accelerator takes more CPU time than encrypting them");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(accelerator: impl Fn(usize, usize) -> Option<(u64, u64)>) -> Vec<Row> {
        let shapes = [(1, 64), (1, 1408), (32, 64), (32, 1408)];
        shapes
            .into_iter()
            .map(|(packets, bytes)| {
                let cpu = (packets * (100 + 17 * bytes)) as u64;
                Row {
                    packets,
                    bytes,
                    cpu: Timing { wall: cpu, cpu },
                    accelerator: accelerator(packets, bytes)
                        .map(|(wall, cpu)| Timing { wall, cpu }),
                    both: None,
                }
            })
            .collect()
    }

    #[test]
    fn an_accelerator_must_save_time_and_cpu() {
        let judged = |rows: &[Row]| worth(rows, &fit(rows).unwrap());
        let fast = rows(|packets, bytes| {
            let wall = (packets * (12_000 + 2 * bytes)) as u64;
            Some((wall, wall / 4))
        });
        assert_eq!(judged(&fast), Ok(()));
        let slow = rows(|packets, bytes| Some(((packets * (900_000 + 50 * bytes)) as u64, 1)));
        assert!(judged(&slow).is_err());
        // The kernel's software on another core, which only seems to gain.
        let busy = rows(|packets, bytes| {
            let wall = (packets * (12_000 + 2 * bytes)) as u64;
            Some((wall, wall * 3))
        });
        assert_eq!(
            judged(&busy),
            Err("passing packets to the accelerator takes more CPU time than encrypting them")
        );
        let failed = rows(|packets, _| (packets == 1).then_some((1, 1)));
        assert!(fit(&failed).is_none());
        assert!(worth(&failed, &Crossover::NEVER).is_err());
    }
}
