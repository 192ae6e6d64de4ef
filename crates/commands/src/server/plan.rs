//! Chooses the settings of a server at home, describes them, and makes the server.

use super::disguise::Disguise;
use super::openvpn;
use super::{InitError, NAME, place, surroundings};
use crate::keys;
use crate::peer::secret;
use crate::profile::DIRECTORY;
use config::free;
use config::home::HomeServer;
use config::types::{AllowedIp, Endpoint};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The settings of a server's file, except its keys.
pub(crate) struct Plan<'a> {
    pub(super) name: &'a str,
    pub(super) directory: &'a Path,
    pub(super) openvpn: bool,
    pub(super) port: u16,
    /// The IPv4 network, and the IPv6 network if there is one.
    pub(super) networks: Vec<AllowedIp>,
    pub(super) home: HomeServer,
    /// The values of AmneziaWG to draw.
    pub(super) disguise: Option<Disguise>,
}

/// Methods for pages, which show the plan first.
#[cfg(any(feature = "monitor", feature = "openwrt"))]
impl Plan<'_> {
    /// The networks of the clients, in the options' format.
    pub(crate) fn subnets(&self) -> [String; 2] {
        let of = |six: bool| {
            let mut networks = self.networks.iter();
            networks.find(|it| it.addr().is_ipv6() == six)
        };
        [of(false), of(true)].map(|it| it.map_or_else(|| "none".to_owned(), ToString::to_string))
    }

    /// The actions of [`Plan::make`], in words.
    pub(crate) fn words(&self) -> String {
        let path = self.path();
        let keys = match self.openvpn {
            true => "with its keys and certificate authority beside it",
            false => "with its own key",
        };
        format!(
            "{} is written, {keys}: {}\nIt listens on UDP port {}. Clients' packets to other networks leave with this \
             host's address.\nNothing is started, and no file is overwritten.{}",
            path.display(),
            self.choices(),
            self.port,
            self.warnings(&path)
        )
    }
}

impl Plan<'_> {
    /// The path of the server's file.
    fn path(&self) -> PathBuf {
        let ending = if self.openvpn { "ovpn" } else { "conf" };
        self.directory.join(format!("{}.{ending}", self.name))
    }

    /// The server's own addresses: the first in each network.
    pub(super) fn addresses(&self) -> Vec<(IpAddr, u8)> {
        let first = |it: &AllowedIp| Some((free::free_host(*it, &[])?, it.prefix()));
        self.networks.iter().filter_map(first).collect()
    }

    /// The choices, in words.
    fn choices(&self) -> String {
        let Self { networks, home, .. } = self;
        let list = |items: Vec<String>| match items.is_empty() {
            true => "none".to_owned(),
            false => items.join(", "),
        };
        let networks = list(networks.iter().map(ToString::to_string).collect());
        let lan = list(home.lan.iter().map(ToString::to_string).collect());
        let dns = list(home.dns.iter().map(ToString::to_string).collect());
        format!(
            "clients connect to {} and get addresses from {networks}.\nNetworks at home: {lan}; name servers for \
             clients: {dns}.",
            self.endpoint()
        )
    }

    fn endpoint(&self) -> String {
        let endpoint = self.home.endpoint.as_ref().map(ToString::to_string);
        endpoint.unwrap_or_default()
    }

    /// Warns if clients could not reach the server from outside, or get no name server.
    fn warnings(&self, path: &Path) -> String {
        let Self { port, home, .. } = self;
        let mut words = String::new();
        let inner = home.endpoint.as_ref().and_then(Endpoint::socket_addr);
        if inner.is_some_and(|it| surroundings::is_private(it.ip())) {
            words += &format!(
                "\nWARNING: {} is a private address: clients outside do not reach it. Before you add clients, forward \
                 UDP port {port} to this host on the router in front, and write the router's public name or address \
                 into the line Endpoint of {}.",
                self.endpoint(),
                path.display()
            );
        }
        if home.dns.is_empty() {
            words += &format!(
                "\nWARNING: no name server was found for clients. Before you add clients, run `millrace server set dns \
                 ADDRESS{}`.",
                place::option(path)
            );
        }
        words
    }

    /// Writes the files. Returns the next steps for the user.
    pub(crate) fn make(&self, waits: place::Waits) -> Result<String, InitError> {
        let made = std::fs::create_dir_all(self.directory);
        made.map_err(place::failed(self.directory))?;
        // The lock keeps two processes from making the same server.
        let _lock = place::Lock::of(self.directory, waits)?;
        let path = match self.openvpn {
            true => openvpn::write(self)?,
            false => self.write_wireguard()?,
        };
        Ok(next_steps(self, &path))
    }

    /// Writes the file of a WireGuard server. Returns its path.
    fn write_wireguard(&self) -> Result<PathBuf, InitError> {
        let key = keys::new().to_base64();
        let addresses = self.addresses();
        let addresses: Vec<String> = addresses
            .iter()
            .map(|(addr, bits)| format!("{addr}/{bits}"))
            .collect();
        let amnezia = self.disguise.map(Disguise::lines).unwrap_or_default();
        let (kind, tool) = match self.disguise {
            None => ("A WireGuard", "wg-quick"),
            Some(_) => ("An AmneziaWG", "awg-quick"),
        };
        let head = format!(
            "# {kind} server. Run it with `millrace up {name}`, or with {tool}, which ignores [Server].\n# Add \
             clients with `millrace peer add`, and revoke them with `millrace peer revoke`, also while it \
             runs.\n[Interface]\n",
            name = self.name,
        );
        let tail = format!(
            "Address = {}\nListenPort = {}\n",
            addresses.join(", "),
            self.port,
        );
        let home = self.home.to_comments();
        let text = [
            &head,
            "PrivateKey = ",
            key.as_str(),
            "\n",
            &tail,
            &amnezia,
            &home,
        ];
        let text = secret(&text);
        let path = self.path();
        place::write_new(&path, &text)?;
        Ok(path)
    }
}

/// The next steps for the user.
fn next_steps(plan: &Plan<'_>, path: &Path) -> String {
    let Plan { name, port, .. } = plan;
    let shown = match plan.directory == Path::new(DIRECTORY) {
        true => (*name).to_owned(),
        false => path.display().to_string(),
    };
    let mut words = format!(
        "{} is written: {}\nNow:\n  1. open UDP port {port} to the Internet;\n  2. millrace up {shown} --daemon\n  3. \
         millrace peer add phone --server {shown} {}",
        path.display(),
        plan.choices(),
        match path.extension().is_some_and(|it| it == "conf") {
            true => "--qr",
            false => "--file phone.ovpn",
        },
    );
    if plan.disguise.is_some() {
        words += "\n     (for the app AmneziaWG; with --link added, for AmneziaVPN)";
    }
    if *name == NAME && plan.directory == Path::new(DIRECTORY) {
        words = words.replace(" --server home", "");
    }
    words + &plan.warnings(path)
}
