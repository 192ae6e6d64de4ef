//! The interface and its data plane, for clients and servers.

use crate::tun_probe::TunProbe;
use crate::wireguard::{SocketPlan, mtu_discovery};
use config::lines::Line;
use config::openvpn::{Connection, Device, Family, OpenVpn, Sockets as SocketOptionsOf};
use config::settings::DataplaneSettings;
use engine::Sockets;
use netio::netlink::{Netlink, NetlinkError};
use netio::tun::{Tun, TunError, TunOptions, TunVerdict};
use netio::udp::{self, SelfTest, SocketError, SocketOptions, UdpSocket};
use openvpn::data::wire::OpenVpn as Packets;
use plane::{PeerId, RouteChange, Wire};
use std::cell::{Cell, OnceCell};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use super::kernel_plane;
use crate::inbox::Inbox;
use crate::plane_options::plane_options;

/// Packets that the TUN may queue. The kernel's default of 500 is a burst of a few milliseconds.
const TXQUEUELEN: u32 = 1000;

/// Default size of each UDP socket's buffers, in bytes.
const SOCKET_BUFFER: usize = 2 << 20;

/// Data plane of an interface, with its sockets.
pub(super) type SocketPlane = userspace::Plane<Packets>;

/// Error while making the interface or a socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeviceError {
    /// The TUN could not be made.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The kernel's data plane could not be started.
    #[cfg(feature = "kernel")]
    #[error(transparent)]
    Kernel(#[from] kernelspace::StartError),
    /// The link could not be set up.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The UDP socket could not be opened.
    #[error(transparent)]
    Udp(#[from] SocketError),
    /// The socket's local address could not be used.
    #[error("local {host}: {reason}")]
    Local {
        /// The host as configured.
        host: String,
        /// The reason.
        reason: String,
    },
    /// An I/O error with descriptors or threads.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl DeviceError {
    /// Whether the error is permanent: the kernel's data plane is missing or not permitted.
    pub(super) fn lasts(&self) -> bool {
        match self {
            #[cfg(feature = "kernel")]
            Self::Kernel(error) => {
                use kernelspace::StartError::{NoInterface, NoModule, NotAllowed, OtherModule};
                matches!(
                    error,
                    NoModule | OtherModule(_) | NoInterface(_) | NotAllowed(_)
                )
            }
            _ => false,
        }
    }
}

/// The TUN's self-test, which runs while the start prepares the rest.
pub(super) struct Rungs(Cell<Option<TunProbe>>, OnceCell<TunVerdict>);

impl Rungs {
    /// Starts the self-test.
    pub(super) fn test(config: &OpenVpn, settings: &DataplaneSettings) -> Self {
        // A client of the kernel has a TUN only if a management client may move it.
        let has_tun = !kernel_plane::is_wanted(settings) || config.service.management.is_some();
        let tested = !config.device.null && has_tun;
        let test = tested.then(|| TunProbe::start(settings));
        Self(Cell::new(test), OnceCell::new())
    }

    /// Returns the self-test's result; the test runs once, even if the device is recreated.
    fn verdict(&self) -> &TunVerdict {
        self.1.get_or_init(|| match self.0.take() {
            Some(test) => test.verdict(),
            None => TunVerdict::not_run("no TUN"),
        })
    }
}

/// An interface's name and index; the index is 0 for `dev null`.
pub(super) struct Link {
    pub name: String,
    pub index: u32,
}

/// Number of peers of an interface of the kernel's data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peers {
    /// One peer: a client's server.
    One,
    /// Several peers: a server's clients.
    #[cfg(feature = "server")]
    Several,
}

/// Makes the interface and starts its workers; with `kernel` makes one of the kernel's data plane for these `Peers`.
///
/// # Errors
/// See [`DeviceError`]. A failed start leaves nothing behind.
#[allow(clippy::too_many_arguments, reason = "called twice")]
pub(super) fn start(
    packets: Packets,
    device: &Device,
    rungs: &Rungs,
    settings: &DataplaneSettings,
    kernel: Option<Peers>,
    mtu: u16,
    fragments: bool,
    inbox: &Arc<Inbox>,
    backpressure: bool,
) -> Result<(Box<SocketPlane>, Link), DeviceError> {
    let io = |what| move |source| DeviceError::Io { what, source };
    #[cfg(feature = "kernel")]
    if let Some(peers) = kernel {
        return start_kernel(device, peers, mtu, inbox);
    }
    // `kernel_plane::check` refused it before.
    #[cfg(not(feature = "kernel"))]
    let _ = kernel;
    let tun = if device.null {
        Tun::null().map_err(io("eventfd"))?
    } else {
        let options = TunOptions {
            // `fragment` needs packets one by one.
            tso: settings.tun_gso.wanted() && !fragments,
            uso: settings.tun_uso.wanted() && !fragments,
            gro: settings.tun_gro.wanted() && !fragments,
        };
        let pattern = if device.is_dynamic() {
            "tun%d"
        } else {
            &device.name
        };
        rungs.verdict().create(pattern, options)?
    };
    let mut link = Link {
        name: tun.name().to_owned(),
        index: 0,
    };
    if !device.null {
        let mut netlink = Netlink::open()?;
        link.index = netlink.index_of(&link.name)?;
        #[cfg(feature = "kernel")]
        kernelspace::clean(link.index)?;
        prepare(&mut netlink, link.index, mtu)?;
        let length = device.queue_length.unwrap_or(TXQUEUELEN);
        if let Err(e) = netlink.set_txqueuelen(link.index, length) {
            log::debug!("{e}");
        }
    }
    let options = plane_options(settings, mtu.into(), backpressure);
    let control: Arc<Inbox> = Arc::clone(inbox);
    let plane = userspace::openvpn(tun, packets, control, &options).map_err(io("threads"))?;
    Ok((plane, link))
}

/// Like [`start`], with the kernel's data plane, which queues no packets on the interface.
#[cfg(feature = "kernel")]
fn start_kernel(
    device: &Device,
    peers: Peers,
    mtu: u16,
    inbox: &Arc<Inbox>,
) -> Result<(Box<SocketPlane>, Link), DeviceError> {
    let name = (!device.is_dynamic()).then_some(device.name.as_str());
    // A TUN that the last program has left holds the name until it is closed.
    #[cfg(feature = "handover")]
    drop(name.map(netio::tun::Kept::of));
    let control: Arc<Inbox> = Arc::clone(inbox);
    let (plane, name, index) = kernelspace::start(name, peers != Peers::One, control)?;
    prepare(&mut Netlink::open()?, index, mtu)?;
    plane.set_mtu(mtu.into());
    Ok((plane, Link { name, index }))
}

/// Sets up an interface of either data plane.
fn prepare(netlink: &mut Netlink, index: u32, mtu: u16) -> Result<(), NetlinkError> {
    netlink.set_mtu(index, mtu.into())?;
    // Servers refuse packets from the kernel's own link-local address.
    if let Err(e) = netlink.set_no_link_local(index) {
        log::debug!("{e}");
    }
    Ok(())
}

/// Opens the UDP sockets of a connection; `only` restricts them to one family. With `shares`, sockets of the kernel's
/// data plane may use their ports later.
///
/// # Errors
/// See [`DeviceError`].
pub(super) fn open_udp(
    config: &OpenVpn,
    connection: &Connection,
    settings: &DataplaneSettings,
    only: Option<udp::Family>,
    shares: bool,
) -> Result<Sockets, DeviceError> {
    let local = &connection.local;
    let addresses = match &local.host {
        Some(host) => Some(resolve_local(host, connection.protocol.family)?),
        None => None,
    };
    #[cfg(not(feature = "kernel"))]
    let _ = shares;
    let port = if local.bind { local.port } else { 0 };
    let gso = takes_segments(settings);
    let discovery = connection.mtu.discovery.unwrap_or(settings.mtu_disc);
    let shared = |address| {
        let SocketOptionsOf {
            send_buffer,
            receive_buffer,
            mark,
            device,
            ..
        } = &config.sockets;
        let buffer = send_buffer.max(receive_buffer).filter(|n| *n > 0);
        SocketOptions {
            port,
            address,
            fwmark: mark.unwrap_or(0),
            device: device.clone(),
            buffer: Some(
                buffer
                    .map_or(SOCKET_BUFFER, |n| n as usize)
                    .max(SOCKET_BUFFER),
            ),
            gso,
            gro: settings.udp_gro.wanted(),
            mmsg: settings.mmsg.wanted(),
            aqm: settings.aqm.wanted(),
            mtu_discovery: mtu_discovery(discovery),
            ecn: Packets::ECN,
            // With `float`, the server may move and reach this client at another local address, from which answers must
            // then leave.
            calls: config.server().is_none() && !connection.float,
        }
    };
    let open = |family, v6: bool| -> Result<Option<UdpSocket>, DeviceError> {
        if only.is_some_and(|only| only != family) {
            return Ok(None);
        }
        let address = match &addresses {
            None => None,
            Some(all) => match all.iter().find(|ip| ip.is_ipv6() == v6) {
                Some(ip) => Some(*ip),
                None => return Ok(None),
            },
        };
        match UdpSocket::bind(family, &shared(address)) {
            #[cfg(feature = "kernel")]
            Ok(mut socket) if shares => {
                // A tunnel whose port cannot be shared stays in user space.
                if let Err(error) = socket.share_port(&shared(address)) {
                    log::debug!("{error}");
                }
                Ok(Some(socket))
            }
            Ok(socket) => Ok(Some(socket)),
            Err(SocketError::NoFamily(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    };
    let bound = families(config, connection);
    let wants = |family| bound == Family::Any || bound == family;
    let v4 = if wants(Family::V4) && !local.ipv6_only {
        open(udp::Family::V4, false)?
    } else {
        None
    };
    let v6 = if wants(Family::V6) {
        open(udp::Family::V6, true)?
    } else {
        None
    };
    if v4.is_none() && v6.is_none() {
        if let (Some(host), Some(all), Some(only)) = (&local.host, &addresses, only)
            && !all
                .iter()
                .any(|ip| family_of(SocketAddr::new(*ip, 0)) == only)
        {
            return Err(DeviceError::Local {
                host: host.clone(),
                reason: "it has no address of the server's family".to_owned(),
            });
        }
        return Err(SocketError::NoFamily(only.unwrap_or(udp::Family::V4)).into());
    }
    Ok(Sockets { v4, v6 })
}

/// Opens the UDP sockets of one of several uplinks, in both families.
///
/// # Errors
/// See [`DeviceError`].
pub(super) fn open_line(
    config: &OpenVpn,
    settings: &DataplaneSettings,
    line: &Line,
    port: u16,
    mark: u32,
) -> Result<Sockets, DeviceError> {
    let options = &config.sockets;
    let wanted = options.send_buffer.max(options.receive_buffer);
    let discovery = config.connections.iter().find_map(|it| it.mtu.discovery);
    let plan = SocketPlan {
        port,
        fwmark: mark,
        address: line.source,
        buffer: wanted.map_or(SOCKET_BUFFER, |n| SOCKET_BUFFER.max(n as usize)),
        gso: takes_segments(settings),
        mtu_discovery: mtu_discovery(discovery.unwrap_or(settings.mtu_disc)),
        ..SocketPlan::new(settings, line.interface.clone())
    };
    Ok(plan.open()?)
}

/// Whether the socket may send segment trains that the kernel cuts (GSO).
fn takes_segments(settings: &DataplaneSettings) -> bool {
    let mut gso = settings.udp_gso.wanted();
    if gso && let SelfTest::Failed(why) = udp::self_test() {
        log::warn!("udp-gso: this kernel damages segmented datagrams ({why}); off");
        gso = false;
    }
    gso
}

/// Returns the families in which a connection's sockets are bound. A server's `udp6` and `tcp6-server` also take IPv4,
/// as stock's socket without `IPV6_V6ONLY` does. With a local address or `bind ipv6only` they do not.
pub(super) fn families(config: &OpenVpn, connection: &Connection) -> Family {
    let (local, family) = (&connection.local, connection.protocol.family);
    let server = config.server().is_some();
    match server && family == Family::V6 && local.host.is_none() && !local.ipv6_only {
        true => Family::Any,
        false => family,
    }
}

/// Resolves a name or an address to local addresses.
pub(super) fn resolve_local(host: &str, family: Family) -> Result<Vec<IpAddr>, DeviceError> {
    let local = |reason: String| DeviceError::Local {
        host: host.to_owned(),
        reason,
    };
    let found = (host, 0)
        .to_socket_addrs()
        .map_err(|e| local(e.to_string()))?;
    let fits = |ip: &IpAddr| match family {
        Family::Any => true,
        Family::V4 => ip.is_ipv4(),
        Family::V6 => ip.is_ipv6(),
    };
    let found: Vec<IpAddr> = found.map(|addr| addr.ip()).filter(fits).collect();
    if found.is_empty() {
        return Err(local(
            "it has no address of the family that proto requires".into(),
        ));
    }
    Ok(found)
}

/// Returns an address's family, for sockets.
pub(super) fn family_of(addr: SocketAddr) -> udp::Family {
    if addr.is_ipv4() {
        udp::Family::V4
    } else {
        udp::Family::V6
    }
}

/// Returns the default routes of both families, to one peer.
pub(super) fn everywhere(peer: PeerId) -> [RouteChange; 2] {
    let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    all.map(|address| RouteChange::Add {
        address,
        len: 0,
        peer,
    })
}

#[cfg(test)]
mod tests;
