//! The status document of a running interface.

use super::interface::Interface;
use crate::lines::LineReport;
use crate::status::{
    DataplaneStatus, LineStatus, MeasuredStatus, OrderStatus, PeerStatus, Status, dataplane,
};
use crypto::select::{self, Algorithm};
use plane::{LineCounts, LineState, PeerId, Statistics};
use std::time::{Duration, Instant, UNIX_EPOCH};

impl Interface {
    /// What `millrace status` shows, as of now. `started` is when the daemon began.
    #[must_use]
    pub fn status(&self, started: Instant) -> Status {
        let (device, _) = self.get();
        let now = Instant::now();
        let peers = self.machine.peers.iter().map(|(id, p)| {
            let moved = self.plane.peer(*id).unwrap_or_default();
            PeerStatus {
                public_key: p.public_key.to_base64().to_string(),
                endpoint: moved.line.map(|line| line.endpoint.addr.to_string()),
                allowed_ips: p.allowed_ips.iter().map(ToString::to_string).collect(),
                last_handshake_unix: p
                    .last_handshake
                    .and_then(|(at, _)| Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs())),
                latest_handshake_age: p
                    .last_handshake
                    .map(|(_, at)| now.saturating_duration_since(at).as_secs()),
                rx_bytes: moved.rx_bytes,
                tx_bytes: moved.tx_bytes,
                keepalive: (p.persistent_keepalive != 0).then_some(p.persistent_keepalive),
                transport: Some("udp".to_owned()),
                lines: self.lines_of(*id, now),
                order: self.order_of(*id),
                ..PeerStatus::default()
            }
        });
        let statistics = self.plane.statistics();
        Status {
            interface: self.plane.interface().unwrap_or_default(),
            protocol: "wireguard".to_owned(),
            public_key: self.machine.device.public_key().map(|k| {
                config::types::Key32::new(*k.as_bytes())
                    .to_base64()
                    .to_string()
            }),
            listen_port: device.listen_port,
            fwmark: device.fwmark,
            mtu: self.plane.mtu() as u32,
            workers: statistics.workers,
            uptime_ms: now.saturating_duration_since(started).as_millis() as u64,
            peers: peers.collect(),
            refused: self.machine.refusals().to_map(),
            dataplane: self.dataplane(statistics),
            ..Status::default()
        }
    }

    fn lines_of(&self, id: PeerId, now: Instant) -> Vec<LineStatus> {
        let reports = self.machine.line_reports(id);
        let gathers = self.machine.gathers();
        if reports.is_empty() && !gathers {
            return Vec::new();
        }
        let known = self.plane.peer_lines(id).lines;
        if gathers {
            return known.iter().map(|line| their_line(line, now)).collect();
        }
        let line = |report: LineReport| {
            let state = known.iter().find(|it| it.line.id == report.line);
            let counts = state.map(|it| it.counts).unwrap_or_default();
            LineStatus {
                name: report.name,
                state: report.state,
                reason: report.reason,
                state_age: report
                    .since
                    .map(|since| now.saturating_duration_since(since).as_secs()),
                in_use: report.in_use,
                round_trip_ms: report.round_trip.map(|it| it.as_secs_f64() * 1000.0),
                ..counted(counts)
            }
        };
        reports.into_iter().map(line).collect()
    }

    fn order_of(&self, id: PeerId) -> Option<OrderStatus> {
        let counts = self.machine.reorders().then(|| self.plane.peer_lines(id))?;
        let counts = counts.order;
        Some(OrderStatus {
            accepted: counts.accepted,
            late: counts.late,
            waiting: counts.waiting,
            lost: counts.lost(),
        })
    }

    fn dataplane(&self, statistics: Statistics) -> DataplaneStatus {
        let cipher = self.protocol.cipher();
        let kind = select::chosen(Algorithm::ChaCha20Poly1305).backend;
        DataplaneStatus {
            cipher: cipher.cipher.to_owned(),
            crypto_backend: kind.name().to_owned(),
            backend: cipher.backend.to_owned(),
            measured: measured(),
            ..dataplane(statistics)
        }
    }
}

/// A line from which a peer was heard within so many seconds is up: persistent keepalives have 25 between them.
const HEARD_LATELY: u64 = 30;

/// A line of a peer's own, of which this end sees an address.
fn their_line(line: &LineState, now: Instant) -> LineStatus {
    let age = line.heard.map(|at| now.saturating_duration_since(at));
    let (state, reason) = match age.map(|age| age.as_secs()) {
        Some(age) if age < HEARD_LATELY => {
            ("up", format!("the peer was heard from it {age} s ago"))
        }
        Some(age) => ("unknown", format!("nothing has come from it for {age} s")),
        None => ("unknown", "nothing has come from it yet".to_owned()),
    };
    LineStatus {
        name: line.line.endpoint.addr.to_string(),
        state: state.to_owned(),
        reason,
        in_use: true,
        ..counted(line.counts)
    }
}

fn counted(counts: LineCounts) -> LineStatus {
    LineStatus {
        sent: counts.sent,
        sent_bytes: counts.sent_bytes,
        received_bytes: counts.received_bytes,
        accepted: counts.accepted,
        late: counts.late,
        buffered: counts.buffered,
        duplicated: counts.duplicated,
        ancient: counts.ancient,
        ..LineStatus::default()
    }
}

/// What the choice of code for the cipher was made by.
fn measured() -> Vec<MeasuredStatus> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    select::measured(Algorithm::ChaCha20Poly1305)
        .into_iter()
        .map(|of| MeasuredStatus {
            name: of.name.to_owned(),
            kind: of.backend.name().to_owned(),
            batch_len: of.batch_len,
            batch_ns: of.batch.map(nanoseconds),
            alone_len: of.alone_len,
            alone_ns: of.alone.map(nanoseconds),
        })
        .collect()
}
