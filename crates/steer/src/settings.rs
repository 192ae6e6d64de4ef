//! Settings in force, of the guard or the policy: code that both share to set, restore and withdraw them.

use std::time::Duration;

use host::dnsmasq::Restarts;
use log::Level;
use netio::netlink::{ChainsWatch, NetlinkError};

use crate::record::{self, Record};
use crate::{Done, SteerError, Ways, or_note};

/// Settings in a record.
pub(crate) trait Settings: Clone {
    /// The name of the record's file, also in the log.
    const NAME: &'static str;
    /// The table of the packet filter.
    const TABLE: &'static str;
    /// The longest delay for a change without an event.
    const SLOW: Duration;
    /// The pause between two looks: a firewall reload or a routing daemon brings events by the thousand.
    const PACE: Duration;
    /// The level at which the log tells that a part was missing.
    const CLOSED: Level;
    /// Report of the state.
    type Report;
    /// News of the table besides changes of its chains. The default has heard of none, and knows no earlier state.
    type News: Default;

    /// The settings of a record's text.
    fn of(text: &str) -> Option<Self>;

    /// Settings as text of the record.
    fn in_text(&self) -> String;

    /// Takes the news of the table that wait, and keeps them in `news`.
    fn hear(chains: &mut ChainsWatch, _news: &mut Self::News) -> Result<(), NetlinkError> {
        chains.changed().map(drop)
    }

    /// The settings with what has become known since. Takes the news.
    fn renewed(&self, _news: &mut Self::News) -> Self {
        self.clone()
    }

    /// Sets what the settings request, with the record where there is one. `before` are the earlier settings, `ways`
    /// the earlier routes.
    fn set(
        self,
        before: Option<&Self>,
        record: Option<&Record>,
        ways: Option<&Ways>,
        restarts: &mut Restarts,
    ) -> Result<Done<Self::Report>, SteerError>;

    /// The state in a line.
    fn words(report: &Self::Report) -> String;

    /// The settings of the record.
    fn read(record: &Record) -> Option<Self> {
        Self::of(&record.read()?)
    }

    /// Reads the record without waiting for the lock.
    fn peek() -> Option<Self> {
        Self::of(&record::peek(Self::NAME)?)
    }
}

/// Records the settings that `make` returns for the earlier ones, and sets them.
pub(crate) fn put<S: Settings>(
    make: impl FnOnce(Option<&S>) -> S,
) -> Result<Done<S::Report>, SteerError> {
    // The settings take effect even where the record fails.
    let mut errors = Vec::new();
    let record = or_note(Record::lock(S::NAME), &mut errors);
    let before = record.as_ref().and_then(S::read);
    let asked = make(before.as_ref());
    if let Some(record) = &record {
        or_note(record.write(&asked.in_text()), &mut errors);
    }
    let is_recorded = errors.is_empty() || before.is_some();
    let record = record.as_ref().filter(|_| is_recorded);
    let mut done = asked.set(before.as_ref(), record, None, &mut Restarts::at_once())?;
    done.errors.splice(..0, errors);
    Ok(done)
}

/// Restores the recorded settings, for a caller that may know the previous routes, and news of the table; `None` if no
/// settings are in force.
pub(crate) fn restore<S: Settings>(
    ways: Option<&Ways>,
    news: &mut S::News,
    restarts: &mut Restarts,
) -> Result<Option<Done<S::Report>>, SteerError> {
    let record = Record::lock(S::NAME)?;
    let Some(before) = S::read(&record) else {
        return Ok(None);
    };
    let asked = before.renewed(news);
    let text = asked.in_text();
    if text != before.in_text() {
        record.write(&text)?;
    }
    let done = asked.set(Some(&before), Some(&record), ways, restarts);
    done.map(Some)
}

/// Withdraws the settings from the record by `say`. Returns them with the locked record.
pub(crate) fn withdraw<S: Settings>(
    say: fn(&Record) -> Result<(), SteerError>,
    errors: &mut Vec<SteerError>,
) -> (Option<S>, Option<Record>) {
    let record = or_note(Record::lock(S::NAME), errors);
    let asked = record.as_ref().and_then(S::read);
    if let Some(record) = &record {
        or_note(say(record), errors);
    }
    (asked, record)
}
