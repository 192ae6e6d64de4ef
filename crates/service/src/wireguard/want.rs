//! Host settings that a `wg-quick` file wants.

use std::cmp::Reverse;
use std::net::SocketAddr;

use config::tunnel::{Table, Tunnel};
use config::types::{AllowedIp, InterfaceAddr};
use host::{
    DefaultV4, DefaultV6, Destination, Forwarding, Gateway, MAIN, Mtu, NameServers, Want,
    WantedAddress, WantedRoute,
};

/// Outer IPv6 and UDP headers, WireGuard's header and tag, in bytes: 40 + 8 + 16 + 16.
pub const OVERHEAD: u32 = 80;

/// Makes the host settings of a tunnel whose peers are at `endpoints`, with names already looked up. `no_dns` leaves
/// the host's name servers as they are.
pub fn want(tunnel: &Tunnel, endpoints: &[SocketAddr], no_dns: bool) -> Want {
    let interface = &tunnel.interface;
    let addresses = interface.addresses.iter();
    let overhead = OVERHEAD + interface.data_prefix();
    let mut want = Want {
        addresses: addresses.map(address).collect(),
        mtu: interface.mtu.map_or(Mtu::Path { overhead }, Mtu::Exact),
        endpoints: endpoints.iter().map(SocketAddr::ip).collect(),
        fwmark: interface.fwmark.unwrap_or(0),
        forwarding: tunnel.home.as_ref().map(|home| {
            let (masquerade, except) = home.masquerading();
            Forwarding { masquerade, except }
        }),
        ..Want::default()
    };
    // Search domains without a name server change nothing, as with wg-quick.
    if !interface.dns.is_empty() {
        if no_dns {
            let warning =
                "DNS is not applied, because --no-dns is set; names are looked up as before";
            want.warnings.push(warning.to_owned());
        } else {
            want.name_servers = Some(NameServers {
                servers: interface.dns.clone(),
                search: interface.dns_search.clone(),
                only: Vec::new(),
            });
        }
    }
    // The most specific range first, as wg-quick does: a default route must not cut off an endpoint before the
    // endpoint's own route exists.
    let mut ranges: Vec<AllowedIp> = tunnel.allowed_ips().collect();
    ranges.sort_by_key(|range| Reverse(range.prefix()));
    for range in ranges {
        match interface.table {
            Table::Off => {}
            Table::Id(table) => want.routes.push(route(range, table)),
            Table::Auto if !range.is_default() => want.routes.push(route(range, MAIN)),
            Table::Auto if range.addr().is_ipv4() => want.default_v4 = Some(DefaultV4::Rules),
            Table::Auto => want.default_v6 = Some(DefaultV6::Rules),
        }
    }
    want
}

fn address(&InterfaceAddr { addr, prefix }: &InterfaceAddr) -> WantedAddress {
    WantedAddress {
        addr,
        prefix,
        peer: None,
    }
}

fn route(range: AllowedIp, table: u32) -> WantedRoute {
    WantedRoute {
        name: String::new(),
        to: Destination::Network(range.addr()),
        prefix: range.prefix(),
        gateway: Gateway::Tunnel(None),
        metric: None,
        table,
        optional: false,
        pushed: false,
    }
}

#[cfg(test)]
mod tests;
