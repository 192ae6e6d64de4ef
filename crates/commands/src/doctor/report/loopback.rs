//! Measures a tunnel between two private network namespaces. Nothing of it is visible outside: the tunnels' devices,
//! files and sockets vanish with the thread and its two processes.

use crate::{Outcome, keys, up};
use config::types::Key32;
use netio::netlink::{Netlink, NetlinkError, VethEnd};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use report::{Loopback, NoLoopback, Protocol};
use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The hidden option of `doctor` by which this program runs an end.
pub(super) const END: &str = "report-end";

/// Time of the measurement.
const TIME: Duration = Duration::from_secs(3);

/// The longest time until the first connection.
const PATIENCE: Duration = Duration::from_secs(15);

/// The longest time without progress.
const SILENCE: Duration = Duration::from_secs(5);

/// The port inside the tunnel on which the far end listens.
const PORT: u16 = 5001;

/// Bytes of one write.
const CHUNK: usize = 128 << 10;

/// Names of the ends, each of its tunnel's file and device.
const NAMES: [&str; 2] = ["near", "far"];

/// Devices outside the tunnel.
const OUTER: [&str; 2] = ["veth-near", "veth-far"];

/// Directories with settings and files of other tunnels, which the measured ones neither read nor write.
const KEPT: [&str; 2] = ["/etc/millrace", "/var/lib/millrace"];

/// The ends' addresses outside and inside the tunnel. No packet leaves the namespaces.
const OUTSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const INSIDE: [Ipv4Addr; 2] = [
    Ipv4Addr::new(198, 51, 100, 1),
    Ipv4Addr::new(198, 51, 100, 2),
];

/// Why nothing was measured. Only `why` gets into the report.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) why: NoLoopback,
    /// The system's error, if there was one.
    error: Option<String>,
}

impl Failure {
    /// A failure by an error of the system.
    fn by<E: Display>(why: NoLoopback) -> impl Fn(E) -> Self + Copy {
        move |error| Self {
            why,
            error: Some(error.to_string()),
        }
    }
}

impl From<NoLoopback> for Failure {
    fn from(why: NoLoopback) -> Self {
        Self { why, error: None }
    }
}

impl Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self.why {
            NoLoopback::NotRoot => "run this as root",
            NoLoopback::NoNamespaces => "the kernel allows no private network namespaces",
            NoLoopback::NoVeth => {
                "the kernel has no veth; modprobe veth; on OpenWrt install kmod-veth"
            }
            NoLoopback::NoTunnel => "a tunnel ended at its start; run `millrace doctor`",
            NoLoopback::NoTraffic => "no packet came through the tunnel",
        })?;
        match &self.error {
            Some(error) => write!(out, " ({error})"),
            None => Ok(()),
        }
    }
}

/// Runs an end until it is killed; the kernel kills it when the measuring thread ends.
pub(super) fn end(file: &Path) -> Outcome {
    set_pdeathsig(Signal::SIGKILL)?;
    up::run(&up::command().try_get_matches_from([Path::new("up"), file])?)
}

/// Measures the throughput.
pub(super) fn measure() -> Result<Loopback, Failure> {
    if !Uid::effective().is_root() {
        return Err(NoLoopback::NotRoot.into());
    }
    // The thread's namespaces are of no use for anything else.
    let thread = thread::Builder::new().spawn(apart);
    thread
        .ok()
        .and_then(|it| it.join().ok())
        .unwrap_or_else(|| Err(NoLoopback::NoNamespaces.into()))
}

fn apart() -> Result<Loopback, Failure> {
    let no_namespaces = Failure::by::<io::Error>(NoLoopback::NoNamespaces);
    private_files().map_err(no_namespaces)?;
    let near = network().map_err(no_namespaces)?;
    let _far = network().map_err(no_namespaces)?;
    let [near_end, far_end] = OUTER.map(VethEnd::new);
    let veth =
        Netlink::open().and_then(|mut it| it.create_veth(near_end.inside(near.as_fd()), far_end));
    veth.map_err(Failure::by(NoLoopback::NoVeth))?;
    let keys = [keys::new(), keys::new()];
    // This thread is in the far namespace now, and this socket stays there.
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).map_err(no_namespaces)?;
    let mut far = End::start(1, &keys)?;
    setns(&near, CloneFlags::CLONE_NEWNET).map_err(Failure::by(NoLoopback::NoNamespaces))?;
    let mut near = End::start(0, &keys)?;
    let out = connect(&mut [&mut near, &mut far])?;
    let before = near.used().zip(far.used());
    let (bytes, time) = transfer(out, &listener).map_err(Failure::by(NoLoopback::NoTraffic))?;
    let after = near.used().zip(far.used());
    let used = after
        .zip(before)
        .map(|(now, then)| now.0 + now.1 - then.0 - then.1);
    let milliseconds = time.as_millis().max(1) as u64;
    // Bits in a millisecond are kilobits in a second.
    let rate = bytes * 8 / milliseconds;
    Ok(Loopback {
        protocol: Protocol::WireGuard,
        kilobits_per_second: u32::try_from(rate).unwrap_or(u32::MAX),
        milliseconds: u32::try_from(milliseconds).unwrap_or(u32::MAX),
        processor_milliseconds: used.and_then(|it| u32::try_from(it).ok()),
    })
}

/// Moves the thread into a mount namespace, where the directories of running tunnels, of settings and of the clock's
/// floor are its own.
fn private_files() -> io::Result<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    let run = fs::canonicalize("/run")?;
    let other = fs::canonicalize("/var/run")?;
    let other = Some(other).filter(|it| *it != run);
    let kept = KEPT.iter().filter_map(|it| fs::canonicalize(it).ok());
    for directory in iter::once(run).chain(other).chain(kept) {
        mount(
            Some("tmpfs"),
            &directory,
            Some("tmpfs"),
            MsFlags::empty(),
            NONE,
        )?;
    }
    Ok(())
}

/// Moves the thread into a new network namespace.
fn network() -> io::Result<File> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    File::open("/proc/thread-self/ns/net")
}

/// One end: its process.
struct End(Child);

impl End {
    /// Starts an end in the thread's namespace.
    fn start(number: usize, keys: &[Key32; 2]) -> Result<Self, Failure> {
        let outside = || -> Result<(), NetlinkError> {
            let mut netlink = Netlink::open()?;
            let index = netlink.index_of(OUTER[number])?;
            netlink.add_address(index, IpAddr::V4(OUTSIDE[number]), 30, None)?;
            netlink.set_up(index)
        };
        outside().map_err(Failure::by(NoLoopback::NoVeth))?;
        let other = 1 - number;
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = {}/30\nListenPort = {PORT}\nTable = off\n\
             [Peer]\nPublicKey = {}\nEndpoint = {}:{PORT}\nAllowedIPs = {}/32\n",
            keys[number].to_base64().as_str(),
            INSIDE[number],
            keys::public_of(&keys[other]).to_base64().as_str(),
            OUTSIDE[other],
            INSIDE[other],
        );
        let file = format!("/run/{}.conf", NAMES[number]);
        let written = host::written_file::replace(Path::new(&file), text.as_bytes(), 0o600);
        written.map_err(Failure::by(NoLoopback::NoTunnel))?;
        let child = Command::new("/proc/self/exe")
            .args(["doctor", &format!("--{END}"), &file])
            // A service manager waits for this process.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child.map(Self).map_err(Failure::by(NoLoopback::NoTunnel))
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Processor time that the process has used so far, in milliseconds.
    fn used(&self) -> Option<u64> {
        // proc_pid_stat(5): times in hundredths of a second, on every architecture of routers.
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        let (_, fields) = text.rsplit_once(") ")?;
        let times = fields.split_whitespace().skip(11).take(2);
        times
            .map(|it| it.parse::<u64>().ok())
            .sum::<Option<u64>>()
            .map(|it| it * 10)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // It has no state outside its namespaces.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Connects through the tunnel.
fn connect(ends: &mut [&mut End]) -> Result<TcpStream, NoLoopback> {
    let to = SocketAddr::from((INSIDE[1], PORT));
    let begun = Instant::now();
    loop {
        if let Ok(stream) = TcpStream::connect_timeout(&to, Duration::from_secs(1)) {
            return Ok(stream);
        }
        if ends.iter_mut().any(|it| it.has_ended()) {
            return Err(NoLoopback::NoTunnel);
        }
        if begun.elapsed() > PATIENCE {
            return Err(NoLoopback::NoTraffic);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Sends for a while, and returns the bytes that arrived and the time.
fn transfer(mut out: TcpStream, listener: &TcpListener) -> io::Result<(u64, Duration)> {
    let (mut into, _) = listener.accept()?;
    out.set_write_timeout(Some(SILENCE))?;
    into.set_read_timeout(Some(SILENCE))?;
    let begun = Instant::now();
    let sender = thread::Builder::new().spawn(move || {
        let chunk = vec![0; CHUNK];
        while begun.elapsed() < TIME {
            out.write_all(&chunk)?;
        }
        out.shutdown(Shutdown::Write)
    })?;
    let mut chunk = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        match into.read(&mut chunk)? {
            0 => break,
            count => bytes += count as u64,
        }
    }
    let time = begun.elapsed();
    let sent = sender.join().map_err(|_| io::ErrorKind::Other)?;
    sent.map(|()| (bytes, time))
}
