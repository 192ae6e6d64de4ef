//! Interfaces of `ovpn`, the kernel's data plane of OpenVPN.

use crate::netlink::request::Body;
use crate::netlink::{Netlink, NetlinkError};

/// Within the data of IFLA_LINKINFO, linux/if_link.h.
const IFLA_OVPN_MODE: u16 = 1;

/// How many peers an `ovpn` interface has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OvpnMode {
    /// One peer, which receives every packet.
    OnePeer,
    /// Several peers; the host's routes choose the peer of a packet.
    ManyPeers,
}

impl Netlink {
    /// Makes an `ovpn` interface without peers; [`Ovpn`](super::Ovpn) controls it. The kernel loads the module if it
    /// has one.
    ///
    /// # Errors
    /// The errors of [`Netlink::create_veth`]; [`NetlinkError::is_unsupported`] if the kernel has no such kind.
    pub fn create_ovpn(&mut self, name: &str, mode: OvpnMode) -> Result<(), NetlinkError> {
        let mode = match mode {
            OvpnMode::OnePeer => 0,
            OvpnMode::ManyPeers => 1,
        };
        let data = Body::attributes().with(IFLA_OVPN_MODE, &[mode]);
        let operation = "create the interface of kernel OpenVPN";
        self.create_link(name, "ovpn", Some(&data), operation)
    }
}
