//! Script variables for the tunnel's network.

use crate::openvpn::network::{HostFacts, TunnelNetwork};
use crate::openvpn::scripts::environment::Environment;
use crate::openvpn::scripts::variables::describe_routes;
use config::openvpn::{DnsOptions, DnsServer, DnsTransport, Dnssec, Ifconfig, IfconfigV6, Network};
use openvpn::push::{PushReply, PushedDns};

/// The interface's addresses; the server's take precedence over the configuration's.
pub(super) fn ifconfig(reply: &PushReply, own: Option<Ifconfig>) -> Option<Ifconfig> {
    let pushed = reply
        .ifconfig
        .map(|(local, second)| Ifconfig { local, second });
    pushed.or(own)
}

/// Adds the variables about the tunnel's network.
pub(super) fn describe(
    environment: &mut Environment,
    reply: &PushReply,
    set: Option<&(TunnelNetwork, HostFacts)>,
    ifconfig: Option<Ifconfig>,
    own: &Network,
) {
    let topology = reply.topology.or(own.topology).unwrap_or_default();
    let v6 = reply.ifconfig_ipv6.map(|i| IfconfigV6 {
        local: i.local,
        bits: i.prefix,
        remote: i.remote.unwrap_or(i.local),
    });
    environment.set_addresses(topology, ifconfig, v6);
    if let Some((network, facts)) = set {
        describe_routes(environment, network, facts);
    }
    let dns = dns_options(&own.dns, &reply.dns);
    let lines = [&*own.dhcp.lines, &reply.dns.lines].concat();
    environment.set_foreign_options(&lines, &dns);
    environment.set_dns(&dns);
    for (name, value) in &reply.setenv_safe {
        environment.set_safe(name, value);
    }
}

/// Joins the `dns` options of the file and the server; at equal priority the server's come first.
fn dns_options(own: &DnsOptions, pushed: &PushedDns) -> DnsOptions {
    let mut dns = own.clone();
    for server in &pushed.by_priority {
        let told = DnsServer {
            addresses: server.addresses.clone(),
            resolve_domains: server.resolve_domains.clone(),
            dnssec: match server.dnssec.as_deref() {
                Some("yes") => Dnssec::Yes,
                Some("optional") => Dnssec::Optional,
                Some("no") => Dnssec::No,
                _ => Dnssec::Unset,
            },
            transport: match server.transport.as_deref() {
                Some("DoT") => DnsTransport::Tls,
                Some("DoH") => DnsTransport::Https,
                _ => DnsTransport::Plain,
            },
            sni: server.sni.clone(),
        };
        dns.servers.insert(server.priority, told);
    }
    dns.search_domains
        .extend(pushed.search_domains.iter().cloned());
    dns
}
