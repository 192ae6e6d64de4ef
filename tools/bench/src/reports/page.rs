//! The page "Figures from real routers".

use report::{Cipher, Core, Direction, Machine, Measured, Offload, Report, Side, Version};
use std::fmt::Write as _;

/// The page without its tables.
const HEAD: &str = "# Figures from real routers

Owners of routers measured these figures and sent them in. Millrace's other tables come from a test machine.

## Send yours

    millrace doctor --report report.json    # as root, while nothing else runs

It measures ciphers, and for 3 seconds a WireGuard tunnel between two private network namespaces; on OpenWrt that needs
`kmod-veth`. Your network, tunnels and settings stay as they are. `--with-peer ADDRESS` measures a running tunnel, too: it
pings the peer at this address inside the tunnel for 5 seconds, as fast as it answers.

The report holds only numbers, versions and words of [fixed lists](../report.schema.json): no address, key, name, MAC or
path. Read it, then attach it to an issue of the project, with the router's name if you like. Do not edit it: a digest
shows changes.

Maintainers put reports into `docs/benchmarks/routers`, named as the router (`netgear-r7800.json`), and make this page:

    cargo run -p millrace-tools --bin millrace-reports -- check FILE...
    MILLRACE_WRITE=1 cargo test -p millrace-tools --lib reports

";

const EMPTY: &str = "## Figures\n\nNo report has been sent in yet.\n";

const TUNNEL: &str = "## A tunnel and its load on one router

Mbit/s: one TCP stream. Both ends of the tunnel, sender and receiver share the router's processors: a router that serves
one end carries more. To a peer: packets of 1,220 bytes each way through a tunnel in use, 64 at once.

| router | chip | cores | MB | Linux | OpenWrt | offload | Millrace | Mbit/s | processor s/GB | to a peer, Mbit/s |
|---|---|---|---:|---|---|---|---|---:|---:|---:|
";

const CIPHERS: &str = "\n## Ciphers, MB/s

One core, 32 packets of 1,408 bytes, a key of 256 bits; encrypting / decrypting. With an accelerator, its figures follow.

| router | AES-GCM | ChaCha20-Poly1305 | AES-CBC |
|---|---:|---:|---:|
";

/// Writes the page for reports, each with the router's name.
#[must_use]
pub fn page(reports: &[(String, Report)]) -> String {
    if reports.is_empty() {
        return [HEAD, EMPTY].concat();
    }
    let mut text = [HEAD, TUNNEL].concat();
    for (name, report) in reports {
        tunnel(&mut text, name, report);
    }
    text += CIPHERS;
    for (name, report) in reports {
        let of = |cipher| both_sides(&report.ciphers, cipher);
        row(
            &mut text,
            &[
                name.clone(),
                of(Cipher::Aes256Gcm),
                of(Cipher::ChaCha20Poly1305),
                of(Cipher::Aes256Cbc),
            ],
        );
    }
    text
}

fn row(text: &mut String, cells: &[String]) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn tunnel(text: &mut String, name: &str, report: &Report) {
    let Report {
        machine,
        kernel,
        openwrt,
        loopback,
        peer,
        ..
    } = report;
    let (rate, load) = match loopback {
        Some(it) => {
            let bytes = f64::from(it.kilobits_per_second) / 8.0 * f64::from(it.milliseconds);
            let used = it.processor_milliseconds.filter(|_| bytes > 0.0);
            let load = used.map(|used| f64::from(used) / 1e3 / (bytes / 1e9));
            let rate = f64::from(it.kilobits_per_second) / 1e3;
            (figure(rate), load.map_or_else(String::new, figure))
        }
        None => {
            let why = report.no_loopback.map_or("", |it| it.name());
            (why.to_owned(), String::new())
        }
    };
    let version = |it: Option<Version>| it.map_or_else(String::new, |it| it.to_string());
    let release = openwrt.as_ref().map_or_else(String::new, |it| {
        let snapshot = || it.revision.map_or_else(String::new, |it| format!("r{it}"));
        it.release.map_or_else(snapshot, |it| it.to_string())
    });
    let offload = openwrt.as_ref().map_or("", |it| match it.offload {
        Offload::None => "",
        other => other.name(),
    });
    row(
        text,
        &[
            name.to_owned(),
            machine.chip.map_or("", |it| it.name()).to_owned(),
            cores(machine),
            machine.megabytes.to_string(),
            version(kernel.version),
            release,
            offload.to_owned(),
            version(report.program),
            rate,
            load,
            peer.as_ref().map_or_else(String::new, |it| {
                let rate = f64::from(it.kilobits_per_second) / 1e3;
                format!("{} {}", it.protocol.name(), figure(rate))
            }),
        ],
    );
}

/// The kinds of cores with their numbers, and the clock rate: `2 krait, 1725 MHz`.
fn cores(machine: &Machine) -> String {
    let core = |it: &Core| {
        let words = match (it.name, it.vendor) {
            (Some(name), _) => name.name(),
            (None, Some(vendor)) => vendor.name(),
            (None, None) => machine.architecture.name(),
        };
        format!("{} {words}", it.count)
    };
    let mut words: Vec<String> = machine.cores.iter().map(core).collect();
    if words.is_empty() {
        words.push(format!(
            "{} {}",
            machine.processors,
            machine.architecture.name()
        ));
    }
    words.extend(machine.megahertz.map(|it| format!("{it} MHz")));
    words.join(", ")
}

/// A cipher's rates on the CPU, and on the accelerator if there is one.
fn both_sides(measured: &[Measured], cipher: Cipher) -> String {
    let rate = |side, direction| {
        let is_it =
            |it: &&Measured| (it.cipher, it.side, it.direction) == (cipher, side, direction);
        let it = measured.iter().find(is_it)?;
        let bytes = f64::from(it.packets) * f64::from(it.bytes);
        // Bytes in a nanosecond are gigabytes in a second.
        Some(figure(bytes * 1e3 / (it.nanoseconds.max(1) as f64)))
    };
    let side = |side| {
        let [encrypt, decrypt] = [Direction::Encrypt, Direction::Decrypt].map(|it| rate(side, it));
        Some(format!("{} / {}", encrypt?, decrypt?))
    };
    let sides = [side(Side::Cpu), side(Side::Accelerator)];
    sides.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// A figure with about three digits.
fn figure(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
