//! A branch router, its office and a device behind it: the typical use of a VPN router.

use std::net::IpAddr;

use crate::{Emulator, Host, Impairment, LabError, Link, LinkOptions, Router, TunnelOptions};

/// An office, the router of a branch, a line between them, and a device behind the router.
///
/// ```text
/// office [eth0 192.168.1.1]--line--[192.168.1.2 wan  branch  lan 192.168.2.1]--[192.168.2.2 eth0] device
///        [wg0  10.9.0.1  ]=tunnel=[10.9.0.2    wg0]
/// ```
#[derive(Debug)]
pub struct Site {
    /// A device of the branch, which sends everything to its router.
    pub device: Host,
    /// The router of the branch.
    pub branch: Router,
    /// The office, with the servers.
    pub office: Host,
    /// The line between office and branch.
    pub line: Line,
    outside: LinkOptions,
    inside: LinkOptions,
}

/// The line between office and branch.
#[derive(Debug)]
pub enum Line {
    /// A cable: as fast as the machine.
    Cable(Link),
    /// An emulated line.
    Emulated(Emulator),
}

impl Site {
    /// Builds the site, without a tunnel and without a route between device and office. `link` describes the cable;
    /// with an impairment an emulated line replaces the cable.
    ///
    /// # Errors
    /// [`LabError::Host`], [`LabError::Netlink`].
    pub fn new(link: &LinkOptions, impairment: Option<Impairment>) -> Result<Self, LabError> {
        let office = Host::private("office")?;
        let branch = Router::of(Host::private("branch")?)?;
        let device = Host::new("device")?;
        let outside = LinkOptions {
            mtu: link.mtu,
            offloads: link.offloads,
            ..LinkOptions::numbered(1)
        };
        let inside = LinkOptions::numbered(2);
        let line = match impairment {
            None => Line::Cable(Link::new(&office, "eth0", &branch, "wan", &outside)?),
            Some(line) => {
                let lines = [line; 2];
                let line = Emulator::new(&office, "eth0", &branch, "wan", &outside, lines, 1)?;
                Line::Emulated(line)
            }
        };
        Link::new(&branch, "lan", &device, "eth0", &inside)?;
        device.add_default_route(inside.a4())?;
        device.add_default_route(inside.a6())?;
        Ok(Self {
            device,
            branch,
            office,
            line,
            outside,
            inside,
        })
    }

    /// Options for a tunnel between branch and office: the branch connects, the office listens.
    pub fn tunnel(&self) -> TunnelOptions {
        let mut options = TunnelOptions::over(&self.outside, 9);
        let [at_office, mut at_branch] = options.ends;
        at_branch.behind = self.lan();
        options.ends = [at_branch, at_office];
        options
    }

    /// The hosts of the tunnel's ends, in the order of [`Site::tunnel`].
    pub fn tunnel_hosts(&self) -> [&Host; 2] {
        [&self.branch, &self.office]
    }

    /// Routes the branch's network directly over the line, for measurements without a tunnel.
    ///
    /// # Errors
    /// [`LabError::Netlink`] if a route to the branch's network exists already.
    pub fn route_directly(&self) -> Result<(), LabError> {
        self.lan().into_iter().try_for_each(|network| {
            let via = if network.0.is_ipv4() {
                self.outside.b4()
            } else {
                self.outside.b6()
            };
            self.office.add_route(network, via)
        })
    }

    /// The address of the office on the line.
    pub fn office_outside(&self) -> IpAddr {
        self.outside.a4()
    }

    /// The networks of the branch.
    fn lan(&self) -> Vec<(IpAddr, u8)> {
        let net = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                ([a, b, c, 0].into(), 24)
            }
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                ([a, b, c, d, 0, 0, 0, 0].into(), 64)
            }
        };
        vec![net(self.inside.a4()), net(self.inside.a6())]
    }
}
