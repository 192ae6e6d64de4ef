//! Opening the two sockets of an interface on one port.

use config::settings::{self, DataplaneSettings};
use engine::Sockets;
use netio::udp::{Family, MtuDiscovery, SocketError, SocketOptions, UdpSocket};
use std::net::IpAddr;

/// Random ports tried until one is free in both families.
const TRIES: usize = 16;

/// Settings that the sockets of an interface share.
#[derive(Clone, Debug)]
pub(crate) struct SocketPlan {
    pub(crate) port: u16,
    pub(crate) fwmark: u32,
    pub(crate) device: Option<String>,
    /// The local address; `None` for all addresses.
    pub(crate) address: Option<IpAddr>,
    pub(crate) buffer: usize,
    pub(crate) gso: bool,
    pub(crate) gro: bool,
    pub(crate) mmsg: bool,
    pub(crate) aqm: bool,
    pub(crate) mtu_discovery: MtuDiscovery,
}

/// Converts the setting `mtu-disc`, or OpenVPN's directive of that name, to the socket's.
pub fn mtu_discovery(setting: settings::MtuDiscovery) -> MtuDiscovery {
    match setting {
        settings::MtuDiscovery::No => MtuDiscovery::No,
        settings::MtuDiscovery::Maybe => MtuDiscovery::Maybe,
        settings::MtuDiscovery::Yes => MtuDiscovery::Yes,
    }
}

impl SocketPlan {
    pub(crate) fn new(settings: &DataplaneSettings, device: Option<String>) -> Self {
        Self {
            port: 0,
            fwmark: 0,
            device,
            address: None,
            buffer: settings.socket_buffer.unwrap_or_else(default_buffer),
            gso: settings.udp_gso.wanted(),
            gro: settings.udp_gro.wanted(),
            mmsg: settings.mmsg.wanted(),
            aqm: settings.aqm.wanted(),
            mtu_discovery: mtu_discovery(settings.mtu_disc),
        }
    }

    /// Opens both sockets. A kernel without one of the families gets only the other.
    pub(crate) fn open(&self) -> Result<Sockets, SocketError> {
        for _ in 1..TRIES {
            match self.try_open() {
                // The other family has this random port in use: try another port.
                Err(SocketError::PortInUse(_)) if self.port == 0 => {}
                result => return result,
            }
        }
        self.try_open()
    }

    fn try_open(&self) -> Result<Sockets, SocketError> {
        let mut options = SocketOptions {
            port: self.port,
            address: self.address,
            fwmark: self.fwmark,
            device: self.device.clone(),
            buffer: Some(self.buffer),
            gso: self.gso,
            gro: self.gro,
            mmsg: self.mmsg,
            aqm: self.aqm,
            mtu_discovery: self.mtu_discovery,
            ecn: true,
            // Peers may send to any of our addresses.
            calls: false,
        };
        let wanted = |family| {
            let own = |ip: IpAddr| ip.is_ipv4() == (family == Family::V4);
            self.address.is_none_or(own)
        };
        let mut bind = |family| match UdpSocket::bind(family, &options) {
            Ok(socket) => {
                options.port = socket.port();
                Ok(Some(socket))
            }
            Err(SocketError::NoFamily(_)) => Ok(None),
            Err(e) => Err(e),
        };
        let mut open = |family| match wanted(family) {
            true => bind(family),
            false => Ok(None),
        };
        let v4 = open(Family::V4)?;
        let v6 = open(Family::V6)?;
        if v4.is_none() && v6.is_none() {
            return Err(SocketError::NoFamily(Family::V4));
        }
        Ok(Sockets { v4, v6 })
    }
}

/// A sixty-fourth of the memory, between 1 and 4 MiB: enough for a burst of a fast uplink on a large machine, little
/// on a small one. The kernel counts buffers at up to twice their size.
fn default_buffer() -> usize {
    let total = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<usize>().ok()
        });
    total
        .map_or(1 << 20, |kib| (kib << 10) / 64)
        .clamp(1 << 20, 4 << 20)
}
