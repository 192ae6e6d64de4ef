//! Plan of the MTU probes: which addresses to probe for each peer of a file.

use super::probing::ProbePlan;
use config::settings::MtuProbe;
use config::tunnel::{Peer, Tunnel};
use config::types::{AllowedIp, family_bits};
use plane::Routes;
use std::net::IpAddr;
use wireguard::echo::ECHO_MIN;

/// Shortest useful length in bytes: every host accepts this much (RFC 1122, section 3.3.2).
const LEAST: u32 = 576;

/// Shortest prefix of a peer's range that may be the tunnel's own network.
const NETWORK_MIN: u8 = 16;

/// Maximum number of addresses of a peer that are tried.
const TARGETS_MAX: usize = 4;

impl ProbePlan {
    /// Builds the plan that `setting` allows for an interface MTU in this range, in bytes; `None` without any probe.
    /// Skips peers without an endpoint: the MTU is derived from the paths to the others.
    #[must_use]
    pub fn new(setting: MtuProbe, (least, most): (u32, u32), tunnel: &Tunnel) -> Option<Self> {
        // The peer pads its answers, which would tell nothing about the path.
        #[cfg(feature = "amnezia")]
        let pads = tunnel.interface.amnezia.pads();
        #[cfg(not(feature = "amnezia"))]
        let pads = false;
        if setting == MtuProbe::Off || pads {
            return None;
        }
        let bytes = |bytes: u32| u16::try_from(bytes).unwrap_or(u16::MAX);
        let owners = owners(tunnel);
        let called = tunnel.peers.iter().enumerate();
        let called = called.filter(|(_, peer)| peer.endpoint.is_some());
        let peers = called.map(|(at, peer)| {
            let is_peers = |addr: IpAddr| owners.lookup(addr) == Some(&at);
            let targets = targets(setting, peer, tunnel, is_peers);
            (peer.public_key.clone(), targets.into())
        });
        let peers: Vec<_> = peers.collect();
        let (least, most) = (bytes(least.max(LEAST)), bytes(most));
        (!peers.is_empty() && least > ECHO_MIN && most > least).then_some(Self {
            least,
            most,
            peers,
            prefix: tunnel.interface.data_prefix(),
        })
    }
}

/// Maps addresses to the index of their peer: the one with the most specific range, and of two equal ranges the last
/// peer.
fn owners(tunnel: &Tunnel) -> Routes<usize> {
    let mut owners = Routes::default();
    for (at, peer) in tunnel.peers.iter().enumerate() {
        for range in &peer.allowed_ips {
            owners.insert(range.addr(), range.prefix(), at);
        }
    }
    owners
}

/// Addresses of a peer that may answer, each after the address of ours that asks.
fn targets(
    setting: MtuProbe,
    peer: &Peer,
    tunnel: &Tunnel,
    is_peers: impl Fn(IpAddr) -> bool,
) -> Vec<(IpAddr, IpAddr)> {
    let interface = &tunnel.interface;
    let from = |addr: IpAddr| {
        let mut own = interface.addresses.iter().map(|it| it.addr);
        let own = own.find(|it| it.is_ipv4() == addr.is_ipv4() && *it != addr)?;
        Some((own, addr))
    };
    let mut candidates: Vec<IpAddr> = Vec::new();
    if let MtuProbe::Address(addr) = setting {
        candidates.push(addr);
    } else {
        let hosts = peer.allowed_ips.iter();
        let hosts = hosts.filter(|range| range.prefix() == family_bits(range.addr()));
        candidates.extend(hosts.map(AllowedIp::addr));
        // Very often the inner address of a provider's server.
        candidates.extend(&interface.dns);
        let networks = interface.addresses.iter();
        let networks = networks.filter(|it| it.prefix < family_bits(it.addr));
        candidates.extend(networks.map(|it| first_host(it.addr, it.prefix)));
        // Files of `millrace peer add` have the tunnel's network only in AllowedIPs; `Address` is a single address.
        let around = peer.allowed_ips.iter().filter(|range| {
            let mut own = interface.addresses.iter();
            range.prefix() >= NETWORK_MIN && own.any(|it| range.contains(it.addr))
        });
        candidates.extend(around.map(|it| first_host(it.addr(), it.prefix())));
        // Addresses outside the inner networks may be reached by paths that bypass the tunnel.
        candidates.retain(|addr| is_inner(*addr, tunnel));
    }
    let mut targets = Vec::new();
    for target in candidates
        .into_iter()
        .filter(|it| is_peers(*it))
        .filter_map(from)
    {
        if !targets.contains(&target) && targets.len() < TARGETS_MAX {
            targets.push(target);
        }
    }
    targets
}

/// The first host address of an address's network.
pub(super) fn first_host(addr: IpAddr, prefix: u8) -> IpAddr {
    let host = u32::from(family_bits(addr) - prefix);
    match addr {
        IpAddr::V4(addr) => {
            let network = u32::MAX.checked_shl(host).unwrap_or(0);
            std::net::Ipv4Addr::from_bits((addr.to_bits() & network) | 1).into()
        }
        IpAddr::V6(addr) => {
            let network = u128::MAX.checked_shl(host).unwrap_or(0);
            std::net::Ipv6Addr::from_bits((addr.to_bits() & network) | 1).into()
        }
    }
}

/// Whether hosts inside tunnels may have an address: a private one (RFC 1918, RFC 4193), a provider's shared one (RFC
/// 6598), or one in our own network.
fn is_inner(addr: IpAddr, tunnel: &Tunnel) -> bool {
    let near = tunnel.interface.addresses.iter().any(|own| {
        let prefix = own.prefix.max(if addr.is_ipv4() { 24 } else { 64 });
        AllowedIp::new(own.addr, prefix.min(family_bits(own.addr)))
            .is_ok_and(|range| own.prefix < family_bits(own.addr) && range.contains(addr))
    });
    near || host::is_private(addr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::permissions::Permissions;
    use config::wgquick;

    fn tunnel(interface: &str, ranges: &str) -> Tunnel {
        let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
        let text = format!(
            "[Interface]\nPrivateKey = {key}\n{interface}\n[Peer]\nPublicKey = {key}\n\
             Endpoint = 192.0.2.1:51820\nAllowedIPs = {ranges}\n"
        );
        let options = Permissions::NONE;
        let parsed = wgquick::parse(&text, "wg0.conf", options);
        parsed.into_tunnel().unwrap().0
    }

    fn asked(setting: MtuProbe, interface: &str, ranges: &str) -> Vec<String> {
        let plan = ProbePlan::new(setting, (68, 1420), &tunnel(interface, ranges)).unwrap();
        assert_eq!((plan.least, plan.most), (576, 1420));
        let (_, targets) = &plan.peers[0];
        targets.iter().map(|(_, to)| to.to_string()).collect()
    }

    #[test]
    fn what_is_most_likely_the_peers_own_is_asked() {
        let auto = |interface, ranges| asked(MtuProbe::Auto, interface, ranges);
        let none: [&str; 0] = [];
        // The file of a VPN provider.
        let provider = "Address = 10.64.3.2/32\nDNS = 10.64.0.1";
        assert_eq!(auto(provider, "0.0.0.0/0"), ["10.64.0.1"]);
        // Public name servers are reached over other paths, so they are not probed.
        let public = "Address = 10.64.3.2/32\nDNS = 1.1.1.1";
        assert_eq!(auto(public, "0.0.0.0/0"), none);
        let site = "Address = 10.0.0.2/24";
        assert_eq!(auto(site, "10.0.0.1/32, 192.168.7.0/24"), ["10.0.0.1"]);
        assert_eq!(auto(site, "10.0.0.0/24"), ["10.0.0.1"]);
        assert_eq!(auto(site, "192.168.7.0/24"), none);
        // A file of `millrace peer add --lan-only`.
        let branch = "Address = 10.7.0.8/32";
        let ranges = "10.7.0.0/24, 192.168.1.0/24";
        assert_eq!(auto(branch, ranges), ["10.7.0.1"]);
        assert_eq!(auto(branch, "10.0.0.0/8"), none);
        // Our own address is not the peer's, and a family without an address of ours cannot ask.
        assert_eq!(
            auto("Address = 10.0.0.1/24", "10.0.0.0/24, fd00::2/128"),
            none
        );
        let named = MtuProbe::Address([192, 0, 2, 9].into());
        assert_eq!(asked(named, site, "0.0.0.0/0"), ["192.0.2.9"]);
        assert_eq!(asked(named, site, "10.0.0.1/32"), none);
        let tunnel = tunnel(site, "10.0.0.1/32");
        assert_eq!(ProbePlan::new(MtuProbe::Off, (68, 1420), &tunnel), None);
    }

    #[test]
    fn an_address_is_the_peers_with_the_most_specific_range() {
        let key = |byte: u8| {
            config::types::Key32::new([byte; 32])
                .to_base64()
                .to_string()
        };
        let mut text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.9/24\n",
            key(1)
        );
        for (byte, ranges) in [
            (2, "10.0.0.0/24, 10.0.0.7/32"),
            (3, "10.0.0.1/32"),
            (4, "10.0.0.8/32"),
            // Of two equal ranges the last peer has it.
            (5, "10.0.0.7/32"),
        ] {
            text += &format!(
                "[Peer]\nPublicKey = {}\nEndpoint = 192.0.2.1:51820\nAllowedIPs = {ranges}\n",
                key(byte)
            );
        }
        let options = Permissions::NONE;
        let parsed = wgquick::parse(&text, "wg0.conf", options);
        let tunnel = parsed.into_tunnel().unwrap().0;
        let plan = ProbePlan::new(MtuProbe::Auto, (68, 1420), &tunnel).unwrap();
        let asked = plan.peers.iter().map(|(_, targets)| {
            let to = targets.iter().map(|(_, to)| to.to_string());
            to.collect::<Vec<_>>().join(" ")
        });
        let asked: Vec<_> = asked.collect();
        assert_eq!(asked, ["", "10.0.0.1", "10.0.0.8", "10.0.0.7"]);
    }
}
