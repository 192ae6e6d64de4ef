//! A server at home: one command makes it, stock programs reach it with the files it hands out, and revoked clients
//! lose access while other clients' downloads go on.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lab::acceptance::{Directory, PATIENCE, PROGRAM, ip, no_ping, pings, reaches, until};
use lab::load::{HttpLoad, HttpServer, HttpWatch};
use lab::{Host, Link, LinkOptions, Process, Router, tools};
use nix::sys::signal::Signal;

#[path = "server_at_home/many.rs"]
mod many;
#[path = "server_at_home/office.rs"]
mod office;
#[path = "server_at_home/who.rs"]
mod who;

/// A host on the Internet.
const OUTSIDE: &str = "203.0.113.80";
const OUTSIDE6: &str = "2001:db8:80::1";
/// A host on the LAN.
const IN_LAN: &str = "192.168.1.2";
/// The router's address on its uplink.
const AT_HOME: &str = "192.168.2.1";
const AT_HOME6: &str = "fd00:2::1";

/// A home router with a host behind it, and the Internet with three clients.
///
/// ```text
/// lan [192.168.1.2]--[192.168.1.1 br-lan  home  wan 192.168.2.1]--[192.168.2.2  world]--[192.168.3.2 phone]
///                                                                        |  \--[192.168.4.2 tablet]
///                                                                        \--[192.168.5.2 laptop]
/// ```
/// The host at home has no default route by default, and the Internet has no route to hosts behind the router.
struct Place {
    lan: Host,
    home: Host,
    world: Router,
    clients: Vec<Host>,
    directory: Directory,
}

/// Returns whether these tests' requirements are met; if not, notes it.
#[track_caller]
fn ready(programs: &[&str]) -> bool {
    let found = programs
        .iter()
        .try_for_each(|name| tools::find(name).map(drop));
    lab::may_enter() && lab::require(tools::tun().and(found)).is_some()
}

impl Place {
    fn new() -> Self {
        let [lan, home] = ["lan", "home"].map(|name| Host::private(name).unwrap());
        let world = Router::of(Host::private("world").unwrap()).unwrap();
        let (inside, line) = (LinkOptions::numbered(1), LinkOptions::numbered(2));
        Link::new(&home, "br-lan", &lan, "eth0", &inside).unwrap();
        Link::new(&home, "wan", &world, "home", &line).unwrap();
        for address in [line.b4(), line.b6()] {
            home.add_default_route(address).unwrap();
        }
        let clients = (3..=5_u8).map(|number| {
            let client = Host::private("client").unwrap();
            let link = LinkOptions::numbered(number);
            Link::new(&world, &format!("client{number}"), &client, "eth0", &link).unwrap();
            client.add_default_route(link.a4()).unwrap();
            client.add_default_route(link.a6()).unwrap();
            client
        });
        let place = Self {
            clients: clients.collect(),
            lan,
            home,
            world,
            directory: Directory::new(),
        };
        place.world.add_address("lo", ip(OUTSIDE), 32).unwrap();
        place.world.add_address("lo", ip(OUTSIDE6), 128).unwrap();
        for host in place.clients.iter().chain([&place.home]) {
            for name in ["all", "default"] {
                let key = format!("net/ipv4/conf/{name}/rp_filter");
                host.sysctl(&key, "0").unwrap();
            }
        }
        place.home.sysctl("net/ipv4/ip_forward", "0").unwrap();
        place
            .home
            .sysctl("net/ipv6/conf/all/forwarding", "0")
            .unwrap();
        place
            .home
            .sysctl("net/ipv6/conf/wan/accept_ra", "1")
            .unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn millrace(&self, words: &[&str]) -> String {
        self.home.output(PROGRAM, words).unwrap()
    }

    /// Returns the message of a failing command.
    fn refused(&self, words: &[&str]) -> String {
        let exit = self.home.command(PROGRAM).args(words).exit().unwrap();
        exit.success().unwrap_err().to_string()
    }

    /// Makes the server, with the uplink's address as its endpoint.
    fn init(&self, protocol: &str, more: &[&str]) -> PathBuf {
        let to = self.directory.path().display().to_string();
        let words = ["server", "init", "--protocol", protocol, "--to", &to];
        let words = [&words, more].concat();
        let everything = self.refused(&[&words[..], &["--lan", "::/0"]].concat());
        assert!(everything.contains("not a network at home"), "{everything}");
        let said = self.millrace(&words);
        assert!(said.contains("192.168.1.0/24, fd00:1::/64"), "{said}");
        assert!(said.contains("is a private address"), "{said}");
        let again = self.refused(&words);
        assert!(again.contains("already exists"), "{again}");
        // Another server gets other networks, although this one is not up.
        let (_, networks) = said.split_once("get addresses from ").unwrap();
        let (v4, rest) = networks.split_once(", ").unwrap();
        let v6 = rest.lines().next().unwrap().trim_end_matches('.');
        for (option, network) in [("--subnet", v4), ("--subnet6", v6)] {
            let more = ["--name", "second", option, network];
            let taken = self.refused(&[&words[..], &more].concat());
            let why =
                format!("{option} {network}: overlaps {network}, a network of the server {to}");
            assert!(taken.contains(&why), "{taken}");
        }
        let path = self.path(if protocol == "openvpn" {
            "home.ovpn"
        } else {
            "home.conf"
        });
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        path
    }

    /// Runs the server.
    fn up(&self, path: &Path, ready: &str) -> Process {
        let command = self.home.command(PROGRAM).arg("-v").arg("up").arg(path);
        let mut process = command.spawn().unwrap();
        process
            .wait_for_line("the server", PATIENCE, |line| line.contains(ready))
            .unwrap();
        process
    }

    fn tables(&self) -> String {
        self.home.output("nft", ["list", "tables"]).unwrap()
    }

    /// The current values of the settings that forwarding changes.
    fn forwarding(&self) -> Vec<String> {
        let read = |key: &str| fs::read_to_string(format!("/proc/sys/net/{key}")).unwrap();
        let keys = [
            "ipv4/ip_forward",
            "ipv6/conf/all/forwarding",
            "ipv6/conf/wan/accept_ra",
        ];
        let all = self.home.run(|| keys.map(read)).unwrap();
        all.iter().map(|value| value.trim().to_owned()).collect()
    }

    /// A client reaches the host at home and the Internet, which sees the server's address. Returns the address that
    /// the host at home sees.
    fn reaches_all(&self, client: &Host) -> IpAddr {
        for target in [IN_LAN, OUTSIDE, OUTSIDE6] {
            reaches(client, target);
        }
        assert_eq!(seen_by(&self.world, OUTSIDE, client), ip(AT_HOME));
        assert_eq!(seen_by(&self.world, OUTSIDE6, client), ip(AT_HOME6));
        seen_by(&self.lan, IN_LAN, client)
    }

    /// Ends the server, and checks that nothing is left.
    fn down(&self, path: &Path, mut process: Process) {
        self.millrace(&["down", &path.display().to_string()]);
        until("the end", || process.try_wait().unwrap().is_some());
        assert_eq!(self.tables(), "");
        assert_eq!(self.forwarding(), ["0", "0", "1"]);
    }

    /// Kills the process; the next start cleans up.
    fn is_tidied_after_a_kill(&self, path: &Path, mut process: Process, ready: &str) {
        process.signal(Signal::SIGKILL).unwrap();
        until("the end", || process.try_wait().unwrap().is_some());
        assert!(self.tables().contains("millrace_home"));
        let again = self.up(path, ready);
        assert_eq!(self.forwarding(), ["1", "1", "2"]);
        self.down(path, again);
    }
}

/// The source address that a host sees when a client sends to it.
fn seen_by(host: &Host, address: &str, client: &Host) -> IpAddr {
    let listener = host
        .run(|| TcpListener::bind((ip(address), 0)))
        .unwrap()
        .unwrap();
    let at = listener.local_addr().unwrap();
    let stream = client
        .run(|| TcpStream::connect_timeout(&at, PATIENCE))
        .unwrap();
    let (_, from) = listener.accept().unwrap();
    drop(stream.unwrap());
    from.ip()
}

/// A download from the Internet that continues until it is stopped.
fn download(host: &Host, server: SocketAddr, watch: &HttpWatch) {
    let load = HttpLoad {
        connections: 1,
        ..HttpLoad::new((server.ip(), server.port()), 50_000, u64::MAX)
    };
    let report = load.run_watched(host, watch).unwrap();
    assert_eq!((report.errors, &report.first_error), (0, &None));
}

/// Waits until more of the download has arrived.
fn goes_on(watch: &HttpWatch) {
    let before = watch.requests();
    until("the download", || watch.requests() > before + 3);
}

/// A client with `wg-quick` and a third-party WireGuard.
struct Quick<'h> {
    host: &'h Host,
    file: PathBuf,
}

impl<'h> Quick<'h> {
    fn up(host: &'h Host, file: PathBuf) -> Self {
        let quick = Self { host, file };
        quick.run("up");
        quick
    }

    fn run(&self, what: &str) {
        let command = self.host.command(tools::find("wg-quick").unwrap());
        let command = command.arg(what).arg(&self.file);
        let command = command.env("WG_QUICK_USERSPACE_IMPLEMENTATION", "wireguard-go");
        let process = command.spawn().unwrap();
        let exit = process.wait_at_most(Duration::from_secs(60)).unwrap();
        exit.success().unwrap();
    }
}

impl Drop for Quick<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.run("down");
        }
    }
}

/// Decodes a QR code drawn with characters.
fn read_code(code: &str) -> String {
    const SCALE: usize = 4;
    let rows: Vec<Vec<char>> = code.lines().map(|line| line.chars().collect()).collect();
    let (width, height) = (rows[0].len() * SCALE, rows.len() * 2 * SCALE);
    let light = |x: usize, y: usize| match (rows[y / 2][x], y % 2) {
        ('\u{2588}', _) | ('\u{2580}', 0) | ('\u{2584}', 1) => 255,
        _ => 0,
    };
    let mut image = rqrr::PreparedImage::prepare_from_greyscale(width, height, |x, y| {
        light(x / SCALE, y / SCALE)
    });
    image.detect_grids()[0].decode().unwrap().1
}

/// Stock clients connect with a file and with a QR code; a third is added and one is removed while others download.
#[test]
fn wireguard_clients_come_and_go_while_others_download() {
    if !ready(&["wg", "wg-quick", "wireguard-go", "nft", "ip"]) {
        return;
    }
    let place = Place::new();
    let path = place.init("wireguard", &[]);
    let server = path.display().to_string();
    let process = place.up(&path, "is up");
    assert_eq!(place.forwarding(), ["1", "1", "2"]);

    let peer = |words: &[&str]| {
        let words = [&["peer"], words, &["--server", &server]].concat();
        place.millrace(&words)
    };
    let file = |name: &str| place.path(&format!("{name}.conf"));
    let phone_file = file("phone0");
    peer(&["add", "phone", "--file", &phone_file.display().to_string()]);
    let code = peer(&["add", "tablet", "--qr"]);
    fs::write(file("tablet0"), read_code(&code)).unwrap();
    let [phone_at, tablet_at, laptop_at] = &place.clients[..] else {
        unreachable!()
    };
    let phone = Quick::up(phone_at, phone_file);
    let tablet = Quick::up(tablet_at, file("tablet0"));
    for client in [&phone, &tablet] {
        assert_eq!(place.reaches_all(client.host), ip("192.168.1.1"));
    }

    let web = HttpServer::start(&place.world, (ip(OUTSIDE), 0).into()).unwrap();
    let watch = HttpWatch::default();
    thread::scope(|scope| {
        scope.spawn(|| download(phone_at, web.address(), &watch));
        goes_on(&watch);
        // This client reaches only the LAN.
        let text = peer(&["add", "laptop", "--lan-only"]);
        assert!(!text.contains("0.0.0.0/0"), "{text}");
        fs::write(file("laptop0"), text).unwrap();
        let laptop = Quick::up(laptop_at, file("laptop0"));
        reaches(laptop.host, IN_LAN);
        goes_on(&watch);

        peer(&["revoke", "tablet"]);
        let peers = || place.home.output("wg", ["show", "home", "peers"]).unwrap();
        until("one peer less", || peers().lines().count() == 2);
        no_ping(tablet_at, IN_LAN);
        no_ping(tablet_at, OUTSIDE);
        goes_on(&watch);
        pings(laptop.host, IN_LAN, 3);
        watch.stop();
    });
    let list = peer(&["list"]);
    // A summary and the columns' names come first.
    let names: Vec<&str> = list
        .lines()
        .skip(2)
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, ["phone", "laptop"]);
    drop((phone, tablet));
    place.is_tidied_after_a_kill(&path, process, "is up");
}

/// A client with the stock `openvpn`.
fn openvpn(host: &Host, file: &Path) -> Process {
    let command = host.command("openvpn").arg("--config").arg(file);
    command.spawn().unwrap()
}

fn is_in(client: &mut Process) {
    let completed = |line: &str| line.contains("Initialization Sequence Completed");
    client
        .wait_for_line("the client", PATIENCE, completed)
        .unwrap();
}

/// A revoked OpenVPN client is disconnected at once, and cannot connect again.
#[test]
fn openvpn_clients_come_and_go_while_others_download() {
    if !ready(&["openvpn", "nft", "ip"]) {
        return;
    }
    const READY: &str = "Initialization Sequence Completed";
    let place = Place::new();
    // The host at home gets a return route, so that it sees clients' own addresses.
    place.lan.add_default_route(ip("192.168.1.1")).unwrap();
    let path = place.init("openvpn", &["--masquerade", "internet"]);
    let server = path.display().to_string();
    let process = place.up(&path, READY);
    assert_eq!(place.forwarding(), ["1", "1", "2"]);
    let file = |name: &str| place.path(&format!("{name}.ovpn"));
    let add = |name: &str, more: &[&str]| {
        let file = file(name).display().to_string();
        let words = ["peer", "add", name, "--server", &server, "--file", &file];
        place.millrace(&[&words, more].concat());
    };
    add("phone", &[]);
    add("tablet", &[]);
    let [phone_at, tablet_at, laptop_at] = &place.clients[..] else {
        unreachable!()
    };
    let mut phone = openvpn(phone_at, &file("phone"));
    let mut tablet = openvpn(tablet_at, &file("tablet"));
    for (process, host) in [(&mut phone, phone_at), (&mut tablet, tablet_at)] {
        is_in(process);
        let own = place.reaches_all(host);
        let addresses = host
            .output("ip", ["-4", "address", "show", "tun0"])
            .unwrap();
        assert!(
            addresses.contains(&format!("inet {own}/")),
            "{own}: {addresses}"
        );
    }

    let web = HttpServer::start(&place.world, (ip(OUTSIDE), 0).into()).unwrap();
    let watch = HttpWatch::default();
    let said = |text: &str| (process.stdout() + &process.stderr()).contains(text);
    thread::scope(|scope| {
        scope.spawn(|| download(phone_at, web.address(), &watch));
        goes_on(&watch);
        add("laptop", &["--lan-only"]);
        let mut laptop = openvpn(laptop_at, &file("laptop"));
        is_in(&mut laptop);
        reaches(laptop_at, IN_LAN);
        goes_on(&watch);

        place.millrace(&["peer", "revoke", "tablet", "--server", &server]);
        until("the end of a session", || {
            said("its certificate is revoked")
        });
        no_ping(tablet_at, IN_LAN);
        tablet.stop().unwrap();
        let again = openvpn(tablet_at, &file("tablet"));
        until("a refusal", || said("it is revoked (crl-verify)"));
        goes_on(&watch);
        pings(laptop_at, IN_LAN, 3);
        watch.stop();
        drop(again);
    });
    assert_eq!(phone.stdout().matches(READY).count(), 1, "it came in once");
    let list = place.millrace(&["peer", "list", "--all", "--server", &server]);
    let rows = list.lines().skip(2);
    let revoked = rows.filter(|line| line.contains("revoked"));
    assert_eq!(revoked.count(), 1, "{list}");
    let refused = place.refused(&["peer", "add", "watch", "--qr", "--server", &server]);
    assert!(refused.contains("--file"), "{refused}");
    drop(phone);
    place.is_tidied_after_a_kill(&path, process, READY);

    // Even if the server's file names no LAN, `--lan-only` does not route everything.
    let text = fs::read_to_string(&path).unwrap();
    let bare: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("#!"))
        .collect();
    fs::write(&path, bare.join("\n")).unwrap();
    let words = ["peer", "add", "watch", "--server", &server];
    let refused = place.refused(&words);
    assert!(refused.contains("--endpoint HOST:PORT"), "{refused}");
    let words = [&words[..], &["--endpoint", "192.0.2.1:7", "--lan-only"]].concat();
    let text = place.millrace(&words);
    assert!(
        text.contains("remote 192.0.2.1 7\n") && !text.contains("redirect"),
        "{text}"
    );
}

/// Clients added at the same time each get their own address, and no section is lost.
#[test]
fn clients_that_are_added_at_once_get_different_addresses() {
    if !ready(&["ip"]) {
        return;
    }
    let place = Place::new();
    let path = place.init("wireguard", &[]);
    let server = path.display().to_string();
    // A comment that must survive.
    let text = fs::read_to_string(&path).unwrap() + "\n# the end of mine\n";
    fs::write(&path, &text).unwrap();
    let commands: Vec<Process> = (0..8)
        .map(|number| {
            let words =
                ["peer", "add", &format!("c{number}"), "--server", &server].map(str::to_owned);
            place.home.command(PROGRAM).args(words).spawn().unwrap()
        })
        .collect();
    let files: Vec<String> = commands
        .into_iter()
        .map(|it| it.wait_at_most(PATIENCE).unwrap().success().unwrap())
        .collect();
    let addresses = files.iter().map(|file| {
        let mut lines = file.lines();
        lines.find(|line| line.starts_with("Address")).unwrap()
    });
    let mut addresses: Vec<&str> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 8, "{addresses:?}");
    let refused = place.refused(&["peer", "add", "c3", "--server", &server]);
    assert!(
        refused.contains("a client of this name exists"),
        "{refused}"
    );
    place.millrace(&["peer", "rename", "c3", "kitchen", "--server", &server]);
    for name in ["c0", "c1", "c2", "kitchen", "c4", "c5", "c6", "c7"] {
        place.millrace(&["peer", "revoke", name, "--server", &server]);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}
