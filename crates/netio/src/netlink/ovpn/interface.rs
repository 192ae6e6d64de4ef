//! Interfaces of `ovpn`, the kernel's data plane of OpenVPN.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use crate::netlink::link::{
    HEADER_SIZE, IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO,
    RTM_GETLINK, RTM_NEWLINK, body, checked_name,
};
use crate::netlink::request::Body;
use crate::netlink::{Netlink, NetlinkError, attributes, decode_str, decode_u32};

/// Within the data of IFLA_LINKINFO, linux/if_link.h.
const IFLA_OVPN_MODE: u16 = 1;

const KIND: &str = "ovpn";

/// How many peers an `ovpn` interface has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OvpnMode {
    /// One, which receives every packet.
    OnePeer,
    /// Several; the host's routes choose the peer of a packet.
    ManyPeers,
}

impl Netlink {
    /// Makes an `ovpn` interface without peers; [`Ovpn`](super::Ovpn) controls it. The kernel loads the module if it
    /// has one.
    ///
    /// # Errors
    /// The errors of [`Netlink::create_veth`]; the kernel needs Linux 6.16.
    pub fn create_ovpn(&mut self, name: &str, mode: OvpnMode) -> Result<(), NetlinkError> {
        let mode = match mode {
            OvpnMode::OnePeer => 0,
            OvpnMode::ManyPeers => 1,
        };
        let data = Body::attributes().with(IFLA_OVPN_MODE, &[mode]);
        let mut info = Body::attributes();
        info.push_text(IFLA_INFO_KIND, KIND);
        info.push_body(IFLA_INFO_DATA, &data);
        let mut body = body(0);
        body.push_text(IFLA_IFNAME, checked_name(name)?);
        body.push_body(IFLA_LINKINFO, &info);
        self.change(
            RTM_NEWLINK,
            &body,
            NLM_F_CREATE | NLM_F_EXCL,
            "create the interface of kernel OpenVPN",
            format_args!("{name}"),
        )
    }

    /// All `ovpn` interfaces that have an alias.
    ///
    /// # Errors
    /// Only if the kernel refuses the dump or the socket fails.
    pub fn ovpn_interfaces(&mut self) -> Result<Vec<OvpnInterface>, NetlinkError> {
        self.dump(
            RTM_GETLINK,
            &body(0),
            "list the interfaces of kernel OpenVPN",
            parse,
        )
    }
}

/// An `ovpn` interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OvpnInterface {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its alias.
    pub alias: String,
}

fn parse(body: &[u8]) -> Option<OvpnInterface> {
    let index = decode_u32(body.get(4..)?)?;
    let (mut name, mut alias, mut ours) = (None, None, false);
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            IFLA_IFNAME => name = Some(decode_str(value)),
            IFLA_IFALIAS => alias = Some(decode_str(value)),
            IFLA_LINKINFO => {
                let mut kinds = attributes(value).filter(|(kind, _)| *kind == IFLA_INFO_KIND);
                ours = kinds.any(|(_, kind)| decode_str(kind) == KIND);
            }
            _ => {}
        }
    }
    Some(OvpnInterface {
        index,
        name: name?,
        alias: alias.filter(|_| ours)?,
    })
}
