//! Finishes the model: roles, helper directives, and checks over all lines.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Builder;
use crate::openvpn::directive::Origin;
use crate::openvpn::draft::ServerHelper;
use crate::openvpn::table::TAP;
use crate::openvpn::{
    Ifconfig, IfconfigV6, OpenVpn, PingTimeout, Place, Pool, PoolV6, Role, Route, RouteGateway,
    Service, Topology,
};

/// The role that the directives imply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Client,
    Server,
}

impl Builder {
    /// Returns the model; `None` if a required directive was refused, or if an action was requested.
    pub(crate) fn finish(&mut self) -> Option<OpenVpn> {
        if self.draft.action.is_some() {
            return None;
        }
        let end = self.end();
        self.settle_device();
        if end == Some(End::Server) {
            self.expand_server();
        }
        self.expand_keepalive(end);
        if end == Some(End::Server) && self.draft.sockets.tcp_nodelay {
            self.draft
                .server
                .push
                .push("socket-flags TCP_NODELAY".to_owned());
        }
        self.settle_ciphers();
        let server = end? == End::Server;
        let connections = self.settle_connections(server);
        self.check_tls(server);
        self.check_scripts();
        self.check_management();
        match server {
            true => self.check_server(&connections),
            false => self.check_client(),
        }
        self.check_network();
        let lines = self.settle_lines(server, &connections);
        if !self.is_sound() || connections.is_empty() {
            return None;
        }
        let places = crate::openvpn::report::places(&self.judged);
        let draft = std::mem::take(&mut self.draft);
        Some(OpenVpn {
            role: match server {
                true => Role::Server(draft.server),
                false => Role::Client(draft.client),
            },
            device: draft.device,
            connections,
            sockets: draft.sockets,
            tls: draft.tls,
            data: draft.data,
            timers: draft.timers,
            network: draft.network,
            scripts: draft.scripts,
            service: Service {
                management: draft.has_management.then_some(draft.management),
                ..draft.service
            },
            lines,
            directory: draft.directory,
            places,
        })
    }

    fn end(&mut self) -> Option<End> {
        let nowhere = Origin::of_argument(0);
        let helper = self.draft.server_helper.is_some() || self.draft.server_v6_helper.is_some();
        let server = helper || self.draft.mode_server;
        let tls_server = helper || self.draft.tls_server;
        let tls_client = self.draft.client_helper || self.draft.tls_client;
        if tls_server && tls_client {
            let name = if self.draft.client_helper {
                "client"
            } else {
                "tls-client"
            };
            self.conflict(
                name,
                "the lines for a server say the opposite; keep one of them",
            );
            return None;
        }
        if server && !tls_server {
            self.conflict("mode", "a server also needs `tls-server`");
            return None;
        }
        if server && self.draft.pull {
            self.conflict("pull", "a server pulls no options; remove the line");
            return None;
        }
        if server {
            return Some(End::Server);
        }
        if tls_server {
            let reason = "a tunnel between two equal ends is not supported; add \
                `server NETWORK NETMASK` here and let the other end be a `client`";
            self.conflict("tls-server", reason);
            return None;
        }
        if tls_client && !self.draft.pulls() {
            let reason = "a tunnel between two equal ends is not supported; add `pull`, or \
                write `client`, and let the other end be a `server`";
            self.conflict("tls-client", reason);
            return None;
        }
        if tls_client {
            return Some(End::Client);
        }
        let reason = "neither `client` nor `server NETWORK NETMASK` is given; add one";
        // A static key was already refused with a message of its own.
        if self.is_sound() {
            self.refuse(&nowhere, "", reason);
        }
        None
    }

    fn settle_device(&mut self) {
        let Some(name) = self.draft.dev.take() else {
            let nowhere = Origin::of_argument(0);
            if !self.was_refused("dev") {
                self.refuse(&nowhere, "dev", "is missing; write `dev tun`");
            }
            return;
        };
        let typed = self.draft.dev_is_typed;
        if name == "null" {
            self.draft.device.null = true;
        } else if name.starts_with("tap") && !typed {
            self.conflict("dev", TAP);
        } else if !name.starts_with("tun") && !typed {
            let reason = "of which type the interface is cannot be seen from its name; add \
                `dev-type tun`";
            self.conflict("dev", reason);
        }
        self.draft.device.name = name;
    }

    /// Expands `server` and `server-ipv6`, with stock's order of pushed options.
    fn expand_server(&mut self) {
        if let Some((network, bits)) = self.draft.server_v6_helper {
            self.expand_server_v6(network, bits);
        }
        let Some(helper) = self.draft.server_helper else {
            return;
        };
        if self.draft.server.pool.is_some() && helper.pool {
            self.conflict(
                "ifconfig-pool",
                "`server` makes a pool already; add `nopool` to it",
            );
        }
        let (network, netmask) = (helper.network, helper.netmask);
        let topology = self.draft.network.topology.unwrap_or_default();
        let local = plus(network, 1);
        let last = Ipv4Addr::from_bits(network.to_bits() | !netmask.to_bits());
        if topology == Topology::Subnet {
            self.expand_subnet(helper, local, last);
        } else {
            self.draft.network.ifconfig = Some(Ifconfig {
                local,
                second: plus(network, 2),
            });
            if helper.pool {
                // The smallest network has no addresses to reserve.
                let reserve = if helper.bits == 29 { 0 } else { 4 };
                self.draft.server.pool = Some(Pool {
                    start: plus(network, 4),
                    end: Ipv4Addr::from_bits(last.to_bits() - reserve),
                    netmask: None,
                });
            }
            self.draft.network.routes.push(Route {
                v6: false,
                network: Place::Address(IpAddr::V4(network)),
                bits: helper.bits,
                gateway: None,
                metric: None,
                pushed: false,
            });
            if self.draft.server.client_to_client {
                self.draft
                    .server
                    .push
                    .push(format!("route {network} {netmask}"));
            } else if topology == Topology::Net30 {
                self.draft.server.push.push(format!("route {local}"));
            }
        }
        let name = topology.as_str();
        self.draft.server.push.push(format!("topology {name}"));
    }

    fn expand_subnet(&mut self, helper: ServerHelper, local: Ipv4Addr, last: Ipv4Addr) {
        self.draft.network.ifconfig = Some(Ifconfig {
            local,
            second: helper.netmask,
        });
        if helper.pool {
            self.draft.server.pool = Some(Pool {
                start: plus(helper.network, 2),
                end: Ipv4Addr::from_bits(last.to_bits() - 1),
                netmask: Some(helper.netmask),
            });
        } else if let Some(pool) = &mut self.draft.server.pool {
            pool.netmask = Some(helper.netmask);
        }
        self.draft
            .server
            .push
            .push(format!("route-gateway {local}"));
        if self.draft.network.route_gateway.is_none() {
            let gateway = Place::Address(IpAddr::V4(plus(helper.network, 2)));
            self.draft.network.route_gateway = Some(RouteGateway::Fixed(gateway));
        }
        if self.draft.server.ifconfig_push_constraint.is_none() {
            self.draft.server.ifconfig_push_constraint = Some((helper.network, helper.netmask));
        }
    }

    fn expand_server_v6(&mut self, network: Ipv6Addr, bits: u8) {
        if self.draft.server.pool_v6.is_some() {
            let reason = "`server-ipv6` makes a pool already; remove one of them";
            self.conflict("ifconfig-ipv6-pool", reason);
        }
        if self.draft.server_helper.is_some_and(|helper| !helper.pool) {
            self.conflict("server-ipv6", "does not go with `server … nopool`");
        }
        let plus = |n: u128| Ipv6Addr::from_bits(network.to_bits().wrapping_add(n));
        self.draft.network.ifconfig_v6 = Some(IfconfigV6 {
            local: plus(1),
            bits,
            remote: Some(plus(2)),
        });
        let base = plus(if bits < 112 { 0x1000 } else { 2 });
        self.draft.server.pool_v6 = Some(PoolV6 { base, bits });
        // Only clients before 2.4 needed this option.
        self.draft.server.push.push("tun-ipv6".to_owned());
    }

    fn expand_keepalive(&mut self, end: Option<End>) {
        let Some((ping, timeout)) = self.draft.keepalive else {
            return;
        };
        for name in ["ping", "ping-restart", "ping-exit"] {
            if self.has(name) {
                self.conflict(name, "`keepalive` says this already; remove the line");
            }
        }
        self.draft.timers.ping = ping;
        match end {
            Some(End::Server) => {
                // Clients time out first, so that they are the ones to reconnect.
                let doubled = timeout.saturating_mul(2);
                self.draft.timers.ping_timeout = PingTimeout::Restart(doubled);
                self.draft.server.push.push(format!("ping {ping}"));
                self.draft
                    .server
                    .push
                    .push(format!("ping-restart {timeout}"));
            }
            _ => self.draft.timers.ping_timeout = PingTimeout::Restart(timeout),
        }
    }
}

/// The address `n` further on; callers stay within a network.
fn plus(address: Ipv4Addr, n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits().wrapping_add(n))
}
