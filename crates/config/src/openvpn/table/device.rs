//! Directives about the interface and the outer socket.

use super::value::{OK, ignored, note, number, on, one_of, put, set, some, word};
use super::{End, Entry, KERNEL, MANY, TAP, WINDOWS, flag, no, one, skip, yes};
use crate::openvpn::Topology;
use crate::openvpn::lexer::shown;
use crate::types::is_ifname;

pub(super) const ROWS: &[Entry] = &[
    one("dev", |d, v| match v {
        name if is_ifname(name) => put(&mut d.dev, name.to_owned()),
        other => Err(format!(
            "`{}` is not an interface name; use 1 to 15 letters, digits and _=+.-",
            shown(other)
        )),
    }),
    one("dev-type", |d, v| match v {
        "tap" => Err(TAP.to_owned()),
        other => {
            d.dev_is_typed = word(other, &[("tun", true), ("tap", false)])?;
            OK
        }
    }),
    one("dev-node", |_, v| match v {
        "/dev/net/tun" => OK,
        path if path.starts_with('/') => {
            Err("interfaces are always made through /dev/net/tun; remove the line".to_owned())
        }
        _ => ignored(WINDOWS),
    }),
    one("txqueuelen", |d, v| {
        some(&mut d.device.queue_length, number(v, 0..=1_000_000))
    }),
    skip("disable-dco", "set dataplane.kind instead"),
    yes("topology", 1, 1, |d, it| {
        let topologies = Topology::ALL.map(|it| (it.as_str(), it));
        some(&mut d.network.topology, word(it.at(0), &topologies))
    }),
    flag("persist-tun", |d| &mut d.service.persist_tun),
    skip("tun-ipv6", "IPv6 is always carried"),
    no("lladdr", TAP),
    no("vlan-tagging", TAP),
    no("vlan-accept", TAP),
    no("vlan-pvid", TAP),
    no("server-bridge", TAP),
    no(
        "iproute",
        "addresses and routes are set through netlink; remove the line",
    ),
    skip("windows-driver", WINDOWS),
    skip("tap-sleep", WINDOWS),
    one("sndbuf", |d, v| set(&mut d.sockets.send_buffer, buffer(v))),
    one("rcvbuf", |d, v| {
        set(&mut d.sockets.receive_buffer, buffer(v))
    }),
    one("mark", |d, v| some(&mut d.sockets.mark, mark(v))),
    one("bind-dev", |d, v| match v {
        name if is_ifname(name) => put(&mut d.sockets.device, name.to_owned()),
        other => Err(format!("`{}` is not an interface name", shown(other))),
    }),
    yes("multihome", 0, 0, |_, _| note("always done")),
    yes("socket-flags", 0, MANY, |d, it| {
        match it.values.iter().find(|flag| *flag != "TCP_NODELAY") {
            Some(flag) => Err(one_of(flag, &["TCP_NODELAY"])),
            None => on(&mut d.sockets.tcp_nodelay),
        }
    })
    .client(|_, _| ignored("TCP_NODELAY is always set")),
    flag("tcp-nodelay", |d| &mut d.sockets.tcp_nodelay),
    skip(
        "passtos",
        "not copied: outer packets have the system's usual type of service",
    ),
    skip("fast-io", KERNEL),
    skip("preresolve", "names are always resolved when needed"),
    skip("ip-remote-hint", "a hint for other systems"),
    one("shaper", |d, v| {
        some(&mut d.sockets.shaper, number(v, 100..=100_000_000))
    })
    .end(End::Client(
        "is for clients; use `tc qdisc` on the server's interface",
    )),
    no(
        "gremlin",
        "a test mode of the original OpenVPN; remove the line",
    ),
    no(
        "client-nat",
        "addresses are not rewritten; use nftables on the tunnel's interface",
    ),
];

/// Parses a buffer size; 0 means the kernel's choice, as in stock.
fn buffer(text: &str) -> Result<Option<u32>, String> {
    let size = number(text, 0..=1 << 30)?;
    Ok((size > 0).then_some(size))
}

/// Parses a mark: decimal as in stock, or hexadecimal, which is usual elsewhere.
fn mark(text: &str) -> Result<u32, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16)
            .map_err(|_| format!("`{}` is not a hexadecimal 32-bit number", shown(text))),
        None => number(text, 0..=u32::MAX),
    }
}
