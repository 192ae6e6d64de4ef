//! A router with two tunnels, two devices behind it, and a server that reports through which device a packet arrived:
//! for tests of routing policies.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::peer::{Keys, PeerOptions, RunningPeer, WgPeer, WireGuardPeer};
use crate::{Host, Process, tools};
use serde_json::Value;

use crate::acceptance::dns::NameServer;
use crate::acceptance::guarded::Guarded;
use crate::acceptance::{Directory, PATIENCE, PROGRAM, interface, ip, millrace, until, usable};

/// Addresses outside, besides those of [`Guarded`].
pub const OTHERS: [&str; 16] = [
    "203.0.113.20",
    "203.0.113.30",
    "203.0.113.31",
    "203.0.113.40",
    "203.0.113.41",
    "203.0.113.42",
    "203.0.113.43",
    "198.18.0.9",
    "100.64.0.9",
    "2001:db8:f::20",
    "2001:db8:f::30",
    "2001:db8:f::40",
    "2001:db8:f::41",
    "2001:db8:f::42",
    "2001:db8:f::43",
    "2001:db8:e::9",
];

/// The server's echo port; packets to ports 7001 to 7999 are redirected to it.
const PORT: u16 = 7000;

/// How long to wait for an answer that must not come, and for each attempt at one that must.
const MOMENT: Duration = Duration::from_millis(250);

/// A [`Guarded`] set-up whose server records the arrival device of packets.
pub struct Policed {
    /// The hosts and links.
    pub world: Guarded,
    next: AtomicU16,
    stop: Arc<AtomicBool>,
}

impl Default for Policed {
    fn default() -> Self {
        Self::new()
    }
}

impl Policed {
    /// Sets up everything except the tunnels.
    pub fn new() -> Self {
        let world = Guarded::new();
        let server = &world.server;
        for address in OTHERS {
            let bits = if ip(address).is_ipv4() { 32 } else { 128 };
            server.add_address("lo", ip(address), bits).unwrap();
        }
        let seen = "table inet seen {\n\
            set asked { type ifname . inet_service; size 4096; flags dynamic; }\n\
            set answered { type ifname . inet_service; size 4096; flags dynamic; }\n\
            chain first { type filter hook prerouting priority -400;\n\
            meta l4proto { tcp, udp } th dport 7001-7999 update @asked { iifname . th dport }\n\
            meta l4proto { tcp, udp } th sport 9001-9099 update @answered { iifname . th sport }\n}\n\
            chain nat { type nat hook prerouting priority -100;\n\
            meta l4proto { tcp, udp } th dport 7001-7999 redirect to :7000\n}\n}\n";
        server.nft(seen).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let all = Self {
            next: AtomicU16::new(7001),
            stop: Arc::clone(&stop),
            world,
        };
        for (host, port) in [
            (&all.world.server, PORT),
            (&all.world.pc, 9000),
            (&all.world.phone, 9000),
        ] {
            echo(host, port, &stop);
        }
        all
    }

    /// Starts two Millrace tunnels from the router to the server, without routes: `mr-us` and `mr-nl`.
    pub fn tunnels(&self, directory: &Directory) -> Vec<(RunningPeer<'_>, Process)> {
        let tunnels = [(1, "mr-us"), (2, "mr-nl")];
        let made = tunnels.map(|(number, name)| {
            let far = self.far_end(directory, number, name, "Table = off\n");
            (far, self.up(directory, name))
        });
        made.into_iter().collect()
    }

    /// Starts the far end of a tunnel, `wgNUMBER` on the server, and writes the router's file for it.
    pub fn far_end(
        &self,
        directory: &Directory,
        number: u8,
        name: &str,
        more: &str,
    ) -> RunningPeer<'_> {
        let server = &self.world.server;
        let generate = || Keys::generate(server).unwrap();
        let (ours, theirs) = (generate(), generate());
        let of = |host: u8| {
            [
                format!("10.{number}.0.{host}"),
                format!("fd0{number}::{host}"),
            ]
        };
        let [four, six] = of(2);
        let peer = WgPeer::new(&ours.public)
            .allow(ip(&four), 32)
            .allow(ip(&six), 128);
        let port = 51820 + u16::from(number);
        let running = millrace()
            .start(server, &format!("wg{number}"), &PeerOptions::default())
            .unwrap();
        running
            .configure(&interface(&theirs, port, vec![peer]))
            .unwrap();
        let [four_b, six_b] = of(1);
        running
            .bring_up(&[(ip(&four_b), 24), (ip(&six_b), 64)], 1420)
            .unwrap();
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = {four}/32, {six}/128\n{more}\
             [Peer]\nPublicKey = {}\nEndpoint = 192.168.3.2:{port}\nAllowedIPs = 0.0.0.0/0, ::/0\n",
            ours.private, theirs.public
        );
        directory.file(&format!("{name}.conf"), &text);
        running
    }

    /// Brings a tunnel up on the router.
    pub fn up(&self, directory: &Directory, name: &str) -> Process {
        self.world.tunnel(directory, name)
    }

    /// Returns the server's device on which a datagram and a stream from a host arrived. Both must be answered;
    /// `None` if neither was answered and neither arrived.
    pub fn way(&self, host: &Host, to: &str) -> Option<String> {
        self.way_from(host, None, to)
    }

    /// Returns the result of [`Self::way`] for packets from the given address of the host.
    pub fn way_from(&self, host: &Host, from: Option<&str>, to: &str) -> Option<String> {
        let port = self.next.fetch_add(2, Ordering::Relaxed);
        let target = SocketAddr::new(ip(to), port);
        let any = if target.is_ipv4() { "0.0.0.0" } else { "::" };
        let from = ip(from.unwrap_or(any));
        let asked = self.persists(port, || host.run(|| ask(from, target, 9)).unwrap());
        let at = SocketAddr::new(ip(to), port + 1);
        let stream = self.persists(port + 1, || host.run(|| stream(at)).unwrap());
        let came = [port, port + 1].map(|port| self.seen("asked", port));
        if !asked && !stream {
            assert_eq!(came, [None, None], "{to} was not answered, and yet it came");
            return None;
        }
        assert!(
            asked && stream && came[0] == came[1],
            "{to}: {asked} {stream} {came:?}"
        );
        came[0].clone()
    }

    /// Whether an attempt succeeds. If its packets reach the server, retries until [`PATIENCE`] is over, because a
    /// busy machine may answer late.
    fn persists(&self, port: u16, mut attempt: impl FnMut() -> bool) -> bool {
        let end = Instant::now() + PATIENCE;
        let goes_on = || self.seen("asked", port).is_some() && Instant::now() < end;
        loop {
            if attempt() {
                return true;
            }
            if !goes_on() {
                return false;
            }
        }
    }

    /// Sends from the server, at address `from`, and returns the device on which the answer arrived.
    pub fn answer(&self, from: &str, to: &str, port: u16) -> Option<String> {
        let target = SocketAddr::new(ip(to), port);
        let server = &self.world.server;
        until("an answer to the server", || {
            server.run(|| ask(ip(from), target, 1)).unwrap()
        });
        self.seen("answered", port)
    }

    /// Deletes every table of the packet filter, one after another, as `service firewall stop` of OpenWrt does.
    pub fn stop_firewall(&self) {
        let router = &self.world.router;
        let list = router.output("nft", ["list", "tables"]).unwrap();
        for line in list.lines() {
            let words = line.strip_prefix("table ").unwrap().split(' ');
            // A table that the policy has made anew meanwhile is deleted as well, and one that is gone is no error.
            let command = router.command("nft").args(["delete", "table"]).args(words);
            command.exit().unwrap();
        }
    }

    /// Makes the tables of the router's own firewall again, after [`Self::stop_firewall`].
    pub fn start_firewall(&self) {
        self.world.filter();
    }

    /// Makes the router answer datagrams to one of its own addresses, from that address.
    pub fn listen(&self, address: &str, port: u16) {
        usable(&self.world.router, address);
        let at = SocketAddr::new(ip(address), port);
        echo_datagrams(&self.world.router, at, &self.stop);
    }

    /// Forgets the arrival devices of answers.
    pub fn forget_answers(&self) {
        let words = ["flush", "set", "inet", "seen", "answered"];
        self.world.server.output("nft", words).unwrap();
    }

    /// Whether a packet to the port reached the server through that device.
    pub fn came(&self, device: &str, port: u16) -> bool {
        let words = ["list", "set", "inet", "seen", "asked"];
        let text = self.world.server.output("nft", words).unwrap();
        text.contains(&format!("\"{device}\" . {port}"))
    }

    fn seen(&self, set: &str, port: u16) -> Option<String> {
        let words = ["list", "set", "inet", "seen", set];
        let text = self.world.server.output("nft", words).unwrap();
        let end = format!("\" . {port}");
        let mut elements = text.split(['{', '}', ',']).map(str::trim);
        let found = elements.find_map(|it| it.strip_suffix(end.as_str()))?;
        Some(found.trim_start_matches('"').to_owned())
    }

    /// The hardware address of a host's device.
    pub fn mac(&self, host: &Host) -> String {
        let links = host.netlink().unwrap().links().unwrap();
        let link = links.iter().find(|it| it.name == "eth0").unwrap();
        let bytes: Vec<String> = link.mac.iter().map(|it| format!("{it:02x}")).collect();
        bytes.join(":")
    }

    /// Adds an address to a device, as privacy extensions do.
    pub fn add_address(&self, host: &Host, address: &str) {
        let bits = if ip(address).is_ipv4() { 24 } else { 64 };
        host.add_address("eth0", ip(address), bits).unwrap();
        usable(host, address);
    }

    /// Makes a host ask the router's resolver for both kinds of addresses of a name, until it gets them.
    pub fn resolve(&self, host: &Host, server: &str, name: &str) {
        for kind in [1_u8, 28] {
            let mut query = vec![0x12, kind, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in name.split('.') {
                query.push(u8::try_from(label.len()).unwrap());
                query.extend(label.bytes());
            }
            query.extend([0, 0, kind, 0, 1]);
            let target = SocketAddr::new(ip(server), 53);
            let exchange = || -> io::Result<bool> {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.set_read_timeout(Some(MOMENT))?;
                socket.send_to(&query, target)?;
                let mut answer = [0; 512];
                let count = socket.recv(&mut answer)?;
                // The number of addresses stands in the bytes 6 and 7.
                Ok(count > 12 && answer[7] > 0)
            };
            until("an answer of dnsmasq", || {
                host.run(exchange).unwrap().unwrap_or(false)
            });
        }
    }

    /// Runs `millrace policy` on the router; returns exit code and output.
    pub fn policy(&self, words: &[&str]) -> (Option<i32>, String) {
        let command = self.world.router.command(PROGRAM).arg("policy");
        let exit = command.args(words).exit().unwrap();
        (exit.status.code(), exit.stdout + &exit.stderr)
    }

    /// Runs `millrace policy status`; returns its output and exit code.
    pub fn status(&self) -> (Value, Option<i32>) {
        let command = self.world.router.command(PROGRAM);
        let exit = command.args(["policy", "status", "--json"]).exit().unwrap();
        (
            serde_json::from_str(&exit.stdout).unwrap(),
            exit.status.code(),
        )
    }

    /// Waits until the whole policy is in place, and packets of an entry take this route in both families.
    pub fn settled(&self, entry: &str, way: &str) {
        until(way, || {
            let (report, code) = self.status();
            let mut entries = report["entries"].as_array().unwrap().iter();
            let found = entries.find(|it| it["name"] == entry).unwrap();
            let is = |family: &str| found[family].as_str().unwrap().starts_with(way);
            code == Some(0) && is("ipv4") && is("ipv6")
        });
    }

    /// Starts a process that keeps the policy in place.
    pub fn watch(&self, file: &str) -> Process {
        let words = ["policy", "watch", "--settings", file];
        let mut watch = self
            .world
            .router
            .command(PROGRAM)
            .args(words)
            .spawn()
            .unwrap();
        let told = |line: &str| line.contains("policy:");
        watch
            .wait_for_line("its first look", PATIENCE, told)
            .unwrap();
        watch
    }
}

/// `dnsmasq` for the router, with a restart script that records each restart.
pub struct Resolver {
    /// Its files, and those of the settings.
    pub directory: Directory,
    _names: NameServer,
}

impl Resolver {
    /// Starts `dnsmasq` on the router, and a name server outside.
    pub fn start(all: &Policed) -> Self {
        let directory = Directory::new();
        let names = NameServer::start(&all.world.server, ip("192.168.3.2"));
        for (name, number) in [
            ("example.org", 40),
            ("www.example.org", 41),
            ("bank.example", 42),
            ("notexample.org", 43),
        ] {
            let [four, six] = both(number);
            names.set(name, &[ip(&four), ip(&six)]);
        }
        let place = directory.path().display().to_string();
        fs::create_dir(directory.path().join("dnsmasq.d")).unwrap();
        directory.file(
            "dnsmasq.conf",
            &format!(
                "no-resolv\nno-hosts\nserver=192.168.3.2\nuser=root\ngroup=root\n\
                 pid-file={place}/pid\nconf-dir={place}/dnsmasq.d\n"
            ),
        );
        let program = tools::find("dnsmasq").unwrap();
        directory.file(
            "restart",
            &format!(
                "pid=$(cat {place}/pid 2>/dev/null)\n\
                 if [ -n \"$pid\" ]; then kill \"$pid\"\n\
                 while kill -0 \"$pid\" 2>/dev/null; do sleep 0.02; done\nfi\n\
                 {} --conf-file={place}/dnsmasq.conf && echo again >> {place}/restarts\n",
                program.display()
            ),
        );
        let resolver = Self {
            directory,
            _names: names,
        };
        let script = resolver.path("restart");
        all.world.router.output("sh", [script]).unwrap();
        resolver
    }

    /// The path of one of its files.
    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// How often it was started.
    pub fn restarts(&self) -> usize {
        fs::read_to_string(self.path("restarts"))
            .unwrap()
            .lines()
            .count()
    }

    /// Writes settings with these entries.
    pub fn settings(&self, entries: &str) -> String {
        let text = format!(
            "lan = [\"br-lan\", \"br-guest\"]\nleases = \"{}\"\ndnsmasq = \"{}\"\n\
             restart = [\"sh\", \"{}\"]\n{entries}",
            self.path("leases"),
            self.path("dnsmasq.d"),
            self.path("restart")
        );
        let path = self.directory.file("policy.toml", &text);
        path.display().to_string()
    }
}

/// Two Internet addresses that end with the number, one for each family.
pub fn both(number: u8) -> [String; 2] {
    [
        format!("203.0.113.{number}"),
        format!("2001:db8:f::{number}"),
    ]
}

impl Drop for Policed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Echoes datagrams and streams at a host's port.
fn echo(host: &Host, port: u16, stop: &Arc<AtomicBool>) {
    echo_datagrams(host, SocketAddr::new(ip("::"), port), stop);
    echo_streams(host, port, stop);
}

fn echo_datagrams(host: &Host, at: SocketAddr, stop: &Arc<AtomicBool>) {
    let socket = host.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    let theirs = Arc::clone(stop);
    let datagrams = move || -> io::Result<()> {
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let mut buffer = [0; 512];
        while !theirs.load(Ordering::Relaxed) {
            if let Ok((count, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..count], from);
            }
        }
        Ok(())
    };
    host.spawn("datagrams", datagrams).unwrap();
}

fn echo_streams(host: &Host, port: u16, stop: &Arc<AtomicBool>) {
    let theirs = Arc::clone(stop);
    let streams = move || -> io::Result<()> {
        let listener = TcpListener::bind(("::", port))?;
        listener.set_nonblocking(true)?;
        while !theirs.load(Ordering::Relaxed) {
            let Ok((mut stream, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(2));
                continue;
            };
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(8 * MOMENT))?;
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_ok() {
                let _ = stream.write_all(&byte);
            }
        }
        Ok(())
    };
    host.spawn("streams", streams).unwrap();
}

/// Whether the target itself answers a datagram, after at most `tries` attempts.
fn ask(from: IpAddr, target: SocketAddr, tries: usize) -> bool {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.set_read_timeout(Some(MOMENT)).unwrap();
    (0..tries).any(|_| {
        let mut buffer = [0; 16];
        // An ICMP error ("unreachable") is final.
        let sent = socket.send_to(&[7; 8], target);
        sent.is_ok() && matches!(socket.recv_from(&mut buffer), Ok((8, by)) if by == target)
    })
}

/// Whether a stream connects and carries a byte both ways.
fn stream(target: SocketAddr) -> bool {
    let exchange = || -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&target, 4 * MOMENT)?;
        stream.set_read_timeout(Some(4 * MOMENT))?;
        stream.write_all(&[7])?;
        stream.read_exact(&mut [0])
    };
    (0..2).any(|_| exchange().is_ok())
}
