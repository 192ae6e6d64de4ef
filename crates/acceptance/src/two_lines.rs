//! Two hosts with two cables between them.

use lab::{Emulator, Host, Impairment, LinkOptions};
use netio::netlink::Route;

use crate::{Net, ip};

/// A with two lines to B, of 40 Mbit/s each. By the routes of A the first is preferred.
pub struct TwoLines {
    /// The host that calls.
    pub a: Host,
    /// The host that is called.
    pub b: Host,
    /// The addresses of both ends of each line.
    pub links: [LinkOptions; 2],
    /// What is between the ends of each line.
    pub cables: [Emulator; 2],
}

/// What the lines are when nothing is said.
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
    /// What the lines' devices are called, at both ends.
    pub const NAMES: [&str; 2] = ["dsl", "lte"];

    /// Where B is called: an address that is on neither of its cables.
    pub const SERVER: &str = "203.0.113.9";

    /// Both lines up, and routes over each of them.
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

    /// Sets A's way to B over one of the lines, which goes with its device.
    pub fn lead(&self, at: usize) {
        let mut netlink = self.a.netlink().unwrap();
        let mut route = Route::new(ip(Self::SERVER), 32).via(self.links[at].b4());
        route.dev = Some(netlink.index_of(Self::NAMES[at]).unwrap());
        route.metric = Some(at as u32 + 1);
        netlink.add_route(&route).unwrap();
    }

    /// Both lines lose this share of all packets.
    pub fn lose(&self, loss: f64) {
        for cable in &self.cables {
            cable.set_both(Impairment { loss, ..LINE });
        }
    }
}
