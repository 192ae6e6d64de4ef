//! The rates of a day: a mean per tunnel for each five minutes, kept in a file of bounded size.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use serde::Serialize;

/// Seconds that a mean covers.
pub const STEP: u64 = 300;

/// Number of means in a day.
const STEPS: usize = 288;

/// Maximum number of tunnels with a day; a new one replaces the one that was silent for longest.
const TUNNELS: usize = 16;

/// Longest name, in bytes.
const NAME_MAX: usize = 64;

/// The file's first line.
const FIRST: &str = "millrace-day 1\n";

/// Longest file that is read, in bytes.
pub const TEXT_MAX: usize = 400 << 10;

/// Mean rates of one step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mean {
    /// The step's start, in [`STEP`]s since 1970.
    pub step: u64,
    /// The rate from the tunnel, in bits a second.
    pub rx: u64,
    /// The rate into the tunnel, in bits a second.
    pub tx: u64,
}

impl Serialize for Mean {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.step * STEP, self.rx, self.tx).serialize(serializer)
    }
}

/// Traffic since a step began: bits, and the milliseconds that they were counted for.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    rx: u128,
    tx: u128,
    millis: u128,
}

/// A day of each tunnel.
#[derive(Debug, Default)]
pub struct Day {
    means: BTreeMap<String, VecDeque<Mean>>,
    sums: BTreeMap<String, Sum>,
    step: u64,
}

impl Day {
    /// Adds `millis` milliseconds of traffic at these rates, in bits a second.
    pub fn add(&mut self, name: &str, rx: u64, tx: u64, millis: u64) {
        let is_name =
            !name.is_empty() && name.len() <= NAME_MAX && !name.contains(char::is_whitespace);
        if !is_name || (self.sums.len() >= TUNNELS && !self.sums.contains_key(name)) {
            return;
        }
        let sum = self.sums.entry(name.to_owned()).or_default();
        let millis = u128::from(millis);
        sum.rx += u128::from(rx) * millis;
        sum.tx += u128::from(tx) * millis;
        sum.millis += millis;
    }

    /// Sets the time to `unix` seconds after 1970. Returns true when a step has ended, so that the text has changed.
    pub fn tick(&mut self, unix: u64) -> bool {
        let step = unix / STEP;
        if step == self.step {
            return false;
        }
        let ended = std::mem::replace(&mut self.step, step);
        for (name, sum) in std::mem::take(&mut self.sums) {
            if ended == 0 || sum.millis == 0 {
                continue;
            }
            let mean = |bits: u128| u64::try_from(bits / sum.millis).unwrap_or(u64::MAX);
            let mean = Mean {
                step: ended,
                rx: mean(sum.rx),
                tx: mean(sum.tx),
            };
            self.push(&name, mean);
        }
        self.forget();
        true
    }

    fn push(&mut self, name: &str, mean: Mean) {
        if self.means.len() >= TUNNELS && !self.means.contains_key(name) {
            let last = |it: &VecDeque<Mean>| it.back().map_or(0, |it| it.step);
            let oldest = self.means.iter().min_by_key(|(_, means)| last(means));
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.means.remove(&oldest);
            }
        }
        let means = self.means.entry(name.to_owned()).or_default();
        // Later steps remain from before the clock was set back.
        means.retain(|it| it.step < mean.step);
        means.push_back(mean);
        while means.len() > STEPS {
            means.pop_front();
        }
    }

    /// Forgets means that are older than a day, or that lie in the future after the clock was set back.
    fn forget(&mut self) {
        let since = self.step.saturating_sub(STEPS as u64);
        let within = since..=self.step;
        self.means.retain(|_, means| {
            means.retain(|it| within.contains(&it.step));
            !means.is_empty()
        });
    }

    /// The means of each tunnel.
    #[must_use]
    pub fn means(&self) -> &BTreeMap<String, VecDeque<Mean>> {
        &self.means
    }

    /// The text of the file: a line for each mean, in kilobits a second.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = FIRST.to_owned();
        for (name, means) in &self.means {
            for Mean { step, rx, tx } in means {
                // Writing to a string does not fail.
                let _ = writeln!(out, "{name} {step} {} {}", rx / 1000, tx / 1000);
            }
        }
        out
    }

    /// Reads the text of the file. Any invalid text gives an empty day, as nothing depends on it.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let mut day = Self::default();
        let lines = text.strip_prefix(FIRST).unwrap_or_default().lines();
        for line in lines.take(TUNNELS * STEPS) {
            let mut words = line.split(' ');
            let (Some(name), Some(step), Some(rx), Some(tx), None) = (
                words.next(),
                words.next(),
                words.next(),
                words.next(),
                words.next(),
            ) else {
                continue;
            };
            let number = |it: &str| it.parse::<u32>().ok().map(u64::from);
            let (Some(step), Some(rx), Some(tx)) = (number(step), number(rx), number(tx)) else {
                continue;
            };
            if !name.is_empty() && name.len() <= NAME_MAX {
                let [rx, tx] = [rx, tx].map(|kilobits| kilobits * 1000);
                day.push(name, Mean { step, rx, tx });
            }
        }
        day
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn means_are_weighed_by_time() {
        let mut day = Day::default();
        assert!(day.tick(NOW));
        day.add("wg0", 1_000_000, 0, 1000);
        day.add("wg0", 4_000_000, 2_000_000, 2000);
        day.add("not a name", 1, 1, 1);
        assert!(!day.tick(NOW + 299));
        assert!(day.tick(NOW + 300));
        let mean = Mean {
            step: NOW / STEP,
            rx: 3_000_000,
            tx: 1_333_333,
        };
        assert_eq!(day.means()["wg0"], [mean]);
        assert_eq!(day.means().len(), 1);
        assert_eq!(day.to_text(), "millrace-day 1\nwg0 6000000 3000 1333\n");
    }

    #[test]
    fn a_day_is_kept_and_no_more() {
        let mut day = Day::default();
        for step in 0..2 * STEPS as u64 {
            day.tick(NOW + step * STEP);
            for tunnel in 0..TUNNELS + 3 {
                day.add(
                    &format!("{tunnel:062}"),
                    u32::MAX.into(),
                    u32::MAX.into(),
                    1,
                );
            }
        }
        assert_eq!(day.means().len(), TUNNELS);
        assert!(day.means().values().all(|it| it.len() <= STEPS));
        let text = day.to_text();
        assert!(text.len() < TEXT_MAX, "{}", text.len());
        let mut read = Day::from_text(&text);
        assert_eq!(read.to_text(), text);
        // Weeks later the day is empty.
        read.tick(NOW + 99 * 86_400);
        assert!(read.means().is_empty());
    }

    #[test]
    fn a_clock_that_was_set_leaves_no_points_of_another_time() {
        let mut day = Day::default();
        day.tick(STEP * 5);
        day.add("wg0", 1, 1, 1);
        day.tick(NOW);
        assert!(day.means().is_empty());
        day.add("wg0", 1, 1, 1);
        day.tick(NOW + STEP);
        day.add("wg0", 1, 1, 1);
        day.tick(NOW - STEP);
        assert!(day.means().is_empty());
    }

    proptest! {
        #[test]
        fn any_text(text in "(millrace-day 1\n)?([a-z0-9]{0,3} [0-9]{0,11} [0-9]{0,11} [0-9]{0,11}\n|\\PC{0,9}\n){0,20}") {
            let day = Day::from_text(&text);
            prop_assert!(day.means().len() <= TUNNELS);
            prop_assert_eq!(Day::from_text(&day.to_text()).to_text(), day.to_text());
        }
    }
}
