//! Finds name servers: the host's, and a line's own.

use std::fs;
use std::net::IpAddr;

/// Files in which hosts keep the addresses of their name servers: the usual one, then those of systemd-resolved and
/// OpenWrt's `dnsmasq`, for when the usual file names only this host.
const FILES: [&str; 4] = [
    "/etc/resolv.conf",
    "/run/systemd/resolve/resolv.conf",
    OPENWRT,
    "/run/dnsmasq/resolv.conf",
];

/// OpenWrt's file, with a comment before the servers of each interface: `# Interface wan`.
const OPENWRT: &str = "/tmp/resolv.conf.d/resolv.conf.auto";

/// Maximum number of servers taken from one file, as in the C library.
const SERVERS_MAX: usize = 3;

/// The interface of OpenWrt that this process runs.
#[cfg(feature = "handover")]
static OWN: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Names the interface of OpenWrt that this process runs. Its section in OpenWrt's file may be from the program before:
/// those name servers are the tunnel's, not the host's.
#[cfg(feature = "handover")]
pub fn is_of(interface: &str) {
    let _ = OWN.set(interface.to_owned());
}

/// The host's name servers, without those on the host itself.
pub(super) fn of_host() -> Vec<IpAddr> {
    let texts = FILES.iter().map(|path| read(path));
    #[cfg(feature = "handover")]
    let texts = texts.map(|text| without(&text, OWN.get().map_or("", String::as_str)));
    texts
        .map(|text| servers_in(&text))
        .find(|servers| !servers.is_empty())
        .unwrap_or_default()
}

/// A line's own name servers, from the files of OpenWrt, `systemd-networkd` or `resolvconf`.
pub(super) fn of_line(name: &str, device: &str) -> Vec<IpAddr> {
    let openwrt = read(OPENWRT);
    let of_interface = section_of(&openwrt, name);
    if !of_interface.is_empty() {
        return of_interface;
    }
    let index = read(&format!("/sys/class/net/{device}/ifindex"));
    if !index.is_empty() {
        let link = read(&format!("/run/systemd/netif/links/{}", index.trim()));
        let of_link = networkds(&link);
        if !of_link.is_empty() {
            return of_link;
        }
    }
    // Debian also names the record after the program: `eth0.dhclient`.
    for directory in ["/run/resolvconf/interfaces", "/run/resolvconf/interface"] {
        for entry in fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .take(64)
        {
            let record = entry.file_name().to_string_lossy().into_owned();
            if record == device
                || record
                    .strip_prefix(device)
                    .is_some_and(|it| it.starts_with('.'))
            {
                let servers = servers_in(&read(&entry.path().to_string_lossy()));
                if !servers.is_empty() {
                    return servers;
                }
            }
        }
    }
    Vec::new()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn servers_in(text: &str) -> Vec<IpAddr> {
    outside(host::name_servers_in(text).filter_map(|it| it.parse().ok()))
}

/// The name servers of one interface in OpenWrt's file.
fn section_of(text: &str, interface: &str) -> Vec<IpAddr> {
    // OpenWrt has a separate interface for a line's IPv6.
    let is_its = |name: &str| name == interface || name.strip_suffix('6') == Some(interface);
    servers_in(&sections(text, false, is_its))
}

/// OpenWrt's file without the section of an interface.
#[cfg(feature = "handover")]
fn without(text: &str, interface: &str) -> String {
    sections(text, true, |name| name != interface)
}

/// The sections of OpenWrt's file whose interface is wanted; with the lines before the first one if `first`.
fn sections(text: &str, first: bool, is_wanted: impl Fn(&str) -> bool) -> String {
    let mut is_its = first;
    let its = text.lines().filter(|line| {
        if let Some(name) = line.strip_prefix("# Interface ") {
            is_its = is_wanted(name);
        }
        is_its
    });
    its.collect::<Vec<_>>().join("\n")
}

/// The name servers in a file of `systemd-networkd`: `DNS=192.0.2.1 2001:db8::1`.
fn networkds(text: &str) -> Vec<IpAddr> {
    let values = text.lines().filter_map(|line| line.strip_prefix("DNS="));
    outside(values.flat_map(|it| it.split_whitespace().filter_map(|it| it.parse().ok())))
}

fn outside(servers: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let is_outside = |addr: &IpAddr| !addr.is_loopback();
    servers.filter(is_outside).take(SERVERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: &[IpAddr]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn servers_on_the_host_itself_are_none() {
        let text = "# made by hand\nnameserver 127.0.0.53\nnameserver 192.0.2.1 x\n\
            nameserver 2001:db8::1\nsearch example\nnameserver nonsense\nnameserver";
        assert_eq!(shown(&servers_in(text)), ["192.0.2.1", "2001:db8::1"]);
    }

    #[test]
    fn each_line_has_its_own() {
        let text = "# Interface lan\nsearch lan\n# Interface wan\nnameserver 192.0.2.1\n# Interface wan6\n\
            nameserver 2001:db8::1\n# Interface lte\nnameserver 198.51.100.1\n";
        assert_eq!(
            shown(&section_of(text, "wan")),
            ["192.0.2.1", "2001:db8::1"]
        );
        assert_eq!(shown(&section_of(text, "lte")), ["198.51.100.1"]);
        assert!(section_of(text, "lan").is_empty() && section_of(text, "dsl").is_empty());
        #[cfg(feature = "handover")]
        {
            let of = |interface| shown(&servers_in(&without(text, interface)));
            assert_eq!(of("lte"), ["192.0.2.1", "2001:db8::1"]);
            assert_eq!(of(""), shown(&servers_in(text)));
            // Files without sections stay whole.
            assert_eq!(
                without("nameserver 192.0.2.1\n", "lte"),
                "nameserver 192.0.2.1"
            );
        }
        let text = "ADMIN_STATE=configured\nDNS=192.0.2.1 2001:db8::1\nNTP=\n";
        assert_eq!(shown(&networkds(text)), ["192.0.2.1", "2001:db8::1"]);
        assert!(of_line("no-such-line", "no-such-device").is_empty());
    }
}
