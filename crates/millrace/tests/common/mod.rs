//! What the acceptance tests share: two hosts, a tunnel between them, and content that is compared.
//!
//! Everything is seen from outside: the program itself, `wg`, `ping`, sockets and frames.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses its own part of what is here"
)]

mod content;
pub mod dns;
pub mod openvpn;
pub mod pairwise;
mod ping;
pub mod world;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::load::{PingOptions, PingReport, ping};
use lab::peer::{
    Keys, Millrace, PeerOptions, PeerStatus, PresharedKey, RunningPeer, WgInterface, WgPeer,
    WireGuardPeer, WireguardGo, WireguardGoPackaged,
};
use lab::{Host, Link, LinkOptions, tools};
use serde_json::Value;

pub use content::{tcp_both_ways, tcp_both_ways_while, udp_both_ways};
pub use ping::{internet_checksum, pings, pings_of, reaches};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_millrace");

/// How long anything may take before a test gives up: a busy machine is slow, a broken program is
/// forever.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Name of the tunnel's interface in both hosts, which are private.
pub const WG: &str = "wg0";

/// Listen ports of the two ends.
pub const PORT_A: u16 = 1001;
/// See [`PORT_A`].
pub const PORT_B: u16 = 1002;

/// Whether tunnels can be made here; if not, it is noted.
#[track_caller]
pub fn ready() -> bool {
    lab::may_enter() && lab::require(tools::tun().and_then(|()| tools::find("wg"))).is_some()
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The program under test, as a peer.
pub fn millrace() -> Millrace {
    Millrace::new(PROGRAM)
}

/// The newest wireguard-go, or else the packaged one; without either it is noted.
#[track_caller]
pub fn wireguard_go() -> Option<Box<dyn WireGuardPeer>> {
    if WireguardGo.available().is_ok() {
        return Some(Box::new(WireguardGo));
    }
    lab::require(WireguardGoPackaged.available())?;
    Some(Box::new(WireguardGoPackaged))
}

/// Waits until `condition` is true.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "{what}: never came true");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until something is there, and returns it.
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = look();
        found.is_some()
    });
    found.unwrap()
}

/// Two private hosts on one cable: A is 192.168.1.1 and fd00:1::1, B is number 2.
pub struct Net {
    pub a: Host,
    pub b: Host,
    pub link: LinkOptions,
}

impl Net {
    pub fn new() -> Self {
        Self::with(LinkOptions::numbered(1))
    }

    pub fn with(link: LinkOptions) -> Self {
        let (a, b) = Self::hosts();
        Link::new(&a, "eth0", &b, "eth0", &link).unwrap();
        Self { a, b, link }
    }

    /// The two hosts alone.
    pub fn hosts() -> (Host, Host) {
        let hosts = (Host::private("a").unwrap(), Host::private("b").unwrap());
        for host in [&hosts.0, &hosts.1] {
            // The machine's default may be strict, and these tests change addresses and ways.
            host.sysctl("net/ipv4/conf/all/rp_filter", "0").unwrap();
            host.sysctl("net/ipv4/conf/default/rp_filter", "0").unwrap();
        }
        hosts
    }
}

/// How a tunnel shall be.
pub struct Setup {
    /// The programs of both ends.
    pub a: Box<dyn WireGuardPeer>,
    pub b: Box<dyn WireGuardPeer>,
    pub options_a: PeerOptions,
    pub options_b: PeerOptions,
    /// Outer family.
    pub v6: bool,
    pub mtu: u32,
    pub preshared: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            a: Box::new(millrace()),
            b: Box::new(millrace()),
            options_a: PeerOptions::default(),
            options_b: PeerOptions::default(),
            v6: false,
            mtu: 1420,
            preshared: false,
        }
    }
}

/// Settings of Millrace through the environment, as `wg-quick` needs it.
pub fn settings(text: &str) -> PeerOptions {
    PeerOptions {
        environment: vec![("MILLRACE_SET".to_owned(), text.to_owned())],
        ..PeerOptions::default()
    }
}

/// A tunnel between the hosts of a [`Net`]. End A knows where B is, B waits to be called. Inside, A is
/// 10.0.0.1 and fd01::1, B is number 2.
pub struct Tunnel<'h> {
    pub a: RunningPeer<'h>,
    pub b: RunningPeer<'h>,
    pub keys_a: Keys,
    pub keys_b: Keys,
}

/// Inner addresses.
pub const A4: &str = "10.0.0.1";
pub const B4: &str = "10.0.0.2";
pub const A6: &str = "fd01::1";
pub const B6: &str = "fd01::2";

impl<'h> Tunnel<'h> {
    pub fn new(net: &'h Net, setup: &Setup) -> Self {
        Self::between(&net.a, &net.b, &net.link, setup)
    }

    pub fn between(a: &'h Host, b: &'h Host, link: &LinkOptions, setup: &Setup) -> Self {
        let (keys_a, keys_b) = (Keys::generate(a).unwrap(), Keys::generate(b).unwrap());
        let psk = setup.preshared.then(|| PresharedKey::generate(a).unwrap());
        let at_a = setup.a.start(a, WG, &setup.options_a).unwrap();
        let at_b = setup.b.start(b, WG, &setup.options_b).unwrap();
        let to = if setup.v6 { link.b6() } else { link.b4() };
        let mut b_of_a = WgPeer::new(&keys_b.public)
            .at((to, PORT_B).into())
            .allow(ip(B4), 32)
            .allow(ip(B6), 128);
        let mut a_of_b = WgPeer::new(&keys_a.public)
            .allow(ip(A4), 32)
            .allow(ip(A6), 128);
        b_of_a.preshared_key = psk.clone();
        a_of_b.preshared_key = psk;
        at_a.configure(&interface(&keys_a, PORT_A, vec![b_of_a]))
            .unwrap();
        at_b.configure(&interface(&keys_b, PORT_B, vec![a_of_b]))
            .unwrap();
        at_a.bring_up(&[(ip(A4), 24), (ip(A6), 64)], setup.mtu)
            .unwrap();
        at_b.bring_up(&[(ip(B4), 24), (ip(B6), 64)], setup.mtu)
            .unwrap();
        usable(a, A6);
        usable(b, B6);
        Self {
            a: at_a,
            b: at_b,
            keys_a,
            keys_b,
        }
    }

    /// What A knows of B.
    pub fn at_a(&self) -> PeerStatus {
        peer(&self.a, &self.keys_b)
    }

    /// What B knows of A.
    pub fn at_b(&self) -> PeerStatus {
        peer(&self.b, &self.keys_a)
    }

    /// Waits until both counters of both ends have stood still for some looks in a row, and returns
    /// (received, sent) of A and of B.
    pub fn settled(&self) -> [(u64, u64); 2] {
        let look = || [self.at_a(), self.at_b()].map(|status| (status.received, status.sent));
        let (mut last, mut same) = (look(), 0);
        until("counters that stand still", || {
            let now = look();
            same = if now == last { same + 1 } else { 0 };
            last = now;
            same >= 10
        });
        last
    }
}

/// What one end knows of the peer with these keys.
pub fn peer(at: &RunningPeer<'_>, keys: &Keys) -> PeerStatus {
    let status = at.status().unwrap();
    status.peer(&keys.public).unwrap().clone()
}

pub fn interface(keys: &Keys, port: u16, peers: Vec<WgPeer>) -> WgInterface {
    WgInterface {
        keys: keys.clone(),
        listen_port: Some(port),
        fwmark: None,
        peers,
    }
}

/// Waits until a host takes packets to an address of its own: the kernel makes an IPv6 address usable a
/// moment after it was added.
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

/// Asserts that a ping is not answered.
pub fn no_ping(host: &Host, target: &str) -> PingReport {
    let report = ping(host, ip(target), &PingOptions::count(1)).unwrap();
    assert_eq!(report.received, 0, "{target}: {report:?}");
    report
}

/// What `millrace status IFNAME --json` says.
pub fn status_of(host: &Host, interface: &str) -> Value {
    let text = host
        .output(PROGRAM, ["status", interface, "--json", "--no-rate"])
        .unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all[0].clone()
}

/// How many packets the program has dropped for one reason.
pub fn drops(host: &Host, reason: &str) -> u64 {
    let status = status_of(host, WG);
    status["dataplane"]["drops"][reason]
        .as_u64()
        .unwrap_or_else(|| panic!("no reason {reason} in {status}"))
}

/// Speaks the UAPI itself and returns the answer, for what the installed `wg` has no word for.
pub fn uapi(host: &Host, interface: &str, request: &str) -> String {
    use std::os::unix::net::UnixStream;
    host.run(|| {
        let mut stream = UnixStream::connect(format!("/var/run/wireguard/{interface}.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        // An answer ends with an empty line; the connection stays open.
        while !answer.ends_with(b"\n\n") {
            match stream.read(&mut buffer)? {
                0 => break,
                count => answer.extend_from_slice(&buffer[..count]),
            }
        }
        io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    })
    .unwrap()
    .unwrap()
}

/// A key as the UAPI writes it.
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

/// A process that can open no more files than the few whose numbers are free, until this value is dropped.
pub struct NoDescriptors<'h> {
    host: &'h Host,
    process: u32,
    /// How many it can open still.
    pub free: usize,
}

impl<'h> NoDescriptors<'h> {
    pub fn of(host: &'h Host, process: u32) -> Self {
        let all = fs::read_dir(format!("/proc/{process}/fd"))
            .unwrap()
            .flatten();
        let numbers: Vec<usize> = all
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        let end = numbers.iter().max().unwrap() + 1;
        let limited = Self {
            host,
            process,
            free: end - numbers.len(),
        };
        limited.limit(end);
        limited
    }

    fn limit(&self, soft: usize) {
        let process = self.process.to_string();
        let limit = format!("--nofile={soft}:4096");
        self.host
            .output("prlimit", ["--pid", &process, &limit])
            .unwrap();
    }
}

impl Drop for NoDescriptors<'_> {
    fn drop(&mut self) {
        self.limit(4096);
    }
}

/// A directory of this test's own, gone with the value.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("millrace-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file that only we can read, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The processes that run inside a host.
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
            } else {
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
