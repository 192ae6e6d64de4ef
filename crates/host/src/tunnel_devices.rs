//! Recognises tunnels among network devices, by what the kernel reports about them.

use std::fs;
use std::path::Path;

use netio::netlink::{Link, Netlink};

/// Group (`ip link set group`) of a server's devices, through which clients reach this host. The group goes with its
/// device, so no stale file can remain when a server ends.
pub const SERVER_GROUP: u32 = 0x6d72;

/// Text in the alias of a server's device before its ports. Text that others have written stays in front of it.
const PORTS: &str = "serves ports ";

/// Marks a device as a server's, with the server's ports. The guard routes nothing into it, and holds its clients'
/// packets. Devices that the policy holds cannot connect to it.
pub fn mark_server(name: &str, ports: impl IntoIterator<Item = u16>) {
    let ports: Vec<String> = ports.into_iter().map(|it| it.to_string()).collect();
    let mark = || {
        let mut netlink = Netlink::open()?;
        let link = netlink.link(name)?;
        let others = link.alias.split(PORTS).next().unwrap_or_default();
        let alias = format!("{} {PORTS}{}", others.trim_end(), ports.join(" "));
        netlink.set_group(link.index, SERVER_GROUP)?;
        netlink.set_alias(link.index, alias.trim_start())
    };
    if let Err(error) = mark() {
        log::warn!("{name}: guard and policy cannot tell that this is a server's device: {error}");
    }
}

/// Removes the mark from a server's device.
pub fn unmark_server(name: &str) {
    let unmark = || {
        let mut netlink = Netlink::open()?;
        let link = netlink.link(name)?;
        if link.group != SERVER_GROUP {
            return Ok(());
        }
        let others = link.alias.split(PORTS).next().unwrap_or_default();
        netlink.set_group(link.index, 0)?;
        netlink.set_alias(link.index, others.trim_end())
    };
    if let Err(error) = unmark() {
        log::warn!("{name}: guard and policy still treat this as a server's device: {error}");
    }
}

/// The ports of this host's servers, sorted.
#[must_use]
pub fn server_ports(links: &[Link]) -> Vec<u16> {
    let servers = links.iter().filter(|it| it.group == SERVER_GROUP);
    let lists = servers.filter_map(|it| Some(it.alias.split_once(PORTS)?.1));
    let words = lists.flat_map(str::split_whitespace);
    let mut ports: Vec<u16> = words
        .filter_map(|it| it.parse().ok())
        .filter(|it| *it != 0)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Whether a device is hidden behind a TUN: OpenVPN's data plane in the kernel, for a tunnel that has moved there. The
/// index of the TUN follows the first letters.
#[must_use]
pub fn is_hidden(name: &str) -> bool {
    let index = name.strip_prefix("mrk").unwrap_or_default();
    !index.is_empty() && index.bytes().all(|it| it.is_ascii_digit())
}

/// Whether a network device is a TUN, a kernel WireGuard device, or hidden behind a TUN.
#[must_use]
pub fn is_tunnel(name: &str) -> bool {
    if is_hidden(name) {
        return true;
    }
    let place = Path::new("/sys/class/net").join(name);
    let kind = fs::read_to_string(place.join("uevent")).unwrap_or_default();
    place.join("tun_flags").exists() || kind.lines().any(|line| line == "DEVTYPE=wireguard")
}

/// A sentence for reports about a missing device: names devices that are up and may be intended. `None` without any.
#[must_use]
pub fn instead<'n>(
    up: impl Iterator<Item = &'n str>,
    is_known: impl Fn(&str) -> bool,
) -> Option<String> {
    let mut others: Vec<&str> = up
        .filter(|it| is_tunnel(it) && !is_hidden(it) && !is_known(it))
        .collect();
    others.truncate(4);
    (!others.is_empty()).then(|| {
        format!(
            "tunnel devices that are up: {}; to use one, name it in the settings, or set its device name in the \
             tunnel's file",
            others.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_servers_are_told_by_their_devices() {
        let link = |group, alias: &str| Link {
            group,
            alias: alias.to_owned(),
            ..Link::default()
        };
        let links = [
            link(SERVER_GROUP, "serves ports 51820"),
            link(SERVER_GROUP, "millrace 50 7 1000 serves ports 443 1194 443"),
            link(SERVER_GROUP, "another's"),
            link(SERVER_GROUP, "serves ports 0"),
            link(0, "serves ports 7"),
        ];
        assert_eq!(server_ports(&links), [443, 1194, 51820]);
    }

    #[test]
    fn what_is_no_tunnel_is_not_taken_for_one() {
        assert!(!is_tunnel("lo") && !is_tunnel("no-such-device"));
        assert_eq!(instead(["lo"].into_iter(), |_| false), None);
        // A device behind a TUN is one, but not to be named in settings.
        assert!(is_tunnel("mrk7") && !is_tunnel("mrk") && !is_tunnel("mrkx"));
        assert_eq!(instead(["mrk7"].into_iter(), |_| false), None);
    }
}
