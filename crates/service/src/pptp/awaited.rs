//! Waits for the device that a tunnel is bound to, if it comes later than the tunnel's start.

use crate::watchdog::Watchdog;
use crate::wireguard::Signals;
use host::{background, logging, notify};
use netio::netlink::{Monitor, Watch};
use netio::poll::Poller;
use nix::net::if_::if_nametoindex;
use std::io;
use std::time::Instant;

const SIGNAL: u64 = 0;
const NEWS: u64 = 1;

/// The result of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The device was there from the start.
    There,
    /// The device came later, and the wait was reported.
    Late,
    /// A signal ended the wait.
    Ended,
}

/// Goes into the background, by [`background::ready`] or [`background::not_yet`].
pub(super) fn leave(interface: &str, tell: fn() -> io::Result<()>) {
    logging::leave_terminal(interface);
    if let Err(error) = tell() {
        log::warn!("{error}");
    }
}

/// Waits for the device that an interface's tunnel is bound to; with `daemon`, in the background.
///
/// # Errors
/// Descriptor limits.
pub(super) fn wait(
    device: &str,
    interface: &str,
    daemon: bool,
    signals: &Signals,
) -> io::Result<Awaited> {
    // Opened before the first look, so that no change is missed.
    let mut news = Monitor::open(Watch::ALL).map_err(io::Error::other)?;
    if if_nametoindex(device).is_ok() {
        return Ok(Awaited::There);
    }
    let words = format!("not up yet: waiting for the device {device}");
    log::warn!("{interface}: {words}");
    // Units that depend on the tunnel should not wait while its device is away.
    notify::ready(&words);
    if daemon {
        leave(interface, background::not_yet);
    }
    let poller = Poller::new()?;
    poller.add(&signals.pipe, SIGNAL)?;
    poller.add(&news, NEWS)?;
    let mut watchdog = Watchdog::new(Instant::now());
    loop {
        let due = watchdog.due();
        let timeout = due.map(|at| at.saturating_duration_since(Instant::now()));
        for token in poller.wait(timeout)?.iter() {
            match token {
                SIGNAL => signals.drain(),
                _ => while news.next().map_err(io::Error::other)?.is_some() {},
            }
        }
        if signals.end().is_some() {
            notify::stopping();
            return Ok(Awaited::Ended);
        }
        if signals.take_reload() {
            logging::reopen();
        }
        if if_nametoindex(device).is_ok() {
            return Ok(Awaited::Late);
        }
        watchdog.turn(Instant::now(), || true);
    }
}
