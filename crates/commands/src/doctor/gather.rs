//! Gathers facts about this box. It changes nothing, and skips facts that it cannot read.

use super::checks::Finding;
use super::facts::{Facts, Listening, NameServer, Shared, Starter, TunDevice, Tunnel, Up};
use crate::profile;
#[cfg(feature = "server")]
use crate::server::renew::configuration;
use crate::settings_files;
use crate::status;
use crate::up::account;
#[cfg(any(feature = "server", feature = "amnezia"))]
use config::kind::Kind;
#[cfg(feature = "amnezia")]
use config::permissions::Permissions;
use netio::netlink::{Family, Netfilter, Netlink, RouteKind, TABLE_MAIN};
#[cfg(all(feature = "amnezia", feature = "openwrt"))]
use openwrt::network::{Network, Source};
use openwrt::uci::Package;
#[cfg(feature = "server")]
use service::openvpn::expiry::{self, Expiring};
use service::running;
#[cfg(feature = "server")]
use service::status::CAP_REMEDY;
use service::status::Status;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Documentation addresses (RFC 5737, RFC 3849): the route to them is the route to the Internet.
const ANYWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// OpenWrt's interfaces.
const NETWORK: &str = "/etc/config/network";

/// How long a name server may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Maximum number of name servers to ask, as in the C library.
const SERVERS_MAX: usize = 3;

/// A query for the root's name servers (RFC 1035, section 4), which every server answers somehow.
const QUESTION: [u8; 17] = [
    0x4d, 0x52, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, // an ID, recursion desired, one question
    0, 0, 2, 0, 1, // the root, NS, IN
];

/// Gathers all facts.
pub(super) fn gather(statuses: &[Status]) -> Facts {
    let mut netlink = Netlink::open().ok();
    let mut facts = Facts {
        tun: tun(),
        now: SystemTime::now(),
        earliest: lines::floor::earliest(),
        floor: lines::floor::on_file(),
        links: Vec::new(),
        addresses: Vec::new(),
        rules: Vec::new(),
        lines: Vec::new(),
        way_out: None,
        name_servers: Vec::new(),
        tunnels: Vec::new(),
        shared: shared(),
        open_files: open_files(),
        #[cfg(feature = "server")]
        expiring: expiring(statuses),
        #[cfg(feature = "amnezia")]
        amneziawg: amneziawg(),
        steering: steering(),
        listening: listening(),
        forwards: number("/proc/sys/net/ipv4/ip_forward") == Some(1),
        #[cfg(feature = "policy")]
        unmasqueraded: Vec::new(),
        rp_filters: Vec::new(),
        is_router: false,
        guarded: Path::new(config::guard::DEFAULT_PATH).exists()
            || steer::guard::in_force().is_some()
            || Path::new("/etc/millrace/policy.toml").exists(),
        nft: program("nft"),
        nf_tables: has_nf_tables(),
        offload: offload(),
        #[cfg(feature = "pptp")]
        rejects_gre: crate::firewall::rejects_gre(),
        available: available(),
        starter: starter(),
        up: up(),
        left: host::left_behind(),
    };
    facts.is_router = facts.guarded || profile::all().iter().any(|it| is_home(it));
    if let Some(netlink) = &mut netlink {
        look_around(&mut facts, netlink, statuses);
    }
    facts
}

fn look_around(facts: &mut Facts, netlink: &mut Netlink, statuses: &[Status]) {
    facts.links = netlink.links().unwrap_or_default();
    facts.addresses = netlink.addresses(None).unwrap_or_default();
    for family in [Family::V4, Family::V6] {
        facts
            .rules
            .extend(netlink.rules(family).unwrap_or_default());
    }
    facts.tunnels = statuses.iter().map(tunnel).collect();
    let routes = netlink.routes(Some(TABLE_MAIN)).unwrap_or_default();
    for route in routes.iter().filter(|it| it.prefix == 0) {
        let name = route.dev.map(|dev| facts.device(dev).to_owned());
        let name = name.filter(|it| route.kind == RouteKind::Unicast && !facts.is_tunnel(it));
        if let Some(name) = name.filter(|it| !facts.lines.contains(it)) {
            facts.lines.push(name);
        }
    }
    let out = ANYWHERE.iter().find_map(|to| device(facts, netlink, *to));
    #[cfg(feature = "policy")]
    if let Some(tunnel) = out.as_ref().filter(|it| facts.is_tunnel(it)) {
        facts.unmasqueraded = host::lan::unmasqueraded(tunnel);
    }
    facts.way_out = out;
    for (tunnel, status) in facts.tunnels.iter_mut().zip(statuses) {
        let peers = status.peers.iter().filter_map(|it| it.endpoint.as_ref());
        let peers = peers.filter_map(|it| it.parse::<SocketAddr>().ok());
        for peer in peers.take(8) {
            let Ok(way) = netlink.route_get(peer.ip(), status.fwmark) else {
                continue;
            };
            if let Some(link) = facts.links.iter().find(|link| link.index == way.dev) {
                let carries = way.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu));
                tunnel.ways.push((peer.ip(), link.name.clone(), carries));
            }
        }
    }
    let servers = name_servers(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    // All servers are asked at once, as a silent one takes the whole time.
    let asked: Vec<_> = servers
        .into_iter()
        .map(|address| {
            let device = device(facts, netlink, address);
            let asked = std::thread::Builder::new().spawn(move || answers(address));
            (address, device, asked)
        })
        .collect();
    facts.name_servers = asked
        .into_iter()
        .map(|(address, device, asked)| NameServer {
            address,
            device,
            answers: asked.is_ok_and(|it| it.join().unwrap_or(false)),
        })
        .collect();
    let all = number("/proc/sys/net/ipv4/conf/all/rp_filter").unwrap_or(0);
    let of = |name: &String| {
        let own = number(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"))?;
        Some((name.clone(), own.max(all)))
    };
    facts.rp_filters = facts.lines.iter().filter_map(of).collect();
}

/// The device that leads to an address.
fn device(facts: &Facts, netlink: &mut Netlink, to: IpAddr) -> Option<String> {
    let way = netlink.route_get(to, 0).ok()?;
    let link = facts.links.iter().find(|link| link.index == way.dev)?;
    Some(link.name.clone())
}

fn tun() -> TunDevice {
    let path = "/dev/net/tun";
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return TunDevice::Absent,
        Ok(data) if !data.file_type().is_char_device() => {
            return TunDevice::Refused("it is not a device".to_owned());
        }
        _ => {}
    }
    match File::options().read(true).write(true).open(path) {
        Ok(_) => TunDevice::Works,
        // A container without permission returns EPERM instead.
        Err(error) if error.raw_os_error() == Some(nix::libc::EACCES) => TunDevice::Hidden,
        Err(error) => TunDevice::Refused(error.to_string()),
    }
}

fn tunnel(status: &Status) -> Tunnel {
    Tunnel {
        device: status.interface.clone(),
        protocol: status.protocol.clone(),
        fwmark: status.fwmark,
        mtu: status.mtu,
        mtu_reason: status.mtu_reason.clone(),
        ways: Vec::new(),
        has_uplinks: status.peers.iter().any(|it| !it.lines.is_empty()),
        ports: status.listen_tcp.clone(),
    }
}

/// Reads a number from a file of the kernel.
fn number(path: &str) -> Option<u8> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The name servers in the text of a `resolv.conf(5)`.
pub(super) fn name_servers(text: &str) -> Vec<IpAddr> {
    // A link-local address is followed by its device.
    let servers = host::name_servers_in(text).filter_map(|it| it.split('%').next()?.parse().ok());
    servers.take(SERVERS_MAX).collect()
}

/// Whether a server sends any answer.
fn answers(server: IpAddr) -> bool {
    let own: SocketAddr = match server {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let ask = || -> io::Result<bool> {
        let socket = UdpSocket::bind(own)?;
        socket.connect((server, 53))?;
        socket.set_read_timeout(Some(PATIENCE / 2))?;
        let mut answer = [0; 512];
        for _ in 0..2 {
            socket.send(&QUESTION)?;
            let count = socket.recv(&mut answer);
            match count {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                count => return Ok(count? >= 12 && answer[..2] == QUESTION[..2]),
            }
        }
        Ok(false)
    };
    ask().unwrap_or(false)
}

/// Files of tunnels, and key files, that other users can read.
fn open_files() -> Vec<(PathBuf, String)> {
    let keys = fs::read_dir("/etc/millrace")
        .into_iter()
        .flatten()
        .flatten();
    let keys = keys
        .map(|it| it.path())
        .filter(|it| it.extension().is_some_and(|it| it == "key"));
    let files = profile::all().into_iter().chain(keys);
    files
        .filter_map(|path| {
            let words = config::file::exposed(&path)?;
            // The finding has the remedy in a field of its own.
            let words = words.split(';').next()?.to_owned();
            Some((path, words))
        })
        .collect()
}

/// Tunnels that are up with one account.
fn shared() -> Vec<Shared> {
    let groups = account::shared().into_iter();
    groups
        .map(|(what, tunnels)| Shared {
            what,
            devices: (tunnels.iter())
                .filter_map(|it| status::of_process(it.pid, false).ok()?)
                .map(|it| it.interface)
                .collect(),
            names: tunnels.into_iter().map(|it| it.name).collect(),
        })
        .collect()
}

/// Mistakes in the settings files of services, and missing parts of the guard and the policy.
fn steering() -> Vec<Finding> {
    let finding = |what: String, place: &str, remedy: String| Finding {
        check: "",
        what,
        place: place.to_owned(),
        remedy,
    };
    let (_, _, mistakes) = settings_files::read();
    let mut found: Vec<Finding> = mistakes
        .into_iter()
        .map(|it| {
            finding(
                format!("{}: {}", it.of, it.words),
                it.path,
                it.remedy.to_owned(),
            )
        })
        .collect();
    if let Some(report) = crate::guard::brief().filter(|it| it.asked) {
        let place = "millrace guard status";
        if !report.is_whole() {
            let what = "guard: some of its rules are missing".to_owned();
            found.push(finding(what, place, "millrace guard refresh".to_owned()));
        }
        if !report.watched {
            let what = "guard: nothing watches, so it does not follow tunnels and networks";
            found.push(finding(what.to_owned(), place, steer::to_watch("guard")));
        }
    }
    #[cfg(feature = "policy")]
    if let Some(report) = crate::policy::brief()
        && let Some(lacks) = report.lacks()
    {
        let what = format!("policy: {}: {lacks}", crate::policy::state(&report));
        found.push(finding(what, "millrace policy status", report.remedy()));
    }
    found
}

/// Certificates and lists of all OpenVPN files, up or down, certificates of connected clients, and allowances of uplinks,
/// that end soon.
#[cfg(feature = "server")]
fn expiring(statuses: &[Status]) -> Vec<Finding> {
    let finding = |what, place, remedy| Finding {
        check: "",
        what,
        place,
        remedy,
    };
    let mut found = Vec::new();
    for path in files_of(Kind::OpenVpn) {
        let Ok(config) = configuration(&path) else {
            continue;
        };
        let place = path.display().to_string();
        let ends = expiry::of_files(&config, &path, SystemTime::now()).into_iter();
        found.extend(ends.map(|it| finding(it.what, place.clone(), it.remedy)));
    }
    for status in statuses {
        let place = format!("millrace status {}", status.interface);
        let ends = ending_clients(status, SystemTime::now()).into_iter();
        found.extend(ends.map(|it| finding(it.what, place.clone(), it.remedy)));
        let place = format!("Cap of an uplink of {}", status.interface);
        let scarce = status.scarce_caps().into_iter();
        found.extend(scarce.map(|what| finding(what, place.clone(), CAP_REMEDY.to_owned())));
    }
    found
}

/// The files of this kind, up or down.
#[cfg(any(feature = "server", feature = "amnezia"))]
fn files_of(kind: Kind) -> Vec<PathBuf> {
    let running = running::all().unwrap_or_default();
    let mut files = profile::all();
    files.extend(running.into_iter().map(|it| it.path));
    files.sort();
    files.dedup();
    files.retain(|it| Kind::at(it) == kind);
    files
}

/// Findings about the values of AmneziaWG in all WireGuard files, and in OpenWrt's interfaces.
#[cfg(feature = "amnezia")]
fn amneziawg() -> Vec<Finding> {
    let mut found = Vec::new();
    for path in files_of(Kind::WireGuard) {
        let import = config::wgquick::read(&path, Permissions::NONE).ok();
        if let Some((tunnel, _)) = import.and_then(|it| it.into_tunnel().ok()) {
            found.extend(amneziawg_of(&path.display().to_string(), &tunnel));
        }
    }
    #[cfg(feature = "openwrt")]
    {
        let text = openwrt::uci::read(Path::new(NETWORK)).unwrap_or_default();
        let package = Package::parse(&String::from_utf8_lossy(&text)).unwrap_or_default();
        let ours = (package.of_kind("interface")).filter(|it| it.text("proto") == Some("millrace"));
        for name in ours.filter_map(|it| it.name.as_deref()) {
            let network = Network::read(&package, name).map(|it| it.source);
            if let Ok(Source::Options { tunnel, .. }) = network {
                found.extend(amneziawg_of(&format!("{NETWORK}: {name}"), &tunnel));
            }
        }
    }
    found
}

/// Findings about the values of AmneziaWG in a tunnel.
#[cfg(feature = "amnezia")]
pub(super) fn amneziawg_of(place: &str, tunnel: &config::tunnel::Tunnel) -> Vec<Finding> {
    let finding = |hint: String| {
        let (what, remedy) = hint.split_once("; ").unwrap_or((&hint, "change it"));
        Finding {
            check: "",
            what: what.to_owned(),
            place: place.to_owned(),
            remedy: remedy.to_owned(),
        }
    };
    crate::check::amnezia(tunnel).map(finding).collect()
}

/// Certificates of a server's connected clients that end soon.
#[cfg(feature = "server")]
pub(super) fn ending_clients(status: &Status, now: SystemTime) -> Vec<Expiring> {
    let is_server = status.role.as_deref() == Some("server");
    let clients = status.peers.iter().filter(|_| is_server);
    let ends = clients.filter_map(|it| {
        let name = it.name.as_deref().or(it.username.as_deref());
        expiry::of_client(name.unwrap_or("(no name)"), it.expires_unix?, now)
    });
    ends.collect()
}

fn is_home(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let is_head = |line: &str| {
        let text = line.trim().strip_prefix("#!").map(str::trim);
        text.is_some_and(|it| it.eq_ignore_ascii_case("[Server]"))
    };
    text.lines().any(is_head)
}

/// Listening TCP sockets of this program.
fn listening() -> Vec<Listening> {
    let Ok(own) = fs::read_link("/proc/self/exe") else {
        return Vec::new();
    };
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let sockets = sockets.iter().flatten();
    let sockets: Vec<(SocketAddr, u64)> = sockets.flat_map(|it| listeners(it)).collect();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|it| it.parse::<i32>().ok()) else {
            continue;
        };
        let same = fs::read_link(entry.path().join("exe"));
        let same = same.is_ok_and(|it| it.file_name() == own.file_name());
        let files = fs::read_dir(entry.path().join("fd"));
        for file in files.into_iter().flatten().flatten().filter(|_| same) {
            let target = fs::read_link(file.path()).unwrap_or_default();
            let inode = target.to_str().and_then(|it| it.strip_prefix("socket:["));
            let inode = inode.and_then(|it| it.trim_end_matches(']').parse::<u64>().ok());
            let ours = sockets.iter().filter(|it| Some(it.1) == inode);
            found.extend(ours.map(|(address, _)| Listening {
                address: *address,
                pid,
            }));
        }
    }
    found
}

/// Addresses and inodes of listening sockets, from a table in the format of `/proc/net/tcp` or `/proc/net/udp`.
pub(crate) fn listeners(table: &str) -> Vec<(SocketAddr, u64)> {
    let socket = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = words.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        // Hexadecimal 32-bit words in the machine's byte order.
        let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok();
        let ip = match address.len() {
            8 => IpAddr::from(word(0)?.to_ne_bytes()),
            32 => {
                let mut bytes = [0; 16];
                for (at, four) in bytes.chunks_mut(4).enumerate() {
                    four.copy_from_slice(&word(8 * at)?.to_ne_bytes());
                }
                IpAddr::from(bytes)
            }
            _ => return None,
        };
        // 0A is TCP_LISTEN; a UDP socket without a peer has 07, as no TCP socket has.
        let listens = matches!(*words.get(3)?, "0A" | "07");
        let inode = words.get(9)?.parse().ok()?;
        listens.then_some((SocketAddr::new(ip, port), inode))
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// Whether a program is in the path, or in the usual directories of such programs.
fn program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .any(|it| it.join(name).is_file())
}

fn has_nf_tables() -> bool {
    let asked =
        Netfilter::open().and_then(|mut it| it.chain(steer::guard::TABLE, steer::guard::CHAIN));
    // Without permission to look, the kernel may still support nftables.
    !asked.is_err_and(|error| error.is_unsupported())
}

fn offload() -> (bool, bool) {
    offload_in(&fs::read_to_string("/etc/config/firewall").unwrap_or_default())
}

/// `flow_offloading` and `flow_offloading_hw` in the text of the firewall's settings.
pub(super) fn offload_in(text: &str) -> (bool, bool) {
    let package = Package::parse(text).unwrap_or_default();
    let is_on = |name: &str| {
        let mut defaults = package.of_kind("defaults");
        defaults.any(|it| it.text(name) == Some("1"))
    };
    (is_on("flow_offloading"), is_on("flow_offloading_hw"))
}

/// `MemAvailable`, in kilobytes.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|it| it.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn starter() -> Starter {
    // sd_booted(3) also checks for this directory.
    if Path::new("/run/systemd/system").is_dir() {
        let wanted = "/etc/systemd/system/multi-user.target.wants";
        let entries = fs::read_dir(wanted).into_iter().flatten().flatten();
        let names = entries.filter_map(|it| it.file_name().into_string().ok());
        let names = names.filter_map(|it| {
            let name = it.strip_prefix("millrace@")?.strip_suffix(".service")?;
            Some(name.to_owned())
        });
        return Starter::Systemd(names.collect());
    }
    match Path::new("/sbin/procd").exists() {
        true => Starter::Procd,
        false => Starter::Unknown,
    }
}

fn up() -> Vec<Up> {
    let of_netifd = Path::new(NETWORK);
    let up = running::all().unwrap_or_default().into_iter().map(|it| Up {
        by_netifd: it.path.starts_with(of_netifd),
        name: it.name,
    });
    up.collect()
}
