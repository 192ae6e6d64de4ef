//! Restores the guard or the policy when another program has removed a part of it. Follows the networks of the LAN, and
//! routes into tunnels as they come and go.
//!
//! ```text
//! news of links, addresses, routes, rules ─┐
//! news of the packet filter ───────────────┼─> look ─> plan ─> do it
//! some seconds have passed ────────────────┘
//! ```
//!
//! Any event triggers a complete look, which costs about a millisecond. So no order of events can hide a change.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::thread;
use std::time::Instant;

use host::dnsmasq::Restarts;
use netio::netlink::{ChainsWatch, Monitor, NetlinkError, Watch};
use netio::poll::Poller;

use crate::settings::{self, Settings};
use crate::{Done, SteerError, Ways};

/// Facts that are kept from one look to the next.
#[derive(Default)]
struct Known {
    ways: Option<Ways>,
    said: String,
    complaints: BTreeSet<String>,
}

/// Watches until the process ends; while nothing is in force, only waits. Fails when the kernel provides no events.
/// Later failures are logged, and tried again.
pub(crate) fn watch<S: Settings>() -> Result<Infallible, SteerError> {
    let mut monitor = Monitor::open(Watch {
        rules: true,
        ..Watch::ALL
    })?;
    // A kernel without nftables has no table either.
    let mut chains = ChainsWatch::open(S::TABLE).ok();
    let failed = NetlinkError::Open;
    let poller = Poller::new().map_err(failed)?;
    poller.add(&monitor, 0).map_err(failed)?;
    if let Some(chains) = &chains {
        poller.add(chains, 1).map_err(failed)?;
    }
    let mut known = Known::default();
    let mut restarts = Restarts::aside();
    let mut news = S::News::default();
    loop {
        // Events are read before the look: a later event triggers the next look.
        while monitor.next()?.is_some() {}
        if let Some(chains) = &mut chains {
            S::hear(chains, &mut news)?;
        }
        let begin = Instant::now();
        if let Err(error) = restarts.ended() {
            known.complain(&error.into());
        }
        let done = settings::restore::<S>(known.ways.as_ref(), &mut news, &mut restarts);
        if !matches!(done, Ok(Some(_))) {
            news = S::News::default();
        }
        match done {
            Ok(Some(done)) => note::<S>(&mut known, done),
            Ok(None) => known = Known::default(),
            Err(error) => known.complain(&error),
        }
        let wait = restarts.wait().unwrap_or(S::SLOW).min(S::SLOW);
        poller.wait(Some(wait)).map_err(failed)?;
        thread::sleep(S::PACE.saturating_sub(begin.elapsed()));
    }
}

fn note<S: Settings>(known: &mut Known, done: Done<S::Report>) {
    if done.closed && known.ways.is_some() {
        let name = S::NAME;
        log::log!(
            S::CLOSED,
            "rules of the {name} were missing and are restored"
        );
    }
    let said = format!("{}: {}", S::NAME, S::words(&done.report));
    if said != known.said {
        log::info!("{said}");
        known.said = said;
    }
    if done.forgotten > 0 {
        log::debug!(
            "{} connections were forgotten, as their route has changed",
            done.forgotten
        );
    }
    for error in &done.errors {
        known.complain(error);
    }
    known.ways = Some(done.ways);
}

impl Known {
    /// Logs each complaint once.
    fn complain(&mut self, error: &SteerError) {
        // New complaints are rare; the bound only limits memory.
        if self.complaints.len() < 64 && self.complaints.insert(error.to_string()) {
            log::error!("{error}");
        }
    }
}
