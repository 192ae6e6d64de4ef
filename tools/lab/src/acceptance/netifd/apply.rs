//! Holds the settings that netifd has applied to the interface, and applies updates.

use netio::netlink::{Netlink, Route};
use openwrt::blob::Value;
use std::net::{IpAddr, Ipv6Addr};

/// An address, its prefix length, and the other end of a point-to-point link.
type Address = (IpAddr, u8, Option<IpAddr>);

/// A network, its prefix length, the routing table, and the gateway.
type Way = (IpAddr, u8, u32, Option<IpAddr>);

/// The addresses, routes and name servers that are in force.
#[derive(Debug, Default)]
pub(super) struct Has {
    pub(super) device: Option<u32>,
    pub(super) addresses: Vec<Address>,
    pub(super) routes: Vec<Way>,
    /// The device's IPv4 routes after the last update, the kernel's own to the networks of addresses included.
    pub(super) direct: Vec<Route>,
    pub(super) dns: Vec<String>,
    pub(super) prefixes: Vec<String>,
    /// The additions and removals.
    pub(super) changes: Vec<String>,
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.field(name).and_then(Value::as_text)
}

fn parsed<T: std::str::FromStr>(value: &Value, name: &str) -> Option<T> {
    text(value, name)?.parse().ok()
}

impl Has {
    /// The addresses as text.
    pub(super) fn address_words(&self) -> Vec<String> {
        let all = self.addresses.iter();
        let mut words: Vec<String> = all.map(|it| format!("{}/{}", it.0, it.1)).collect();
        words.sort();
        words
    }

    /// The routes as text.
    pub(super) fn all_route_words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.routes.iter().map(route_words).collect();
        words.sort();
        words
    }

    /// Whether the device is gone.
    pub(super) fn is_lost(&self, netlink: &mut Netlink) -> bool {
        let link = self.device.map(|it| netlink.link_by_index(it));
        matches!(link, Some(Err(error)) if error.is_not_found())
    }

    /// Settings that netifd gave the device and that the kernel does not have any more, as other programs removed them.
    pub(super) fn missing(&self, netlink: &mut Netlink) -> Vec<String> {
        let link = self
            .device
            .map(|it| netlink.link_by_index(it).unwrap_or_default());
        let (Some(device), Some(link)) = (self.device, link) else {
            return Vec::new();
        };
        let found = netlink.addresses(Some(device)).unwrap();
        let own = self.addresses.iter();
        let own = own.filter(|it| {
            !found
                .iter()
                .any(|found| (found.ip, found.prefix) == (it.0, it.1))
        });
        let mut missing: Vec<String> = own.map(|it| format!("{}/{}", it.0, it.1)).collect();
        let mut found = netlink.routes(None).unwrap();
        found.retain(|it| it.dev == Some(device));
        let own = self.routes.iter();
        let own = own.filter(|it| {
            !found
                .iter()
                .any(|found| (found.dst, found.prefix) == (it.0, it.1))
        });
        missing.extend(own.map(route_words));
        let direct = self.direct.iter().filter(|it| !found.contains(it));
        missing.extend(direct.map(|it| format!("{}/{}", it.dst, it.prefix)));
        if !link.up {
            missing.push("the link".to_owned());
        }
        missing
    }

    /// Applies an update without touching settings that both states share. With `keep`, nothing is removed, and name
    /// servers are appended even if they are listed already.
    pub(super) fn become_as(
        &mut self,
        all: &Value,
        keep: bool,
        netlink: &mut Netlink,
    ) -> Result<(), String> {
        let Some(device) = self.device else {
            return Ok(());
        };
        let list = |name: &str| all.field(name).map(Value::items).unwrap_or_default();
        let lists = |names: [&str; 2]| [list(names[0]), list(names[1])].concat();
        let mut addresses = Vec::new();
        for it in lists(["ipaddr", "ip6addr"]) {
            let found = parsed(&it, "ipaddr").zip(parsed(&it, "mask"));
            let (address, prefix) = found.ok_or_else(|| format!("address {it:?}"))?;
            addresses.push((address, prefix, parsed(&it, "ptp")));
        }
        let mut routes = Vec::new();
        for it in lists(["routes", "routes6"]) {
            let found = parsed(&it, "target").zip(parsed(&it, "netmask"));
            let (target, prefix) = found.ok_or_else(|| format!("route {it:?}"))?;
            let table = parsed(&it, "table").unwrap_or(254);
            routes.push((target, prefix, table, parsed(&it, "gateway")));
        }
        if keep {
            let mut old = self.addresses.clone();
            old.retain(|it| !addresses.contains(it));
            addresses.append(&mut old);
            let mut old = self.routes.clone();
            old.retain(|it| !routes.contains(it));
            routes.append(&mut old);
        } else {
            self.dns.clear();
            self.prefixes.clear();
        }
        let failed = |what: String| move |error| format!("{what}: {error}");
        for it in self.routes.iter().filter(|it| !routes.contains(it)) {
            self.changes.push(format!("-{}", route_words(it)));
            let _ = netlink.delete_route(&route(it, device));
        }
        for it in self.addresses.iter().filter(|it| !addresses.contains(it)) {
            self.changes.push(format!("-{}/{}", it.0, it.1));
            let _ = netlink.remove_address(device, it.0, it.1, it.2);
        }
        for it in addresses.iter().filter(|it| !self.addresses.contains(it)) {
            let words = format!("{}/{}", it.0, it.1);
            self.changes.push(format!("+{words}"));
            let added = netlink.add_address(device, it.0, it.1, it.2);
            added.map_err(failed(words))?;
        }
        // netifd adds an address before it removes another. The kernel takes all routes with the last address.
        let flushed = self.addresses.iter().any(|it| !addresses.contains(it));
        for it in routes.iter() {
            let is_new = !self.routes.contains(it);
            if is_new {
                self.changes.push(format!("+{}", route_words(it)));
            } else if !flushed {
                continue;
            }
            let added = netlink.replace_route(&route(it, device));
            added.map_err(failed(route_words(it)))?;
        }
        (self.addresses, self.routes) = (addresses, routes);
        let dns = list("dns").iter().filter_map(Value::as_text);
        self.dns.extend(dns.map(str::to_owned));
        for it in list("ip6prefix") {
            // netifd's parser accepts this form: a text with an address, a prefix length, and lifetimes after commas.
            let word = it.as_text().unwrap_or_default();
            let first = word.split(',').next().unwrap_or_default();
            let parts = first.split_once('/');
            let parts = parts.map(|(at, bits)| (at.parse::<Ipv6Addr>(), bits.parse::<u8>()));
            match parts {
                Some((Ok(_), Ok(1..=128))) => self.prefixes.push(word.to_owned()),
                _ => return Err(format!("prefix {it:?}")),
            }
        }
        self.direct = netlink.routes(None).unwrap_or_default();
        self.direct
            .retain(|it| it.dev == Some(device) && it.dst.is_ipv4());
        Ok(())
    }
}

fn route_words(&(target, prefix, table, _): &Way) -> String {
    match table {
        254 => format!("{target}/{prefix}"),
        table => format!("{target}/{prefix} table {table}"),
    }
}

fn route(&(target, prefix, table, gateway): &Way, device: u32) -> Route {
    let route = Route::new(target, prefix).dev(device).table(table);
    gateway.map_or(route, |gateway| route.via(gateway))
}
