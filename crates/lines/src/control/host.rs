//! Reads the host's facts about the devices of lines.

use super::LineFacts;
use config::lines::{Line, Lines};
use netio::netlink::{Address, Netlink};
use std::net::IpAddr;

/// Reads the state of each line's device, or of the interface with its address; `None` if neither exists.
pub fn read(lines: &Lines) -> Vec<Option<LineFacts>> {
    let netlink = Netlink::open().inspect_err(|e| log::warn!("{e}"));
    let Ok(mut netlink) = netlink else {
        return Vec::new();
    };
    let mut read = |line: &Line| {
        if line.interface.is_none() && line.source.is_none() {
            // The line reaches its relay by the host's routes, through any device.
            return Some(LineFacts {
                ifindex: 0,
                running: true,
                addressed: true,
            });
        }
        let all = netlink.addresses(None).ok()?;
        let own = line.source.and_then(|ip| all.iter().find(|it| it.ip == ip));
        let link = match &line.interface {
            Some(name) => netlink.link(name),
            None => netlink.link_by_index(own?.index),
        };
        let link = link.ok()?;
        let here = |it: &&Address| it.index == link.index && !is_link_local(it.ip);
        let addressed = match line.source {
            Some(_) => own.is_some(),
            None => all.iter().any(|it| here(&it) && !it.tentative),
        };
        Some(LineFacts {
            ifindex: link.index,
            running: link.running,
            addressed,
        })
    };
    lines.lines.iter().map(&mut read).collect()
}

/// Whether only neighbours can be reached from the address.
const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
