//! Networks that other servers of this host have, and the office's name servers: neither may lie behind a branch.

use super::behind::{self, Owner};
use config::home::HomeServer;
use config::types::{AllowedIp, family_bits};
use service::running;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The networks of the other servers in the directory of this server's file, and this host's name servers.
pub(super) fn taken(server: &Path) -> Vec<(Owner, AllowedIp)> {
    let resolv_conf = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut taken = of_resolv_conf(&resolv_conf);
    for other in servers_beside(server) {
        let name = running::name_of(&other);
        match behind::inside(&other) {
            Ok(networks) => taken.extend(networks.into_iter().map(|(owner, network)| {
                let branch = match owner {
                    Owner::Branch(branch) => Some(branch),
                    _ => None,
                };
                (Owner::Server(name.clone(), branch), network)
            })),
            Err(error) => host::terminal::note(format_args!(
                "the networks of the server {name} are unknown: {error}"
            )),
        }
    }
    taken
}

/// The files of the other servers. They need not be up.
fn servers_beside(server: &Path) -> Vec<PathBuf> {
    let server = fs::canonicalize(server).unwrap_or_else(|_| server.to_owned());
    let entries = server.parent().and_then(|it| fs::read_dir(it).ok());
    let entries = entries.into_iter().flatten().flatten();
    let files = entries.filter_map(|it| fs::canonicalize(it.path()).ok());
    let mut files: Vec<PathBuf> = files
        .filter(|it| *it != server && super::is_home(it))
        .collect();
    files.sort();
    files
}

fn owned(addr: IpAddr) -> Option<(Owner, AllowedIp)> {
    let network = AllowedIp::new(addr, family_bits(addr)).ok()?;
    Some((Owner::NameServer, network))
}

/// Name servers that are other hosts.
fn of_resolv_conf(text: &str) -> Vec<(Owner, AllowedIp)> {
    host::name_servers_in(text)
        .filter_map(|it| it.parse().ok())
        .filter(|it: &IpAddr| !it.is_loopback() && !it.is_unspecified())
        .filter_map(owned)
        .collect()
}

/// The name servers of a server's file. A server without networks at home may have a private one in a branch.
pub(super) fn name_servers(home: Option<&HomeServer>) -> Vec<(Owner, AllowedIp)> {
    let Some(home) = home else {
        return Vec::new();
    };
    let servers = home.dns.iter().copied();
    servers
        .filter(|it| !(home.lan.is_empty() && host::is_private(*it)))
        .filter_map(owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFICE: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\nAddress = 10.7.0.1/24\n\
        #! [Server]\n#! Endpoint = office.example:7\n#! LAN = 192.168.1.0/24\n\n[Peer]\n#! Name = br04\n\
        PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nAllowedIPs = 10.7.0.2/32, 198.18.104.0/24\n";

    #[test]
    fn networks_of_other_servers_are_refused_with_their_owners() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("home.conf"), OFFICE).unwrap();
        // A client's file is no server.
        let client = OFFICE
            .replace("[Server]", "")
            .replace("198.18.104", "198.18.105");
        fs::write(at("client.conf"), client).unwrap();
        let refused = |file: &str, network: &str| {
            let wanted = [network.parse().unwrap()];
            let refused = behind::check_outside(&at(file), &[&wanted]).err();
            refused.map(|it| it.to_string()).unwrap_or_default()
        };
        let words = refused("ovpn.ovpn", "198.18.104.0/25");
        assert!(
            words.contains("198.18.104.0/24, behind br04 of the server home;"),
            "{words}"
        );
        let words = refused("ovpn.ovpn", "10.7.0.128/25");
        assert!(words.contains("the server home"), "{words}");
        assert_eq!(refused("ovpn.ovpn", "198.18.105.0/24"), "");
        // Its own networks are looked for elsewhere.
        assert_eq!(refused("home.conf", "198.18.104.0/24"), "");
    }

    #[test]
    fn name_servers_of_the_office_are_found() {
        let shown = |found: Vec<(Owner, AllowedIp)>| {
            let found = found.iter().map(|(_, it)| it.to_string());
            found.collect::<Vec<_>>().join(" ")
        };
        let text = "nameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver 2001:db8::53\n";
        let servers = "192.0.2.53/32 2001:db8::53/128";
        assert_eq!(shown(of_resolv_conf(text)), servers);
        let home = |lan: &[&str]| HomeServer {
            lan: lan.iter().map(|it| it.parse().unwrap()).collect(),
            dns: ["10.9.0.53", "192.0.2.53"]
                .map(|it| it.parse().unwrap())
                .to_vec(),
            ..HomeServer::default()
        };
        let all = "10.9.0.53/32 192.0.2.53/32";
        assert_eq!(shown(name_servers(Some(&home(&["192.168.1.0/24"])))), all);
        assert_eq!(shown(name_servers(Some(&home(&[])))), "192.0.2.53/32");
    }
}
