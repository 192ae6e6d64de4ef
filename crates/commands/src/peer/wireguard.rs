//! The clients of a WireGuard server.

use super::{PeerError, Row, Wanted, or_take_back, place, secret};
use crate::keys;
use config::clients::{self, Section};
use config::free;
use config::tunnel::Tunnel;
use config::types::{AllowedIp, family_bits};
use config::wgquick;
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
                "`SaveConfig = true` writes the file anew when the tunnel ends, and with it goes what is changed here: \
                 remove that line first",
            )),
            false => Ok(()),
        }
    }

    /// Finds the section of a client, by its name or key.
    fn section(&self, name: &str) -> Result<Section, PeerError> {
        let mut sections = clients::sections(&self.text).into_iter();
        let found = sections.find(|it| it.name.as_deref() == Some(name) || it.public_key == name);
        found.ok_or_else(|| PeerError::Absent(name.to_owned()))
    }

    /// A free address in each network.
    fn free_addresses(&self) -> Result<Vec<AllowedIp>, PeerError> {
        let interface = &self.tunnel.interface.addresses;
        let own = interface.iter().filter_map(|it| single(it.addr));
        let taken: Vec<AllowedIp> = own.chain(self.tunnel.allowed_ips()).collect();
        let networks = self.networks();
        if networks.is_empty() {
            return Err(self.unfit(
                "`Address` has no room for clients: write it with its network, as 10.7.0.1/24",
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

fn single(addr: std::net::IpAddr) -> Option<AllowedIp> {
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
    if file.section(wanted.name).is_ok() {
        return Err(PeerError::Taken(wanted.name.to_owned()));
    }
    let home = file.tunnel.home.as_ref();
    let endpoint = wanted.endpoint(home, path)?;
    let addresses = file.free_addresses()?;
    let Some(server) = &file.tunnel.interface.private_key else {
        return Err(file.unfit("it has no PrivateKey"));
    };
    let (own, shared) = (keys::new(), keys::preshared());
    let [public, server] = [&own, server].map(|it| keys::public_of(it).to_base64());
    let [own, shared] = [own, shared].map(|it| it.to_base64());
    let dns = home.map_or(&[][..], |home| &home.dns);
    // With `lan_only`, the client keeps its own name server and the route to it.
    let dns = match dns.is_empty() || wanted.lan_only {
        true => String::new(),
        false => format!("DNS = {}\n", list_of(dns)),
    };
    let networks = file.networks();
    let ranges = match wanted.lan_only {
        true => {
            let lan = home.map_or(&[][..], |home| &home.lan);
            list_of(&[&networks, lan].concat())
        }
        false => {
            let six = networks.iter().any(|it| it.addr().is_ipv6());
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
        &endpoint.to_string(),
        "\nAllowedIPs = ",
        &ranges,
        "\nPersistentKeepalive = 25\n",
    ]);
    let section = secret(&[
        "[Peer]\n#! Name = ",
        wanted.name,
        "\nPublicKey = ",
        &public,
        "\nPresharedKey = ",
        &shared,
        "\nAllowedIPs = ",
        &inside,
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
    let row = |section: Section| {
        let mut peers = file.tunnel.peers.iter();
        let peer = peers.find(|it| it.public_key.to_base64().as_str() == section.public_key);
        let addresses = peer.map(|it| list_of(&it.allowed_ips)).unwrap_or_default();
        Row {
            name: section.name.unwrap_or_else(|| "-".to_owned()),
            detail: format!("{}  {addresses}", section.public_key),
            id: section.public_key,
            revoked: false,
        }
    };
    Ok(clients::sections(&file.text).into_iter().map(row).collect())
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
    file.write(&clients::renamed(&file.text, &section, new))
}
