//! The figures for Prometheus, in its text format (version 0.0.4).

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use service::status::{PeerStatus, Status};

use crate::health::{State, active, health};
use crate::overview::Overview;

/// The answer's content type.
pub const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Pairs of a label's name and its value.
type Labels<'a> = &'a [(&'a str, &'a str)];

/// The kind of a metric.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// A text under construction. It groups the samples of each metric, in whatever order they come.
#[derive(Default)]
struct Text {
    metrics: BTreeMap<&'static str, (Kind, &'static str, String)>,
}

impl Text {
    fn add(
        &mut self,
        name: &'static str,
        kind: Kind,
        help: &'static str,
        labels: Labels<'_>,
        value: impl Display,
    ) {
        let (_, _, samples) = self
            .metrics
            .entry(name)
            .or_insert((kind, help, String::new()));
        samples.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            samples.push(if place == 0 { '{' } else { ',' });
            samples.push_str(label);
            samples.push_str("=\"");
            escape(value, samples);
            samples.push('"');
        }
        if !labels.is_empty() {
            samples.push('}');
        }
        // Writing to a string does not fail.
        let _ = writeln!(samples, " {value}");
    }

    fn counter(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: u64) {
        self.add(name, Kind::Counter, help, labels, value);
    }

    fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Labels<'_>,
        value: impl Display,
    ) {
        self.add(name, Kind::Gauge, help, labels, value);
    }

    fn finish(self) -> String {
        let mut out = String::new();
        for (name, (kind, help, samples)) in self.metrics {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
        out
    }
}

/// Escapes a label's value: a backslash, a quotation mark and a line feed.
fn escape(value: &str, out: &mut String) {
    for it in value.chars() {
        match it {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            _ => out.push(it),
        }
    }
}

/// All metrics, as text.
#[must_use]
pub fn text(overview: &Overview) -> String {
    let mut text = Text::default();
    text.gauge(
        "millrace_info",
        "The program.",
        &[("version", env!("CARGO_PKG_VERSION"))],
        1,
    );
    for status in &overview.sample.tunnels {
        tunnel(&mut text, status);
    }
    let guard = overview.sample.guard.as_ref();
    for state in ["off", "held", "through"] {
        let is = guard.map_or("off", |it| it.state.as_str()) == state;
        text.gauge(
            "millrace_guard_state",
            "1 for the state that the guard is in.",
            &[("state", state)],
            u8::from(is),
        );
    }
    for (lan, stands) in guard.iter().flat_map(|it| &it.groups) {
        for state in ["held", "through"] {
            text.gauge(
                "millrace_guard_group_state",
                "1 for the state of devices that have tunnels of their own.",
                &[("lan", lan), ("state", state)],
                u8::from(stands == state),
            );
        }
    }
    if let Some(refused) = guard.and_then(|it| it.refused) {
        text.counter(
            "millrace_guard_refused_packets_total",
            "Packets that the guard has refused.",
            &[],
            refused,
        );
    }
    for (core, load) in overview.loads.iter().enumerate() {
        let load = f64::from(*load) / 100.0;
        text.gauge(
            "millrace_core_busy_ratio",
            "How busy a core was lately, of 1.",
            &[("core", &core.to_string())],
            load,
        );
    }
    if let Some((now, _)) = overview.figures.clock {
        text.gauge(
            "millrace_clock_hertz",
            "Clock of the slowest core.",
            &[],
            now.saturating_mul(1000),
        );
    }
    for (number, (name, celsius)) in overview.figures.temperatures.iter().enumerate() {
        let labels = [("sensor", name.as_str()), ("number", &number.to_string())];
        text.gauge(
            "millrace_temperature_celsius",
            "What a sensor says.",
            &labels,
            celsius,
        );
    }
    text.finish()
}

fn tunnel(text: &mut Text, status: &Status) {
    let name = status.interface.as_str();
    let role = status.role.as_deref().unwrap_or("");
    let labels = [
        ("tunnel", name),
        ("protocol", status.protocol.as_str()),
        ("role", role),
    ];
    let (stands, _) = health(status);
    let good = u8::from(stands.is_good());
    text.gauge(
        "millrace_tunnel_up",
        "1 where packets go through or would, 0 where the other end does not answer.",
        &labels,
        good,
    );
    for state in State::ALL {
        let labels = [("tunnel", name), ("state", state.name())];
        text.gauge(
            "millrace_tunnel_state",
            "1 for the state that the tunnel is in.",
            &labels,
            u8::from(state == stands),
        );
    }
    let labels = [("tunnel", name)];
    text.gauge(
        "millrace_tunnel_uptime_seconds",
        "Seconds since the tunnel's process began.",
        &labels,
        status.uptime_ms as f64 / 1000.0,
    );
    text.gauge(
        "millrace_tunnel_mtu_bytes",
        "Of the interface.",
        &labels,
        status.mtu,
    );
    text.gauge(
        "millrace_tunnel_peers",
        "Peers; of an OpenVPN or PPTP server those that are in.",
        &labels,
        status.peers.len(),
    );
    text.gauge(
        "millrace_tunnel_active_peers",
        "Peers that were heard from lately.",
        &labels,
        active(status),
    );
    let plane = &status.dataplane;
    text.counter(
        "millrace_tunnel_receive_bytes_total",
        "Bytes of packets that came by the tunnel.",
        &labels,
        plane.inbound.bytes,
    );
    text.counter(
        "millrace_tunnel_transmit_bytes_total",
        "Bytes of packets that went into the tunnel.",
        &labels,
        plane.outbound.bytes,
    );
    text.counter(
        "millrace_tunnel_receive_packets_total",
        "Packets that came by the tunnel.",
        &labels,
        plane.inbound.packets,
    );
    text.counter(
        "millrace_tunnel_transmit_packets_total",
        "Packets that went into the tunnel.",
        &labels,
        plane.outbound.packets,
    );
    for (reason, count) in &plane.drops {
        let labels = [("tunnel", name), ("reason", reason.as_str())];
        text.counter(
            "millrace_tunnel_dropped_packets_total",
            "Packets that went nowhere, by reason (docs/status.md).",
            &labels,
            *count,
        );
    }
    for (reason, count) in &status.refused {
        let labels = [("tunnel", name), ("reason", reason.as_str())];
        text.counter(
            "millrace_tunnel_refused_total",
            "Handshakes and control packets that were refused, by reason.",
            &labels,
            *count,
        );
    }
    for it in &status.peers {
        peer(text, name, it);
    }
}

fn peer(text: &mut Text, tunnel: &str, peer: &PeerStatus) {
    let called = crate::events::called(peer);
    // Several clients may have the same name.
    let client = peer.client_id.map(|it| it.to_string()).unwrap_or_default();
    let labels = [
        ("tunnel", tunnel),
        ("peer", called.as_str()),
        ("client", client.as_str()),
    ];
    text.counter(
        "millrace_peer_receive_bytes_total",
        "Bytes that came from a peer.",
        &labels,
        peer.rx_bytes,
    );
    text.counter(
        "millrace_peer_transmit_bytes_total",
        "Bytes that went to a peer.",
        &labels,
        peer.tx_bytes,
    );
    if let Some(age) = peer.latest_handshake_age {
        text.gauge(
            "millrace_peer_handshake_age_seconds",
            "Seconds since the newest keys.",
            &labels,
            age,
        );
    }
    if let Some(age) = peer.last_heard_age {
        text.gauge(
            "millrace_peer_last_heard_age_seconds",
            "Seconds since the last packet of a peer.",
            &labels,
            age,
        );
    }
    for line in &peer.lines {
        let [tunnel, peer, client] = labels;
        let labels = [tunnel, peer, client, ("line", line.name.as_str())];
        let up = u8::from(matches!(line.state.as_str(), "up" | "degraded"));
        text.gauge(
            "millrace_line_up",
            "1 where a line reaches the peer.",
            &labels,
            up,
        );
        text.counter(
            "millrace_line_receive_bytes_total",
            "Bytes that came by a line.",
            &labels,
            line.received_bytes,
        );
        text.counter(
            "millrace_line_transmit_bytes_total",
            "Bytes that went by a line.",
            &labels,
            line.sent_bytes,
        );
        if let Some(millis) = line.round_trip_ms.filter(|it| it.is_finite()) {
            text.gauge(
                "millrace_line_round_trip_seconds",
                "Smoothed round trip.",
                &labels,
                millis / 1000.0,
            );
        }
        if let Some(cap) = &line.cap {
            text.gauge(
                "millrace_line_cap_left_bytes",
                "What a line may still carry in this month.",
                &labels,
                cap.left_bytes,
            );
        }
    }
}
