//! The policy beside other programs that route packets, and beside the guard: it breaks none of their work.

use lab::acceptance::guarded::FAR;
use lab::acceptance::policed::Policed;
use lab::acceptance::quick::{hide_kernel_modules, make_executable, without_the_kernels};
use lab::acceptance::{Directory, PATIENCE, PROGRAM, until};
use lab::tools;
use nix::sys::signal::Signal;

fn ready() -> bool {
    lab::acceptance::ready() && lab::require(tools::find("nft")).is_some()
}

/// With a full tunnel of `wg-quick`: the policy's entries take precedence, bypass entries work, and answers leave
/// through the uplink that the request used. All other traffic and the router's use `wg-quick`'s tunnel, which comes
/// and goes undisturbed.
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
    // Bypassing uses a rule for marks; rules that block devices without the packet filter name a LAN device.
    let is_gone_around = || {
        let is_around = |rule: &str| {
            rule.trim_end().ends_with("suppress_prefixlength 1") && !rule.contains(" iif ")
        };
        rules().lines().any(is_around)
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
        all.settled("pc", "through mr-us");
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
        // The requests come from far away, because the router always knows the uplink's own network.
        for port in [9001, 9003] {
            all.forget_answers();
            let answer = all.answer("203.0.113.40", "192.168.3.1", port);
            assert_eq!(answer.as_deref(), Some("eth0"), "{port}");
        }
        let others = all.status().0["others"].clone();
        assert_eq!(others[0]["name"], "wg-quick or a full tunnel of Millrace");
        assert_eq!(
            others[0]["conflicts"].as_array().unwrap().len(),
            0,
            "{others}"
        );
        // Without `wg-quick`'s tunnel, bypass entries need no rule.
        quick("down");
        until("it is not gone around any more", || !is_gone_around());
        assert_eq!(all.way(phone, "203.0.113.40").as_deref(), Some("eth0"));
        assert_eq!(all.way(pc, FAR[0]).as_deref(), Some("wg1"));
        quick("up");
        until("it is gone around", || {
            is_gone_around() && all.status().1 == Some(0)
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

/// Rules, tables and marks as pbr, mwan3 and Tailscale set them: their packets take their routes before, beside and
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
    let report = all.status().0;
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
    // The policy and the tunnels' status both report overlapping marks.
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

/// With the guard on, entries choose among tunnels, and no packet uses a tunnel other than its entry's. The guard
/// blocks bypass traffic, and says so.
#[test]
fn entries_choose_among_the_tunnels_of_the_guard() {
    if !ready() {
        return;
    }
    let all = Policed::new();
    let (pc, phone, router) = (&all.world.pc, &all.world.phone, &all.world.router);
    let directory = Directory::new();
    let mut tunnels = all.tunnels(&directory);
    let guard = ["guard", "watch", "--lan", "br-lan", "--lan", "br-guest"];
    let mut guard = router.command(PROGRAM).args(guard).spawn().unwrap();
    let told = |line: &str| line.contains("through mr-nl");
    guard.wait_for_line("the guard", PATIENCE, told).unwrap();
    let entries = format!(
        "lan = [\"br-lan\", \"br-guest\"]\n\
         [[entry]]\nname = \"around\"\nto = \"203.0.113.20\"\nway = \"around\"\n\
         [[entry]]\nname = \"pc\"\nwho = \"{}\"\nthrough = \"mr-us\"\n",
        all.mac(pc)
    );
    let file = directory.file("policy.toml", &entries);
    let file = file.display().to_string();
    let watch = all.watch(&file);
    all.settled("pc", "through mr-us");
    for far in FAR {
        assert_eq!(all.way(pc, far).as_deref(), Some("wg1"), "{far}");
        assert_eq!(all.way(phone, far).as_deref(), Some("wg2"), "{far}");
    }
    assert_ne!(all.way(phone, "203.0.113.20").as_deref(), Some("eth0"));
    let notes = all.status().0["notes"].to_string();
    assert!(
        notes.contains("the guard holds br-lan, br-guest"),
        "{notes}"
    );
    let (code, text) = all.policy(&["status"]);
    assert_eq!(code, Some(0), "{text}");
    let exit = router
        .command(PROGRAM)
        .args(["guard", "status"])
        .exit()
        .unwrap();
    assert!(
        exit.status.success() && !exit.stdout.contains("another program"),
        "{exit:?}"
    );
    let (_far, process) = tunnels.remove(0);
    process.signal(Signal::SIGKILL).unwrap();
    process.wait_at_most(PATIENCE).unwrap();
    all.settled("pc", "held");
    for far in FAR {
        assert_eq!(all.way(pc, far), None, "{far}");
        assert_eq!(all.way(phone, far).as_deref(), Some("wg2"), "{far}");
    }
    for process in [watch, guard] {
        process.signal(Signal::SIGTERM).unwrap();
        process.wait_at_most(PATIENCE).unwrap();
    }
}
