//! Restores the guard when another program has removed a part of it. Follows the networks of the LAN, and routes into
//! tunnels as they come and go.
//!
//! ```text
//! news of links, addresses, routes, rules ─┐
//! news of the packet filter ───────────────┼─> look ─> plan ─> do it
//! half a minute has passed ────────────────┘
//! ```
//!
//! Any event triggers a complete look, which costs about a millisecond. So no order of events can hide a change.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::thread;
use std::time::{Duration, Instant};

use host::dnsmasq::Restarts;
use netio::netlink::{Monitor, Watch};
use netio::poll::Poller;

use crate::guard::chain::TABLE;
use crate::guard::control::{Done, Ways, refresh_since};
use crate::guard::{GuardError, Report, record};
use netio::netlink::ChainsWatch;

/// The longest delay for a change without an event.
const SLOW: Duration = Duration::from_secs(30);

/// The pause between two looks: a firewall reload or a routing daemon brings events by the thousand.
const PACE: Duration = Duration::from_millis(20);

/// The name of the lock of a process that watches.
const NAME: &str = "guard-watch";

/// Whether a process watches, as far as this user can tell.
pub(crate) fn runs() -> bool {
    record::is_taken(NAME)
}

/// Facts that are kept from one look to the next.
#[derive(Default)]
struct Known {
    ways: Option<Ways>,
    said: String,
    complaints: BTreeSet<String>,
}

/// Watches until the process ends. While the guard is off it only waits.
///
/// # Errors
/// When the kernel provides no events. Later failures are logged, and tried again.
pub fn watch() -> Result<Infallible, GuardError> {
    // Another process may watch too. When the lock's holder ends, status does not see the other watcher.
    let _place = record::take(NAME);
    let mut monitor = Monitor::open(Watch {
        rules: true,
        ..Watch::ALL
    })?;
    // A kernel without nftables has no chain either.
    let mut chains = ChainsWatch::open(TABLE).ok();
    let poller = Poller::new().map_err(netio::netlink::NetlinkError::Open)?;
    let failed = netio::netlink::NetlinkError::Open;
    poller.add(&monitor, 0).map_err(failed)?;
    if let Some(chains) = &chains {
        poller.add(chains, 1).map_err(failed)?;
    }
    let mut known = Known::default();
    let mut restarts = Restarts::aside();
    loop {
        // Events are read before the look: a later event triggers the next look.
        while monitor.next()?.is_some() {}
        if let Some(chains) = &mut chains {
            chains.changed()?;
        }
        let begin = Instant::now();
        if let Err(error) = restarts.ended() {
            known.complain(&error.into());
        }
        match refresh_since(known.ways.clone(), &mut restarts) {
            Ok(done) => known.note(done.as_ref()),
            Err(error) => known.complain(&error),
        }
        poller
            .wait(Some(restarts.wait().unwrap_or(SLOW).min(SLOW)))
            .map_err(failed)?;
        thread::sleep(PACE.saturating_sub(begin.elapsed()));
    }
}

impl Known {
    fn note(&mut self, done: Option<&Done>) {
        let Some(done) = done else {
            *self = Self::default();
            return;
        };
        if done.closed && self.ways.is_some() {
            log::warn!("the guard was taken away, or a part of it, and is set again");
        }
        self.ways = Some(done.ways.clone());
        let said = words(&done.report);
        if said != self.said {
            log::info!("{said}");
            self.said = said;
        }
        if done.forgotten > 0 {
            log::debug!("{} connections had another way", done.forgotten);
        }
        for error in &done.errors {
            self.complain(error);
        }
    }

    /// Logs each complaint once.
    fn complain(&mut self, error: &GuardError) {
        // New complaints are rare; the bound only limits memory.
        if self.complaints.len() < 64 && self.complaints.insert(error.to_string()) {
            log::error!("{error}");
        }
    }
}

/// The state in a line.
fn words(report: &Report) -> String {
    let parts = report.parts.iter();
    let words = parts.map(|part| match report.parts.len() {
        1 => part.words(),
        _ => format!("{} {}", part.lan.join(", "), part.words()),
    });
    format!("guard: {}", words.collect::<Vec<_>>().join("; "))
}
