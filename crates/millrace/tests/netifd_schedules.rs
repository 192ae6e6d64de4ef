//! Random schedules of trouble on a router under netifd: clients and servers of the three protocols, with the guard. After
//! each trouble the tunnel is whole again, its far end answers, and no packet of the LAN has left in clear.
//!
//! `MILLRACE_TEST_SCHEDULES` sets how many schedules each kind runs (4), or which: `17..18`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{env, fmt};

use lab::acceptance::fw4::Fw4;
use lab::acceptance::guarded::{FAR, Guarded, Load};
use lab::acceptance::netifd::Netifd;
use lab::acceptance::openvpn::{Pair, credentials};
use lab::acceptance::{Directory, PATIENCE, PROGRAM, ip, until, until_answer};
use lab::openvpn::{KeyKind, READY_LINE, Setup};
use lab::peer::Keys;
use lab::{HostCommand, Link, LinkOptions, Process, tools};

const OFFICE: &str = "office";

/// The router's uplinks: device, the far end's device, and the number of the network.
const UPLINKS: [(&str, &str, u8); 2] = [("wan", "eth0", 3), ("lte", "lte", 4)];
const DEVICES: [&str; 2] = [UPLINKS[0].0, UPLINKS[1].0];

/// Outer addresses of a server outside, and of one on the router, which clients reach through any uplink.
const OUTSIDE: &str = "203.0.113.20";
const HOME: &str = "198.51.100.7";

/// Addresses of server and client in the tunnel.
const SERVER: &str = "10.9.0.1";
const CLIENT: &str = "10.9.0.2";

/// Range that a change of the configuration adds and removes.
const MORE: &str = "10.50.0.0/16";

/// LANs and uplinks of the router, which has them in the file `network`.
const NETWORKS: &str = "config interface 'lan'\n\toption device 'br-lan'\n\toption proto 'static'\n\
    config interface 'guest'\n\toption device 'br-guest'\n\toption proto 'static'\n\
    config interface 'wan'\n\toption device 'wan'\n\toption proto 'static'\n";
const ONLY: &str = "\tlist only_through 'lan'\n\tlist only_through 'guest'\n";

/// Rules for servers, and for the GRE of a PPTP client.
const ACCEPTED: [&str; 3] = ["udp", "tcp", "gre"];

/// Packets that the LAN sends while something is broken.
const SOME: u64 = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    WireGuard,
    OpenVpn,
    Pptp,
}

use Protocol::{OpenVpn, Pptp, WireGuard};

/// A tunnel of the router.
#[derive(Clone, Copy, Debug)]
struct Kind {
    protocol: Protocol,
    is_server: bool,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.is_server { "server" } else { "client" };
        write!(f, "{:?} {role}", self.protocol)
    }
}

/// The router, its LANs, and the far end.
struct World {
    kind: Kind,
    all: Guarded,
    /// UCI's files.
    directory: Directory,
    /// The far end's files.
    far: Directory,
    /// Keys of router and far end.
    keys: [Keys; 2],
    setup: Setup,
}

impl World {
    fn new(protocol: Protocol, is_server: bool) -> Self {
        let all = Guarded::new();
        let (_, far, number) = UPLINKS[1];
        let link = LinkOptions::numbered(number);
        Link::new(&all.router, "lte", &all.server, far, &link).unwrap();
        all.ip("addr flush dev lte\nlink set lte down");
        all.server.add_address("lo", ip(OUTSIDE), 32).unwrap();
        all.router.add_address("lo", ip(HOME), 32).unwrap();
        // Only the tunnel leads to inner addresses: pings past it would be answered, too.
        let drops = "table inet past {\n chain first {\n type filter hook prerouting priority -300;\n\
            iifname { \"eth0\", \"lte\" } ip daddr 10.0.0.0/8 drop\n}\n}\n";
        all.server.nft(drops).unwrap();
        let keys = [(); 2].map(|()| Keys::generate(&all.server).unwrap());
        let mut setup = Setup {
            network: 9,
            interface: "ovpn0".to_owned(),
            ..Setup::default()
        };
        setup.client.line("connect-timeout 5");
        Self {
            kind: Kind {
                protocol,
                is_server,
            },
            all,
            directory: Directory::new(),
            far: Directory::new(),
            keys,
            setup,
        }
    }

    /// The far end's address in the tunnel.
    fn inside(&self) -> &'static str {
        if self.kind.is_server { CLIENT } else { SERVER }
    }

    /// An OpenVPN file for one of the ends, the server's with short timeouts. The router runs our program, the far end the
    /// stock one.
    fn openvpn(&self, server: bool) -> String {
        let keys = credentials(KeyKind::Ecdsa);
        let pair = match self.kind.is_server {
            true => Pair::Server,
            false => Pair::Client,
        };
        let [servers, clients] = pair.programs(false);
        let at = ip(if self.kind.is_server { HOME } else { OUTSIDE });
        if server {
            let file = self.setup.server_file(servers.as_ref(), keys, at);
            let file = file.unwrap().to_string();
            let usual = "keepalive 10 60";
            assert!(file.contains(usual), "{file}");
            file.replace(usual, "keepalive 1 4")
        } else {
            let file = self.setup.client_file(clients.as_ref(), keys, at);
            file.unwrap().to_string()
        }
    }

    fn pptp(server: bool, at: &str, more: &str) -> String {
        let ends = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\n";
        match server {
            true => format!(
                "{ends}listen = \"{at}\"\naddress = \"{SERVER}/24\"\npool = \"{CLIENT}-{CLIENT}\"\n{more}\n\
                 [users]\nalice = \"correct horse\"\n"
            ),
            false => format!(
                "{ends}server = \"{at}\"\nusername = \"alice\"\npassword = \"correct horse\"\n{more}\n"
            ),
        }
    }

    /// Writes the tunnel's configuration, perhaps with [`MORE`], or with another user of a PPTP server.
    fn write(&self, more: bool) {
        let range = |text: &str| if more { text.to_owned() } else { String::new() };
        let lists = format!("{ONLY}{NETWORKS}");
        let file = |name: &str, text: String| {
            self.directory.replace(name, &text);
            self.directory.interface(OFFICE, name, &lists);
        };
        match (self.kind.protocol, self.kind.is_server) {
            (WireGuard, is_server) => {
                let (addresses, peer) = match is_server {
                    true => (
                        format!("\tlist addresses '{SERVER}/24'\n\toption listen_port '51820'\n"),
                        format!("\tlist allowed_ips '{CLIENT}/32'\n"),
                    ),
                    false => (
                        format!("\tlist addresses '{CLIENT}/24'\n\tlist addresses 'fd09::2/64'\n"),
                        format!(
                            "\toption endpoint_host '{OUTSIDE}'\n\toption endpoint_port '51820'\n\
                             \tlist allowed_ips '0.0.0.0/0'\n\tlist allowed_ips '::/0'\n"
                        ),
                    ),
                };
                let more = range(&format!("\tlist allowed_ips '{MORE}'\n"));
                let [ours, theirs] = &self.keys;
                let text = format!(
                    "config interface '{OFFICE}'\n\toption proto 'millrace'\n\toption multipath 'off'\n\
                     \toption private_key '{}'\n{addresses}{lists}\
                     config millrace_{OFFICE}\n\toption public_key '{}'\n\toption route_allowed_ips '1'\n{peer}{more}",
                    ours.private, theirs.public
                );
                self.directory.replace("network", &text);
            }
            (OpenVpn, is_server) => {
                let all = if is_server {
                    ""
                } else {
                    "redirect-gateway def1 ipv6\n"
                };
                let more = range("route 10.50.0.0 255.255.0.0\n");
                file(
                    "office.ovpn",
                    format!("{}\n{all}{more}", self.openvpn(is_server)),
                );
            }
            (Pptp, true) => {
                let text = Self::pptp(true, "0.0.0.0", "");
                file("office.toml", text + &range("bob = \"battery staple\"\n"));
            }
            (Pptp, false) => {
                let more = range(&format!("routes = [\"{MORE}\"]\n"));
                let more = format!("default-route = true\n{more}");
                file("office.toml", Self::pptp(false, OUTSIDE, &more));
            }
        }
    }

    /// Starts the far end.
    fn far_end(&self) -> Process {
        let host = &self.all.server;
        let [theirs, ours] = &self.keys;
        let is_server = !self.kind.is_server;
        let (name, text) = match (self.kind.protocol, is_server) {
            (WireGuard, true) => (
                "wg0.conf",
                format!(
                    "[Interface]\nPrivateKey = {}\nListenPort = 51820\nAddress = {SERVER}/24, fd09::1/64\n\
                     [Peer]\nPublicKey = {}\nAllowedIPs = {CLIENT}/32, fd09::2/128\n",
                    ours.private, theirs.public
                ),
            ),
            (WireGuard, false) => (
                "wg0.conf",
                format!(
                    "[Interface]\nPrivateKey = {}\nAddress = {CLIENT}/24\n[Peer]\nPublicKey = {}\n\
                     Endpoint = {HOME}:51820\nAllowedIPs = {SERVER}/32\nPersistentKeepalive = 1\n",
                    ours.private, theirs.public
                ),
            ),
            (OpenVpn, is_server) => ("far.ovpn", self.openvpn(is_server)),
            (Pptp, true) => {
                let more = "interface = \"pptp0\"";
                ("far.toml", Self::pptp(true, OUTSIDE, more))
            }
            (Pptp, false) => {
                let more = "interface = \"pptp0\"\nroutes = [\"10.9.0.0/24\"]";
                ("far.toml", Self::pptp(false, HOME, more))
            }
        };
        let file = self.far.file(name, &text);
        let command = match self.kind.protocol {
            OpenVpn => host.command("openvpn").arg("--config"),
            _ => host.command(PROGRAM).arg("up"),
        };
        let mut process = command.arg(file).spawn().unwrap();
        if is_server {
            let is_up = |line: &str| line.contains("is up") || line.contains(READY_LINE);
            let waited = process.wait_for_line("the far end", PATIENCE, is_up);
            waited.unwrap_or_else(|error| panic!("{error}\n{}", process.stderr()));
        }
        process
    }

    fn guard(&self, word: &str) -> HostCommand<'_> {
        let command = self.all.router.command(PROGRAM).args(["guard", word]);
        command.arg("--uci").arg(self.directory.path())
    }

    /// Starts the guard, and the process that restores it.
    fn guarded(&self) -> Process {
        let on = self.guard("on").exit().unwrap();
        assert!(on.stdout.starts_with("guard: held\n"), "{on:?}");
        let mut watch = self.guard("watch").spawn().unwrap();
        let told = |line: &str| line.contains("guard:");
        let waited = watch.wait_for_line("the guard", PATIENCE, told);
        waited.unwrap();
        watch
    }
}

/// A trouble: its name, and what happens.
type Trouble = (&'static str, fn(&mut Run<'_>));

const TROUBLES: [Trouble; 15] = [
    ("reload", |run| {
        run.more = !run.more;
        run.world.write(run.more);
        run.netifd.renew();
    }),
    ("renew", |run| {
        for _ in 0..3 {
            run.netifd.renew();
        }
    }),
    ("wan down and up", |run| {
        run.lose(true);
        run.gain(run.uplink, run.number);
    }),
    ("another address", |run| {
        run.lose(false);
        run.gain(run.uplink, 78 - run.number);
    }),
    ("another uplink", |run| {
        run.lose(true);
        run.gain(1 - run.uplink, run.number);
    }),
    ("process killed", |run| {
        run.netifd.kill();
        let killed = run.netifd.process();
        until("another process", || {
            run.netifd.tick();
            run.netifd.process() != killed
        });
    }),
    ("ubus killed", |run| run.netifd.restart_bus()),
    ("netifd killed", |run| run.netifd.crash()),
    ("ifdown and ifup", |run| {
        run.netifd.if_down();
        run.load.wait(SOME);
        run.netifd.if_up();
    }),
    ("link set down", |run| {
        run.netifd.others("link set DEV down");
    }),
    ("addr flush", |run| run.netifd.others("addr flush dev DEV")),
    ("route flush", |run| {
        run.netifd.others("route flush dev DEV");
    }),
    ("firewall stop and start", |run| {
        run.firewall.stop();
        run.load.wait(SOME);
        run.firewall.reload();
    }),
    ("firewall restart", |run| {
        run.firewall.stop();
        run.firewall.reload();
    }),
    ("ubus killed, and netifd later", |run| {
        run.netifd.restart_bus_alone();
        run.lan_reaches();
        run.netifd.crash();
    }),
];

/// Troubles of which an interface without faults takes no notice.
const GENTLE: [&str; 2] = ["renew", "ubus killed"];

/// Troubles that take something from the device, and those after which that counts anew.
const DISTURBANCES: [&str; 3] = ["link set down", "addr flush", "route flush"];
const BEGINNINGS: [&str; 4] = [
    "ifdown and ifup",
    "process killed",
    "netifd killed",
    "ubus killed, and netifd later",
];

/// Settings that are taken away a fourth time within minutes may be given up.
const MOST_DISTURBANCES: usize = 3;

/// The schedules of one world.
struct Run<'w> {
    world: &'w World,
    netifd: Netifd<'w>,
    firewall: Fw4<'w>,
    load: Load,
    /// The far end, and the guard's process.
    others: Vec<Process>,
    /// The uplink in use, and the last number of its address.
    uplink: usize,
    number: u8,
    /// Whether the configuration has more than at first.
    more: bool,
    /// The routes at first.
    routes: Vec<String>,
    disturbances: usize,
    /// The seed and steps of the schedule.
    schedule: (u64, Vec<&'static str>),
    /// The longest time until the LAN reached the far end after each trouble, and until the guard was whole after any.
    times: BTreeMap<&'static str, Duration>,
    clear: [u64; 4],
}

impl<'w> Run<'w> {
    fn start(world: &'w World) -> Self {
        let router = &world.all.router;
        router.output("nft", ["flush", "ruleset"]).unwrap();
        let mut firewall = Fw4::start(router, &DEVICES, &world.directory);
        for protocol in ACCEPTED {
            let setting = |words: &str| format!("uci set firewall.{protocol}{words}");
            let port = match protocol {
                "udp" if world.kind.protocol == WireGuard => setting(".dest_port=51820"),
                "udp" => setting(&format!(".dest_port={}", world.setup.port)),
                "tcp" => setting(".dest_port=1723"),
                _ => setting(".family=ipv4"),
            };
            firewall.uci(&[
                &setting("=rule"),
                &setting(".src=wan"),
                &setting(&format!(".proto={protocol}")),
                &port,
                &setting(".target=ACCEPT"),
            ]);
        }
        firewall.uci(&["uci commit firewall", "service firewall reload"]);
        world.write(false);
        let netifd = Netifd::start(router, OFFICE, world.directory.path());
        let targets = [world.inside(), FAR[0], FAR[1], "192.168.3.2"];
        let load = Load::towards(&world.all, &targets);
        let mut run = Self {
            world,
            netifd,
            firewall,
            load,
            others: vec![world.far_end()],
            uplink: 0,
            number: 1,
            more: false,
            routes: Vec::new(),
            disturbances: 0,
            schedule: (0, Vec::new()),
            times: BTreeMap::new(),
            clear: [0; 4],
        };
        run.gain(0, 1);
        until("packets in clear without the guard", || {
            world.all.clear().iter().all(|it| *it > 0)
        });
        // The guard cannot hold packets already in transit.
        run.load.pause();
        run.others.push(world.guarded());
        run.clear = world.all.clear();
        run.load.resume();
        run.netifd.if_up();
        until_answer(router, world.inside());
        run.routes = run.netifd.until_up().1;
        run
    }

    /// Takes the tunnel's uplink away, its link too or its address only.
    fn lose(&self, link: bool) {
        let device = DEVICES[self.uplink];
        let down = if link {
            format!("\nlink set {device} down")
        } else {
            String::new()
        };
        self.world.all.ip(&format!("addr flush dev {device}{down}"));
        self.load.wait(SOME);
    }

    /// Makes this uplink, with this address, the one in use.
    fn gain(&mut self, uplink: usize, number: u8) {
        let (device, far, net) = UPLINKS[uplink];
        (self.uplink, self.number) = (uplink, number);
        self.world.all.ip(&format!(
            "link set {device} up\naddr replace 192.168.{net}.{number}/24 dev {device}\n\
             addr replace fd00:{net}::{number}/64 dev {device} nodad\n\
             route replace default via 192.168.{net}.2 dev {device}\nroute replace ::/0 via fd00:{net}::2 dev {device}"
        ));
        let back = format!("route replace {HOME}/32 via 192.168.{net}.{number} dev {far}");
        self.world.all.server.output("ip", back.split(' ')).unwrap();
    }

    /// One trouble, and the recovery from it.
    fn step(&mut self, random: u64) {
        let (mut name, mut trouble) = TROUBLES[(random >> 33) as usize % TROUBLES.len()];
        if DISTURBANCES.contains(&name) {
            self.disturbances += 1;
            if self.disturbances > MOST_DISTURBANCES {
                let is_first = |it: &&Trouble| it.0 == BEGINNINGS[0];
                (name, trouble) = *TROUBLES.iter().find(is_first).unwrap();
            }
        }
        if BEGINNINGS.contains(&name) {
            self.disturbances = 0;
        }
        self.schedule.1.push(name);
        let is_calm = GENTLE.contains(&name) && self.netifd.faults().is_empty();
        let before = (self.netifd.taken(), self.netifd.starts);
        trouble(self);
        let times = self.recovers();
        let [.., tunnel, guard] = times;
        if guard > Duration::from_secs(10) {
            println!("{}: {:?}: {times:.1?}", self.world.kind, self.schedule);
        }
        for (what, time) in [(name, tunnel), ("the guard", guard)] {
            let longest = self.times.entry(what).or_default();
            *longest = time.max(*longest);
        }
        let clear = self.world.all.clear();
        assert_eq!(clear, self.clear, "packets in clear");
        assert_eq!(self.netifd.complaints(), Vec::<String>::new());
        let after = (self.netifd.taken(), self.netifd.starts);
        assert!(!is_calm || after == before, "{before:?} {after:?}");
    }

    /// Waits until interface and kernel have what the configuration says, router and LAN reach the far end, and the guard
    /// is whole. Returns the time until each of the four.
    fn recovers(&mut self) -> [Duration; 4] {
        let begin = Instant::now();
        let has_more =
            self.more && (self.world.kind.protocol, self.world.kind.is_server) != (Pptp, true);
        let more = has_more.then(|| MORE.to_owned());
        let routes: Vec<String> = self.routes.iter().cloned().chain(more).collect();
        let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
        self.netifd.until_has_routes(&routes);
        let is_whole = begin.elapsed();
        until_answer(&self.world.all.router, self.world.inside());
        let reaches = begin.elapsed();
        self.lan_reaches();
        let lan_reaches = begin.elapsed();
        // Without one of its two layers, the guard does not outlive the loss of the other.
        until("the guard", || {
            let status = self.world.guard("status").arg("--json").exit().unwrap();
            let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
            status["whole"] == true
        });
        [is_whole, reaches, lan_reaches, begin.elapsed()]
    }

    /// Waits until packets of the LAN arrive through the tunnel. Streams of before a restart of the firewall are not
    /// masqueraded.
    fn lan_reaches(&self) {
        let through = || self.world.all.through().iter().sum::<u64>();
        let before = through();
        until("packets of the LAN in the tunnel", || through() > before);
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let (seed, steps) = &self.schedule;
        if std::thread::panicking() {
            eprintln!("{}: schedule {seed}: {steps:?}", self.world.kind);
            for process in &self.others {
                eprintln!("---- {}{}", process.stdout(), process.stderr());
            }
        }
    }
}

/// The seeds of the schedules to run.
fn seeds() -> std::ops::Range<u64> {
    let given = env::var("MILLRACE_TEST_SCHEDULES").unwrap_or_else(|_| "4".to_owned());
    let (first, last) = given.split_once("..").unwrap_or(("0", &given));
    first.parse().unwrap()..last.parse().unwrap()
}

fn schedules(protocol: Protocol, is_server: bool) {
    if !lab::acceptance::ready()
        || !lab::acceptance::openvpn::ready()
        || lab::require(tools::find("nft")).is_none()
    {
        return;
    }
    let world = World::new(protocol, is_server);
    let mut run = Run::start(&world);
    let (seeds, sent) = (seeds(), run.load.sent());
    let count = seeds.end - seeds.start;
    for seed in seeds {
        run.schedule = (seed, Vec::new());
        let mut random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..4 {
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            run.step(random);
        }
    }
    let sent = run.load.sent() - sent;
    let met = format!(
        "{}: {count} schedules, 0 of {sent} packets in clear, longest times {:.1?}",
        world.kind, run.times
    );
    println!("{met}");
    lab::met(&met);
    for process in &mut run.others {
        assert!(process.try_wait().unwrap().is_none());
    }
    run.netifd.if_down();
}

#[test]
fn a_wireguard_client_recovers() {
    schedules(WireGuard, false);
}

#[test]
fn an_openvpn_client_recovers() {
    schedules(OpenVpn, false);
}

#[test]
fn a_pptp_client_recovers() {
    schedules(Pptp, false);
}

#[test]
fn a_wireguard_server_recovers() {
    schedules(WireGuard, true);
}

#[test]
fn an_openvpn_server_recovers() {
    schedules(OpenVpn, true);
}

#[test]
fn a_pptp_server_recovers() {
    schedules(Pptp, true);
}
