//! Script variables for the tunnel's network.

use config::openvpn::{DnsOptions, Ifconfig, IfconfigV6, Network};
use openvpn::push::PushReply;
use openvpn_host::network::{HostFacts, TunnelNetwork};
use openvpn_host::scripts::environment::Environment;
use openvpn_host::scripts::variables::describe_routes;

/// The interface's addresses; the server's take precedence over the configuration's.
pub(super) fn ifconfig(reply: &PushReply, own: Option<Ifconfig>) -> Option<Ifconfig> {
    reply.ifconfig.or(own)
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
    let v6 = reply.ifconfig_ipv6.map(|it| IfconfigV6 {
        remote: it.remote.or(Some(it.local)),
        ..it
    });
    environment.set_addresses(topology, ifconfig, v6);
    if let Some((network, facts)) = set {
        describe_routes(environment, network, facts);
    }
    let dns = dns_options(&own.dns, &reply.dns.options);
    let lines = [&*own.dhcp.lines, &reply.dns.lines].concat();
    environment.set_foreign_options(&lines, &dns);
    environment.set_dns(&dns);
    for (name, value) in &reply.setenv_safe {
        environment.set_safe(name, value);
    }
}

/// Joins the `dns` options of the file and the server; at equal priority the server's count.
fn dns_options(own: &DnsOptions, pushed: &DnsOptions) -> DnsOptions {
    let mut dns = own.clone();
    for (priority, server) in &pushed.servers {
        dns.server(*priority).clone_from(server);
    }
    dns.search_domains
        .extend(pushed.search_domains.iter().cloned());
    dns
}
