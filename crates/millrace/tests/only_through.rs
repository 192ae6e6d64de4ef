//! `only_through` of OpenWrt interfaces: each LAN leaves through its own tunnels or not at all, whatever happens to
//! tunnels, rules and the packet filter, and never by another LAN's tunnel.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::guarded::{Guarded, Load, SOME};
use lab::acceptance::netifd::Netifd;
use lab::acceptance::{Directory, PATIENCE, PROGRAM, interface, ip, millrace, pings, until};
use lab::peer::{Keys, PeerOptions, RunningPeer, WgPeer, WireGuardPeer};
use lab::{Process, tools};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;

/// The LANs.
const LANS: [&str; 2] = ["br-lan", "br-guest"];
const OUT: [&str; 3] = ["wan", "mr-office", "mr-home"];

/// The sections of LANs and WAN in `network`.
const NETWORKS: &str = "config interface 'lan'\n\toption device 'br-lan'\n\toption proto 'static'\n\
    config interface 'guest'\n\toption device 'br-guest'\n\toption proto 'static'\n\
    config interface 'wan'\n\toption device 'wan'\n\toption proto 'dhcp'\n";

/// Each tunnel's interface, its number, and the far end's interface.
const TUNNELS: [(&str, u8, &str); 2] = [("office", 8, "wg0"), ("home", 9, "wg1")];

fn ready() -> bool {
    lab::acceptance::ready() && lab::require(tools::find("nft")).is_some()
}

/// A router with UCI files, and counters of leaving packets.
struct Lists {
    world: Guarded,
    /// The files that the guard reads.
    uci: Directory,
    /// The directory of each netifd double.
    netifd: [Directory; 2],
    keys: [(Keys, Keys); 2],
}

impl Lists {
    fn new(world: Guarded) -> Self {
        let mut rules = String::new();
        for lan in LANS {
            for out in OUT {
                for family in ["ipv4", "ipv6"] {
                    let name = format!("{lan}_{out}_{family}").replace('-', "_");
                    rules += &format!(
                        "add counter inet judging {name}\nadd rule inet judging last iifname \"{lan}\" oifname \"{out}\" \
                         meta nfproto {family} counter name {name}\n"
                    );
                }
            }
        }
        let chain = "add table inet judging\nadd chain inet judging last { type filter hook postrouting priority 310; }\n";
        world.router.nft(&(chain.to_owned() + &rules)).unwrap();
        let keys = [(); 2].map(|()| {
            [(); 2]
                .map(|()| Keys::generate(&world.server).unwrap())
                .into()
        });
        Self {
            world,
            uci: Directory::new(),
            netifd: [Directory::new(), Directory::new()],
            keys,
        }
    }

    /// Writes `network` with these LANs in each tunnel's list.
    fn write(&self, office: &[&str], home: &[&str]) {
        let mut text = NETWORKS.to_owned();
        for ((name, number, _), list) in TUNNELS.into_iter().zip([office, home]) {
            let (ours, theirs) = &self.keys[usize::from(number - 8)];
            let list = list
                .iter()
                .map(|it| format!("\tlist only_through '{it}'\n"));
            text += &format!(
                "config interface '{name}'\n\toption proto 'millrace'\n\toption private_key '{}'\n\
                 \tlist addresses '10.{number}.0.2/32'\n\tlist addresses 'fd0{number}::2/128'\n{}\
                 config millrace_{name}\n\toption public_key '{}'\n\toption endpoint_host '192.168.3.2'\n\
                 \toption endpoint_port '5182{number}'\n\tlist allowed_ips '0.0.0.0/0'\n\tlist allowed_ips '::/0'\n",
                ours.private,
                list.collect::<String>(),
                theirs.public
            );
        }
        for directory in self.netifd.iter().chain([&self.uci]) {
            let new = directory.file("new", &text);
            fs::rename(new, directory.path().join("network")).unwrap();
        }
    }

    /// Starts the far ends of both tunnels.
    fn far_ends(&self) -> Vec<RunningPeer<'_>> {
        let server = &self.world.server;
        let far = |(_, number, device): (&str, u8, &str)| {
            let (ours, theirs) = &self.keys[usize::from(number - 8)];
            let peer = WgPeer::new(&ours.public)
                .allow(ip(&format!("10.{number}.0.2")), 32)
                .allow(ip(&format!("fd0{number}::2")), 128);
            let running = millrace()
                .start(server, device, &PeerOptions::default())
                .unwrap();
            let port = 51820 + u16::from(number);
            running
                .configure(&interface(theirs, port, vec![peer]))
                .unwrap();
            let addresses = [
                (ip(&format!("10.{number}.0.1")), 24),
                (ip(&format!("fd0{number}::1")), 64),
            ];
            running.bring_up(&addresses, 1420).unwrap();
            running
        };
        TUNNELS.map(far).into()
    }

    fn netifds(&self) -> [Netifd<'_>; 2] {
        let start = |place: usize| {
            let (name, _, _) = TUNNELS[place];
            Netifd::start(&self.world.router, name, self.netifd[place].path())
        };
        [start(0), start(1)]
    }

    /// Runs `millrace guard`; returns its output and exit code.
    fn guard(&self, words: &[&str]) -> (String, Option<i32>) {
        let uci = self.uci.path().to_str().unwrap();
        let mut all = vec!["guard"];
        all.extend(words);
        if !["off", "refresh"].contains(&words[0]) {
            all.extend(["--uci", uci]);
        }
        let exit = self.world.router.command(PROGRAM).args(all).exit().unwrap();
        (exit.stdout + &exit.stderr, exit.status.code())
    }

    fn status(&self) -> (Value, Option<i32>) {
        let (text, code) = self.guard(&["status", "--json"]);
        (serde_json::from_str(&text).unwrap(), code)
    }

    /// Waits until a LAN device uses a tunnel in both families, or no tunnel.
    fn until_through(&self, lan: &str, tunnel: Option<&str>) {
        until(&format!("{lan} through {tunnel:?}"), || {
            let status = self.status().0;
            let mut groups = status["groups"].as_array().unwrap().iter();
            let has = |it: &&Value| it["lan"].as_array().unwrap().iter().any(|it| it == lan);
            let group = groups.find(has).unwrap();
            let is = |family: &str| group[family]["through"].as_str() == tunnel;
            is("ipv4") && is("ipv6")
        });
    }

    fn watch(&self) -> Process {
        let command = self.world.router.command(PROGRAM).args(["guard", "watch"]);
        let mut watch = command.arg("--uci").arg(self.uci.path()).spawn().unwrap();
        let told = |line: &str| line.contains("guard:");
        watch
            .wait_for_line("its first look", PATIENCE, told)
            .unwrap();
        watch
    }

    /// Packets from a LAN that left through a device, IPv4 and IPv6.
    fn left(&self, lan: &str, out: &str) -> [u64; 2] {
        let words = ["-j", "list", "counters", "table", "inet", "judging"];
        let all: Value =
            serde_json::from_str(&self.world.router.output("nft", words).unwrap()).unwrap();
        ["ipv4", "ipv6"].map(|family| {
            let name = format!("{lan}_{out}_{family}").replace('-', "_");
            let mut entries = all["nftables"].as_array().unwrap().iter();
            let entry = entries.find(|it| it["counter"]["name"] == name.as_str());
            entry.unwrap()["counter"]["packets"].as_u64().unwrap()
        })
    }

    fn until_more(&self, lan: &str, out: &str) {
        let before = self.left(lan, out);
        until(&format!("packets of {lan} by {out}"), || {
            let now = self.left(lan, out);
            now[0] > before[0] && now[1] > before[1]
        });
    }

    fn delete_table(&self) {
        let words = ["delete", "table", "inet", "millrace"];
        self.world.router.output("nft", words).unwrap();
    }
}

/// Everything that happens in a day, with two LANs and two tunnels that netifd runs.
#[test]
fn each_lan_leaves_by_its_own_tunnel_or_not_at_all() {
    if !ready() {
        return;
    }
    let lists = Lists::new(Guarded::new());
    let world = &lists.world;
    let _far = lists.far_ends();
    lists.write(&["lan"], &["br-guest"]);
    let [mut office, mut home] = lists.netifds();
    let load = Load::start(world);
    for lan in LANS {
        lists.until_more(lan, "wan");
    }
    // The load pauses first, because the guard cannot hold packets already in transit.
    load.pause();
    let (text, code) = lists.guard(&["on"]);
    assert_eq!(code, Some(0), "{text}");
    for told in [
        "guard: held\n",
        "guarded: br-lan, br-guest\n",
        "br-lan: only through mr-office: held: no tunnel is up: there is no device mr-office\n",
        "br-guest: only through mr-home: held: no tunnel is up: there is no device mr-home\n",
        "rules 900 to 981: in place",
    ] {
        assert!(text.contains(told), "{told:?} is not in {text}");
    }
    assert_eq!(
        world.connections(),
        0,
        "connections of the LAN are forgotten"
    );
    let clear = (
        world.clear(),
        lists.left("br-lan", "wan"),
        lists.left("br-guest", "wan"),
    );
    let leaked = |when: &str| {
        let now = (
            world.clear(),
            lists.left("br-lan", "wan"),
            lists.left("br-guest", "wan"),
        );
        assert_eq!(now, clear, "{when}");
        assert_eq!(lists.left("br-lan", "mr-home"), [0, 0], "{when}");
        assert_eq!(lists.left("br-guest", "mr-office"), [0, 0], "{when}");
    };
    load.resume();
    let watch = lists.watch();
    load.wait(2 * SOME);
    // LANs reach each other and the router.
    for own in [
        "192.168.1.2",
        "192.168.2.1",
        "192.168.3.1",
        "fd00:1::2",
        "fd00:2::1",
    ] {
        pings(&world.pc, own, 1);
    }
    pings(&world.phone, "192.168.1.1", 1);
    leaked("held");

    for _ in 0..2 {
        office.if_up();
        office.until_up();
        lists.until_through("br-lan", Some("mr-office"));
        lists.until_more("br-lan", "mr-office");
        assert_eq!(
            lists.left("br-guest", "mr-home"),
            [0, 0],
            "its tunnel is not up"
        );
        leaked("the first tunnel came");
        office.if_down();
        lists.until_through("br-lan", None);
        load.wait(SOME);
        leaked("the first tunnel went");
    }
    office.if_up();
    office.until_up();
    home.if_up();
    home.until_up();
    lists.until_through("br-guest", Some("mr-home"));
    lists.until_more("br-guest", "mr-home");
    lists.until_through("br-lan", Some("mr-office"));
    lists.until_more("br-lan", "mr-office");

    for with_home in [true, false] {
        for _ in 0..4 {
            world.flush_rules();
            load.wait(SOME);
            until("rules that are set again", || lists.status().1 == Some(0));
        }
        lists.delete_table();
        load.wait(SOME);
        until("a table that is made again", || lists.status().1 == Some(0));
        leaked("rules were flushed, and the table deleted");
        lists.until_more("br-lan", "mr-office");
        if with_home {
            home.kill();
            load.wait(SOME);
            leaked("the second tunnel was killed");
            until("a tunnel that is started again", || {
                home.tick();
                home.starts == 2
            });
            home.until_up();
            home.if_down();
        }
        lists.until_through("br-guest", None);
    }

    // From here on nothing is restored: each layer must block alone.
    watch.signal(Signal::SIGKILL).unwrap();
    watch.wait_at_most(PATIENCE).unwrap();
    world.flush_rules();
    load.wait(3 * SOME);
    leaked("all rules were flushed and nothing was there");
    assert_eq!(lists.guard(&["refresh"]).1, Some(0));
    lists.delete_table();
    office.if_down();
    load.wait(3 * SOME);
    leaked("the table was deleted and nothing was there");
    assert_eq!(lists.status().1, Some(1));
    assert_eq!(lists.guard(&["refresh"]).1, Some(0));

    // The guard stops guarding LANs that no interface lists any more; LANs freed by `off` stay so.
    lists.write(&["lan"], &[]);
    let (text, code) = lists.guard(&["reload"]);
    assert_eq!(code, Some(0), "{text}");
    lists.until_more("br-guest", "wan");
    assert_eq!(lists.left("br-lan", "wan"), clear.1);
    assert_eq!(lists.guard(&["off"]).1, Some(0));
    lists.until_more("br-lan", "wan");
    assert_eq!(lists.guard(&["reload"]).1, Some(3));
    let (status, code) = lists.status();
    let notes = status["notes"].to_string();
    assert!(
        code == Some(3) && notes.contains("switched it off"),
        "{notes}"
    );
    assert_eq!(lists.guard(&["on"]).1, Some(0));
    lists.write(&[], &[]);
    assert_eq!(lists.guard(&["reload"]).1, Some(4), "nothing is left");
    lists.until_more("br-lan", "wan");
    let state = world
        .router
        .output("sh", ["-c", "nft list tables; ip rule; ip -6 rule"]);
    let state = state.unwrap();
    assert!(
        !state.contains("millrace") && !state.contains("981"),
        "{state}"
    );
}

/// The guard is set before the network exists, as at boot.
#[test]
fn lists_hold_while_the_router_starts() {
    if !ready() {
        return;
    }
    let lists = Lists::new(Guarded::unplugged());
    let world = &lists.world;
    lists.write(&["lan"], &["guest"]);
    assert_eq!(lists.guard(&["on"]).1, Some(0));
    world.flush_rules();
    world.plug_lan();
    world.plug_wan();
    let load = Load::start(world);
    load.wait(5 * SOME);
    assert_eq!(world.clear(), [0; 4], "before the rules");
    assert_eq!(lists.guard(&["refresh"]).1, Some(0));
    load.wait(5 * SOME);
    assert_eq!((world.clear(), world.forwarded()), ([0; 4], 0));
}

/// Changed lists apply without a moment in clear: new rules come before old ones go, and each list keeps its table. If
/// several tunnels list a LAN, the first one in the file that is up wins.
#[test]
fn a_change_of_lists_is_taken_over() {
    if !ready() {
        return;
    }
    let lists = Lists::new(Guarded::new());
    let world = &lists.world;
    lists.write(&["lan"], &["guest"]);
    assert_eq!(lists.guard(&["on"]).1, Some(0));
    let _watch = lists.watch();
    let load = Load::start(world);
    for (name, number) in [("mr-office", 8), ("mr-home", 9)] {
        world.ip(&format!(
            "tuntap add {name} mode tun\naddress add 10.{number}.0.2/32 dev {name}\n\
             address add fd0{number}::2/128 dev {name} nodad\nlink set {name} up"
        ));
    }
    lists.until_through("br-lan", Some("mr-office"));
    lists.until_through("br-guest", Some("mr-home"));
    let table = |lan: &str| {
        let status = lists.status().0;
        let mut groups = status["groups"].as_array().unwrap().iter();
        let group = groups.find(|it| it["lan"][0] == lan).unwrap();
        group["table"].as_u64().unwrap()
    };
    let tables = [table("br-lan"), table("br-guest")];
    assert_ne!(tables[0], tables[1]);
    // The first list goes, and the second list keeps its table.
    lists.write(&[], &["guest", "lan"]);
    assert_eq!(lists.guard(&["reload"]).1, Some(0));
    lists.until_through("br-lan", Some("mr-home"));
    assert_eq!(table("br-guest"), tables[1]);
    lists.until_more("br-lan", "mr-home");
    let routes = world
        .router
        .output("ip", ["route", "show", "table", "all"])
        .unwrap();
    let old = format!("table {}", tables[0]);
    assert!(!routes.contains(&old), "{routes}");
    // Both tunnels list `lan`.
    lists.write(&["lan"], &["guest", "lan"]);
    assert_eq!(lists.guard(&["reload"]).1, Some(0));
    lists.until_through("br-lan", Some("mr-office"));
    lists.until_through("br-guest", Some("mr-home"));
    world.ip("link set mr-office down");
    lists.until_through("br-lan", Some("mr-home"));
    lists.until_more("br-lan", "mr-home");
    load.wait(SOME);
    assert_eq!((world.clear(), world.forwarded()), ([0; 4], 0));
    assert_eq!(lists.left("br-guest", "mr-office"), [0, 0]);
}

/// Lists and the guard's file apply together, and a mistake in one does not release the devices of the other.
#[test]
fn lists_and_the_file_hold_together() {
    if !ready() {
        return;
    }
    let lists = Lists::new(Guarded::new());
    let world = &lists.world;
    let settings = Directory::new();
    let path = settings.path().join("guard.toml");
    let file = path.to_str().unwrap();
    settings.file(
        "guard.toml",
        "lan = [\"br-lan\"]\ntunnels = [\"mr-office\"]\n",
    );
    lists.write(&[], &["lan", "guest", "nowhere", "wan"]);
    let on = ["on", "--settings", file];
    let (text, code) = lists.guard(&on);
    assert_eq!(code, Some(1), "not all that is listed is held: {text}");
    for told in [
        "br-lan: through no tunnel: held: the guard's file and only_through have no tunnel in common",
        "br-guest, nowhere: only through mr-home: held",
        "no interface or device is called nowhere, so nothing is blocked for it",
        "only_through: wan: it is not a LAN network, as interface wan has protocol dhcp",
    ] {
        assert!(text.contains(told), "{told:?} is not in {text}");
    }
    assert_eq!(lists.status().1, Some(1), "one is not there");
    let watch = lists.watch();
    let load = Load::start(world);
    world.ip(
        "tuntap add mr-home mode tun\naddress add 10.9.0.2/32 dev mr-home\n\
         address add fd09::2/128 dev mr-home nodad\nlink set mr-home up",
    );
    lists.until_through("br-guest", Some("mr-home"));
    lists.until_more("br-guest", "mr-home");
    assert_eq!(lists.left("br-lan", "mr-home"), [0, 0]);

    // Neither mistake releases a device, while the guard is on and at the next start.
    let held = [
        "br-lan: through no tunnel",
        "br-guest: only through mr-home",
    ];
    for (wrong_file, wrong_list) in [(true, false), (false, true), (true, true)] {
        lists.write(&[], &["lan", "guest"]);
        settings.file(
            "guard.toml",
            "lan = [\"br-lan\"]\ntunnels = [\"mr-office\"]\n",
        );
        assert_eq!(lists.guard(&on).1, Some(0));
        if wrong_file {
            settings.file("guard.toml", "lan = [\"br-lan\"\n");
        }
        if wrong_list {
            lists.uci.file("network", "config interface 'home\n");
        }
        for at_start in [false, true] {
            if at_start {
                world
                    .router
                    .output("sh", ["-c", "rm /run/millrace/guard@*.toml"])
                    .unwrap();
            }
            let (text, code) = lists.guard(&on);
            assert_eq!(code, Some(1), "{text}");
            for told in held {
                assert!(text.contains(told), "{told:?} is not in {text}");
            }
        }
    }
    // The packet filter also blocks if foreign routes lead into the other LAN's tunnel.
    watch.signal(Signal::SIGKILL).unwrap();
    watch.wait_at_most(PATIENCE).unwrap();
    world.flush_rules();
    world.ip("route add 203.0.113.0/24 dev mr-home\nroute add 2001:db8:f::/48 dev mr-home");
    lists.until_more("br-guest", "mr-home");
    load.wait(2 * SOME);
    assert_eq!(world.clear(), [0; 4]);
    assert_eq!(lists.left("br-lan", "mr-home"), [0, 0]);
}
