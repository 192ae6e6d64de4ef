//! The clients of a WireGuard server.

use super::behind::{self, Owner};
use super::file::{self, Public, Record, sum};
use super::{PeerError, Row, Wanted, or_take_back, place, secret};
use crate::keys;
use config::clients::{self, Section};
use config::free;
use config::tunnel::Tunnel;
use config::types::{AllowedIp, family_bits};
use config::wgquick;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A server's file.
struct File {
    path: PathBuf,
    text: Zeroizing<String>,
    tunnel: Tunnel,
}

impl File {
    fn read(path: &Path) -> Result<Self, PeerError> {
        let text = place::read(path)?;
        // Scripts do not run here.
        let options = config::permissions::Permissions::ALL;
        let import = wgquick::parse(&text, &path.display().to_string(), options);
        let (tunnel, _) = import.into_tunnel()?;
        Ok(Self {
            path: path.to_owned(),
            text,
            tunnel,
        })
    }

    fn unfit(&self, why: &'static str) -> PeerError {
        PeerError::Unfit {
            path: self.path.clone(),
            why,
        }
    }

    /// Replaces the text of the file.
    fn write(&self, text: &str) -> Result<(), PeerError> {
        self.check()?;
        Ok(place::replace(&self.path, text)?)
    }

    /// Checks that the file may be changed.
    fn check(&self) -> Result<(), PeerError> {
        match self.tunnel.interface.save_config {
            true => Err(self.unfit(
                "`SaveConfig = true` rewrites the file when the tunnel ends, which would undo this change; remove \
                 that line first",
            )),
            false => Ok(()),
        }
    }

    /// Finds the section of a client, by its name or key.
    fn section(&self, name: &str) -> Result<Section, PeerError> {
        let mut sections = clients::sections(&self.text).into_iter();
        let found = sections.find(|it| is_of(it, name));
        found.ok_or_else(|| PeerError::Absent(name.to_owned()))
    }

    /// Splits a client's ranges into its own addresses and the networks behind it. Ranges inside the tunnel's networks
    /// are its own. Without any of that family, so are single addresses: a server's file may name no network.
    fn split(&self, ranges: &[AllowedIp]) -> (Vec<AllowedIp>, Vec<AllowedIp>) {
        let tunnel = self.networks();
        let is_inside = |range: &AllowedIp| {
            let mut tunnel = tunnel.iter();
            tunnel.any(|it| it.prefix() <= range.prefix() && it.contains(range.addr()))
        };
        let has_inside = |range: &AllowedIp| {
            let mut inside = ranges.iter().filter(|it| is_inside(it));
            inside.any(|it| it.addr().is_ipv4() == range.addr().is_ipv4())
        };
        let is_own = |it: &&AllowedIp| is_inside(it) || (is_single(it) && !has_inside(it));
        ranges.iter().partition(is_own)
    }

    /// All clients.
    fn clients(&self) -> Vec<Client> {
        let peers = self.tunnel.peers.iter();
        let ranges: HashMap<String, &[AllowedIp]> = peers
            .map(|it| (it.public_key.to_base64().to_string(), &it.allowed_ips[..]))
            .collect();
        let client = |section: Section| {
            let ranges = ranges.get(&section.public_key).copied().unwrap_or_default();
            let (own, behind) = self.split(ranges);
            Client {
                section,
                own,
                behind,
            }
        };
        let sections = clients::sections(&self.text).into_iter();
        sections.map(client).collect()
    }

    /// Refuses networks that may not lie behind a client: the office or another client than `name` has them.
    fn check_networks(
        &self,
        clients: &[Client],
        name: &str,
        wanted: &[AllowedIp],
    ) -> Result<(), PeerError> {
        let others = clients.iter().filter(|it| !is_of(&it.section, name));
        let own = others.clone().flat_map(|it| &it.own);
        let own = own.map(|it| (Owner::Tunnel, *it));
        let mut taken: Vec<(Owner, AllowedIp)> = others
            .flat_map(|it| {
                let section = &it.section;
                let name = section.name.as_ref().unwrap_or(&section.public_key);
                let owner = Owner::Branch(name.clone());
                it.behind.iter().map(move |range| (owner.clone(), *range))
            })
            .collect();
        taken.extend(self.networks().into_iter().map(|it| (Owner::Tunnel, it)));
        taken.extend(own);
        taken.extend(self.lan().iter().map(|it| (Owner::Lan, *it)));
        behind::check(wanted, &taken)
    }

    /// Refuses a single address behind a client that would count as its own address.
    fn check_single(&self, ranges: &[AllowedIp], behind: &[AllowedIp]) -> Result<(), PeerError> {
        let (own, _) = self.split(ranges);
        match behind.iter().find(|it| own.contains(it)) {
            Some(value) => Err(PeerError::Behind {
                value: value.to_string(),
                why: "a single address would count as the client's own address in the tunnel; give a network"
                    .to_owned(),
            }),
            None => Ok(()),
        }
    }

    fn lan(&self) -> &[AllowedIp] {
        self.tunnel.home.as_ref().map_or(&[], |home| &home.lan)
    }

    /// Name servers for a client. With `lan_only`, it keeps its own name server and the route to it.
    fn dns(&self, lan_only: bool) -> &[IpAddr] {
        let home = self.tunnel.home.as_ref().filter(|_| !lan_only);
        home.map_or(&[], |home| &home.dns)
    }

    /// All networks that clients reach: of the tunnel, of the office, and behind these clients.
    fn reached(&self, clients: &[Client]) -> Vec<AllowedIp> {
        let behind = clients.iter().flat_map(|it| &it.behind);
        let behind = behind.filter(|it| !it.is_default()).copied();
        let office = self
            .networks()
            .into_iter()
            .chain(self.lan().iter().copied());
        office.chain(behind).collect()
    }

    /// How the file that a client got compares with the one that it would get today; `reached` is the sum of the
    /// networks that clients reach.
    fn state(&self, client: &Client, reached: u64) -> &'static str {
        let record = client.section.file.as_deref().and_then(Record::read);
        let common = || Some(self.tunnel.home.as_ref()?.endpoint.as_ref()?.to_string());
        let Some(record) = record else {
            return file::UNKNOWN;
        };
        let Some(endpoint) = record.endpoint.map(str::to_owned).or_else(common) else {
            return file::UNKNOWN;
        };
        record.state(&Public {
            endpoint: &endpoint,
            addresses: &client.own,
            dns: self.dns(record.lan_only),
            ranges: (record.lan_only).then(|| reached.wrapping_sub(sum(&client.behind))),
        })
    }

    /// A free address in each network.
    fn free_addresses(&self) -> Result<Vec<AllowedIp>, PeerError> {
        let interface = &self.tunnel.interface.addresses;
        let own = interface.iter().filter_map(|it| single(it.addr));
        let taken: Vec<AllowedIp> = own.chain(self.tunnel.allowed_ips()).collect();
        let networks = self.networks();
        if networks.is_empty() {
            return Err(self.unfit(
                "`Address` has no room for clients: write it with its network, such as 10.7.0.1/24",
            ));
        }
        let free = networks.iter().map(|network| {
            let host = free::free_host(*network, &taken).and_then(single);
            host.ok_or_else(|| PeerError::Full(self.path.clone()))
        });
        free.collect()
    }

    /// The networks of the server's addresses.
    fn networks(&self) -> Vec<AllowedIp> {
        let addresses = self.tunnel.interface.addresses.iter();
        let wide = addresses.filter(|it| it.prefix < family_bits(it.addr));
        wide.filter_map(|it| AllowedIp::new(it.addr, it.prefix).ok())
            .collect()
    }
}

/// A client of a server.
struct Client {
    section: Section,
    /// The client's addresses in the tunnel.
    own: Vec<AllowedIp>,
    /// The networks behind the client.
    behind: Vec<AllowedIp>,
}

/// Whether a section is that of the client with this name or key.
fn is_of(section: &Section, name: &str) -> bool {
    section.name.as_deref() == Some(name) || section.public_key == name
}

fn is_single(range: &AllowedIp) -> bool {
    range.prefix() == family_bits(range.addr())
}

fn single(addr: IpAddr) -> Option<AllowedIp> {
    AllowedIp::new(addr, family_bits(addr)).ok()
}

fn list_of<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(", ")
}

/// Whether a file has a `[Server]` section.
#[cfg(any(feature = "monitor", feature = "openwrt"))]
pub(super) fn is_home(path: &Path) -> bool {
    // Most files are clients', and need no parsing.
    let text = place::read(path).unwrap_or_default();
    text.contains("[Server]") && File::read(path).is_ok_and(|it| it.tunnel.home.is_some())
}

/// Makes keys for a client, writes its file, and adds it to the server.
pub(super) fn add(path: &Path, wanted: &Wanted<'_>) -> Result<(), PeerError> {
    let file = File::read(path)?;
    file.check()?;
    let clients = file.clients();
    if clients.iter().any(|it| is_of(&it.section, wanted.name)) {
        return Err(PeerError::Taken(wanted.name.to_owned()));
    }
    file.check_networks(&clients, wanted.name, &wanted.behind)?;
    let home = file.tunnel.home.as_ref();
    let endpoint = wanted.endpoint(home, path)?.to_string();
    let addresses = file.free_addresses()?;
    let allowed = [&addresses[..], &wanted.behind].concat();
    file.check_single(&allowed, &wanted.behind)?;
    let Some(server) = &file.tunnel.interface.private_key else {
        return Err(file.unfit("it has no PrivateKey"));
    };
    let (own, shared) = (keys::new(), keys::preshared());
    let [public, server] = [&own, server].map(|it| keys::public_of(it).to_base64());
    let [own, shared] = [own, shared].map(|it| it.to_base64());
    let dns = file.dns(wanted.lan_only);
    let reached = file.reached(&clients);
    let plain = Public {
        endpoint: &endpoint,
        addresses: &addresses,
        dns,
        ranges: wanted.lan_only.then(|| sum(&reached)),
    };
    let own_endpoint = wanted.endpoint.as_ref().map(|_| &*endpoint);
    let record = Record::new(&plain, own_endpoint).to_string();
    let dns = match dns.is_empty() {
        true => String::new(),
        false => format!("DNS = {}\n", list_of(dns)),
    };
    let ranges = match wanted.lan_only {
        true => list_of(&reached),
        false => {
            let six = file.networks().iter().any(|it| it.addr().is_ipv6());
            ["0.0.0.0/0", "0.0.0.0/0, ::/0"][usize::from(six)].to_owned()
        }
    };
    let inside = list_of(&addresses);
    let text = secret(&[
        "[Interface]\nPrivateKey = ",
        &own,
        "\nAddress = ",
        &inside,
        "\n",
        &dns,
        "\n[Peer]\nPublicKey = ",
        &server,
        "\nPresharedKey = ",
        &shared,
        "\nEndpoint = ",
        &endpoint,
        "\nAllowedIPs = ",
        &ranges,
        "\nPersistentKeepalive = 25\n",
    ]);
    let section = secret(&[
        "[Peer]\n#! Name = ",
        wanted.name,
        "\n#! File = ",
        &record,
        "\nPublicKey = ",
        &public,
        "\nPresharedKey = ",
        &shared,
        "\nAllowedIPs = ",
        &list_of(&allowed),
        "\n",
    ]);
    wanted.hand_over(&text)?;
    wanted.look_for_lan(home, path);
    or_take_back(
        wanted,
        place::replace(path, &clients::added(&file.text, &section)),
    )
}

/// Lists the peers.
pub(super) fn list(path: &Path) -> Result<Vec<Row>, PeerError> {
    let file = File::read(path)?;
    let clients = file.clients();
    let reached = sum(&file.reached(&clients));
    let row = |client: &Client| {
        let Client {
            section,
            own,
            behind,
        } = client;
        let key = &section.public_key;
        let texts = |ranges: &[AllowedIp]| ranges.iter().map(ToString::to_string).collect();
        Row {
            name: section.name.clone().unwrap_or_else(|| "-".to_owned()),
            detail: format!("{key}  {}", list_of(own)),
            addresses: texts(own),
            behind: texts(behind),
            file: file.state(client, reached),
            id: key.clone(),
            ..Row::default()
        }
    };
    Ok(clients.iter().map(row).collect())
}

/// Puts these networks behind a client, instead of others.
pub(super) fn set(path: &Path, name: &str, behind: &[AllowedIp]) -> Result<(), PeerError> {
    let file = File::read(path)?;
    let clients = file.clients();
    let client = clients.iter().find(|it| is_of(&it.section, name));
    let client = client.ok_or_else(|| PeerError::Absent(name.to_owned()))?;
    file.check_networks(&clients, name, behind)?;
    let ranges = [&client.own[..], behind].concat();
    file.check_single(&ranges, behind)?;
    let ranges = list_of(&ranges);
    file.write(&clients::with(
        &file.text,
        &client.section,
        "AllowedIPs",
        &ranges,
    ))
}

/// Removes a client.
pub(super) fn revoke(path: &Path, name: &str) -> Result<(), PeerError> {
    let file = File::read(path)?;
    let section = file.section(name)?;
    file.write(&clients::removed(&file.text, &section))
}

/// Renames a client.
pub(super) fn rename(path: &Path, old: &str, new: &str) -> Result<(), PeerError> {
    let file = File::read(path)?;
    if file.section(new).is_ok() {
        return Err(PeerError::Taken(new.to_owned()));
    }
    let section = file.section(old)?;
    file.write(&clients::with(&file.text, &section, "Name", new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::fs;

    /// A server with the branches that `add` made: their names, their networks, and whether they are `lan_only`.
    struct Office {
        directory: tempfile::TempDir,
    }

    impl Office {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let office = Self { directory };
            let text = format!(
                "[Interface]\nPrivateKey = {}\nAddress = 10.7.0.1/24, fd00:7::1/64\nListenPort = 7\n\
                 #! [Server]\n#! Endpoint = office.example:7\n#! LAN = 192.168.1.0/24\n#! DNS = 192.168.1.1\n",
                *keys::new().to_base64()
            );
            fs::write(office.path(), text).unwrap();
            office
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("office.conf")
        }

        fn text(&self) -> String {
            fs::read_to_string(self.path()).unwrap()
        }

        fn add(&self, name: &str, networks: &[&str], lan_only: bool) -> Result<String, PeerError> {
            let shown = RefCell::default();
            let wanted = Wanted {
                name,
                lan_only,
                endpoint: None,
                file: None,
                qr: false,
                behind: networks.iter().map(|it| it.parse().unwrap()).collect(),
                shown: &shown,
            };
            add(&self.path(), &wanted)?;
            let line = |it: &&str| it.starts_with("AllowedIPs = ");
            let shown = shown.borrow();
            Ok(shown.lines().find(line).unwrap()[13..].to_owned())
        }

        /// The name, networks and file of each client.
        fn list(&self) -> Vec<String> {
            let row = |row: Row| format!("{} {} {}", row.name, row.behind.join(","), row.file);
            list(&self.path()).unwrap().into_iter().map(row).collect()
        }

        fn set(&self, name: &str, networks: &[&str]) -> Result<(), PeerError> {
            let networks: Vec<AllowedIp> = networks.iter().map(|it| it.parse().unwrap()).collect();
            set(&self.path(), name, &networks)
        }
    }

    #[test]
    fn files_name_the_networks_of_others_and_the_list_tells_which_do_not() {
        let office = Office::new();
        let tunnel = "10.7.0.0/24, fd00:7::/64, 192.168.1.0/24";
        let seven = ["192.168.7.0/24", "fd00:77::/64"];
        assert_eq!(office.add("store-7", &seven, true).unwrap(), tunnel);
        let text = office.text();
        assert!(
            text.ends_with(
                "\nAllowedIPs = 10.7.0.2/32, fd00:7::2/128, 192.168.7.0/24, fd00:77::/64\n"
            ),
            "{text}"
        );
        let ranges = office.add("store-8", &["192.168.8.0/24"], true).unwrap();
        assert_eq!(ranges, format!("{tunnel}, 192.168.7.0/24, fd00:77::/64"));
        assert_eq!(office.add("phone", &[], false).unwrap(), "0.0.0.0/0, ::/0");
        let rows = [
            "store-7 192.168.7.0/24,fd00:77::/64 outdated",
            "store-8 192.168.8.0/24 current",
            "phone  current",
        ];
        assert_eq!(office.list(), rows);
        // Its own networks are not in its file.
        office.set("store-8", &[]).unwrap();
        assert_eq!(office.list()[0], rows[0].replace("outdated", "current"));
        assert_eq!(office.list()[1], "store-8  current");
        office.set("store-7", &["192.168.9.0/24"]).unwrap();
        assert_eq!(office.list()[1..], ["store-8  outdated", "phone  current"]);
        office.set("store-7", &seven).unwrap();
        assert_eq!(office.list()[1], "store-8  current");

        let refused = office
            .add("store-9", &["192.168.0.0/17"], true)
            .unwrap_err();
        let words = refused.to_string();
        assert!(
            words.contains("overlaps 192.168.7.0/24, behind store-7"),
            "{words}"
        );
        let refused = office.set("phone", &["fd00:77::/80"]).unwrap_err();
        assert!(refused.to_string().contains("behind store-7"), "{refused}");
        office.set("store-7", &["192.168.7.0/25"]).unwrap();
        office.set("phone", &["192.168.7.128/25"]).unwrap();

        // By hand: another endpoint, and a client without a record.
        let text = office.text().replace("office.example", "198.51.100.1");
        let key = keys::public_of(&keys::new()).to_base64();
        let text = format!(
            "{text}\n[Peer]\nPublicKey = {key}\nAllowedIPs = 10.7.0.77/32, 10.9.0.0/16\n",
            key = *key
        );
        fs::write(office.path(), &text).unwrap();
        let states: Vec<&str> = list(&office.path())
            .unwrap()
            .iter()
            .map(|it| it.file)
            .collect();
        assert_eq!(
            states,
            [
                file::OUTDATED,
                file::OUTDATED,
                file::OUTDATED,
                file::UNKNOWN
            ]
        );
        assert_eq!(office.list()[3], "- 10.9.0.0/16 unknown");
        rename(&office.path(), "store-8", "store-88").unwrap();
        revoke(&office.path(), "store-7").unwrap();
        revoke(&office.path(), "phone").unwrap();
        revoke(&office.path(), "store-88").unwrap();
        let left = text.split("\n[Peer]").next().unwrap();
        let last = text.rsplit("\n[Peer]").next().unwrap();
        assert_eq!(office.text(), format!("{left}\n[Peer]{last}"));
    }

    #[test]
    fn a_client_keeps_its_own_address_if_the_server_names_no_network_of_it() {
        let office = Office::new();
        let key = keys::public_of(&keys::new()).to_base64();
        for (server, own) in [
            ("10.7.0.1/32", "10.7.0.2/32"),
            ("10.7.0.1/24", "10.7.0.2/32, fd00::2/128"),
        ] {
            let text = format!(
                "[Interface]\nPrivateKey = {}\nAddress = {server}\n\n[Peer]\n#! Name = phone\nPublicKey = {}\n\
                 AllowedIPs = {own}\n",
                *keys::new().to_base64(),
                *key
            );
            fs::write(office.path(), &text).unwrap();
            office.set("phone", &["192.168.7.0/24"]).unwrap();
            let with = text.replace(own, &format!("{own}, 192.168.7.0/24"));
            assert_eq!(office.text(), with);
            assert_eq!(office.list(), ["phone 192.168.7.0/24 unknown"]);
            let refused = office.set("phone", &["fd00:9::9/128"]).unwrap_err();
            assert!(
                refused.to_string().contains("a single address"),
                "{refused}"
            );
            office.set("phone", &[]).unwrap();
            assert_eq!(office.text(), text);
        }
        // The client has an IPv4 address in the tunnel, so this one is of a host behind it.
        office.set("phone", &["192.168.7.7/32"]).unwrap();
        assert_eq!(office.list(), ["phone 192.168.7.7/32 unknown"]);
    }
}
