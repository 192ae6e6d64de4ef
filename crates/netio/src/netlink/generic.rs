//! Generic netlink: message families whose numbers the kernel assigns when they register. They are found by name.

use netlink_sys::protocols::NETLINK_GENERIC;

use super::request::Body;
use super::{Netlink, NetlinkError, attributes, decode_str, decode_u32};

/// Bytes of `struct genlmsghdr`, which every message starts with.
pub(super) const HEADER_SIZE: usize = 4;

// The controller family, which resolves the names of others, linux/genetlink.h.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

/// The kernel's numbers for a family and its multicast groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The type of the family's messages.
    pub(super) family: u16,
    /// The groups that receive the family's events.
    pub(super) groups: Vec<(String, u32)>,
}

impl Numbers {
    /// The number of a group.
    pub(super) fn group(&self, name: &str) -> Option<u32> {
        let found = self.groups.iter().find(|(it, _)| it == name);
        found.map(|(_, number)| *number)
    }
}

impl Netlink {
    /// Opens a socket for generic netlink.
    pub(super) fn open_generic() -> Result<Self, NetlinkError> {
        Self::open_for(NETLINK_GENERIC)
    }

    /// The numbers of the family `name`. The kernel loads its module if it has one.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if the kernel has no such family.
    pub(super) fn family(&mut self, name: &str) -> Result<Numbers, NetlinkError> {
        let mut body = command(CTRL_CMD_GETFAMILY, 1);
        body.push_text(CTRL_ATTR_FAMILY_NAME, name);
        self.query(
            GENL_ID_CTRL,
            &body,
            "find the netlink family",
            format_args!("{name}"),
            parse,
        )
    }
}

impl Netlink {
    /// The names of the registered families. Loads no module.
    pub(super) fn families(&mut self) -> Result<Vec<String>, NetlinkError> {
        let body = command(CTRL_CMD_GETFAMILY, 1);
        self.dump(GENL_ID_CTRL, &body, "list the netlink families", |body| {
            let name = |(kind, _): &(u16, &[u8])| *kind == CTRL_ATTR_FAMILY_NAME;
            let (_, name) = attributes(body.get(HEADER_SIZE..)?).find(name)?;
            Some(decode_str(name))
        })
    }
}

/// A message with this command, for this version of a family.
pub(super) fn command(command: u8, version: u8) -> Body {
    Body::new(&[command, version, 0, 0])
}

fn parse(body: &[u8]) -> Option<Numbers> {
    let (mut family, mut groups) = (None, Vec::new());
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            CTRL_ATTR_FAMILY_ID => family = value.get(..2)?.try_into().ok().map(u16::from_ne_bytes),
            CTRL_ATTR_MCAST_GROUPS => groups = attributes(value).filter_map(group).collect(),
            _ => {}
        }
    }
    Some(Numbers {
        family: family?,
        groups,
    })
}

fn group((_, value): (u16, &[u8])) -> Option<(String, u32)> {
    let (mut name, mut number) = (None, None);
    for (kind, value) in attributes(value) {
        match kind {
            CTRL_ATTR_MCAST_GRP_NAME => name = Some(decode_str(value)),
            CTRL_ATTR_MCAST_GRP_ID => number = decode_u32(value),
            _ => {}
        }
    }
    Some((name?, number?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_of_families_is_found_by_its_name_and_others_are_not() {
        let mut netlink = Netlink::open_generic().unwrap();
        let numbers = netlink.family("nlctrl").unwrap();
        assert_eq!(numbers.family, GENL_ID_CTRL);
        assert!(numbers.group("notify").is_some(), "{numbers:?}");
        assert_eq!(numbers.group("no-such-group"), None);
        let error = netlink.family("no-such-family").unwrap_err();
        assert!(error.is_not_found(), "{error}");
        let names = netlink.families().unwrap();
        assert!(names.iter().any(|it| it == "nlctrl"), "{names:?}");
    }

    #[test]
    fn short_and_random_bodies_are_refused() {
        for length in 0..40 {
            assert!(parse(&vec![0xff; length]).is_none());
        }
    }
}
