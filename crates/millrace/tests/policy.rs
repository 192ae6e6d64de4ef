//! The policy: which way packets of devices go, by who sends them and where to, and the way of answers.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::UdpSocket;

use acceptance::dns::NameServer;
use acceptance::guarded::FAR;
use acceptance::policed::Policed;
use acceptance::quick::{hide_kernel_modules, make_executable, without_the_kernels};
use acceptance::{Directory, PATIENCE, PROGRAM, ip, pings, until};
use lab::tools;
use nix::sys::signal::Signal;
use serde_json::Value;

fn ready() -> bool {
    acceptance::ready()
        && lab::require(tools::find("nft")).is_some()
        && lab::require(tools::find("dnsmasq")).is_some()
}

/// `dnsmasq` for the router, and what has it start anew, which notes each time.
struct Resolver {
    directory: Directory,
    _names: NameServer,
}

impl Resolver {
    fn start(all: &Policed) -> Self {
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
                "echo again >> {place}/restarts\npid=$(cat {place}/pid 2>/dev/null)\n\
                 if [ -n \"$pid\" ]; then kill \"$pid\"\n\
                 while kill -0 \"$pid\" 2>/dev/null; do sleep 0.02; done\nfi\n\
                 exec {} --conf-file={place}/dnsmasq.conf\n",
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

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn restarts(&self) -> usize {
        fs::read_to_string(self.path("restarts"))
            .unwrap()
            .lines()
            .count()
    }

    /// Settings with these entries.
    fn settings(&self, entries: &str) -> String {
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

/// Addresses out there that end with the number, of both families.
fn both(number: u8) -> [String; 2] {
    [
        format!("203.0.113.{number}"),
        format!("2001:db8:f::{number}"),
    ]
}

fn status(all: &Policed) -> (Value, Option<i32>) {
    let (code, text) = all.policy(&["status", "--json"]);
    let text = text.split_at(text.find('{').unwrap()).1;
    let end = text.rfind('}').unwrap();
    (serde_json::from_str(&text[..=end]).unwrap(), code)
}

/// Waits until all of it is in place, and its first entry about a tunnel goes this way.
fn settled(all: &Policed, entry: &str, way: &str) {
    until(way, || {
        let (report, code) = status(all);
        let mut entries = report["entries"].as_array().unwrap().iter();
        let found = entries.find(|it| it["name"] == entry).unwrap();
        let is = |family: &str| found[family].as_str().unwrap().starts_with(way);
        code == Some(0) && is("ipv4") && is("ipv6")
    });
}

/// Twelve cases of device, network and name, in both families; answers; a tunnel that goes and comes back; rules and the
/// table that others take away.
#[test]
fn packets_go_the_way_of_the_first_entry_that_fits() {
    if !ready() {
        return;
    }
    let all = Policed::new();
    let (pc, phone) = (&all.world.pc, &all.world.phone);
    let directory = Directory::new();
    let mut tunnels = all.tunnels(&directory);
    let resolver = Resolver::start(&all);
    let lease = format!("1 {} 192.168.2.1 Phone *\n", all.mac(phone));
    resolver.directory.file("leases", &lease);
    let entries = format!(
        "[[entry]]\nname = \"blocked\"\nwho = \"phone\"\nto = [\"203.0.113.30\", \"2001:db8:f::30\"]\nway = \"block\"\n\
         [[entry]]\nname = \"names\"\nwho = \"br-guest\"\nto = \"example.org\"\nthrough = \"mr-nl\"\n\
         [[entry]]\nname = \"bank\"\nto = \"bank.example\"\nway = \"around\"\n\
         [[entry]]\nname = \"pc\"\nwho = \"{}\"\nthrough = \"mr-us\"\n\
         [[entry]]\nname = \"network\"\nwho = [\"192.168.2.0/24\", \"fd00:2::/64\"]\n\
         to = [\"203.0.113.20/31\", \"2001:db8:f::20\"]\nthrough = \"mr-us\"\ndown = \"around\"\n\
         [[entry]]\nname = \"address\"\nwho = [\"192.168.2.1\", \"fd00:2::1\"]\n\
         to = [\"198.18.0.0/15\", \"2001:db8:e::/48\"]\nthrough = \"mr-nl\"\n",
        all.mac(pc)
    );
    let file = resolver.settings(&entries);
    // A connection that is older than the policy.
    let old = pc.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    old.send_to(&[1], (FAR[0], 7990)).unwrap();
    until("the old connection", || all.came("eth0", 7990));
    assert_eq!(status(&all).1, Some(3));

    let (code, text) = all.policy(&["on", "--settings", &file]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(resolver.restarts(), 2, "dnsmasq is told");
    let watch = all.watch(&file);
    settled(&all, "pc", "through mr-us");
    old.send_to(&[1], (FAR[0], 7990)).unwrap();
    until("the old connection goes the new way", || {
        all.came("wg1", 7990)
    });
    assert_eq!(
        resolver.restarts(),
        2,
        "dnsmasq is told nothing that it knows"
    );

    let way = |host, to: &str| all.way(host, to);
    let case = |number: u8, what: &str, host, to: [String; 2], wanted: Option<&str>| {
        for to in to {
            assert_eq!(
                way(host, &to).as_deref(),
                wanted,
                "case {number}: {what}, {to}"
            );
        }
    };
    let far = FAR.map(str::to_owned);
    case(1, "device to everywhere", pc, far.clone(), Some("wg1"));
    for address in ["192.168.1.77", "fd00:1::77"] {
        all.add_address(pc, address);
        let to = if ip(address).is_ipv4() {
            FAR[0]
        } else {
            FAR[1]
        };
        let came = all.way_from(pc, Some(address), to);
        assert_eq!(
            came.as_deref(),
            Some("wg1"),
            "case 2: another address of the device"
        );
        // What answers later is to answer from the first.
        let bits = if ip(address).is_ipv4() { 24 } else { 64 };
        let own = format!("{address}/{bits}");
        pc.output("ip", ["address", "delete", &own, "dev", "eth0"])
            .unwrap();
    }
    case(
        3,
        "leased device to a blocked network",
        phone,
        both(30),
        None,
    );
    case(4, "another device to the same", pc, both(30), Some("wg1"));
    case(
        5,
        "a name that nothing has asked for",
        phone,
        both(40),
        Some("eth0"),
    );
    for name in [
        "example.org",
        "www.example.org",
        "bank.example",
        "notexample.org",
    ] {
        all.resolve(phone, "192.168.2.2", name);
    }
    case(
        6,
        "network of the LAN to a name",
        phone,
        both(40),
        Some("wg2"),
    );
    case(7, "to a subdomain", phone, both(41), Some("wg2"));
    case(
        8,
        "to a name that only ends alike",
        phone,
        both(43),
        Some("eth0"),
    );
    case(9, "all to a name, around", pc, both(42), Some("eth0"));
    case(10, "network to network", phone, both(20), Some("wg1"));
    let elsewhere = ["198.18.0.9", "2001:db8:e::9"].map(str::to_owned);
    case(11, "address to network", phone, elsewhere, Some("wg2"));
    case(12, "no entry", phone, far.clone(), Some("eth0"));
    for near in [
        "192.168.2.1",
        "fd00:2::1",
        "192.168.1.2",
        "192.168.3.1",
        "fd00:3::1",
    ] {
        pings(pc, near, 1);
    }

    // Answers: of a device to what came by a tunnel though its own way is another, and the other way round; of the router.
    let forwards = "table inet forwards {\n chain forwards {\n type nat hook prerouting priority -100;\n\
        iifname { \"mr-us\", \"wan\" } meta nfproto ipv4 udp dport 9001 dnat ip to 192.168.2.1:9000\n\
        iifname { \"mr-us\", \"wan\" } meta nfproto ipv6 udp dport 9001 dnat ip6 to [fd00:2::1]:9000\n\
        iifname { \"mr-nl\", \"wan\" } meta nfproto ipv4 udp dport 9002 dnat ip to 192.168.1.1:9000\n\
        iifname { \"mr-nl\", \"wan\" } meta nfproto ipv6 udp dport 9002 dnat ip6 to [fd00:1::1]:9000\n}\n}\n";
    all.world.router.nft(forwards).unwrap();
    for address in ["10.2.0.2", "fd02::2"] {
        all.listen(address, 9003);
    }
    let answers = |what: &str| {
        for (from, to, port, wanted) in [
            (FAR[0], "10.1.0.2", 9001, "wg1"),
            (FAR[1], "fd01::2", 9001, "wg1"),
            (FAR[0], "10.2.0.2", 9002, "wg2"),
            (FAR[1], "fd02::2", 9002, "wg2"),
            ("192.168.3.2", "192.168.3.1", 9002, "eth0"),
            ("fd00:3::2", "fd00:3::1", 9002, "eth0"),
            (FAR[0], "10.2.0.2", 9003, "wg2"),
            (FAR[1], "fd02::2", 9003, "wg2"),
        ] {
            all.forget_answers();
            let came = all.answer(from, to, port);
            assert_eq!(
                came.as_deref(),
                Some(wanted),
                "{what}: answer of {to} {port}"
            );
        }
    };
    answers("with both tunnels");

    // A tunnel is killed: what must not leave otherwise does not, and it is led into again when it is back.
    let (_far, process) = tunnels.remove(0);
    process.signal(Signal::SIGKILL).unwrap();
    process.wait_at_most(PATIENCE).unwrap();
    settled(&all, "pc", "held");
    case(1, "held", pc, far.clone(), None);
    case(10, "let go", phone, both(20), Some("eth0"));
    let _again = all.up(&directory, "mr-us");
    settled(&all, "pc", "through mr-us");
    case(1, "again", pc, far.clone(), Some("wg1"));
    case(10, "again", phone, both(20), Some("wg1"));

    // What others take away comes back.
    all.world.flush_rules();
    until("rules that are set again", || status(&all).1 == Some(0));
    case(1, "rules were flushed", pc, far.clone(), Some("wg1"));
    let told = resolver.restarts();
    let delete = ["delete", "table", "inet", "millrace_policy"];
    all.world.router.output("nft", delete).unwrap();
    until("a table that is made again", || status(&all).1 == Some(0));
    until("dnsmasq forgets what it knows", || {
        resolver.restarts() > told
    });
    all.resolve(phone, "192.168.2.2", "www.example.org");
    case(7, "the table was deleted", phone, both(41), Some("wg2"));
    case(1, "the table was deleted", pc, far.clone(), Some("wg1"));

    // A change of entries keeps what is known of names, and a mistake changes nothing.
    resolver.settings(&entries.replace(
        "[[entry]]\nname = \"blocked\"",
        "[[entry]]\nname = \"first\"\nwho = \"192.168.2.1\"\n\
         to = \"203.0.113.31\"\nthrough = \"mr-nl\"\n[[entry]]\nname = \"blocked\"",
    ));
    let told = resolver.restarts();
    assert_eq!(all.policy(&["on", "--settings", &file]).0, Some(0));
    case(7, "entries were changed", phone, both(41), Some("wg2"));
    assert_eq!(way(phone, "203.0.113.31").as_deref(), Some("wg2"));
    assert_eq!(resolver.restarts(), told);
    resolver.settings("[[entry]]\nwho = \"a b\"\n");
    let (code, text) = all.policy(&["on", "--settings", &file]);
    assert!(code == Some(1) && text.contains("still in force"), "{text}");
    case(1, "a mistake", pc, far.clone(), Some("wg1"));

    watch.signal(Signal::SIGTERM).unwrap();
    watch.wait_at_most(PATIENCE).unwrap();
    assert_eq!(all.policy(&["off", "--settings", &file]).0, Some(0));
    case(1, "off", pc, far, Some("eth0"));
    case(6, "off", phone, both(40), Some("eth0"));
    let left = all.world.router.output("nft", ["list", "tables"]).unwrap();
    assert!(!left.contains("millrace_policy"), "{left}");
    assert!(!fs::exists(resolver.path("dnsmasq.d/millrace-policy.conf")).unwrap());
    for family in ["-4", "-6"] {
        let rules = all.world.router.output("ip", [family, "rule"]).unwrap();
        assert!(!rules.contains("0xff000000"), "{rules}");
    }
}

/// With a full tunnel of `wg-quick`: entries come before it, what goes around does, and what came by the line is answered by
/// it. What has no entry, and the router itself, go through `wg-quick`'s tunnel as ever, which comes and goes undisturbed.
#[test]
fn wg_quick_goes_on_beside_it() {
    if !ready() {
        return;
    }
    let Some(original) = lab::require(tools::find("wg-quick")) else {
        return;
    };
    let all = Policed::new();
    let (pc, phone, router) = (&all.world.pc, &all.world.phone, &all.world.router);
    let directory = Directory::new();
    let _tunnels = all.tunnels(&directory);
    let _far = all.far_end(&directory, 3, "mr-full", "");
    let wg_quick = without_the_kernels(&directory, &original);
    let script = directory.file(
        "script",
        &format!("#!/bin/sh\nexec {PROGRAM} wireguard \"$1\"\n"),
    );
    make_executable(&script);
    hide_kernel_modules(router);
    let quick = |what: &str| {
        let command = router.command(&wg_quick).arg(what);
        let command = command.arg(directory.path().join("mr-full.conf"));
        let command = command.env("WG_QUICK_USERSPACE_IMPLEMENTATION", &script);
        command
            .spawn()
            .unwrap()
            .wait_at_most(PATIENCE)
            .unwrap()
            .success()
            .unwrap();
    };
    let entries = format!(
        "lan = [\"br-lan\", \"br-guest\"]\n\
         [[entry]]\nname = \"around\"\nwho = \"br-guest\"\nto = [\"203.0.113.0/27\", \"2001:db8:f::20/124\"]\nway = \"around\"\n\
         [[entry]]\nname = \"pc\"\nwho = \"{}\"\nthrough = \"mr-us\"\n",
        all.mac(pc)
    );
    let file = directory
        .file("policy.toml", &entries)
        .display()
        .to_string();
    let rules = || {
        let of = |family| router.output("ip", [family, "rule"]).unwrap();
        of("-4") + &of("-6")
    };
    let before = rules();
    let forward = "table inet forwards {\n chain forwards {\n type nat hook prerouting priority -100;\n\
        iifname \"wan\" udp dport 9001 dnat ip to 192.168.2.1:9000\n}\n}\n";
    router.nft(forward).unwrap();
    quick("up");
    let with_quick = rules();
    assert_eq!(
        all.way(phone, FAR[0]).as_deref(),
        Some("wg3"),
        "wg-quick by itself"
    );
    assert_eq!(all.policy(&["on", "--settings", &file]).0, Some(0));
    let watch = all.watch(&file);
    all.listen("192.168.3.1", 9003);
    for _ in 0..2 {
        settled(&all, "pc", "through mr-us");
        for (place, far) in FAR.into_iter().enumerate() {
            assert_eq!(
                all.way(phone, ["203.0.113.40", "2001:db8:f::40"][place])
                    .as_deref(),
                Some("wg3"),
                "{far}"
            );
            assert_eq!(all.way(pc, far).as_deref(), Some("wg1"), "{far}");
        }
        assert_eq!(all.way(router, "203.0.113.40").as_deref(), Some("wg3"));
        assert_eq!(all.way(phone, FAR[0]).as_deref(), Some("eth0"), "around");
        assert_eq!(
            all.way(phone, "2001:db8:f::20").as_deref(),
            Some("eth0"),
            "around"
        );
        // From far away, as the line's own network is known to the router in any case.
        for port in [9001, 9003] {
            all.forget_answers();
            let answer = all.answer("203.0.113.40", "192.168.3.1", port);
            assert_eq!(answer.as_deref(), Some("eth0"), "{port}");
        }
        let others = status(&all).0["others"].clone();
        assert_eq!(others[0]["name"], "wg-quick or a full tunnel of Millrace");
        assert_eq!(
            others[0]["conflicts"].as_array().unwrap().len(),
            0,
            "{others}"
        );
        // Without it what goes around needs nothing.
        quick("down");
        until("it is not gone around any more", || {
            !rules().contains("suppress_prefixlength 1\n")
        });
        assert_eq!(all.way(phone, "203.0.113.40").as_deref(), Some("eth0"));
        assert_eq!(all.way(pc, FAR[0]).as_deref(), Some("wg1"));
        quick("up");
        until("it is gone around", || {
            rules().contains("suppress_prefixlength 1\n") && status(&all).1 == Some(0)
        });
    }
    watch.signal(Signal::SIGTERM).unwrap();
    watch.wait_at_most(PATIENCE).unwrap();
    assert_eq!(all.policy(&["off", "--settings", &file]).0, Some(0));
    assert_eq!(rules().lines().count(), with_quick.lines().count());
    assert_eq!(all.way(phone, FAR[0]).as_deref(), Some("wg3"));
    quick("down");
    assert_eq!(rules(), before);
}

/// Rules, tables and marks as pbr, mwan3 and Tailscale set them: what they lead goes where they lead it, before, beside and
/// after the policy.
#[test]
fn pbr_mwan3_and_tailscale_go_on_beside_it() {
    if !ready() {
        return;
    }
    let all = Policed::new();
    let (pc, phone, router) = (&all.world.pc, &all.world.phone, &all.world.router);
    let directory = Directory::new();
    let _tunnels = all.tunnels(&directory);
    all.world.ip(
        "rule add pref 30000 fwmark 0x10000/0xff0000 lookup 256\nroute add default dev mr-nl table 256\n\
         rule add pref 1001 iif wan lookup 1\nrule add pref 2001 fwmark 0x100/0x3f00 lookup 1\n\
         rule add pref 2061 fwmark 0x3d00/0x3f00 blackhole\nroute add default dev mr-us table 1\n\
         route add 192.168.1.0/24 dev br-lan table 1\nroute add 192.168.2.0/24 dev br-guest table 1\n\
         rule add pref 5210 fwmark 0x80000/0xff0000 lookup main\nrule add pref 5230 fwmark 0x80000/0xff0000 lookup default\n\
         rule add pref 5250 fwmark 0x80000/0xff0000 unreachable\nrule add pref 5270 lookup 52\n\
         route add 100.64.0.0/10 dev mr-nl table 52",
    );
    let marks = "table inet pbr {\n chain pbr_prerouting { type filter hook prerouting priority -150;\n\
        iifname \"br-guest\" ip daddr 203.0.113.30 meta mark set meta mark and 0xff00ffff or 0x00010000\n}\n}\n\
        table inet mwan3 {\n chain marks { type filter hook prerouting priority -151;\n\
        ct mark and 0x3f00 == 0x100 meta mark set meta mark and 0xffffc0ff or 0x100\n\
        ip daddr 203.0.113.31 meta mark and 0x3f00 == 0 meta mark set meta mark and 0xffffc0ff or 0x100\n\
        meta mark and 0x3f00 == 0x100 ct mark set ct mark and 0xffffc0ff or 0x100\n}\n}\n";
    router.nft(marks).unwrap();
    let state = || {
        let rules = router.output("ip", ["rule"]).unwrap();
        rules + &router.output("nft", ["list", "ruleset"]).unwrap()
    };
    let before = state();
    let theirs = |when: &str| {
        for (to, wanted) in [
            ("203.0.113.30", "wg2"),
            ("203.0.113.31", "wg1"),
            ("100.64.0.9", "wg2"),
            (FAR[0], "eth0"),
        ] {
            assert_eq!(all.way(phone, to).as_deref(), Some(wanted), "{when}: {to}");
        }
    };
    theirs("before");
    let entries = format!(
        "lan = [\"br-lan\", \"br-guest\"]\n\
         [[entry]]\nname = \"tailnet\"\nto = \"100.64.0.0/10\"\nway = \"around\"\n\
         [[entry]]\nname = \"pc\"\nwho = \"{}\"\nthrough = \"mr-us\"\n\
         [[entry]]\nname = \"phone\"\nwho = \"192.168.2.1\"\nto = \"203.0.113.20\"\nthrough = \"mr-nl\"\n",
        all.mac(pc)
    );
    let file = directory
        .file("policy.toml", &entries)
        .display()
        .to_string();
    let (code, text) = all.policy(&["on", "--settings", &file]);
    assert_eq!(code, Some(0), "{text}");
    theirs("beside it");
    for to in [FAR[0], "203.0.113.30", "203.0.113.31"] {
        assert_eq!(all.way(pc, to).as_deref(), Some("wg1"), "{to}");
    }
    assert_eq!(all.way(phone, "203.0.113.20").as_deref(), Some("wg2"));
    assert_eq!(
        all.way(pc, "100.64.0.9").as_deref(),
        Some("wg2"),
        "Tailscale's network"
    );
    let report = status(&all).0;
    let names: Vec<&str> = report["others"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["mwan3", "pbr", "Tailscale"]);
    for other in report["others"].as_array().unwrap() {
        assert_eq!(other["conflicts"].as_array().unwrap().len(), 0, "{other}");
    }
    // Marks that overlap are told, here and behind the status of tunnels.
    let bad = format!("mask = 0x00ff0000\n{entries}");
    directory.file("policy.toml", &bad);
    all.policy(&["on", "--settings", &file]);
    let told = router.output(PROGRAM, ["status", "--no-rate"]).unwrap();
    assert!(
        told.contains("conflict with pbr: marks share the bits 0xff0000"),
        "{told}"
    );
    assert_eq!(all.policy(&["off", "--settings", &file]).0, Some(0));
    theirs("after it");
    let strip =
        |text: &str| -> String { text.lines().filter(|it| !it.contains("packets")).collect() };
    assert_eq!(strip(&state()), strip(&before));
}

/// A `dnsmasq` that cannot fill sets, one that refuses a line, and none: what is wrong is told, its settings stay as they
/// are, and all that needs no names is done.
#[test]
fn a_dnsmasq_that_cannot_is_told_of_and_left_alone() {
    if !ready() {
        return;
    }
    let all = Policed::new();
    let directory = Directory::new();
    let confs = directory.path().join("dnsmasq.d");
    fs::create_dir(&confs).unwrap();
    let entries = format!(
        "lan = [\"br-lan\"]\ndnsmasq = \"{}\"\nrestart = [\"false\"]\n[[entry]]\nto = \"example.org\"\nway = \"block\"\n",
        confs.display()
    );
    let file = directory
        .file("policy.toml", &entries)
        .display()
        .to_string();
    let programs = directory.path().join("bin");
    fs::create_dir(&programs).unwrap();
    for name in ["nft", "false"] {
        std::os::unix::fs::symlink(tools::find(name).unwrap(), programs.join(name)).unwrap();
    }
    let on = || {
        let command = all
            .world
            .router
            .command(PROGRAM)
            .args(["policy", "on", "--settings", &file]);
        let exit = command.env("PATH", &programs).exit().unwrap();
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        assert!(exit.stdout.contains("packet filter: in place"), "{exit:?}");
        exit.stderr
    };
    let files = || fs::read_dir(&confs).unwrap().count();
    let stand_in = |version: &str, test: &str| {
        let text = format!("#!/bin/sh\n[ \"$1\" = --version ] && echo {version} && exit\n{test}\n");
        make_executable(&directory.file("bin/dnsmasq", &text));
    };
    assert!(on().contains("there is no program dnsmasq"));
    stand_in("ipset no-nftset auth", "exit 0");
    assert!(on().contains("install one that is built with nftset"));
    stand_in("ipset nftset auth", "echo bad option at line 1 >&2; exit 1");
    assert!(on().contains("refuses the lines for it, which are not put into use: bad option"));
    assert_eq!(files(), 0);
    stand_in("ipset nftset auth", "exit 0");
    assert!(on().contains("false: exit status: 1"));
    assert_eq!(files(), 1);
}
