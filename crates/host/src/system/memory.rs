//! A host in memory, for tests. It does with links, addresses, routes and rules what the kernel does, as far as plans
//! depend on it.

mod routing;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::panic::resume_unwind;

use netio::netlink::masquerade::Masquerade;
use netio::netlink::{Address, Family, NetlinkError, Route, RouteKind, RouteLookup, Rule};
use nix::errno::Errno;

use super::System;
use crate::dns::{DnsError, NameServers, Resolver};
use crate::step::SRC_VALID_MARK;
use crate::ways::{is_same, metric_of};

/// A fault at one of the requested changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// The kernel refuses the change.
    Refused,
    /// The process is killed before the change.
    KilledBefore,
    /// The process is killed after the change.
    KilledAfter,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Link {
    name: String,
    index: u32,
    mtu: u32,
    up: bool,
}

/// An address of an interface: interface, address, prefix, other end.
type Assigned = (u32, IpAddr, u8, Option<IpAddr>);

/// Changes that another program makes to a host.
pub(crate) type Change = fn(&mut Memory);

/// A host.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    links: Vec<Link>,
    addresses: Vec<Assigned>,
    routes: Vec<Route>,
    rules: Vec<Rule>,
    sysctls: BTreeMap<String, String>,
    /// Names of the nftables tables that masquerade.
    tables: Vec<String>,
    dns: BTreeMap<String, NameServers>,
    /// The program that manages the name servers.
    pub(crate) resolver: Option<Resolver>,
    /// The kernel's rules can ignore default routes (`suppress_prefixlength`).
    pub(crate) suppresses: bool,
    /// The interfaces of tunnels outlive their processes.
    pub(crate) persistent: bool,
    /// The fault, and the number of the change where it happens.
    pub(crate) fault: Option<(usize, Fault)>,
    /// Number of changes requested so far.
    pub(crate) changes: usize,
    /// Number of listings of routes until another program makes a change right after one, and that change.
    pub(crate) meanwhile: Option<(usize, Change)>,
}

fn refused(operation: &'static str, error: Errno) -> NetlinkError {
    NetlinkError::Refused {
        operation,
        object: String::new(),
        error: error.into(),
        hint: String::new(),
    }
}

impl Memory {
    /// A host whose interface `wan` (index 2) reaches the Internet through 198.51.100.1. The tunnels `tun0` and `tun1`
    /// (3 and 4) are down.
    pub(crate) fn new() -> Self {
        let link = |(index, name): (u32, &str)| Link {
            name: name.to_owned(),
            index,
            mtu: 1500,
            up: false,
        };
        let mut memory = Self {
            links: [(2, "wan"), (3, "tun0"), (4, "tun1")].map(link).into(),
            addresses: Vec::new(),
            routes: Vec::new(),
            rules: Vec::new(),
            sysctls: [
                (SRC_VALID_MARK, "0"),
                ("net/ipv4/conf/all/rp_filter", "0"),
                ("net/ipv4/conf/wan/rp_filter", "0"),
                ("net/ipv6/conf/default/disable_ipv6", "0"),
                ("net/ipv4/ip_forward", "0"),
                ("net/ipv6/conf/all/forwarding", "0"),
                ("net/ipv6/conf/wan/accept_ra", "1"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
            tables: Vec::new(),
            dns: BTreeMap::new(),
            resolver: Some(Resolver::Resolvectl),
            suppresses: true,
            persistent: false,
            fault: None,
            changes: 0,
            meanwhile: None,
        };
        let ip = |text: &str| text.parse().unwrap();
        memory.set_up(2).unwrap();
        memory.add_address(2, ip("198.51.100.2"), 24, None).unwrap();
        memory
            .add_address(2, ip("2001:db8:1::2"), 64, None)
            .unwrap();
        for via in ["198.51.100.1", "2001:db8:1::1"] {
            memory.add_route(&default_by(ip(via))).unwrap();
        }
        memory.changes = 0;
        memory
    }

    /// Sets a value below `/proc/sys`.
    pub(crate) fn with_sysctl(mut self, key: &str, value: &str) -> Self {
        self.sysctls.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Removes an interface, and everything that the kernel removes with it.
    pub(crate) fn remove_link(&mut self, ifname: &str) {
        let index = self.index_of(ifname).unwrap();
        self.links.retain(|link| link.index != index);
        self.addresses.retain(|address| address.0 != index);
        self.routes.retain(|route| route.dev != Some(index));
    }

    /// Everything that a tunnel can change, except its interface's MTU and up/down state. Sorted, since a restored
    /// object may have another place.
    pub(crate) fn state(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.routes.iter().map(|it| format!("{it:?}")).collect();
        lines.extend(self.addresses.iter().map(|it| format!("{it:?}")));
        lines.extend(self.rules.iter().map(|it| format!("{it:?}")));
        lines.extend(self.tables.iter().cloned());
        lines.extend(self.sysctls.iter().map(|it| format!("{it:?}")));
        lines.extend(self.dns.iter().map(|it| format!("{it:?}")));
        lines.sort();
        lines
    }

    /// Makes a change, unless it is the one with the fault.
    fn change<T>(
        &mut self,
        refused: impl FnOnce() -> T,
        change: impl FnOnce(&mut Self) -> Result<(), T>,
    ) -> Result<(), T> {
        let fault = self.fault.filter(|(at, _)| *at == self.changes);
        self.changes += 1;
        match fault.map(|(_, fault)| fault) {
            None => change(self),
            Some(Fault::Refused) => Err(refused()),
            Some(Fault::KilledBefore) => resume_unwind(Box::new("killed")),
            Some(Fault::KilledAfter) => {
                let _ = change(self);
                resume_unwind(Box::new("killed"))
            }
        }
    }

    fn netlink(
        &mut self,
        operation: &'static str,
        change: impl FnOnce(&mut Self) -> Result<(), Errno>,
    ) -> Result<(), NetlinkError> {
        self.change(
            || refused(operation, Errno::EPERM),
            |memory| change(memory).map_err(|errno| refused(operation, errno)),
        )
    }

    fn link(&mut self, dev: u32) -> Result<&mut Link, Errno> {
        let mut links = self.links.iter_mut();
        links.find(|link| link.index == dev).ok_or(Errno::ENODEV)
    }
}

/// A default route.
pub(crate) fn default_by(via: IpAddr) -> Route {
    Route::default_of(Family::of(via)).via(via)
}

fn masked(addr: IpAddr, prefix: u8) -> IpAddr {
    crate::ways::masked(addr, prefix)
}

impl System for Memory {
    fn index_of(&mut self, ifname: &str) -> Result<u32, NetlinkError> {
        let link = self.links.iter().find(|link| link.name == ifname);
        link.map(|link| link.index)
            .ok_or_else(|| refused("find", Errno::ENODEV))
    }

    fn device(&mut self, dev: u32) -> Result<(String, u32), NetlinkError> {
        let link = self.link(dev).map_err(|errno| refused("find", errno))?;
        Ok((link.name.clone(), link.mtu))
    }

    fn set_mtu(&mut self, dev: u32, mtu: u32) -> Result<(), NetlinkError> {
        self.netlink("set MTU", |memory| {
            memory.link(dev)?.mtu = mtu;
            Ok(())
        })
    }

    fn set_up(&mut self, dev: u32) -> Result<(), NetlinkError> {
        self.netlink("set up", |memory| {
            memory.link(dev)?.up = true;
            memory.connect(dev);
            Ok(())
        })
    }

    fn is_persistent(&mut self, _: &str) -> bool {
        self.persistent
    }

    fn addresses(&mut self, dev: u32) -> Result<Vec<Address>, NetlinkError> {
        let own = self.addresses.iter().filter(|address| address.0 == dev);
        Ok(own
            .map(|&(index, ip, prefix, _)| Address {
                index,
                ip,
                prefix,
                tentative: false,
            })
            .collect())
    }

    fn add_address(
        &mut self,
        dev: u32,
        addr: IpAddr,
        prefix: u8,
        peer: Option<IpAddr>,
    ) -> Result<(), NetlinkError> {
        self.netlink("add address", |memory| {
            let address = (dev, addr, prefix, peer);
            let up = memory.link(dev)?.up;
            if memory.addresses.contains(&address) {
                return Err(Errno::EEXIST);
            }
            memory.addresses.push(address);
            if up {
                memory.connect(dev);
            }
            Ok(())
        })
    }

    fn remove_address(
        &mut self,
        dev: u32,
        addr: IpAddr,
        prefix: u8,
        peer: Option<IpAddr>,
    ) -> Result<(), NetlinkError> {
        self.netlink("remove address", |memory| {
            let address = (dev, addr, prefix, peer);
            if !memory.addresses.contains(&address) {
                return Err(Errno::EADDRNOTAVAIL);
            }
            memory.addresses.retain(|it| *it != address);
            let ours = |it: &Route| it.dev == Some(dev) && it.protocol == Some(2);
            memory.routes.retain(|it| !ours(it));
            memory.connect(dev);
            Ok(())
        })
    }

    fn routes(&mut self, table: Option<u32>) -> Result<Vec<Route>, NetlinkError> {
        let mut routes = self.routes.clone();
        routes.retain(|route| table.is_none_or(|table| route.table == table));
        match &mut self.meanwhile {
            Some((0, change)) => {
                let change = *change;
                self.meanwhile = None;
                change(self);
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        Ok(routes)
    }

    fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let route = *route;
        self.netlink("add route", |memory| {
            let route = memory.acceptable(route)?;
            let key = |it: &Route| (it.table, it.dst, it.prefix, metric_of(it));
            if memory.routes.iter().any(|it| key(it) == key(&route)) {
                return Err(Errno::EEXIST);
            }
            memory.routes.push(route);
            Ok(())
        })
    }

    fn prepend_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let route = *route;
        self.netlink("add route", |memory| {
            let route = memory.acceptable(route)?;
            if memory.routes.iter().any(|it| is_same(it, &route)) {
                return Err(Errno::EEXIST);
            }
            memory.routes.insert(0, route);
            Ok(())
        })
    }

    fn delete_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let route = *route;
        self.netlink("delete route", |memory| {
            let fits = |it: &Route| {
                (it.table, it.dst, it.prefix, it.kind)
                    == (route.table, route.dst, route.prefix, route.kind)
                    && route.via.is_none_or(|via| it.via == Some(via))
                    && route.dev.is_none_or(|dev| it.dev == Some(dev))
                    && route.metric.is_none_or(|metric| metric_of(it) == metric)
            };
            let places = (0..memory.routes.len()).filter(|&at| fits(&memory.routes[at]));
            // The kernel keeps routes ordered by metric.
            let place = places.min_by_key(|&at| metric_of(&memory.routes[at]));
            memory.routes.remove(place.ok_or(Errno::ESRCH)?);
            Ok(())
        })
    }

    fn route_get(&mut self, dst: IpAddr, mark: u32) -> Result<RouteLookup, NetlinkError> {
        let found = |dev, via, table, kind, mtu| RouteLookup {
            dev,
            src: None,
            via,
            table,
            kind,
            mtu,
        };
        if self.addresses.iter().any(|address| address.1 == dst) {
            return Ok(found(1, None, 255, RouteKind::Local, None));
        }
        let way = self.decide(dst, mark).and_then(|route| {
            (route.kind == RouteKind::Unicast).then_some(found(
                route.dev?,
                route.via,
                route.table,
                route.kind,
                route.mtu,
            ))
        });
        way.ok_or_else(|| refused("find the route", Errno::ENETUNREACH))
    }

    fn rules(&mut self, family: Family) -> Result<Vec<Rule>, NetlinkError> {
        let mut rules = self.rules.clone();
        rules.retain(|rule| rule.family == family);
        Ok(rules)
    }

    fn add_rule(&mut self, rule: &Rule) -> Result<(), NetlinkError> {
        let mut rule = *rule;
        self.netlink("add rule", |memory| {
            if !memory.suppresses {
                rule.suppress_prefixlength = None;
            }
            if memory.rules.contains(&rule) {
                return Err(Errno::EEXIST);
            }
            memory.rules.push(rule);
            Ok(())
        })
    }

    fn delete_rule(&mut self, rule: &Rule) -> Result<(), NetlinkError> {
        let rule = *rule;
        self.netlink("delete rule", |memory| {
            let fits = |it: &Rule| {
                (it.family, it.table, it.priority) == (rule.family, rule.table, rule.priority)
            };
            let place = memory.rules.iter().position(fits).ok_or(Errno::ENOENT)?;
            memory.rules.remove(place);
            Ok(())
        })
    }

    fn masquerade(&mut self, wanted: &Masquerade<'_>) -> Result<(), NetlinkError> {
        self.netlink("make table", |memory| {
            memory.tables.retain(|it| it != wanted.table);
            memory.tables.push(wanted.table.to_owned());
            Ok(())
        })
    }

    fn delete_table(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.netlink("delete table", |memory| {
            let place = memory.tables.iter().position(|it| it == name);
            memory.tables.remove(place.ok_or(Errno::ENOENT)?);
            Ok(())
        })
    }

    fn has_table(&mut self, name: &str) -> Result<bool, NetlinkError> {
        Ok(self.tables.iter().any(|it| it == name))
    }

    fn sysctl(&mut self, key: &str) -> Option<String> {
        self.sysctls.get(key).cloned()
    }

    fn set_sysctl(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.change(
            || Errno::EROFS.into(),
            |memory| {
                let setting = memory.sysctls.get_mut(key).ok_or(Errno::ENOENT)?;
                value.clone_into(setting);
                Ok(())
            },
        )
    }

    fn configured_interfaces(&mut self) -> Vec<String> {
        vec!["all".to_owned(), "wan".to_owned()]
    }

    fn has_ipv6(&mut self) -> bool {
        true
    }

    fn resolver(&mut self) -> Option<Resolver> {
        self.resolver.clone()
    }

    fn resolv_conf(&mut self) -> String {
        "nameserver 203.0.113.53\nnameserver 127.0.0.53\n".to_owned()
    }

    fn set_dns(
        &mut self,
        _: &Resolver,
        ifname: &str,
        wanted: &NameServers,
    ) -> Result<(), DnsError> {
        let fail = || DnsError::TooSlow { program: "memory" };
        self.change(fail, |memory| {
            memory.dns.insert(ifname.to_owned(), wanted.clone());
            Ok(())
        })
    }

    fn unset_dns(&mut self, _: &Resolver, ifname: &str) -> Result<(), DnsError> {
        let fail = || DnsError::TooSlow { program: "memory" };
        self.change(fail, |memory| {
            memory.dns.remove(ifname);
            Ok(())
        })
    }
}
