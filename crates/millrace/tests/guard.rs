//! The guard: packets of LAN devices leave through a tunnel or not at all, whatever happens to tunnels, rules, routes
//! and the packet filter. The test counts both devices' packets at every exit.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::guarded::{Counts, FAR, Guarded, KINDS, Load, SOME};
use lab::acceptance::openvpn::{credentials, millrace};
use lab::acceptance::{Directory, PATIENCE, PROGRAM, ip, pings, until, usable};
use lab::openvpn::{KeyKind, OpenVpn, Setup};
use lab::{Host, Process, tools};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Packets from both devices that reach the router in the first test.
const PACKETS: u64 = 90_000;

fn ready() -> bool {
    lab::acceptance::ready() && lab::require(tools::find("nft")).is_some()
}

/// The output of `millrace guard status`, and its exit code.
fn status(world: &Guarded) -> (Value, Option<i32>) {
    let exit = world
        .router
        .command(PROGRAM)
        .args(["guard", "status", "--json"])
        .exit()
        .unwrap();
    (
        serde_json::from_str(&exit.stdout).unwrap(),
        exit.status.code(),
    )
}

fn guard(world: &Guarded, words: &[&str]) -> String {
    let command = world.router.command(PROGRAM).arg("guard").args(words);
    command.output().unwrap()
}

const ON: [&str; 5] = ["on", "--lan", "br-lan", "--lan", "br-guest"];

fn total(counts: Counts) -> u64 {
    counts.iter().sum()
}

/// Starts a process that restores the guard.
fn watch(world: &Guarded) -> Process {
    let mut watch = world
        .router
        .command(PROGRAM)
        .args(["guard", "watch"])
        .spawn()
        .unwrap();
    let told = |line: &str| line.contains("guard:");
    watch
        .wait_for_line("its first look", PATIENCE, told)
        .unwrap();
    watch
}

/// The routing rules refuse most packets of blocked devices; these count like those that the packet filter refuses.
#[test]
fn packets_that_the_rules_refuse_are_counted_once() {
    if !ready() {
        return;
    }
    let world = Guarded::new();
    // The mark by which the guard asks for routes must not leave its chain.
    let marks = "table inet marks {\n chain forward {\n type filter hook forward priority 10;\n\
                 meta mark != 0 counter drop\n}\n}\n";
    world.router.nft(marks).unwrap();
    guard(&world, &ON);
    let refused = || status(&world).0["refused_packets"].as_u64().unwrap();
    let counted = |when: &str, host: &Host, to: [&str; 2], is_refused: bool| {
        let came = || total(world.from(host.name()));
        let before = [refused(), came()];
        world.send(host, to, 20);
        match is_refused {
            true => until(when, || refused() - before[0] == came() - before[1]),
            false => assert_eq!(refused(), before[0], "{when}"),
        }
    };
    let (pc, phone) = (&world.pc, &world.phone);
    let tunnel = "tuntap add mr-plain mode tun\naddress add 10.99.0.2/32 dev mr-plain\n\
                  address add fd99::2/128 dev mr-plain nodad\nlink set mr-plain up";
    counted("no tunnel", pc, FAR, true);
    counted("no tunnel, another device", phone, FAR, true);
    counted("to the router", pc, ["192.168.1.2", "fd00:1::2"], false);
    counted("within the LAN", pc, ["192.168.2.1", "fd00:2::1"], false);
    world.ip(tunnel);
    counted("no route into the tunnel", pc, FAR, true);
    guard(&world, &["refresh"]);
    counted("through the tunnel", pc, FAR, false);
    let near = ["192.168.1.1", "fd00:1::1"];
    counted("within the LAN, beside a tunnel", phone, near, false);
    world.ip("link delete mr-plain");
    counted("the tunnel ended", phone, FAR, true);
    world.flush_rules();
    counted("the packet filter refuses", pc, FAR, true);
    guard(&world, &["refresh"]);
    counted("both layers", pc, FAR, true);
    let text = world
        .router
        .output("nft", ["list", "table", "inet", "marks"]);
    let text = text.unwrap();
    assert!(text.contains("packets 0 "), "{text}");
}

/// A host whose only device is the LAN's sends its tunnel's packets with a source of the LAN.
#[test]
fn a_tunnels_own_packets_leave_by_the_only_device() {
    if !ready() {
        return;
    }
    let world = Guarded::unplugged();
    world.plug_lan();
    let own = [("192.168.1.1", "192.168.1.2"), ("fd00:1::1", "fd00:1::2")];
    for (way, _) in own {
        world.router.add_default_route(ip(way)).unwrap();
    }
    guard(&world, &ON);
    for ((way, own), far) in own.into_iter().zip(FAR) {
        for mark in ["0", "51820"] {
            let words = ["route", "get", far, "from", own, "mark", mark];
            let text = world.router.output("ip", words).unwrap();
            assert!(text.contains(&format!("via {way} dev br-lan")), "{text}");
        }
    }
}

/// Everything that happens in a day, within seconds. No packet leaves in clear while the guard is on; before and after,
/// all do.
#[test]
fn nothing_leaves_in_clear() {
    if !ready() {
        return;
    }
    let world = Guarded::new();
    let directory = Directory::new();
    let load = Load::start(&world);
    until("all kinds leave before the guard is on", || {
        world.clear().iter().all(|count| *count > 0)
    });
    assert_eq!(status(&world).1, Some(3));

    // The load pauses first, because the guard cannot hold packets already in transit.
    load.pause();
    assert!(world.connections() > 0);
    assert!(guard(&world, &ON).starts_with("guard: held\n"));
    assert_eq!(
        world.connections(),
        0,
        "connections of the LAN are forgotten"
    );
    let before = world.clear();
    let first = total(world.from("pc")) + total(world.from("phone"));
    let forwarded = world.forwarded();
    let leaked = |when: &str| {
        assert_eq!(world.clear(), before, "{when}: {KINDS:?}");
        assert_eq!(world.forwarded(), forwarded, "{when}");
    };
    load.resume();
    let watch_process = watch(&world);
    let (held, code) = status(&world);
    assert_eq!(
        (held["state"].as_str(), code),
        (Some("held"), Some(0)),
        "{held}"
    );
    for own in [
        "192.168.1.2",
        "192.168.2.2",
        "192.168.3.1",
        "fd00:1::2",
        "fd00:3::1",
    ] {
        pings(&world.pc, own, 1);
    }
    pings(&world.phone, "192.168.1.1", 1);
    pings(&world.phone, "fd00:1::1", 1);

    world.device_cycles(&load, 50);
    leaked("tunnels came and went");
    assert_eq!(total(world.through()), 0);

    // Real tunnels: killed, with the default route in a table of their own or in the guard's.
    let _far = world.far_end(&directory);
    for name in ["mr-real", "mr-full", "mr-real", "mr-full"] {
        let came = world.through();
        let process = world.tunnel(&directory, name);
        until("all kinds go through", || {
            world
                .through()
                .iter()
                .zip(came)
                .all(|(now, came)| *now > came)
        });
        assert_eq!(status(&world).0["ipv6"]["through"], name);
        process.signal(Signal::SIGKILL).unwrap();
        process.wait_at_most(PATIENCE).unwrap();
        load.wait(SOME);
        leaked(name);
    }

    // With a tunnel up, and without.
    for through in [true, false] {
        let process = through.then(|| world.tunnel(&directory, "mr-real"));
        for _ in 0..6 {
            for (metrics, now) in [([0, 1024], 7), ([7, 7], 0)] {
                let [v4, v6] = metrics;
                let now6 = if now == 0 { 1024 } else { now };
                world.ip(&format!(
                    "route add 0.0.0.0/0 via 192.168.3.2 dev wan metric {now}\n\
                     route add ::/0 via fd00:3::2 dev wan metric {now6}\n\
                     route delete 0.0.0.0/0 dev wan metric {v4}\nroute delete ::/0 dev wan metric {v6}"
                ));
                load.wait(SOME / 3);
            }
        }
        leaked("the default route was swapped");
        for _ in 0..6 {
            world.flush_rules();
            load.wait(SOME);
            until("rules that are set again", || status(&world).1 == Some(0));
        }
        leaked("all rules were flushed");
        world
            .router
            .output("nft", ["delete", "table", "inet", "millrace"])
            .unwrap();
        load.wait(SOME);
        until("a table that is made again", || status(&world).1 == Some(0));
        leaked("the table was deleted");
        if let Some(process) = process {
            assert!(process.stop().unwrap().status.success());
        }
    }

    // DHCP option 121 puts such routes into the main table, and so can router advertisements.
    world.ip(
        "route add 203.0.113.0/24 via 192.168.3.2 dev wan\nroute add 2001:db8:f::/48 via fd00:3::2 dev wan\n\
         route add 128.0.0.0/1 via 192.168.3.2 dev wan\nroute add 2000::/3 via fd00:3::2 dev wan",
    );
    load.wait(2 * SOME);
    leaked("more particular routes lead to the WAN");

    new_prefixes(&world, &load);
    leaked("the provider delegated other prefixes");

    // From here on nothing is restored: each layer must block alone.
    watch_process.signal(Signal::SIGKILL).unwrap();
    watch_process.wait_at_most(PATIENCE).unwrap();
    for _ in 0..6 {
        world.flush_rules();
        world.device_cycles(&load, 1);
    }
    leaked("all rules were flushed and nobody was there");
    guard(&world, &["refresh"]);
    world
        .router
        .output("nft", ["delete", "table", "inet", "millrace"])
        .unwrap();
    world.device_cycles(&load, 6);
    leaked("the table was deleted and nobody was there");
    let (half, code) = status(&world);
    assert_eq!(
        (half["state"].as_str(), code),
        (Some("held"), Some(1)),
        "{half}"
    );

    let seen = || total(world.from("pc")) + total(world.from("phone")) - first;
    until("packets enough", || seen() >= PACKETS);
    leaked("packets enough");
    for device in ["pc", "phone"] {
        assert!(
            world.from(device).iter().all(|count| *count > 0),
            "{device}"
        );
    }
    println!(
        "0 of {} packets left in clear; through a tunnel went {:?}",
        seen(),
        world.through()
    );

    guard(&world, &["off"]);
    until("all kinds leave after the guard is off", || {
        world
            .clear()
            .iter()
            .zip(before)
            .all(|(now, before)| *now > before)
    });
    assert_eq!(status(&world).1, Some(3));
    let left = world.router.output("nft", ["list", "tables"]).unwrap();
    assert!(!left.contains("millrace"), "{left}");
}

/// A tunnel's route comes before its address. Connections from between have the address of another interface, which the
/// tunnel's other end does not know.
#[test]
fn connections_older_than_a_tunnels_address_are_forgotten() {
    if !ready() {
        return;
    }
    let world = Guarded::new();
    let load = Load::start(&world);
    load.pause();
    guard(&world, &ON);
    let mut watch = watch(&world);
    world.ip(
        "tuntap add mr-late mode tun\nlink set mr-late up\nroute add 0.0.0.0/0 dev mr-late table 77\n\
         route add ::/0 dev mr-late table 77",
    );
    // It tells the way after it has forgotten the connections of the way before.
    let told = |line: &str| line.contains("guard: through mr-late");
    watch.wait_for_line("the way", PATIENCE, told).unwrap();
    load.resume();
    until("connections without the address", || {
        world.connections() > 0
    });
    load.pause();
    assert!(world.connections() > 0);
    world.ip("address add 10.99.0.2/32 dev mr-late\naddress add fd99::2/128 dev mr-late nodad");
    until("connections that are forgotten", || {
        world.connections() == 0
    });
}

/// The LAN gets a prefix, and then a replacement. The rules follow, and LAN hosts reach each other by both.
fn new_prefixes(world: &Guarded, load: &Load) {
    let rules = || world.router.output("ip", ["-6", "rule"]).unwrap();
    for number in [1, 2] {
        let of = |network: u8, host: u8| format!("2001:db8:{number}:{network}::{host}");
        for (network, device, host) in [(1, "br-lan", &world.pc), (2, "br-guest", &world.phone)] {
            host.add_address("eth0", ip(&of(network, 1)), 64).unwrap();
            world
                .router
                .add_address(device, ip(&of(network, 2)), 64)
                .unwrap();
            usable(host, &of(network, 1));
        }
        if number == 2 {
            world.ip("address delete 2001:db8:1:1::2/64 dev br-lan");
            until("the rules of the old prefix go", || {
                !rules().contains("to 2001:db8:1:1::/64")
            });
        }
        for network in [1, 2] {
            let wanted = format!("to 2001:db8:{number}:{network}::/64 iif br-lan lookup main");
            until("rules of the new prefix", || rules().contains(&wanted));
        }
        // Devices send from the new addresses, which the kernel prefers for distant destinations.
        load.wait(2 * SOME);
        pings(&world.pc, &of(2, 1), 1);
        pings(&world.pc, &of(1, 2), 1);
    }
}

/// The guard is set before the network exists, as at boot: first the packet filter, then netifd's work, LAN, WAN and
/// rules.
#[test]
fn nothing_leaves_while_the_router_starts() {
    if !ready() {
        return;
    }
    let world = Guarded::unplugged();
    let command = world.router.command(PROGRAM).arg("guard").args(ON);
    let exit = command.exit().unwrap();
    assert_eq!(exit.status.code(), Some(1), "LAN devices are missing yet");
    world.flush_rules();
    world.plug_lan();
    world.plug_wan();
    let load = Load::start(&world);
    load.wait(10 * SOME);
    assert_eq!(total(world.clear()), 0, "before the rules");
    guard(&world, &["refresh"]);
    assert_eq!(status(&world).1, Some(0));
    load.wait(10 * SOME);
    assert_eq!(total(world.clear()), 0, "with the rules");
    assert_eq!(world.forwarded(), 0);
    pings(&world.phone, "192.168.1.1", 1);
    guard(&world, &["off"]);
    // `refresh` restores the guard only if it is on.
    guard(&world, &["refresh"]);
    until("all kinds leave", || {
        world.clear().iter().all(|count| *count > 0)
    });
}

/// An OpenVPN client does not know the guard's table: the guard routes into its tunnel, and blocks when the client is
/// killed.
#[test]
fn a_tunnel_of_another_protocol_needs_no_word_of_the_guard() {
    if !ready() || !lab::acceptance::openvpn::ready() {
        return;
    }
    let world = Guarded::new();
    let directory = Directory::new();
    let mut setup = Setup::default();
    setup.server.words("push", ["redirect-gateway def1"]);
    let (keys, at) = (credentials(KeyKind::Ecdsa), ip("192.168.3.2"));
    let server = setup.server_file(&millrace(), keys, at).unwrap();
    let _server = millrace().start(&world.server, &server).unwrap();
    let client = setup.client_file(&millrace(), keys, at).unwrap();
    directory.file("client.conf", &client.to_string());
    let words = ["--tunnel", "ovpn*"];
    guard(&world, &[&ON[..], &words[..]].concat());
    let _watch = watch(&world);
    let load = Load::start(&world);
    let process = world.tunnel(&directory, "client");
    until("all kinds go through", || {
        world.through().iter().all(|count| *count > 0)
    });
    assert_eq!(status(&world).0["ipv4"]["through"], "ovpn0");
    process.signal(Signal::SIGKILL).unwrap();
    load.wait(2 * SOME);
    assert_eq!(world.forwarded() + total(world.clear()), 0);
}

/// Tests each layer alone against a table of events.
#[test]
fn each_layer_stops_what_it_stops() {
    if !ready() {
        return;
    }
    let world = Guarded::new();
    let load = Load::start(&world);
    until("all kinds leave", || {
        world.clear().iter().all(|count| *count > 0)
    });
    type Event = (&'static str, fn(&Guarded, &Load));
    let events: [Event; 6] = [
        ("nothing happens", |_, _| {}),
        ("tunnel comes and goes", |world, load| {
            world.device_cycles(load, 4);
        }),
        ("default route swapped", |world, _| {
            world.ip("route replace 0.0.0.0/0 via 192.168.3.2 dev wan metric 5\n\
                 route replace ::/0 via fd00:3::2 dev wan metric 5");
        }),
        ("routes of option 121", |world, _| {
            world.ip("route replace 203.0.113.0/24 via 192.168.3.2\nroute replace 2001:db8:f::/48 via fd00:3::2");
        }),
        ("all rules flushed", |world, _| world.flush_rules()),
        ("table deleted", |world, _| {
            let words = ["-f", "-"];
            let script = "add table inet millrace\ndelete table inet millrace\n";
            let command = world.router.command("nft").args(words);
            command.output_with_input(script).unwrap();
        }),
    ];
    let layers = ["none", "rules", "filter", "both"];
    println!(
        "{:<24}{}",
        "packets in clear of sent",
        layers.map(|it| format!("{it:>16}")).concat()
    );
    let mut leaks = Vec::new();
    for (name, event) in events {
        let cells = layers.map(|layer| leaked_with(&world, &load, layer, event));
        let text = cells.map(|(clear, sent)| format!("{:>16}", format!("{clear}/{sent}")));
        println!("{name:<24}{}", text.concat());
        leaks.push(cells.map(|(clear, _)| clear > 0));
    }
    for (place, (name, _)) in events.iter().enumerate() {
        // A single layer leaks exactly when an event removes it.
        let (rules, filter) = (*name == "all rules flushed", *name == "table deleted");
        assert_eq!(leaks[place], [true, rules, filter, false], "{name}");
    }
}

/// Packets in clear and packets sent, during an event and shortly afterwards, with one layer, both or none.
fn leaked_with(
    world: &Guarded,
    load: &Load,
    layer: &str,
    event: fn(&Guarded, &Load),
) -> (u64, u64) {
    load.pause();
    guard(world, &ON);
    if layer != "rules" && layer != "both" {
        world.flush_rules();
    }
    if layer != "filter" && layer != "both" {
        world
            .router
            .output("nft", ["delete", "table", "inet", "millrace"])
            .unwrap();
    }
    let sent = || total(world.from("pc")) + total(world.from("phone"));
    let (clear_before, before) = (total(world.clear()), sent());
    load.resume();
    load.wait(SOME);
    event(world, load);
    load.wait(5 * SOME);
    load.pause();
    let cell = (total(world.clear()) - clear_before, sent() - before);
    guard(world, &["off"]);
    load.resume();
    cell
}

/// Without a firewall mark, a tunnel with its own table loses its packets under `router`: the guard names the tunnel
/// and the remedy. A full tunnel has a mark.
#[test]
fn a_tunnel_that_the_router_option_cuts_off_is_named() {
    if !ready() {
        return;
    }
    let world = Guarded::new();
    let directory = Directory::new();
    let _far = world.far_end(&directory);
    let tunnel = world.tunnel(&directory, "mr-real");
    let note = "`router` blocks the packets of mr-real to its server; add \"192.168.3.2\" to `router_allow`";
    let told = |more: &[&str]| {
        let text = guard(
            &world,
            &[&["on", "--lan", "br-lan", "--router"], more].concat(),
        );
        let notes = status(&world).0["notes"].clone();
        let is_told = notes.as_array().unwrap().iter().any(|it| it == note);
        assert_eq!(text.contains(note), is_told, "{text}");
        is_told
    };
    assert!(told(&[]));
    assert!(!told(&["--router-allow", "192.168.3.0/24"]));
    tunnel.signal(Signal::SIGTERM).unwrap();
    tunnel.wait_at_most(PATIENCE).unwrap();
    let _tunnel = world.tunnel(&directory, "mr-full");
    let text = guard(&world, &["on", "--lan", "br-lan", "--router"]);
    assert!(!text.contains("router_allow"), "{text}");
}

/// The file's settings apply, names with a meaning to `nft` are refused, and exit codes name the state.
#[test]
fn the_commands_tell_by_their_codes() {
    if !ready() {
        return;
    }
    let world = Guarded::new();
    let directory = Directory::new();
    let run = |words: &[&str]| {
        let exit = world
            .router
            .command(PROGRAM)
            .arg("guard")
            .args(words)
            .exit()
            .unwrap();
        (exit.status.code(), exit.stdout + &exit.stderr)
    };
    let path = directory.path().join("guard.toml");
    let file = path.to_str().unwrap();
    let (code, text) = run(&["on", "--settings", file, "--lan", "br-lan", "--save"]);
    // A file named on the command line must exist.
    assert_eq!(code, Some(1), "{text}");
    directory.file("guard.toml", "# nothing\n");
    let (code, text) = run(&["on", "--settings", file]);
    assert_eq!(code, Some(4));
    assert!(text.contains("no LAN device is named"), "{text}");
    let (code, text) = run(&["on", "--settings", file, "--lan", "br-lan\" } accept #"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("--lan <DEVICE>"), "{text}");
    let (code, text) = run(&["on", "--settings", file, "--lan", "br-lan", "--show"]);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("add chain inet millrace guard") && text.contains("rule 981"),
        "{text}"
    );
    assert_eq!(run(&["status"]).0, Some(3));
    assert_eq!(
        run(&["on", "--settings", file, "--lan", "br-lan", "--save"]).0,
        Some(0)
    );
    // Setting the guard twice changes nothing, and the file lists what is guarded.
    let state = || {
        let words = ["-a", "list", "table", "inet", "millrace"];
        let rules = world.router.output("ip", ["rule"]).unwrap();
        world.router.output("nft", words).unwrap() + &rules
    };
    let before = state();
    assert_eq!(run(&["on", "--settings", file]).0, Some(0));
    assert_eq!(state(), before);
    // Other chains in the table stay.
    let set = [
        "add",
        "set",
        "inet",
        "millrace",
        "d4",
        "{",
        "type",
        "ipv4_addr;",
        "}",
    ];
    world.router.output("nft", set).unwrap();
    assert_eq!(
        run(&["on", "--settings", file, "--tunnel", "tun0"]).0,
        Some(0)
    );
    assert!(
        state().contains("set d4") && state().contains("tun0"),
        "{}",
        state()
    );
    assert_eq!(run(&["off"]).0, Some(0));
    assert!(
        state().contains("set d4") && !state().contains("chain guard"),
        "{}",
        state()
    );
    assert!(!state().contains("981"), "{}", state());
    // Without `nft` the rules still hold, and the guard reports what is missing.
    let bare = world
        .router
        .command(PROGRAM)
        .args(["guard", "on", "--settings", file]);
    let exit = bare.env("PATH", "/nowhere").exit().unwrap();
    assert_eq!(exit.status.code(), Some(1));
    assert!(
        exit.stderr
            .contains("the program nft (nftables) is missing"),
        "{exit:?}"
    );
    let (document, code) = status(&world);
    assert_eq!((document["state"].as_str(), code), (Some("held"), Some(1)));
    // `status` of the tunnels mentions the guard too.
    let all = world
        .router
        .output(PROGRAM, ["status", "--no-rate"])
        .unwrap();
    assert!(all.contains("guard: held"), "{all}");
    let load = Load::start(&world);
    load.wait(SOME);
    let clear = world.clear();
    // The phone is not guarded here.
    until("the phone's leave", || total(world.clear()) > total(clear));
}
