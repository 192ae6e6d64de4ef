//! The policy while other programs delete its table, and at boots: no packet leaves in clear, and names keep their
//! addresses.
//!
//! `MILLRACE_TEST_FLUSHES` sets how often the firewall is stopped (12 if unset).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use std::{env, fs, io};

use lab::acceptance::policed::{Policed, Resolver, both};
use lab::acceptance::{Directory, PATIENCE, ip, until};
use lab::{Host, Process, tools};
use nix::sys::signal::Signal;
use serde_json::Value;

fn ready() -> bool {
    lab::acceptance::ready()
        && lab::require(tools::find("nft")).is_some()
        && lab::require(tools::find("dnsmasq")).is_some()
}

/// Packets to count, by what the policy knows of them.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    host: &'static str,
    /// Where the packets come from; `None` for the device's own addresses.
    from: Option<[&'static str; 2]>,
    /// The last number of the destination.
    to: u8,
    /// Whether each packet begins a connection.
    is_new: bool,
    /// The server's device through which the packets may come.
    way: &'static str,
}

/// The port of the first kind; the other kinds have the next ones. The server answers at these ports.
const PORT: u16 = 7901;

/// Addresses of a device that its router has not seen before.
const UNSEEN: [&str; 2] = ["192.168.1.77", "fd00:1::77"];

const fn kind(
    name: &'static str,
    host: &'static str,
    to: u8,
    is_new: bool,
    way: &'static str,
) -> Kind {
    Kind {
        name,
        host,
        from: None,
        to,
        is_new,
        way,
    }
}

/// The last kind is free to leave in clear, which shows that packets in clear are counted.
const KINDS: [Kind; 7] = [
    kind("a blocked device", "pc", 9, true, "wg1"),
    kind("its old connection", "pc", 9, false, "wg1"),
    kind("a name", "phone", 40, true, "wg2"),
    kind("an old connection to a name", "phone", 40, false, "wg2"),
    Kind {
        from: Some(UNSEEN),
        ..kind("a new address", "pc", 9, true, "wg1")
    },
    Kind {
        from: Some(UNSEEN),
        ..kind("an old connection of it", "pc", 9, false, "wg1")
    },
    kind("no entry", "phone", 9, true, "eth0"),
];

/// Steady packets of all kinds, until it is dropped.
struct Steady {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<io::Result<()>>>,
}

impl Steady {
    fn start(all: &Policed) -> Self {
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut threads = Vec::new();
        for (port, kind) in (PORT..).zip(KINDS) {
            for (family, to) in both(kind.to).into_iter().enumerate() {
                let host: &Host = if kind.host == "pc" {
                    &all.world.pc
                } else {
                    &all.world.phone
                };
                let from = kind.from.map_or(["0.0.0.0", "::"], |it| it)[family];
                let to = SocketAddr::new(ip(&to), port);
                let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
                let send = move || -> io::Result<()> {
                    let mut socket = UdpSocket::bind((ip(from), 0))?;
                    while !stop.load(Ordering::Relaxed) {
                        if kind.is_new {
                            socket = UdpSocket::bind((ip(from), 0))?;
                        }
                        // A refusal of the packet before may surface here.
                        if socket.send_to(&[7; 64], to).is_ok() {
                            sent.fetch_add(1, Ordering::Relaxed);
                        }
                        thread::sleep(Duration::from_millis(2));
                    }
                    Ok(())
                };
                threads.push(host.spawn("packets", send).unwrap());
            }
        }
        Self {
            stop,
            sent,
            threads,
        }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn wait(&self, packets: u64) {
        let end = self.sent() + packets;
        until("packets that are sent", || self.sent() >= end);
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// Counts the packets of each kind at the server, by the device through which they come. Addresses that the router has
/// not seen get no answer: for one, it would ask for their hardware address.
fn count(all: &Policed) {
    let (mut counters, mut rules) = (String::new(), String::new());
    for (port, kind) in (PORT..).zip(KINDS) {
        for way in ["eth0", "wg1", "wg2"] {
            counters += &format!("counter {way}_{port} {{ }}\n");
            rules += &format!("iifname {way} udp dport {port} counter name {way}_{port}\n");
        }
        if kind.from.is_some() {
            rules += &format!("udp dport {port} drop\n");
        }
    }
    let table = format!(
        "table inet kinds {{\n{counters}chain first {{\ntype filter hook prerouting priority -400;\n{rules}}}\n}}\n"
    );
    all.world.server.nft(&table).unwrap();
}

/// Packets of each kind that came through its own way, and through others.
fn came(all: &Policed) -> Vec<[u64; 2]> {
    let words = ["-j", "list", "counters", "table", "inet", "kinds"];
    let text = all.world.server.output("nft", words).unwrap();
    let listed: Value = serde_json::from_str(&text).unwrap();
    let counted = |name: String| {
        let mut entries = listed["nftables"].as_array().unwrap().iter();
        let entry = entries.find(|it| it["counter"]["name"] == name.as_str());
        entry.unwrap()["counter"]["packets"].as_u64().unwrap()
    };
    let of = |(port, kind): (u16, Kind)| {
        let mut counts = [0, 0];
        for way in ["eth0", "wg1", "wg2"] {
            counts[usize::from(way != kind.way)] += counted(format!("{way}_{port}"));
        }
        counts
    };
    (PORT..).zip(KINDS).map(of).collect()
}

/// `service firewall stop` deletes every table, ours too. Until the watch has made it again, only rules block.
#[test]
fn a_stopped_firewall_lets_no_packet_leave_in_clear() {
    if !ready() {
        return;
    }
    let all = Policed::new();
    count(&all);
    let directory = Directory::new();
    let _tunnels = all.tunnels(&directory);
    let resolver = Resolver::start(&all);
    let entries = format!(
        "masquerade = true\n[[entry]]\nname = \"pc\"\nwho = \"{}\"\nthrough = \"mr-us\"\n\
         [[entry]]\nname = \"names\"\nto = \"example.org\"\nthrough = \"mr-nl\"\n",
        all.mac(&all.world.pc)
    );
    let file = resolver.settings(&entries);
    assert_eq!(all.policy(&["on", "--settings", &file]).0, Some(0));
    let _watch = all.watch(&file);
    all.settled("names", "through mr-nl");
    all.resolve(&all.world.phone, "192.168.2.2", "example.org");
    // The device does not ask for its router's hardware address with these as its own.
    for router in ["192.168.1.2", "fd00:1::2"] {
        all.world.knows(&all.world.pc, router, "br-lan");
    }
    for address in UNSEEN {
        all.add_address(&all.world.pc, address);
    }
    let load = Steady::start(&all);
    for (place, kind) in KINDS.iter().enumerate() {
        until(kind.name, || came(&all)[place][0] > 0);
    }
    until("rules for new addresses and names", || {
        let rules = ["-4", "-6"].map(|it| all.world.router.output("ip", [it, "rule"]).unwrap());
        let rules = rules.concat();
        // An event that wakes the watch.
        all.world.ip("route replace 198.18.99.0/24 dev wan");
        all.world.ip("route delete 198.18.99.0/24 dev wan");
        let known = [UNSEEN.map(str::to_owned), both(40)].concat();
        known.iter().all(|it| rules.contains(&format!("{it} ")))
    });
    let before = came(&all);
    let first = load.sent();
    let times = env::var("MILLRACE_TEST_FLUSHES").ok();
    let times: u32 = times.map_or(12, |it| it.parse().unwrap());
    for _ in 0..times {
        all.stop_firewall();
        load.wait(200);
        until("the whole policy", || all.status().1 == Some(0));
        all.start_firewall();
        let begin = came(&all);
        for (place, kind) in KINDS.iter().enumerate() {
            until(kind.name, || came(&all)[place][0] > begin[place][0]);
        }
    }
    let mut astray = 0;
    for ((kind, now), then) in KINDS.iter().zip(came(&all)).zip(before) {
        let count = now[1] - then[1];
        println!(
            "{}: {count} astray, {} by their way",
            kind.name,
            now[0] - then[0]
        );
        astray += count;
    }
    println!("of {} packets", load.sent() - first);
    assert_eq!(astray, 0);
    assert_eq!(resolver.restarts(), 2, "dnsmasq forgets nothing");
}

/// The policy's table, as `nft` lists it; empty if there is none.
fn table(all: &Policed) -> String {
    let words = ["list", "table", "inet", "millrace_policy"];
    let command = all.world.router.command("nft").args(words);
    command.exit().unwrap().stdout
}

fn end(watch: Process, signal: Signal) {
    watch.signal(signal).unwrap();
    watch.wait_at_most(PATIENCE).unwrap();
}

/// Devices go on using the addresses that they know, so no query comes that could fill a new set.
#[test]
fn names_keep_their_addresses_whatever_becomes_of_the_table() {
    if !ready() {
        return;
    }
    let all = Policed::new();
    let (phone, router) = (&all.world.phone, &all.world.router);
    let directory = Directory::new();
    let _tunnels = all.tunnels(&directory);
    let resolver = Resolver::start(&all);
    let entries = "[[entry]]\nname = \"names\"\nto = \"example.org\"\nthrough = \"mr-nl\"\n";
    let file = resolver.settings(entries);
    assert_eq!(all.policy(&["on", "--settings", &file]).0, Some(0));
    let started = resolver.restarts();
    let mut watch = Some(all.watch(&file));
    all.settled("names", "through mr-nl");
    all.resolve(phone, "192.168.2.2", "example.org");
    let names = both(40);
    let kept = resolver.directory.path().join("policy.toml.names");
    until("a file of addresses", || {
        let text = fs::read_to_string(&kept).unwrap_or_default();
        names.iter().all(|it| text.contains(it))
    });

    let nft = |script: &str| router.nft(script).unwrap();
    let delete = || nft("delete table inet millrace_policy");
    let records = || {
        let remove = || {
            let all = fs::read_dir("/run/millrace").unwrap().flatten();
            let record = |it: &fs::DirEntry| {
                let name = it.file_name().into_string().unwrap();
                name.starts_with("policy@") && name.ends_with(".toml")
            };
            all.filter(record)
                .for_each(|it| fs::remove_file(it.path()).unwrap());
        };
        router.run(remove).unwrap();
    };
    let situations: [(&str, &dyn Fn(Process) -> Process); 7] = [
        ("nothing happens", &|watch| watch),
        ("another program deletes the table", &|watch| {
            delete();
            watch
        }),
        ("the firewall is stopped", &|watch| {
            all.stop_firewall();
            all.start_firewall();
            watch
        }),
        ("the watch never sees the table missing", &|watch| {
            watch.signal(Signal::SIGSTOP).unwrap();
            delete();
            nft(
                "table inet millrace_policy {\nchain forward {\ntype filter hook forward priority -6;\n}\n}\n",
            );
            watch.signal(Signal::SIGCONT).unwrap();
            watch
        }),
        ("another program flushes the sets", &|watch| {
            let text = table(&all);
            let sets = text
                .lines()
                .filter_map(|it| it.trim().strip_prefix("set ")?.strip_suffix(" {"));
            let flush: String = sets
                .map(|it| format!("flush set inet millrace_policy {it}\n"))
                .collect();
            nft(&flush);
            watch
        }),
        ("the table is deleted while nothing watches", &|watch| {
            end(watch, Signal::SIGKILL);
            delete();
            all.watch(&file)
        }),
        ("the router boots", &|watch| {
            end(watch, Signal::SIGKILL);
            records();
            delete();
            all.world.flush_rules();
            all.watch(&file)
        }),
    ];
    for (name, situation) in situations {
        watch = watch.map(situation);
        until(name, || {
            let text = table(&all);
            all.status().1 == Some(0) && names.iter().all(|it| text.contains(it))
        });
        for to in &names {
            assert_eq!(all.way(phone, to).as_deref(), Some("wg2"), "{name}: {to}");
        }
        assert_eq!(resolver.restarts(), started, "{name}");
    }

    // Where nothing is kept, `dnsmasq` has to forget what it answers from its cache.
    end(watch.take().unwrap(), Signal::SIGKILL);
    records();
    fs::remove_file(&kept).unwrap();
    delete();
    let _watch = all.watch(&file);
    until("dnsmasq restarts", || resolver.restarts() > started);
    all.settled("names", "through mr-nl");
    all.resolve(phone, "192.168.2.2", "example.org");
    for to in &names {
        assert_eq!(
            all.way(phone, to).as_deref(),
            Some("wg2"),
            "asked again: {to}"
        );
    }
    assert_eq!(all.policy(&["off", "--settings", &file]).0, Some(0));
    assert!(!kept.exists());
}
