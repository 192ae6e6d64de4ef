//! The interface: making it, and what a process that was killed has left of its own.

use super::kernel::Linux;
use super::owner::Owner;
use super::plane::Plane;
use netio::netlink::{Netlink, NetlinkError, Ovpn, OvpnMode};
use openvpn::data::wire::OpenVpn as Packets;
use plane::{Control, DataPlane};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

/// Names `tun0` and so on that are tried.
const NAMES: usize = 256;

/// Why there is no data plane of the kernel's.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel has none.
    #[error(
        "this kernel has no data plane of OpenVPN: Linux 6.16 or later is needed, with its module `ovpn` (modprobe ovpn); \
         without, set dataplane.kind=user ({0})"
    )]
    NoModule(NetlinkError),
    /// An interface of this name is there.
    #[error("the name {0} is taken by another interface")]
    Taken(String),
    /// The kernel refuses something else.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Descriptors, threads.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A data plane, and its interface's name and number.
pub type Started = (
    Box<dyn DataPlane<Protocol = Packets, Sockets = engine::Sockets, Connection = TcpStream>>,
    String,
    u32,
);

/// Makes an interface of this name, or of the first free one `tun0` and so on, and its data plane, for one peer or `several`.
/// Dropping it takes the interface away.
///
/// # Errors
/// See [`StartError`]. Nothing is left behind.
pub fn start(
    name: Option<&str>,
    several: bool,
    control: Arc<dyn Control>,
) -> Result<Started, StartError> {
    let mut netlink = Netlink::open()?;
    sweep(&mut netlink);
    let mode = match several {
        true => OvpnMode::ManyPeers,
        false => OvpnMode::OnePeer,
    };
    let name = match name {
        Some(name) => create(&mut netlink, name, mode).map(|()| name.to_owned()),
        None => {
            let mut names = (0..NAMES).map(|number| format!("tun{number}"));
            let made = names.find_map(|name| match create(&mut netlink, &name, mode) {
                Err(StartError::Taken(_)) => None,
                Ok(()) => Some(Ok(name)),
                Err(error) => Some(Err(error)),
            });
            made.unwrap_or_else(|| Err(StartError::Taken("tun%d".to_owned())))
        }
    }?;
    let index = netlink.index_of(&name)?;
    let plane = of(index, several, control);
    match plane {
        Ok(plane) => Ok((Box::new(plane), name, index)),
        Err(error) => {
            let _ = netlink.delete_link(index);
            Err(error)
        }
    }
}

fn of(index: u32, several: bool, control: Arc<dyn Control>) -> Result<Plane<Linux>, StartError> {
    let mut netlink = Netlink::open()?;
    netlink.set_alias(index, &Owner::this().to_string())?;
    let kernel = Linux {
        ovpn: Ovpn::open(index)?,
        netlink,
        index,
    };
    Plane::start(kernel, index, several, control)
}

fn create(netlink: &mut Netlink, name: &str, mode: OvpnMode) -> Result<(), StartError> {
    netlink.create_ovpn(name, mode).map_err(|error| {
        if error.is_exists() {
            StartError::Taken(name.to_owned())
        } else if error.is_unsupported() {
            StartError::NoModule(error)
        } else {
            error.into()
        }
    })
}

/// Takes interfaces away whose process is no more.
fn sweep(netlink: &mut Netlink) {
    let here = Owner::this();
    for interface in netlink.ovpn_interfaces().unwrap_or_default() {
        if Owner::of(&interface.alias).is_some_and(|it| it.is_gone(&here)) {
            match netlink.delete_link(interface.index) {
                Ok(()) => log::info!("{}: deleted, as its process is gone", interface.name),
                Err(error) => log::debug!("{error}"),
            }
        }
    }
}
