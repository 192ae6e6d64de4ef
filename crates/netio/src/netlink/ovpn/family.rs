//! Whether the kernel has `ovpn`, by its generic-netlink family. The kernel's version does not tell: routers have the
//! module as a backport to older kernels, and newer ones may lack it.

use super::{FAMILY, GROUP};
use crate::netlink::generic::Numbers;
use crate::netlink::{Netlink, NetlinkError};

/// The family of the module `ovpn-dco`, which existed before `ovpn` and has other messages.
const BEFORE: &str = "ovpn-dco-v2";

/// The kernel's answer about the family `ovpn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OvpnFamily {
    /// The kernel has the family. [`Netlink::create_ovpn`] tells whether it makes interfaces too.
    Present,
    /// The kernel has no such family, and no module that registers one.
    Missing,
    /// The kernel has a family of this name instead, whose messages are different.
    Foreign(&'static str),
}

impl OvpnFamily {
    /// Asks the kernel, which loads the module if it has one.
    ///
    /// # Errors
    /// The kernel has no generic netlink, or gave no answer.
    pub fn find() -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::open_generic()?;
        let found = netlink.family(FAMILY);
        judge(found, || netlink.families().unwrap_or_default())
    }
}

/// Judges the answer about the family; `names` lists all families.
fn judge(
    found: Result<Numbers, NetlinkError>,
    names: impl FnOnce() -> Vec<String>,
) -> Result<OvpnFamily, NetlinkError> {
    match found {
        Ok(numbers) if numbers.group(GROUP).is_some() => Ok(OvpnFamily::Present),
        Ok(_) => Ok(OvpnFamily::Foreign(FAMILY)),
        Err(error) if error.is_not_found() => match names().iter().any(|it| it == BEFORE) {
            true => Ok(OvpnFamily::Foreign(BEFORE)),
            false => Ok(OvpnFamily::Missing),
        },
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn refused(errno: i32) -> Result<Numbers, NetlinkError> {
        Err(NetlinkError::Refused {
            operation: "find the netlink family",
            object: FAMILY.to_owned(),
            error: io::Error::from_raw_os_error(errno),
            hint: String::new(),
        })
    }

    fn with_group(group: &str) -> Result<Numbers, NetlinkError> {
        Ok(Numbers {
            family: 30,
            groups: vec![(group.to_owned(), 5)],
        })
    }

    #[test]
    fn only_the_family_with_its_events_counts() {
        let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let old = ["nlctrl", "ovpn-dco-v2", "wireguard"];
        for (found, all, expected) in [
            (with_group("peers"), &old[..], OvpnFamily::Present),
            (with_group("events"), &[], OvpnFamily::Foreign("ovpn")),
            (
                refused(libc::ENOENT),
                &old,
                OvpnFamily::Foreign("ovpn-dco-v2"),
            ),
            (
                refused(libc::ENOENT),
                &["nlctrl", "ovpn-dco"],
                OvpnFamily::Missing,
            ),
            (refused(libc::ENOENT), &[], OvpnFamily::Missing),
        ] {
            let shown = format!("{found:?} among {all:?}");
            assert_eq!(judge(found, || names(all)).unwrap(), expected, "{shown}");
        }
        let error = judge(refused(libc::ENOBUFS), Vec::new).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOBUFS));
    }

    /// The kernel under the tests has the family, or says that it is missing; a version plays no part.
    #[test]
    fn the_kernel_answers() {
        let mut netlink = Netlink::open_generic().unwrap();
        let found = OvpnFamily::find().unwrap();
        let named = netlink.families().unwrap();
        let is_listed = named.iter().any(|it| it == FAMILY);
        assert_eq!(found == OvpnFamily::Present, is_listed, "{found:?}");
    }
}
