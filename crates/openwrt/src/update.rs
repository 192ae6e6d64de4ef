//! Messages that tell netifd about an interface, as arguments of `notify_proto`.

use crate::blob::Value;
use crate::network::PROTO;
use crate::teller::Fault;
use config::types::AllowedIp;
use host::{DefaultV4, DefaultV6, Destination, Gateway, MAIN, Want, WantedRoute};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The ubus object of netifd; its method is [`METHOD`].
pub const OBJECT: &str = "network.interface";
/// See [`OBJECT`].
pub const METHOD: &str = "notify_proto";
/// The method of [`object_of`] that returns an interface's state.
pub const STATUS: &str = "status";

/// Maximum number of values sent in one list.
const LIST_MAX: usize = 4096;

/// Actions of `notify_proto`.
const UPDATE: u32 = 0;
const ERROR: u32 = 3;
const BLOCK_RESTART: u32 = 4;

/// Options about routes in an interface's section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteRules {
    /// Whether netifd puts IPv4 routes into a table of the interface's own (`ip4table`).
    pub own_table_v4: bool,
    /// Whether netifd puts IPv6 routes into a table of the interface's own (`ip6table`).
    pub own_table_v6: bool,
    /// Whether the default route is left out (`defaultroute 0`).
    pub no_default: bool,
}

/// A route into the tunnel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Network address of the destination.
    pub target: IpAddr,
    /// Length of the prefix, in bits.
    pub prefix: u8,
    /// The gateway in the tunnel, if there is one.
    pub gateway: Option<IpAddr>,
    /// The metric, if there is one.
    pub metric: Option<u32>,
    /// The routing table, if not the default one.
    pub table: Option<u32>,
    /// Whether packets are answered with "unreachable".
    pub unreachable: bool,
}

/// All addresses, routes and name servers of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Network device of the route.
    pub device: String,
    /// Addresses, prefix lengths in bits, and the other end's address if it is outside the prefix.
    pub addresses: Vec<(IpAddr, u8, Option<IpAddr>)>,
    /// Routes into the tunnel.
    pub routes: Vec<Route>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Search domains.
    pub search: Vec<String>,
    /// Prefixes that netifd hands out to its other interfaces.
    pub prefixes: Vec<(Ipv6Addr, u8)>,
}

impl Update {
    /// Builds the message from the settings that a tunnel wants.
    ///
    /// All traffic gets two routes of half the addresses each: a default route would replace the one that the
    /// tunnel's own packets need. In a table of the interface's own it is a default route.
    #[must_use]
    pub fn of(want: &Want, device: &str, rules: RouteRules) -> Self {
        let addresses = want.addresses.iter();
        let addresses = addresses.map(|it| (it.addr, it.prefix, it.peer));
        let mut update = Self {
            device: device.to_owned(),
            addresses: addresses
                .filter(|it| it.0.is_ipv4() || !want.no_ipv6)
                .take(LIST_MAX)
                .collect(),
            ..Self::default()
        };
        for route in want.routes.iter().filter(|route| !route.leads_all()) {
            let Destination::Network(target) = route.to else {
                continue;
            };
            let gateway = match route.gateway {
                Gateway::Tunnel(gateway) => gateway,
                Gateway::Router(router) if want.is_inside(router) => {
                    Some(router).filter(IpAddr::is_ipv4)
                }
                // netifd does not set routes past the tunnel.
                Gateway::Router(_) | Gateway::Default => continue,
            };
            let unreachable = want.no_ipv6 && target.is_ipv6();
            update.routes.push(Route {
                target: masked(target, route.prefix),
                prefix: route.prefix,
                gateway: gateway.filter(|_| !unreachable),
                metric: route.metric,
                table: Some(route.table).filter(|table| *table != MAIN),
                unreachable,
            });
        }
        if rules.no_default {
            update.routes.retain(|route| route.prefix != 0);
        } else {
            update.add_default(want, rules);
        }
        let mut seen = std::collections::BTreeSet::new();
        update.routes.retain(|route| seen.insert(route.clone()));
        update.routes.truncate(LIST_MAX);
        if let Some(servers) = &want.name_servers {
            update.dns.clone_from(&servers.servers);
            update.search.clone_from(&servers.search);
        }
        update
    }

    fn add_default(&mut self, want: &Want, rules: RouteRules) {
        let mut add = |target: IpAddr, prefix, gateway, unreachable| {
            self.routes.push(Route {
                target,
                prefix,
                gateway,
                metric: None,
                table: None,
                unreachable,
            });
        };
        let leads_all = |v6: bool| {
            let inside = |route: &WantedRoute| match route.gateway {
                Gateway::Tunnel(_) => true,
                Gateway::Router(router) => want.is_inside(router),
                Gateway::Default => false,
            };
            let mut routes = want.routes.iter();
            routes.any(|it| it.leads_all() && it.to == Destination::all(v6) && inside(it))
        };
        let v4 = leads_all(false)
            || want.default_v4.is_some_and(|it| match it {
                DefaultV4::Rules | DefaultV4::Halves | DefaultV4::Replace => true,
            });
        let gateway = want.gateway.filter(IpAddr::is_ipv4);
        match (v4, rules.own_table_v4) {
            (true, true) => add(Ipv4Addr::UNSPECIFIED.into(), 0, gateway, false),
            (true, false) => {
                add(Ipv4Addr::UNSPECIFIED.into(), 1, gateway, false);
                add(Ipv4Addr::new(128, 0, 0, 0).into(), 1, gateway, false);
            }
            (false, _) => {}
        }
        let v6 = match want.default_v6 {
            Some(DefaultV6::Rules | DefaultV6::Global) => Some(want.no_ipv6),
            None if leads_all(true) && !want.block_ipv6 => Some(want.no_ipv6),
            None => want.block_ipv6.then_some(true),
        };
        match (v6, rules.own_table_v6) {
            (Some(blocked), true) => add(Ipv6Addr::UNSPECIFIED.into(), 0, None, blocked),
            (Some(blocked), false) => {
                add(Ipv6Addr::UNSPECIFIED.into(), 1, None, blocked);
                let upper = Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0);
                add(upper.into(), 1, None, blocked);
            }
            (None, _) => {}
        }
    }

    /// The arguments of `notify_proto`.
    ///
    /// `keep` is always false: with it netifd removes nothing that an update lacks, and adds name servers to those it
    /// has. Without it, too, unchanged addresses and routes stay in place.
    #[must_use]
    pub fn to_arguments(&self, interface: &str) -> Vec<(String, Value)> {
        let mut fields = action(interface, UPDATE);
        let mut add = |name: &str, value| fields.push((name.to_owned(), value));
        add("link-up", Value::flag(true));
        add("keep", Value::flag(false));
        add("ifname", Value::text(&self.device));
        for (name, v6) in [("ipaddr", false), ("ip6addr", true)] {
            let own = self.addresses.iter().filter(|it| it.0.is_ipv6() == v6);
            let table = |&(addr, prefix, peer): &(IpAddr, u8, Option<IpAddr>)| {
                let mut fields = vec![texted("ipaddr", &addr), texted("mask", &prefix)];
                fields.extend(peer.map(|peer| texted("ptp", &peer)));
                Value::Table(fields)
            };
            let list: Vec<Value> = own.map(table).collect();
            if !list.is_empty() {
                add(name, Value::Array(list));
            }
        }
        for (name, v6) in [("routes", false), ("routes6", true)] {
            let own = self.routes.iter().filter(|it| it.target.is_ipv6() == v6);
            let list: Vec<Value> = own.map(Route::to_value).collect();
            if !list.is_empty() {
                add(name, Value::Array(list));
            }
        }
        if !self.dns.is_empty() {
            let list = self.dns.iter().map(|it| Value::Text(it.to_string()));
            add("dns", Value::Array(list.collect()));
        }
        if !self.search.is_empty() {
            let list = self.search.iter().map(Value::text);
            add("dns_search", Value::Array(list.collect()));
        }
        if !self.prefixes.is_empty() {
            // No lifetimes: the prefixes stay valid.
            let list = self.prefixes.iter();
            let list = list.map(|(prefix, bits)| Value::Text(format!("{prefix}/{bits}")));
            add("ip6prefix", Value::Array(list.collect()));
        }
        fields
    }
}

impl Route {
    fn to_value(&self) -> Value {
        let mut fields = vec![
            texted("target", &self.target),
            texted("netmask", &self.prefix),
        ];
        fields.extend(self.gateway.map(|it| texted("gateway", &it)));
        fields.extend(
            self.metric
                .map(|it| ("metric".to_owned(), Value::Int32(it))),
        );
        fields.extend(self.table.map(|it| texted("table", &it)));
        if self.unreachable {
            fields.push(texted("type", "unreachable"));
        }
        Value::Table(fields)
    }
}

/// The arguments for a lost link: netifd removes addresses and routes, and waits.
#[must_use]
pub fn lost(interface: &str) -> Vec<(String, Value)> {
    let mut fields = action(interface, UPDATE);
    fields.push(("link-up".to_owned(), Value::flag(false)));
    fields
}

/// The arguments for a fault: its code, and words.
#[must_use]
pub fn error(interface: &str, code: &str, words: &str) -> Vec<(String, Value)> {
    let mut fields = action(interface, ERROR);
    let words = (!words.is_empty()).then(|| Value::text(words));
    let list = std::iter::once(Value::text(code)).chain(words).collect();
    fields.push(("error".to_owned(), Value::Array(list)));
    fields
}

/// The ubus object of one interface.
#[must_use]
pub fn object_of(interface: &str) -> String {
    format!("{OBJECT}.{interface}")
}

/// The errors in the answer to [`STATUS`] that a process of this protocol reported.
#[must_use]
pub fn errors(status: &Value) -> Vec<Fault> {
    let text = |it: &Value, name: &str| it.field(name).and_then(Value::as_text).map(str::to_owned);
    let error = |it: &Value| {
        text(it, "subsystem").filter(|it| it == PROTO)?;
        let words = it.field("data").map(Value::items).unwrap_or_default();
        let words: Vec<&str> = words.iter().filter_map(Value::as_text).collect();
        Some(Fault {
            code: text(it, "code")?,
            words: words.join(" "),
        })
    };
    let list = status.field("errors").map(Value::items).unwrap_or_default();
    list.iter().filter_map(error).collect()
}

/// The arguments that keep netifd from restarting the interface until `ifup`.
#[must_use]
pub fn block_restart(interface: &str) -> Vec<(String, Value)> {
    action(interface, BLOCK_RESTART)
}

fn action(interface: &str, action: u32) -> Vec<(String, Value)> {
    vec![
        texted("interface", interface),
        ("action".to_owned(), Value::Int32(action)),
    ]
}

fn texted(name: &str, value: &(impl ToString + ?Sized)) -> (String, Value) {
    (name.to_owned(), Value::Text(value.to_string()))
}

/// The network of an address: netifd passes host bits on, and the kernel refuses them.
fn masked(addr: IpAddr, prefix: u8) -> IpAddr {
    AllowedIp::new(addr, prefix).map_or(addr, |it| it.addr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob;
    use host::{NameServers, WantedAddress};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn want() -> Want {
        let route = |to: &str, prefix, table| WantedRoute {
            name: String::new(),
            to: Destination::Network(ip(to)),
            prefix,
            gateway: Gateway::Tunnel(None),
            metric: None,
            table,
            optional: false,
            pushed: false,
        };
        let address = |addr: &str, prefix| WantedAddress {
            addr: ip(addr),
            prefix,
            peer: None,
        };
        Want {
            addresses: vec![address("10.8.0.2", 32), address("fd00::2", 128)],
            routes: vec![
                route("10.50.1.2", 16, 77),
                route("10.50.0.0", 16, 77),
                route("fd00:5::", 32, MAIN),
            ],
            name_servers: Some(NameServers {
                servers: vec![ip("10.8.0.1")],
                search: vec!["office.example".to_owned()],
                only: Vec::new(),
            }),
            ..Want::default()
        }
    }

    /// A value in the notation of `ubus`.
    fn shown(value: &Value) -> String {
        let field = |it: &(String, Value)| format!("{}:{}", it.0, shown(&it.1));
        match value {
            Value::Table(fields) => {
                format!(
                    "{{{}}}",
                    fields.iter().map(field).collect::<Vec<_>>().join(",")
                )
            }
            Value::Array(items) => {
                format!(
                    "[{}]",
                    items.iter().map(shown).collect::<Vec<_>>().join(",")
                )
            }
            Value::Text(text) => text.clone(),
            other => other.as_number().unwrap().to_string(),
        }
    }

    #[test]
    fn netifd_is_told_addresses_routes_and_name_servers_in_its_words() {
        let mut update = Update::of(&want(), "mr-office", RouteRules::default());
        update.prefixes = vec![("2001:db8:7::".parse().unwrap(), 48)];
        let fields = update.to_arguments("office");
        assert_eq!(
            shown(&Value::Table(fields.clone())),
            "{interface:office,action:0,link-up:1,keep:0,ifname:mr-office,\
             ipaddr:[{ipaddr:10.8.0.2,mask:32}],ip6addr:[{ipaddr:fd00::2,mask:128}],\
             routes:[{target:10.50.0.0,netmask:16,table:77}],\
             routes6:[{target:fd00:5::,netmask:32}],dns:[10.8.0.1],dns_search:[office.example],\
             ip6prefix:[2001:db8:7::/48]}"
        );
        assert_eq!(blob::from_bytes(&blob::to_bytes(&fields)).unwrap(), fields);
        assert_eq!(
            shown(&Value::Table(error("office", "AUTH_FAILED", "no"))),
            "{interface:office,action:3,error:[AUTH_FAILED,no]}"
        );
        assert_eq!(
            shown(&Value::Table(lost("office"))),
            "{interface:office,action:0,link-up:0}"
        );
        assert_eq!(
            shown(&Value::Table(block_restart("office"))),
            "{interface:office,action:4}"
        );
    }

    #[test]
    fn a_router_inside_the_tunnel_is_a_gateway() {
        let mut want = want();
        want.addresses[0].prefix = 24;
        for (route, router) in want
            .routes
            .iter_mut()
            .zip(["10.8.0.9", "192.0.2.9", "fd00::9"])
        {
            (route.gateway, route.table) = (Gateway::Router(ip(router)), MAIN);
        }
        let everything = WantedRoute {
            to: Destination::all(false),
            prefix: 0,
            optional: true,
            ..want.routes[0].clone()
        };
        want.routes.push(everything);
        let update = Update::of(&want, "mr-office", RouteRules::default());
        let routes = update.routes.iter();
        let routes: Vec<_> = routes
            .map(|it| (it.target, it.prefix, it.gateway))
            .collect();
        let expected = [
            (ip("10.50.0.0"), 16, Some(ip("10.8.0.9"))),
            (ip("0.0.0.0"), 1, None),
            (ip("128.0.0.0"), 1, None),
        ];
        assert_eq!(routes, expected);
    }

    #[test]
    fn a_route_for_everything_is_two_halves_but_in_a_table_of_its_own() {
        let want = Want {
            default_v4: Some(DefaultV4::Rules),
            default_v6: Some(DefaultV6::Rules),
            ..Want::default()
        };
        let told = |want: &Want, rules| {
            let update = Update::of(want, "mr-a", rules);
            let routes = update.routes.iter();
            let shown = routes.map(|it| {
                let kind = if it.unreachable { " unreachable" } else { "" };
                format!("{}/{}{kind}", it.target, it.prefix)
            });
            shown.collect::<Vec<_>>()
        };
        assert_eq!(
            told(&want, RouteRules::default()),
            ["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"]
        );
        let rules = RouteRules {
            own_table_v4: true,
            own_table_v6: true,
            no_default: false,
        };
        assert_eq!(told(&want, rules), ["0.0.0.0/0", "::/0"]);
        let rules = RouteRules {
            no_default: true,
            ..rules
        };
        assert!(told(&want, rules).is_empty());
        // Routes of an OpenVPN profile yield the same messages.
        let all = |v6| WantedRoute {
            name: String::new(),
            to: Destination::all(v6),
            prefix: 0,
            gateway: Gateway::Tunnel(None),
            metric: None,
            table: MAIN,
            optional: true,
            pushed: false,
        };
        let by_routes = Want {
            routes: vec![all(false), all(true)],
            ..Want::default()
        };
        assert_eq!(
            told(&by_routes, RouteRules::default()),
            ["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"]
        );
        assert!(told(&by_routes, rules).is_empty());
        let blocked = Want {
            block_ipv6: true,
            ..Want::default()
        };
        assert_eq!(
            told(&blocked, RouteRules::default()),
            ["::/1 unreachable", "8000::/1 unreachable"]
        );
        // Without IPv6 on the interface, no IPv6 packet may leave through another one.
        let mut specific = all(true);
        (specific.to, specific.prefix) = (Destination::Network("2001:db8::".parse().unwrap()), 32);
        for (routes, default_v6, wanted) in [
            (
                vec![all(true)],
                None,
                vec!["::/1 unreachable", "8000::/1 unreachable"],
            ),
            (
                vec![],
                Some(DefaultV6::Rules),
                vec!["::/1 unreachable", "8000::/1 unreachable"],
            ),
            (vec![specific], None, vec!["2001:db8::/32 unreachable"]),
        ] {
            let without = Want {
                no_ipv6: true,
                routes,
                default_v6,
                ..Want::default()
            };
            assert_eq!(told(&without, RouteRules::default()), wanted);
        }
    }
}
