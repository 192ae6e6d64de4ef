//! Joins the configuration with the server's push.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use config::openvpn::{
    DnsServer, DnsTransport, Network, Place, Redirect, Route, RouteGateway, Topology,
};
use host::{Forwarding, NameServers, WantedAddress};
use openvpn::push::PushReply;
use thiserror::Error;

/// DNS port; name-server managers support no other.
const DNS_PORT: u16 = 53;

/// Warning when the server, not the configuration, requests `block-local`.
const BLOCK_LOCAL: &str = "the server routes the local network into the tunnel, too (redirect-gateway block-local), \
                           so its hosts are unreachable; to keep it outside, set pull-filter ignore \
                           \"redirect-gateway\" and redirect-gateway def1";

/// Error in the network options.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum NetworkError {
    /// `topology subnet` needs a netmask.
    #[error(
        "ifconfig {local} {second}: with topology subnet the second address must be a netmask, which {second} is not"
    )]
    Netmask {
        /// The first address.
        local: Ipv4Addr,
        /// The second address.
        second: Ipv4Addr,
    },
}

/// Network settings inside the tunnel.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TunnelNetwork {
    /// Addresses of the interface.
    pub addresses: Vec<WantedAddress>,
    /// MTU of the interface in bytes.
    pub mtu: u16,
    /// The gateway inside the tunnel (`vpn_gateway`).
    pub gateway: Option<IpAddr>,
    /// The IPv6 gateway inside the tunnel.
    pub gateway_v6: Option<Ipv6Addr>,
    /// The server chose the addresses.
    pub pushed_addresses: bool,
    /// Routes: the configuration's, then the pushed ones.
    pub routes: Vec<Route>,
    /// `redirect-gateway`, `redirect-private`.
    pub redirect: Option<Redirect>,
    /// `block-ipv6`.
    pub block_ipv6: bool,
    /// Name servers; `None` leaves the host's unchanged.
    pub dns: Option<NameServers>,
    /// How long to wait before routes are set.
    pub route_delay: Duration,
    /// Scripts set addresses, MTU and name servers.
    pub ifconfig_noexec: bool,
    /// Scripts set routes.
    pub route_noexec: bool,
    /// A server's forwarding of its clients' packets.
    pub forwarding: Option<Forwarding>,
    /// Outer packets may go through the tunnel.
    pub recursive: bool,
    /// Warnings for the user, one sentence each.
    pub warnings: Vec<String>,
}

impl TunnelNetwork {
    /// Joins the configuration with a client's push reply; for a server `pushed` is `None`. `route-nopull` and
    /// `pull-filter` are already applied. `mtu` is the tunnel's final MTU in bytes.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub fn merge(
        config: &Network,
        mtu: u16,
        pushed: Option<&PushReply>,
    ) -> Result<Self, NetworkError> {
        let forwarding = config.home.as_ref().filter(|_| pushed.is_none());
        let nothing = PushReply::default();
        let pushed = pushed.unwrap_or(&nothing);
        let mut network = Self {
            mtu,
            block_ipv6: config.block_ipv6 || pushed.block_ipv6,
            ifconfig_noexec: config.ifconfig_noexec,
            route_noexec: config.route_noexec,
            forwarding: forwarding.map(|home| {
                let (masquerade, except) = home.masquerading();
                Forwarding { masquerade, except }
            }),
            recursive: config.allow_recursive_routing,
            redirect: redirect(config.redirect, pushed.redirect_gateway),
            pushed_addresses: pushed.ifconfig.is_some() || pushed.ifconfig_ipv6.is_some(),
            ..Self::default()
        };
        let delay = config
            .route_delay
            .map(|seconds| Duration::from_secs(seconds.into()));
        network.route_delay = pushed.route_delay.or(delay).unwrap_or_default();
        if pushed.redirect_gateway.is_some_and(|it| it.block_local)
            && !config.redirect.is_some_and(|it| it.block_local)
        {
            network.warnings.push(BLOCK_LOCAL.to_owned());
        }
        network.add_addresses(config, pushed)?;
        network.add_routes(config, pushed);
        network.choose_dns(config, pushed);
        Ok(network)
    }

    /// Names in routes, to look up before the host's routes change.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places().filter_map(|place| match place {
            Place::Name(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Returns all networks and gateways of the routes.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.routes
            .iter()
            .flat_map(|route| [Some(&route.network), route.gateway.as_ref()])
            .flatten()
    }

    fn add_addresses(&mut self, config: &Network, pushed: &PushReply) -> Result<(), NetworkError> {
        let topology = pushed.topology.or(config.topology).unwrap_or_default();
        if let Some(it) = pushed.ifconfig.or(config.ifconfig) {
            self.add_v4(it.local, it.second, topology)?;
        }
        match (&config.route_gateway, pushed.route_gateway) {
            (_, Some(gateway)) => self.gateway = Some(gateway.into()),
            (Some(RouteGateway::Fixed(Place::Address(gateway))), None) => {
                self.gateway = Some(*gateway);
            }
            (Some(RouteGateway::Fixed(place)), None) => self.warnings.push(format!(
                "route-gateway is not an address ({place:?}); routes use the tunnel's interface"
            )),
            // A TUN has no DHCP.
            (Some(RouteGateway::Dhcp) | None, None) => {}
        }
        if let Some(it) = pushed.ifconfig_ipv6.or(config.ifconfig_v6) {
            self.addresses.push(WantedAddress {
                addr: it.local.into(),
                prefix: it.bits,
                peer: None,
            });
            let gateway = pushed.route_ipv6_gateway.or(config.route_gateway_v6);
            self.gateway_v6 = gateway.or(it.remote);
        }
        Ok(())
    }

    fn add_v4(
        &mut self,
        local: Ipv4Addr,
        second: Ipv4Addr,
        topology: Topology,
    ) -> Result<(), NetworkError> {
        let prefix = second.to_bits().leading_ones() as u8;
        let is_netmask = u32::from(prefix) + second.to_bits().trailing_zeros() >= 32;
        let subnet = match topology {
            Topology::Subnet if !is_netmask || prefix == 0 => {
                return Err(NetworkError::Netmask { local, second });
            }
            Topology::Subnet => true,
            // No host has a netmask as its address: the server forgot to push its topology.
            Topology::Net30 | Topology::P2p if is_netmask && prefix >= 8 => {
                self.warnings.push(format!(
                    "ifconfig {local} {second} looks like topology subnet, and is treated as such"
                ));
                true
            }
            Topology::Net30 | Topology::P2p => false,
        };
        self.addresses.push(WantedAddress {
            addr: local.into(),
            prefix: if subnet { prefix } else { 32 },
            peer: (!subnet).then_some(second.into()),
        });
        if !subnet {
            self.gateway = Some(second.into());
        }
        Ok(())
    }

    fn add_routes(&mut self, config: &Network, pushed: &PushReply) {
        let metric = pushed.route_metric.or(config.route_metric);
        let order = [
            &config.routes,
            &pushed.routes,
            &config.routes_v6,
            &pushed.routes_ipv6,
        ];
        let routes = order.into_iter().flatten().map(|route| Route {
            // A pushed default route must override the host's, so its metric is ignored.
            metric: match route.pushed && route.bits == 0 {
                true => config.route_metric,
                false => route.metric.or(metric),
            },
            ..route.clone()
        });
        self.routes = routes.collect();
    }

    /// `dns server` overrides `dhcp-option`, and the server's settings override the configuration's.
    fn choose_dns(&mut self, config: &Network, pushed: &PushReply) {
        let mut search: Vec<String> = Vec::new();
        let domain = pushed.dns.domain.iter().chain(&config.dhcp.domain).take(1);
        let domains = domain
            .chain(&pushed.dns.search)
            .chain(&config.dns.search_domains)
            .chain(&config.dhcp.search);
        for domain in domains {
            if !search.contains(domain) {
                search.push(domain.clone());
            }
        }
        let mut offers: Vec<&(i8, DnsServer)> = pushed.dns.options.servers.iter().collect();
        offers.extend(&config.dns.servers);
        // A stable sort keeps the server's first among equals.
        offers.sort_by_key(|(priority, _)| *priority);
        let offered = !offers.is_empty();
        for (priority, offer) in offers {
            let usual = |addr: &&SocketAddr| [0, DNS_PORT].contains(&addr.port());
            let servers = offer.addresses.iter().filter(usual);
            let servers: Vec<IpAddr> = servers.map(SocketAddr::ip).collect();
            if offer.transport != DnsTransport::Plain || servers.is_empty() {
                self.warnings.push(format!(
                    "dns server {priority}: only plain DNS on port 53 can be set; the server is skipped"
                ));
                continue;
            }
            self.dns = Some(NameServers {
                servers,
                search,
                only: offer.resolve_domains.clone(),
            });
            return;
        }
        let servers: Vec<IpAddr> = pushed
            .dns
            .servers
            .iter()
            .chain(&config.dhcp.dns)
            .copied()
            .collect();
        if !servers.is_empty() && !offered {
            self.dns = Some(NameServers {
                servers,
                search,
                only: Vec::new(),
            });
        }
    }
}

/// Joins the flags of both sides.
fn redirect(own: Option<Redirect>, pushed: Option<Redirect>) -> Option<Redirect> {
    let (Some(own), Some(pushed)) = (own, pushed) else {
        return own.or(pushed);
    };
    Some(Redirect {
        gateway: own.gateway || pushed.gateway,
        ipv4: own.ipv4 && pushed.ipv4,
        ipv6: own.ipv6 || pushed.ipv6,
        local: own.local || pushed.local,
        autolocal: own.autolocal || pushed.autolocal,
        def1: own.def1 || pushed.def1,
        bypass_dhcp: own.bypass_dhcp || pushed.bypass_dhcp,
        bypass_dns: own.bypass_dns || pushed.bypass_dns,
        block_local: own.block_local || pushed.block_local,
    })
}
