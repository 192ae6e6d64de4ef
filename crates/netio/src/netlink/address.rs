//! Addresses of interfaces, and neighbours: hosts on a link, with their IP and hardware addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use crate::netlink::request::Body;
use crate::netlink::{Family, Netlink, NetlinkError, attributes, decode_ip, decode_u32};

/// Bytes of `struct ifaddrmsg`.
const HEADER_SIZE: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;

// Message types of linux/rtnetlink.h.
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;

// Flags of linux/if_addr.h.
const IFA_F_NODAD: u8 = 0x02;
const IFA_F_TENTATIVE: u8 = 0x40;

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface.
    pub index: u32,
    /// The address, without its prefix length.
    pub ip: IpAddr,
    /// Prefix length of the address's network, in bits.
    pub prefix: u8,
    /// Whether duplicate address detection has not finished yet (IPv6).
    pub tentative: bool,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl Netlink {
    /// Adds an address to an interface. IPv6 addresses go through duplicate address detection on interfaces that have
    /// it (Ethernet does, a TUN does not).
    ///
    /// With a `peer`, of the same family, that is the address's only neighbour, and `prefix` is unused. The two are the
    /// ends of a point-to-point link, and need not share a network.
    ///
    /// # Errors
    /// [`NetlinkError::is_exists`] if the interface already has the address, [`NetlinkError::is_not_found`] if the
    /// interface does not exist, EACCES or EOPNOTSUPP if IPv6 is switched off.
    pub fn add_address(
        &mut self,
        index: u32,
        ip: IpAddr,
        prefix: u8,
        peer: Option<IpAddr>,
    ) -> Result<(), NetlinkError> {
        self.change_address(true, index, (ip, prefix, peer), 0)
    }

    /// Adds an address as [`Netlink::add_address`] does, but usable at once: without duplicate address detection.
    ///
    /// # Errors
    /// The errors of [`Netlink::add_address`].
    pub fn add_address_nodad(
        &mut self,
        index: u32,
        ip: IpAddr,
        prefix: u8,
    ) -> Result<(), NetlinkError> {
        self.change_address(true, index, (ip, prefix, None), IFA_F_NODAD)
    }

    /// Removes an address from an interface, as it was added.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if the interface does not have it.
    pub fn remove_address(
        &mut self,
        index: u32,
        ip: IpAddr,
        prefix: u8,
        peer: Option<IpAddr>,
    ) -> Result<(), NetlinkError> {
        self.change_address(false, index, (ip, prefix, peer), 0)
    }

    /// Removes all addresses from an interface.
    ///
    /// # Errors
    /// The first error of the kernel; addresses that vanish meanwhile cause none.
    pub fn flush_addresses(&mut self, index: u32) -> Result<(), NetlinkError> {
        for address in self.addresses(Some(index))? {
            // Without the network or other end, the kernel looks only at the address.
            let message = message(index, address.ip, address.prefix, 0, None);
            let object = format_args!("{address}");
            match self.change(RTM_DELADDR, &message, 0, "remove address", object) {
                // The kernel removes secondary IPv4 addresses along with their primary.
                Err(error) if error.is_not_found() => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// The addresses of one interface, or of all.
    ///
    /// # Errors
    /// Only if the kernel refuses the dump or the socket fails.
    pub fn addresses(&mut self, index: Option<u32>) -> Result<Vec<Address>, NetlinkError> {
        // Kernels before 4.20 ignore the filter, so `read` filters too.
        self.dump(
            RTM_GETADDR,
            &Body::new(&[0; HEADER_SIZE]),
            "list the addresses",
            |body| parse(body).filter(|address| index.is_none_or(|index| index == address.index)),
        )
    }

    fn change_address(
        &mut self,
        is_new: bool,
        index: u32,
        (ip, prefix, peer): (IpAddr, u8, Option<IpAddr>),
        flags: u8,
    ) -> Result<(), NetlinkError> {
        let (words, prefix) = match peer {
            Some(peer) => (format!("{ip} with peer {peer}"), Family::of(ip).bits()),
            None => (format!("{ip}/{prefix}"), prefix),
        };
        let mut message = message(index, ip, prefix, flags, Some(peer.unwrap_or(ip)));
        let (kind, mode, operation, words) = if is_new {
            message.push_ip(IFA_BROADCAST, broadcast(ip, prefix).map(IpAddr::V4));
            let mode = NLM_F_CREATE | NLM_F_EXCL;
            (RTM_NEWADDR, mode, "add address", words + " to")
        } else {
            (RTM_DELADDR, 0, "remove address", words + " from")
        };
        let object = format_args!("{words} interface number {index}");
        self.change(kind, &message, mode, operation, object)
            .map_err(|error| error.about(format!("{words} {}", self.label(index))))
    }
}

/// A message about the address `ip` of an interface. `peer` is the other end, or `ip` itself if a whole network is
/// reachable there.
fn message(index: u32, ip: IpAddr, prefix: u8, flags: u8, peer: Option<IpAddr>) -> Body {
    let scope = if ip.is_loopback() {
        libc::RT_SCOPE_HOST
    } else {
        libc::RT_SCOPE_UNIVERSE
    };
    let [a, b, c, d] = index.to_ne_bytes();
    let family = Family::of(ip).wire();
    let mut body = Body::new(&[family, prefix, flags, scope, a, b, c, d]);
    body.push_ip(IFA_LOCAL, Some(ip));
    body.push_ip(IFA_ADDRESS, peer);
    body
}

/// The broadcast address of an IPv4 network that is large enough to have one.
fn broadcast(ip: IpAddr, prefix: u8) -> Option<Ipv4Addr> {
    let IpAddr::V4(ip) = ip else { return None };
    if prefix > 30 || ip.is_loopback() {
        return None;
    }
    let hosts = u32::MAX.checked_shr(u32::from(prefix))?;
    Some(Ipv4Addr::from_bits(ip.to_bits() | hosts))
}

fn parse(body: &[u8]) -> Option<Address> {
    let &[family, prefix, flags, _, ..] = body else {
        return None;
    };
    Family::from_wire(family)?;
    let index = decode_u32(body.get(4..)?)?;
    let mut ip = None;
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            // On a point-to-point link IFA_ADDRESS is the other end, and IFA_LOCAL is our address.
            IFA_LOCAL => ip = decode_ip(value),
            IFA_ADDRESS => ip = ip.or_else(|| decode_ip(value)),
            _ => {}
        }
    }
    Some(Address {
        index,
        ip: ip?,
        prefix,
        tentative: flags & IFA_F_TENTATIVE != 0,
    })
}

/// Bytes of `struct ndmsg`, linux/neighbour.h.
const NEIGHBOUR_HEADER_SIZE: usize = 12;

const RTM_GETNEIGH: u16 = 30;

// Attribute numbers of linux/neighbour.h.
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// `struct nda_cacheinfo`, whose first field tells when the neighbour was last confirmed.
const NDA_CACHEINFO: u16 = 3;

/// Ticks of the kernel's USER_HZ clock per second, the same for all programs.
const TICKS: u64 = 100;

/// A host on a link of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Index of the interface that the neighbour is on.
    pub index: u32,
    /// IP address of the neighbour.
    pub ip: IpAddr,
    /// The neighbour's hardware address.
    pub mac: Vec<u8>,
    /// Time since the kernel last confirmed the neighbour.
    pub idle: Duration,
}

impl Netlink {
    /// The neighbours whose hardware addresses are or were known.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`], or the kernel's error.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, NetlinkError> {
        let body = Body::new(&[0; NEIGHBOUR_HEADER_SIZE]);
        self.dump(RTM_GETNEIGH, &body, "list the neighbours", parse_neighbour)
    }
}

fn parse_neighbour(body: &[u8]) -> Option<Neighbour> {
    let index = decode_u32(body.get(4..)?)?;
    let (mut ip, mut mac, mut idle) = (None, Vec::new(), Duration::ZERO);
    for (kind, value) in attributes(body.get(NEIGHBOUR_HEADER_SIZE..)?) {
        match kind {
            NDA_DST => ip = decode_ip(value),
            NDA_LLADDR => mac = value.to_vec(),
            NDA_CACHEINFO => {
                idle = Duration::from_millis(u64::from(decode_u32(value)?) * 1000 / TICKS);
            }
            _ => {}
        }
    }
    let ip = ip.filter(|_| !mac.is_empty())?;
    Some(Neighbour {
        index,
        ip,
        mac,
        idle,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcast_is_the_last_address_of_networks_that_have_one() {
        let of = |text: &str, prefix| broadcast(text.parse().unwrap(), prefix);
        assert_eq!(of("10.1.2.3", 24), Some(Ipv4Addr::new(10, 1, 2, 255)));
        assert_eq!(of("10.1.2.3", 0), Some(Ipv4Addr::BROADCAST));
        assert_eq!(of("10.1.2.3", 31), None);
        assert_eq!(of("fd00::1", 64), None);
    }

    #[test]
    fn loopback_has_its_address() {
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.index_of("lo").unwrap();
        let addresses = netlink.addresses(Some(lo)).unwrap();
        assert!(addresses.iter().all(|address| address.index == lo));
    }

    #[test]
    fn short_bodies_are_refused() {
        for length in 0..16 {
            assert!(parse(&vec![2; length]).is_none());
        }
    }

    #[test]
    fn a_neighbour_has_both_addresses() {
        let mut header = [0; NEIGHBOUR_HEADER_SIZE];
        header[4..8].copy_from_slice(&7u32.to_ne_bytes());
        let body = Body::new(&header).with(NDA_DST, &[192, 168, 1, 9]);
        // The neighbour has not answered yet.
        assert_eq!(parse_neighbour(&body.request(0, 0, 0)[16..]), None);
        let body = body.with(NDA_LLADDR, &[2, 0, 0, 0, 0, 9]);
        let body = body.with(NDA_CACHEINFO, &[250u32.to_ne_bytes(), [0; 4]].concat());
        let wanted = Neighbour {
            index: 7,
            ip: IpAddr::from([192, 168, 1, 9]),
            mac: vec![2, 0, 0, 0, 0, 9],
            idle: Duration::from_millis(2500),
        };
        assert_eq!(parse_neighbour(&body.request(0, 0, 0)[16..]), Some(wanted));
        for length in 0..32 {
            assert_eq!(parse_neighbour(&vec![0xff; length]), None);
        }
    }

    #[test]
    fn the_kernel_lists_them() {
        Netlink::open().unwrap().neighbours().unwrap();
    }
}
