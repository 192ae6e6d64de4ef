//! A host that anyone can reach: floods of datagrams, and limits on their cost.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::{Host, Link, LinkOptions, Process};
use netio::netlink::Route;
use netio::packet::PacketSocket;

use crate::acceptance::forged::{Flood, Pace, Random, anonymous_memory, datagrams_received};
use crate::acceptance::{Net, until, usable};

/// Datagrams of an attack: before a client connects, and beside it.
const DATAGRAMS: [u64; 2] = [20_000, 40_000];

/// Datagrams of a fast attack: 6 seconds of 50,000 datagrams.
const FAST_DATAGRAMS: [u64; 2] = [100_000, 300_000];

/// Time for 32 datagrams of an attack: about 40 Mbit/s, more than a server can process.
const PACE: Duration = Duration::from_millis(1);

/// Log lines that an attack may cause: at once, and each second after that.
const LINES: (usize, u64) = (100, 2);

/// Memory that an attack may cost the server, in bytes.
pub const MEMORY: u64 = 8 << 20;

/// Makes the payload of each datagram of an attack.
pub type Payloads = Box<dyn FnMut(&mut Random) -> Vec<u8> + Send>;

/// The hosts of a [`Net`], and an attacker on another cable to B, through which B reaches all other addresses.
pub struct Exposed {
    net: Net,
    /// The attacker; the cable is eth0 there, and eth1 at B.
    pub attacker: Host,
    /// Cable to the attacker.
    pub cable: LinkOptions,
    /// How attacks send.
    pub pace: Pace,
}

impl Deref for Exposed {
    type Target = Net;

    fn deref(&self) -> &Net {
        &self.net
    }
}

impl Default for Exposed {
    fn default() -> Self {
        Self::new()
    }
}

impl Exposed {
    /// Makes the hosts and cables.
    pub fn new() -> Self {
        let net = Net::new();
        let attacker = Host::private("attacker").unwrap();
        let cable = LinkOptions::numbered(3);
        Link::new(&attacker, "eth0", &net.b, "eth1", &cable).unwrap();
        for (anywhere, via) in [
            (Ipv4Addr::UNSPECIFIED.into(), cable.a4()),
            (Ipv6Addr::UNSPECIFIED.into(), cable.a6()),
        ] {
            let route = Route::new(anywhere, 0).via(via);
            net.b.netlink().unwrap().add_route(&route).unwrap();
        }
        usable(&net.b, &cable.b6().to_string());
        Self {
            net,
            attacker,
            cable,
            pace: Pace::New(PACE),
        }
    }

    /// The address at which the attacker reaches B.
    pub fn called(&self) -> Ipv4Addr {
        match self.cable.b4() {
            IpAddr::V4(at) => at,
            IpAddr::V6(_) => unreachable!("the cable is numbered so"),
        }
    }

    /// Opens a tap at the attacker on B's packets to it and, by B's default routes, to addresses beyond the [`Net`].
    pub fn tap(&self) -> PacketSocket {
        let open = || PacketSocket::open("eth0");
        self.attacker.run(open).unwrap().unwrap()
    }

    /// Attacks this port of B, where `server` listens, over IPv4 and IPv6, while `beside` runs the clients. Asserts
    /// that log and memory stay within the limits.
    pub fn attack(
        &self,
        (server, port): (&Process, u16),
        (name, payloads): (&str, Payloads),
        beside: impl FnOnce(),
    ) {
        let began = Instant::now();
        let lines = || server.stderr().lines().count();
        let before = (lines(), anonymous_memory(server));
        let arrived = datagrams_received(&self.net.b);
        let (from, to) = ((&self.attacker, "eth0"), (&self.net.b, "eth1"));
        let at = vec![self.cable.b4(), self.cable.b6()];
        let flood = Flood::begin(from, to, (at, port), self.pace, payloads);
        let [before_clients, all] = match self.pace {
            Pace::New(_) => DATAGRAMS,
            Pace::Repeat => FAST_DATAGRAMS,
        };
        let sending = Instant::now();
        until(name, || flood.sent() > before_clients);
        beside();
        until(name, || flood.sent() > all);
        let (sent, seconds) = (flood.sent(), sending.elapsed().as_secs_f64());
        println!("{name}: {sent}, {:.0} a second", sent as f64 / seconds);
        let grown = anonymous_memory(server).saturating_sub(before.1);
        drop(flood);
        for (now, before) in datagrams_received(&self.net.b).into_iter().zip(arrived) {
            let arrived = now - before;
            assert!(arrived > DATAGRAMS[0] / 2, "{name}: {arrived} arrived");
        }
        assert!(grown <= MEMORY, "{name}: {grown} bytes");
        let written = lines() - before.0;
        let most = LINES.0 + (began.elapsed().as_secs() * LINES.1) as usize;
        assert!(written <= most, "{name}: {written} lines of log");
    }
}
