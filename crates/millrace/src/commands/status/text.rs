//! The status as text for people, in the manner of `wg show`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::status::{LaneStatus, MeasuredStatus, PeerStatus, Status};

/// Colours, where there is a terminal to show them.
#[derive(Clone, Copy)]
pub(super) struct Paint {
    pub(super) on: bool,
    /// Lines end at the terminal's edge.
    pub(super) wraps: bool,
}

impl Paint {
    /// For files and programs.
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

    /// The head of a block.
    fn head(self, kind: &str, name: &str) -> String {
        format!("{}: {name}\n", self.with("1;32", kind))
    }

    /// A line of a block; nothing when there is nothing to say.
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

/// Columns of a terminal.
const COLUMNS: usize = 80;

/// A value in lines of [`COLUMNS`], the first of which has `used` of them before it.
fn wrapped(value: &str, used: usize) -> String {
    let (mut text, mut column) = (String::new(), used);
    for (place, word) in value.split(' ').enumerate() {
        // Colours take no room.
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

/// The text for people, in the manner of `wg show`.
pub(super) fn render(status: &Status, paint: Paint) -> String {
    let mut out = paint.head("interface", &status.interface);
    if is_openvpn(status) {
        let role = status.role.as_deref().unwrap_or_default();
        let state = status.state.as_deref().unwrap_or_default();
        let kind = format!("openvpn {role} {state}");
        paint.line(&mut out, "protocol", kind.trim_end());
        paint.line(&mut out, "addresses", &status.addresses.join(", "));
    } else {
        let none = || "(none)".to_owned();
        let key = status.public_key.clone().unwrap_or_else(none);
        paint.line(&mut out, "public key", &key);
    }
    if status.listen_port != 0 {
        paint.line(&mut out, "listening port", &status.listen_port.to_string());
    }
    let ports: Vec<String> = status.listen_tcp.iter().map(u16::to_string).collect();
    paint.line(&mut out, "listening tcp port", &ports.join(", "));
    if status.fwmark != 0 {
        paint.line(&mut out, "fwmark", &format!("{:#x}", status.fwmark));
    }
    paint.line(&mut out, "mtu", &status.mtu.to_string());
    let mut peers: Vec<&PeerStatus> = status.peers.iter().collect();
    // As `wg`: those that were heard of last come first, those that never were last.
    peers.sort_by_key(|peer| peer.latest_handshake_age.unwrap_or(u64::MAX));
    for peer in peers {
        out.push('\n');
        render_peer(&mut out, status, peer, paint);
    }
    out.push('\n');
    render_dataplane(&mut out, status, paint);
    out
}

fn is_openvpn(status: &Status) -> bool {
    status.protocol == "openvpn"
}

fn render_peer(out: &mut String, status: &Status, peer: &PeerStatus, paint: Paint) {
    let openvpn = is_openvpn(status);
    let (kind, name) = match (openvpn, status.role.as_deref()) {
        (false, _) => ("peer", peer.public_key.as_str()),
        (true, role) => (
            if role == Some("server") {
                "client"
            } else {
                "server"
            },
            // What a peer says of itself is shown, never obeyed by the terminal.
            peer.name
                .as_deref()
                .or(peer.username.as_deref())
                .unwrap_or("(no name)"),
        ),
    };
    let name = name.escape_debug().to_string();
    out.push_str(&paint.head(kind, &name));
    let endpoint = peer.endpoint.clone().unwrap_or_default();
    match peer.transport.as_deref().filter(|_| openvpn) {
        Some(transport) => paint.line(out, "endpoint", &format!("{endpoint} ({transport})")),
        None => paint.line(out, "endpoint", &endpoint),
    }
    if let Some(user) = peer.username.as_ref().filter(|_| peer.name.is_some()) {
        paint.line(out, "user", &user.escape_debug().to_string());
    }
    let ranges = match peer.allowed_ips.join(", ") {
        ranges if ranges.is_empty() && !openvpn => "(none)".to_owned(),
        ranges => ranges,
    };
    paint.line(out, "allowed ips", &ranges);
    let cipher = cipher(
        peer.cipher.as_deref().unwrap_or_default(),
        peer.crypto_backend.as_deref().unwrap_or_default(),
        peer.backend.as_deref().unwrap_or_default(),
    );
    paint.line(out, "cipher", &cipher);
    if let Some(age) = peer.latest_handshake_age {
        paint.line(out, "latest handshake", &ago(age));
    }
    if peer.rx_bytes != 0 || peer.tx_bytes != 0 {
        let (rx, tx) = (bytes(peer.rx_bytes), bytes(peer.tx_bytes));
        paint.line(out, "transfer", &format!("{rx} received, {tx} sent"));
    }
    if let (Some(rx), Some(tx)) = (peer.rx_rate, peer.tx_rate) {
        let (rx, tx) = (bits(rx), bits(tx));
        paint.line(out, "rate", &format!("{rx} receiving, {tx} sending"));
    }
    if let Some(seconds) = peer.keepalive.filter(|&seconds| seconds != 0) {
        let every = format!("every {}", duration(seconds.into()));
        paint.line(out, "persistent keepalive", &every);
    }
}

fn render_dataplane(out: &mut String, status: &Status, paint: Paint) {
    let plane = &status.dataplane;
    out.push_str(&paint.head("data plane", &workers(status.workers)));
    let cipher = cipher(&plane.cipher, &plane.crypto_backend, &plane.backend);
    paint.line(out, "cipher", &cipher);
    paint.line(out, "measured", &measured(&plane.measured));
    for (rung, state) in &plane.rungs {
        let colour = if state == "on" { "32" } else { "33" };
        paint.line(out, rung, &paint.with(colour, state));
    }
    paint.line(out, "outbound", &lane(&plane.outbound));
    paint.line(out, "inbound", &lane(&plane.inbound));
    if plane.inbound.unpacked != 0 {
        let words = "packets that a peer compressed, whose lengths tell what is in them (VORACLE)";
        let text = format!("{} {words}", plane.inbound.unpacked);
        paint.line(out, "unpacked", &paint.with("33", &text));
    }
    paint.line(out, "dropped", &counts(&plane.drops));
    paint.line(out, "refused", &counts(&status.refused));
    paint.line(out, "limit", &plane.limits);
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
    format!("{each} for each packet of {len} bytes in a batch")
}

/// The counters that are not zero.
fn counts(all: &BTreeMap<String, u64>) -> String {
    let some = all.iter().filter(|(_, count)| **count != 0);
    let some: Vec<String> = some
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    some.join(", ")
}

/// `NAME (KIND: CODE)`, as much of it as is known.
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

fn lane(lane: &LaneStatus) -> String {
    if lane.packets == 0 {
        return "idle".to_owned();
    }
    format!(
        "{} packets, {} in {} batches ({:.1} packets each, {} with help), {} super-packets, {} system calls",
        lane.packets,
        bytes(lane.bytes),
        lane.batches,
        lane.packets_per_batch,
        lane.parallel_batches,
        lane.super_packets,
        lane.syscalls,
    )
}

/// Binary units with two places, as `wg` shows them.
fn bytes(count: u64) -> String {
    scaled(count, 1024, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// Decimal units, as line speeds are sold.
fn bits(rate: u64) -> String {
    scaled(rate, 1000, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
}

fn scaled(count: u64, step: u32, units: &[&str]) -> String {
    // Only for the eye: a double's 53 bits are plenty.
    #[allow(clippy::cast_precision_loss)]
    let mut value = count as f64;
    let mut unit = 0;
    while value >= f64::from(step) && unit + 1 < units.len() {
        value /= f64::from(step);
        unit += 1;
    }
    match unit {
        0 => format!("{count} {}", units[0]),
        _ => format!("{value:.2} {}", units[unit]),
    }
}

fn ago(seconds: u64) -> String {
    match seconds {
        0 => "now".to_owned(),
        _ => format!("{} ago", duration(seconds)),
    }
}

/// The units of a duration that are not zero: `1 hour, 3 seconds`.
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
mod tests {
    use super::*;

    fn example() -> Status {
        let peer = |key: &str, age| PeerStatus {
            public_key: key.to_owned(),
            latest_handshake_age: age,
            ..PeerStatus::default()
        };
        let mut status = Status {
            interface: "wg0".to_owned(),
            public_key: Some("pub=".to_owned()),
            listen_port: 51820,
            fwmark: 0xca6c,
            mtu: 1420,
            workers: 2,
            peers: vec![peer("never=", None), peer("old=", Some(3723))],
            ..Status::default()
        };
        status.peers.push(PeerStatus {
            endpoint: Some("[2001:db8::1]:51820".to_owned()),
            allowed_ips: vec!["10.0.0.0/24".to_owned(), "::/0".to_owned()],
            rx_bytes: 1372,
            tx_bytes: 5 << 30,
            rx_rate: Some(940_000_000),
            tx_rate: Some(12),
            keepalive: Some(25),
            ..peer("new=", Some(1))
        });
        let plane = &mut status.dataplane;
        plane.cipher = "chacha20-poly1305".to_owned();
        plane.crypto_backend = "simd".to_owned();
        plane.backend = "aws-lc".to_owned();
        for (name, batch_ns) in [("aws-lc", Some(290)), ("portable", None)] {
            plane.measured.push(MeasuredStatus {
                name: name.to_owned(),
                batch_len: 352,
                batch_ns,
                ..MeasuredStatus::default()
            });
        }
        plane.rungs.insert("tun-gso".to_owned(), "on".to_owned());
        plane
            .rungs
            .insert("udp-gso".to_owned(), "off (setting)".to_owned());
        plane.drops.insert("no peer".to_owned(), 3);
        plane.drops.insert("replay".to_owned(), 0);
        plane.outbound = LaneStatus {
            batches: 2,
            packets: 90,
            packets_per_batch: 45.0,
            bytes: 126_000,
            super_packets: 2,
            syscalls: 4,
            parallel_batches: 1,
            ..LaneStatus::default()
        };
        status
    }

    #[test]
    fn the_text_for_people() {
        let expected = "\
interface: wg0
  public key: pub=
  listening port: 51820
  fwmark: 0xca6c
  mtu: 1420

peer: new=
  endpoint: [2001:db8::1]:51820
  allowed ips: 10.0.0.0/24, ::/0
  latest handshake: 1 second ago
  transfer: 1.34 KiB received, 5.00 GiB sent
  rate: 940.00 Mbit/s receiving, 12 bit/s sending
  persistent keepalive: every 25 seconds

peer: old=
  allowed ips: (none)
  latest handshake: 1 hour, 2 minutes, 3 seconds ago

peer: never=
  allowed ips: (none)

data plane: 2 workers
  cipher: chacha20-poly1305 (simd: aws-lc)
  measured: aws-lc 290 ns, portable far behind for each packet of 352 bytes in a batch
  tun-gso: on
  udp-gso: off (setting)
  outbound: 90 packets, 123.05 KiB in 2 batches (45.0 packets each, 1 with help), 2 super-packets, 4 system calls
  inbound: idle
  dropped: 3 no peer
";
        assert_eq!(render(&example(), Paint::PLAIN), expected);
    }

    #[test]
    fn an_openvpn_server_shows_its_clients() {
        let mut status = Status {
            interface: "tun0".to_owned(),
            protocol: "openvpn".to_owned(),
            role: Some("server".to_owned()),
            listen_port: 1194,
            listen_tcp: vec![443],
            addresses: vec!["10.8.0.1".to_owned()],
            mtu: 1500,
            workers: 1,
            peers: vec![PeerStatus {
                name: Some("branch\u{1b}[31m".to_owned()),
                username: Some("anna".to_owned()),
                client_id: Some(3),
                transport: Some("udp".to_owned()),
                endpoint: Some("192.0.2.7:40000".to_owned()),
                allowed_ips: vec!["10.8.0.2/32".to_owned()],
                cipher: Some("AES-256-GCM".to_owned()),
                crypto_backend: Some("simd".to_owned()),
                backend: Some("aws-lc".to_owned()),
                rx_bytes: 1,
                ..PeerStatus::default()
            }],
            ..Status::default()
        };
        status.refused.insert("auth_failed".to_owned(), 2);
        status.refused.insert("replayed".to_owned(), 0);
        let expected = "\
interface: tun0
  protocol: openvpn server
  addresses: 10.8.0.1
  listening port: 1194
  listening tcp port: 443
  mtu: 1500

client: branch\\u{1b}[31m
  endpoint: 192.0.2.7:40000 (udp)
  user: anna
  allowed ips: 10.8.0.2/32
  cipher: AES-256-GCM (simd: aws-lc)
  transfer: 1 B received, 0 B sent

data plane: 1 worker
  outbound: idle
  inbound: idle
  refused: 2 auth_failed
";
        assert_eq!(render(&status, Paint::PLAIN), expected);
    }

    #[test]
    fn colours_only_where_asked_for() {
        assert!(!render(&example(), Paint::PLAIN).contains('\x1b'));
        assert!(
            render(
                &example(),
                Paint {
                    on: true,
                    wraps: true
                }
            )
            .contains("\x1b[1;32minterface\x1b[0m: wg0")
        );
    }

    #[test]
    fn lines_fit_a_terminal() {
        let paint = Paint {
            on: false,
            wraps: true,
        };
        let text = render(&example(), paint);
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        assert_eq!(words(&text), words(&render(&example(), Paint::PLAIN)));
    }
}
