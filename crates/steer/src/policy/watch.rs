//! Restores the policy when another program has removed a part of it. Follows the LAN's networks, leases and uplinks,
//! and routes into tunnels as they come and go.
//!
//! Any event triggers a complete look, so no order of events can hide a change.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::thread;
use std::time::{Duration, Instant};

use host::dnsmasq::Restarts;
use netio::netlink::{ChainsWatch, Monitor, NetlinkError, Watch};
use netio::poll::Poller;

use crate::policy::control::{Done, WaysNow, refresh_since};
use crate::policy::table::TABLE;
use crate::policy::{PolicyError, Report};

/// The longest delay for a change without an event, such as a new lease.
const SLOW: Duration = Duration::from_secs(15);

/// The pause between two looks: a firewall reload or a routing daemon brings events by the thousand.
const PACE: Duration = Duration::from_millis(50);

/// Facts that are kept from one look to the next.
#[derive(Default)]
struct Known {
    ways: Option<WaysNow>,
    said: String,
    complaints: BTreeSet<String>,
}

/// Watches until the process ends. While the policy is off it only waits.
///
/// # Errors
/// When the kernel provides no events. Later failures are logged, and tried again.
pub fn watch() -> Result<Infallible, PolicyError> {
    let mut monitor = Monitor::open(Watch {
        rules: true,
        ..Watch::ALL
    })?;
    // A kernel without nftables has no table either.
    let mut chains = ChainsWatch::open(TABLE).ok();
    let failed = NetlinkError::Open;
    let poller = Poller::new().map_err(failed)?;
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
        match refresh_since(known.ways.as_ref(), &mut restarts) {
            Ok(done) => known.note(done),
            Err(error) => known.complain(&error),
        }
        poller
            .wait(Some(restarts.wait().unwrap_or(SLOW).min(SLOW)))
            .map_err(failed)?;
        thread::sleep(PACE.saturating_sub(begin.elapsed()));
    }
}

impl Known {
    fn note(&mut self, done: Option<Done>) {
        let Some(done) = done else {
            *self = Self::default();
            return;
        };
        if done.closed && self.ways.is_some() {
            log::info!("the policy, or a part of it, is set again");
        }
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
        self.ways = Some(done.ways);
    }

    /// Logs each complaint once.
    fn complain(&mut self, error: &PolicyError) {
        // New complaints are rare; the bound only limits memory.
        if self.complaints.len() < 64 && self.complaints.insert(error.to_string()) {
            log::error!("{error}");
        }
    }
}

/// The ways of the entries, in one line.
fn words(report: &Report) -> String {
    let entries = report.entries.iter().map(|entry| match &entry.ways {
        [v4, v6] if v4 == v6 => format!("{} {v4}", entry.name),
        [v4, v6] => format!("{} IPv4 {v4}, IPv6 {v6}", entry.name),
    });
    format!("policy: {}", entries.collect::<Vec<_>>().join("; "))
}
