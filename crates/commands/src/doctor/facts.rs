//! Facts about this box: gathered in one place (`gather.rs`), judged in another (`checks.rs`).

use netio::netlink::{Address, Link, Rule};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::SystemTime;

/// The device by which programs make tunnels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum TunDevice {
    #[default]
    Works,
    /// There is no such file.
    Absent,
    /// This user may not open it.
    Hidden,
    /// There is, and this is what comes of opening it.
    Refused(String),
}

/// A name server's answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameServer {
    pub(super) address: IpAddr,
    /// The device by which it is reached; none where there is no way.
    pub(super) device: Option<String>,
    pub(super) answers: bool,
}

/// A tunnel of this program that is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tunnel {
    pub(super) device: String,
    pub(super) protocol: String,
    /// Mark of its own packets, and number of its routing table; 0 is none.
    pub(super) fwmark: u32,
    pub(super) mtu: u32,
    /// Why it has that, in words, if its daemon tells.
    pub(super) mtu_reason: Option<String>,
    /// Where its peers are, and the device that leads there with what the way by it carries.
    pub(super) ways: Vec<(IpAddr, String, u32)>,
    /// TCP ports that it listens on for its clients.
    pub(super) ports: Vec<u16>,
}

/// A socket of this program that listens for connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listening {
    pub(super) address: SocketAddr,
    pub(super) pid: i32,
}

/// Who starts tunnels after a reboot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Starter {
    /// systemd, and the tunnels that are enabled.
    Systemd(Vec<String>),
    /// OpenWrt: procd and netifd.
    Procd,
    #[default]
    Unknown,
}

/// A tunnel that `millrace up` runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Up {
    pub(super) name: String,
    /// Its process is netifd's.
    pub(super) by_netifd: bool,
}

/// The facts.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) tun: TunDevice,
    pub(super) now: SystemTime,
    /// It is no earlier than this.
    pub(super) earliest: SystemTime,
    /// The latest time that the clock has shown, by the floor on file.
    pub(super) floor: SystemTime,
    pub(super) links: Vec<Link>,
    pub(super) addresses: Vec<Address>,
    pub(super) rules: Vec<Rule>,
    /// Devices of default routes of the main table, tunnels not counted.
    pub(super) lines: Vec<String>,
    /// The device by which the rest of the world is reached.
    pub(super) way_out: Option<String>,
    pub(super) name_servers: Vec<NameServer>,
    pub(super) tunnels: Vec<Tunnel>,
    /// Warnings about files with secrets that others can read.
    pub(super) open_files: Vec<(PathBuf, String)>,
    pub(super) listening: Vec<Listening>,
    /// `net.ipv4.ip_forward`.
    pub(super) forwards: bool,
    /// Devices and their `rp_filter`, as it works.
    pub(super) rp_filters: Vec<(String, u8)>,
    /// Something is to be forwarded: there are settings of a guard, or of a server at home.
    pub(super) is_router: bool,
    /// There are settings of a guard or of a policy.
    pub(super) guarded: bool,
    /// `nft`, and whether the kernel has what it talks to.
    pub(super) nft: bool,
    pub(super) nf_tables: bool,
    /// `flow_offloading` and `flow_offloading_hw` of OpenWrt's firewall.
    pub(super) offload: (bool, bool),
    /// Memory that programs may have, in kilobytes.
    pub(super) available: Option<u64>,
    pub(super) starter: Starter,
    pub(super) up: Vec<Up>,
    /// Interfaces of which a killed process has left something.
    pub(super) left: Vec<String>,
}

impl Facts {
    /// The name of a device.
    pub(super) fn device(&self, index: u32) -> &str {
        let link = self.links.iter().find(|link| link.index == index);
        link.map_or("?", |link| &link.name)
    }

    /// Whether a routing rule is that of a tunnel of this program.
    pub(super) fn is_rule_of_tunnel(&self, rule: &Rule) -> bool {
        let is_marked = |rule: &Rule| {
            let mut marks = self.tunnels.iter().map(|it| it.fwmark);
            marks.any(|mark| mark != 0 && (rule.fwmark == Some(mark) || rule.table == mark))
        };
        let mut others = self.rules.iter();
        is_marked(rule) || others.any(|next| is_marked(next) && rule.goes_before(next))
    }

    pub(super) fn is_tunnel(&self, device: &str) -> bool {
        self.tunnels.iter().any(|it| it.device == device)
    }
}
