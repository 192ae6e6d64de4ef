//! A WireGuard tunnel as a `wg-quick` file describes it: the checked model.

use std::net::IpAddr;

use crate::home::HomeServer;
use crate::lines::{Given, Lines, SharedLines};
use crate::pool::Pool;
use crate::types::{AllowedIp, Endpoint, InterfaceAddr, Key32};
use crate::uapi::{AllowedIpChange, SetDevice, SetPeer};

/// One interface with its peers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tunnel {
    /// The `[Interface]` section.
    pub interface: Interface,
    /// The `[Peer]` sections in their order; no two have the same public key.
    pub peers: Vec<Peer>,
    /// The lines (uplinks), from comments.
    pub lines: Lines,
    /// The `[Server]` section, from comments.
    pub home: Option<HomeServer>,
    /// The `[Pool]` section, from comments.
    pub pool: Option<Pool>,
}

/// The `[Interface]` section.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Interface {
    /// `PrivateKey`; missing if a script sets it.
    pub private_key: Option<Key32>,
    /// `ListenPort`; `None` or 0 lets the kernel choose one.
    pub listen_port: Option<u16>,
    /// `FwMark`; `None` if the file does not set it, 0 for `off`.
    pub fwmark: Option<u32>,
    /// `Address`, host bits kept.
    pub addresses: Vec<InterfaceAddr>,
    /// The name servers of `DNS`.
    pub dns: Vec<IpAddr>,
    /// The search domains of `DNS`.
    pub dns_search: Vec<String>,
    /// `MTU` in bytes, 68 to 65535; `None` derives it from the path to the peers.
    pub mtu: Option<u32>,
    /// AmneziaWG's settings; all-default ones are plain WireGuard.
    #[cfg(feature = "amnezia")]
    pub amnezia: wireguard::amnezia::Settings,
    /// `Table`.
    pub table: Table,
    /// `SaveConfig`: write the file again when the tunnel goes down.
    pub save_config: bool,
    /// `PreUp` to `PostDown`. Kept even without permission to run them, so that saving does not lose them.
    pub scripts: Scripts,
}

/// The routing table for routes to the allowed-ips.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Table {
    /// The main table; a default route gets a table and a rule of its own.
    #[default]
    Auto,
    /// No routes at all.
    Off,
    /// The table with this number.
    Id(u32),
}

/// Shell commands for the phases of a tunnel's life; `%i` in them stands for the interface.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scripts {
    /// Run before the interface is created.
    pub pre_up: Vec<String>,
    /// Run when the interface is fully up.
    pub post_up: Vec<String>,
    /// Run before anything is taken down.
    pub pre_down: Vec<String>,
    /// Run when the interface is gone.
    pub post_down: Vec<String>,
}

impl Scripts {
    /// True when there is no command.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pre_up.is_empty()
            && self.post_up.is_empty()
            && self.pre_down.is_empty()
            && self.post_down.is_empty()
    }
}

/// A `[Peer]` section.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Peer {
    /// The comment `#! Name = …`, with which a server at home names a client.
    pub name: Option<Box<str>>,
    /// `PublicKey`.
    pub public_key: Key32,
    /// `PresharedKey`; the all-zero key means "no key".
    pub preshared_key: Option<Key32>,
    /// `AllowedIPs`, masked to networks.
    pub allowed_ips: Vec<AllowedIp>,
    /// `Endpoint`.
    pub endpoint: Option<Endpoint>,
    /// `PersistentKeepalive` in seconds; `None` if the file does not set it, 0 for `off`.
    pub persistent_keepalive: Option<u16>,
    /// `#! Replaces`: the public key of the peer whose ranges this peer gets at its first handshake.
    pub replaces: Option<Box<Key32>>,
    /// `#! PostQuantum` and `#! PostQuantumAddress`; `None` for off.
    #[cfg(feature = "postquantum")]
    pub post_quantum: Option<Box<crate::postquantum::PostQuantum>>,
}

impl Interface {
    /// Bytes in front of each data packet, by which a packet is longer than in plain WireGuard.
    #[must_use]
    pub fn data_prefix(&self) -> u32 {
        #[cfg(feature = "amnezia")]
        return self.amnezia.prefix[3].into();
        #[cfg(not(feature = "amnezia"))]
        0
    }
}

impl Tunnel {
    /// Whether the tunnel's own outer packets would be routed into it, unless they carry its mark. Its ranges then
    /// hold all of IPv4 or IPv6, whole or in halves, or an endpoint.
    #[must_use]
    pub fn takes_its_own(&self) -> bool {
        let takes_all = self.allowed_ips().any(|range| range.prefix() <= 1);
        self.interface.table != Table::Off
            && (takes_all || self.ranges_of_endpoints().next().is_some())
    }

    /// Whether this is a server's tunnel: peers connect to this host, and no peer's ranges hold all addresses. A server
    /// may also connect to a peer, such as another site.
    #[must_use]
    pub fn is_server(&self) -> bool {
        // Two halves of all addresses are the usual substitute for a default route.
        let takes_all = self.allowed_ips().any(|range| range.prefix() <= 1);
        let listens = self.interface.listen_port.is_some_and(|port| port != 0);
        let is_called = self.peers.is_empty() || self.called() < self.peers.len();
        !takes_all && (self.home.is_some() || listens && is_called)
    }

    /// Ranges that hold the address of an endpoint, each with that address. Endpoints given by name are left out.
    pub fn ranges_of_endpoints(&self) -> impl Iterator<Item = (AllowedIp, IpAddr)> {
        let endpoints = self.peers.iter().filter_map(|peer| peer.endpoint.as_ref());
        let others = self.pool.iter().flat_map(|pool| &pool.servers);
        let endpoints = endpoints.chain(others.map(|server| &server.endpoint));
        let addresses = endpoints.filter_map(|it| Some(it.socket_addr()?.ip()));
        addresses.flat_map(|addr| {
            let ranges = self.allowed_ips().filter(move |range| range.contains(addr));
            ranges.map(move |range| (range, addr))
        })
    }

    /// Number of peers that this tunnel connects to, as they have an endpoint. Each server of a pool counts.
    #[must_use]
    pub fn called(&self) -> usize {
        let peers = self.peers.iter();
        let called = peers.filter(|peer| peer.endpoint.is_some()).count();
        called + self.pool.as_ref().map_or(0, |pool| pool.servers.len())
    }

    /// The lines that the tunnel runs with: its own, or else those of the settings file.
    #[must_use]
    pub fn lines_with(&self, shared: Option<&SharedLines>) -> Given {
        match shared.filter(|_| self.lines.is_default()) {
            Some(shared) => shared.fit(self.takes_its_own(), self.called()),
            None => Given {
                lines: self.lines.clone(),
                ..Given::default()
            },
        }
    }

    /// All ranges of all peers, in file order.
    pub fn allowed_ips(&self) -> impl Iterator<Item = AllowedIp> + '_ {
        self.peers
            .iter()
            .flat_map(|peer| peer.allowed_ips.iter().copied())
    }

    /// The request that `wg setconf` would send for this tunnel: it replaces everything, and resets what the file
    /// leaves out. Endpoints may still be names, which the receiver has to resolve.
    #[must_use]
    pub fn to_set_device(&self) -> SetDevice {
        let peers = self.peers.iter().map(|peer| SetPeer {
            public_key: peer.public_key.clone(),
            remove: false,
            update_only: false,
            preshared_key: peer.preshared_key.clone(),
            endpoint: peer.endpoint.clone(),
            persistent_keepalive: peer.persistent_keepalive,
            replace_allowed_ips: true,
            allowed_ips: peer
                .allowed_ips
                .iter()
                .copied()
                .map(AllowedIpChange::Add)
                .collect(),
            replaces: peer.replaces.clone(),
            #[cfg(feature = "postquantum")]
            post_quantum: Some(peer.post_quantum.as_deref().copied().unwrap_or_default()),
        });
        SetDevice {
            private_key: Some(self.interface.private_key.clone().unwrap_or_default()),
            listen_port: Some(self.interface.listen_port.unwrap_or(0)),
            fwmark: Some(self.interface.fwmark.unwrap_or(0)),
            replace_peers: true,
            peers: peers.collect(),
            #[cfg(feature = "amnezia")]
            amnezia: crate::amnezia::Change::whole(&self.interface.amnezia),
        }
    }
}
