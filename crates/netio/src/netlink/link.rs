//! Links: the interfaces of a namespace.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use super::request::Body;
use super::{Netlink, NetlinkError, attributes, decode_str, decode_u32};

/// Bytes of `struct ifinfomsg`, which every link message starts with.
pub(super) const HEADER_SIZE: usize = 16;

// Message types of linux/rtnetlink.h.
pub(super) const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
pub(super) const RTM_GETLINK: u16 = 18;
pub(super) const RTM_SETLINK: u16 = 19;

// Attribute numbers of linux/if_link.h.
const IFLA_ADDRESS: u16 = 1;
pub(super) const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_STATS: u16 = 7;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
pub(super) const IFLA_IFALIAS: u16 = 20;
pub(super) const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_GROUP: u16 = 27;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_GSO_MAX_SIZE: u16 = 41;

// Attributes within IFLA_LINKINFO, and of linux/veth.h within its data.
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

// Attribute within the AF_INET6 part of IFLA_AF_SPEC.
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;

/// The traffic of an interface since it was made.
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Index, unique in its namespace.
    pub index: u32,
    /// Name, at most 15 bytes.
    pub name: String,
    /// The driver's kind, such as `bridge`; empty if the driver does not say.
    pub kind: String,
    /// Largest packet, in bytes without the link layer header.
    pub mtu: u32,
    /// Whether the interface is administratively up.
    pub up: bool,
    /// Whether the interface also has a carrier.
    pub running: bool,
    /// The hardware address, empty for a TUN.
    pub mac: Vec<u8>,
    /// The bridge or bond that the interface belongs to.
    pub master: Option<u32>,
    /// Group of the interface (`ip link set group`), 0 unless a program or the user has changed it.
    pub group: u32,
    /// Alias of the interface (`ip link set alias`), empty if it has none.
    pub alias: String,
    /// Counters of packets and bytes that the interface carried.
    pub counters: Counters,
}

/// One end of a veth pair to be made.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// Interface name of this end.
    pub name: &'a str,
    /// The namespace to make it in; `None` is the socket's own.
    pub namespace: Option<BorrowedFd<'a>>,
    /// Hardware address of this end; `None` lets the kernel choose a random one.
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

    /// Puts the end into another namespace.
    #[must_use]
    pub fn inside(mut self, namespace: BorrowedFd<'a>) -> Self {
        self.namespace = Some(namespace);
        self
    }

    fn body(&self) -> Result<Body, NetlinkError> {
        let mut body = body(0);
        body.push_text(IFLA_IFNAME, checked_name(self.name)?);
        if let Some(namespace) = self.namespace {
            body.push(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        }
        if let Some(mac) = self.mac {
            body.push(IFLA_ADDRESS, &mac);
        }
        Ok(body)
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
        let mut body = body(0);
        body.push_text(IFLA_IFNAME, checked_name(name)?);
        self.query(
            RTM_GETLINK,
            &body,
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
        self.query(
            RTM_GETLINK,
            &body(index),
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
        self.dump(RTM_GETLINK, &body(0), "list the interfaces", parse)
    }

    /// Brings an interface up.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`], [`NetlinkError::is_permission`], or the driver's error.
    pub fn set_up(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.set_flag_up(index, true, "bring up")
    }

    /// Takes an interface down.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`].
    pub fn set_down(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.set_flag_up(index, false, "take down")
    }

    /// Sets the MTU, in bytes.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`]; EINVAL if the device cannot have that MTU.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let body = body(index).with(IFLA_MTU, &mtu.to_ne_bytes());
        self.set(index, &body, "set the MTU of")
    }

    /// Sets the length of the transmit queue, in packets.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`].
    pub fn set_txqueuelen(&mut self, index: u32, packets: u32) -> Result<(), NetlinkError> {
        let body = body(index).with(IFLA_TXQLEN, &packets.to_ne_bytes());
        self.set(index, &body, "set the queue length of")
    }

    /// Makes the kernel give the interface no IPv6 link-local address; to be called before the interface comes up.
    /// Kernels before 3.17 ignore it.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`]; EAFNOSUPPORT if IPv6 is off, when the kernel would add no such address
    /// anyway.
    pub fn set_no_link_local(&mut self, index: u32) -> Result<(), NetlinkError> {
        let mode = Body::attributes().with(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
        let mut families = Body::attributes();
        families.push_body(libc::AF_INET6 as u16, &mode);
        let mut body = body(index);
        body.push_body(IFLA_AF_SPEC, &families);
        self.set(index, &body, "leave without a link-local address")
    }

    /// Limits the super-packets that the network stack hands to this interface, in bytes and segments. Kernels before
    /// 4.16 ignore it.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`]; EINVAL beyond the device's abilities.
    pub fn set_gso_max(
        &mut self,
        index: u32,
        size: u32,
        segments: u32,
    ) -> Result<(), NetlinkError> {
        let body = body(index)
            .with(IFLA_GSO_MAX_SIZE, &size.to_ne_bytes())
            .with(IFLA_GSO_MAX_SEGS, &segments.to_ne_bytes());
        self.set(index, &body, "bound the super-packets of")
    }

    /// Sets the hardware address.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`].
    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> Result<(), NetlinkError> {
        let body = body(index).with(IFLA_ADDRESS, &mac);
        self.set(index, &body, "set the hardware address of")
    }

    /// Renames an interface, which must be down on kernels before 6.2 or so.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`]; [`NetlinkError::is_exists`] if the name is taken.
    pub fn set_name(&mut self, index: u32, name: &str) -> Result<(), NetlinkError> {
        let mut body = body(index);
        body.push_text(IFLA_IFNAME, checked_name(name)?);
        self.set(index, &body, "rename")
    }

    /// Puts an interface into a group; changes nothing else.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`].
    pub fn set_group(&mut self, index: u32, group: u32) -> Result<(), NetlinkError> {
        let body = body(index).with(IFLA_GROUP, &group.to_ne_bytes());
        self.set(index, &body, "set the group of")
    }

    /// Sets an interface's alias, which `ip link` shows: at most 255 bytes.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`].
    pub fn set_alias(&mut self, index: u32, alias: &str) -> Result<(), NetlinkError> {
        let body = body(index).with(IFLA_IFALIAS, alias.as_bytes());
        self.set(index, &body, "set the alias of")
    }

    /// Moves an interface into another network namespace.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`]; [`NetlinkError::is_exists`] if the name is taken there.
    pub fn set_netns_fd(
        &mut self,
        index: u32,
        namespace: BorrowedFd<'_>,
    ) -> Result<(), NetlinkError> {
        let body = body(index).with(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        self.set(index, &body, "move to another namespace")
    }

    /// Makes an interface a port of the bridge `master`, or of no bridge.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`].
    pub fn enslave(&mut self, index: u32, master: Option<u32>) -> Result<(), NetlinkError> {
        let body = body(index).with(IFLA_MASTER, &master.unwrap_or(0).to_ne_bytes());
        self.set(index, &body, "attach to a bridge")
    }

    /// Deletes an interface.
    ///
    /// # Errors
    /// The errors of [`Netlink::set_up`]; EOPNOTSUPP for hardware.
    pub fn delete_link(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.change_link(RTM_DELLINK, index, &body(index), "delete interface")
    }

    /// Makes a veth pair: packets sent into one end come out at the other.
    ///
    /// # Errors
    /// [`NetlinkError::is_exists`] if a name is taken, [`NetlinkError::is_unsupported`] if the kernel
    /// has no veth.
    pub fn create_veth(&mut self, a: VethEnd<'_>, b: VethEnd<'_>) -> Result<(), NetlinkError> {
        let mut peer = Body::attributes();
        peer.push_body(VETH_INFO_PEER, &b.body()?);
        let mut info = Body::attributes();
        info.push_text(IFLA_INFO_KIND, "veth");
        info.push_body(IFLA_INFO_DATA, &peer);
        let mut body = a.body()?;
        body.push_body(IFLA_LINKINFO, &info);
        self.change(
            RTM_NEWLINK,
            &body,
            NLM_F_CREATE | NLM_F_EXCL,
            "create veth pair",
            format_args!("{}, {}", a.name, b.name),
        )
    }

    /// Makes an Ethernet bridge without ports.
    ///
    /// # Errors
    /// The errors of [`Netlink::create_veth`].
    pub fn create_bridge(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.create_link(name, "bridge", None, "create bridge")
    }

    /// Makes an interface of this kind, with the driver's own attributes.
    pub(super) fn create_link(
        &mut self,
        name: &str,
        kind: &str,
        data: Option<&Body>,
        operation: &'static str,
    ) -> Result<(), NetlinkError> {
        let mut info = Body::attributes();
        info.push_text(IFLA_INFO_KIND, kind);
        if let Some(data) = data {
            info.push_body(IFLA_INFO_DATA, data);
        }
        let mut body = body(0);
        body.push_text(IFLA_IFNAME, checked_name(name)?);
        body.push_body(IFLA_LINKINFO, &info);
        self.change(
            RTM_NEWLINK,
            &body,
            NLM_F_CREATE | NLM_F_EXCL,
            operation,
            format_args!("{name}"),
        )
    }

    fn set(
        &mut self,
        index: u32,
        body: &Body,
        operation: &'static str,
    ) -> Result<(), NetlinkError> {
        self.change_link(RTM_SETLINK, index, body, operation)
    }

    fn set_flag_up(
        &mut self,
        index: u32,
        up: bool,
        operation: &'static str,
    ) -> Result<(), NetlinkError> {
        let mask = libc::IFF_UP.cast_unsigned();
        let body = header(index, if up { mask } else { 0 }, mask);
        self.set(index, &body, operation)
    }

    fn change_link(
        &mut self,
        kind: u16,
        index: u32,
        body: &Body,
        operation: &'static str,
    ) -> Result<(), NetlinkError> {
        self.change(kind, body, 0, operation, format_args!("number {index}"))
            .map_err(|error| error.about(self.label(index)))
    }

    /// The name for the interface `index` in errors: its own, if it still exists.
    pub(super) fn label(&mut self, index: u32) -> String {
        self.name_of(index)
            .unwrap_or_else(|_| format!("number {index}"))
    }
}

/// A message about the interface `index`, or if that is 0 about the one that attributes name. It changes no flag.
pub(super) fn body(index: u32) -> Body {
    header(index, 0, 0)
}

/// A header that sets the flags in both `mask` and `flags`, and clears the other flags of `mask`.
fn header(index: u32, flags: u32, mask: u32) -> Body {
    let mut header = [0; HEADER_SIZE];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..].copy_from_slice(&mask.to_ne_bytes());
    Body::new(&header)
}

/// Returns `name` if the kernel could accept it.
pub(super) fn checked_name(name: &str) -> Result<&str, NetlinkError> {
    let bad = |b: u8| b == b'/' || b == b':' || b == 0 || b.is_ascii_whitespace();
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name == "." || name == ".." {
        return Err(NetlinkError::Name(name.to_owned()));
    }
    if name.bytes().any(bad) {
        return Err(NetlinkError::Name(name.to_owned()));
    }
    Ok(name)
}

/// Reads a link message; `None` if it is too short or has no name.
pub(super) fn parse(body: &[u8]) -> Option<Link> {
    let flags = decode_u32(body.get(8..)?)?;
    let mut link = Link {
        index: decode_u32(body.get(4..)?)?,
        up: flags & libc::IFF_UP.cast_unsigned() != 0,
        running: flags & libc::IFF_RUNNING.cast_unsigned() != 0,
        ..Link::default()
    };
    let mut wide = false;
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            IFLA_IFNAME => link.name = decode_str(value),
            IFLA_MTU => link.mtu = decode_u32(value)?,
            IFLA_ADDRESS => link.mac = value.to_vec(),
            IFLA_MASTER => link.master = decode_u32(value),
            IFLA_GROUP => link.group = decode_u32(value)?,
            IFLA_IFALIAS => link.alias = decode_str(value),
            IFLA_LINKINFO => {
                let mut kinds = attributes(value).filter(|(kind, _)| *kind == IFLA_INFO_KIND);
                link.kind = kinds.next().map_or_else(String::new, |it| decode_str(it.1));
            }
            IFLA_STATS64 => {
                wide = true;
                link.counters = counters(value, 8);
            }
            // The 32-bit counters wrap every 4 GiB: used only for kernels without 64-bit ones.
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
