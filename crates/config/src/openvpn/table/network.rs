//! Directives about addresses, routes and names inside the tunnel.

use std::net::{IpAddr, SocketAddr};

use super::value::{
    OK, Outcome, host, ignored, ipv4, ipv4_network, ipv6, ipv6_network, ipv6_network_or_host,
    netmask_bits, note, one_of, place, put, seconds, set, some, word,
};
use super::{End, Entry, LIST, MANY, WINDOWS, flag, no, one, skip, yes};
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::Draft;
use crate::openvpn::lexer::shown;
use crate::openvpn::{
    DhcpOptions, DnsTransport, Dnssec, Ifconfig, IfconfigV6, Place, Redirect, Route, RouteGateway,
};

/// Maximum number of routes of one configuration.
const ROUTES_MAX: usize = 10_000;

pub(super) const ROWS: &[Entry] = &[
    yes("ifconfig", 2, 2, |d, it| {
        some(&mut d.network.ifconfig, ifconfig(it))
    }),
    yes("ifconfig-ipv6", 2, 2, |d, it| {
        some(&mut d.network.ifconfig_v6, ifconfig_v6(it))
    }),
    flag("ifconfig-noexec", |d| &mut d.network.ifconfig_noexec),
    skip(
        "ifconfig-nowarn",
        "the two ends' addresses are not compared",
    ),
    yes("route", 1, 4, |d, it| {
        // Stock refuses a route with a prefix too, but only in its log and once the tunnel is up.
        if it.at(0).contains('/') {
            return ignored(
                "not an address, in the original OpenVPN either; write `route NETWORK NETMASK`, and for all traffic \
                 `redirect-gateway def1`",
            );
        }
        add(&mut d.network.routes, route(it))
    })
    .is(LIST),
    yes("route-ipv6", 1, 3, |d, it| {
        add(&mut d.network.routes_v6, route_v6(it))
    })
    .is(LIST),
    one("route-gateway", |d, v| {
        let gateway = match v {
            "dhcp" => RouteGateway::Dhcp,
            other => RouteGateway::Fixed(place(other)?),
        };
        put(&mut d.network.route_gateway, gateway)
    }),
    one("route-ipv6-gateway", |d, v| {
        some(&mut d.network.route_gateway_v6, ipv6(v))
    }),
    one("route-metric", |d, v| {
        some(&mut d.network.route_metric, seconds(v))
    }),
    yes("route-delay", 0, 2, |d, it| {
        let delay = it.get(0).map_or(Ok(0), seconds)?;
        // The second value is a time limit for Windows.
        it.get(1).map(seconds).transpose()?;
        put(&mut d.network.route_delay, delay)
    })
    .end(End::Client("is for clients; remove the line")),
    flag("route-noexec", |d| &mut d.network.route_noexec),
    skip("max-routes", "Millrace has no such limit"),
    skip("route-method", WINDOWS),
    no(
        "route-table",
        "routes are set in the main table; use `route-noexec` and a `route-up` script",
    ),
    yes("redirect-gateway", 0, MANY, |d, it| {
        redirect(d, it)?.gateway = true;
        OK
    })
    .is(LIST)
    .end(End::Client(
        "is for clients; write `push \"redirect-gateway def1\"`",
    )),
    yes("redirect-private", 0, MANY, |d, it| {
        redirect(d, it)?;
        OK
    })
    .is(LIST),
    flag("block-ipv6", |d| &mut d.network.block_ipv6),
    flag("allow-recursive-routing", |d| {
        &mut d.network.allow_recursive_routing
    })
    .end(End::Client("is for clients; remove the line")),
    yes("dhcp-option", 1, MANY, |d, it| {
        dhcp_option(&mut d.network.dhcp, it)
    })
    .is(LIST),
    yes("dns", 2, MANY, dns).is(LIST),
    skip("dns-updown", "name servers are set without a script"),
    skip("register-dns", WINDOWS),
    skip("block-outside-dns", WINDOWS),
    skip("ip-win32", WINDOWS),
    skip("dhcp-renew", WINDOWS),
    skip("dhcp-release", WINDOWS),
    skip("dhcp-pre-release", WINDOWS),
    skip("dhcp-internal", WINDOWS),
    skip("rdns-internal", WINDOWS),
];

fn ifconfig(directive: &Directive) -> Result<Ifconfig, String> {
    let (local, second) = (ipv4(directive.at(0))?, ipv4(directive.at(1))?);
    if local == second {
        return Err("local and remote address, or netmask, must differ".to_owned());
    }
    Ok(Ifconfig { local, second })
}

fn ifconfig_v6(directive: &Directive) -> Result<IfconfigV6, String> {
    let text = directive.at(0);
    let (local, bits) = match text.contains('/') {
        true => ipv6_network(text)?,
        false => (ipv6(text)?, 64),
    };
    Ok(IfconfigV6 {
        local,
        bits,
        remote: Some(ipv6(directive.at(1))?),
    })
}

fn add<T>(routes: &mut Vec<T>, route: Result<T, String>) -> Outcome {
    let route = route?;
    if routes.len() == ROUTES_MAX {
        return Err(format!("more than {ROUTES_MAX} routes"));
    }
    routes.push(route);
    OK
}

fn route(directive: &Directive) -> Result<Route, String> {
    let given = |index| directive.get(index).filter(|text| *text != "default");
    let mask = given(1).map(ipv4).transpose()?;
    let network = place(directive.at(0))?;
    let bits = mask.map_or(Ok(32), netmask_bits)?;
    match &network {
        Place::Address(IpAddr::V6(address)) => {
            return Err(format!("{address} is IPv6; write `route-ipv6`"));
        }
        Place::Address(IpAddr::V4(_)) => {
            ipv4_network(directive.at(0), given(1))?;
        }
        _ => {}
    }
    Ok(Route {
        v6: false,
        network,
        bits,
        gateway: given(2).map(place).transpose()?,
        metric: given(3).map(seconds).transpose()?,
        pushed: false,
    })
}

fn route_v6(directive: &Directive) -> Result<Route, String> {
    let given = |index| directive.get(index).filter(|text| *text != "default");
    let (network, bits) = ipv6_network_or_host(directive.at(0))?;
    let gateway = given(1).map(ipv6).transpose()?;
    Ok(Route {
        v6: true,
        network: Place::Address(network.into()),
        bits,
        gateway: gateway.map(|it| Place::Address(it.into())),
        metric: given(2).map(seconds).transpose()?,
        pushed: false,
    })
}

fn redirect<'d>(draft: &'d mut Draft, directive: &Directive) -> Result<&'d mut Redirect, String> {
    let given = directive.values.iter();
    let given = given.map(|flag| Ok((flag, word(flag, &Redirect::FLAGS)?)));
    let given: Vec<_> = given.collect::<Result<_, String>>()?;
    let redirect = draft.network.redirect.get_or_insert_with(|| Redirect {
        ipv4: true,
        ..Redirect::default()
    });
    for (name, flag) in given {
        *flag(redirect) = !name.starts_with('!');
    }
    Ok(redirect)
}

fn dhcp_option(dhcp: &mut DhcpOptions, directive: &Directive) -> Outcome {
    let value = directive.get(1);
    let domain = |value: Option<&str>| -> Result<String, String> {
        host(value.unwrap_or_default()).map_err(|_| "needs a domain name".to_owned())
    };
    let mut outcome = OK;
    match directive.at(0) {
        kind @ ("DNS" | "DNS6") => {
            let text = value.unwrap_or_default();
            let address = text
                .parse::<IpAddr>()
                .ok()
                .filter(|address| kind == "DNS" || address.is_ipv6())
                .ok_or_else(|| format!("`{}` is not a name server address", shown(text)))?;
            dhcp.dns.push(address);
        }
        "DOMAIN" => dhcp.domain = Some(domain(value)?),
        "DOMAIN-SEARCH" | "ADAPTER_DOMAIN_SUFFIX" => dhcp.search.push(domain(value)?),
        _ => outcome = note("passed only to scripts, as `foreign_option_N`"),
    }
    dhcp.lines.push(directive.values.join(" "));
    outcome
}

/// Maximum number of addresses of one name server, as in stock.
const DNS_ADDRESSES_MAX: usize = 8;

fn dns(draft: &mut Draft, directive: &Directive) -> Outcome {
    let dns = &mut draft.network.dns;
    let domains = |values: &[String]| -> Result<Vec<String>, String> {
        values.iter().map(|name| host(name)).collect()
    };
    match directive.at(0) {
        "search-domains" => {
            dns.search_domains.extend(domains(&directive.values[1..])?);
            return OK;
        }
        "server" => {}
        other => return Err(one_of(other, &["server", "search-domains"])),
    }
    if directive.values.len() < 4 {
        return Err("must be written as `dns server NUMBER OPTION VALUE`".to_owned());
    }
    let number = directive.at(1);
    let priority: i8 = number
        .parse()
        .map_err(|_| format!("`{}` is not a number from -128 to 127", shown(number)))?;
    let server = dns.server(priority);
    let (value, values) = (directive.at(3), &directive.values[3..]);
    match directive.at(2) {
        "address" => {
            for text in values {
                if server.addresses.len() == DNS_ADDRESSES_MAX {
                    return Err(format!(
                        "more than {DNS_ADDRESSES_MAX} addresses for one server"
                    ));
                }
                server.addresses.push(dns_address(text)?);
            }
            OK
        }
        "resolve-domains" => {
            server.resolve_domains.extend(domains(values)?);
            OK
        }
        "dnssec" => set(&mut server.dnssec, word(value, &Dnssec::WORDS)),
        "transport" => set(&mut server.transport, word(value, &DnsTransport::WORDS)),
        "sni" => some(&mut server.sni, host(value)),
        other => {
            let known = ["address", "resolve-domains", "dnssec", "transport", "sni"];
            Err(one_of(other, &known))
        }
    }
}

/// Parses `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; port 0 if none is given.
fn dns_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 0));
    }
    text.parse()
        .map_err(|_| format!("`{}` is not a name server address", shown(text)))
}
