//! `millrace status`: what the running tunnels do, for people and for programs.

use crate::output;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use thiserror::Error;

use crate::status::{LaneStatus, PeerStatus, SOCKET_DIR, Status, socket_path};

/// Largest document that is read, in bytes: 10,000 peers take about 4 MiB.
const DOCUMENT_MAX: u64 = 64 << 20;

/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between the two samples that a rate is computed from.
const SAMPLE: Duration = Duration::from_secs(1);

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    /// One interface; otherwise all.
    pub ifname: Option<String>,
    /// JSON, an array of documents, instead of text.
    pub json: bool,
    /// One sample only, at once, without rates.
    pub no_rate: bool,
    /// Show it again every second until interrupted.
    pub watch: bool,
}

/// The command's own command line.
#[must_use]
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    Command::new("status")
        .about("Show tunnels, peers, rates and what the data plane does")
        .arg(Arg::new("IFNAME").help("Only this interface"))
        .arg(flag("json", "Print an array of JSON documents"))
        .arg(flag("no-rate", "Do not wait a second to measure the rates"))
        .arg(flag(
            "watch",
            "Show it again every second until interrupted",
        ))
}

impl From<&ArgMatches> for Arguments {
    fn from(matches: &ArgMatches) -> Self {
        Self {
            ifname: matches.get_one("IFNAME").cloned(),
            json: matches.get_flag("json"),
            no_rate: matches.get_flag("no-rate"),
            watch: matches.get_flag("watch"),
        }
    }
}

/// Why there is no status.
#[derive(Debug, Error)]
enum StatusError {
    #[error(
        "{ifname}: no Millrace tunnel of this name runs; `millrace status` lists those that do"
    )]
    NotRunning { ifname: String },
    #[error("{ifname}: its daemon does not answer: {error}")]
    Silent { ifname: String, error: io::Error },
    #[error("{ifname}: its daemon answers what is no status: {error}")]
    Garbled {
        ifname: String,
        error: serde_json::Error,
    },
}

/// Runs the command: 0 when it showed what was asked for, 1 otherwise.
#[must_use]
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut earlier = None;
    loop {
        let statuses = match sample(arguments, earlier.as_deref()) {
            Ok(statuses) => statuses,
            Err(error) => {
                output::note(format_args!("millrace: {error}"));
                return ExitCode::FAILURE;
            }
        };
        // Whoever stops reading has seen enough.
        if show(arguments, &statuses).is_err() {
            return ExitCode::SUCCESS;
        }
        if !arguments.watch {
            return ExitCode::SUCCESS;
        }
        thread::sleep(SAMPLE);
        earlier = Some(statuses);
    }
}

/// The documents, with rates since `earlier`, or over one second when there is no earlier.
fn sample(arguments: &Arguments, earlier: Option<&[Status]>) -> Result<Vec<Status>, StatusError> {
    let first = fetch_all(arguments.ifname.as_deref())?;
    if arguments.no_rate || first.is_empty() {
        return Ok(first);
    }
    let (before, mut now) = match earlier {
        Some(earlier) => (earlier.to_vec(), first),
        None => {
            thread::sleep(SAMPLE);
            let now = fetch_all(arguments.ifname.as_deref())?;
            (first, now)
        }
    };
    for status in &mut now {
        let same = before
            .iter()
            .find(|before| before.interface == status.interface);
        if let Some(before) = same {
            status.fill_rates(before);
        }
    }
    Ok(now)
}

fn fetch_all(ifname: Option<&str>) -> Result<Vec<Status>, StatusError> {
    if let Some(ifname) = ifname {
        // A name that is none would be a path to somebody else's socket.
        if !config::types::is_ifname(ifname) {
            return Err(StatusError::NotRunning {
                ifname: ifname.escape_debug().to_string(),
            });
        }
        return Ok(vec![fetch(ifname)?]);
    }
    let mut statuses = Vec::new();
    for ifname in running(Path::new(SOCKET_DIR)) {
        match fetch(&ifname) {
            Ok(status) => statuses.push(status),
            // The socket file of a daemon that was killed.
            Err(StatusError::NotRunning { .. }) => {}
            // One that hangs must not hide the others.
            Err(error) => output::note(format_args!("millrace: {error}")),
        }
    }
    Ok(statuses)
}

/// Names of the interfaces that have a socket, sorted.
fn running(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".sock").map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn fetch(ifname: &str) -> Result<Status, StatusError> {
    let stream = UnixStream::connect(socket_path(ifname)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => StatusError::NotRunning {
            ifname: ifname.to_owned(),
        },
        _ => silent(ifname, error),
    })?;
    let mut document = Vec::new();
    stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.take(DOCUMENT_MAX).read_to_end(&mut document))
        .map_err(|error| silent(ifname, error))?;
    serde_json::from_slice(&document).map_err(|error| StatusError::Garbled {
        ifname: ifname.to_owned(),
        error,
    })
}

fn silent(ifname: &str, error: io::Error) -> StatusError {
    StatusError::Silent {
        ifname: ifname.to_owned(),
        error,
    }
}

fn show(arguments: &Arguments, statuses: &[Status]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, statuses)?;
        writeln!(out)?;
        return out.flush();
    }
    let terminal = out.is_terminal();
    if arguments.watch && terminal {
        // Home, and clear to the end: no flicker, and nothing left of a longer list.
        write!(out, "\x1b[H\x1b[J")?;
    }
    if statuses.is_empty() {
        writeln!(out, "No Millrace tunnel runs.")?;
    }
    for (position, status) in statuses.iter().enumerate() {
        if position > 0 {
            writeln!(out)?;
        }
        out.write_all(render(status, Paint { on: terminal }).as_bytes())?;
    }
    out.flush()
}

/// Colours, where there is a terminal to show them.
#[derive(Clone, Copy)]
struct Paint {
    on: bool,
}

impl Paint {
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
            let _ = writeln!(out, "  {}: {value}", self.with("1", label));
        }
    }
}

/// The text for people, in the manner of `wg show`.
fn render(status: &Status, paint: Paint) -> String {
    let mut out = paint.head("interface", &status.interface);
    let none = || "(none)".to_owned();
    let key = status.public_key.clone().unwrap_or_else(none);
    paint.line(&mut out, "public key", &key);
    if status.listen_port != 0 {
        paint.line(&mut out, "listening port", &status.listen_port.to_string());
    }
    if status.fwmark != 0 {
        paint.line(&mut out, "fwmark", &format!("{:#x}", status.fwmark));
    }
    paint.line(&mut out, "mtu", &status.mtu.to_string());
    let mut peers: Vec<&PeerStatus> = status.peers.iter().collect();
    // As `wg`: those that were heard of last come first, those that never were last.
    peers.sort_by_key(|peer| peer.latest_handshake_age.unwrap_or(u64::MAX));
    for peer in peers {
        out.push('\n');
        render_peer(&mut out, peer, paint);
    }
    out.push('\n');
    render_dataplane(&mut out, status, paint);
    out
}

fn render_peer(out: &mut String, peer: &PeerStatus, paint: Paint) {
    out.push_str(&paint.head("peer", &peer.public_key));
    paint.line(out, "endpoint", peer.endpoint.as_deref().unwrap_or(""));
    let ranges = match peer.allowed_ips.join(", ") {
        ranges if ranges.is_empty() => "(none)".to_owned(),
        ranges => ranges,
    };
    paint.line(out, "allowed ips", &ranges);
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
    let cipher = match (plane.crypto_backend.as_str(), plane.backend.as_str()) {
        (_, "") => plane.cipher.clone(),
        ("", backend) => format!("{} ({backend})", plane.cipher),
        (kind, backend) => format!("{} ({kind}: {backend})", plane.cipher),
    };
    paint.line(out, "cipher", &cipher);
    for (rung, state) in &plane.rungs {
        let colour = if state == "on" { "32" } else { "33" };
        paint.line(out, rung, &paint.with(colour, state));
    }
    paint.line(out, "outbound", &lane(&plane.outbound));
    paint.line(out, "inbound", &lane(&plane.inbound));
    let drops = plane.drops.iter().filter(|(_, count)| **count != 0);
    let drops: Vec<String> = drops
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    paint.line(out, "dropped", &drops.join(", "));
    paint.line(out, "limit", &plane.limits);
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
  tun-gso: on
  udp-gso: off (setting)
  outbound: 90 packets, 123.05 KiB in 2 batches (45.0 packets each, 1 with help), 2 super-packets, 4 system calls
  inbound: idle
  dropped: 3 no peer
";
        assert_eq!(render(&example(), Paint { on: false }), expected);
    }

    #[test]
    fn colours_only_where_asked_for() {
        assert!(!render(&example(), Paint { on: false }).contains('\x1b'));
        assert!(render(&example(), Paint { on: true }).contains("\x1b[1;32minterface\x1b[0m: wg0"));
    }

    #[test]
    fn names_that_are_paths_are_not_followed() {
        assert!(matches!(
            fetch_all(Some("../x")),
            Err(StatusError::NotRunning { .. })
        ));
    }
}
