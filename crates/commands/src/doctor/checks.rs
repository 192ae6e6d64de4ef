//! Finds faults in the facts. Each check is a function of the facts, and tells the fault, its place and its remedy.

use super::facts::{Facts, Shared, Starter, TunDevice, Tunnel};
use crate::up::account::STOP;
#[cfg(feature = "kernel")]
use host::tunnel_devices::is_hidden;
use netio::netlink::{Family, Link, Rule};
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// A fault, with its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The name of the check.
    pub(super) check: &'static str,
    /// The fault, in one sentence.
    pub(super) what: String,
    /// Where to see or change the faulty setting.
    #[serde(rename = "where")]
    pub(super) place: String,
    /// The remedy for the user.
    #[serde(rename = "do")]
    pub(super) remedy: String,
}

type Check = fn(&Facts, &mut Vec<Finding>);

/// All checks, in the order of a manual diagnosis.
pub(super) const CHECKS: &[(&str, Check)] = &[
    ("tun", tun),
    ("clock", clock),
    ("route", route),
    ("dns", dns),
    ("dns-leak", dns_leak),
    ("loop", into_itself),
    ("mtu", mtu),
    ("offload", offload),
    #[cfg(feature = "pptp")]
    ("gre", gre),
    ("rules", rules),
    ("port", port),
    ("forwarding", forwarding),
    #[cfg(feature = "policy")]
    ("masquerade", masquerade),
    ("rp-filter", rp_filter),
    ("account", account),
    ("addresses", addresses),
    ("files", files),
    ("steering", steering),
    #[cfg(feature = "amnezia")]
    ("amneziawg", amneziawg),
    #[cfg(feature = "server")]
    ("expiry", expiry),
    ("kernel", kernel),
    ("memory", memory),
    ("left", left),
];

/// How far the clock may lag behind the latest known time before it counts as wrong.
const CLOCK_SLACK: Duration = Duration::from_secs(3600);

const UPLINK_REMEDY: &str = "check the uplink: its cable, its device's address, the modem";

/// Bytes that WireGuard adds to a packet over IPv4 and IPv6: IP, UDP, its header and tag.
const WIREGUARD: [u32; 2] = [60, 80];

/// Marks and tables that wg-quick uses: it takes the first free one.
const MARKS: std::ops::Range<u32> = 51820..51840;

/// Free memory, in kilobytes, below which a box fails when one more program starts.
const MEMORY_LOW: u64 = 12 << 10;

/// Runs all checks.
pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    for &(name, check) in CHECKS {
        let before = found.len();
        check(facts, &mut found);
        found[before..].iter_mut().for_each(|it| it.check = name);
    }
    let before = found.len();
    starts(facts, &mut found);
    found[before..].iter_mut().for_each(|it| it.check = "start");
    found
}

fn say(found: &mut Vec<Finding>, what: String, place: &str, remedy: &str) {
    found.push(Finding {
        check: "",
        what,
        place: place.to_owned(),
        remedy: remedy.to_owned(),
    });
}

fn tun(facts: &Facts, found: &mut Vec<Finding>) {
    let place = "/dev/net/tun";
    match &facts.tun {
        TunDevice::Works => {}
        TunDevice::Absent => say(
            found,
            "the tunnel device is missing: its kernel module is not installed or not loaded"
                .to_owned(),
            place,
            "modprobe tun; on OpenWrt install kmod-tun; in a container, pass /dev/net/tun in from the host",
        ),
        TunDevice::Hidden => say(
            found,
            "this user may not open the tunnel device".to_owned(),
            place,
            "run this as root",
        ),
        TunDevice::Refused(why) => say(
            found,
            format!("cannot open the tunnel device: {why}"),
            place,
            "load the module (modprobe tun), or in a container allow the device (c 10:200 rw)",
        ),
    }
}

fn clock(facts: &Facts, found: &mut Vec<Finding>) {
    let (now, known) = (facts.now, facts.earliest.max(facts.floor));
    if now + CLOCK_SLACK > known {
        return;
    }
    // The clock was set once, so a missing battery is not the cause: either the clock or the file is wrong.
    if host::machine::clock_is_set(now) {
        let file = lines::floor::path();
        let (now, known) = (netio::time::local(now), netio::time::local(known));
        return say(
            found,
            format!(
                "the clock shows {now}, but earlier it showed {known}: it is slow now, or it was fast then"
            ),
            &file.display().to_string(),
            "if it is slow, set it with NTP; if it was fast, end all tunnels, remove this file and start them again \
             (a WireGuard peer that has seen timestamps of that time answers again once its own tunnel restarts)",
        );
    }
    let (now, known) = (netio::time::local(now), netio::time::local(known));
    say(
        found,
        format!(
            "the clock shows {now}, but it is {known} or later; certificates may appear not yet valid"
        ),
        "the system's clock",
        "set it with NTP before the tunnel's names are looked up (OpenWrt: sysntpd, with its servers given as \
         addresses; Debian: systemd-timesyncd or chrony), or with date -s",
    );
}

fn route(facts: &Facts, found: &mut Vec<Finding>) {
    if facts.way_out.is_none() {
        say(
            found,
            "there is no route to the Internet, so tunnels wait".to_owned(),
            "ip route, ip -6 route",
            UPLINK_REMEDY,
        );
    }
    let is_out = |it: &&Tunnel| facts.way_out.as_ref() == Some(&it.device);
    let tunnel = facts.tunnels.iter().find(is_out);
    let own = tunnel.iter().flat_map(|it| &it.ways).map(|it| &it.1);
    let uplinks: BTreeSet<&String> = facts.lines.iter().chain(own).collect();
    for link in facts
        .links
        .iter()
        .filter(|it| uplinks.contains(&it.name) && !it.running)
    {
        let what = format!(
            "the uplink {} has no carrier, so nothing leaves through it",
            link.name
        );
        let is_spare = |it: &&Link| it.running && uplinks.contains(&it.name);
        let spare = facts.links.iter().find(is_spare);
        let uses_one = facts.tunnels.iter().any(|it| !it.has_uplinks);
        let remedy = match spare.filter(|_| uses_one) {
            Some(spare) => format!(
                "{UPLINK_REMEDY}; {} is an uplink, too: docs/uplinks.md says how a tunnel uses both",
                spare.name
            ),
            None => UPLINK_REMEDY.to_owned(),
        };
        say(found, what, &format!("ip link show {}", link.name), &remedy);
    }
    if let Some(tunnel) = tunnel.filter(|_| uplinks.is_empty()) {
        let what = format!(
            "{} has the default route, but no uplink has a route for its own packets",
            tunnel.device
        );
        say(found, what, "ip route, ip -6 route", UPLINK_REMEDY);
    }
}

fn dns(facts: &Facts, found: &mut Vec<Finding>) {
    if facts.name_servers.is_empty() {
        return say(
            found,
            "no name server is set, so endpoint names cannot be resolved".to_owned(),
            "/etc/resolv.conf",
            "set one (nameserver ADDRESS), or give the tunnel's endpoint as an address",
        );
    }
    for server in facts.name_servers.iter().filter(|it| !it.answers) {
        let by = match &server.device {
            Some(device) => format!(", which is reached through {device}"),
            None => ", to which there is no route".to_owned(),
        };
        say(
            found,
            format!("the name server {} does not answer{by}", server.address),
            "/etc/resolv.conf",
            "if it belongs to the tunnel, the tunnel does not carry packets (see millrace status); if it belongs to \
             the uplink, check the uplink",
        );
    }
}

fn dns_leak(facts: &Facts, found: &mut Vec<Finding>) {
    let Some(tunnel) = facts.way_out.as_ref().filter(|it| facts.is_tunnel(it)) else {
        return;
    };
    for server in &facts.name_servers {
        let Some(device) = &server.device else {
            continue;
        };
        if server.address.is_loopback() || facts.is_tunnel(device) {
            continue;
        }
        say(
            found,
            format!(
                "DNS queries to {} leave through {device}, outside {tunnel}, which carries all other packets",
                server.address
            ),
            "/etc/resolv.conf",
            "write `DNS` into the tunnel's file and leave --no-dns out; for LAN devices see docs/this-device-only.md",
        );
    }
}

/// Finds tunnels that carry their own packets, which then reach nobody, whatever the MTU.
fn into_itself(facts: &Facts, found: &mut Vec<Finding>) {
    for tunnel in &facts.tunnels {
        for (peer, _, _) in tunnel.ways.iter().filter(|way| way.1 == tunnel.device) {
            say(
                found,
                format!(
                    "the packets of {} to its peer {peer} are routed into {} itself and are lost",
                    tunnel.device, tunnel.device
                ),
                &format!("ip route get {peer}; AllowedIPs, route"),
                &format!(
                    "let `millrace up` set the routes, which keeps {peer} outside the tunnel; or add a route to \
                     {peer} through the uplink"
                ),
            );
        }
    }
}

fn mtu(facts: &Facts, found: &mut Vec<Finding>) {
    for tunnel in facts.tunnels.iter().filter(|it| it.protocol == "wireguard") {
        let place = match &tunnel.mtu_reason {
            Some(reason) => format!("MTU of {} ({reason})", tunnel.device),
            None => format!("MTU of {}", tunnel.device),
        };
        for (peer, line, mtu) in tunnel.ways.iter().filter(|way| way.1 != tunnel.device) {
            let overhead = WIREGUARD[usize::from(peer.is_ipv6())];
            let most = mtu.saturating_sub(overhead);
            if tunnel.mtu > most {
                say(
                    found,
                    format!(
                        "packets of {} bytes do not fit: the path through {line} carries {mtu} bytes, of which \
                         {overhead} are overhead to reach {peer}",
                        tunnel.mtu
                    ),
                    &place,
                    &format!(
                        "leave MTU out of the tunnel's file, set it to {most}, or raise the MTU of {line}"
                    ),
                );
            }
        }
    }
}

fn offload(facts: &Facts, found: &mut Vec<Finding>) {
    let (soft, hard) = facts.offload;
    let place = "/etc/config/firewall, section defaults";
    if hard && facts.guarded {
        say(
            found,
            "hardware flow offloading (flow_offloading_hw) is on: once a connection is offloaded, neither the guard \
             nor a policy sees its packets"
                .to_owned(),
            place,
            "uci set firewall.@defaults[0].flow_offloading_hw=0; uci commit firewall; service firewall restart",
        );
    } else if soft && facts.guarded {
        say(
            found,
            "software flow offloading (flow_offloading) is on: connections that began outside the tunnel stay \
             outside, because they bypass changed rules".to_owned(),
            place,
            "uci set firewall.@defaults[0].flow_offloading=0; uci commit firewall; service firewall restart",
        );
    }
}

#[cfg(feature = "pptp")]
fn gre(facts: &Facts, found: &mut Vec<Finding>) {
    let mut tunnels = facts.tunnels.iter().filter(|it| it.protocol == "pptp");
    if let Some(tunnel) = tunnels.next().filter(|_| facts.rejects_gre) {
        say(
            found,
            format!(
                "the firewall rejects GRE (IP protocol 47) from the Internet, which carries the packets of {}",
                tunnel.device
            ),
            crate::firewall::SETTINGS,
            config::pptp::GRE_RULE,
        );
    }
}

/// The program that a foreign rule belongs to.
fn owner(rule: &Rule) -> Option<&'static str> {
    let mask = rule.mask.unwrap_or(u32::MAX);
    let priority = rule.priority.unwrap_or(0);
    match priority {
        900..=999 if !steer::is_ours(rule) => {
            Some("another program with rules at Millrace's priorities (900 to 999)")
        }
        1000..=3999 if mask == 0x3f00 => Some("mwan3"),
        5210..=5270 | 1310..=1370 if rule.table == 52 || mask == 0x00ff_0000 => Some("Tailscale"),
        _ if is_of_wg_quick(rule) => Some("wg-quick"),
        // pbr counts down from the priorities of the main table's rules.
        29_000..=30_000 if mask == 0x00ff_0000 => Some("pbr"),
        _ => None,
    }
}

fn is_of_wg_quick(rule: &Rule) -> bool {
    MARKS.contains(&rule.fwmark.unwrap_or(0)) || MARKS.contains(&rule.table)
}

fn rules(facts: &Facts, found: &mut Vec<Finding>) {
    let others = facts.rules.iter().filter(|it| !facts.is_rule_of_tunnel(it));
    let mut owners: Vec<&str> = others.filter_map(owner).collect();
    owners.sort_unstable();
    owners.dedup();
    let ours = facts.guarded || facts.way_out.as_ref().is_some_and(|it| facts.is_tunnel(it));
    for owner in owners.into_iter().filter(|_| ours) {
        say(
            found,
            format!("routing rules of {owner} route packets, too, besides those of Millrace"),
            "ip rule, ip -6 rule",
            "let only one of the two route a device or a destination; `millrace guard status` shows which rules take \
             effect",
        );
    }
}

fn port(facts: &Facts, found: &mut Vec<Finding>) {
    let serves = |port: u16| facts.tunnels.iter().any(|it| it.ports.contains(&port));
    for socket in &facts.listening {
        let ip = socket.address.ip();
        let lines = || facts.addresses.iter().filter(|it| it.ip == ip);
        let by_line = lines().any(|it| facts.lines.iter().any(|l| l == facts.device(it.index)));
        if !(ip.is_unspecified() || is_public(ip) || by_line) || serves(socket.address.port()) {
            continue;
        }
        say(
            found,
            format!(
                "process {} listens at {}, which can be reached from outside this host and its LAN",
                socket.pid, socket.address
            ),
            "`management` in an OpenVPN file, or --listen of `millrace monitor`",
            "bind it to 127.0.0.1 or to an address of the LAN, or to a UNIX socket",
        );
    }
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !(ip.is_private() || ip.is_loopback() || ip.is_link_local()),
        IpAddr::V6(ip) => {
            let local = ip.is_unicast_link_local() || ip.is_unique_local();
            !(local || ip.is_loopback())
        }
    }
}

fn forwarding(facts: &Facts, found: &mut Vec<Finding>) {
    if facts.is_router && !facts.forwards {
        say(
            found,
            "IP forwarding is off, so devices behind this host reach nothing".to_owned(),
            "net.ipv4.ip_forward",
            "sysctl -w net.ipv4.ip_forward=1, and write the same line to a file in /etc/sysctl.d",
        );
    }
}

#[cfg(feature = "policy")]
fn masquerade(facts: &Facts, found: &mut Vec<Finding>) {
    let Some(tunnel) = &facts.way_out else { return };
    if !facts.unmasqueraded.is_empty() {
        let [what, remedy] = host::lan::words_about(&facts.unmasqueraded, tunnel);
        say(found, what, "nft list ruleset", &remedy);
    }
}

fn rp_filter(facts: &Facts, found: &mut Vec<Finding>) {
    // With a single uplink, every answer comes through it.
    if facts.lines.len() < 2 {
        return;
    }
    let strict = |it: &&(String, u8)| it.1 == 1 && facts.lines.contains(&it.0);
    for (device, _) in facts.rp_filters.iter().filter(strict) {
        say(
            found,
            format!(
                "{device}, one of several uplinks, drops packets from addresses to which another uplink has the best \
                 route (rp_filter)"
            ),
            &format!("net.ipv4.conf.{device}.rp_filter"),
            &format!(
                "sysctl -w net.ipv4.conf.{device}.rp_filter=2 (and conf.all, which takes effect if it is higher)"
            ),
        );
    }
}

fn account(facts: &Facts, found: &mut Vec<Finding>) {
    for shared in &facts.shared {
        let (names, what) = (&shared.names, shared.what);
        say(
            found,
            format!(
                "{} are up with the same {what}; {STOP}",
                names.join(" and ")
            ),
            "millrace list",
            &format!(
                "leave only one of them up (millrace down {}), or get another {what} for each",
                names.last().map_or("", String::as_str)
            ),
        );
    }
}

/// Finds addresses that are used twice. Tunnels of one account have the same ones: `account` tells about them.
fn addresses(facts: &Facts, found: &mut Vec<Finding>) {
    for (at, one) in facts.addresses.iter().enumerate() {
        for other in &facts.addresses[at + 1..] {
            let (a, b) = (facts.device(one.index), facts.device(other.index));
            let tunnel = facts.is_tunnel(a) || facts.is_tunnel(b);
            let is_of = |it: &Shared, device: &str| it.devices.iter().any(|it| it == device);
            let mut shared = facts.shared.iter();
            let is_shared = shared.any(|it| is_of(it, a) && is_of(it, b));
            if one.index == other.index || !tunnel || is_shared || is_link_local(one.ip) {
                continue;
            }
            let what = if one.ip == other.ip {
                format!("{a} and {b} have the same address, {}", one.ip)
            } else if overlap((one.ip, one.prefix), (other.ip, other.prefix)) {
                format!(
                    "{one} of {a} and {other} of {b} are in the same network, which can be reached through only one \
                     of the two"
                )
            } else {
                continue;
            };
            say(
                found,
                what,
                "ip address",
                "give one of the two networks different addresses; the LAN is easier to change",
            );
        }
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_loopback(),
    }
}

/// Whether two networks overlap. Single addresses never do.
fn overlap(a: (IpAddr, u8), b: (IpAddr, u8)) -> bool {
    let bits = Family::of(a.0).bits();
    if Family::of(b.0).bits() != bits || a.1.max(b.1) == bits {
        return false;
    }
    let number = |ip| match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    };
    let host = u32::from(bits - a.1.min(b.1));
    let cut = |ip| number(ip).checked_shr(host).unwrap_or(0);
    cut(a.0) == cut(b.0)
}

fn files(facts: &Facts, found: &mut Vec<Finding>) {
    for (path, words) in &facts.open_files {
        let path = path.display().to_string();
        say(found, words.clone(), &path, &format!("chmod 600 {path}"));
    }
}

fn steering(facts: &Facts, found: &mut Vec<Finding>) {
    found.extend_from_slice(&facts.steering);
}

#[cfg(feature = "amnezia")]
fn amneziawg(facts: &Facts, found: &mut Vec<Finding>) {
    found.extend_from_slice(&facts.amneziawg);
}

#[cfg(feature = "server")]
fn expiry(facts: &Facts, found: &mut Vec<Finding>) {
    found.extend_from_slice(&facts.expiring);
}

fn kernel(facts: &Facts, found: &mut Vec<Finding>) {
    let place = "the packet filter";
    if !facts.guarded {
        return;
    }
    if !facts.nf_tables {
        say(
            found,
            "this kernel has no nf_tables: only the guard's routing rules take effect".to_owned(),
            place,
            "modprobe nf_tables; on OpenWrt install kmod-nft-core",
        );
    } else if !facts.nft {
        say(
            found,
            "the program nft is not installed: only the guard's routing rules take effect"
                .to_owned(),
            place,
            "install nftables",
        );
    }
}

fn memory(facts: &Facts, found: &mut Vec<Finding>) {
    if let Some(left) = facts.available.filter(|left| *left < MEMORY_LOW) {
        say(
            found,
            format!(
                "only {} MB of memory are left: the kernel may kill a tunnel to free some",
                left >> 10
            ),
            "/proc/meminfo",
            "end programs that are not needed (ps), or compress memory (zram)",
        );
    }
}

fn left(facts: &Facts, found: &mut Vec<Finding>) {
    for (name, _) in &facts.left {
        say(
            found,
            format!("a killed process has left routes, rules or settings of {name}"),
            "/run/millrace",
            &format!("millrace down {name} (or bring it up again)"),
        );
    }
    #[cfg(feature = "kernel")]
    for link in facts.links.iter().filter(|it| is_hidden(&it.name)) {
        let index = link
            .name
            .trim_start_matches(|it: char| !it.is_ascii_digit());
        let tun = facts.links.iter().find(|it| it.index.to_string() == index);
        if tun.is_some_and(|tun| facts.is_tunnel(&tun.name)) {
            continue;
        }
        let name = &link.name;
        say(
            found,
            format!(
                "{name} is the kernel's side of no running tunnel: packets into that tunnel are dropped"
            ),
            name,
            &format!("start the tunnel again; if it is not needed: ip link del {name}"),
        );
    }
}

fn starts(facts: &Facts, found: &mut Vec<Finding>) {
    for up in &facts.up {
        let remedy = match &facts.starter {
            Starter::Systemd(enabled) if !enabled.contains(&up.name) => {
                format!("systemctl enable millrace@{}", up.name)
            }
            Starter::Procd if !up.by_netifd => format!(
                "make it an interface with proto 'millrace' and config_file (docs/openwrt.md): uci set network.{}=interface",
                up.name
            ),
            _ => continue,
        };
        say(
            found,
            format!("{} is up, but does not start after a reboot", up.name),
            "programs that start at boot",
            &remedy,
        );
    }
}

#[cfg(test)]
mod tests;
