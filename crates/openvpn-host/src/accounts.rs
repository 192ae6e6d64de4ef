//! The accounts of a server's clients: their files, addresses, pushed options and passwords.

pub mod client_names;
pub mod htpasswd;
mod md5_crypt;
pub mod persist;
pub mod pool;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use config::openvpn::{ClientSettings, Ifconfig, IfconfigV6, PushChange, Topology};

use crate::scripts::names;
use host::masked;
use pool::Lease;

/// Name of the file for every client without its own.
pub(crate) const DEFAULT: &str = "DEFAULT";

/// Largest client file that is read, in bytes.
const FILE_MAX: u64 = 64 << 10;

/// Whether this common name has its own client file, as `ccd-exclusive` demands; [`DEFAULT`] does not count.
pub fn has_own_file(directory: &Path, common_name: &str) -> bool {
    common_name != DEFAULT && own_file(directory, common_name).is_some_and(|path| path.is_file())
}

fn own_file(directory: &Path, common_name: &str) -> Option<PathBuf> {
    names::file(common_name).map(|name| directory.join(name))
}

/// Returns the path and text of the client's file, or of [`DEFAULT`]; `None` without either.
///
/// # Errors
/// The file exists but is unreadable or too large.
pub fn file(directory: &Path, common_name: &str) -> io::Result<Option<(PathBuf, String)>> {
    let files = own_file(directory, common_name)
        .into_iter()
        .chain([directory.join(DEFAULT)]);
    for path in files {
        match fs::metadata(&path) {
            Ok(data) if !data.is_file() => {}
            Ok(_) => {
                let bytes = config::file::read(&path, FILE_MAX)?;
                let text = std::str::from_utf8(&bytes).map_err(|_| io::ErrorKind::InvalidData)?;
                return Ok(Some((path, text.to_owned())));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Adds the settings from a `client-connect` script to those from the client's file. Single settings are replaced and
/// lists are joined.
pub fn merge(first: ClientSettings, second: ClientSettings) -> ClientSettings {
    let mut merged = first;
    merged.disable |= second.disable;
    if second.push_reset {
        // `push-reset` also drops what the file pushed.
        merged.push_reset = true;
        merged.push.clear();
    }
    merged.push.extend(second.push);
    if second.ifconfig_push.is_some() {
        merged.ifconfig_push = second.ifconfig_push;
        merged.ifconfig_push_alias = second.ifconfig_push_alias;
    }
    merged.ifconfig_v6_push = second.ifconfig_v6_push.or(merged.ifconfig_v6_push);
    merged.inactive = second.inactive.or(merged.inactive);
    merged.session_timeout = second.session_timeout.or(merged.session_timeout);
    merged.max_routes = second.max_routes.or(merged.max_routes);
    merged.iroutes.extend(second.iroutes);
    merged.iroutes_v6.extend(second.iroutes_v6);
    merged
}

/// The server's own tunnel addresses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ServerSide {
    /// How addresses are laid out.
    pub topology: Topology,
    /// The server's address, and the netmask or the far end.
    pub ifconfig: Option<Ifconfig>,
    /// The server's IPv6 address, prefix length and far end.
    pub ifconfig_v6: Option<IfconfigV6>,
    /// Netmask from `ifconfig-pool`.
    pub pool_netmask: Option<Ipv4Addr>,
    /// Prefix length of `ifconfig-ipv6-pool`.
    pub pool_bits_v6: Option<u8>,
}

/// A client's addresses in the tunnel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Addresses {
    /// The address that the server routes to the client, and its netmask or peer.
    pub ifconfig: Option<Ifconfig>,
    /// The address that the client is told instead, if a NAT on the path translates it.
    pub alias: Option<Ipv4Addr>,
    /// The client's and the server's IPv6 addresses.
    pub ifconfig_v6: Option<IfconfigV6>,
}

impl Addresses {
    /// Returns a client's addresses: for each family those of its settings, else those of the lease.
    pub fn new(server: &ServerSide, settings: &ClientSettings, lease: Option<&Lease>) -> Self {
        let lease = lease.filter(|_| needs_lease(server, settings));
        let fixed = settings.ifconfig_push;
        let ours_v6 = server.ifconfig_v6.map(|ifconfig| ifconfig.local);
        let fixed_v6 = settings.ifconfig_v6_push.and_then(|push| {
            Some(IfconfigV6 {
                remote: Some(push.remote.or(ours_v6)?),
                ..push
            })
        });
        let leased_v6 = || {
            Some(IfconfigV6 {
                local: lease?.ipv6?,
                bits: server
                    .pool_bits_v6
                    .or_else(|| Some(server.ifconfig_v6?.bits))?,
                remote: Some(ours_v6?),
            })
        };
        Self {
            ifconfig: fixed.or_else(|| server.leased(lease?)),
            alias: fixed.and(settings.ifconfig_push_alias),
            ifconfig_v6: fixed_v6.or_else(leased_v6),
        }
    }
}

impl ServerSide {
    fn leased(&self, lease: &Lease) -> Option<Ifconfig> {
        let second = match self.topology {
            Topology::Subnet => self.pool_netmask.or_else(|| Some(self.ifconfig?.second)),
            Topology::P2p => self.ifconfig.map(|i| i.local),
            Topology::Net30 => lease.ipv4_server,
        };
        Some(Ifconfig {
            local: lease.ipv4?,
            second: second?,
        })
    }
}

/// Whether a client with these settings needs a place in the pool: it lacks a fixed address of one of the pool's
/// families. Otherwise the client gives its place back.
///
/// A place has an address of each family. A client with only a fixed IPv4 address keeps the place for its IPv6 address;
/// another client would otherwise get that address too.
pub const fn needs_lease(server: &ServerSide, settings: &ClientSettings) -> bool {
    let lacks_v6 = server.pool_bits_v6.is_some() && settings.ifconfig_v6_push.is_none();
    settings.ifconfig_push.is_none() || lacks_v6
}

/// Whether this pushed option is a route to a network behind the client itself. OpenVPN does not push it either, unless
/// the route names a gateway.
fn is_own_route(option: &str, settings: &ClientSettings) -> bool {
    let words: Vec<&str> = option.split_whitespace().collect();
    let network = match *words {
        ["route", addr] => network_v4(addr, "255.255.255.255"),
        ["route", addr, mask] => network_v4(addr, mask),
        ["route-ipv6", network] => network_v6(network),
        _ => None,
    };
    let v4 = settings.iroutes.iter();
    let v4 = v4.map(|&(it, bits)| (IpAddr::V4(it), bits));
    let v6 = settings.iroutes_v6.iter();
    let mut own = v4.chain(v6.map(|&(it, bits)| (IpAddr::V6(it), bits)));
    network.is_some_and(|network| own.any(|(it, bits)| (masked(it, bits), bits) == network))
}

fn network_v4(addr: &str, mask: &str) -> Option<(IpAddr, u8)> {
    let mask = mask.parse::<Ipv4Addr>().ok()?.to_bits();
    let bits = mask.leading_ones();
    let is_netmask = mask.count_ones() == bits;
    let network = (addr.parse::<Ipv4Addr>().ok()?.into(), bits as u8);
    is_netmask.then_some(network)
}

fn network_v6(network: &str) -> Option<(IpAddr, u8)> {
    let (addr, bits) = network.split_once('/')?;
    Some((addr.parse::<Ipv6Addr>().ok()?.into(), bits.parse().ok()?))
}

/// Returns a client's pushed options in stock's order: the server's list with the client's changes, then the addresses.
/// The session appends its own options (`peer-id`, `cipher`, `protocol-flags`, …).
pub fn push_options(
    server: &[String],
    settings: &ClientSettings,
    addresses: &Addresses,
) -> Vec<String> {
    let mut options: Vec<&str> = Vec::new();
    if !settings.push_reset {
        options.extend(server.iter().map(String::as_str));
    }
    // Addresses are in no list, so `push-remove` is applied to them here.
    let (mut ifconfig, mut ifconfig_v6) = (addresses.ifconfig, addresses.ifconfig_v6);
    for change in &settings.push {
        match change {
            PushChange::Add(option) => options.push(option),
            PushChange::Remove(name) if name == "ifconfig" => ifconfig = None,
            PushChange::Remove(name) if name == "ifconfig-ipv6" => ifconfig_v6 = None,
            PushChange::Remove(prefix) => {
                options.retain(|option| !option.starts_with(prefix.as_str()));
            }
        }
    }
    options.retain(|option| !is_own_route(option, settings));
    let ifconfig_v6 = ifconfig_v6.and_then(|i| {
        Some(format!(
            "ifconfig-ipv6 {}/{} {}",
            i.local, i.bits, i.remote?
        ))
    });
    let ifconfig = ifconfig.map(|i| {
        let local = addresses.alias.unwrap_or(i.local);
        format!("ifconfig {local} {}", i.second)
    });
    options
        .into_iter()
        .map(str::to_owned)
        .chain(ifconfig_v6)
        .chain(ifconfig)
        .collect()
}

/// Returns all addresses and networks behind a client, its own addresses first.
pub fn inner_networks(settings: &ClientSettings, addresses: &Addresses) -> Vec<(IpAddr, u8)> {
    let own = addresses.ifconfig.map(|i| (IpAddr::V4(i.local), 32));
    let own_v6 = addresses.ifconfig_v6.map(|i| (IpAddr::V6(i.local), 128));
    let v4 = settings.iroutes.iter();
    let v4 = v4.map(|&(net, bits)| (masked(net.into(), bits), bits));
    let v6 = settings.iroutes_v6.iter();
    let v6 = v6.map(|&(net, bits)| (masked(net.into(), bits), bits));
    own.into_iter().chain(own_v6).chain(v4).chain(v6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::pool::Pool;
    use config::openvpn::{Pool as Range, PoolV6};

    fn server(topology: Topology) -> ServerSide {
        ServerSide {
            topology,
            ifconfig: Some(Ifconfig {
                local: [10, 8, 0, 1].into(),
                second: match topology {
                    Topology::Subnet => [255, 255, 255, 0].into(),
                    Topology::P2p | Topology::Net30 => [10, 8, 0, 2].into(),
                },
            }),
            ifconfig_v6: Some(IfconfigV6 {
                local: "fd00::1".parse().unwrap(),
                bits: 64,
                remote: Some("fd00::2".parse().unwrap()),
            }),
            pool_netmask: None,
            pool_bits_v6: Some(64),
        }
    }

    fn lease(topology: Topology) -> Lease {
        let ipv4 = Range {
            start: "10.8.0.4".parse().unwrap(),
            end: "10.8.0.251".parse().unwrap(),
            netmask: None,
        };
        let ipv6 = PoolV6 {
            base: "fd00::1000".parse().unwrap(),
            bits: 64,
        };
        let mut pool = Pool::new(Some(ipv4), Some(ipv6), topology, false).unwrap();
        pool.acquire(None).unwrap()
    }

    fn pushed(topology: Topology) -> Vec<String> {
        let settings = ClientSettings::default();
        let addresses = Addresses::new(&server(topology), &settings, Some(&lease(topology)));
        push_options(&["topology x".to_owned()], &settings, &addresses)
    }

    #[test]
    fn the_addresses_of_a_lease_follow_the_topology() {
        let v6 = "ifconfig-ipv6 fd00::1000/64 fd00::1";
        assert_eq!(
            pushed(Topology::Subnet),
            ["topology x", v6, "ifconfig 10.8.0.4 255.255.255.0"]
        );
        assert_eq!(
            pushed(Topology::P2p),
            ["topology x", v6, "ifconfig 10.8.0.4 10.8.0.1"]
        );
        assert_eq!(
            pushed(Topology::Net30),
            ["topology x", v6, "ifconfig 10.8.0.6 10.8.0.5"]
        );
    }

    #[test]
    fn fixed_addresses_take_the_place_of_the_lease() {
        let settings = ClientSettings {
            ifconfig_push: Some(Ifconfig {
                local: [10, 8, 0, 99].into(),
                second: [255, 255, 255, 0].into(),
            }),
            ifconfig_push_alias: Some([172, 16, 0, 1].into()),
            iroutes: vec![([192, 168, 3, 7].into(), 24), ([0, 0, 0, 0].into(), 0)],
            iroutes_v6: vec![("fd01::1".parse().unwrap(), 48)],
            ..ClientSettings::default()
        };
        let without_v6 = ServerSide {
            ifconfig_v6: None,
            pool_bits_v6: None,
            ..server(Topology::Subnet)
        };
        assert!(!needs_lease(&without_v6, &settings));
        let lease = lease(Topology::Subnet);
        let addresses = Addresses::new(&without_v6, &settings, Some(&lease));
        assert_eq!(
            push_options(&[], &settings, &addresses),
            ["ifconfig 172.16.0.1 255.255.255.0"]
        );
        let networks: Vec<String> = inner_networks(&settings, &addresses)
            .iter()
            .map(|(network, bits)| format!("{network}/{bits}"))
            .collect();
        assert_eq!(
            networks,
            ["10.8.0.99/32", "192.168.3.0/24", "0.0.0.0/0", "fd01::/48"]
        );
    }

    #[test]
    fn a_fixed_address_of_one_family_leaves_the_leased_one_of_the_other() {
        let v4 = Ifconfig {
            local: [10, 8, 0, 99].into(),
            second: [255, 255, 255, 0].into(),
        };
        let v6 = IfconfigV6 {
            local: "fd00::99".parse().unwrap(),
            bits: 64,
            remote: None,
        };
        let leased_v6 = "ifconfig-ipv6 fd00::1000/64 fd00::1";
        let leased_v4 = "ifconfig 10.8.0.4 255.255.255.0";
        let fixed_v6 = "ifconfig-ipv6 fd00::99/64 fd00::1";
        let fixed_v4 = "ifconfig 10.8.0.99 255.255.255.0";
        for (ifconfig_push, ifconfig_v6_push, leases, wanted) in [
            (None, None, true, [leased_v6, leased_v4]),
            (Some(v4), None, true, [leased_v6, fixed_v4]),
            (None, Some(v6), true, [fixed_v6, leased_v4]),
            (Some(v4), Some(v6), false, [fixed_v6, fixed_v4]),
        ] {
            let settings = ClientSettings {
                ifconfig_push,
                ifconfig_v6_push,
                ..ClientSettings::default()
            };
            let (side, lease) = (server(Topology::Subnet), lease(Topology::Subnet));
            assert_eq!(needs_lease(&side, &settings), leases, "{wanted:?}");
            let addresses = Addresses::new(&side, &settings, Some(&lease));
            assert_eq!(push_options(&[], &settings, &addresses), wanted);
        }
    }

    #[test]
    fn a_client_changes_the_servers_list() {
        let add = |text: &str| PushChange::Add(text.to_owned());
        let remove = |text: &str| PushChange::Remove(text.to_owned());
        let list = ["route 10.0.0.0", "route-gateway 10.8.0.1", "ping 10"].map(str::to_owned);
        let lease = lease(Topology::Subnet);
        let mut settings = ClientSettings {
            push: vec![
                add("route 1"),
                remove("route "),
                add("route 2"),
                remove("ifconfig-ipv6"),
            ],
            ..ClientSettings::default()
        };
        let side = server(Topology::Subnet);
        let addresses = Addresses::new(&side, &settings, Some(&lease));
        assert_eq!(
            push_options(&list, &settings, &addresses),
            [
                "route-gateway 10.8.0.1",
                "ping 10",
                "route 2",
                "ifconfig 10.8.0.4 255.255.255.0"
            ]
        );
        settings.push_reset = true;
        settings.push.push(remove("ifconfig"));
        assert_eq!(push_options(&list, &settings, &addresses), ["route 2"]);
    }

    #[test]
    fn a_client_gets_no_route_to_the_networks_behind_it() {
        let settings = ClientSettings {
            iroutes: vec![([192, 168, 8, 0].into(), 24), ([192, 168, 9, 9].into(), 32)],
            iroutes_v6: vec![("fd00:8::".parse().unwrap(), 64)],
            push: vec![PushChange::Add("route 192.168.9.9".to_owned())],
            ..ClientSettings::default()
        };
        let others = [
            "route 192.168.8.0 255.255.0.0",
            "route 192.168.8.0 255.255.255.0 10.8.0.1",
            "route 192.168.7.0 255.255.255.0",
            "route-ipv6 fd00:8::/65",
            "route-gateway 10.8.0.1",
        ];
        let own = ["route 192.168.8.0 255.255.255.0", "route-ipv6 fd00:8::/64"];
        let list: Vec<String> = own
            .iter()
            .chain(&others)
            .map(|it| (*it).to_owned())
            .collect();
        assert_eq!(
            push_options(&list, &settings, &Addresses::default()),
            others
        );
        let plain = ClientSettings::default();
        assert_eq!(push_options(&list, &plain, &Addresses::default()), list);
    }

    #[test]
    fn a_script_adds_to_the_file() {
        let push = |text: &str| vec![PushChange::Add(text.to_owned())];
        let file = ClientSettings {
            push: push("a"),
            iroutes: vec![([10, 0, 0, 0].into(), 8)],
            ..ClientSettings::default()
        };
        let script = ClientSettings {
            push: push("b"),
            disable: true,
            ..ClientSettings::default()
        };
        let merged = merge(file.clone(), script.clone());
        assert!(merged.disable && merged.iroutes.len() == 1 && merged.push.len() == 2);
        let script = ClientSettings {
            push_reset: true,
            ..script
        };
        assert_eq!(merge(file, script).push, push("b"));
    }

    #[test]
    fn the_clients_own_file_goes_before_the_default() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str| fs::write(directory.path().join(name), name).unwrap();
        let found = |name: &str| file(directory.path(), name).unwrap().map(|(_, text)| text);
        assert_eq!(found("a"), None);
        write("a");
        fs::create_dir(directory.path().join("b")).unwrap();
        assert_eq!(found("a").as_deref(), Some("a"));
        assert_eq!(found("b"), None);
        write(DEFAULT);
        assert_eq!(found("b").as_deref(), Some(DEFAULT));
        assert_eq!(found("..").as_deref(), Some(DEFAULT));
        let exclusive = ["a", "b", "c", DEFAULT, "..", "../a", ""];
        let exclusive = exclusive.map(|name| has_own_file(directory.path(), name));
        assert_eq!(exclusive, [true, false, false, false, false, false, false]);
        write("large");
        fs::write(directory.path().join("large"), vec![b'#'; 70_000]).unwrap();
        assert!(file(directory.path(), "large").is_err());
    }
}
