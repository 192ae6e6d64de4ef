//! Which network devices are tunnels, by what the kernel says of them.

use std::fs;
use std::path::Path;

use netio::netlink::{Link, Netlink};

/// The group (`ip link set group`) of devices by which others call this host. It is the device's own and goes with it, so no
/// file can tell of a server that has ended.
pub const SERVER_GROUP: u32 = 0x6d72;

/// Stands in the alias of such a device before the ports at which it is called, behind what others have written there.
const PORTS: &str = "serves ports ";

/// Marks a device as a server's, which is called at these ports: the guard leads nothing into it, and holds what its clients
/// send; devices that the policy holds cannot call it.
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

/// Takes the mark of a server's device back.
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
        log::warn!("{name}: guard and policy take this for a server's device: {error}");
    }
}

/// The ports at which servers of this host are called, sorted.
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

/// Whether a network device is a TUN, or one of the kernel's WireGuard.
#[must_use]
pub fn is_tunnel(name: &str) -> bool {
    let place = Path::new("/sys/class/net").join(name);
    let kind = fs::read_to_string(place.join("uevent")).unwrap_or_default();
    place.join("tun_flags").exists() || kind.lines().any(|line| line == "DEVTYPE=wireguard")
}

/// A sentence for reports that miss a device, on devices that are up and may be what is meant. `None` without any.
#[must_use]
pub fn instead<'n>(
    up: impl Iterator<Item = &'n str>,
    is_known: impl Fn(&str) -> bool,
) -> Option<String> {
    let mut others: Vec<&str> = up.filter(|it| is_tunnel(it) && !is_known(it)).collect();
    others.truncate(4);
    (!others.is_empty()).then(|| {
        format!(
            "of tunnels there is {}: if that is meant, name it in the settings, or name its device in the tunnel's file",
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
    }
}
