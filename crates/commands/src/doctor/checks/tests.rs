//! Tests each check with a box that has the fault and with one that does not.

use super::*;
use crate::doctor::facts::{Listening, NameServer, Tunnel, Up};
#[cfg(feature = "amnezia")]
use crate::doctor::gather::amneziawg_of;
#[cfg(feature = "server")]
use crate::doctor::gather::ending_clients;
use crate::doctor::gather::{listeners, name_servers};
use netio::netlink::Address;
#[cfg(feature = "server")]
use service::status::{PeerStatus, Status};
use std::time::SystemTime;

/// A box without faults: one uplink, and one tunnel for all traffic.
fn sound() -> Facts {
    let link = |index, name: &str, mtu| Link {
        index,
        name: name.to_owned(),
        mtu,
        up: true,
        running: true,
        ..Link::default()
    };
    let address = |index, ip: &str, prefix| Address {
        index,
        ip: ip.parse().unwrap(),
        prefix,
        tentative: false,
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000);
    Facts {
        tun: TunDevice::Works,
        now,
        earliest: now - CLOCK_SLACK,
        floor: SystemTime::UNIX_EPOCH,
        links: vec![
            link(1, "eth0", 1500),
            link(2, "br-lan", 1500),
            link(3, "office", 1420),
        ],
        addresses: vec![
            address(1, "203.0.113.7", 24),
            address(2, "192.168.1.1", 24),
            address(3, "10.8.0.2", 24),
        ],
        rules: vec![Rule::new(Family::V4, 254)],
        lines: vec!["eth0".to_owned()],
        way_out: Some("office".to_owned()),
        name_servers: vec![NameServer {
            address: "10.8.0.1".parse().unwrap(),
            device: Some("office".to_owned()),
            answers: true,
        }],
        tunnels: vec![Tunnel {
            device: "office".to_owned(),
            protocol: "wireguard".to_owned(),
            fwmark: 51821,
            mtu: 1420,
            mtu_reason: Some("eth0 1500 less 80".to_owned()),
            ways: vec![("2001:db8::1".parse().unwrap(), "eth0".to_owned(), 1500)],
            has_uplinks: false,
            ports: vec![1194],
        }],
        shared: Vec::new(),
        open_files: Vec::new(),
        #[cfg(feature = "server")]
        expiring: Vec::new(),
        #[cfg(feature = "amnezia")]
        amneziawg: Vec::new(),
        steering: Vec::new(),
        listening: Vec::new(),
        forwards: true,
        #[cfg(feature = "policy")]
        unmasqueraded: Vec::new(),
        rp_filters: vec![("eth0".to_owned(), 1)],
        is_router: true,
        guarded: true,
        nft: true,
        nf_tables: true,
        offload: (false, false),
        #[cfg(feature = "pptp")]
        rejects_gre: true,
        available: Some(64 << 10),
        starter: Starter::Systemd(vec!["office".to_owned()]),
        up: vec![Up {
            name: "office".to_owned(),
            by_netifd: false,
        }],
        left: Vec::new(),
    }
}

/// Checks that this change causes exactly one finding, of this check and with these words.
#[track_caller]
fn finds(check: &str, words: &str, change: impl FnOnce(&mut Facts)) {
    let mut facts = sound();
    change(&mut facts);
    let found = all(&facts);
    let [one] = &found[..] else {
        panic!("{check}: {found:?}");
    };
    assert_eq!(one.check, check);
    assert!(one.what.contains(words), "{one:?}");
    assert!(!one.place.is_empty() && !one.remedy.is_empty(), "{one:?}");
}

#[test]
fn nothing_is_said_of_a_box_that_is_sound() {
    assert_eq!(all(&sound()), []);
}

#[test]
fn the_device_the_clock_and_the_route() {
    finds("tun", "device is missing", |it| it.tun = TunDevice::Absent);
    finds("tun", "not permitted", |it| {
        it.tun = TunDevice::Refused("Operation not permitted".to_owned());
    });
    finds("clock", "1970-", |it| it.now = SystemTime::UNIX_EPOCH);
    finds("route", "no route", |it| it.way_out = None);
    finds("route", "uplink eth0 has no carrier", |it| {
        it.links[0].running = false;
    });
    // Another uplink could carry the tunnel's packets, if the tunnel does not use both already.
    for has_uplinks in [false, true] {
        let mut facts = sound();
        facts.links[0].running = false;
        facts.lines.push("br-lan".to_owned());
        facts.tunnels[0].has_uplinks = has_uplinks;
        let found = all(&facts);
        let remedy = &found.iter().find(|it| it.check == "route").unwrap().remedy;
        assert_eq!(
            remedy.contains("br-lan is an uplink, too"),
            !has_uplinks,
            "{remedy}"
        );
    }
    // The main table's default route went with the carrier; the server's own route stayed.
    finds("route", "uplink eth0 has no carrier", |it| {
        it.links[0].running = false;
        it.lines.clear();
    });
    finds("route", "no uplink has a route", |it| {
        it.lines.clear();
        it.tunnels[0].ways.clear();
    });
}

#[cfg(feature = "policy")]
#[test]
fn a_lan_whose_packets_nobody_masquerades() {
    finds(
        "masquerade",
        "devices of br-lan get no answers through office",
        |it| {
            it.unmasqueraded.push("br-lan".to_owned());
        },
    );
}

#[cfg(feature = "amnezia")]
#[test]
fn values_of_amneziawg_that_give_a_tunnel_away() {
    let text = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\nH1 = 7\nI1 = <b 0x01>\n";
    let import = config::wgquick::parse(text, "", config::permissions::Permissions::NONE);
    let (tunnel, _) = import.into_tunnel().unwrap();
    finds("amneziawg", "a value of H1-H4", |it| {
        it.amneziawg = amneziawg_of("office.conf", &tunnel);
        let constant = it.amneziawg.pop().unwrap();
        assert_eq!(constant.remedy, "add <r N>");
        assert_eq!(constant.place, "office.conf");
    });
}

/// The tests of `service::openvpn::expiry` check the wording.
#[cfg(feature = "server")]
#[test]
fn what_ends_soon() {
    finds("expiry", "the revocation list", |it| {
        it.expiring.push(Finding {
            check: "",
            what: "the revocation list ends".to_owned(),
            place: "office.conf".to_owned(),
            remedy: "renew it".to_owned(),
        });
    });
}

#[test]
fn name_servers_that_are_missing_silent_or_past_the_tunnel() {
    finds("dns", "no name server", |it| it.name_servers.clear());
    finds("dns", "reached through office", |it| {
        it.name_servers[0].answers = false;
    });
    let by_line = |it: &mut Facts| it.name_servers[0].device = Some("eth0".to_owned());
    finds("dns-leak", "outside office", by_line);
    // No finding if the uplink carries all traffic, nor for a resolver on this host.
    let mut facts = sound();
    by_line(&mut facts);
    facts.way_out = Some("eth0".to_owned());
    assert_eq!(all(&facts), []);
    facts.way_out = Some("office".to_owned());
    facts.name_servers[0].address = "127.0.0.53".parse().unwrap();
    assert_eq!(all(&facts), []);
    let text = "# comment\nnameserver 192.0.2.1\nsearch x\nnameserver fe80::1%eth0\n";
    let found: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["192.0.2.1", "fe80::1"]);
}

#[test]
fn a_tunnel_that_carries_itself_is_not_blamed_on_its_mtu() {
    finds("loop", "into office itself", |it| {
        "office".clone_into(&mut it.tunnels[0].ways[0].1);
        it.tunnels[0].ways[0].2 = 1420;
    });
}

#[test]
fn packets_that_do_not_fit_the_line() {
    finds("mtu", "do not fit", |it| it.tunnels[0].ways[0].2 = 1492);
    // The finding names the source of the MTU.
    let mut facts = sound();
    (facts.tunnels[0].ways[0].2, facts.tunnels[0].mtu_reason) =
        (1492, Some("as configured".to_owned()));
    assert_eq!(all(&facts)[0].place, "MTU of office (as configured)");
    // Over IPv4, 20 more bytes fit.
    let mut facts = sound();
    facts.tunnels[0].ways[0] = ("192.0.2.9".parse().unwrap(), "eth0".to_owned(), 1492);
    assert_eq!(all(&facts), []);
}

#[test]
fn offloads_rules_and_the_packet_filter() {
    finds("offload", "flow_offloading)", |it| {
        it.offload = (true, false);
    });
    finds("offload", "flow_offloading_hw", |it| {
        it.offload = (true, true);
    });
    let rule = |priority, mark, mask, table| {
        move |it: &mut Facts| {
            let mut rule = Rule::new(Family::V4, table);
            (rule.priority, rule.fwmark, rule.mask) = (Some(priority), mark, mask);
            it.rules.push(rule);
        }
    };
    finds("rules", "mwan3", rule(2001, Some(0x100), Some(0x3f00), 1));
    finds("rules", "Tailscale", rule(5270, None, None, 52));
    finds("rules", "wg-quick", rule(32764, Some(51820), None, 51820));
    finds(
        "rules",
        "pbr",
        rule(29998, Some(0x10000), Some(0x00ff_0000), 256),
    );
    finds("rules", "another program", rule(950, None, None, 7));
    // Rules of Millrace's own tunnels; the second tunnel has the next mark.
    for mark in [51821, 51822] {
        let mut facts = sound();
        facts.tunnels.push(Tunnel {
            device: "second".to_owned(),
            fwmark: 51822,
            ..Tunnel::default()
        });
        rule(32764, Some(mark), None, mark)(&mut facts);
        // A tunnel that starts while the user has a rule at 1000 puts its own rules before it.
        rule(999, Some(mark), None, mark)(&mut facts);
        let mut main = Rule::new(Family::V4, 254);
        (main.priority, main.suppress_prefixlength) = (Some(998), Some(0));
        facts.rules.push(main);
        assert_eq!(all(&facts), [], "{mark}");
    }
    // The rules of a killed tunnel are reported as remains only, and wg-quick's beside it as rules.
    for (mark, checks) in [(51830, &["left"][..]), (51831, &["rules", "left"])] {
        let mut facts = sound();
        facts.left = vec![("office".to_owned(), vec![51830])];
        rule(32764, Some(mark), None, mark)(&mut facts);
        rule(950, Some(51830), None, 51830)(&mut facts);
        let found: Vec<&str> = all(&facts).iter().map(|it| it.check).collect();
        assert_eq!(found, checks, "{mark}");
    }
    finds("kernel", "nf_tables", |it| it.nf_tables = false);
    finds("kernel", "program nft", |it| it.nft = false);
    // These faults do not matter if no device is guarded and no tunnel carries all traffic.
    let mut facts = sound();
    (facts.guarded, facts.offload, facts.nft) = (false, (true, true), false);
    facts.way_out = Some("eth0".to_owned());
    rule(5270, None, None, 52)(&mut facts);
    assert_eq!(all(&facts), []);
}

#[test]
fn ports_that_others_reach() {
    let listens = |at: &str| {
        let address = at.parse().unwrap();
        move |it: &mut Facts| it.listening.push(Listening { address, pid: 7 })
    };
    finds("port", "0.0.0.0:7505", listens("0.0.0.0:7505"));
    finds("port", "203.0.113.7:7505", listens("203.0.113.7:7505"));
    for fine in [
        "127.0.0.1:7505",
        "192.168.1.1:8080",
        "0.0.0.0:1194",
        "[::1]:7505",
    ] {
        let mut facts = sound();
        listens(fine)(&mut facts);
        assert_eq!(all(&facts), [], "{fine}");
    }
    let table = "  sl  local_address rem_address   st tx rx tr tm retrnsmt uid timeout inode\n   \
        0: 0100007F:1D51 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n   \
        1: 0100007F:1D52 00000000:0000 01 0:0 0:0 0 0 0 4712 1\n";
    let found = listeners(table);
    #[cfg(target_endian = "little")]
    assert_eq!(found, [("127.0.0.1:7505".parse().unwrap(), 4711)]);
    assert_eq!(found.len(), 1);
}

#[cfg(feature = "pptp")]
#[test]
fn a_firewall_that_rejects_the_packets_of_pptp() {
    finds("gre", "the packets of office", |it| {
        it.tunnels[0].protocol = "pptp".to_owned();
    });
}

#[test]
fn forwarding_filters_and_addresses() {
    finds("forwarding", "IP forwarding is off", |it| {
        it.forwards = false;
    });
    finds("rp-filter", "lte0, one of several uplinks", |it| {
        it.lines.push("lte0".to_owned());
        it.rp_filters = vec![("eth0".to_owned(), 2), ("lte0".to_owned(), 1)];
    });
    finds("addresses", "the same network", |it| {
        it.addresses[2].ip = "192.168.1.77".parse().unwrap();
    });
    finds("addresses", "same address", |it| {
        it.addresses[2].ip = "192.168.1.1".parse().unwrap();
    });
    // Two tunnels of one account have the same address: the LAN is not the remedy.
    finds(
        "account",
        "away and office are up with the same PrivateKey",
        |it| {
            it.tunnels.push(Tunnel {
                device: "mr-away".to_owned(),
                ..Tunnel::default()
            });
            it.links.push(Link {
                index: 4,
                name: "mr-away".to_owned(),
                ..Link::default()
            });
            let address = Address {
                index: 4,
                ..it.addresses[2]
            };
            it.addresses.push(address);
            it.shared.push(Shared {
                what: "PrivateKey",
                names: ["away", "office"].map(str::to_owned).to_vec(),
                devices: ["mr-away", "office"].map(str::to_owned).to_vec(),
            });
        },
    );
    // A single address within the LAN's network, as servers assign it.
    let mut facts = sound();
    facts.addresses[2].ip = "192.168.1.77".parse().unwrap();
    facts.addresses[2].prefix = 32;
    assert_eq!(all(&facts), []);
}

#[cfg(feature = "server")]
#[test]
fn a_client_whose_certificate_ends_soon_is_named_at_its_server() {
    let now = sound().now;
    let unix = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let day = 86_400;
    for (role, end, told) in [
        (
            "server",
            Some(unix + 29 * day),
            Some("in 29 days; then this server refuses it"),
        ),
        (
            "server",
            Some(unix - day),
            Some("ended on 2030-03-16: this server refuses it"),
        ),
        ("server", Some(unix + 31 * day), None),
        ("server", None, None),
        ("client", Some(unix), None),
    ] {
        let peer = PeerStatus {
            name: Some("store-7".to_owned()),
            expires_unix: end,
            ..PeerStatus::default()
        };
        let status = Status {
            role: Some(role.to_owned()),
            peers: vec![peer],
            ..Status::default()
        };
        let found = ending_clients(&status, now);
        assert_eq!(found.len(), usize::from(told.is_some()), "{found:?}");
        for (found, told) in found.iter().zip(told) {
            let subject = "the certificate of client store-7 ";
            assert!(
                found.what.starts_with(subject) && found.what.ends_with(told),
                "{found:?}"
            );
        }
    }
}

#[test]
fn files_memory_and_what_is_started() {
    finds("files", "secret", |it| {
        it.open_files
            .push(("/x".into(), "/x: holds a secret".to_owned()));
    });
    finds("memory", "5 MB", |it| it.available = Some(5 << 10));
    finds("left", "settings of home", |it| {
        it.left = vec![("home".to_owned(), Vec::new())];
    });
    finds("start", "after a reboot", |it| {
        it.starter = Starter::Systemd(Vec::new());
    });
    finds("start", "after a reboot", |it| it.starter = Starter::Procd);
    let mut facts = sound();
    facts.starter = Starter::Procd;
    facts.up[0].by_netifd = true;
    assert_eq!(all(&facts), []);
}

#[test]
fn networks_overlap_where_one_holds_the_other() {
    let net = |text: &str| {
        let (ip, prefix) = text.split_once('/').unwrap();
        (ip.parse().unwrap(), prefix.parse().unwrap())
    };
    for (a, b, expected) in [
        ("10.0.0.1/8", "10.9.0.1/16", true),
        ("10.8.0.1/24", "10.8.1.1/24", false),
        ("10.8.0.1/24", "fd00::1/64", false),
        ("fd00::1/64", "fd00::2/64", true),
        ("0.0.0.0/0", "10.8.1.1/24", true),
        ("10.8.0.1/24", "10.8.0.2/32", false),
    ] {
        assert_eq!(overlap(net(a), net(b)), expected, "{a} {b}");
        assert_eq!(overlap(net(b), net(a)), expected, "{b} {a}");
    }
}

#[test]
fn a_clock_that_once_ran_ahead_is_told_apart_from_one_that_is_not_set() {
    let mut facts = sound();
    let year = Duration::from_secs(365 * 24 * 3600);
    facts.now = host::machine::built() + year;
    facts.earliest = host::machine::built();
    facts.floor = facts.now + 30 * year;
    let found = all(&facts);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].what.contains("it was fast then") && found[0].place.ends_with("/clock"));
    // The clock of a box without a battery.
    facts.now = SystemTime::UNIX_EPOCH;
    assert!(all(&facts)[0].what.contains("not yet valid"));
}

#[cfg(feature = "kernel")]
#[test]
fn the_kernels_side_of_a_killed_tunnel() {
    let hidden = |index: u32| Link {
        index: 100 + index,
        name: format!("mrk{index}"),
        ..Link::default()
    };
    for running in [true, false] {
        let mut facts = sound();
        let device = facts.tunnels[0].device.clone();
        facts.links.push(Link {
            index: 77,
            name: if running { device } else { "tun9".to_owned() },
            ..Link::default()
        });
        facts.links.push(hidden(77));
        let found = all(&facts);
        let left = found.iter().filter(|it| it.what.starts_with("mrk77 is"));
        assert_eq!(left.count(), usize::from(!running), "{found:?}");
    }
    finds("left", "mrk78 is", |it| it.links.push(hidden(78)));
}
