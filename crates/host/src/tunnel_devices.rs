//! Which network devices are tunnels, by what the kernel says of them.

use std::fs;
use std::path::Path;

use netio::netlink::Netlink;

/// The group (`ip link set group`) of devices by which others call this host. It is the device's own and goes with it, so no
/// file can tell of a server that has ended.
pub const SERVER_GROUP: u32 = 0x6d72;

/// Marks a device as a server's: the guard leads nothing into it, and holds what its clients send.
pub fn mark_server(name: &str) {
    let mark = || {
        let mut netlink = Netlink::open()?;
        let index = netlink.index_of(name)?;
        netlink.set_group(index, SERVER_GROUP)
    };
    if let Err(error) = mark() {
        log::warn!("{name}: the guard cannot tell that this is a server's device: {error}");
    }
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
    fn what_is_no_tunnel_is_not_taken_for_one() {
        assert!(!is_tunnel("lo") && !is_tunnel("no-such-device"));
        assert_eq!(instead(["lo"].into_iter(), |_| false), None);
    }
}
