//! Two hosts with two cables between them.

use std::thread;
use std::time::Duration;

use crate::load::{PingOptions, UdpLoad, ping, udp_load};
use crate::{Emulator, Host, Impairment, LinkOptions, Side};
use netio::netlink::Route;

use crate::acceptance::{Net, ip, until};

/// Host A with two lines of 40 Mbit/s each to host B. A's routes prefer the first line.
pub struct TwoLines {
    /// The host that connects.
    pub a: Host,
    /// The host that listens.
    pub b: Host,
    /// The addresses of both ends of each line.
    pub links: [LinkOptions; 2],
    /// The lines between the ends.
    pub cables: [Emulator; 2],
}

/// The lines' default properties.
const LINE: Impairment = Impairment {
    rate: Some(40_000_000),
    ..Impairment::NONE
};

impl Default for TwoLines {
    fn default() -> Self {
        Self::new()
    }
}

impl TwoLines {
    /// The names of the lines' devices, at both ends.
    pub const NAMES: [&str; 2] = ["dsl", "lte"];

    /// The address at which A connects to B, on neither of B's cables.
    pub const SERVER: &str = "203.0.113.9";

    /// Sets up both lines, and routes over each of them.
    pub fn new() -> Self {
        let (a, b) = Net::hosts();
        let links = [LinkOptions::numbered(1), LinkOptions::numbered(2)];
        let cable = |at: usize| {
            let name = Self::NAMES[at];
            Emulator::new(&a, name, &b, name, &links[at], [LINE; 2], at as u64 + 1).unwrap()
        };
        let cables = [cable(0), cable(1)];
        b.add_address("lo", ip(Self::SERVER), 32).unwrap();
        let lines = Self {
            a,
            b,
            links,
            cables,
        };
        lines.lead(0);
        lines.lead(1);
        lines
    }

    /// Sets A's route to B over one of the lines; the route vanishes with the line's device.
    pub fn lead(&self, at: usize) {
        let mut netlink = self.a.netlink().unwrap();
        let mut route = Route::new(ip(Self::SERVER), 32).via(self.links[at].b4());
        route.dev = Some(netlink.index_of(Self::NAMES[at]).unwrap());
        route.metric = Some(at as u32 + 1);
        netlink.add_route(&route).unwrap();
    }

    /// Cuts the first cable between two of 200 pings from A. With copies, at most the two pings in transit are lost.
    /// Both lines lose nothing else meanwhile.
    pub fn cut_costs_little(&self, target: &str) {
        for cable in &self.cables {
            cable.set_both(Impairment::NONE);
        }
        let options = PingOptions {
            count: 200,
            interval: Some(Duration::from_millis(50)),
            ..PingOptions::default()
        };
        let carried = || self.cables[0].counters(Side::A).received;
        let before = carried();
        let report = thread::scope(|scope| {
            let pings = scope.spawn(|| ping(&self.a, ip(target), &options).unwrap());
            until("half of the pings", || carried() > before + 60);
            self.cables[0].cut(true);
            pings.join().unwrap()
        });
        // Without copies, about 24 pings would be lost before the other line takes over. A busy machine may lose a
        // few.
        assert!(report.received + 10 >= report.sent, "{report:?}");
    }

    /// Makes both lines lose this fraction of all packets.
    pub fn lose(&self, loss: f64) {
        for cable in &self.cables {
            cable.set_both(Impairment { loss, ..LINE });
        }
    }
}

/// Packets that [`mostly_arrive`] sends, 400 per second. The stock program drops copies that come 64 packets late,
/// here 160 ms. On a busy machine a line may wait that long for a processor.
pub const SENT: u64 = 2_000;

/// Sends small packets over lines with 5 % loss: one line would lose 100, two lines lose 5. The limit of 50 is 5
/// standard deviations below 100; on a busy machine a line may count as down for a second.
pub fn mostly_arrive(from: &Host, to: &Host, address: &str) {
    let load = UdpLoad {
        target: (ip(address), 5000).into(),
        size: 200,
        rate: SENT as f64 / 5.0,
        duration: Duration::from_secs(5),
        quiet: Duration::from_secs(2),
    };
    let report = udp_load(from, to, &load).unwrap();
    println!("{report:?}");
    assert!(report.loss() <= 0.025, "{report:?}");
    assert_eq!(report.duplicated, 0, "{report:?}");
}
