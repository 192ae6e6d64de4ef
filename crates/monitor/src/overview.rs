//! The front's data: the newest sample, the rates of five minutes and of a day, and the events.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use service::status::Status;

use crate::day::Day;
use crate::events::Events;
use crate::figures::Figures;
use crate::limits::{Moment, limits};
use crate::sample::Sample;
use crate::strips::Strips;

/// How long rates are kept, in seconds.
pub const MINUTES: u64 = 300;

/// Maximum number of tunnels whose rates are kept.
const TUNNELS: usize = 64;

/// The pause between samples while a page is open.
pub const WATCHED: Duration = Duration::from_secs(1);

/// The pause between samples while no page is open.
pub const UNWATCHED: Duration = Duration::from_secs(5);

/// A page counts as closed when it has not asked for this long.
const OPEN: Duration = Duration::from_secs(15);

/// Seconds for which an ended tunnel is still shown.
const REMEMBERED: u64 = 600;

/// Rates at one moment, in bits a second; `None` if unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rates {
    /// Seconds since the front began.
    pub moment: u64,
    /// Bits a second from the tunnel.
    pub rx: Option<u64>,
    /// Bits a second into the tunnel.
    pub tx: Option<u64>,
}

impl Serialize for Rates {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.moment, self.rx, self.tx).serialize(serializer)
    }
}

/// State of the host and its tunnels, collected for the page.
#[derive(Debug)]
pub struct Overview {
    begin: Instant,
    asked: Option<Instant>,
    looked: Option<Instant>,
    /// The newest sample, with rates.
    pub sample: Sample,
    /// Figures of this host.
    pub figures: Figures,
    /// The load of each core, in percent.
    pub loads: Vec<u8>,
    /// The causes that limit the speed.
    pub limits: Vec<String>,
    /// Latest events.
    pub events: Events,
    /// The rates of a day.
    pub day: Day,
    /// Seconds since 1970 of the newest sample.
    pub time: u64,
    rates: BTreeMap<String, VecDeque<Rates>>,
    /// Tunnels that have ended, and when.
    ended: BTreeMap<String, u64>,
    /// The states of uplinks.
    pub strips: Strips,
    /// The moment at which the paths of devices changed last.
    steered: u64,
}

impl Overview {
    /// Starts with only the day's rates.
    #[must_use]
    pub fn new(now: Instant, day: Day) -> Self {
        Self {
            begin: now,
            asked: None,
            looked: None,
            sample: Sample::default(),
            figures: Figures::default(),
            loads: Vec::new(),
            limits: Vec::new(),
            events: Events::default(),
            day,
            time: 0,
            rates: BTreeMap::new(),
            ended: BTreeMap::new(),
            strips: Strips::default(),
            steered: 0,
        }
    }

    /// Records that a page has asked, so it is open.
    pub fn ask(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// The pause until the next sample.
    #[must_use]
    pub fn pause(&self, now: Instant) -> Duration {
        let open = self
            .asked
            .is_some_and(|it| now.saturating_duration_since(it) < OPEN);
        if open { WATCHED } else { UNWATCHED }
    }

    /// Takes in a sample and the box's figures. Returns true if the day's text has changed.
    pub fn observe(
        &mut self,
        mut sample: Sample,
        figures: Figures,
        now: Instant,
        unix: u64,
    ) -> bool {
        let moment = self.moment(now);
        let elapsed = self.looked.map(|it| now.saturating_duration_since(it));
        for status in &mut sample.tunnels {
            let mut before = self.sample.tunnels.iter();
            if let Some(before) = before.find(|it| it.interface == status.interface) {
                status.fill_rates(before);
            }
        }
        if let Some(elapsed) = elapsed {
            self.loads = figures.loads(&self.figures);
            self.limits = limits(Moment {
                tunnels: &sample.tunnels,
                before: &self.sample.tunnels,
                figures: &figures,
                earlier: &self.figures,
                elapsed,
            });
            self.events.observe(&self.sample, &sample, unix);
        }
        let millis = elapsed.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        for status in &sample.tunnels {
            self.keep(status, moment, millis);
        }
        self.rates.retain(|_, points| {
            points.retain(|it| it.moment + MINUTES >= moment);
            !points.is_empty()
        });
        self.remember(&sample, unix);
        self.strips.observe(&sample.tunnels, moment);
        if sample.steering != self.sample.steering {
            self.steered = moment;
        }
        self.sample = sample;
        self.figures = figures;
        self.looked = Some(now);
        self.time = unix;
        self.day.tick(unix)
    }

    fn keep(&mut self, status: &Status, moment: u64, millis: u64) {
        let plane = &status.dataplane;
        let (rx, tx) = (plane.inbound.bit_rate, plane.outbound.bit_rate);
        if let (Some(rx), Some(tx)) = (rx, tx) {
            self.day.add(&status.interface, rx, tx, millis);
        }
        let name = &status.interface;
        if self.rates.len() >= TUNNELS && !self.rates.contains_key(name) {
            return;
        }
        let points = self.rates.entry(name.clone()).or_default();
        points.retain(|it| it.moment < moment);
        points.push_back(Rates { moment, rx, tx });
    }

    fn remember(&mut self, sample: &Sample, unix: u64) {
        let gone = self.sample.tunnels.iter().map(|it| &it.interface);
        let is_there = |name: &String| sample.tunnels.iter().any(|it| it.interface == *name);
        for name in gone.filter(|it| !is_there(it)) {
            self.ended.insert(name.clone(), unix);
        }
        self.ended
            .retain(|name, ended| !is_there(name) && unix.saturating_sub(*ended) < REMEMBERED);
    }

    /// Seconds since the front began.
    #[must_use]
    pub fn moment(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begin).as_secs()
    }

    /// The moment of the newest sample.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.looked.map_or(0, |it| self.moment(it))
    }

    /// The rates after a moment.
    #[must_use]
    pub fn rates_since(&self, moment: u64) -> BTreeMap<&str, Vec<Rates>> {
        let later = |points: &VecDeque<Rates>| {
            points
                .iter()
                .filter(|it| it.moment > moment)
                .copied()
                .collect()
        };
        let all = self
            .rates
            .iter()
            .map(|(name, points)| (name.as_str(), later(points)));
        all.filter(|(_, points): &(_, Vec<Rates>)| !points.is_empty())
            .collect()
    }

    /// The paths of devices, if they have changed at a moment or later.
    #[must_use]
    pub fn steering_since(&self, moment: u64) -> Option<&Value> {
        (self.steered >= moment).then_some(&self.sample.steering)
    }

    /// Tunnels that have ended, and when, in seconds since 1970.
    #[must_use]
    pub fn ended(&self) -> &BTreeMap<String, u64> {
        &self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(uptime_ms: u64, bytes: u64) -> Sample {
        let mut status = Status {
            interface: "wg0".to_owned(),
            uptime_ms,
            ..Status::default()
        };
        status.dataplane.inbound.bytes = bytes;
        Sample {
            tunnels: vec![status],
            ..Sample::default()
        }
    }

    #[test]
    fn rates_of_five_minutes_and_no_more() {
        let begin = Instant::now();
        let mut overview = Overview::new(begin, Day::default());
        for second in 1..400 {
            let now = begin + Duration::from_secs(second);
            overview.observe(
                sample(second * 1000, second * 1000),
                Figures::default(),
                now,
                1000 + second,
            );
        }
        let all = overview.rates_since(0);
        assert_eq!(all["wg0"].len(), 301);
        let last = Rates {
            moment: 399,
            rx: Some(8000),
            tx: Some(0),
        };
        assert_eq!(overview.rates_since(398)["wg0"], [last]);
        assert!(overview.rates_since(399).is_empty());
        assert_eq!(serde_json::to_string(&last).unwrap(), "[399,8000,0]");
    }

    #[test]
    fn it_looks_more_often_while_a_page_is_open() {
        let begin = Instant::now();
        let mut overview = Overview::new(begin, Day::default());
        assert_eq!(overview.pause(begin), UNWATCHED);
        overview.ask(begin);
        assert_eq!(overview.pause(begin + OPEN / 2), WATCHED);
        assert_eq!(overview.pause(begin + OPEN), UNWATCHED);
    }

    #[test]
    fn what_has_ended_is_remembered_for_a_while() {
        let begin = Instant::now();
        let mut overview = Overview::new(begin, Day::default());
        let mut observe = |sample, second| {
            overview.observe(
                sample,
                Figures::default(),
                begin + Duration::from_secs(second),
                second,
            );
            overview.ended().keys().cloned().collect::<Vec<_>>()
        };
        assert!(observe(sample(1, 1), 1).is_empty());
        assert_eq!(observe(Sample::default(), 2), ["wg0"]);
        assert!(observe(sample(1, 1), 3).is_empty());
        assert_eq!(observe(Sample::default(), 4), ["wg0"]);
        assert!(observe(Sample::default(), 4 + REMEMBERED).is_empty());
    }
}
