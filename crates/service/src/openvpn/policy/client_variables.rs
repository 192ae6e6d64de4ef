//! Script variables about one client of a server; names as in OpenVPN's manual, "Environmental Variables".

use std::time::{Duration, SystemTime};

use config::openvpn::{Ifconfig, IfconfigV6, Topology};

use super::environment::Environment;
use super::timestamp::{Clock, unix};

/// A client's addresses in the tunnel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct PoolFacts {
    /// The client's address, and the netmask or peer address that it was sent.
    pub ifconfig: Option<Ifconfig>,
    /// IPv6 addresses: `local` is the client's, `remote` the server's.
    pub ifconfig_v6: Option<IfconfigV6>,
}

impl Environment {
    /// Sets a client's addresses in the tunnel.
    pub(crate) fn set_pool(&mut self, topology: Topology, facts: &PoolFacts) {
        self.remove_all("ifconfig_pool_");
        if let Some(ifconfig) = facts.ifconfig {
            self.set("ifconfig_pool_remote_ip", ifconfig.local);
            let second = match topology {
                Topology::Subnet => "ifconfig_pool_netmask",
                Topology::Net30 | Topology::P2p => "ifconfig_pool_local_ip",
            };
            self.set(second, ifconfig.second);
        }
        if let Some(ifconfig) = facts.ifconfig_v6 {
            self.set("ifconfig_pool_remote_ip6", ifconfig.local);
            self.set("ifconfig_pool_local_ip6", ifconfig.remote);
            self.set("ifconfig_pool_ip6_netbits", ifconfig.bits);
        }
    }

    /// Sets when a client connected.
    pub(crate) fn set_connected(&mut self, at: SystemTime, clock: &Clock) {
        self.set("time_ascii", clock.ascii(at));
        self.set("time_unix", unix(at));
    }

    /// Sets a departed client's traffic in bytes, and how long it was connected.
    pub(crate) fn set_traffic(&mut self, received: u64, sent: u64, duration: Duration) {
        self.set("bytes_received", received);
        self.set("bytes_sent", sent);
        self.set("time_duration", duration.as_secs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::openvpn::ScriptSecurity;

    #[test]
    fn addresses_of_a_client_follow_the_topology() {
        let facts = PoolFacts {
            ifconfig: Some(Ifconfig {
                local: [10, 8, 0, 6].into(),
                second: [10, 8, 0, 5].into(),
            }),
            ifconfig_v6: Some(IfconfigV6 {
                local: "fd00::2".parse().unwrap(),
                bits: 64,
                remote: "fd00::1".parse().unwrap(),
            }),
        };
        let mut environment = Environment::default();
        environment.set_pool(Topology::Net30, &facts);
        let all: Vec<String> = environment
            .visible(ScriptSecurity::Passwords)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            all,
            [
                "ifconfig_pool_ip6_netbits=64",
                "ifconfig_pool_local_ip=10.8.0.5",
                "ifconfig_pool_local_ip6=fd00::1",
                "ifconfig_pool_remote_ip=10.8.0.6",
                "ifconfig_pool_remote_ip6=fd00::2",
            ]
        );
    }
}
