//! Facts about this box: gathered in one place (`gather.rs`), judged in another (`checks.rs`).

use super::checks::Finding;
use netio::netlink::{Address, Link, Rule};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::SystemTime;

/// The state of `/dev/net/tun`, by which programs make tunnels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum TunDevice {
    #[default]
    Works,
    /// The file does not exist.
    Absent,
    /// This user may not open `/dev/net/tun`.
    Hidden,
    /// Opening the file fails with this error.
    Refused(String),
}

/// A name server, and whether it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameServer {
    pub(super) address: IpAddr,
    /// The device that leads to the name server; `None` without a route.
    pub(super) device: Option<String>,
    pub(super) answers: bool,
}

/// A tunnel of this program that is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tunnel {
    pub(super) device: String,
    pub(super) protocol: String,
    /// Mark of the tunnel's own packets, and number of its routing table; 0 for none.
    pub(super) fwmark: u32,
    pub(super) mtu: u32,
    /// The reason for the MTU, if the daemon tells it.
    pub(super) mtu_reason: Option<String>,
    /// Each peer's address, the device that leads there, and the path's MTU.
    pub(super) ways: Vec<(IpAddr, String, u32)>,
    /// Whether the tunnel's file names uplinks.
    pub(super) has_uplinks: bool,
    /// TCP ports on which the tunnel listens for clients.
    pub(super) ports: Vec<u16>,
}

/// A socket of this program that listens for connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listening {
    pub(super) address: SocketAddr,
    pub(super) pid: i32,
}

/// The program that starts tunnels after a reboot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Starter {
    /// systemd, with the enabled tunnels.
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
    /// Whether netifd runs the process.
    pub(super) by_netifd: bool,
}

/// Tunnels that are up with one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// The account's kind, such as `PrivateKey`.
    pub(super) what: &'static str,
    /// The names of the tunnels.
    pub(super) names: Vec<String>,
    /// Their devices, as far as known.
    pub(super) devices: Vec<String>,
}

/// All facts about this box.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) tun: TunDevice,
    pub(super) now: SystemTime,
    /// The present time is certainly later than this.
    pub(super) earliest: SystemTime,
    /// The latest time that the clock has shown, from the file.
    pub(super) floor: SystemTime,
    pub(super) links: Vec<Link>,
    pub(super) addresses: Vec<Address>,
    pub(super) rules: Vec<Rule>,
    /// Devices of the main table's default routes, except tunnels.
    pub(super) lines: Vec<String>,
    /// The device that leads to the Internet.
    pub(super) way_out: Option<String>,
    pub(super) name_servers: Vec<NameServer>,
    pub(super) tunnels: Vec<Tunnel>,
    pub(super) shared: Vec<Shared>,
    /// Warnings about files with secrets that others can read.
    pub(super) open_files: Vec<(PathBuf, String)>,
    /// Findings about certificates, lists and allowances that end soon.
    #[cfg(feature = "server")]
    pub(super) expiring: Vec<Finding>,
    /// Findings about values of AmneziaWG in tunnels' files, and in interfaces of OpenWrt.
    #[cfg(feature = "amnezia")]
    pub(super) amneziawg: Vec<Finding>,
    /// Findings about mistakes in settings files, and missing parts of the guard and the policy.
    pub(super) steering: Vec<Finding>,
    pub(super) listening: Vec<Listening>,
    /// `net.ipv4.ip_forward`.
    pub(super) forwards: bool,
    /// Devices of the LAN that get no answers through the tunnel for all traffic.
    #[cfg(feature = "policy")]
    pub(super) unmasqueraded: Vec<String>,
    /// Devices and their effective `rp_filter`.
    pub(super) rp_filters: Vec<(String, u8)>,
    /// Whether the box forwards packets: settings of a guard or of a server at home exist.
    pub(super) is_router: bool,
    /// Whether settings of a guard or of a policy exist.
    pub(super) guarded: bool,
    /// Whether the program `nft` exists, and whether the kernel supports nftables.
    pub(super) nft: bool,
    pub(super) nf_tables: bool,
    /// `flow_offloading` and `flow_offloading_hw` of OpenWrt's firewall.
    pub(super) offload: (bool, bool),
    /// Whether OpenWrt's firewall rejects GRE from the Internet.
    #[cfg(feature = "pptp")]
    pub(super) rejects_gre: bool,
    /// Memory that programs may have, in kilobytes.
    pub(super) available: Option<u64>,
    pub(super) starter: Starter,
    pub(super) up: Vec<Up>,
    /// Interfaces with remains of a killed process, and the marks of their routing rules.
    pub(super) left: Vec<(String, Vec<u32>)>,
}

impl Facts {
    /// The name of a device.
    pub(super) fn device(&self, index: u32) -> &str {
        let link = self.links.iter().find(|link| link.index == index);
        link.map_or("?", |link| &link.name)
    }

    /// Whether a routing rule belongs to a tunnel of this program, perhaps to a killed one.
    pub(super) fn is_rule_of_tunnel(&self, rule: &Rule) -> bool {
        let left = self.left.iter().flat_map(|it| &it.1);
        let marks: Vec<u32> = (self.tunnels.iter().map(|it| it.fwmark))
            .chain(left.copied())
            .collect();
        let is_marked = |rule: &Rule| {
            marks
                .iter()
                .any(|&mark| mark != 0 && (rule.fwmark == Some(mark) || rule.table == mark))
        };
        let mut others = self.rules.iter();
        is_marked(rule) || others.any(|next| is_marked(next) && rule.goes_before(next))
    }

    pub(super) fn is_tunnel(&self, device: &str) -> bool {
        self.tunnels.iter().any(|it| it.device == device)
    }
}
