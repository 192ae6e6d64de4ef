//! Netlink against the real kernel, with a separate network namespace for each test.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod ovpn;
#[cfg(feature = "steer")]
mod redirection;

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use netio::ethtool;
use netio::netlink::masquerade::{self, Masquerade};
use netio::netlink::{
    ChainsWatch, DeviceName, Event, Family, Forwarded, HOOK_FORWARD, Monitor, Netfilter, Netlink,
    Route, RouteKind, Rule, RuleAction, TABLE_MAIN, VethEnd, Watch,
};
use netio::packet::{BATCH, FrameBatch, NOTE_SIZE, PacketSocket};
use netio::poll::Poller;

/// Maximum wait for an event of an interface, far beyond the delay on a busy machine.
const CARRIER: Duration = Duration::from_secs(30);

/// Runs `test` in a thread with a fresh network namespace, which vanishes with the thread. Without the required
/// privileges it skips the test and prints that.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let work = || {
        // SAFETY: unshare takes no pointers, and only moves this thread.
        let made = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
        if lab::require_that(made, "no right to make network namespaces: run it as root") {
            test();
        }
    };
    let name = std::thread::current().name().unwrap_or("main").to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(work).unwrap();
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A veth pair called a and b, both up and with a carrier, and the index of a.
fn pair(netlink: &mut Netlink) -> u32 {
    let mut monitor = Monitor::open(Watch::LINKS).unwrap();
    netlink
        .create_veth(VethEnd::new("a"), VethEnd::new("b"))
        .unwrap();
    let b = netlink.index_of("b").unwrap();
    netlink.set_up(b).unwrap();
    let a = netlink.index_of("a").unwrap();
    netlink.set_up(a).unwrap();
    // The kernel acknowledges the change first and looks at the carrier later, at most once a second.
    let poller = Poller::new().unwrap();
    poller.add(&monitor, 0).unwrap();
    while !["a", "b"]
        .iter()
        .all(|name| netlink.link(name).unwrap().running)
    {
        let ready = poller.wait(Some(CARRIER)).unwrap();
        assert!(!ready.is_empty(), "no carrier after {CARRIER:?}");
        while monitor.next().unwrap().is_some() {}
    }
    a
}

#[test]
fn links_are_made_changed_and_deleted() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let a = pair(&mut netlink);
        assert_eq!(netlink.name_of(a).unwrap(), "a");
        netlink.set_mtu(a, 1300).unwrap();
        netlink.set_txqueuelen(a, 77).unwrap();
        netlink.set_gso_max(a, 16_384, 12).unwrap();
        netlink.set_mac(a, [2, 0, 0, 0, 0, 9]).unwrap();
        let link = netlink.link("a").unwrap();
        assert_eq!((link.mtu, link.up, link.running), (1300, true, true));
        assert_eq!(link.mac, [2, 0, 0, 0, 0, 9]);

        let error = netlink
            .create_veth(VethEnd::new("a"), VethEnd::new("c"))
            .unwrap_err();
        assert!(error.is_exists(), "{error}");
        assert!(netlink.set_mtu(a, 1 << 20).is_err());

        netlink.create_bridge("br").unwrap();
        assert_eq!(netlink.link("br").unwrap().kind, "bridge");
        let bridge = netlink.index_of("br").unwrap();
        netlink.enslave(a, Some(bridge)).unwrap();
        assert_eq!(netlink.link("a").unwrap().master, Some(bridge));
        netlink.enslave(a, None).unwrap();
        assert_eq!(netlink.link("a").unwrap().master, None);

        netlink.set_down(a).unwrap();
        assert!(!netlink.link("a").unwrap().up);
        netlink.delete_link(a).unwrap();
        assert!(netlink.index_of("b").unwrap_err().is_not_found());
        let error = netlink.set_up(a).unwrap_err();
        assert!(error.is_not_found(), "{error}");
    });
}

#[test]
fn addresses_are_added_once_and_flushed() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let a = pair(&mut netlink);
        netlink.add_address(a, ip("10.9.0.1"), 24, None).unwrap();
        netlink.add_address(a, ip("10.9.0.2"), 24, None).unwrap();
        netlink.add_address_nodad(a, ip("fd09::1"), 64).unwrap();
        let error = netlink
            .add_address(a, ip("10.9.0.1"), 24, None)
            .unwrap_err();
        assert!(error.is_exists(), "{error}");
        assert!(error.to_string().contains("10.9.0.1/24 to a"), "{error}");

        let found = netlink.addresses(Some(a)).unwrap();
        assert!(
            found
                .iter()
                .any(|f| f.ip == ip("fd09::1") && f.prefix == 64 && !f.tentative)
        );
        netlink.remove_address(a, ip("10.9.0.2"), 24, None).unwrap();
        let error = netlink
            .remove_address(a, ip("10.9.0.2"), 24, None)
            .unwrap_err();
        assert!(error.is_not_found(), "{error}");
        let peer = Some(ip("10.9.9.9"));
        netlink.add_address(a, ip("10.9.0.3"), 32, peer).unwrap();
        netlink.flush_addresses(a).unwrap();
        assert_eq!(netlink.addresses(Some(a)).unwrap(), []);
    });
}

#[test]
fn routes_are_added_found_replaced_and_deleted() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let a = pair(&mut netlink);
        netlink.add_address(a, ip("10.9.0.1"), 24, None).unwrap();
        netlink.add_address_nodad(a, ip("fd09::1"), 64).unwrap();

        let way = Route::new(ip("10.77.0.0"), 16).via(ip("10.9.0.9"));
        netlink.add_route(&way).unwrap();
        assert!(netlink.add_route(&way).unwrap_err().is_exists());
        let mut narrow = way;
        narrow.mtu = Some(1280);
        narrow.src = Some(ip("10.9.0.1"));
        netlink.replace_route(&narrow).unwrap();
        let found = netlink.routes(Some(TABLE_MAIN)).unwrap();
        let found = found.iter().find(|r| r.dst == ip("10.77.0.0")).unwrap();
        assert_eq!((found.mtu, found.prefix), (Some(1280), 16));
        assert_eq!((found.via, found.dev), (Some(ip("10.9.0.9")), Some(a)));

        let lookup = netlink.route_get(ip("10.77.1.2"), 0).unwrap();
        assert_eq!((lookup.dev, lookup.via), (a, Some(ip("10.9.0.9"))));
        assert_eq!(lookup.src, Some(ip("10.9.0.1")));
        assert!(netlink.route_get(ip("192.0.2.1"), 0).is_err());

        netlink.delete_route(&way).unwrap();
        assert!(netlink.delete_route(&way).unwrap_err().is_not_found());

        let hole = Route::new(ip("10.78.0.0"), 16).kind(RouteKind::Blackhole);
        netlink.add_route(&hole.table(51_820)).unwrap();
        let found = netlink.routes(Some(51_820)).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].kind, RouteKind::Blackhole);
        netlink.delete_route(&hole.table(51_820)).unwrap();

        let six = Route::default_of(Family::V6).dev(a).table(51_820);
        netlink.add_route(&six).unwrap();
        let found = netlink.routes(Some(51_820)).unwrap();
        assert_eq!((found[0].dst, found[0].prefix), (ip("::"), 0));
        netlink.delete_route(&six).unwrap();
        assert_eq!(netlink.routes(Some(51_820)).unwrap(), []);
    });
}

#[test]
fn rules_choose_the_table_by_mark() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let a = pair(&mut netlink);
        netlink.add_address(a, ip("10.9.0.1"), 24, None).unwrap();
        netlink
            .add_route(&Route::default_of(Family::V4).dev(a).table(51_820))
            .unwrap();
        for family in [Family::V4, Family::V6] {
            let rules = [
                Rule::not_marked(family, 0xca6c, 51_820),
                Rule::main_without_default(family),
            ];
            for rule in rules {
                netlink.add_rule(&rule).unwrap();
                assert!(netlink.rules(family).unwrap().iter().any(|found| {
                    (found.fwmark, found.invert) == (rule.fwmark, rule.invert)
                        && found.table == rule.table
                        && found.suppress_prefixlength == rule.suppress_prefixlength
                }));
            }
        }
        assert_eq!(netlink.route_get(ip("192.0.2.1"), 0).unwrap().dev, a);
        assert!(netlink.route_get(ip("192.0.2.1"), 0xca6c).is_err());
        let rule = Rule::not_marked(Family::V4, 0xca6c, 51_820);
        netlink.delete_rule(&rule).unwrap();
        assert!(netlink.delete_rule(&rule).unwrap_err().is_not_found());
        assert!(netlink.route_get(ip("192.0.2.1"), 0).is_err());
    });
}

/// A host with two uplinks, whose rule sends packets of one address over the second.
#[test]
fn a_route_depends_on_the_source_where_a_rule_says_so() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let a = pair(&mut netlink);
        let b = netlink.index_of("b").unwrap();
        for (sources, to, prefix) in [
            (["10.9.0.1", "10.9.1.1", "10.9.2.1"], "192.0.2.1", 24),
            (
                ["fd00:9::1", "fd00:9:1::1", "fd00:9:2::1"],
                "2001:db8::1",
                64,
            ),
        ] {
            let [first, second, _] = sources.map(ip);
            let family = Family::of(first);
            netlink.add_address(a, first, prefix, None).unwrap();
            netlink.add_address(b, second, prefix, None).unwrap();
            for (dev, table) in [(a, TABLE_MAIN), (b, 7)] {
                let way = Route::default_of(family).dev(dev).table(table);
                netlink.add_route(&way).unwrap();
            }
            let version = if first.is_ipv4() { "-4" } else { "-6" };
            let rule = [version, "rule", "add", "from", sources[1], "lookup", "7"];
            assert!(Command::new("ip").args(rule).status().unwrap().success());
            let mut dev = |from| netlink.route_from(ip(to), from, 0).unwrap().dev;
            assert_eq!([dev(None), dev(Some(first))], [a, a]);
            assert_eq!(dev(Some(second)), b);
        }
        let foreign = Some(ip("10.9.2.1"));
        assert!(netlink.route_from(ip("192.0.2.1"), foreign, 0).is_err());
    });
}

/// Rules may name a device that does not exist, and changes to rules are reported.
#[test]
fn rules_by_device_are_read_as_they_were_made() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let watch = Watch {
            rules: true,
            ..Watch::LINKS
        };
        let mut monitor = Monitor::open(watch).unwrap();
        let iif = DeviceName::new("br-lan").unwrap();
        for (family, to) in [(Family::V4, "192.0.2.0"), (Family::V6, "2001:db8::")] {
            let rules = [
                Rule {
                    iif: Some(iif),
                    to: Some((ip(to), 24)),
                    priority: Some(900),
                    ..Rule::new(family, TABLE_MAIN)
                },
                Rule {
                    iif: Some(iif),
                    priority: Some(901),
                    ..Rule::new(family, 1077)
                },
                Rule {
                    priority: Some(902),
                    ..Rule::unreachable(family, iif)
                },
            ];
            for rule in rules {
                netlink.add_rule(&rule).unwrap();
                assert!(netlink.rules(family).unwrap().contains(&rule), "{rule}");
                assert_eq!(monitor.next().unwrap(), Some(Event::RuleChanged));
            }
            for rule in rules {
                netlink.delete_rule(&rule).unwrap();
                assert!(!netlink.rules(family).unwrap().contains(&rule), "{rule}");
                assert_eq!(monitor.next().unwrap(), Some(Event::RuleChanged));
            }
            assert_eq!(monitor.next().unwrap(), None);
        }
    });
}

/// The kernel takes a rule for a copy of another one that has all its conditions and more.
#[test]
fn a_rule_is_added_beside_one_with_more_conditions() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let iif = DeviceName::new("br-lan");
        for (family, from, to) in [
            (Family::V4, "192.0.2.1", "198.51.100.1"),
            (Family::V6, "2001:db8::1", "2001:db8:1::1"),
        ] {
            let bits = if family == Family::V4 { 32 } else { 128 };
            let (from, to) = (Some((ip(from), bits)), Some((ip(to), bits)));
            let wide = Rule {
                action: RuleAction::Unreachable,
                priority: Some(916),
                ..Rule::new(family, 0)
            };
            let rules = [
                Rule {
                    iif,
                    from,
                    to,
                    ..wide
                },
                Rule { from, to, ..wide },
                Rule { iif, from, ..wide },
                Rule { from, ..wide },
                Rule { to, ..wide },
                Rule { iif, ..wide },
                wide,
            ];
            for rule in &rules {
                netlink.add_rule(rule).unwrap();
                assert!(netlink.add_rule(rule).unwrap_err().is_exists(), "{rule}");
            }
            let found = netlink.rules(family).unwrap();
            let count = found.iter().filter(|it| it.priority == Some(916)).count();
            assert_eq!(count, rules.len());
        }
    });
}

/// Chains made with `nft` are visible, and so are changes to them.
#[test]
fn chains_are_read_as_nft_made_them() {
    in_namespace(|| {
        let nft = |script: &str| {
            let made = Command::new("nft").arg(script).output();
            lab::require_that(made.is_ok(), "no nft: install nftables");
            made.is_ok_and(|it| it.status.success())
        };
        let mut netfilter = Netfilter::open().unwrap();
        assert_eq!(netfilter.chain("mine", "guard").unwrap(), None);
        let mut changes = ChainsWatch::open("mine").unwrap();
        let mut monitor = Monitor::open(Watch::ALL).unwrap();
        monitor.follow_table("mi*").unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&monitor, 0).unwrap();
        let mut news = || {
            let wakes = !poller.wait(Some(Duration::ZERO)).unwrap().is_empty();
            (wakes, monitor.next().unwrap())
        };
        assert_eq!(news(), (false, None));
        if !nft(
            "add table inet mine; add set inet mine s { type ipv4_addr; }; add chain inet mine guard { type \
             filter hook forward priority -5; }; add rule inet mine guard iifname \"x\" accept comment \"one\"; \
             add rule inet mine guard counter drop comment \"two\"; add chain inet mine other",
        ) {
            return;
        }
        assert!(changes.changed().unwrap());
        assert_eq!(news(), (true, Some(Event::TableChanged)));
        assert_eq!(news(), (false, None));
        let chain = netfilter.chain("mine", "guard").unwrap().unwrap();
        assert_eq!(chain.hook, Some((HOOK_FORWARD, -5)));
        let rules: Vec<_> = chain
            .rules
            .iter()
            .map(|it| (it.comment.as_str(), it.packets))
            .collect();
        assert_eq!(rules, [("one", None), ("two", Some(0))]);
        let other = netfilter.chain("mine", "other").unwrap().unwrap();
        assert_eq!((other.hook, other.rules), (None, Vec::new()));
        assert!(nft(
            "add element inet mine s { 192.0.2.1 }; add table inet theirs"
        ));
        assert!(!changes.changed().unwrap());
        assert!(nft("delete table inet mine"));
        assert!(changes.changed().unwrap());
        assert_eq!(netfilter.chain("mine", "guard").unwrap(), None);
    });
}

#[test]
fn monitor_tells_of_changes_and_of_the_end() {
    in_namespace(|| {
        let mut monitor = Monitor::open(Watch::ALL).unwrap();
        assert_eq!(monitor.next().unwrap(), None);
        let mut netlink = Netlink::open().unwrap();
        let a = pair(&mut netlink);
        netlink.set_mtu(a, 1400).unwrap();
        netlink.add_address(a, ip("10.9.0.1"), 24, None).unwrap();
        netlink.delete_link(a).unwrap();
        // The kernel has acknowledged all changes above, so their events are already in the socket.
        let mut events = Vec::new();
        while let Some(event) = monitor.next().unwrap() {
            events.push(event);
        }
        let changed = Event::LinkChanged {
            index: a,
            name: "a".to_owned(),
            up: true,
            running: true,
            mtu: 1400,
        };
        let deleted = Event::LinkDeleted {
            index: a,
            name: "a".to_owned(),
        };
        for wanted in [changed, Event::AddressChanged, Event::RouteChanged, deleted] {
            assert!(events.contains(&wanted), "no {wanted:?} in {events:?}");
        }
    });
}

#[test]
fn offloads_are_switched_by_name() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        pair(&mut netlink);
        let name = "tx-udp-segmentation";
        assert!(ethtool::feature("a", name).unwrap());
        ethtool::set_feature("a", name, false).unwrap();
        assert!(!ethtool::feature("a", name).unwrap());
        ethtool::set_feature("a", name, true).unwrap();
        assert!(ethtool::feature("a", name).unwrap());
        assert!(ethtool::set_feature("a", "no-such-feature", true).is_err());
        assert!(ethtool::set_feature("none", name, true).is_err());
        ethtool::set_offloads("a", false).unwrap();
        assert!(!ethtool::feature("a", "tx-tcp-segmentation").unwrap());
    });
}

#[test]
fn frames_cross_between_packet_sockets() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        pair(&mut netlink);
        let a = PacketSocket::open("a").unwrap();
        let b = PacketSocket::open("b").unwrap();
        // An EtherType reserved for experiments, so that no other program sends it.
        let mut frame = vec![0xffu8; 12];
        frame.extend_from_slice(&[0x88, 0xb5]);
        frame.resize(100, 7);
        let mut batch = FrameBatch::new(1500);
        for count in [1, BATCH, BATCH + 5] {
            let frames = vec![([0; NOTE_SIZE], frame.as_slice()); count];
            assert_eq!(a.send_batch(&frames).unwrap(), count.min(BATCH));
            let mut seen = 0;
            // The limit counts rounds instead of time: a veth delivers before the sender's next system call, or at the
            // latest when the softirq daemon runs.
            for _ in 0..1_000_000 {
                b.receive(&mut batch).unwrap();
                seen += batch.frames().filter(|f| f.frame == frame).count();
                if seen == count.min(BATCH) {
                    break;
                }
                std::thread::yield_now();
            }
            assert_eq!(seen, count.min(BATCH));
        }
        // A frame longer than the buffer is counted, but not returned.
        let mut small = FrameBatch::new(60);
        a.send(&frame).unwrap();
        while b.receive(&mut small).unwrap() == 0 || small.truncated() == 0 {
            assert!(small.frames().all(|f| f.frame.len() <= 60));
        }
    });
}

/// Output of `nft` for the table, if `nft` is installed.
fn nft(words: &[&str]) -> Option<String> {
    let output = Command::new("nft").args(words).output();
    let there = output.is_ok();
    lab::require_that(there, "no nft to read the rules back").then(|| {
        let output = output.unwrap();
        String::from_utf8(output.stdout).unwrap()
    })
}

#[test]
fn masquerading_is_made_whole_replaced_and_removed() {
    in_namespace(|| {
        let wanted = Masquerade {
            table: "millrace_home",
            interface: "home",
            sources: &[(ip("10.64.1.1"), 24), (ip("fd00:9::1"), 64)],
            except: &[(ip("192.168.1.0"), 24), (ip("fd00:1::"), 60)],
        };
        assert!(
            masquerade::unset("millrace_home")
                .unwrap_err()
                .is_not_found()
        );
        masquerade::set(&wanted).unwrap();
        masquerade::set(&wanted).unwrap();
        let Some(text) = nft(&["list", "ruleset"]) else {
            return;
        };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "table inet millrace_home {",
                "chain postrouting {",
                "type nat hook postrouting priority srcnat; policy accept;",
                "ip daddr 192.168.1.0/24 return",
                "ip6 daddr fd00:1::/60 return",
                "ip saddr 10.64.1.0/24 oifname != \"home\" masquerade",
                "ip6 saddr fd00:9::/64 oifname != \"home\" masquerade",
                "}",
                "}",
            ]
        );
        let sources: Vec<(IpAddr, u8)> = (0..2000_u16)
            .map(|number| (ip(&format!("10.{}.{}.0", number >> 8, number & 255)), 24))
            .collect();
        let many = Masquerade {
            sources: &sources,
            ..wanted
        };
        masquerade::set(&many).unwrap();
        let text = nft(&["list", "ruleset"]).unwrap();
        assert_eq!(text.matches("masquerade").count(), 2000);
        masquerade::unset("millrace_home").unwrap();
        assert_eq!(nft(&["list", "ruleset"]).unwrap(), "");
    });
}

/// Loads a ruleset, if `nft` is installed.
fn load(ruleset: &str) -> bool {
    let text = format!("flush ruleset\n{ruleset}");
    let status = Command::new("nft").arg(text).status();
    let there = lab::require_that(status.is_ok(), "no nft to make rules");
    assert!(!there || status.unwrap().success(), "{ruleset}");
    there
}

/// Whether a rule of this ruleset may apply to a packet from the LAN; `None` without `nft`.
fn is_translated(ruleset: &str) -> Option<bool> {
    if !load(ruleset) {
        return None;
    }
    let packet = Forwarded {
        from: (7, "br-lan"),
        to: (Netlink::open().unwrap().index_of("a").unwrap(), "wg0"),
        source: "192.168.1.1".parse().unwrap(),
    };
    let mut netfilter = Netfilter::open().unwrap();
    let mut found = netfilter.source_nat().unwrap();
    Some(netfilter.translates(&mut found, &packet).unwrap())
}

#[test]
fn rules_that_translate_a_packet_are_told_from_others() {
    in_namespace(|| {
        pair(&mut Netlink::open().unwrap());
        for (rule, applies) in [
            ("masquerade", true),
            ("counter masquerade", true),
            ("oifname wg0 masquerade", true),
            ("oifname \"wg*\" masquerade", true),
            ("oifname \"wg1*\" masquerade", false),
            ("oifname != wg0 masquerade", false),
            ("oifname eth0 masquerade", false),
            ("oif a masquerade", true),
            ("oif b masquerade", false),
            ("oifname { eth0, wg0 } masquerade", true),
            ("oifname { eth0, eth1 } masquerade", false),
            ("oifname != { eth0, wg0 } masquerade", false),
            ("oifname @outer masquerade", true),
            ("oifname != @outer masquerade", false),
            ("iifname br-lan oifname wg0 masquerade", true),
            ("iifname br-guest oifname wg0 masquerade", false),
            ("ip saddr 192.168.0.0/20 masquerade", true),
            ("ip saddr 192.168.1.0/24 oifname wg0 masquerade", true),
            (
                "ip saddr 172.17.0.0/16 oifname != docker0 masquerade",
                false,
            ),
            ("ip saddr { 10.0.0.0/8, 192.168.0.0/16 } masquerade", true),
            ("iifname . oifname { eth0 . eth1 } masquerade", true),
            ("ip daddr 9.9.9.9 masquerade", true),
            ("oifname wg0 snat to 10.2.0.2", true),
            ("oifname wg0 accept", false),
        ] {
            let ruleset = format!(
                "table ip x {{\nset outer {{\ntype ifname\nelements = {{ eth0, wg0 }}\n}}\n\
                 chain post {{\ntype nat hook postrouting priority 100\n{rule}\n}}\n}}"
            );
            let Some(found) = is_translated(&ruleset) else {
                return;
            };
            assert_eq!(found, applies, "{rule}");
        }
        let hook = "type nat hook postrouting priority 100";
        let zones = |jump: &str| {
            format!(
                "table inet fw4 {{\nchain srcnat_wan {{\nmeta nfproto ipv4 masquerade\n}}\n\
                 chain between {{\njump srcnat_wan\n}}\nchain srcnat {{\n{hook}\n{jump}\n}}\n}}"
            )
        };
        for (ruleset, applies) in [
            (
                format!(
                    "table inet x {{\nchain c {{\nmeta nfproto ipv4 masquerade\n}}\nchain p {{\n{hook}\njump c\n}}\n}}"
                ),
                true,
            ),
            // OpenWrt's fw4, and firewalld.
            (zones("oifname \"wan\" jump srcnat_wan"), false),
            (zones("oifname { \"wan\", \"wg0\" } jump srcnat_wan"), true),
            (zones("oifname \"wan\" goto srcnat_wan\noifname \"wg*\" goto srcnat_wan"), true),
            (zones("oifname vmap { \"wan\" : jump srcnat_wan }"), false),
            (zones("oifname vmap { \"wg0\" : jump srcnat_wan }"), true),
            (zones("oifname \"wan\" jump between"), false),
            (zones("jump between"), true),
            // No chain jumps there.
            (zones("accept"), false),
            (
                format!("table inet x {{\nchain p {{\n{hook}\nmeta nfproto ipv6 masquerade\n}}\n}}"),
                false,
            ),
            (
                format!("table ip6 x {{\nchain p {{\n{hook}\nmasquerade\n}}\n}}"),
                false,
            ),
            (
                "table ip x {\nchain p {\ntype nat hook prerouting priority -100\ndnat to 192.168.1.2\n}\n}"
                    .to_owned(),
                false,
            ),
        ] {
            assert_eq!(is_translated(&ruleset), Some(applies), "{ruleset}");
        }
    });
}
