//! A router with two devices behind it, a server outside, and steady traffic from the devices: for tests of leaks
//! outside the tunnel.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::peer::{Keys, PeerOptions, RunningPeer, WgPeer, WireGuardPeer};
use crate::{Host, Link, LinkOptions, Process, Router};
use serde_json::Value;

use super::{Directory, PATIENCE, PROGRAM, interface, ip, millrace, until, until_some};

/// Addresses outside, which a tunnel also leads to.
pub const FAR: [&str; 2] = ["203.0.113.9", "2001:db8:f::9"];

/// Destination ports of the devices' packets, UDP and TCP, which tell them from the tunnel's own packets.
const PORTS: [u16; 2] = [9, 7777];

/// Number of packets to send in each state.
pub const SOME: u64 = 300;

/// The server's uplinks and tunnel interfaces, as `nft` sets. Only some tests have a second uplink.
const UPLINKS: &str = "{ \"eth0\", \"lte\" }";
const TUNNELS: &str = "{ \"wg0\", \"ovpn0\", \"pptp0\" }";

/// The kinds of packets, in the order of [`Counts`].
pub const KINDS: [&str; 4] = ["udp4", "tcp4", "udp6", "tcp6"];

/// Excludes resets: the router itself sends them for connections that it has forgotten.
const NO_RESET: &str = "tcp flags & rst == 0";

/// Number of packets of each of [`KINDS`].
pub type Counts = [u64; 4];

/// ```text
/// pc    [eth0 192.168.1.1]--[192.168.1.2 br-lan  ]
///                                                 router [wan 192.168.3.1]--[192.168.3.2 eth0] server, 203.0.113.9
/// phone [eth0 192.168.2.1]--[192.168.2.2 br-guest]
/// ```
///
/// IPv6 is laid out the same way, with fd00:1:: to fd00:3:: and 2001:db8:f::9.
pub struct Guarded {
    /// First device of the LAN.
    pub pc: Host,
    /// The second device, in another network.
    pub phone: Host,
    /// The guarded router.
    pub router: Router,
    /// The host outside.
    pub server: Host,
    stop: Arc<AtomicBool>,
}

impl Default for Guarded {
    fn default() -> Self {
        Self::new()
    }
}

impl Guarded {
    /// Makes the hosts and all links.
    pub fn new() -> Self {
        let all = Self::unplugged();
        all.plug_lan();
        all.plug_wan();
        all
    }

    /// Makes the hosts without links, with their counters and servers.
    pub fn unplugged() -> Self {
        let all = Self {
            pc: Host::new("pc").unwrap(),
            phone: Host::new("phone").unwrap(),
            router: Router::of(Host::private("router").unwrap()).unwrap(),
            server: Host::private("server").unwrap(),
            stop: Arc::default(),
        };
        for far in FAR {
            let bits = if ip(far).is_ipv4() { 32 } else { 128 };
            all.server.add_address("lo", ip(far), bits).unwrap();
        }
        all.server
            .sysctl("net/ipv4/conf/all/rp_filter", "0")
            .unwrap();
        all.server
            .sysctl("net/ipv4/conf/default/rp_filter", "0")
            .unwrap();
        all.server
            .nft(&counting(&[("clear", UPLINKS), ("through", TUNNELS)]))
            .unwrap();
        all.filter();
        let stop = Arc::clone(&all.stop);
        all.server.spawn("sink", move || sink(&stop)).unwrap();
        all
    }

    /// Makes the router's counters, and the table that masquerades.
    pub fn filter(&self) {
        let lan = counting(&[("pc", "\"br-lan\""), ("phone", "\"br-guest\"")]);
        self.router.nft(&lan).unwrap();
        let nat = "table inet nat {\n counter forwarded { }\n\
            chain postrouting {\n type nat hook postrouting priority 100;\n\
            oifname { \"wan\", \"mr-*\", \"ovpn0\" } masquerade\n }\n\
            chain last {\n type filter hook postrouting priority 300;\n\
            iifname { \"br-lan\", \"br-guest\" } oifname \"wan\" counter name forwarded\n }\n }\n";
        self.router.nft(nat).unwrap();
    }

    /// Joins the devices to the router.
    pub fn plug_lan(&self) {
        let lan = [(1, &self.pc, "br-lan"), (2, &self.phone, "br-guest")];
        for (number, host, device) in lan {
            let link = LinkOptions::numbered(number);
            Link::new(host, "eth0", &self.router, device, &link).unwrap();
            for way in [link.b4(), link.b6()] {
                host.add_default_route(way).unwrap();
            }
        }
    }

    /// Joins the devices to the router. The first uses port `lan1` of the bridge `br-lan`, which has the port's
    /// hardware address, as bridges do.
    pub fn plug_bridge(&self) {
        let link = LinkOptions::numbered(2);
        Link::new(&self.phone, "eth0", &self.router, "br-guest", &link).unwrap();
        for way in [link.b4(), link.b6()] {
            self.phone.add_default_route(way).unwrap();
        }
        Link::new(&self.pc, "eth0", &self.router, "lan1", &LinkOptions::bare()).unwrap();
        let mac = self.mac("lan1");
        self.ip(&format!(
            "link add br-lan type bridge\nlink set br-lan address {mac}\nlink set lan1 master br-lan\nlink set br-lan up"
        ));
        for (host, device, own) in [(&self.pc, "eth0", 1), (&*self.router, "br-lan", 2)] {
            host.add_address(device, ip(&format!("192.168.1.{own}")), 24)
                .unwrap();
            host.add_address(device, ip(&format!("fd00:1::{own}")), 64)
                .unwrap();
        }
        for way in ["192.168.1.2", "fd00:1::2"] {
            self.pc.add_default_route(ip(way)).unwrap();
            // The device goes on sending while its router does not answer neighbour requests.
            self.knows(&self.pc, way, "lan1");
        }
    }

    /// The hardware address of a device of the router.
    fn mac(&self, device: &str) -> String {
        let links = self.router.netlink().unwrap().links().unwrap();
        let link = links.iter().find(|it| it.name == device).unwrap();
        let mac: Vec<String> = link.mac.iter().map(|it| format!("{it:02x}")).collect();
        mac.join(":")
    }

    /// Gives a device a fixed neighbour entry for the router's address, so that it never asks for it.
    pub fn knows(&self, host: &Host, router: &str, device: &str) {
        let mac = self.mac(device);
        let words = format!("neighbour replace {router} lladdr {mac} dev eth0 nud permanent");
        host.output("ip", words.split(' ')).unwrap();
    }

    /// Joins the router to the server outside, with default routes.
    pub fn plug_wan(&self) {
        let link = LinkOptions::numbered(3);
        Link::new(&self.router, "wan", &self.server, "eth0", &link).unwrap();
        for way in [link.b4(), link.b6()] {
            self.router.add_default_route(way).unwrap();
        }
    }

    /// Packets of the devices that reached the server outside any tunnel.
    pub fn clear(&self) -> Counts {
        counted(&self.server, "clear")
    }

    /// Packets of all kinds that the router has forwarded from the LAN to the WAN.
    pub fn forwarded(&self) -> u64 {
        let words = ["-j", "list", "counters", "table", "inet", "nat"];
        let text = self.router.output("nft", words).unwrap();
        let all: Value = serde_json::from_str(&text).unwrap();
        let mut entries = all["nftables"].as_array().unwrap().iter();
        let entry = entries.find_map(|it| it["counter"]["packets"].as_u64());
        entry.unwrap()
    }

    /// Packets of the devices that reached the server through a tunnel.
    pub fn through(&self) -> Counts {
        counted(&self.server, "through")
    }

    /// Packets that reached the router from a device, `pc` or `phone`.
    pub fn from(&self, device: &str) -> Counts {
        counted(&self.router, device)
    }

    /// Runs several commands of `ip` on the router, one per line.
    pub fn ip(&self, lines: &str) {
        let command = self.router.command("ip").args(["-batch", "-"]);
        command.output_with_input(&format!("{lines}\n")).unwrap();
    }

    /// Flushes all routing rules of both families and restores the kernel's default rules, as OpenWrt's netifd does
    /// at its start.
    pub fn flush_rules(&self) {
        let of = |family: &str| {
            format!(
                "-{family} rule flush\n-{family} rule add pref 32766 lookup main\n\
                 -{family} rule add pref 32767 lookup default\n"
            )
        };
        for family in ["4", "6"] {
            for line in of(family).lines() {
                self.router.output("ip", line.split(' ')).unwrap();
            }
        }
    }

    /// Sends datagrams from a device to an IPv4 and an IPv6 address, until the router has received `count` of each.
    pub fn send(&self, host: &Host, to: [&str; 2], count: u64) {
        let came = || self.from(host.name());
        let before = came();
        let send = || -> io::Result<()> {
            for to in to.map(ip) {
                let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
                let socket = UdpSocket::bind((ip(any), 0))?;
                socket.send_to(&[7; 64], (to, PORTS[0]))?;
            }
            Ok(())
        };
        until("packets at the router", || {
            host.run(send).unwrap().unwrap();
            let now = came();
            [0, 2]
                .iter()
                .all(|kind| now[*kind] >= before[*kind] + count)
        });
    }

    /// Adds and removes a TUN device, which the guard takes for a tunnel, while the devices send packets.
    pub fn device_cycles(&self, load: &Load, cycles: usize) {
        for _ in 0..cycles {
            self.ip(
                "tuntap add mr-plain mode tun\naddress add 10.99.0.2/32 dev mr-plain\n\
                 address add fd99::2/128 dev mr-plain nodad\nlink set mr-plain up",
            );
            load.wait(SOME);
            self.ip("link delete mr-plain");
            load.wait(SOME);
        }
    }

    /// Number of the devices' connections in the router's connection tracking.
    pub fn connections(&self) -> usize {
        let read = || std::fs::read_to_string("/proc/thread-self/net/nf_conntrack");
        let text = self.router.run(read).unwrap().unwrap();
        let [udp, tcp] = PORTS.map(|port| format!("dport={port} "));
        let lines = text.lines();
        lines
            .filter(|it| it.contains(&udp) || it.contains(&tcp))
            .count()
    }

    /// Starts the far end of a tunnel, and writes two files for the router: `mr-real` puts its routes into table 77,
    /// `mr-full` sets up everything by itself.
    pub fn far_end(&self, directory: &Directory) -> RunningPeer<'_> {
        let generate = || Keys::generate(&self.server).unwrap();
        let (ours, theirs) = (generate(), generate());
        let peer = WgPeer::new(&ours.public)
            .allow(ip("10.8.0.2"), 32)
            .allow(ip("fd08::2"), 128);
        let options = PeerOptions::default();
        let running = millrace().start(&self.server, "wg0", &options).unwrap();
        let configuration = interface(&theirs, 51820, vec![peer]);
        running.configure(&configuration).unwrap();
        let addresses = [(ip("10.8.0.1"), 24), (ip("fd08::1"), 64)];
        running.bring_up(&addresses, 1420).unwrap();
        for (name, table) in [("mr-real", "Table = 77\n"), ("mr-full", "")] {
            let text = format!(
                "[Interface]\nPrivateKey = {}\nAddress = 10.8.0.2/32, fd08::2/128\n{table}\
                 [Peer]\nPublicKey = {}\nEndpoint = 192.168.3.2:51820\nAllowedIPs = 0.0.0.0/0, ::/0\n",
                ours.private, theirs.public
            );
            directory.file(&format!("{name}.conf"), &text);
        }
        running
    }

    /// Brings up one of those two tunnels on the router.
    pub fn tunnel(&self, directory: &Directory, name: &str) -> Process {
        let file = directory.path().join(format!("{name}.conf"));
        let command = self.router.command(PROGRAM).args(["up", "--no-dns"]);
        let mut process = command.arg(file).spawn().unwrap();
        let up = |line: &str| line.contains("is up");
        process.wait_for_line("the tunnel", PATIENCE, up).unwrap();
        process
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Builds `nft` counters for packets by incoming device. Each pair is a name and a device or set of devices.
fn counting(sources: &[(&str, &str)]) -> String {
    let [udp, tcp] = PORTS;
    let matches = [
        format!("meta nfproto ipv4 udp dport {udp}"),
        format!("meta nfproto ipv4 tcp dport {tcp} {NO_RESET}"),
        format!("meta nfproto ipv6 udp dport {udp}"),
        format!("meta nfproto ipv6 tcp dport {tcp} {NO_RESET}"),
    ];
    let (mut counters, mut rules) = (String::new(), String::new());
    for (name, device) in sources {
        for (kind, matched) in KINDS.iter().zip(&matches) {
            counters += &format!("counter {name}_{kind} {{ }}\n");
            rules += &format!("iifname {device} {matched} counter name {name}_{kind}\n");
        }
    }
    format!(
        "table inet counting {{\n{counters}chain prerouting {{\n\
         type filter hook prerouting priority -400;\n{rules}}}\n}}\n"
    )
}

fn counted(host: &Host, name: &str) -> Counts {
    let words = ["-j", "list", "counters", "table", "inet", "counting"];
    // nft sometimes prints nothing and reports success.
    let read = || serde_json::from_str::<Value>(&host.output("nft", words).unwrap()).ok();
    let all = until_some("the counters", read);
    KINDS.map(|kind| {
        let wanted = format!("{name}_{kind}");
        let mut entries = all["nftables"].as_array().unwrap().iter();
        let entry = entries.find(|it| it["counter"]["name"] == wanted.as_str());
        entry.unwrap()["counter"]["packets"].as_u64().unwrap()
    })
}

/// Receives and discards packets until it must stop.
fn sink(stop: &AtomicBool) -> io::Result<()> {
    let _datagrams = UdpSocket::bind(("::", PORTS[0]))?;
    let listener = TcpListener::bind(("::", PORTS[1]))?;
    listener.set_nonblocking(true)?;
    let mut open: Vec<TcpStream> = Vec::new();
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true)?;
            open.push(stream);
        }
        open.retain_mut(|stream| match stream.read(&mut buffer) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    paused: AtomicBool,
    /// Number of threads that wait for the end of a pause.
    parked: AtomicUsize,
    /// Packets that the devices have sent, without TCP's retransmissions and answers.
    sent: AtomicU64,
}

impl Shared {
    /// Waits while there is a pause; returns false when the load must stop.
    fn goes_on(&self) -> bool {
        if self.paused.load(Ordering::SeqCst) {
            self.parked.fetch_add(1, Ordering::SeqCst);
            while self.paused.load(Ordering::SeqCst) && !self.stop.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            self.parked.fetch_sub(1, Ordering::SeqCst);
        }
        !self.stop.load(Ordering::SeqCst)
    }

    fn count(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// UDP and TCP traffic from both devices, in both families, to the server outside and to the WAN's own network.
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Load {
    /// Starts the traffic. The first streams stay open, so that some connections are older than any later event.
    pub fn start(world: &Guarded) -> Self {
        Self::towards(world, &TARGETS)
    }

    /// Starts the traffic to other addresses than usual.
    pub fn towards(world: &Guarded, targets: &[&str]) -> Self {
        let shared = Arc::<Shared>::default();
        let mut threads = Vec::new();
        let at = |port| -> Vec<SocketAddr> {
            let targets = targets.iter();
            targets.map(|it| SocketAddr::new(ip(it), port)).collect()
        };
        for host in [&world.pc, &world.phone] {
            let (theirs, targets) = (Arc::clone(&shared), at(PORTS[0]));
            let send = move || datagrams(&theirs, &targets);
            threads.push(host.spawn("datagrams", send).unwrap());
            let (theirs, targets) = (Arc::clone(&shared), at(PORTS[1]));
            let send = move || streams(&theirs, &targets);
            threads.push(host.spawn("streams", send).unwrap());
        }
        Self { shared, threads }
    }

    /// Number of packets that the devices have sent.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Waits until the devices have sent so many more packets.
    pub fn wait(&self, packets: u64) {
        let end = self.shared.sent.load(Ordering::Relaxed) + packets;
        until("packets that are sent", || {
            self.shared.sent.load(Ordering::Relaxed) >= end
        });
    }

    /// Pauses all traffic until [`Load::resume`], except for TCP retransmissions.
    pub fn pause(&self) {
        self.shared.paused.store(true, Ordering::SeqCst);
        until("a pause", || {
            self.shared.parked.load(Ordering::SeqCst) == self.threads.len()
        });
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.shared.paused.store(false, Ordering::SeqCst);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// Destinations of the packets: mostly outside, sometimes in the WAN's own network.
const TARGETS: [&str; 8] = [
    FAR[0],
    FAR[1],
    FAR[0],
    FAR[1],
    FAR[0],
    FAR[1],
    "192.168.3.2",
    "fd00:3::2",
];

fn datagrams(shared: &Shared, targets: &[SocketAddr]) -> io::Result<()> {
    let any: [IpAddr; 2] = [ip("0.0.0.0"), ip("::")];
    let sockets = [UdpSocket::bind((any[0], 0))?, UdpSocket::bind((any[1], 0))?];
    while shared.goes_on() {
        for target in targets {
            // An ICMP error about the previous datagram may surface here.
            if sockets[usize::from(target.is_ipv6())]
                .send_to(&[7; 64], target)
                .is_ok()
            {
                shared.count();
            }
        }
        thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}

fn streams(shared: &Shared, targets: &[SocketAddr]) -> io::Result<()> {
    let moment = Duration::from_millis(20);
    let mut old: Vec<TcpStream> = Vec::new();
    while shared.goes_on() {
        for target in targets {
            shared.count();
            let Ok(mut stream) = TcpStream::connect_timeout(target, moment) else {
                continue;
            };
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            for _ in 0..4 {
                if stream.write(&[7; 64]).is_ok() {
                    shared.count();
                }
            }
            if old.len() < targets.len() {
                old.push(stream);
            }
        }
        for stream in &mut old {
            if stream.write(&[7; 64]).is_ok() {
                shared.count();
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
