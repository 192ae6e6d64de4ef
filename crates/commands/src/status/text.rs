//! Formats the status for people, in the style of `wg show`.

use std::fmt::Write as _;
#[cfg(feature = "server")]
use std::time::{SystemTime, UNIX_EPOCH};

use config::shown;
use serde_json::{Value, json};

use service::status::{
    CapStatus, DataplaneStatus, Field, Level, LineStatus, MeasuredStatus, NO_CARRIER, OrderStatus,
    PeerStatus, PipelineStatus, Status,
};

/// Colours and line width of a terminal.
#[derive(Clone, Copy)]
pub(super) struct Paint {
    pub(super) on: bool,
    /// Whether to wrap lines at the terminal's width.
    pub(super) wraps: bool,
}

impl Paint {
    /// Plain text, for files and programs.
    #[cfg(test)]
    const PLAIN: Self = Self {
        on: false,
        wraps: false,
    };

    fn with(self, code: &str, text: &str) -> String {
        if self.on {
            return format!("\x1b[{code}m{text}\x1b[0m");
        }
        text.to_owned()
    }

    /// The heading of a block.
    fn head(self, kind: &str, name: &str) -> String {
        format!("{}: {name}\n", self.with("1;32", kind))
    }

    /// Adds a line to a block, unless the value is empty.
    fn line(self, out: &mut String, label: &str, value: &str) {
        if !value.is_empty() {
            let value = match self.wraps {
                true => wrapped(value, label.len() + 4),
                false => value.to_owned(),
            };
            let _ = writeln!(out, "  {}: {value}", self.with("1", label));
        }
    }
}

/// Width of a terminal, in columns.
const COLUMNS: usize = 80;

/// Wraps a value at [`COLUMNS`]; `used` columns of the first line are taken.
fn wrapped(value: &str, used: usize) -> String {
    let (mut text, mut column) = (String::new(), used);
    for (place, word) in value.split(' ').enumerate() {
        // Colour codes take no columns.
        let width = word.len()
            - if word.starts_with('\x1b') {
                9.min(word.len())
            } else {
                0
            };
        match place {
            0 => {}
            _ if column + 1 + width > COLUMNS => {
                text.push_str("\n    ");
                column = 4;
            }
            _ => {
                text.push(' ');
                column += 1;
            }
        }
        text.push_str(word);
        column += width;
    }
    text
}

/// The status as text, in the style of `wg show`.
pub(super) fn render(status: &Status, paint: Paint) -> String {
    let mut out = paint.head("interface", &status.interface);
    let roles = has_roles(status);
    for field in labelled::<Status>() {
        let value = match field.name {
            "role" if roles => {
                let role = status.role.as_deref().unwrap_or_default();
                let state = status.state.as_deref().unwrap_or_default();
                let comma = if state == NO_CARRIER { "," } else { "" };
                let kind = format!("{} {role}{comma} {state}", status.protocol);
                kind.trim_end().to_owned()
            }
            "public_key" if !roles && status.public_key.is_none() => "(none)".to_owned(),
            "public_key" if roles => continue,
            "fwmark" if status.fwmark != 0 => format!("{:#x}", status.fwmark),
            "mtu" => match &status.mtu_reason {
                Some(reason) => format!("{} ({})", status.mtu, shown(reason)),
                None => status.mtu.to_string(),
            },
            "waiting_for" => match &status.waiting_for {
                Some(what) => format!("not up yet: waiting for {}", shown(what)),
                None => continue,
            },
            "warnings" => {
                for warning in &status.warnings {
                    paint.line(&mut out, field.label, &shown(warning));
                }
                continue;
            }
            _ => plain(field.name, &field.value(status)),
        };
        paint.line(&mut out, field.label, &value);
    }
    let mut peers: Vec<&PeerStatus> = status.peers.iter().collect();
    // Peers are sorted as in `wg`: the last heard first, those never heard last.
    peers.sort_by_key(|peer| peer.latest_handshake_age.unwrap_or(u64::MAX));
    for peer in peers {
        out.push('\n');
        render_peer(&mut out, status, peer, paint);
    }
    out.push('\n');
    render_dataplane(&mut out, status, paint);
    out
}

/// Whether the two ends have different roles, as in OpenVPN and PPTP.
fn has_roles(status: &Status) -> bool {
    status.protocol != "wireguard"
}

fn render_peer(out: &mut String, status: &Status, peer: &PeerStatus, paint: Paint) {
    let openvpn = has_roles(status);
    // A client's user name is no name of its server.
    let is_client = openvpn && status.role.as_deref() == Some("server");
    let user = peer.username.as_deref().filter(|_| is_client);
    let (kind, name) = match (openvpn, status.role.as_deref()) {
        (false, _) => ("peer", peer.name.as_deref().unwrap_or(&peer.public_key)),
        (true, role) => (
            if role == Some("server") {
                "client"
            } else {
                "server"
            },
            // The peer chooses its name, so the terminal must not interpret it.
            peer.name.as_deref().or(user).unwrap_or("(no name)"),
        ),
    };
    let name = shown(name);
    out.push_str(&paint.head(kind, &name));
    #[cfg(feature = "server")]
    if let Some(end) = peer.expires_unix.and_then(|it| end_text(it, unix_now())) {
        paint.line(out, "certificate end", &paint.with("33", &end));
    }
    let text = |it: &Option<String>| it.as_deref().map(shown).unwrap_or_default();
    for field in labelled::<PeerStatus>() {
        let value = match field.name {
            "endpoint" if openvpn && peer.transport.is_some() => {
                format!("{} ({})", text(&peer.endpoint), text(&peer.transport))
            }
            // The name of the peer.
            "public_key" if peer.name.is_none() => continue,
            "username" if peer.name.is_none() && user.is_some() => continue,
            "allowed_ips" if peer.allowed_ips.is_empty() && !openvpn => "(none)".to_owned(),
            "cipher" => cipher(
                &text(&peer.cipher),
                &text(&peer.crypto_backend),
                &text(&peer.backend),
            ),
            #[cfg(feature = "postquantum")]
            "key_exchange" if peer.key_exchange.is_some() => {
                let group = text(&peer.key_exchange);
                match peer.post_quantum {
                    Some(true) => format!("{group} (post-quantum)"),
                    _ => paint.with("33", &format!("{group} (not post-quantum)")),
                }
            }
            "state" if peer.state.is_some() => {
                let state = paint.with("31", &text(&peer.state));
                format!("{state}: {}", text(&peer.reason))
            }
            "latest_handshake_age" if !openvpn && peer.latest_handshake_age.is_none() => {
                match peer.replaces {
                    Some(_) => "never: this new file is pending".to_owned(),
                    None => "never".to_owned(),
                }
            }
            "rx_bytes" if peer.rx_bytes != 0 || peer.tx_bytes != 0 => {
                let (rx, tx) = (bytes(peer.rx_bytes), bytes(peer.tx_bytes));
                format!("{rx} received, {tx} sent")
            }
            "rx_rate" => match (peer.rx_rate, peer.tx_rate) {
                (Some(rx), Some(tx)) => format!("{} receiving, {} sending", bits(rx), bits(tx)),
                _ => continue,
            },
            "keepalive" => match peer.keepalive {
                Some(seconds @ 1..) => format!("every {}", duration(seconds.into())),
                _ => continue,
            },
            "lines" => {
                for line in &peer.lines {
                    let label = format!("{} {}", line.noun(), shown(&line.name));
                    paint.line(out, &label, &line_text(line, paint));
                }
                continue;
            }
            "order" => peer.order.as_ref().map(order_text).unwrap_or_default(),
            _ => plain(field.name, &field.value(peer)),
        };
        paint.line(out, field.label, &value);
    }
}

/// Seconds since 1970.
#[cfg(feature = "server")]
fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| it.as_secs())
}

/// When a client's certificate ends, if that is within 30 days.
#[cfg(feature = "server")]
fn end_text(end: u64, now: u64) -> Option<String> {
    match end.checked_sub(now) {
        None | Some(0) => Some("it has ended".to_owned()),
        Some(left) => (left <= 30 * 86_400).then(|| format!("in {}", largest_unit(left))),
    }
}

/// `5 packets in time, 1 late, 0 lost, 2 waiting`.
fn order_text(order: &OrderStatus) -> String {
    let OrderStatus {
        accepted,
        late,
        waiting,
        lost,
        asked,
        repaired,
    } = order;
    let mut text =
        format!("{accepted} packets in time, {late} late, {lost} lost, {waiting} waiting");
    if *asked > 0 {
        text += &format!("; {asked} were requested again, and {repaired} of these arrived");
    }
    text
}

/// `up for 5 minutes, in use, 12.5 ms, jitter 0.8 ms, 3 % of probes lost: WHY`.
fn line_text(line: &LineStatus, paint: Paint) -> String {
    let colour = match line.state.as_str() {
        "up" => "32",
        "down" => "31",
        _ => "33",
    };
    let mut text = paint.with(colour, &line.state);
    if let Some(seconds) = line.state_age.filter(|&seconds| seconds != 0) {
        text += &format!(" for {}", duration(seconds));
    }
    if line.in_use {
        text += ", in use";
    }
    if let Some(ms) = line.round_trip_ms {
        text += &format!(", {} ms", tenths(ms));
    }
    if let Some(ms) = line.jitter_ms {
        text += &format!(", jitter {} ms", tenths(ms));
    }
    if let Some(percent) = line.loss_percent {
        text += &format!(", {percent} % of probes lost");
    }
    let first = line.accepted + line.late;
    if line.sent != 0 || first != 0 {
        text += &format!(", {} packets sent, {first} received", line.sent);
    }
    let copies = line.duplicated + line.ancient;
    if copies != 0 {
        text += &format!(" and {copies} copies");
    }
    if let Some(cap) = &line.cap {
        text += &format!(", {}", cap_text(cap));
    }
    format!("{text}: {}", shown(&line.reason))
}

/// `15.20 GB of 20.00 GB used, 4.80 GB left until 2026-12-14`.
fn cap_text(cap: &CapStatus) -> String {
    let mut text = format!(
        "{} of {} used, {} left",
        decimal(cap.used_bytes),
        decimal(cap.cap_bytes),
        decimal(cap.left_bytes)
    );
    if let Some(day) = &cap.renews {
        text += &format!(" until {}", shown(day));
    }
    text
}

fn render_dataplane(out: &mut String, status: &Status, paint: Paint) {
    let plane = &status.dataplane;
    out.push_str(&paint.head("data plane", &workers(status.workers)));
    let cipher = cipher(&plane.cipher, &plane.crypto_backend, &plane.backend);
    paint.line(out, "cipher", &cipher);
    paint.line(out, "measured", &measured(&plane.measured));
    if plane.accelerators == Some(false) {
        paint.line(out, "accelerators", "not in this build");
    }
    for (rung, state) in &plane.rungs {
        let colour = if state.starts_with("on") { "32" } else { "33" };
        paint.line(out, rung, &paint.with(colour, state));
    }
    paint.line(out, "outbound", &pipeline(&plane.outbound));
    paint.line(out, "inbound", &pipeline(&plane.inbound));
    if plane.inbound.unpacked != 0 {
        let words =
            "packets that a peer compressed: their lengths reveal parts of their content (VORACLE)";
        let text = format!("{} {words}", plane.inbound.unpacked);
        paint.line(out, "unpacked", &paint.with("33", &text));
    }
    for field in labelled::<DataplaneStatus>() {
        paint.line(out, field.label, &plain(field.name, &field.value(plane)));
        if field.name == "drops" {
            paint.line(out, "refused", &plain("refused", &json!(status.refused)));
        }
    }
}

/// The fields that have a line of their own.
fn labelled<T: Level>() -> impl Iterator<Item = &'static Field<T>> {
    T::FIELDS.iter().filter(|it| !it.label.is_empty())
}

/// The value of a field with a line of its own; empty for none, and for a count of zero.
fn plain(name: &str, value: &Value) -> String {
    let number = value.as_u64().unwrap_or_default();
    match value {
        Value::String(text) => shown(text),
        Value::Number(_) if name.ends_with("_age") => ago(number),
        Value::Number(_) if number == 0 => String::new(),
        Value::Number(_) if name.ends_with("_bytes") => bytes(number),
        Value::Number(count) => count.to_string(),
        Value::Array(items) => {
            let item = |it: &Value| it.as_str().map_or_else(|| it.to_string(), shown);
            items.iter().map(item).collect::<Vec<_>>().join(", ")
        }
        Value::Object(reasons) => {
            let some = reasons.iter().filter(|(_, count)| **count != 0);
            let some = some.map(|(reason, count)| format!("{count} {reason}"));
            some.collect::<Vec<_>>().join(", ")
        }
        _ => String::new(),
    }
}

/// `avx512-ifma 310 ns, portable 2900 ns for each packet of 352 bytes in a batch`.
fn measured(candidates: &[MeasuredStatus]) -> String {
    let Some(first) = candidates.first() else {
        return String::new();
    };
    let each = candidates.iter().map(|of| match of.batch_ns {
        Some(ns) => format!("{} {ns} ns", of.name),
        None => format!("{} far behind", of.name),
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let len = first.batch_len;
    format!("{each} per packet of {len} bytes in a batch")
}

/// `NAME (KIND: CODE)`, with the known parts.
fn cipher(name: &str, kind: &str, code: &str) -> String {
    match (kind, code) {
        (_, "") => name.to_owned(),
        ("", code) => format!("{name} ({code})"),
        (kind, code) => format!("{name} ({kind}: {code})"),
    }
}

fn workers(count: usize) -> String {
    match count {
        1 => "1 worker".to_owned(),
        _ => format!("{count} workers"),
    }
}

fn pipeline(pipeline: &PipelineStatus) -> String {
    if pipeline.packets == 0 {
        return "idle".to_owned();
    }
    let waited = match pipeline.waited_us {
        0 => String::new(),
        waited => format!(
            ", recently waited {} ms in the sockets",
            config::decimal(waited, 1000, 1)
        ),
    };
    format!(
        "{} packets, {} in {} batches ({} packets each, {} shareable), {} super-packets, {} system \
         calls{waited}",
        pipeline.packets,
        bytes(pipeline.bytes),
        pipeline.batches,
        tenths(pipeline.packets_per_batch),
        pipeline.parallel_batches,
        pipeline.super_packets,
        pipeline.syscalls,
    )
}

/// Binary units with two places, as `wg` shows them.
pub(crate) fn bytes(count: u64) -> String {
    scaled(count, 1024, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// Decimal units, as in monthly data plans.
fn decimal(count: u64) -> String {
    scaled(count, 1000, &["B", "kB", "MB", "GB", "TB"])
}

/// Decimal units, as in line speeds.
pub(crate) fn bits(rate: u64) -> String {
    scaled(rate, 1000, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
}

fn scaled(count: u64, step: u64, units: &[&str]) -> String {
    let (mut size, mut unit) = (1, 0);
    while count / size >= step && unit + 1 < units.len() {
        size *= step;
        unit += 1;
    }
    match unit {
        0 => format!("{count} {}", units[0]),
        _ => format!("{} {}", config::decimal(count, size, 2), units[unit]),
    }
}

/// Writes a figure with one decimal place.
fn tenths(figure: f64) -> String {
    config::decimal((figure * 10.0).round() as u64, 10, 1)
}

fn ago(seconds: u64) -> String {
    match seconds {
        0 => "now".to_owned(),
        _ => format!("{} ago", duration(seconds)),
    }
}

/// A duration in its largest unit: `2 hours`.
#[cfg(feature = "server")]
pub(crate) fn largest_unit(seconds: u64) -> String {
    match seconds {
        0 => "0 seconds".to_owned(),
        _ => {
            let mut words = duration(seconds);
            words.truncate(words.find(',').unwrap_or(words.len()));
            words
        }
    }
}

/// A duration with its non-zero units: `1 hour, 3 seconds`.
fn duration(seconds: u64) -> String {
    let units = [
        (seconds / 86_400, "day"),
        (seconds / 3600 % 24, "hour"),
        (seconds / 60 % 60, "minute"),
        (seconds % 60, "second"),
    ];
    let parts: Vec<String> = units
        .iter()
        .filter(|(count, _)| *count != 0)
        .map(|(count, unit)| format!("{count} {unit}{}", if *count == 1 { "" } else { "s" }))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests;
