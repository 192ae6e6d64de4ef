//! Switches each offload off by itself, all of them together, and tries all numbers of workers, over lines that lose,
//! reorder and delay. The test compares the content byte by byte.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use lab::acceptance::{
    A4, A6, B4, B6, Net, Setup, Tunnel, WG, ip, pings, ready, settings, status_of, tcp_both_ways,
    tcp_both_ways_while, udp_both_ways, until,
};
use lab::{Emulator, Impairment, LinkOptions, Offloads};

const RUNGS: [&str; 8] = [
    "tun-gso",
    "tun-uso",
    "tun-gro",
    "udp-gso",
    "udp-gro",
    "mmsg",
    "aqm",
    "coalescing",
];

/// Sends everything both ways with these settings at both ends, and returns the states of the offloads.
fn carries(text: &str, link: LinkOptions) -> serde_json::Value {
    let net = Net::with(link);
    let setup = Setup {
        options_a: settings(text),
        options_b: settings(text),
        ..Setup::default()
    };
    let _tunnel = Tunnel::new(&net, &setup);
    pings(&net.a, B4, 5);
    pings(&net.b, A6, 5);
    tcp_both_ways(&net.a, &net.b, B4, 6_000_000);
    tcp_both_ways(&net.b, &net.a, A6, 6_000_000);
    udp_both_ways(&net.a, &net.b, B6, 400, 1372);
    udp_both_ways(&net.b, &net.a, A4, 400, 4000);
    status_of(&net.a, WG)
}

fn without(rung: &str) {
    if !ready() {
        return;
    }
    let text = format!("dataplane.{rung}=off");
    let status = carries(&text, LinkOptions::numbered(1));
    let rungs = &status["dataplane"]["rungs"];
    assert_eq!(rungs[rung], "off (setting)", "{rungs}");
    for other in RUNGS {
        assert!(rungs[other].is_string(), "{other}: {rungs}");
        if other != rung {
            assert_ne!(rungs[other], "off (setting)", "{other}: {rungs}");
        }
    }
}

#[test]
fn without_tun_gso() {
    without("tun-gso");
}

#[test]
fn without_tun_uso() {
    without("tun-uso");
}

#[test]
fn without_tun_gro() {
    without("tun-gro");
}

#[test]
fn without_udp_gso() {
    without("udp-gso");
}

#[test]
fn without_udp_gro() {
    without("udp-gro");
}

#[test]
fn without_mmsg() {
    without("mmsg");
}

#[test]
fn without_aqm() {
    without("aqm");
}

#[test]
fn without_coalescing() {
    without("coalescing");
}

#[test]
fn without_any_rung() {
    if !ready() {
        return;
    }
    let text = RUNGS.map(|rung| format!("dataplane.{rung}=off")).join(",");
    let status = carries(&text, LinkOptions::numbered(1));
    for rung in RUNGS {
        assert_eq!(status["dataplane"]["rungs"][rung], "off (setting)");
    }
    assert_eq!(status["dataplane"]["outbound"]["super_packets"], 0);
    assert_eq!(status["dataplane"]["inbound"]["super_packets"], 0);
}

#[test]
fn with_everything_and_super_packets() {
    if !ready() {
        return;
    }
    let status = carries("dataplane.workers=2", LinkOptions::numbered(1));
    let plane = &status["dataplane"];
    for (rung, way) in [("tun-gso", "outbound"), ("tun-gro", "inbound")] {
        let on = plane["rungs"][rung] == "on";
        if lab::require_that(on, &format!("this kernel refuses {rung}")) {
            let seen = plane[way]["super_packets"].as_u64().unwrap();
            assert!(seen > 0, "{rung}: {plane}");
        }
    }
}

#[test]
fn with_one_worker() {
    if !ready() {
        return;
    }
    let status = carries("dataplane.workers=1", LinkOptions::numbered(1));
    assert_eq!(status["workers"], 1);
    let text = "dataplane.workers=1,dataplane.parallel=on";
    assert_eq!(carries(text, LinkOptions::numbered(1))["workers"], 1);
}

#[test]
fn with_four_workers_that_share() {
    if !ready() {
        return;
    }
    let text = "dataplane.workers=4,dataplane.parallel=on";
    let status = carries(text, LinkOptions::numbered(1));
    assert_eq!(status["workers"], 4);
    let all_off = RUNGS.map(|rung| format!(",dataplane.{rung}=off")).concat();
    carries(&format!("{text}{all_off}"), LinkOptions::numbered(1));
}

/// Network devices that cannot segment, and devices without any offload.
#[test]
fn over_ports_without_offloads() {
    if !ready() {
        return;
    }
    for offloads in [Offloads::NoSegmentation, Offloads::Off] {
        carries(
            "dataplane.workers=2",
            LinkOptions::numbered(1).offloads(offloads),
        );
    }
}

/// Small super-packets, for drivers that damage long ones.
#[test]
fn with_few_segments_in_a_super_packet() {
    if !ready() {
        return;
    }
    carries("dataplane.gso-max-segs=3", LinkOptions::numbered(1));
}

/// Runs a tunnel between two hosts over an emulated line.
fn emulated(lines: [Impairment; 2], work: impl FnOnce(&Net, &Tunnel<'_>, &Emulator)) {
    let (a, b) = Net::hosts();
    let link = LinkOptions::numbered(1);
    let line = Emulator::new(&a, "eth0", &b, "eth0", &link, lines, 7).unwrap();
    let net = Net { a, b, link };
    let tunnel = Tunnel::new(&net, &Setup::default());
    work(&net, &tunnel, &line);
}

#[test]
fn content_survives_a_poor_line() {
    if !ready() {
        return;
    }
    let poor = Impairment {
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(2),
        loss: 0.01,
        duplicate: 0.01,
        reorder: 0.05,
        ..Impairment::NONE
    };
    emulated([poor; 2], |net, _, line| {
        tcp_both_ways(&net.a, &net.b, B4, 2_000_000);
        tcp_both_ways(&net.b, &net.a, A6, 2_000_000);
        let counters = line.counters(lab::Side::A);
        assert!(counters.lost > 0 && counters.duplicated > 0 && counters.reordered > 0);
        // Each packet that arrived twice was accepted once.
        assert!(lab::acceptance::drops(&net.b, "duplicate") > 0);
        assert_eq!(lab::acceptance::drops(&net.b, "not_authentic"), 0);
    });
}

#[test]
fn flow_survives_a_cut() {
    if !ready() {
        return;
    }
    // Slow enough that the cut falls into the middle of the transfer.
    let line = Impairment {
        delay: Duration::from_millis(2),
        rate: Some(20_000_000),
        ..Impairment::NONE
    };
    emulated([line; 2], |net, tunnel, emulator| {
        pings(&net.a, B4, 1);
        let handshake = tunnel.at_a().latest_handshake;
        tcp_both_ways_while(&net.a, &net.b, ip(B4), 3_000_000, |seen| {
            until("some of it is there", || {
                seen.load(Ordering::Relaxed) > 500_000
            });
            emulator.cut(true);
            let lost = emulator.counters(lab::Side::A).cut;
            until("the cut is felt", || {
                emulator.counters(lab::Side::A).cut > lost + 3
            });
            emulator.cut(false);
            let before = seen.load(Ordering::Relaxed);
            until("it goes on", || seen.load(Ordering::Relaxed) > before);
        });
        assert!(tunnel.at_a().latest_handshake >= handshake);
    });
}

/// The uplink goes down, which removes its addresses' routes, and comes up again.
#[test]
fn flow_survives_a_lost_uplink() {
    if !ready() {
        return;
    }
    let line = Impairment {
        rate: Some(20_000_000),
        ..Impairment::NONE
    };
    emulated([line; 2], |net, tunnel, _| {
        tcp_both_ways_while(&net.a, &net.b, ip(B4), 3_000_000, |seen| {
            until("some of it is there", || {
                seen.load(Ordering::Relaxed) > 500_000
            });
            let failed = lab::acceptance::drops(&net.a, "send_failed");
            net.a.set_up("eth0", false).unwrap();
            until("sending fails", || {
                lab::acceptance::drops(&net.a, "send_failed") > failed
            });
            net.a.set_up("eth0", true).unwrap();
            let before = seen.load(Ordering::Relaxed);
            until("it goes on", || seen.load(Ordering::Relaxed) > before);
        });
        assert!(tunnel.at_b().endpoint.is_some());
    });
}
