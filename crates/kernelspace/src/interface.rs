//! Makes the interface, and removes interfaces that killed processes have left.

use super::AnyPlane;
use super::kernel::Linux;
use super::owner::Owner;
use super::plane::{Plane, StartError};
use netio::netlink::{Netlink, NetlinkError, Ovpn, OvpnFamily, OvpnMode, Redirection};
use plane::Control;
use std::sync::Arc;

/// Number of names `tun0`, `tun1` and so on that are tried.
const NAMES: usize = 256;

/// A peer number that no new interface has.
const ABSENT: u32 = 0;

/// A data plane, with its interface's name and number.
pub type Started = (Box<AnyPlane>, String, u32);

/// Makes an interface with its data plane, for one peer or `several`. Its name is the given one, or the first free of
/// `tun0` and so on. Dropping the data plane removes the interface.
///
/// # Errors
/// See [`StartError`]. Nothing is left behind.
pub fn start(
    name: Option<&str>,
    several: bool,
    control: Arc<dyn Control>,
) -> Result<Started, StartError> {
    has_family(OvpnFamily::find()?)?;
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
    let plane = begin(&mut netlink, index, several, control)?;
    Ok((Box::new(plane), name, index))
}

/// Ends the redirection of a TUN that a killed process has left, and removes the interfaces of such processes.
///
/// # Errors
/// Descriptor limits.
pub fn clean(tun: u32) -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open()?;
    if (netlink.end_redirection(tun, Redirection::Leaving)).is_ok() {
        log::info!(
            "the interface's packets went to the kernel's data plane of a process that has ended"
        );
    }
    sweep(&mut netlink);
    Ok(())
}

/// Makes an interface of this name for one peer. Returns its data plane, which removes it, and its number.
///
/// # Errors
/// See [`StartError`]. Nothing is left behind.
pub(crate) fn start_one(
    name: &str,
    control: Arc<dyn Control>,
) -> Result<(Plane<Linux>, u32), StartError> {
    has_family(OvpnFamily::find()?)?;
    let mut netlink = Netlink::open()?;
    sweep(&mut netlink);
    create(&mut netlink, name, OvpnMode::OnePeer)?;
    let index = netlink.index_of(name)?;
    begin(&mut netlink, index, false, control).map(|plane| (plane, index))
}

/// Starts the data plane of a new interface, which goes if that fails.
fn begin(
    netlink: &mut Netlink,
    index: u32,
    several: bool,
    control: Arc<dyn Control>,
) -> Result<Plane<Linux>, StartError> {
    of(index, several, control).inspect_err(|_| {
        let _ = netlink.delete_link(index);
    })
}

fn of(index: u32, several: bool, control: Arc<dyn Control>) -> Result<Plane<Linux>, StartError> {
    let mut netlink = Netlink::open()?;
    netlink.set_alias(index, &Owner::this().to_string())?;
    let mut ovpn = Ovpn::open(index)?;
    allowed(ovpn.peer(ABSENT))?;
    let kernel = Linux {
        ovpn,
        netlink,
        index,
    };
    Plane::start(kernel, index, several, control)
}

/// Whether this process may use peers, judged by the answer for one that does not exist. Making an interface needs
/// fewer privileges.
fn allowed<T>(answer: Result<T, NetlinkError>) -> Result<(), StartError> {
    match answer {
        Err(error) if error.is_permission() => Err(StartError::NotAllowed(error)),
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether the kernel has the data plane, judged by its netlink family.
fn has_family(found: OvpnFamily) -> Result<(), StartError> {
    match found {
        OvpnFamily::Present => Ok(()),
        OvpnFamily::Missing => Err(StartError::NoModule),
        OvpnFamily::Foreign(name) => Err(StartError::OtherModule(name)),
    }
}

fn create(netlink: &mut Netlink, name: &str, mode: OvpnMode) -> Result<(), StartError> {
    let made = netlink.create_ovpn(name, mode);
    made.map_err(|error| not_made(name, error))
}

/// Why an interface with this name was not made.
fn not_made(name: &str, error: NetlinkError) -> StartError {
    if error.is_exists() {
        StartError::Taken(name.to_owned())
    } else if error.is_unsupported() {
        StartError::NoInterface(error)
    } else if error.is_permission() {
        StartError::NotAllowed(error)
    } else {
        error.into()
    }
}

/// Removes interfaces whose process has ended.
fn sweep(netlink: &mut Netlink) {
    let here = Owner::this();
    for link in netlink.links().unwrap_or_default() {
        let owner = Owner::of(&link.alias).filter(|_| link.kind == "ovpn");
        if owner.is_some_and(|it| it.is_gone(&here)) {
            match netlink.delete_link(link.index) {
                Ok(()) => log::info!("{}: deleted, as its process has ended", link.name),
                Err(error) => log::debug!("{error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn refused(errno: i32) -> NetlinkError {
        NetlinkError::Refused {
            operation: "ask",
            object: "0".to_owned(),
            error: io::Error::from_raw_os_error(errno),
            hint: String::new(),
        }
    }

    const NOT_PERMITTED: i32 = 1;
    const NO_ENTRY: i32 = 2;
    const EXISTS: i32 = 17;
    const NOT_SUPPORTED: i32 = 95;
    const NO_BUFFERS: i32 = 105;

    #[test]
    fn what_the_kernel_says_of_a_peer_that_is_not_there_tells_whether_it_may_be_asked() {
        let answered = |errno| allowed::<()>(Err(refused(errno)));
        assert!(answered(NO_ENTRY).is_ok());
        let refused = answered(NOT_PERMITTED).unwrap_err();
        assert!(matches!(refused, StartError::NotAllowed(_)), "{refused}");
        assert!(refused.to_string().contains("dataplane.kind=user"));
        let other = answered(NO_BUFFERS).unwrap_err();
        assert!(matches!(other, StartError::Netlink(_)), "{other}");
    }

    #[test]
    fn a_kernel_without_the_family_or_with_another_is_refused_with_the_remedy() {
        assert!(has_family(OvpnFamily::Present).is_ok());
        for (found, subject) in [
            (OvpnFamily::Missing, "there is no netlink family `ovpn`"),
            (
                OvpnFamily::Foreign("ovpn-dco-v2"),
                "family `ovpn-dco-v2` belongs to another",
            ),
        ] {
            let text = has_family(found).unwrap_err().to_string();
            assert!(text.contains(subject), "{text}");
            assert!(text.contains("kmod-ovpn-backports"), "{text}");
            assert!(text.contains("dataplane.kind=user"), "{text}");
            assert!(!text.contains("Linux"), "no version: {text}");
        }
    }

    #[test]
    fn a_kernel_with_the_family_may_refuse_the_interface() {
        let text = |errno| not_made("tun7", refused(errno)).to_string();
        assert!(text(NOT_SUPPORTED).contains("makes no interface of that kind"));
        assert!(text(NOT_PERMITTED).contains("CAP_NET_ADMIN"));
        assert!(text(EXISTS).contains("tun7"));
        let other = not_made("tun7", refused(NO_BUFFERS));
        assert!(matches!(other, StartError::Netlink(_)), "{other}");
    }
}
