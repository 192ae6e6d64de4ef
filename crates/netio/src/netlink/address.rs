//! Addresses of interfaces.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};

use super::{Family, Netlink, NetlinkError, attributes, decode_ip, decode_u32};

/// Bytes of `struct ifaddrmsg`.
const HEADER_SIZE: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface.
    pub index: u32,
    /// The address.
    pub ip: IpAddr,
    /// Length of the prefix of its network, in bits.
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
    /// Gives an interface an address. IPv6 addresses go through duplicate address detection where the
    /// kind of interface has it (Ethernet does, a TUN does not).
    ///
    /// # Errors
    /// [`NetlinkError::is_exists`] if it has the address already, [`NetlinkError::is_not_found`] if
    /// there is no such interface, EACCES or EOPNOTSUPP where IPv6 is switched off.
    pub fn add_address(&mut self, index: u32, ip: IpAddr, prefix: u8) -> Result<(), NetlinkError> {
        self.add(index, ip, prefix, AddressHeaderFlags::empty())
    }

    /// As [`Netlink::add_address`], usable at once: without duplicate address detection.
    ///
    /// # Errors
    /// As [`Netlink::add_address`].
    pub fn add_address_nodad(
        &mut self,
        index: u32,
        ip: IpAddr,
        prefix: u8,
    ) -> Result<(), NetlinkError> {
        self.add(index, ip, prefix, AddressHeaderFlags::Nodad)
    }

    /// Gives an interface an address whose only neighbour is `peer`, of the same family: the two
    /// ends of a point-to-point link, which need no network in common.
    ///
    /// # Errors
    /// As [`Netlink::add_address`].
    pub fn add_peer_address(
        &mut self,
        index: u32,
        ip: IpAddr,
        peer: IpAddr,
    ) -> Result<(), NetlinkError> {
        self.change(
            RouteNetlinkMessage::NewAddress(peer_message(index, ip, peer)),
            NLM_F_CREATE | NLM_F_EXCL,
            "add address",
            format_args!("{ip} with peer {peer} to interface number {index}"),
        )
        .map_err(|error| error.about(format!("{ip} with peer {peer} to {}", self.label(index))))
    }

    /// Takes an address away that [`Netlink::add_peer_address`] gave.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if the interface does not have it.
    pub fn remove_peer_address(
        &mut self,
        index: u32,
        ip: IpAddr,
        peer: IpAddr,
    ) -> Result<(), NetlinkError> {
        self.change(
            RouteNetlinkMessage::DelAddress(peer_message(index, ip, peer)),
            0,
            "remove address",
            format_args!("{ip} with peer {peer} from interface number {index}"),
        )
        .map_err(|error| error.about(format!("{ip} with peer {peer} from {}", self.label(index))))
    }

    /// Takes an address away from an interface.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if it does not have it.
    pub fn remove_address(
        &mut self,
        index: u32,
        ip: IpAddr,
        prefix: u8,
    ) -> Result<(), NetlinkError> {
        let message = message(index, ip, prefix, AddressHeaderFlags::empty());
        self.change(
            RouteNetlinkMessage::DelAddress(message),
            0,
            "remove address",
            format_args!("{ip}/{prefix} from interface number {index}"),
        )
        .map_err(|error| error.about(format!("{ip}/{prefix} from {}", self.label(index))))
    }

    /// Takes all addresses away from an interface.
    ///
    /// # Errors
    /// The first that the kernel refuses; those that vanish meanwhile are no error.
    pub fn flush_addresses(&mut self, index: u32) -> Result<(), NetlinkError> {
        for address in self.addresses(Some(index))? {
            match self.remove_address(index, address.ip, address.prefix) {
                // Removing a primary IPv4 address takes its secondaries along.
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
        // Kernels before 4.20 do not filter, so the reader does.
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        self.dump(&message, "list the addresses", |body| {
            parse(body).filter(|address| index.is_none_or(|index| index == address.index))
        })
    }

    fn add(
        &mut self,
        index: u32,
        ip: IpAddr,
        prefix: u8,
        flags: AddressHeaderFlags,
    ) -> Result<(), NetlinkError> {
        let mut message = message(index, ip, prefix, flags);
        if let Some(broadcast) = broadcast(ip, prefix) {
            let attribute = AddressAttribute::Broadcast(broadcast);
            message.attributes.push(attribute);
        }
        self.change(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
            "add address",
            format_args!("{ip}/{prefix} to interface number {index}"),
        )
        .map_err(|error| error.about(format!("{ip}/{prefix} to {}", self.label(index))))
    }
}

fn message(index: u32, ip: IpAddr, prefix: u8, flags: AddressHeaderFlags) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = Family::of(ip).wire();
    message.header.prefix_len = prefix;
    message.header.flags = flags;
    message.header.index = index;
    if ip.is_loopback() {
        message.header.scope = AddressScope::Host;
    }
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    message
}

fn peer_message(index: u32, ip: IpAddr, peer: IpAddr) -> AddressMessage {
    let bits = Family::of(ip).bits();
    let mut message = message(index, ip, bits, AddressHeaderFlags::empty());
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(peer)];
    message
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
            // On a point-to-point link IFA_ADDRESS is the other end, and IFA_LOCAL is ours.
            IFA_LOCAL => ip = decode_ip(value),
            IFA_ADDRESS => ip = ip.or_else(|| decode_ip(value)),
            _ => {}
        }
    }
    Some(Address {
        index,
        ip: ip?,
        prefix,
        tentative: flags & AddressHeaderFlags::Tentative.bits() != 0,
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
}
