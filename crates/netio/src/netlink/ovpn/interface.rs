//! Interfaces of the kernel's data plane of OpenVPN.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use super::super::link::{
    IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, RTM_NEWLINK, body, checked_name,
};
use super::super::request::Body;
use super::super::{Netlink, NetlinkError};

/// Within the data of IFLA_LINKINFO, linux/if_link.h.
const IFLA_OVPN_MODE: u16 = 1;

/// How many peers an interface of the kernel's OpenVPN has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OvpnMode {
    /// One, to which everything is sent.
    OnePeer,
    /// Several, to which packets find their way by the host's routes.
    ManyPeers,
}

impl Netlink {
    /// Makes an interface of the kernel's OpenVPN, without peers. Its data plane is [`Ovpn`](super::Ovpn). A kernel that
    /// has it as a module loads it.
    ///
    /// # Errors
    /// As [`Netlink::create_veth`]; the kernel needs Linux 6.16.
    pub fn create_ovpn(&mut self, name: &str, mode: OvpnMode) -> Result<(), NetlinkError> {
        let mode = match mode {
            OvpnMode::OnePeer => 0,
            OvpnMode::ManyPeers => 1,
        };
        let data = Body::attributes().with(IFLA_OVPN_MODE, &[mode]);
        let mut info = Body::attributes();
        info.push_text(IFLA_INFO_KIND, "ovpn");
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
}
