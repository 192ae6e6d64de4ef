//! Devices under the policy, beside a second tunnel and a server at home: none of their packets leaves through another
//! device's tunnel, or in clear. The test counts packets where they come out.
//!
//! `MILLRACE_TEST_LEAKS` sets the number of packets that devices send in each test (8,000 if unset).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::UdpSocket;
use std::{env, io};

use lab::acceptance::guarded::{FAR, Load};
use lab::acceptance::policed::Policed;
use lab::acceptance::{Directory, PATIENCE, PROGRAM, ip, reaches, until};
use lab::peer::Keys;
use lab::{Host, Process, tools};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Steps of a test, which share its packets equally.
const STEPS: u64 = 16;

/// Hop limits that identify each device's packets, and the range in which they arrive at the server.
const HOPS: [(&str, &str); 2] = [("100", "90-100"), ("200", "190-200")];

/// Paths to the server: each device's tunnel, and the uplink.
const WAYS: [&str; 3] = ["wg1", "wg2", "eth0"];

fn ready() -> bool {
    lab::acceptance::ready()
        && lab::require(tools::find("nft")).is_some()
        && lab::require(tools::find("wg")).is_some()
}

/// Packets to send in each step.
fn share() -> u64 {
    let count = env::var("MILLRACE_TEST_LEAKS").ok();
    count.map_or(8_000, |it| it.parse().unwrap()) / STEPS
}

/// Sets a different hop limit on each device, and counts its packets at the server.
fn tell_apart(all: &Policed) {
    let mut table = String::from("table inet apart {\n");
    let mut rules = String::new();
    for ((device, host), (limit, left)) in devices(all).into_iter().zip(HOPS) {
        host.sysctl("net/ipv4/ip_default_ttl", limit).unwrap();
        for device in ["eth0", "default"] {
            let key = format!("net/ipv6/conf/{device}/hop_limit");
            host.sysctl(&key, limit).unwrap();
        }
        for way in WAYS {
            table += &format!("counter {device}_{way} {{ }}\n");
            for word in ["ip ttl", "ip6 hoplimit"] {
                rules += &format!("iifname \"{way}\" {word} {left} counter name {device}_{way}\n");
            }
        }
    }
    table +=
        &format!("chain first {{\n type filter hook prerouting priority -400;\n{rules}}}\n}}\n");
    all.world.server.nft(&table).unwrap();
}

fn devices(all: &Policed) -> [(&'static str, &Host); 2] {
    [("pc", &all.world.pc), ("phone", &all.world.phone)]
}

/// Packets of a device that reached the server through each of [`WAYS`].
fn came(all: &Policed, device: &str) -> [u64; 3] {
    let words = ["-j", "list", "counters", "table", "inet", "apart"];
    let text = all.world.server.output("nft", words).unwrap();
    let listed: Value = serde_json::from_str(&text).unwrap();
    WAYS.map(|way| {
        let wanted = format!("{device}_{way}");
        let mut entries = listed["nftables"].as_array().unwrap().iter();
        let entry = entries.find(|it| it["counter"]["name"] == wanted.as_str());
        entry.unwrap()["counter"]["packets"].as_u64().unwrap()
    })
}

fn kill(process: Process) {
    process.signal(Signal::SIGKILL).unwrap();
    process.wait_at_most(PATIENCE).unwrap();
}

/// Settings that give each device its own tunnel, or nothing.
fn each_its_own(all: &Policed, directory: &Directory) -> String {
    let mut text = String::from(
        "lan = [\"br-lan\", \"br-guest\"]\nmasquerade = true\nleases = \"/nonexistent\"\n",
    );
    for ((device, host), tunnel) in devices(all).into_iter().zip(["mr-us", "mr-nl"]) {
        text += &format!(
            "[[entry]]\nname = \"{device}\"\nwho = \"{}\"\nthrough = \"{tunnel}\"\n",
            all.mac(host)
        );
    }
    directory.file("policy.toml", &text).display().to_string()
}

/// Two tunnels at once: first one dies, then the other; finally the second becomes the router's own default route.
#[test]
fn a_device_stays_out_of_the_tunnel_of_another() {
    if !ready() {
        return;
    }
    let all = Policed::new();
    tell_apart(&all);
    let directory = Directory::new();
    let file = each_its_own(&all, &directory);
    let load = Load::start(&all.world);
    until("packets in clear of both", || {
        came(&all, "pc")[2] > 0 && came(&all, "phone")[2] > 0
    });
    load.pause();
    let _far = [(1, "mr-us"), (2, "mr-nl")]
        .map(|(number, name)| all.far_end(&directory, number, name, "Table = off\n"));
    let mut us = all.up(&directory, "mr-us");
    let mut nl = all.up(&directory, "mr-nl");
    assert_eq!(all.policy(&["on", "--settings", &file]).0, Some(0));
    let _watch = all.watch(&file);
    all.settled("pc", "through mr-us");
    all.settled("phone", "through mr-nl");
    let before = [came(&all, "pc")[2], came(&all, "phone")[2]];
    let first = load.sent();
    let astray = |when: &str| {
        let [_, pc_by_nl, pc_clear] = came(&all, "pc");
        let [phone_by_us, _, phone_clear] = came(&all, "phone");
        let found = [pc_by_nl, pc_clear, phone_by_us, phone_clear];
        assert_eq!(found, [0, before[0], 0, before[1]], "{when}");
    };
    let goes_on = |device: &str, way: usize| {
        let begin = came(&all, device)[way];
        until("packets by the tunnel of a device", || {
            came(&all, device)[way] > begin + 20
        });
    };
    let share = share();
    load.resume();
    for with_default in [false, true] {
        goes_on("pc", 0);
        goes_on("phone", 1);
        load.wait(share);
        astray("both tunnels are up");
        kill(us);
        load.wait(share);
        all.settled("pc", "held");
        goes_on("phone", 1);
        astray("the first tunnel was killed");
        for _ in 0..3 {
            all.world
                .router
                .output("nft", ["flush", "ruleset"])
                .unwrap();
            load.wait(share);
            astray("the packet filter was flushed");
        }
        until("all of it is in place again", || all.status().1 == Some(0));
        goes_on("phone", 1);
        us = all.up(&directory, "mr-us");
        all.settled("pc", "through mr-us");
        goes_on("pc", 0);
        kill(nl);
        load.wait(share);
        all.settled("phone", "held");
        goes_on("pc", 0);
        astray("the second tunnel was killed");
        if !with_default {
            let path = directory.path().join("mr-nl.conf");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(path, text.replace("Table = off\n", "")).unwrap();
        }
        nl = all.up(&directory, "mr-nl");
        all.settled("phone", "through mr-nl");
    }
    astray("the second tunnel is the router's own way");
    println!("0 of {} packets went astray", load.sent() - first);
    drop(nl);
}

/// A guarded device connects to the server at home, whose device would send its packets in clear.
#[test]
fn a_held_device_does_not_leave_by_the_server_at_home() {
    if !ready() {
        return;
    }
    let all = Policed::new();
    tell_apart(&all);
    let directory = Directory::new();
    let (router, pc, phone) = (&all.world.router, &all.world.pc, &all.world.phone);
    let generate = |_| Keys::generate(router).unwrap();
    let [home, own, others] = [0; 3].map(generate);
    let peer = |keys: &Keys, number: u8| {
        format!(
            "[Peer]\nPublicKey = {}\nAllowedIPs = 10.44.0.{number}/32, fd44::{number}/128\n",
            keys.public
        )
    };
    let server = format!(
        "#! [Server]\n#! Masquerade = yes\n[Interface]\nPrivateKey = {}\nAddress = 10.44.0.1/24, fd44::1/64\n\
         ListenPort = 51825\n{}{}",
        home.private,
        peer(&own, 2),
        peer(&others, 3)
    );
    let client = |keys: &Keys, number: u8, to: &str| {
        format!(
            "[Interface]\nPrivateKey = {}\nAddress = 10.44.0.{number}/32, fd44::{number}/128\n\
             [Peer]\nPublicKey = {}\nEndpoint = {to}:51825\nAllowedIPs = 0.0.0.0/0, ::/0\n",
            keys.private, home.public
        )
    };
    let up = |host: &Host, name: &str, text: &str| {
        let file = directory.file(&format!("{name}.conf"), text);
        let command = host.command(PROGRAM).args(["up", "--no-dns"]);
        let mut process = command.arg(file).spawn().unwrap();
        let told = |line: &str| line.contains("is up");
        process.wait_for_line("the tunnel", PATIENCE, told).unwrap();
        process
    };
    let _server = up(router, "mr-home", &server);
    let _held = up(phone, "mr-phone", &client(&own, 2, "192.168.2.2"));
    let _free = up(pc, "mr-pc", &client(&others, 3, "192.168.1.2"));
    let send = |host: &Host| {
        let send = || -> io::Result<()> {
            for far in FAR {
                let any = if ip(far).is_ipv4() { "0.0.0.0" } else { "::" };
                UdpSocket::bind((ip(any), 0))?.send_to(&[7; 64], (ip(far), 9))?;
            }
            Ok(())
        };
        // The kernel reports a refusal as an error of the next packet.
        let _ = host.run(send).unwrap();
    };
    let leaves = |device: &str, host: &Host| {
        let begin = came(&all, device)[2];
        until("a device leaves by the server at home", || {
            send(host);
            came(&all, device)[2] > begin
        });
    };
    leaves("phone", phone);
    leaves("pc", pc);
    let text = format!(
        "lan = [\"br-lan\", \"br-guest\"]\n[[entry]]\nname = \"phone\"\nwho = \"{}\"\nthrough = \"mr-us\"\n",
        all.mac(phone)
    );
    let file = directory.file("policy.toml", &text).display().to_string();
    assert_eq!(all.policy(&["on", "--settings", &file]).0, Some(0));
    let _watch = all.watch(&file);
    all.settled("phone", "held");
    let before = came(&all, "phone");
    let share = share();
    for _ in 0..share {
        send(phone);
    }
    // These packets follow on the same path: the device without an entry still reaches the server.
    leaves("pc", pc);
    assert_eq!(came(&all, "phone"), before);
    reaches(pc, "10.44.0.1");
    println!("0 of {} packets left in clear", 2 * share);
}
