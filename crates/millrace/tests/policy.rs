//! The policy: the path of packets by sending device and destination, and the path of answers.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use lab::acceptance::guarded::FAR;
use lab::acceptance::policed::{Policed, Resolver, both};
use lab::acceptance::quick::make_executable;
use lab::acceptance::web::{Monitor, PASSWORD};
use lab::acceptance::{Directory, PATIENCE, PROGRAM, ip, pings, until};
use lab::{Host, tools};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Number of packets of each family to send in each state.
const SOME: u64 = 20;

fn ready() -> bool {
    lab::acceptance::ready()
        && lab::require(tools::find("nft")).is_some()
        && lab::require(tools::find("dnsmasq")).is_some()
}

/// Twelve combinations of device, network and name, in both families. Also answers, a tunnel that goes and returns, and
/// rules and the table that other programs remove.
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
    // A connection that began before the policy.
    let old = pc.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    // A queue that is full, or a neighbour that is not known yet, may cost a datagram.
    let came = |device: &str| {
        old.send_to(&[1], (FAR[0], 7990)).unwrap();
        all.came(device, 7990)
    };
    until("the old connection", || came("eth0"));
    assert_eq!(all.status().1, Some(3));

    let (code, text) = all.policy(&["on", "--settings", &file]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(resolver.restarts(), 2, "dnsmasq restarts");
    let watch = all.watch(&file);
    all.settled("pc", "through mr-us");
    until("the old connection takes the new route", || came("wg1"));
    assert_eq!(
        resolver.restarts(),
        2,
        "dnsmasq does not restart for known names"
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
            "case 2: a second address of the device"
        );
        // Later answers must come from the first address.
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
    case(
        4,
        "another device to the same address",
        pc,
        both(30),
        Some("wg1"),
    );
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

    // Answers: from a device to connections that came through a tunnel other than its own, and the reverse; and from
    // the router.
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

    // A tunnel is killed: packets that may use only that tunnel stay blocked, and use it again when it returns.
    let (_far, process) = tunnels.remove(0);
    process.signal(Signal::SIGKILL).unwrap();
    process.wait_at_most(PATIENCE).unwrap();
    all.settled("pc", "held");
    case(1, "held", pc, far.clone(), None);
    case(10, "let go", phone, both(20), Some("eth0"));
    let _again = all.up(&directory, "mr-us");
    all.settled("pc", "through mr-us");
    case(1, "again", pc, far.clone(), Some("wg1"));
    case(10, "again", phone, both(20), Some("wg1"));

    // The policy restores rules that other programs remove.
    all.world.flush_rules();
    until("rules that are set again", || all.status().1 == Some(0));
    case(1, "rules were flushed", pc, far.clone(), Some("wg1"));
    let told = resolver.restarts();
    let delete = ["delete", "table", "inet", "millrace_policy"];
    all.world.router.output("nft", delete).unwrap();
    until("a table that is made again", || all.status().1 == Some(0));
    assert_eq!(resolver.restarts(), told, "dnsmasq keeps its cache");
    case(7, "the table was deleted", phone, both(41), Some("wg2"));
    case(1, "the table was deleted", pc, far.clone(), Some("wg1"));

    // A change of entries keeps the known addresses of names, and a faulty file changes nothing.
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
    assert!(
        code == Some(1) && text.contains("keeps the settings"),
        "{text}"
    );
    case(1, "a mistake", pc, far.clone(), Some("wg1"));
    resolver.settings("[[entry]]\nname = \"second\"\nwho = \"br-lan\"\nway = \"block\"\n");
    let (code, text) = all.policy(&["watch", "--settings", &file]);
    assert!(
        code == Some(1) && text.contains("runs it already"),
        "{text}"
    );
    case(1, "a second watch", pc, far.clone(), Some("wg1"));

    watch.signal(Signal::SIGTERM).unwrap();
    watch.wait_at_most(PATIENCE).unwrap();
    assert_eq!(all.policy(&["off", "--settings", &file]).0, Some(0));
    case(1, "off", pc, far, Some("eth0"));
    case(6, "off", phone, both(40), Some("eth0"));
    let left = all.world.router.output("nft", ["list", "tables"]).unwrap();
    assert!(!left.contains("millrace_policy"), "{left}");
    assert!(!fs::exists(resolver.path("dnsmasq.d/millrace.policy.conf")).unwrap());
    for family in ["-4", "-6"] {
        let rules = all.world.router.output("ip", [family, "rule"]).unwrap();
        assert!(!rules.contains("0xff000000"), "{rules}");
    }
}

/// While `watch` applies what it has learnt, `status` does not report the intermediate state.
#[test]
fn the_status_is_told_between_two_changes() {
    if !lab::acceptance::ready() || lab::require(tools::find("nft")).is_none() {
        return;
    }
    let all = Policed::new();
    let (pc, router) = (&all.world.pc, &all.world.router);
    let directory = Directory::new();
    let text = format!(
        "lan = [\"br-lan\"]\nleases = \"/nonexistent\"\n[[entry]]\nwho = \"{}\"\nthrough = \"mr-us\"\n",
        all.mac(pc)
    );
    let file = directory.file("policy.toml", &text).display().to_string();
    assert_eq!(all.policy(&["on", "--settings", &file]).0, Some(0));
    let _watch = all.watch(&file);
    for number in 100..107 {
        let own = format!("192.168.1.{number}");
        all.add_address(pc, &own);
        // The router's answer gives it a new neighbour entry, and the route change below then wakes `watch`.
        let ask = || UdpSocket::bind((ip(&own), 0))?.send_to(&[1], ("192.168.1.2", 9));
        pc.run(ask).unwrap().unwrap();
        until("a neighbour", || {
            let list = router.output("ip", ["neighbour"]).unwrap();
            list.contains(&format!("{own} "))
        });
        all.world
            .ip(&format!("route add 198.18.{number}.0/24 dev wan"));
        until("an address that is held", || {
            let is_held = router.output("ip", ["rule"]).unwrap().contains(&own);
            let (report, code) = all.status();
            assert_eq!(code, Some(0), "{report}");
            is_held
        });
    }
}

/// Without a watch, the policy names what a tunnel's restart has removed. Packets that its routing rules refuse are
/// counted, which brings an alert.
#[test]
fn held_packets_are_counted_and_a_missing_watch_is_told() {
    if !lab::acceptance::ready() || lab::require(tools::find("nft")).is_none() {
        return;
    }
    let all = Policed::new();
    let (pc, phone, router) = (&all.world.pc, &all.world.phone, &all.world.router);
    let directory = Directory::new();
    let text = format!(
        "lan = [\"br-lan\", \"br-guest\"]\nleases = \"/nonexistent\"\n\
         [[entry]]\nname = \"pc\"\nwho = \"{}\"\nthrough = \"mr-us\"\n\
         [[entry]]\nname = \"blocked\"\nwho = \"br-guest\"\nto = [\"203.0.113.30\", \"2001:db8:f::30\"]\n\
         way = \"block\"\n",
        all.mac(pc)
    );
    let file = directory.file("policy.toml", &text).display().to_string();
    let told = directory.path().join("told").display().to_string();
    let script = format!("cat >> {told}");
    let hooks = format!(
        "[[on-event]]\nevents = [\"leak-refused\"]\nrun = [\"/bin/sh\", \"-c\", {script:?}]\n"
    );
    let hooks = directory.file("alerts.toml", &hooks);
    let status = || all.policy(&["status", "--settings", &file]).1;
    let says = |words: &str| {
        let text = status();
        assert!(text.contains(words), "{words:?} is not in {text}");
    };

    let (code, text) = all.policy(&["on", "--settings", &file]);
    assert_eq!(code, Some(0), "{text}");
    for words in [
        "policy: on; nothing watches\n",
        "`service millrace-policy start`",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let alerts = router.command(PROGRAM).args(["alerts", "--settings"]);
    let mut alerts = alerts.arg(hooks).spawn().unwrap();
    let line = |line: &str| line.contains("watching");
    alerts.wait_for_line("the alerts", PATIENCE, line).unwrap();

    let refused = || all.status().0["refused_packets"].as_u64().unwrap();
    let counted = |when: &str, host: &Host, to: [&str; 2], is_refused: bool| {
        let came = || all.world.from(host.name()).iter().sum::<u64>();
        let before = [refused(), came()];
        all.world.send(host, to, SOME);
        match is_refused {
            true => until(when, || refused() - before[0] == came() - before[1]),
            false => assert_eq!(refused(), before[0], "{when}"),
        }
    };
    let blocked = ["203.0.113.30", "2001:db8:f::30"];
    counted("a device is held", pc, FAR, true);
    counted("a device is blocked", phone, blocked, true);
    counted("no entry", phone, FAR, false);
    counted("within the LAN", pc, ["192.168.2.1", "fd00:2::1"], false);
    counted("to the router", pc, ["192.168.1.2", "fd00:1::2"], false);
    until("an alert", || {
        fs::read_to_string(&told).is_ok_and(|event| event.contains("\"leak-refused\""))
    });

    let tunnel = "tuntap add mr-us mode tun\naddress add 10.99.0.2/32 dev mr-us\n\
                  address add fd99::2/128 dev mr-us nodad\nlink set mr-us up";
    all.world.ip(tunnel);
    assert_eq!(all.policy(&["refresh"]).0, Some(0));
    counted("through a tunnel", pc, FAR, false);
    all.world.ip("link delete mr-us");
    counted("the tunnel ended", pc, FAR, true);
    all.world.ip(tunnel);
    says("policy: partly on: rules and routes missing; nothing watches\n");
    counted("the tunnel came back without a watch", pc, FAR, true);
    let doctor = || {
        let exit = router.command(PROGRAM).args(["doctor", "--json"]).exit();
        let found: Vec<Value> = serde_json::from_str(&exit.unwrap().stdout).unwrap();
        let ours = found.into_iter().filter(|it| it["check"] == "steering");
        ours.map(|it| it["what"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let lacking = "policy: partly on: rules and routes missing; nothing watches";
    assert_eq!(doctor(), [lacking]);
    let monitor = Monitor::start(router, true, &[]);
    let head = "HTTP/1.1\r\nHost: 127.0.0.1:8470\r\nOrigin: http://127.0.0.1:8470\r\n\
                Content-Type: application/json\r\n";
    let post = |path: &str, cookie: &str, body: &Value| {
        let (body, length) = (body.to_string(), body.to_string().len());
        monitor.request(&format!(
            "POST {path} {head}{cookie}Content-Length: {length}\r\n\r\n{body}"
        ))
    };
    let reply = post("/api/login", "", &json!({"password": PASSWORD}));
    let cookie = reply.field("set-cookie").unwrap();
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    let page = || {
        let request = format!("GET /api/state {head}{cookie}\r\n");
        let document: Value = serde_json::from_str(&monitor.request(&request).text()).unwrap();
        document["steering"]["warnings"].to_string()
    };
    until("a warning", || {
        page().contains("rules and routes missing; nothing watches")
    });

    let watch = all.watch(&file);
    all.settled("pc", "through mr-us");
    says("policy: on\n");
    assert_eq!(doctor(), [""; 0]);
    counted("the watch runs", pc, FAR, false);

    // A changed file is told until it is applied.
    let text = fs::read_to_string(&file).unwrap();
    let place = Path::new("/etc/millrace");
    let write = |name: &str, text: &str| fs::write(place.join(name), text).unwrap();
    let changed = "policy.toml has been changed since it was applied";
    router.run(|| write("policy.toml", &text)).unwrap();
    assert_eq!(doctor(), [""; 0]);
    let more = "[[entry]]\nname = \"more\"\nto = \"198.18.0.9\"\nway = \"block\"\n";
    router
        .run(|| write("policy.toml", &format!("{text}{more}")))
        .unwrap();
    let is_told = |told: bool| {
        let text = all.policy(&["status"]).1;
        assert_eq!(text.contains(changed), told, "{text}");
        let found = doctor();
        assert_eq!(
            found.iter().any(|it| it.contains(changed)),
            told,
            "{found:?}"
        );
        until("the page", || page().contains(changed) == told);
    };
    is_told(true);
    // The page applies its rule at once, and with it the whole file.
    let given =
        json!({"name": "tablet", "mac": "02:00:5e:10:00:77", "lan": "br-lan", "through": ""});
    let rule = json!({"method": "rule_add", "given": given});
    let reply = post("/api/home", &cookie, &rule).text();
    assert!(reply.contains("and applied"), "{reply}");
    is_told(false);
    for entry in ["entry more: ", "entry tablet: "] {
        says(entry);
    }

    // Mistakes are told where the owner looks.
    let files = [
        (
            "policy.toml",
            "lan = [\"br-lan\"]\nentry = 7\n",
            "policy.toml:2: ",
        ),
        ("guard.toml", "\nlan = 7\n", "guard.toml:2: "),
        ("forward.toml", "what\n", "forward.toml:1: "),
        (
            "alerts.toml",
            "[[on-event]]\nevents = [\"tunnel-dwon\"]\n",
            "did you mean `tunnel-down`?",
        ),
    ];
    let write = || files.map(|it| fs::write(place.join(it.0), it.1).unwrap());
    router.run(write).unwrap();
    let found = doctor();
    assert_eq!(found.len(), files.len(), "{found:?}");
    for (name, _, words) in files {
        assert!(found.iter().any(|it| it.contains(words)), "{found:?}");
        until(name, || page().contains(words));
    }
    let held = "policy.toml:2: ";
    let page = page();
    let told = page.split("\",\"").find(|it| it.contains(held)).unwrap();
    assert!(
        told.contains("the earlier settings stay in force"),
        "{told}"
    );
    let write = || {
        fs::write(
            place.join("alerts.toml"),
            "[[on-event]]\npost = \"ftp://secret\"\n",
        )
    };
    router.run(write).unwrap().unwrap();
    let found = doctor();
    let hidden = |it: &String| it.contains("alerts.toml:2: post cannot be this value; write");
    assert!(found.iter().any(hidden), "{found:?}");
    for process in [watch, alerts] {
        process.signal(Signal::SIGTERM).unwrap();
        process.wait_at_most(PATIENCE).unwrap();
    }
}

/// A second line's gateway is no longer reachable: its default route stays, but the kernel accepts no other route
/// through that gateway.
#[test]
fn a_route_that_the_kernel_refuses_is_told() {
    if !lab::acceptance::ready() || lab::require(tools::find("nft")).is_none() {
        return;
    }
    let all = Policed::new();
    all.world.ip(
        "link add lte type bridge\nlink set lte up\naddress add 10.77.0.2/32 dev lte\n\
         route add 10.77.0.1/32 dev lte\nroute add default via 10.77.0.1 dev lte metric 500\n\
         route delete 10.77.0.1/32 dev lte",
    );
    let directory = Directory::new();
    let text =
        "lan = [\"br-lan\"]\n[[entry]]\nname = \"lte\"\nwho = \"br-lan\"\nthrough = \"lte\"\n";
    let file = directory.file("policy.toml", text).display().to_string();
    let (code, text) = all.policy(&["on", "--settings", &file]);
    assert_eq!(code, Some(1), "{text}");
    let error = "cannot set route 0.0.0.0/0 via 10.77.0.1";
    assert!(text.contains(error), "{text}");
    let mut watch = all
        .world
        .router
        .command(PROGRAM)
        .args(["policy", "watch", "--settings", &file])
        .spawn()
        .unwrap();
    let told = |line: &str| line.contains(error);
    watch.wait_for_line("the error", PATIENCE, told).unwrap();
    watch.signal(Signal::SIGTERM).unwrap();
    watch.wait_at_most(PATIENCE).unwrap();
    let (status, code) = all.status();
    let way = status["entries"][0]["ipv4"].to_string();
    assert!(
        code == Some(1) && status["rules"] == "missing" && way.contains("says why the kernel"),
        "{code:?} {status}"
    );
    // A gateway that the owner marks as on-link is accepted for the policy's table as well.
    all.world
        .ip("route replace default via 10.77.0.1 dev lte metric 500 onlink");
    let (code, text) = all.policy(&["refresh"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(all.status().0["entries"][0]["ipv4"], "through lte");
}

/// A `dnsmasq` that cannot fill sets, one that refuses a line, and none: the policy reports the fault, leaves the
/// settings alone, and applies everything that needs no names.
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
    assert!(on().contains("is missing; install it"));
    // The script is written only once: a file that is open for writing, even in another thread's child, cannot be
    // executed.
    let place = directory.path().display();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && read -r words <{place}/version && echo $words && exit\n. {place}/test\n"
    );
    make_executable(&directory.file("bin/dnsmasq", &script));
    let stand_in = |version: &str, test: &str| {
        directory.file("version", &format!("{version}\n"));
        directory.file("test", test);
    };
    stand_in("ipset no-nftset auth", "exit 0");
    assert!(on().contains("install one that is built with nftset"));
    stand_in("ipset nftset auth", "echo bad option at line 1 >&2; exit 1");
    assert!(on().contains("refuses its new lines, so they are not used: bad option"));
    assert_eq!(files(), 0);
    stand_in("ipset nftset auth", "exit 0");
    // A file that `dnsmasq` did not read is reported as not in place, each time.
    for _ in 0..2 {
        assert!(on().contains("false: exit status: 1"));
        let mark = confs.join(".millrace.policy.conf.unread");
        assert!(mark.exists() && files() == 2);
    }
}
