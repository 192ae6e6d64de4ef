//! Links: a cable between two hosts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use netio::ethtool;
use netio::netlink::VethEnd;

use crate::{Host, LabError};

/// Offloads of a link's ends. A veth passes super-packets and unfilled checksums through as they are, which no
/// network card does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Offloads {
    /// All offloads of a veth.
    #[default]
    On,
    /// No segmentation by the "card", as on a port without TSO and USO. The receiver still merges packets (GRO).
    NoSegmentation,
    /// Frames of wire size with their checksums filled in.
    Off,
}

/// How long an interface may take to get its carrier.
const CARRIER: Duration = Duration::from_secs(40);

/// Features that are turned off for [`Offloads::NoSegmentation`].
const SEGMENTATION: [&str; 6] = [
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
];

/// Settings of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkOptions {
    /// MTU of both ends, in bytes.
    pub mtu: u32,
    /// Offloads of both ends.
    pub offloads: Offloads,
    /// Addresses of the first end, each with its prefix length.
    pub a: Vec<(IpAddr, u8)>,
    /// Addresses of the second end, each with its prefix length.
    pub b: Vec<(IpAddr, u8)>,
}

impl LinkOptions {
    /// Options for a link without addresses.
    pub fn bare() -> Self {
        Self {
            mtu: 1500,
            offloads: Offloads::On,
            a: Vec::new(),
            b: Vec::new(),
        }
    }

    /// Options for a link in the networks 192.168.`network`.0/24 and fd00:`network`::/64. The first end is host 1 of
    /// both, the second end host 2.
    pub fn numbered(network: u8) -> Self {
        let addresses = |end: u8| {
            let four = Ipv4Addr::new(192, 168, network, end);
            let six = Ipv6Addr::new(0xfd00, network.into(), 0, 0, 0, 0, 0, end.into());
            vec![(four.into(), 24), (six.into(), 64)]
        };
        Self {
            a: addresses(1),
            b: addresses(2),
            ..Self::bare()
        }
    }

    /// Sets the link's MTU.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// Sets the link's offloads.
    #[must_use]
    pub fn offloads(mut self, offloads: Offloads) -> Self {
        self.offloads = offloads;
        self
    }

    /// The first IPv4 address of the first end, or 0.0.0.0 if it has none.
    pub fn a4(&self) -> IpAddr {
        first(&self.a, IpAddr::is_ipv4, Ipv4Addr::UNSPECIFIED.into())
    }

    /// The first IPv4 address of the second end, or 0.0.0.0 if it has none.
    pub fn b4(&self) -> IpAddr {
        first(&self.b, IpAddr::is_ipv4, Ipv4Addr::UNSPECIFIED.into())
    }

    /// The first IPv6 address of the first end, or :: if it has none.
    pub fn a6(&self) -> IpAddr {
        first(&self.a, IpAddr::is_ipv6, Ipv6Addr::UNSPECIFIED.into())
    }

    /// The first IPv6 address of the second end, or :: if it has none.
    pub fn b6(&self) -> IpAddr {
        first(&self.b, IpAddr::is_ipv6, Ipv6Addr::UNSPECIFIED.into())
    }
}

fn first(of: &[(IpAddr, u8)], wanted: impl Fn(&IpAddr) -> bool, otherwise: IpAddr) -> IpAddr {
    let mut addresses = of.iter().map(|(ip, _)| *ip);
    addresses.find(|ip| wanted(ip)).unwrap_or(otherwise)
}

/// A veth pair between two hosts. The pair goes with either host; this value only remembers the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Name of the interface in the first host.
    pub a: String,
    /// Name of the interface in the second host.
    pub b: String,
}

impl Link {
    /// Joins two hosts, and waits until both ends have their carrier.
    ///
    /// # Errors
    /// [`LabError::Netlink`] if a name or an address is taken, [`LabError::Ethtool`] if an offload cannot be set.
    pub fn new(
        a: &Host,
        a_name: &str,
        b: &Host,
        b_name: &str,
        options: &LinkOptions,
    ) -> Result<Self, LabError> {
        a.netlink()?
            .create_veth(
                VethEnd::new(a_name).inside(a.network()),
                VethEnd::new(b_name).inside(b.network()),
            )
            .map_err(LabError::netlink(a.name()))?;
        bring_up(a, a_name, options)?;
        bring_up(b, b_name, options)?;
        wait_for_carrier(a, a_name)?;
        wait_for_carrier(b, b_name)?;
        // Not before: IPv6 delays its first packets for seconds on a link that is not ready.
        for (host, name, addresses) in [(a, a_name, &options.a), (b, b_name, &options.b)] {
            for (ip, prefix) in addresses {
                host.add_address(name, *ip, *prefix)?;
            }
        }
        Ok(Self {
            a: a_name.to_owned(),
            b: b_name.to_owned(),
        })
    }
}

/// Sets up one end of a link, except for its addresses.
fn bring_up(host: &Host, name: &str, options: &LinkOptions) -> Result<(), LabError> {
    host.run(|| match options.offloads {
        Offloads::On => Ok(()),
        Offloads::NoSegmentation => SEGMENTATION
            .iter()
            .try_for_each(|feature| match ethtool::set_feature(name, feature, false) {
                // A kernel that does not know the feature does not have it either.
                Err(ethtool::EthtoolError::Unknown { .. }) => Ok(()),
                other => other,
            })
            .and_then(|()| ethtool::set_feature(name, "rx-gro", true)),
        Offloads::Off => ethtool::set_offloads(name, false),
    })?
    .map_err(LabError::ethtool(host.name()))?;
    let mut netlink = host.netlink()?;
    netlink
        .index_of(name)
        .and_then(|index| {
            netlink.set_mtu(index, options.mtu)?;
            netlink.set_up(index)
        })
        .map_err(LabError::netlink(host.name()))
}

/// Waits until the host has its carrier. The kernel reports a change of carrier at most once a second.
fn wait_for_carrier(host: &Host, name: &str) -> Result<(), LabError> {
    let mut netlink = host.netlink()?;
    let end = Instant::now() + CARRIER;
    while !netlink
        .link(name)
        .map_err(LabError::netlink(host.name()))?
        .running
    {
        if Instant::now() >= end {
            let error = io::ErrorKind::TimedOut.into();
            let operation = format!("wait for the carrier of {name}");
            return Err(LabError::host(host.name(), operation, error));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

impl Host {
    /// Adds an address to one of the host's interfaces, usable at once.
    ///
    /// # Errors
    /// [`LabError::Netlink`].
    pub fn add_address(&self, interface: &str, ip: IpAddr, prefix: u8) -> Result<(), LabError> {
        let mut netlink = self.netlink()?;
        netlink
            .index_of(interface)
            .and_then(|index| netlink.add_address_nodad(index, ip, prefix))
            .map_err(LabError::netlink(self.name()))
    }

    /// Adds a route to `network` through the gateway `via`.
    ///
    /// # Errors
    /// [`LabError::Netlink`].
    pub fn add_route(&self, network: (IpAddr, u8), via: IpAddr) -> Result<(), LabError> {
        let route = netio::netlink::Route::new(network.0, network.1).via(via);
        self.netlink()?
            .add_route(&route)
            .map_err(LabError::netlink(self.name()))
    }

    /// Adds a route to `network` through one of the host's interfaces.
    ///
    /// # Errors
    /// [`LabError::Netlink`].
    pub fn add_device_route(&self, network: (IpAddr, u8), device: &str) -> Result<(), LabError> {
        let mut netlink = self.netlink()?;
        netlink
            .index_of(device)
            .and_then(|index| {
                let route = netio::netlink::Route::new(network.0, network.1).dev(index);
                netlink.add_route(&route)
            })
            .map_err(LabError::netlink(self.name()))
    }

    /// Adds a default route through the gateway `via`, in its family.
    ///
    /// # Errors
    /// [`LabError::Netlink`].
    pub fn add_default_route(&self, via: IpAddr) -> Result<(), LabError> {
        let any = match via {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        self.add_route((any, 0), via)
    }

    /// Brings an interface up or takes it down. The other end of a link loses its carrier with it,
    /// as if the cable were pulled.
    ///
    /// # Errors
    /// [`LabError::Netlink`].
    pub fn set_up(&self, interface: &str, up: bool) -> Result<(), LabError> {
        let mut netlink = self.netlink()?;
        let index = netlink
            .index_of(interface)
            .map_err(LabError::netlink(self.name()))?;
        let result = if up {
            netlink.set_up(index)
        } else {
            netlink.set_down(index)
        };
        result.map_err(LabError::netlink(self.name()))
    }

    /// Sets an interface's MTU, in bytes.
    ///
    /// # Errors
    /// [`LabError::Netlink`].
    pub fn set_mtu(&self, interface: &str, mtu: u32) -> Result<(), LabError> {
        let mut netlink = self.netlink()?;
        netlink
            .index_of(interface)
            .and_then(|index| netlink.set_mtu(index, mtu))
            .map_err(LabError::netlink(self.name()))
    }

    /// Returns whether the host has an interface of that name.
    ///
    /// # Errors
    /// [`LabError::Netlink`] if the kernel does not answer.
    pub fn has_interface(&self, name: &str) -> Result<bool, LabError> {
        match self.netlink()?.index_of(name) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(LabError::netlink(self.name())(error)),
        }
    }
}
