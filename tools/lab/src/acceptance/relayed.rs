//! Two hosts on a cable, and a third host through which one also reaches the other.

use std::net::{IpAddr, SocketAddr};

use crate::{Emulator, Host, Impairment, Link, LinkOptions, Process};
use netio::netlink::Route;

use crate::acceptance::{Directory, Net, PATIENCE, PROGRAM, ip};

/// Hosts A and B. A reaches B directly and through the relay R.
pub struct Relayed {
    /// The host that connects.
    pub a: Host,
    /// The host that listens.
    pub b: Host,
    /// The host of the relay.
    pub r: Host,
    /// The line between A and B.
    pub cable: Emulator,
    /// The address at which A reaches the relay.
    pub relay: SocketAddr,
    /// The address of B on the cable between it and R.
    pub near: IpAddr,
}

impl Default for Relayed {
    fn default() -> Self {
        Self::new()
    }
}

impl Relayed {
    /// The address at which A connects to B, on none of B's cables.
    pub const SERVER: &str = "203.0.113.9";

    /// UDP port of the relay.
    pub const PORT: u16 = 51821;

    /// The key of the relay's client.
    pub const KEY: &str = "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=";

    /// Sets up all cables, and routes over them.
    pub fn new() -> Self {
        let (a, b) = Net::hosts();
        let r = Host::private("r").unwrap();
        let [ab, ar, rb] = [1, 2, 3].map(LinkOptions::numbered);
        let cable = Emulator::new(&a, "eth0", &b, "eth0", &ab, [Impairment::NONE; 2], 1).unwrap();
        Link::new(&a, "eth1", &r, "eth0", &ar).unwrap();
        Link::new(&r, "eth1", &b, "eth1", &rb).unwrap();
        b.add_address("lo", ip(Self::SERVER), 32).unwrap();
        lead(&a, "eth0", ab.b4());
        lead(&r, "eth1", rb.b4());
        Self {
            relay: (ar.b4(), Self::PORT).into(),
            near: rb.b4(),
            a,
            b,
            r,
            cable,
        }
    }

    /// Starts the relay, which forwards to `target`.
    pub fn relay(&self, directory: &Directory, target: SocketAddr) -> Process {
        let (port, key) = (Self::PORT, Self::KEY);
        let text = format!(
            "[Relay]\nListen = {port}\nTarget = {target}\n[Client]\nName = branch\nKey = {key}\nRate = 50M\n"
        );
        let file = directory.file("relay.conf", &text);
        let command = self.r.command(PROGRAM).arg("relay").arg(file);
        let mut process = command.spawn().unwrap();
        let words = "relaying from port";
        let told = process.wait_for_line(words, PATIENCE, |line| line.contains(words));
        told.unwrap();
        process
    }
}

/// Sets a host's route to B.
fn lead(host: &Host, name: &str, via: IpAddr) {
    let mut netlink = host.netlink().unwrap();
    let mut route = Route::new(ip(Relayed::SERVER), 32).via(via);
    route.dev = Some(netlink.index_of(name).unwrap());
    netlink.add_route(&route).unwrap();
}
