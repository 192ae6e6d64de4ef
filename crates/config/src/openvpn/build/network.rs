//! Directives about addresses, routes and names inside the tunnel.

use std::net::{IpAddr, SocketAddr};

use super::Builder;
use super::value::{
    OK, Outcome, Remark, at, host, ipv4, ipv6, ipv6_network, ipv6_network_or_host, netmask_bits,
    one_of, place, seconds,
};
use crate::openvpn::directive::Directive;
use crate::openvpn::lexer::shown;
use crate::openvpn::{
    DhcpOptions, DnsOptions, DnsTransport, Dnssec, Ifconfig, IfconfigV6, Place, Redirect, Route,
    RouteGateway, RouteV6,
};

/// Most routes of one configuration.
const ROUTES_MAX: usize = 10_000;

/// Applies a directive of this group.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    let value = at(directive, 0);
    let network = &mut builder.network;
    let done = match directive.name.as_str() {
        "ifconfig" => ifconfig(directive).map(|pair| network.ifconfig = Some(pair)),
        "ifconfig-ipv6" => ifconfig_v6(directive).map(|pair| network.ifconfig_v6 = Some(pair)),
        "ifconfig-noexec" => {
            network.ifconfig_noexec = true;
            Ok(())
        }
        "route" => return Some(add_route(&mut network.routes, directive)),
        "route-ipv6" => route_v6(directive).and_then(|route| {
            if network.routes_v6.len() == ROUTES_MAX {
                return Err(format!("more than {ROUTES_MAX} routes"));
            }
            network.routes_v6.push(route);
            Ok(())
        }),
        "route-gateway" => match value {
            "dhcp" => {
                network.route_gateway = Some(RouteGateway::Dhcp);
                Ok(())
            }
            _ => place(value).map(|place| network.route_gateway = Some(RouteGateway::Fixed(place))),
        },
        "route-ipv6-gateway" => ipv6(value).map(|gateway| network.route_gateway_v6 = Some(gateway)),
        "route-metric" => seconds(value).map(|metric| network.route_metric = Some(metric)),
        "route-delay" => return Some(route_delay(builder, directive)),
        "route-noexec" => {
            network.route_noexec = true;
            Ok(())
        }
        "redirect-gateway" | "redirect-private" => redirect(&mut network.redirect, directive),
        "block-ipv6" => {
            network.block_ipv6 = true;
            Ok(())
        }
        "allow-recursive-routing" => {
            network.allow_recursive_routing = true;
            Ok(())
        }
        "dhcp-option" => return Some(dhcp_option(&mut network.dhcp, directive)),
        "dns" => dns(&mut network.dns, directive),
        _ => return None,
    };
    Some(done.map(|()| Remark::Plain))
}

fn ifconfig(directive: &Directive) -> Result<Ifconfig, String> {
    let (local, second) = (ipv4(at(directive, 0))?, ipv4(at(directive, 1))?);
    if local == second {
        return Err("local and remote address, or netmask, must differ".to_owned());
    }
    Ok(Ifconfig { local, second })
}

fn ifconfig_v6(directive: &Directive) -> Result<IfconfigV6, String> {
    let text = at(directive, 0);
    let (local, bits) = match text.contains('/') {
        true => ipv6_network(text)?,
        false => (ipv6(text)?, 64),
    };
    Ok(IfconfigV6 {
        local,
        bits,
        remote: ipv6(at(directive, 1))?,
    })
}

fn add_route(routes: &mut Vec<Route>, directive: &Directive) -> Outcome {
    if at(directive, 0).contains('/') {
        // Stock refuses such a route too, but only in its log and once the tunnel is up.
        return Ok(Remark::Ignored(
            "not an address, for stock neither; write `route NETWORK NETMASK`, and for all \
             traffic `redirect-gateway def1`"
                .to_owned(),
        ));
    }
    let route = route(directive)?;
    if routes.len() == ROUTES_MAX {
        return Err(format!("more than {ROUTES_MAX} routes"));
    }
    routes.push(route);
    OK
}

fn route(directive: &Directive) -> Result<Route, String> {
    let given = |index| directive.get(index).filter(|text| *text != "default");
    let mask = given(1).map(ipv4).transpose()?;
    let network = place(at(directive, 0))?;
    let bits = mask.map_or(Ok(32), netmask_bits)?;
    if let (Place::Address(IpAddr::V6(address)), _) = (&network, bits) {
        return Err(format!("{address} is IPv6; write `route-ipv6`"));
    }
    if let (Place::Address(IpAddr::V4(address)), Some(mask)) = (&network, mask)
        && address.to_bits() & !mask.to_bits() != 0
    {
        let network = std::net::Ipv4Addr::from_bits(address.to_bits() & mask.to_bits());
        return Err(format!(
            "{address} is not the first address of a network with netmask {mask}; \
             write {network} {mask}"
        ));
    }
    Ok(Route {
        network,
        bits,
        gateway: given(2).map(place).transpose()?,
        metric: given(3).map(seconds).transpose()?,
    })
}

fn route_v6(directive: &Directive) -> Result<RouteV6, String> {
    let given = |index| directive.get(index).filter(|text| *text != "default");
    let (network, bits) = ipv6_network_or_host(at(directive, 0))?;
    Ok(RouteV6 {
        network,
        bits,
        gateway: given(1).map(ipv6).transpose()?,
        metric: given(2).map(seconds).transpose()?,
    })
}

fn route_delay(builder: &mut Builder, directive: &Directive) -> Outcome {
    let delay = directive.get(0).map_or(Ok(0), seconds)?;
    // The second value is a time limit for Windows.
    directive.get(1).map(seconds).transpose()?;
    builder.network.route_delay = Some(delay);
    OK
}

const REDIRECT_FLAGS: [&str; 8] = [
    "def1",
    "ipv6",
    "!ipv4",
    "local",
    "autolocal",
    "bypass-dhcp",
    "bypass-dns",
    "block-local",
];

fn redirect(slot: &mut Option<Redirect>, directive: &Directive) -> Result<(), String> {
    let unknown = |flag: &&String| !REDIRECT_FLAGS.contains(&flag.as_str());
    if let Some(flag) = directive.values.iter().find(unknown) {
        return Err(one_of(flag, &REDIRECT_FLAGS));
    }
    let redirect = slot.get_or_insert(Redirect {
        ipv4: true,
        ..Redirect::default()
    });
    redirect.gateway |= directive.name == "redirect-gateway";
    for flag in &directive.values {
        match flag.as_str() {
            "def1" => redirect.def1 = true,
            "ipv6" => redirect.ipv6 = true,
            "!ipv4" => redirect.ipv4 = false,
            "local" => redirect.local = true,
            "autolocal" => redirect.autolocal = true,
            "bypass-dhcp" => redirect.bypass_dhcp = true,
            "bypass-dns" => redirect.bypass_dns = true,
            _ => redirect.block_local = true,
        }
    }
    Ok(())
}

fn dhcp_option(dhcp: &mut DhcpOptions, directive: &Directive) -> Outcome {
    let value = directive.get(1);
    let domain = |value: Option<&str>| -> Result<String, String> {
        host(value.unwrap_or_default()).map_err(|_| "needs a domain name".to_owned())
    };
    let mut remark = Remark::Plain;
    match at(directive, 0) {
        kind @ ("DNS" | "DNS6") => {
            let text = value.unwrap_or_default();
            let address = text
                .parse::<IpAddr>()
                .ok()
                .filter(|address| kind == "DNS" || address.is_ipv6())
                .ok_or_else(|| format!("`{}` is no address of a name server", shown(text)))?;
            dhcp.dns.push(address);
        }
        "DOMAIN" => dhcp.domain = Some(domain(value)?),
        "DOMAIN-SEARCH" | "ADAPTER_DOMAIN_SUFFIX" => dhcp.search.push(domain(value)?),
        _ => {
            remark = Remark::Note("only given to scripts, as `foreign_option_N`".to_owned());
        }
    }
    dhcp.lines.push(directive.values.join(" "));
    Ok(remark)
}

/// Most addresses of one name server, as in stock.
const DNS_ADDRESSES_MAX: usize = 8;

fn dns(dns: &mut DnsOptions, directive: &Directive) -> Result<(), String> {
    let domains = |values: &[String]| -> Result<Vec<String>, String> {
        values.iter().map(|name| host(name)).collect()
    };
    match at(directive, 0) {
        "search-domains" => {
            dns.search_domains.extend(domains(&directive.values[1..])?);
            return Ok(());
        }
        "server" => {}
        other => return Err(one_of(other, &["server", "search-domains"])),
    }
    if directive.values.len() < 4 {
        return Err("is written `dns server NUMBER OPTION VALUE`".to_owned());
    }
    let priority: i8 = at(directive, 1).parse().map_err(|_| {
        format!(
            "`{}` is no number from -128 to 127",
            shown(at(directive, 1))
        )
    })?;
    let server = dns.servers.entry(priority).or_default();
    let value = at(directive, 3);
    match at(directive, 2) {
        "address" => {
            for text in &directive.values[3..] {
                if server.addresses.len() == DNS_ADDRESSES_MAX {
                    return Err(format!(
                        "more than {DNS_ADDRESSES_MAX} addresses of one server"
                    ));
                }
                server.addresses.push(dns_address(text)?);
            }
        }
        "resolve-domains" => server
            .resolve_domains
            .extend(domains(&directive.values[3..])?),
        "dnssec" => {
            server.dnssec = match value {
                "yes" => Dnssec::Yes,
                "no" => Dnssec::No,
                "optional" => Dnssec::Optional,
                other => return Err(one_of(other, &["yes", "optional", "no"])),
            }
        }
        "transport" => {
            server.transport = match value {
                "plain" => DnsTransport::Plain,
                "DoT" => DnsTransport::Tls,
                "DoH" => DnsTransport::Https,
                other => return Err(one_of(other, &["plain", "DoT", "DoH"])),
            }
        }
        "sni" => server.sni = Some(host(value)?),
        other => {
            let known = ["address", "resolve-domains", "dnssec", "transport", "sni"];
            return Err(one_of(other, &known));
        }
    }
    Ok(())
}

/// Parses `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; port 0 if none is given.
fn dns_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 0));
    }
    text.parse()
        .map_err(|_| format!("`{}` is no address of a name server", shown(text)))
}
