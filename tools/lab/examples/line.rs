//! Measures the emulated line on this machine: TCP throughput, and how late frames leave.

use std::time::Duration;

use lab::load::{Iperf, IperfServer, PingOptions, UDP_QUIET, UdpLoad, ping, udp_load};
use lab::{Emulator, Host, Impairment, LabError, LinkOptions, Side};

fn main() -> Result<(), LabError> {
    lab::enter()?;
    let (a, b) = (Host::new("a")?, Host::new("b")?);
    let link = LinkOptions::numbered(1);
    let line = Emulator::new(&a, "eth0", &b, "eth0", &link, Default::default(), 1)?;
    let server = IperfServer::start(&b, link.b4(), 5201)?;
    let jitter = Impairment {
        jitter: Duration::from_millis(1),
        ..Impairment::delay(Duration::from_millis(3))
    };
    let rows = [
        ("no delay", Impairment::NONE),
        ("3 ms", Impairment::delay(Duration::from_millis(3))),
        ("3 ms +- 1 ms", jitter),
        (
            "3 ms +- 1 ms in order",
            Impairment {
                in_order: true,
                ..jitter
            },
        ),
        (
            "500 Mbit/s",
            Impairment {
                rate: Some(500_000_000),
                ..Impairment::NONE
            },
        ),
    ];
    for (name, impairment) in rows {
        line.set_both(impairment);
        let tcp = Iperf::default().run(&a, &server)?;
        let pings = ping(&a, link.b4(), &PingOptions::count(200))?;
        println!(
            "{name:24} {:7.0} Mbit/s  {:4} again  ping {:?} / {:?} / {:?}  latest {:?}",
            tcp.bits_per_second() / 1e6,
            tcp.flow.retransmits,
            pings.times.min(),
            pings.times.median(),
            pings.times.quantile(0.99),
            line.counters(Side::A).latest,
        );
    }
    line.set_both(Impairment::NONE);
    for rate in [10_000.0, 100_000.0, 500_000.0] {
        let load = UdpLoad {
            target: (link.b4(), 9000).into(),
            size: 64,
            rate,
            duration: Duration::from_secs(1),
            quiet: UDP_QUIET,
        };
        let report = udp_load(&a, &b, &load)?;
        println!("{report:?} {:.0}/s", report.sent_rate());
    }
    println!("{:?}", line.counters(Side::A));
    drop(line);
    lab::Link::new(&a, "eth1", &b, "eth1", &LinkOptions::numbered(2))?;
    for rate in [100_000.0, 300_000.0, 500_000.0, 1_000_000.0] {
        let load = UdpLoad {
            target: (LinkOptions::numbered(2).b4(), 9000).into(),
            size: 64,
            rate,
            duration: Duration::from_secs(1),
            quiet: UDP_QUIET,
        };
        let report = udp_load(&a, &b, &load)?;
        println!("{report:?} {:.0}/s", report.sent_rate());
    }
    Ok(())
}
