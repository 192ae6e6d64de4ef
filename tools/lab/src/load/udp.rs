//! Sends numbered UDP datagrams at a constant rate, and finds the highest rate without loss.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::socket::{setsockopt, sockopt};

use crate::{Host, LabError};

/// How long the sink waits after the last datagram was sent, where later datagrams count as lost.
pub const UDP_QUIET: Duration = Duration::from_millis(150);
/// Size of the sink's receive buffer in the kernel, bookkeeping included.
const SINK_BUFFER: usize = 16 << 20;
/// Maximum number of datagrams between two reads of the clock.
const BURST: u64 = 32;
/// Shortest sleep of a sender that is ahead of its schedule. It then sends all datagrams that are due, in small
/// bursts like a network card with interrupt moderation. Spinning would send more evenly, but take a whole processor
/// from the tunnel that is being measured.
const TICK: Duration = Duration::from_micros(50);

/// A constant stream of datagrams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UdpLoad {
    /// Where the sink listens.
    pub target: SocketAddr,
    /// Bytes of payload in each datagram, at least 8.
    pub size: usize,
    /// Datagrams per second.
    pub rate: f64,
    /// Length of the stream.
    pub duration: Duration,
    /// How long the sink waits after the last arrival for late datagrams.
    pub quiet: Duration,
}

/// The results of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UdpReport {
    /// Datagrams that the sender's kernel took.
    pub sent: u64,
    /// Distinct datagrams that arrived.
    pub received: u64,
    /// Datagrams that did not arrive.
    pub lost: u64,
    /// Datagrams that arrived after one with a higher number.
    pub reordered: u64,
    /// Datagrams that arrived more than once.
    pub duplicated: u64,
    /// Datagrams that the sender's kernel refused.
    pub refused: u64,
    /// Time that the sender needed.
    pub elapsed: Duration,
}

impl UdpReport {
    /// Fraction of the sent datagrams that did not arrive.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / self.sent.max(1) as f64
    }

    /// Datagrams per second that the sender really sent.
    pub fn sent_rate(&self) -> f64 {
        self.sent as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Datagrams per second that arrived.
    pub fn received_rate(&self) -> f64 {
        self.received as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Sends a stream from `sender` to a sink in `receiver`.
///
/// # Errors
/// [`LabError::Load`] if the sockets fail, [`LabError::Host`].
pub fn udp_load(sender: &Host, receiver: &Host, load: &UdpLoad) -> Result<UdpReport, LabError> {
    let socket = receiver
        .run(|| bind(load.target))?
        .map_err(LabError::load(format!("listen at {}", load.target)))?;
    let finished = Arc::new(AtomicBool::new(false));
    // Higher numbers than a schedule can contain are not from this sender.
    let numbers = (load.rate * load.duration.as_secs_f64()) as usize + BURST as usize + 1;
    let sink = receiver.spawn("udp sink", {
        let (finished, load) = (Arc::clone(&finished), *load);
        move || sink(&socket, &load, numbers, &finished)
    })?;
    let sent = sender.run(|| generate(load));
    finished.store(true, Ordering::Release);
    let arrived = sink
        .join()
        .unwrap_or_else(|why| std::panic::resume_unwind(why));
    let mut report = sent?.map_err(LabError::load(format!("send to {}", load.target)))?;
    let arrived = arrived.map_err(LabError::load(format!("receive at {}", load.target)))?;
    report.received = arrived.received;
    report.reordered = arrived.reordered;
    report.duplicated = arrived.duplicated;
    report.lost = report.sent.saturating_sub(report.received);
    Ok(report)
}

/// Binds a socket. A child process between fork and exec may hold the previous socket for a moment.
fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// Sends by the clock: at every moment, as many as the rate requires since the start.
fn generate(load: &UdpLoad) -> io::Result<UdpReport> {
    let local: SocketAddr = if load.target.is_ipv4() {
        ([0u8; 4], 0).into()
    } else {
        ([0u8; 16], 0).into()
    };
    let socket = UdpSocket::bind(local)?;
    socket.connect(load.target)?;
    let _ = prctl::set_timerslack(1);
    let mut payload = vec![0x5a; load.size.max(8)];
    let mut report = UdpReport::default();
    let mut number = 0u64;
    let start = Instant::now();
    loop {
        let now = start.elapsed();
        if now >= load.duration {
            break;
        }
        let scheduled = (now.as_secs_f64() * load.rate) as u64 + 1;
        if number >= scheduled {
            let next = Duration::from_secs_f64(number as f64 / load.rate);
            let early = next.saturating_sub(now).max(TICK);
            thread::sleep(early.min(load.duration - now));
            continue;
        }
        for _ in 0..(scheduled - number).min(BURST) {
            payload[..8].copy_from_slice(&report.sent.to_be_bytes());
            number += 1;
            match socket.send(&payload) {
                Ok(_) => report.sent += 1,
                Err(error) if is_transient(&error) => report.refused += 1,
                Err(error) => return Err(error),
            }
        }
    }
    report.elapsed = start.elapsed();
    Ok(report)
}

/// Whether the sender must tolerate an error: a full queue, or an ICMP error because the sink is not up yet.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted
    ) || error.raw_os_error() == Some(nix::libc::ENOBUFS)
}

/// Counts arrivals until the sender has finished and nothing arrived for a while.
fn sink(
    socket: &UdpSocket,
    load: &UdpLoad,
    numbers: usize,
    finished: &AtomicBool,
) -> io::Result<UdpReport> {
    socket.set_read_timeout(Some(load.quiet))?;
    // A sink that gets no processor for some milliseconds must not look like a bad line. Only root may exceed the
    // system's limit.
    if setsockopt(socket, sockopt::RcvBufForce, &SINK_BUFFER).is_err() {
        let _ = setsockopt(socket, sockopt::RcvBuf, &SINK_BUFFER);
    }
    let mut seen = vec![0u64; numbers.div_ceil(64)];
    let mut report = UdpReport::default();
    let mut highest = 0;
    let mut buffer = vec![0; load.size.max(8) + 1];
    loop {
        let last = finished.load(Ordering::Acquire);
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if last {
                    return Ok(report);
                }
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let Some(number) = buffer[..length].first_chunk::<8>() else {
            continue;
        };
        let number = u64::from_be_bytes(*number);
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(word) = seen.get_mut(place / 64) else {
            continue;
        };
        let bit = 1 << (place % 64);
        if *word & bit != 0 {
            report.duplicated += 1;
            continue;
        }
        *word |= bit;
        report.received += 1;
        if number < highest {
            report.reordered += 1;
        }
        highest = highest.max(number);
    }
}

/// A search for the highest rate at which no more than a given fraction gets lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossFree {
    /// A rate that certainly works, in datagrams per second, at least 1.
    pub low: f64,
    /// A rate that certainly fails, in datagrams per second.
    pub high: f64,
    /// Fraction that may get lost. RFC 2544 allows none; a shared machine always loses a few.
    pub tolerance: f64,
    /// Length of each trial.
    pub trial: Duration,
    /// Number of rates to try. Each trial halves the interval on a logarithmic scale, so that slow and fast tunnels
    /// get the same precision: 8 trials between 1,000 and 1,000,000 leave 2.7 %.
    pub trials: u32,
    /// How often to retry a rate with too much loss before it counts as too high. Other users of the processor may
    /// briefly cause losses that the tunnel would not.
    pub retries: u32,
    /// How often to try a rate a fifth above the result at the end. If that rate works, bad luck had narrowed the
    /// search to the wrong side, and the search continues from there.
    pub climbs: u32,
}

impl Default for LossFree {
    fn default() -> Self {
        Self {
            low: 1_000.0,
            high: 1_000_000.0,
            tolerance: 0.001,
            trial: Duration::from_millis(500),
            trials: 8,
            retries: 1,
            climbs: 2,
        }
    }
}

/// Finds the highest rate at which `trial` reports tolerable loss, and returns the best report. A rate that the
/// sender itself does not reach counts as too high. The rate that it did reach counts as good: the sender may have
/// been disturbed, or this is its limit.
///
/// # Errors
/// The first error of `trial`.
pub fn highest_loss_free<E>(
    search: &LossFree,
    mut trial: impl FnMut(f64, Duration) -> Result<UdpReport, E>,
) -> Result<UdpReport, E> {
    let mut best = UdpReport::default();
    let mut low = bisect(search, search.low, &mut best, &mut trial)?;
    for _ in 0..search.climbs {
        let rate = low * 1.2;
        let works = |tried| matches!(tried, Tried::Good);
        if rate > search.high || !works(try_rate(search, rate, &mut best, &mut trial)?) {
            break;
        }
        low = bisect(search, rate, &mut best, &mut trial)?;
    }
    Ok(best)
}

/// The outcome of a rate, all retries included.
enum Tried {
    /// The sender reached the rate, with tolerable loss.
    Good,
    /// The sender reached only this rate, with tolerable loss.
    Weak(f64),
    /// Too much was lost; the sender reached this rate.
    Lossy(f64),
}

/// Halves the interval from `low` to the search's upper end, and returns the highest rate that worked.
fn bisect<E>(
    search: &LossFree,
    low: f64,
    best: &mut UdpReport,
    trial: &mut impl FnMut(f64, Duration) -> Result<UdpReport, E>,
) -> Result<f64, E> {
    let (mut low, mut high) = (low.max(1.0), search.high);
    for _ in 0..search.trials {
        let rate = (low * high).sqrt();
        match try_rate(search, rate, best, trial)? {
            Tried::Good => low = rate,
            Tried::Weak(reached) => {
                high = rate;
                low = low.max(reached);
            }
            Tried::Lossy(reached) => high = rate.min(reached.max(low)),
        }
    }
    Ok(low)
}

fn try_rate<E>(
    search: &LossFree,
    rate: f64,
    best: &mut UdpReport,
    trial: &mut impl FnMut(f64, Duration) -> Result<UdpReport, E>,
) -> Result<Tried, E> {
    let mut reached = 0.0;
    for _ in 0..=search.retries {
        let report = trial(rate, search.trial)?;
        reached = report.sent_rate();
        if report.loss() > search.tolerance {
            continue;
        }
        if report.received_rate() > best.received_rate() {
            *best = report;
        }
        return Ok(if reached < rate * 0.97 {
            Tried::Weak(reached)
        } else {
            Tried::Good
        });
    }
    Ok(Tried::Lossy(reached))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_finds_the_edge() {
        let edge = 123_456.0;
        let search = LossFree {
            trials: 14,
            ..LossFree::default()
        };
        let found = highest_loss_free::<()>(&search, |rate, duration| {
            let sent = (rate * duration.as_secs_f64()) as u64;
            let lost = if rate > edge { sent / 10 } else { 0 };
            Ok(UdpReport {
                sent,
                received: sent - lost,
                lost,
                elapsed: duration,
                ..UdpReport::default()
            })
        });
        let rate = found.unwrap().received_rate();
        assert!((edge * 0.99..=edge).contains(&rate), "{rate}");
    }

    #[test]
    fn what_a_weak_sender_reaches_is_found() {
        let found = highest_loss_free::<()>(&LossFree::default(), |rate, duration| {
            let sent = (rate.min(20_000.0) * duration.as_secs_f64()) as u64;
            Ok(UdpReport {
                sent,
                received: sent,
                elapsed: duration,
                ..UdpReport::default()
            })
        });
        let rate = found.unwrap().received_rate();
        assert!((19_000.0..=20_000.0).contains(&rate), "{rate}");
    }

    #[test]
    fn a_moment_of_bad_luck_does_not_lower_the_result() {
        let mut trials = 0;
        let search = LossFree {
            trials: 14,
            ..LossFree::default()
        };
        let found = highest_loss_free::<()>(&search, |rate, duration| {
            trials += 1;
            let sent = (rate * duration.as_secs_f64()) as u64;
            // Bad luck twice in the first half of the search, which leads it to the wrong side.
            let unlucky = trials <= 2 || rate > 50_000.0;
            let lost = if unlucky { sent / 2 } else { 0 };
            Ok(UdpReport {
                sent,
                received: sent - lost,
                lost,
                elapsed: duration,
                ..UdpReport::default()
            })
        });
        let rate = found.unwrap().received_rate();
        assert!((49_000.0..=50_000.0).contains(&rate), "{rate}");
    }
}
