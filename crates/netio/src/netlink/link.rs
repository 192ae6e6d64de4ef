//! Links: the interfaces of a namespace.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};

use super::{Netlink, NetlinkError, attributes, decode_str, decode_u32};

/// Bytes of `struct ifinfomsg`, which every link message starts with.
const HEADER_SIZE: usize = 16;

// Attribute numbers of linux/if_link.h.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_STATS: u16 = 7;
const IFLA_MASTER: u16 = 10;
const IFLA_STATS64: u16 = 23;

/// What an interface has carried since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets dropped.
    pub rx_dropped: u64,
    /// Packets dropped instead of sent.
    pub tx_dropped: u64,
}

/// An interface as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Index, unique in its namespace.
    pub index: u32,
    /// Name, at most 15 bytes.
    pub name: String,
    /// Largest packet, in bytes without the link layer header.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it also has a carrier.
    pub running: bool,
    /// The hardware address, empty for a TUN.
    pub mac: Vec<u8>,
    /// The bridge or bond that it belongs to.
    pub master: Option<u32>,
    /// What it carried.
    pub counters: Counters,
}

/// One end of a veth pair to be made.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// Its name.
    pub name: &'a str,
    /// The namespace that it is made in; none is the socket's own.
    pub namespace: Option<BorrowedFd<'a>>,
    /// Its hardware address; none lets the kernel draw one.
    pub mac: Option<[u8; 6]>,
}

impl<'a> VethEnd<'a> {
    /// An end named `name` in the socket's own namespace.
    pub fn new(name: &'a str) -> Self {
        Self {
            name,
            namespace: None,
            mac: None,
        }
    }

    /// The same end, in another namespace.
    #[must_use]
    pub fn inside(mut self, namespace: BorrowedFd<'a>) -> Self {
        self.namespace = Some(namespace);
        self
    }

    fn attributes(&self) -> Result<Vec<LinkAttribute>, NetlinkError> {
        let mut attributes = vec![LinkAttribute::IfName(checked_name(self.name)?.to_owned())];
        if let Some(namespace) = self.namespace {
            attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
        }
        if let Some(mac) = self.mac {
            attributes.push(LinkAttribute::Address(mac.to_vec()));
        }
        Ok(attributes)
    }
}

impl Netlink {
    /// The index of the interface called `name`.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if there is none.
    pub fn index_of(&mut self, name: &str) -> Result<u32, NetlinkError> {
        Ok(self.link(name)?.index)
    }

    /// The name of the interface with this index.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if there is none.
    pub fn name_of(&mut self, index: u32) -> Result<String, NetlinkError> {
        Ok(self.link_by_index(index)?.name)
    }

    /// The MTU of an interface, in bytes.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if there is no such interface.
    pub fn mtu(&mut self, index: u32) -> Result<u32, NetlinkError> {
        Ok(self.link_by_index(index)?.mtu)
    }

    /// The interface called `name`.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if there is none.
    pub fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(checked_name(name)?.to_owned()));
        self.query(
            RouteNetlinkMessage::GetLink(message),
            "find interface",
            format_args!("{name}"),
            parse,
        )
    }

    /// The interface with this index.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if there is none.
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.query(
            RouteNetlinkMessage::GetLink(message),
            "find interface",
            format_args!("number {index}"),
            parse,
        )
    }

    /// All interfaces of the namespace.
    ///
    /// # Errors
    /// Only if the kernel refuses the dump or the socket fails.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        self.dump(&message, "list the interfaces", parse)
    }

    /// Brings an interface up.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`], [`NetlinkError::is_permission`], or what its driver says.
    pub fn set_up(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.set_flags(index, LinkFlags::Up, LinkFlags::Up, "bring up")
    }

    /// Takes an interface down.
    ///
    /// # Errors
    /// As [`Netlink::set_up`].
    pub fn set_down(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.set_flags(index, LinkFlags::empty(), LinkFlags::Up, "take down")
    }

    /// Sets the MTU, in bytes.
    ///
    /// # Errors
    /// As [`Netlink::set_up`]; EINVAL if the device cannot have that MTU.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        self.set(index, vec![LinkAttribute::Mtu(mtu)], "set the MTU of")
    }

    /// Sets the length of the transmit queue, in packets.
    ///
    /// # Errors
    /// As [`Netlink::set_up`].
    pub fn set_txqueuelen(&mut self, index: u32, packets: u32) -> Result<(), NetlinkError> {
        let attribute = LinkAttribute::TxQueueLen(packets);
        self.set(index, vec![attribute], "set the queue length of")
    }

    /// Leaves the interface without an IPv6 link-local address of the kernel's making, to be said before it comes up.
    /// Kernels before 3.17 ignore it.
    ///
    /// # Errors
    /// As [`Netlink::set_up`]; EAFNOSUPPORT where IPv6 is off, and no such address would come.
    pub fn set_no_link_local(&mut self, index: u32) -> Result<(), NetlinkError> {
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let attribute = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]);
        self.set(index, vec![attribute], "leave without a link-local address")
    }

    /// Bounds the super-packets that the network stack hands to this interface: bytes and segments.
    /// Kernels before 4.16 ignore it.
    ///
    /// # Errors
    /// As [`Netlink::set_up`]; EINVAL beyond what the device can do.
    pub fn set_gso_max(
        &mut self,
        index: u32,
        size: u32,
        segments: u32,
    ) -> Result<(), NetlinkError> {
        let attributes = vec![
            LinkAttribute::GsoMaxSize(size),
            LinkAttribute::GsoMaxSegs(segments),
        ];
        self.set(index, attributes, "bound the super-packets of")
    }

    /// Sets the hardware address.
    ///
    /// # Errors
    /// As [`Netlink::set_up`].
    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> Result<(), NetlinkError> {
        let attribute = LinkAttribute::Address(mac.to_vec());
        self.set(index, vec![attribute], "set the hardware address of")
    }

    /// Renames an interface, which must be down on kernels before 6.2 or so.
    ///
    /// # Errors
    /// As [`Netlink::set_up`]; [`NetlinkError::is_exists`] if the name is taken.
    pub fn set_name(&mut self, index: u32, name: &str) -> Result<(), NetlinkError> {
        let attribute = LinkAttribute::IfName(checked_name(name)?.to_owned());
        self.set(index, vec![attribute], "rename")
    }

    /// Moves an interface into another network namespace.
    ///
    /// # Errors
    /// As [`Netlink::set_up`]; [`NetlinkError::is_exists`] if the name is taken there.
    pub fn set_netns_fd(
        &mut self,
        index: u32,
        namespace: BorrowedFd<'_>,
    ) -> Result<(), NetlinkError> {
        let attribute = LinkAttribute::NetNsFd(namespace.as_raw_fd());
        self.set(index, vec![attribute], "move to another namespace")
    }

    /// Makes an interface a port of the bridge `master`, or of none.
    ///
    /// # Errors
    /// As [`Netlink::set_up`].
    pub fn enslave(&mut self, index: u32, master: Option<u32>) -> Result<(), NetlinkError> {
        let attribute = LinkAttribute::Controller(master.unwrap_or(0));
        self.set(index, vec![attribute], "attach to a bridge")
    }

    /// Deletes an interface.
    ///
    /// # Errors
    /// As [`Netlink::set_up`]; EOPNOTSUPP for hardware.
    pub fn delete_link(&mut self, index: u32) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let message = RouteNetlinkMessage::DelLink(message);
        self.change_link(index, message, "delete interface")
    }

    /// Makes a veth pair: what goes in at one end comes out at the other.
    ///
    /// # Errors
    /// [`NetlinkError::is_exists`] if a name is taken, [`NetlinkError::is_unsupported`] if the kernel
    /// has no veth.
    pub fn create_veth(&mut self, a: VethEnd<'_>, b: VethEnd<'_>) -> Result<(), NetlinkError> {
        let mut peer = LinkMessage::default();
        peer.attributes = b.attributes()?;
        let mut message = LinkMessage::default();
        message.attributes = a.attributes()?;
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        self.change(
            RouteNetlinkMessage::NewLink(message),
            NLM_F_CREATE | NLM_F_EXCL,
            "create veth pair",
            format_args!("{}, {}", a.name, b.name),
        )
    }

    /// Makes an Ethernet bridge without ports.
    ///
    /// # Errors
    /// As [`Netlink::create_veth`].
    pub fn create_bridge(&mut self, name: &str) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(checked_name(name)?.to_owned()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        self.change(
            RouteNetlinkMessage::NewLink(message),
            NLM_F_CREATE | NLM_F_EXCL,
            "create bridge",
            format_args!("{name}"),
        )
    }

    fn set(
        &mut self,
        index: u32,
        attributes: Vec<LinkAttribute>,
        operation: &'static str,
    ) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = attributes;
        self.change_link(index, RouteNetlinkMessage::SetLink(message), operation)
    }

    fn set_flags(
        &mut self,
        index: u32,
        flags: LinkFlags,
        mask: LinkFlags,
        operation: &'static str,
    ) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = flags;
        message.header.change_mask = mask;
        self.change_link(index, RouteNetlinkMessage::SetLink(message), operation)
    }

    fn change_link(
        &mut self,
        index: u32,
        message: RouteNetlinkMessage,
        operation: &'static str,
    ) -> Result<(), NetlinkError> {
        self.change(message, 0, operation, format_args!("number {index}"))
            .map_err(|error| error.about(self.label(index)))
    }

    /// How errors call the interface `index`: by its name, if it has one still.
    pub(super) fn label(&mut self, index: u32) -> String {
        self.name_of(index)
            .unwrap_or_else(|_| format!("number {index}"))
    }
}

/// `name` if the kernel could accept it.
fn checked_name(name: &str) -> Result<&str, NetlinkError> {
    let bad = |b: u8| b == b'/' || b == b':' || b == 0 || b.is_ascii_whitespace();
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name == "." || name == ".." {
        return Err(NetlinkError::Name(name.to_owned()));
    }
    if name.bytes().any(bad) {
        return Err(NetlinkError::Name(name.to_owned()));
    }
    Ok(name)
}

/// Reads a link message; nothing if it is too short or has no name.
pub(super) fn parse(body: &[u8]) -> Option<Link> {
    let flags = decode_u32(body.get(8..)?)?;
    let mut link = Link {
        index: decode_u32(body.get(4..)?)?,
        name: String::new(),
        mtu: 0,
        up: flags & libc::IFF_UP.cast_unsigned() != 0,
        running: flags & libc::IFF_RUNNING.cast_unsigned() != 0,
        mac: Vec::new(),
        master: None,
        counters: Counters::default(),
    };
    let mut wide = false;
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            IFLA_IFNAME => link.name = decode_str(value),
            IFLA_MTU => link.mtu = decode_u32(value)?,
            IFLA_ADDRESS => link.mac = value.to_vec(),
            IFLA_MASTER => link.master = decode_u32(value),
            IFLA_STATS64 => {
                wide = true;
                link.counters = counters(value, 8);
            }
            // The 32-bit ones wrap every 4 GiB: only for kernels that have nothing else.
            IFLA_STATS if !wide => link.counters = counters(value, 4),
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

/// The first eight fields of `struct rtnl_link_stats` or `rtnl_link_stats64`.
fn counters(value: &[u8], width: usize) -> Counters {
    let field = |position: usize| {
        let Some(bytes) = value.get(position * width..(position + 1) * width) else {
            return 0;
        };
        match *bytes {
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        }
    };
    Counters {
        rx_packets: field(0),
        tx_packets: field(1),
        rx_bytes: field(2),
        tx_bytes: field(3),
        rx_dropped: field(6),
        tx_dropped: field(7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_by_name_and_by_index() {
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.link("lo").unwrap();
        assert_eq!(netlink.link_by_index(lo.index).unwrap().name, "lo");
        assert_eq!(netlink.index_of("lo").unwrap(), lo.index);
        assert!(netlink.links().unwrap().iter().any(|l| l.name == "lo"));
        assert!(lo.mtu >= 1500);
    }

    #[test]
    fn errors_name_the_object_and_tell_what_is_missing() {
        let mut netlink = Netlink::open().unwrap();
        let error = netlink.index_of("no-such-link").unwrap_err();
        assert!(error.is_not_found() && !error.is_exists(), "{error}");
        assert!(error.to_string().contains("no-such-link"), "{error}");
        for name in ["", ".", "a/b", "sixteen-bytes-xx", "a b"] {
            assert!(matches!(netlink.index_of(name), Err(NetlinkError::Name(_))));
        }
    }

    #[test]
    fn short_and_random_bodies_are_refused() {
        for length in 0..40 {
            assert!(parse(&vec![0xff; length]).is_none());
        }
    }
}
