//! Shared code of the acceptance tests: two hosts, a tunnel between them, and comparison of content.
//!
//! The tests look from outside: at the program itself, `wg`, `ping`, sockets and frames.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

pub mod browser;
mod content;
mod directory;
pub mod dns;
pub mod exposed;
pub mod forged;
pub mod fw4;
pub mod guarded;
pub mod named;
pub mod netifd;
mod no_descriptors;
pub mod openvpn;
pub mod page;
pub mod pairwise;
mod ping;
pub mod policed;
mod program;
pub mod quick;
mod relayed;
mod site;
mod tunnel;
pub mod two_lines;
pub mod web;
pub mod world;

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{PingOptions, PingReport, ping};
use crate::peer::{
    self, Keys, Millrace, PeerOptions, PeerStatus, RunningPeer, WgInterface, WgPeer, WireGuardPeer,
    WireguardGo, WireguardGoPackaged,
};
use crate::{Host, LabError, Link, LinkOptions, tools};
use serde_json::Value;

pub use content::{tcp_both_ways, tcp_both_ways_while, udp_both_ways};
pub use directory::Directory;
pub use no_descriptors::NoDescriptors;
pub use ping::{internet_checksum, pings, pings_of, reaches, reaches_within, until_answer};
pub use program::{PROGRAM, Program};
pub use relayed::Relayed;
pub use site::Site;
pub use tunnel::{Setup, Tunnel};
pub use two_lines::TwoLines;

/// How long to wait for anything before a test fails: long for a busy machine, bounded for a broken program.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Name of the tunnel's interface in both hosts, which must be private.
pub const WG: &str = "wg0";

/// Listen ports of the two ends.
pub const PORT_A: u16 = 1001;
/// See [`PORT_A`].
pub const PORT_B: u16 = 1002;

/// Whether tunnels can be made here; if not, notes why.
#[track_caller]
pub fn ready() -> bool {
    crate::may_enter() && crate::require(tools::tun().and_then(|()| tools::find("wg"))).is_some()
}

/// Parses an IP address.
pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The program under test, as a peer.
pub fn millrace() -> Millrace {
    Millrace::new(PROGRAM)
}

/// The newest wireguard-go, or else the packaged one; `None`, with a note, without either.
#[track_caller]
pub fn wireguard_go() -> Option<Box<dyn WireGuardPeer>> {
    if WireguardGo.available().is_ok() {
        return Some(Box::new(WireguardGo));
    }
    crate::require(WireguardGoPackaged.available())?;
    Some(Box::new(WireguardGoPackaged))
}

/// Waits until `condition` is true.
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(PATIENCE, what, condition);
}

/// Waits for at most `limit` until `condition` is true.
pub fn until_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "{what}: never came true");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `look` returns a value, and returns that value.
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = look();
        found.is_some()
    });
    found.unwrap()
}

/// Two private hosts on one cable: A is 192.168.1.1 and fd00:1::1, B is 192.168.1.2 and fd00:1::2.
pub struct Net {
    /// The host that usually connects.
    pub a: Host,
    /// The host that usually listens.
    pub b: Host,
    /// Options of the cable.
    pub link: LinkOptions,
}

impl Default for Net {
    fn default() -> Self {
        Self::new()
    }
}

impl Net {
    /// Joins the hosts by link number 1.
    pub fn new() -> Self {
        Self::with(LinkOptions::numbered(1))
    }

    /// Joins the hosts by this link.
    pub fn with(link: LinkOptions) -> Self {
        let (a, b) = Self::hosts();
        Link::new(&a, "eth0", &b, "eth0", &link).unwrap();
        Self { a, b, link }
    }

    /// Makes the two hosts without a link.
    pub fn hosts() -> (Host, Host) {
        let hosts = (Host::private("a").unwrap(), Host::private("b").unwrap());
        for host in [&hosts.0, &hosts.1] {
            // The machine's default may be strict, and these tests change addresses and routes.
            host.sysctl("net/ipv4/conf/all/rp_filter", "0").unwrap();
            host.sysctl("net/ipv4/conf/default/rp_filter", "0").unwrap();
        }
        hosts
    }
}

/// Passes Millrace's settings through the environment, as `wg-quick` needs it.
pub fn settings(text: &str) -> PeerOptions {
    PeerOptions {
        environment: vec![("MILLRACE_SET".to_owned(), text.to_owned())],
        ..PeerOptions::default()
    }
}

/// Inner addresses of A and B, IPv4 and IPv6.
pub const A4: &str = "10.0.0.1";
/// See [`A4`].
pub const B4: &str = "10.0.0.2";
/// See [`A4`].
pub const A6: &str = "fd01::1";
/// See [`A4`].
pub const B6: &str = "fd01::2";

/// Returns the status at one end of the peer with these keys.
pub fn peer(at: &RunningPeer<'_>, keys: &Keys) -> PeerStatus {
    let status = at.status().unwrap();
    status.peer(&keys.public).unwrap().clone()
}

/// Builds an interface with these keys, port and peers.
pub fn interface(keys: &Keys, port: u16, peers: Vec<WgPeer>) -> WgInterface {
    WgInterface {
        keys: keys.clone(),
        listen_port: Some(port),
        fwmark: None,
        peers,
    }
}

/// Waits until a host receives packets at its own address: an IPv6 address becomes usable a moment after it was
/// added.
pub fn usable(host: &Host, address: &str) {
    let address = ip(address);
    until("an address that is usable", || {
        let probe = || {
            let socket = UdpSocket::bind((address, 0))?;
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            socket.send_to(&[1], socket.local_addr()?)?;
            socket.recv(&mut [0])
        };
        host.run(probe).unwrap().is_ok()
    });
}

/// Asserts that nobody answers a ping.
pub fn no_ping(host: &Host, target: &str) -> PingReport {
    let report = ping(host, ip(target), &PingOptions::count(1)).unwrap();
    assert_eq!(report.received, 0, "{target}: {report:?}");
    report
}

/// The output of `millrace status IFNAME --json`.
pub fn status_of(host: &Host, interface: &str) -> Value {
    let ask = || host.output(PROGRAM, ["status", interface, "--json", "--no-rate"]);
    // A busy machine may keep a tunnel from answering within the three seconds that `status` waits.
    let is_late = |text: &Result<String, LabError>| {
        let error = text.as_ref().err().map(ToString::to_string);
        error.is_some_and(|error| error.contains("does not answer"))
    };
    let text = until_some("an answer of the tunnel", || {
        Some(ask()).filter(|text| !is_late(text))
    });
    let all: Value = serde_json::from_str(&text.unwrap()).unwrap();
    all[0].clone()
}

/// Number of packets that the program has dropped for one reason.
pub fn drops(host: &Host, reason: &str) -> u64 {
    let status = status_of(host, WG);
    status["dataplane"]["drops"][reason]
        .as_u64()
        .unwrap_or_else(|| panic!("no reason {reason} in {status}"))
}

/// Sends a UAPI request directly and returns the answer, for requests that the installed `wg` cannot make.
pub fn uapi(host: &Host, interface: &str, request: &str) -> String {
    uapi_at(host, "/var/run/wireguard", interface, request)
}

/// Sends a UAPI request to a socket in this directory.
pub fn uapi_at(host: &Host, directory: &str, interface: &str, request: &str) -> String {
    peer::uapi(host, directory, interface, request).unwrap()
}

/// Converts a base64 key to the UAPI's hex form.
pub fn hex(base64: &str) -> String {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => 0,
    };
    let mut out = String::new();
    for four in base64.as_bytes().chunks(4) {
        let bits = four.iter().fold(0, |bits, &byte| bits << 6 | value(byte));
        for byte in &bits.to_be_bytes()[1..] {
            out += &format!("{byte:02x}");
        }
    }
    out.truncate(64);
    out
}

/// The raw bytes of a key in base64.
pub fn key_bytes(base64: &str) -> [u8; 32] {
    let digits = hex(base64);
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    }
    bytes
}

/// The ids of the processes that run inside a host.
pub fn inhabitants(host: &Host) -> Vec<u32> {
    let inside = host
        .run(|| fs::read_link("/proc/thread-self/ns/net").unwrap())
        .unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&process: &u32| {
            process != std::process::id()
                && fs::read_link(format!("/proc/{process}/ns/net")).is_ok_and(|ns| ns == inside)
        })
        .collect()
}

/// The files below a host's own /var/run, without directories.
pub fn run_files(host: &Host) -> Vec<String> {
    fn walk(directory: &Path, into: &mut Vec<String>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                walk(&path, into);
            } else if !(path.ends_with("tun-selftest")
                || path.ends_with("undo.lock")
                || path.ends_with("up.lock")
                || path.extension().is_some_and(|it| it == "peers"))
            {
                // Skip files that stay on purpose: facts about this kernel and the peers, and empty lock files.
                into.push(path.display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    host.run(|| {
        walk(Path::new("/var/run/wireguard"), &mut found);
        walk(Path::new("/var/run/millrace"), &mut found);
        walk(Path::new("/run/millrace"), &mut found);
    })
    .unwrap();
    // Mostly the two are the same directory.
    for path in &mut found {
        *path = path.replacen("/var/run/", "/run/", 1);
    }
    found.sort();
    found.dedup();
    found
}
