//! The host as a trait, which this crate reads and changes: [`Netlink`] is the host of this process, and tests use a
//! host in memory.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use netio::netlink::masquerade::{self, Masquerade};
use netio::netlink::{Address, Family, Netfilter, Netlink, NetlinkError, Route, RouteLookup, Rule};

use crate::dns::{DnsError, NameServers, Resolver};

/// Root of the kernel's settings.
const SETTINGS: &str = "/proc/sys";

/// Where name servers are listed; with systemd-resolved the second file names only its stub.
const RESOLV_CONFS: [&str; 2] = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];

/// Links, addresses, routes, rules, masquerading, settings and name servers of one network namespace.
///
/// Errors are the kernel's: [`NetlinkError::is_exists`] for an object that exists already,
/// [`NetlinkError::is_not_found`] for one that does not exist.
pub trait System {
    /// Index of an interface.
    fn index_of(&mut self, ifname: &str) -> Result<u32, NetlinkError>;
    /// Name of an interface, and its MTU in bytes.
    fn device(&mut self, dev: u32) -> Result<(String, u32), NetlinkError>;
    /// Sets the MTU of an interface in bytes.
    fn set_mtu(&mut self, dev: u32, mtu: u32) -> Result<(), NetlinkError>;
    /// Sets an interface up.
    fn set_up(&mut self, dev: u32) -> Result<(), NetlinkError>;
    /// True for a TUN that outlives the process that uses it (`--mktun`, `ip tuntap add`).
    fn is_persistent(&mut self, ifname: &str) -> bool;

    /// The addresses of an interface.
    fn addresses(&mut self, dev: u32) -> Result<Vec<Address>, NetlinkError>;
    /// Adds an address; `peer` is the other end of a point-to-point interface, which makes `prefix` unused.
    fn add_address(
        &mut self,
        dev: u32,
        addr: IpAddr,
        prefix: u8,
        peer: Option<IpAddr>,
    ) -> Result<(), NetlinkError>;
    /// Removes an address, as it was added.
    fn remove_address(
        &mut self,
        dev: u32,
        addr: IpAddr,
        prefix: u8,
        peer: Option<IpAddr>,
    ) -> Result<(), NetlinkError>;

    /// The routes of one table, or of all.
    fn routes(&mut self, table: Option<u32>) -> Result<Vec<Route>, NetlinkError>;
    /// Adds a route.
    fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError>;
    /// Adds an IPv4 route in front of others with its destination, metric and table.
    fn prepend_route(&mut self, route: &Route) -> Result<(), NetlinkError>;
    /// Deletes the first route that matches every value given in `route`.
    fn delete_route(&mut self, route: &Route) -> Result<(), NetlinkError>;
    /// The route that a packet with a firewall mark (0 for none) would take.
    fn route_get(&mut self, dst: IpAddr, mark: u32) -> Result<RouteLookup, NetlinkError>;

    /// The rules of a family.
    fn rules(&mut self, family: Family) -> Result<Vec<Rule>, NetlinkError>;
    /// Adds a rule.
    fn add_rule(&mut self, rule: &Rule) -> Result<(), NetlinkError>;
    /// Deletes the first rule that matches every value given in `rule`.
    fn delete_rule(&mut self, rule: &Rule) -> Result<(), NetlinkError>;

    /// Makes a table that masquerades, and replaces an existing one of that name.
    fn masquerade(&mut self, wanted: &Masquerade<'_>) -> Result<(), NetlinkError>;
    /// Deletes a masquerading table.
    fn delete_table(&mut self, name: &str) -> Result<(), NetlinkError>;
    /// Whether a masquerading table of that name exists.
    fn has_table(&mut self, name: &str) -> Result<bool, NetlinkError>;

    /// A value below `/proc/sys`, without the final newline; `None` if the kernel does not have it.
    fn sysctl(&mut self, key: &str) -> Option<String>;
    /// Sets a value below `/proc/sys`.
    fn set_sysctl(&mut self, key: &str, value: &str) -> io::Result<()>;
    /// The interfaces that have settings below `net/ipv4/conf`, including `all` and `default`.
    fn configured_interfaces(&mut self) -> Vec<String>;
    /// True when the kernel has IPv6.
    fn has_ipv6(&mut self) -> bool;

    /// The program that manages the name servers.
    fn resolver(&mut self) -> Option<Resolver>;
    /// The list of name servers that the host uses now, in the format of `resolv.conf`.
    fn resolv_conf(&mut self) -> String;
    /// Sets the name servers to use while the interface exists; see [`Resolver::set`].
    fn set_dns(
        &mut self,
        resolver: &Resolver,
        ifname: &str,
        wanted: &NameServers,
    ) -> Result<(), DnsError>;
    /// Undoes [`System::set_dns`]; see [`Resolver::unset`].
    fn unset_dns(&mut self, resolver: &Resolver, ifname: &str) -> Result<(), DnsError>;
}

/// Works on the namespace of the socket, which must be the thread's own: settings are files in the thread's namespace.
impl System for Netlink {
    fn index_of(&mut self, ifname: &str) -> Result<u32, NetlinkError> {
        self.index_of(ifname)
    }

    fn device(&mut self, dev: u32) -> Result<(String, u32), NetlinkError> {
        let link = self.link_by_index(dev)?;
        Ok((link.name, link.mtu))
    }

    fn set_mtu(&mut self, dev: u32, mtu: u32) -> Result<(), NetlinkError> {
        self.set_mtu(dev, mtu)
    }

    fn set_up(&mut self, dev: u32) -> Result<(), NetlinkError> {
        self.set_up(dev)
    }

    fn is_persistent(&mut self, ifname: &str) -> bool {
        // linux/if_tun.h
        const IFF_PERSIST: u32 = 0x800;
        let path = Path::new("/sys/class/net").join(ifname).join("tun_flags");
        let text = fs::read_to_string(path).unwrap_or_default();
        let digits = text.trim().strip_prefix("0x").unwrap_or_default();
        u32::from_str_radix(digits, 16).is_ok_and(|flags| flags & IFF_PERSIST != 0)
    }

    fn addresses(&mut self, dev: u32) -> Result<Vec<Address>, NetlinkError> {
        self.addresses(Some(dev))
    }

    fn add_address(
        &mut self,
        dev: u32,
        addr: IpAddr,
        prefix: u8,
        peer: Option<IpAddr>,
    ) -> Result<(), NetlinkError> {
        self.add_address(dev, addr, prefix, peer)
    }

    fn remove_address(
        &mut self,
        dev: u32,
        addr: IpAddr,
        prefix: u8,
        peer: Option<IpAddr>,
    ) -> Result<(), NetlinkError> {
        self.remove_address(dev, addr, prefix, peer)
    }

    fn routes(&mut self, table: Option<u32>) -> Result<Vec<Route>, NetlinkError> {
        self.routes(table)
    }

    fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.add_route(route)
    }

    fn prepend_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.prepend_route(route)
    }

    fn delete_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.delete_route(route)
    }

    fn route_get(&mut self, dst: IpAddr, mark: u32) -> Result<RouteLookup, NetlinkError> {
        self.route_get(dst, mark)
    }

    fn rules(&mut self, family: Family) -> Result<Vec<Rule>, NetlinkError> {
        self.rules(family)
    }

    fn add_rule(&mut self, rule: &Rule) -> Result<(), NetlinkError> {
        self.add_rule(rule)
    }

    fn delete_rule(&mut self, rule: &Rule) -> Result<(), NetlinkError> {
        self.delete_rule(rule)
    }

    fn masquerade(&mut self, wanted: &Masquerade<'_>) -> Result<(), NetlinkError> {
        masquerade::set(wanted)
    }

    fn delete_table(&mut self, name: &str) -> Result<(), NetlinkError> {
        masquerade::unset(name)
    }

    fn has_table(&mut self, name: &str) -> Result<bool, NetlinkError> {
        Ok(Netfilter::open()?.chain(name, masquerade::CHAIN)?.is_some())
    }

    fn sysctl(&mut self, key: &str) -> Option<String> {
        let text = fs::read_to_string(Path::new(SETTINGS).join(key)).ok()?;
        Some(text.trim().to_owned())
    }

    fn set_sysctl(&mut self, key: &str, value: &str) -> io::Result<()> {
        fs::write(Path::new(SETTINGS).join(key), value)
    }

    fn configured_interfaces(&mut self) -> Vec<String> {
        let entries = fs::read_dir(Path::new(SETTINGS).join("net/ipv4/conf"));
        let entries = entries.into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    fn has_ipv6(&mut self) -> bool {
        Path::new("/proc/net/if_inet6").exists()
    }

    fn resolver(&mut self) -> Option<Resolver> {
        Resolver::find()
    }

    fn resolv_conf(&mut self) -> String {
        let mut texts = RESOLV_CONFS.iter().map(fs::read_to_string);
        texts.find_map(Result::ok).unwrap_or_default()
    }

    fn set_dns(
        &mut self,
        resolver: &Resolver,
        ifname: &str,
        wanted: &NameServers,
    ) -> Result<(), DnsError> {
        resolver.set(ifname, wanted)
    }

    fn unset_dns(&mut self, resolver: &Resolver, ifname: &str) -> Result<(), DnsError> {
        resolver.unset(ifname)
    }
}

#[cfg(test)]
pub(crate) mod memory;
