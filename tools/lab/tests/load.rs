//! Load generators over a link without a tunnel.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use lab::load::{
    Direction, HttpLoad, HttpServer, HttpWatch, Iperf, IperfServer, LossFree, Transport, UDP_QUIET,
    UdpLoad, highest_loss_free, udp_load,
};
use lab::{Emulator, Host, Impairment, Link, LinkOptions, may_enter, tools};

fn pair() -> Option<(Host, Host, LinkOptions)> {
    if !may_enter() {
        return None;
    }
    let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
    let link = LinkOptions::numbered(1);
    Link::new(&a, "eth0", &b, "eth0", &link).unwrap();
    Some((a, b, link))
}

#[test]
fn iperf_reports_every_kind_of_flow() {
    let Some((a, b, link)) = pair() else { return };
    if lab::require(tools::find("iperf3")).is_none() {
        return;
    }
    let server = IperfServer::start(&b, link.b4(), 5201).unwrap();
    let one = Iperf {
        seconds: 1,
        ..Iperf::default()
    };
    let report = one.run(&a, &server).unwrap();
    assert!(report.flow.bytes > 0 && report.back.is_none(), "{report:?}");
    let both = Iperf {
        direction: Direction::Both,
        streams: 2,
        ..one
    };
    let report = both.run(&a, &server).unwrap();
    assert!(report.flow.bytes > 0 && report.back.unwrap().bytes > 0);
    for direction in [Direction::Forward, Direction::Reverse] {
        let udp = Iperf {
            transport: Transport::Udp {
                rate: 10_000_000,
                size: 1300,
            },
            direction,
            ..one
        };
        let report = udp.run(&a, &server).unwrap();
        assert!(report.flow.datagrams > 0, "{report:?}");
        assert!(report.flow.bytes > 0, "{report:?}");
    }
}

#[test]
fn http_files_arrive_whole_with_and_without_keep_alive() {
    let Some((a, b, link)) = pair() else { return };
    let server = HttpServer::start(&b, (link.b6(), 8080).into()).unwrap();
    for keep_alive in [true, false] {
        for size in [0, 1, 65_521, 200_000] {
            let load = HttpLoad {
                keep_alive,
                ..HttpLoad::new((link.b6(), 8080), size, 24)
            };
            let report = load.run(&a).unwrap();
            assert_eq!((report.requests, report.errors), (24, 0), "{report:?}");
            assert_eq!(report.bytes, 24 * size);
        }
    }
    assert_eq!(server.requests(), 8 * 24);
    drop(server);
    let report = HttpLoad::new((link.b6(), 8080), 1, 3).run(&a).unwrap();
    assert_eq!(report.errors, 3, "{report:?}");
}

#[test]
fn a_download_that_has_stalled_ends_when_it_is_abandoned() {
    let Some((a, b, link)) = pair() else { return };
    // This server accepts connections and never answers.
    let address: SocketAddr = (link.b4(), 8080).into();
    let silent = b.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let load = HttpLoad {
        connections: 2,
        ..HttpLoad::new((link.b4(), 8080), 1, 3)
    };
    let watch = HttpWatch::default();
    let report = thread::scope(|scope| {
        let download = scope.spawn(|| load.run_watched(&a, &watch));
        let _asked = silent.accept().unwrap();
        watch.abandon();
        download.join().unwrap().unwrap()
    });
    assert_eq!((report.requests, report.errors), (0, 0), "{report:?}");
}

#[test]
fn udp_counts_what_the_line_does() {
    if !may_enter() {
        return;
    }
    let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
    let link = LinkOptions::numbered(1);
    let lines = [
        Impairment {
            duplicate: 0.1,
            reorder: 0.1,
            delay: Duration::from_millis(2),
            ..Impairment::NONE
        },
        Impairment::NONE,
    ];
    let _line = Emulator::new(&a, "eth0", &b, "eth0", &link, lines, 3).unwrap();
    let load = UdpLoad {
        target: (link.b4(), 9000).into(),
        size: 64,
        rate: 5000.0,
        duration: Duration::from_millis(400),
        quiet: Duration::from_secs(2),
    };
    let report = udp_load(&a, &b, &load).unwrap();
    assert_eq!(report.lost, 0, "{report:?}");
    // A sender that rarely gets the CPU sends few packets.
    assert!(report.sent > 0, "{report:?}");
    if report.sent > 200 {
        assert!(report.duplicated > 0, "{report:?}");
        assert!(report.reordered > 0, "{report:?}");
    }
}

#[test]
fn rate_of_the_line_is_found() {
    if !may_enter() {
        return;
    }
    let (a, b) = (Host::new("a").unwrap(), Host::new("b").unwrap());
    let link = LinkOptions::numbered(1);
    // 100 + 42 bytes a frame: 10,000 frames a second, with a queue of some milliseconds.
    let lines = [
        Impairment {
            rate: Some(10_000 * 142 * 8),
            queue: 5_000,
            ..Impairment::NONE
        },
        Impairment::NONE,
    ];
    let _line = Emulator::new(&a, "eth0", &b, "eth0", &link, lines, 3).unwrap();
    let search = LossFree {
        high: 40_000.0,
        trial: Duration::from_millis(200),
        trials: 7,
        ..LossFree::default()
    };
    let best = highest_loss_free(&search, |rate, duration| {
        let load = UdpLoad {
            target: (link.b4(), 9000).into(),
            size: 100,
            rate,
            duration,
            quiet: UDP_QUIET,
        };
        udp_load(&a, &b, &load)
    })
    .unwrap();
    // A busy machine measures less, and none can measure more than the line and its queue carry.
    let rate = best.received_rate();
    assert!(rate < 10_500.0, "{best:?}");
}
