//! Counts packets that leave in clear under the guard and under the policy while the LAN breaks: ports, names and
//! packet filter tables go, devices forge sources, and a server runs at home. The counters are where packets would come
//! out.
//!
//! `MILLRACE_TEST_LEAKS` sets the number of packets that devices send in each test (8,000 if unset).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{env, io, thread};

use lab::acceptance::guarded::{FAR, Guarded, Load};
use lab::acceptance::{Directory, PATIENCE, PROGRAM, ip, until};
use lab::peer::Keys;
use lab::{Host, Process, tools};
use serde_json::Value;

/// Unused Internet addresses, which devices forge.
const FORGED: [&str; 2] = ["198.51.100.66", "2001:db8:bad::66"];

/// Steps of a test, which share its packets equally.
const STEPS: u64 = 22;

fn ready() -> bool {
    lab::acceptance::ready() && lab::require(tools::find("nft")).is_some()
}

/// Packets to send in each step.
fn share() -> u64 {
    let count = env::var("MILLRACE_TEST_LEAKS").ok();
    count.map_or(8_000, |it| it.parse().unwrap()) / STEPS
}

/// Counts packets that reach the server over the uplink: devices' packets in clear, and the router's replies to forged
/// addresses.
const COUNTING: &str = "table inet leaks {\n counter clear { }\n counter told { }\n chain first {\n\
    type filter hook prerouting priority -400;\n\
    iifname \"eth0\" tcp dport { 9, 7777 } tcp flags & rst == 0 counter name clear\n\
    iifname \"eth0\" udp dport { 9, 7777 } counter name clear\n\
    iifname \"eth0\" ip daddr 198.51.100.66 counter name told\n\
    iifname \"eth0\" ip6 daddr 2001:db8:bad::66 counter name told\n}\n}\n";

fn counted(world: &Guarded, name: &str) -> u64 {
    let words = ["-j", "list", "counter", "inet", "leaks", name];
    let all: Value = serde_json::from_str(&world.server.output("nft", words).unwrap()).unwrap();
    let mut entries = all["nftables"].as_array().unwrap().iter();
    let found = entries.find_map(|it| it["counter"]["packets"].as_u64());
    found.unwrap()
}

/// A router with a bridge, and devices behind it that send.
fn world() -> Guarded {
    let world = Guarded::unplugged();
    world.plug_bridge();
    world.plug_wan();
    world.server.nft(COUNTING).unwrap();
    world
}

/// A device that sends with forged addresses: to the Internet, and to a closed port of the router.
struct Forger {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Forger {
    fn start(host: &Host) -> Self {
        for family in ["ipv4", "ipv6"] {
            let key = format!("net/{family}/ip_nonlocal_bind");
            host.sysctl(&key, "1").unwrap();
        }
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (until, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let send = move || -> io::Result<()> {
            let sockets = [
                UdpSocket::bind((ip(FORGED[0]), 0))?,
                UdpSocket::bind((ip(FORGED[1]), 0))?,
            ];
            let targets = [[FAR[0], "192.168.1.2"], [FAR[1], "fd00:1::2"]];
            while !until.load(Ordering::Relaxed) {
                for (socket, targets) in sockets.iter().zip(targets) {
                    for (target, port) in targets.into_iter().zip([9, 1]) {
                        if socket.send_to(&[7; 64], (ip(target), port)).is_ok() {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let thread = Some(host.spawn("forger", send).unwrap());
        Self { stop, sent, thread }
    }

    fn wait(&self, packets: u64) {
        let end = self.sent.load(Ordering::Relaxed) + packets;
        until("forged packets that are sent", || {
            self.sent.load(Ordering::Relaxed) >= end
        });
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.unwrap().unwrap().unwrap();
        }
    }
}

fn run(world: &Guarded, words: &[&str]) -> String {
    let command = world.router.command(PROGRAM).args(words);
    command.output().unwrap()
}

fn watch(world: &Guarded, words: &[&str]) -> Process {
    let mut watch = world.router.command(PROGRAM).args(words).spawn().unwrap();
    let first = format!("{}:", words[0]);
    let told = |line: &str| line.contains(&first);
    watch
        .wait_for_line("its first look", PATIENCE, told)
        .unwrap();
    watch
}

/// Control run: without a guard, all packets leave and forged sources are answered, which shows that the counters
/// work.
fn control(world: &Guarded) {
    until("packets in clear", || counted(world, "clear") > 0);
    let forger = Forger::start(&world.pc);
    until("answers to forged sources", || counted(world, "told") > 0);
    forger.wait(1);
}

/// Breaks the LAN while a program blocks both devices. `holds` starts the program and returns its watching process.
fn to_pieces(holds: impl FnOnce(&Guarded) -> Process, is_whole: impl Fn(&Guarded) -> bool) {
    let world = world();
    let load = Load::start(&world);
    control(&world);
    load.pause();
    let _watch = holds(&world);
    until("all of it is in place", || is_whole(&world));
    let begin = (counted(&world, "clear"), counted(&world, "told"));
    let first = load.sent();
    let leaked = |when: &str| {
        let now = (counted(&world, "clear"), counted(&world, "told"));
        assert_eq!(now, begin, "{when}: in clear, and told to forged sources");
    };
    let share = share();
    load.resume();
    load.wait(share);
    leaked("nothing happens");
    let forger = Forger::start(&world.pc);
    forger.wait(share);
    leaked("sources are forged");
    // Takes a port out of its bridge, with and without forged sources.
    world.ip("link set lan1 nomaster");
    forger.wait(share);
    load.wait(share);
    leaked("a port was taken out of its bridge");
    world.ip("link set lan1 master br-lan");
    drop(forger);
    load.wait(share);
    leaked("the port is back");
    for round in 0..10 {
        world.router.output("nft", ["flush", "ruleset"]).unwrap();
        load.wait(share);
        leaked(&format!("the packet filter was flushed, {round}"));
    }
    until("all of it is in place again", || is_whole(&world));
    // Two tunnels appear to be up at the same time; the first one is preferred.
    let tunnels = ["mr-plain", "mr-us"];
    for (number, name) in tunnels.iter().enumerate() {
        world.ip(&format!(
            "tuntap add {name} mode tun\naddress add 10.99.{number}.2/32 dev {name}\n\
             address add fd99::{number}:2/128 dev {name} nodad\nlink set {name} up"
        ));
        load.wait(share);
        leaked(&format!("{name} came"));
    }
    for name in tunnels {
        world.ip(&format!("link delete {name}"));
        load.wait(share);
        leaked(&format!("{name} went"));
    }
    let forger = Forger::start(&world.pc);
    world.ip("link set br-lan down\nlink set br-lan name lan0\nlink set lan0 up");
    forger.wait(share);
    load.wait(share);
    leaked("the bridge was renamed");
    world.ip("link delete lan0");
    forger.wait(share);
    load.wait(2 * share);
    leaked("the bridge was deleted");
    println!(
        "0 of {} packets left in clear, nothing was told to forged sources",
        load.sent() - first
    );
}

#[test]
fn the_guard_holds_a_lan_in_pieces() {
    if !ready() {
        return;
    }
    let is_whole = |world: &Guarded| {
        let command = world
            .router
            .command(PROGRAM)
            .args(["guard", "status", "--json"]);
        let exit = command.exit().unwrap();
        serde_json::from_str::<Value>(&exit.stdout).unwrap()["whole"] == true
    };
    let holds = |world: &Guarded| {
        run(
            world,
            &["guard", "on", "--lan", "br-lan", "--lan", "br-guest"],
        );
        watch(world, &["guard", "watch"])
    };
    to_pieces(holds, is_whole);
}

/// Makes the policy block the devices of an entry with this `who`.
fn policy_holds(who: impl Fn(&Guarded) -> String) {
    let directory = Directory::new();
    let is_whole = |world: &Guarded| {
        let command = world
            .router
            .command(PROGRAM)
            .args(["policy", "status", "--json"]);
        command.exit().unwrap().status.code() == Some(0)
    };
    let holds = |world: &Guarded| {
        let text = format!(
            "lan = [\"br-lan\", \"br-guest\"]\nleases = \"/nonexistent\"\n[[entry]]\n{}through = \"mr-us\"\n",
            who(world)
        );
        let file = directory.file("policy.toml", &text).display().to_string();
        run(world, &["policy", "on", "--settings", &file]);
        watch(world, &["policy", "watch", "--settings", &file])
    };
    to_pieces(holds, is_whole);
}

#[test]
fn the_policy_holds_devices_of_a_lan_in_pieces() {
    if !ready() {
        return;
    }
    let mac = |host: &Host| {
        let links = host.netlink().unwrap().links().unwrap();
        let link = links.iter().find(|it| it.name == "eth0").unwrap();
        let bytes: Vec<String> = link.mac.iter().map(|it| format!("{it:02x}")).collect();
        bytes.join(":")
    };
    policy_holds(|world| {
        format!(
            "who = [\"{}\", \"{}\"]\n",
            mac(&world.pc),
            mac(&world.phone)
        )
    });
}

#[test]
fn the_policy_holds_a_bridge_of_a_lan_in_pieces() {
    if !ready() {
        return;
    }
    policy_holds(|_| "who = [\"br-lan\", \"br-guest\"]\n".to_owned());
}

/// A guarded device connects to the server at home, whose device would send the packets in clear. The guard routes
/// nothing into that device, although its name looks like a tunnel's.
#[test]
fn a_server_at_home_is_no_tunnel_and_no_way_out() {
    if !ready() || lab::require(tools::find("wg")).is_none() {
        return;
    }
    let world = Guarded::new();
    world.server.nft(COUNTING).unwrap();
    let directory = Directory::new();
    let [home, phone] = [(), ()].map(|()| Keys::generate(&world.server).unwrap());
    let server = format!(
        "#! [Server]\n#! Masquerade = yes\n[Interface]\nPrivateKey = {}\nAddress = 10.44.0.1/24, fd44::1/64\nListenPort = 51820\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = 10.44.0.2/32, fd44::2/128\n",
        home.private, phone.public
    );
    let client = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.44.0.2/32, fd44::2/128\n\
         [Peer]\nPublicKey = {}\nEndpoint = 192.168.2.2:51820\nAllowedIPs = 0.0.0.0/0, ::/0\n",
        phone.private, home.public
    );
    let up = |host: &Host, name: &str, text: &str| {
        let file = directory.file(&format!("{name}.conf"), text);
        let command = host.command(PROGRAM).args(["up", "--no-dns"]);
        let mut process = command.arg(file).spawn().unwrap();
        let told = |line: &str| line.contains("is up");
        process.wait_for_line("the tunnel", PATIENCE, told).unwrap();
        process
    };
    let _server = up(&world.router, "mr-home", &server);
    let _client = up(&world.phone, "mr-phone", &client);
    let ask = || {
        let send = || -> io::Result<()> {
            for far in FAR {
                let any = if ip(far).is_ipv4() { "0.0.0.0" } else { "::" };
                UdpSocket::bind((ip(any), 0))?.send_to(&[7; 64], (ip(far), 9))?;
            }
            Ok(())
        };
        // A refusal of this datagram is reported as an error of the next one.
        let _ = world.phone.run(send).unwrap();
    };
    until("the phone leaves by the server at home", || {
        ask();
        counted(&world, "clear") > 0
    });
    run(
        &world,
        &["guard", "on", "--lan", "br-lan", "--lan", "br-guest"],
    );
    let status = || {
        let command = world
            .router
            .command(PROGRAM)
            .args(["guard", "status", "--json"]);
        serde_json::from_str::<Value>(&command.exit().unwrap().stdout).unwrap()
    };
    assert_eq!(status()["state"], "held", "{}", status());
    let lan = status()["lan"].to_string();
    assert!(lan.contains("mr-home"), "{lan}");
    let routes = world
        .router
        .output("ip", ["route", "show", "table", "all"])
        .unwrap();
    assert!(!routes.contains("table 77"), "{routes}");
    let before = counted(&world, "clear");
    let refused = || status()["refused_packets"].as_u64().unwrap_or_default();
    for _ in 0..100 {
        ask();
    }
    until("packets that are refused or held", || {
        ask();
        refused() > 0 || held_by_rules(&world)
    });
    assert_eq!(counted(&world, "clear"), before);
    // The phone still reaches the router and the LAN through the server.
    lab::acceptance::pings(&world.phone, "10.44.0.1", 1);
    lab::acceptance::pings(&world.phone, "192.168.1.1", 1);
    // The option `servers = false` lets clients leave through the uplink.
    let file = directory.file(
        "guard.toml",
        "lan = [\"br-lan\", \"br-guest\"]\nservers = false\n",
    );
    run(
        &world,
        &["guard", "on", "--settings", &file.display().to_string()],
    );
    until("clients leave by the line", || {
        ask();
        counted(&world, "clear") > before
    });
}

/// Whether routing rules have rejected packets that the packet filter no longer stops.
fn held_by_rules(world: &Guarded) -> bool {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp");
    let text = world.router.run(read).unwrap().unwrap();
    let mut ip = text.lines().filter(|line| line.starts_with("Icmp:"));
    let (Some(names), Some(values)) = (ip.next(), ip.next()) else {
        return false;
    };
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.any(|(name, value)| name == "OutDestUnreachs" && value != "0")
}

/// The guard alone makes a tunnel carry the LAN if no other program masquerades, and names the remaining steps.
#[test]
fn the_guard_alone_is_enough_for_a_tunnel() {
    if !ready() || lab::require(tools::find("wg")).is_none() {
        return;
    }
    let world = Guarded::new();
    world
        .router
        .output("nft", ["delete", "table", "inet", "nat"])
        .unwrap();
    let directory = Directory::new();
    let _far = world.far_end(&directory);
    let text = run(
        &world,
        &["guard", "on", "--lan", "br-lan", "--lan", "br-guest"],
    );
    assert!(text.contains("no `millrace guard watch` runs"), "{text}");
    let _tunnel = world.tunnel(&directory, "mr-full");
    let text = world
        .router
        .command(PROGRAM)
        .args(["guard", "status"])
        .exit()
        .unwrap()
        .stdout;
    assert!(text.contains("add the route into the tunnel"), "{text}");
    assert!(!text.contains("bring a tunnel up"), "{text}");
    let _watch = watch(&world, &["guard", "watch"]);
    let _load = Load::start(&world);
    // The far end accepts packets from the router's own address only.
    until("all kinds go through", || {
        world.through().iter().all(|count| *count > 0)
    });
    let text = run(&world, &["guard", "status"]);
    assert!(
        text.contains("masquerading: in place") && !text.contains("no `millrace guard watch`"),
        "{text}"
    );
}

/// With `router`, lookups and connections of the router itself leave through a tunnel or not at all, except traffic
/// that keeps uplink and tunnel alive.
#[test]
fn the_router_itself_leaves_by_a_tunnel_only() {
    if !ready() || lab::require(tools::find("wg")).is_none() {
        return;
    }
    let world = Guarded::new();
    let counting = "table inet own {\n counter clear { }\n counter clock { }\n chain first {\n\
        type filter hook prerouting priority -400;\n\
        iifname \"eth0\" udp dport { 53, 7001 } counter name clear\n\
        iifname \"eth0\" tcp dport 7002 counter name clear\n\
        iifname \"eth0\" udp dport 123 counter name clock\n}\n}\n";
    world.server.nft(counting).unwrap();
    let count = |name: &str| {
        let words = ["-j", "list", "counter", "inet", "own", name];
        let all: Value = serde_json::from_str(&world.server.output("nft", words).unwrap()).unwrap();
        let mut entries = all["nftables"].as_array().unwrap().iter();
        entries
            .find_map(|it| it["counter"]["packets"].as_u64())
            .unwrap()
    };
    let send = |port: u16| {
        let send = || {
            for far in FAR {
                let any = if ip(far).is_ipv4() { "0.0.0.0" } else { "::" };
                let socket = UdpSocket::bind((ip(any), 0)).unwrap();
                let _ = socket.send_to(&[7; 64], (ip(far), port));
                let target = std::net::SocketAddr::new(ip(far), 7002);
                let _ = std::net::TcpStream::connect_timeout(&target, Duration::from_millis(20));
            }
        };
        world.router.run(send).unwrap();
    };
    // Completes address and neighbour resolution first, so that no packet waits to leave later.
    for far in FAR {
        lab::acceptance::reaches(&world.router, far);
    }
    send(53);
    until("the router's own leave", || count("clear") >= 4);
    let directory = Directory::new();
    let far = world.far_end(&directory);
    let file = directory.file(
        "guard.toml",
        "lan = [\"br-lan\", \"br-guest\"]\nrouter = true\n",
    );
    run(
        &world,
        &["guard", "on", "--settings", &file.display().to_string()],
    );
    let before = count("clear");
    for port in [53, 7001] {
        (0..50).for_each(|_| send(port));
    }
    // These packets follow on the same path: when the counter sees them, it has seen all earlier ones.
    until("the time is asked for", || {
        send(123);
        count("clock") > 0
    });
    assert_eq!(count("clear"), before, "while no tunnel is up");
    lab::acceptance::pings(&world.router, "192.168.1.1", 1);
    // The server pings the router, which answers.
    lab::acceptance::pings(&world.server, "192.168.3.1", 1);
    // A full tunnel comes up and carries the router's traffic; when it is killed, nothing leaves in clear.
    let tunnel = world.tunnel(&directory, "mr-full");
    lab::acceptance::reaches(&world.router, "10.8.0.1");
    send(7001);
    tunnel.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
    tunnel.wait_at_most(PATIENCE).unwrap();
    for _ in 0..50 {
        send(53);
    }
    let asked = count("clock");
    until("the time is asked for again", || {
        send(123);
        count("clock") > asked
    });
    assert_eq!(count("clear"), before, "after the tunnel was killed");
    drop(far);
}

/// `on --wait` delays the network until guard or policy blocks, and reports faulty settings. Without settings it
/// returns at once.
#[test]
fn the_network_waits_until_something_is_held() {
    if !ready() {
        return;
    }
    let world = Guarded::new();
    let directory = Directory::new();
    for (name, wrong, right) in [
        ("guard", "lan = [", "lan = [\"br-lan\"]\n"),
        (
            "policy",
            "lan = [",
            "lan = [\"br-lan\"]\n[[entry]]\nwho = \"02:00:5e:10:00:01\"\nthrough = \"mr-us\"\n",
        ),
    ] {
        let file = directory.file(&format!("{name}.toml"), wrong);
        let on = |file: &str| {
            let words = [name, "on", "--wait", "--settings", file];
            world.router.command(PROGRAM).args(words)
        };
        let mut waits = on(&file.display().to_string()).spawn().unwrap();
        let told = |line: &str| line.contains("not set yet, so the network waits");
        waits.wait_for_line("the mistake", PATIENCE, told).unwrap();
        directory.file(&format!("{name}.toml"), right);
        let exit = waits.wait_at_most(PATIENCE).unwrap();
        assert!(exit.status.success(), "{name}: {exit:?}");
        let status = world
            .router
            .command(PROGRAM)
            .args([name, "status"])
            .exit()
            .unwrap();
        assert_eq!(status.status.code(), Some(0), "{status:?}");
        run(&world, &[name, "off"]);
    }
    let none = directory.path().join("none.toml").display().to_string();
    let exit = world
        .router
        .command(PROGRAM)
        .args(["policy", "on", "--wait", "--settings", &none])
        .exit();
    assert_eq!(exit.unwrap().status.code(), Some(0));
    let unit = |name: &str| {
        let path =
            format!("../../packaging/debian/millrace/lib/systemd/system/millrace-{name}.service");
        std::fs::read_to_string(path).unwrap()
    };
    for name in ["guard", "policy"] {
        let text = unit(name);
        assert!(
            text.contains(&format!(
                "millrace {name} on --wait; do sleep 1; done'\nTimeoutStartSec=infinity\n"
            )),
            "{text}"
        );
    }
}
