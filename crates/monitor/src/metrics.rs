//! The figures for Prometheus, in its text format (version 0.0.4).

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use serde_json::Value;
use service::status::{Level, PeerStatus, Status};

use crate::health::{State, active, health, peers};
use crate::overview::Overview;

/// The answer's content type.
pub const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Pairs of a label's name and its value.
type Labels<'a> = &'a [(&'a str, &'a str)];

/// A text under construction. It groups the samples of each metric, in whatever order they come.
#[derive(Default)]
struct Text {
    metrics: BTreeMap<String, (&'static str, String)>,
}

impl Text {
    fn add(&mut self, name: &str, help: &'static str, labels: Labels<'_>, value: impl Display) {
        if !self.metrics.contains_key(name) {
            self.metrics.insert(name.to_owned(), (help, String::new()));
        }
        let Some((_, samples)) = self.metrics.get_mut(name) else {
            return;
        };
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

    /// Adds all measures of one level of the status. `direction` is that of a pipeline.
    fn level<T: Level>(&mut self, level: &T, direction: &str, labels: Labels<'_>) {
        let measures = T::FIELDS.iter().zip(T::NOTES);
        for (field, note) in measures.filter(|(_, it)| !it.metric.is_empty()) {
            let name = note.metric.replace('*', direction);
            match field.value(level) {
                Value::Object(reasons) => {
                    for (reason, count) in &reasons {
                        let labels = [labels, &[("reason", reason.as_str())]].concat();
                        self.add(&name, note.what, &labels, count);
                    }
                }
                Value::Bool(is) => self.add(&name, note.what, labels, u8::from(is)),
                // A count stays exact: a double has 53 bits.
                Value::Number(count) if field.scale() == 1.0 => {
                    self.add(&name, note.what, labels, count);
                }
                value => {
                    if let Some(number) = value.as_f64() {
                        self.add(&name, note.what, labels, number * field.scale());
                    }
                }
            }
        }
    }

    fn finish(self) -> String {
        let mut out = String::new();
        for (name, (help, samples)) in self.metrics {
            let kind = match name.ends_with("_total") {
                true => "counter",
                false => "gauge",
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
    text.add(
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
        text.add(
            "millrace_guard_state",
            "1 for the guard's current state.",
            &[("state", state)],
            u8::from(is),
        );
    }
    for (lan, stands) in guard.iter().flat_map(|it| &it.groups) {
        for state in ["held", "through"] {
            text.add(
                "millrace_guard_group_state",
                "1 for the current state of a group of devices with their own tunnels.",
                &[("lan", lan), ("state", state)],
                u8::from(stands == state),
            );
        }
    }
    if let Some(refused) = guard.and_then(|it| it.refused) {
        text.add(
            "millrace_guard_refused_packets_total",
            "Packets that the guard has refused.",
            &[],
            refused,
        );
    }
    for (core, load) in overview.loads.iter().enumerate() {
        let load = f64::from(*load) / 100.0;
        text.add(
            "millrace_core_busy_ratio",
            "Recent load of a core, from 0 to 1.",
            &[("core", &core.to_string())],
            load,
        );
    }
    if let Some((now, _)) = overview.figures.clock {
        text.add(
            "millrace_clock_hertz",
            "Clock of the slowest core.",
            &[],
            now.saturating_mul(1000),
        );
    }
    for (number, (name, celsius)) in overview.figures.temperatures.iter().enumerate() {
        let labels = [("sensor", name.as_str()), ("number", &number.to_string())];
        text.add(
            "millrace_temperature_celsius",
            "Temperature at a sensor.",
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
    text.add(
        "millrace_tunnel_up",
        "1 if the tunnel carries packets or is idle, 0 if the other end does not answer.",
        &labels,
        good,
    );
    for state in State::ALL {
        let labels = [("tunnel", name), ("state", state.name())];
        text.add(
            "millrace_tunnel_state",
            "1 for the tunnel's current state.",
            &labels,
            u8::from(state == stands),
        );
    }
    let labels = &[("tunnel", name)];
    text.add(
        "millrace_tunnel_peers",
        "Number of peers; with an OpenVPN or PPTP server, of connected clients.",
        labels,
        peers(status).count(),
    );
    text.add(
        "millrace_tunnel_active_peers",
        "Number of peers that were heard from lately.",
        labels,
        active(status),
    );
    let plane = &status.dataplane;
    text.level(status, "", labels);
    text.level(plane, "", labels);
    text.level(&plane.outbound, "transmit", labels);
    text.level(&plane.inbound, "receive", labels);
    for candidate in &plane.measured {
        let labels = &[("tunnel", name), ("candidate", candidate.name.as_str())];
        text.level(candidate, "", labels);
    }
    for it in &status.peers {
        peer(text, name, it);
    }
}

fn peer(text: &mut Text, tunnel: &str, peer: &PeerStatus) {
    let called = crate::events::called(peer);
    // Several peers may have the same name.
    let client = peer.client_id.map(|it| it.to_string()).unwrap_or_default();
    let labels = [
        ("tunnel", tunnel),
        ("peer", called.as_str()),
        ("client", client.as_str()),
        ("key", peer.public_key.as_str()),
    ];
    text.level(peer, "", &labels);
    if let Some(order) = &peer.order {
        text.level(order, "", &labels);
    }
    for line in &peer.lines {
        let labels = [&labels[..], &[("line", line.name.as_str())]].concat();
        let up = u8::from(matches!(line.state.as_str(), "up" | "degraded"));
        text.add(
            "millrace_line_up",
            "1 if the uplink reaches the peer.",
            &labels,
            up,
        );
        text.level(line, "", &labels);
        if let Some(cap) = &line.cap {
            text.level(cap, "", &labels);
        }
    }
}
