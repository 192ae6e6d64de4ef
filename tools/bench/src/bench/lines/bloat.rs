//! Measures a ping while eight streams fill the line: without a tunnel, and with a tunnel that knows the line's rate.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use lab::load::{Direction, Iperf, IperfServer, PingOptions, PingReport, ping};
use lab::openvpn::Directory;
use lab::peer::Keys;
use lab::{Emulator, Host, Impairment, LabError, LinkOptions};

use super::{INNER, IPERF_PORT, up};
use crate::bench::rig::RigError;
use crate::two_lines::wireguard;

/// Rates up and down, in bits per second.
const RATES: [u64; 2] = [5_000_000, 20_000_000];
const DELAY: Duration = Duration::from_millis(10);
/// Delay of the line's own queue when it is full.
const QUEUE: Duration = Duration::from_millis(300);
const STREAMS: u16 = 8;
/// Seconds that the streams run before the first ping, so that all have started.
const LEAD: u32 = 2;
const INTERVAL: Duration = Duration::from_millis(20);

/// The path between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The bare line, with a fair or a first-in-first-out queue.
    Line { fair: bool },
    /// A WireGuard tunnel over the line with the simple queue; `shape` tells it the line's rates.
    Tunnel { shape: bool },
}

pub(super) const WAYS: [(&str, Way); 4] = [
    ("no tunnel", Way::Line { fair: false }),
    ("no tunnel, FQ-CoDel", Way::Line { fair: true }),
    ("WireGuard", Way::Tunnel { shape: false }),
    ("WireGuard, shaped", Way::Tunnel { shape: true }),
];

/// Both directions and their names.
pub(super) const DIRECTIONS: [(&str, Direction); 2] = [
    ("up, 5 Mbit/s", Direction::Forward),
    ("down, 20 Mbit/s", Direction::Reverse),
];

/// The results on a full line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    /// The rate of the streams, in Mbit/s.
    pub(super) rate: f64,
    /// The 99th percentile of the round trip times, in milliseconds.
    pub(super) ping: f64,
}

/// Fills a line in one direction and pings across it.
///
/// # Errors
/// [`RigError`] if a network cannot be built or a host does not answer.
pub(super) fn fill(way: Way, direction: Direction, seconds: u32) -> Result<Filled, RigError> {
    let (a, b) = (Host::private("a")?, Host::private("b")?);
    let link = LinkOptions::numbered(1);
    let lines = RATES.map(|rate| Impairment {
        rate: Some(rate),
        queue: (rate as f64 / 8.0 * QUEUE.as_secs_f64()) as usize,
        fair: way == Way::Line { fair: true },
        ..Impairment::delay(DELAY)
    });
    let _line = Emulator::new(&a, "eth0", &b, "eth0", &link, lines, 1)?;
    let Way::Tunnel { shape } = way else {
        return load([&a, &b], link.b4(), direction, seconds);
    };
    let directory = Directory::new()?;
    let keys = [Keys::generate(&a)?, Keys::generate(&b)?];
    let file = |own: usize, name: &str, peer| -> Result<_, LabError> {
        let lines = match shape {
            true => format!(
                "#! [Uplinks]\n#! Mode = single\n#! Shape = yes\n\
                 #! [Uplink]\n#! Name = wan\n#! Interface = eth0\n#! Rate = {}\n",
                RATES[own]
            ),
            false => String::new(),
        };
        directory.file(name, wireguard(&lines, &keys, own, peer))
    };
    let answers = file(1, "b.conf", None)?;
    let calls = file(0, "a.conf", Some(link.b4()))?;
    let _b = up(&b, &answers)?;
    let _a = up(&a, &calls)?;
    load([&a, &b], INNER[1].into(), direction, seconds)
}

fn load(
    [a, b]: [&Host; 2],
    target: IpAddr,
    direction: Direction,
    seconds: u32,
) -> Result<Filled, RigError> {
    super::answers([a, b], target)?;
    let server = IperfServer::start(b, target, IPERF_PORT)?;
    let iperf = Iperf {
        seconds: seconds + LEAD + 1,
        streams: STREAMS,
        direction,
        ..Iperf::default()
    };
    let options = PingOptions {
        interval: Some(INTERVAL),
        ..PingOptions::count(seconds * 1000 / INTERVAL.as_millis() as u32)
    };
    thread::scope(|scope| {
        let streams = scope.spawn(|| iperf.run(a, &server));
        thread::sleep(Duration::from_secs(LEAD.into()));
        let pings = ping(a, target, &options);
        let streams = streams
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Filled {
            rate: streams.bits_per_second() / 1e6,
            ping: one_of_a_hundred(&pings?),
        })
    })
}

/// The 99th percentile of the round trip times, in milliseconds. A lost ping counts as infinite.
fn one_of_a_hundred(pings: &PingReport) -> f64 {
    let place = 0.99 * f64::from(pings.sent) / f64::from(pings.received.max(1));
    match place > 1.0 || pings.received == 0 {
        true => f64::INFINITY,
        false => pings.times.quantile(place).as_secs_f64() * 1e3,
    }
}
