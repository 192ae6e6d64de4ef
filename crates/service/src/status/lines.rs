//! The lines in the status document.

use super::{CapStatus, LineStatus, OrderStatus};
use lines::control::{CapReport, LineReport};
use plane::{LineState, PeerLines};
use std::time::{Duration, Instant};

/// Status of the lines to a peer with a configured endpoint, with the data plane's counts.
pub(crate) fn status(reports: Vec<LineReport>, known: &PeerLines, now: Instant) -> Vec<LineStatus> {
    let line = |report: LineReport| {
        let state = known.lines.iter().find(|it| it.line.id == report.line);
        let counts = state.map(|it| it.counts).unwrap_or_default();
        LineStatus {
            name: report.name,
            state: report.state,
            reason: report.reason,
            state_age: report
                .since
                .map(|since| now.saturating_duration_since(since).as_secs()),
            in_use: report.in_use,
            cap: report.cap.map(cap),
            round_trip_ms: report.round_trip.map(millis),
            jitter_ms: report.jitter.map(millis),
            loss_percent: (report.loss.filter(|it| it.is_recent(now))).map(|it| it.percent),
            ..counts.into()
        }
    };
    reports.into_iter().map(line).collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn cap(report: CapReport) -> CapStatus {
    let CapReport { cap, used, renews } = report;
    CapStatus {
        cap_bytes: cap,
        used_bytes: used,
        left_bytes: cap.saturating_sub(used),
        renews,
    }
}

/// Status of the lines of a peer that connects to this host.
pub(crate) fn their_status(known: &PeerLines, now: Instant) -> Vec<LineStatus> {
    let lines = known.lines.iter();
    lines.map(|line| their_line(line, now)).collect()
}

/// Counts of putting a peer's packets into order.
pub(crate) fn order_status(known: &PeerLines) -> OrderStatus {
    (&known.order).into()
}

/// Seconds since a peer was heard on a line up to which the line counts as up: persistent keepalives come every 25
/// seconds.
const HEARD_LATELY: u64 = 30;

/// Status of a line of a peer that connects to this host, known here by its address.
fn their_line(line: &LineState, now: Instant) -> LineStatus {
    let age = line.heard.map(|at| now.saturating_duration_since(at));
    let (state, reason) = match age.map(|age| age.as_secs()) {
        Some(age) if age < HEARD_LATELY => (
            "up",
            format!("the last packet from the peer arrived on it {age} s ago"),
        ),
        Some(age) => (
            "unknown",
            format!("no packet has arrived on it for {age} s"),
        ),
        None => ("unknown", "no packet has arrived on it yet".to_owned()),
    };
    LineStatus {
        name: line.line.endpoint.addr.to_string(),
        state: state.to_owned(),
        reason,
        in_use: true,
        ..line.counts.into()
    }
}
