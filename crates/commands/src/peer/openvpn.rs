//! The clients of an OpenVPN server with its own certificate authority.
//!
//! The server has no list of clients. It accepts each certificate of its authority, unless the directory of
//! `crl-verify` has a file with the serial number. The list is only for people.

use super::behind::{self, Owner};
use super::issue::{Issued, New, Recipient, Terms};
use super::{PeerError, Row, behind_it, ccd, file, place, secret};
use config::home::HomeServer;
use config::openvpn::{Crl, OpenVpn, Options, Source};
use config::permissions::Permissions;
use config::types::{AllowedIp, Endpoint, Host};
use service::openvpn::authority::{Authority, ClientKey, Metadata, Purpose, ServerKey};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The name of the settings in `client-config-dir` of all clients without their own.
const DEFAULT: &str = "DEFAULT";

/// The directory of files that belong to a server's configuration.
pub(crate) struct Store {
    /// The path of the directory.
    pub(crate) directory: PathBuf,
}

impl Store {
    /// The directory for a server's file, whose name ends with `.ovpn`.
    pub(crate) fn of(path: &Path) -> Self {
        Self {
            directory: path.with_extension("d"),
        }
    }

    /// The path of the authority's key.
    pub(crate) fn key(&self) -> PathBuf {
        self.directory.join("authority.key")
    }

    /// The path of the list of clients, a line each: serial number, name in the certificate, name.
    pub(crate) fn list(&self) -> PathBuf {
        self.directory.join("clients")
    }

    /// The directory of files that are named by the serial numbers of revoked certificates.
    pub(crate) fn revoked(&self) -> PathBuf {
        self.directory.join("revoked")
    }

    /// The directory of single clients' settings, named by the name in the certificate.
    pub(crate) fn ccd(&self) -> PathBuf {
        self.directory.join("ccd")
    }
}

/// A client in the list.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry {
    serial: String,
    /// The name in the client's certificate, which never changes.
    common_name: String,
    name: String,
    revoked: bool,
}

/// A server with its clients.
struct Server {
    path: PathBuf,
    store: Store,
    config: OpenVpn,
    /// The directory of revoked certificates.
    revoked: PathBuf,
    /// The directory of single clients' settings.
    ccd: PathBuf,
    entries: Vec<Entry>,
}

impl Server {
    fn read(path: &Path) -> Result<Self, PeerError> {
        let unfit = |why| PeerError::Unfit {
            path: path.to_owned(),
            why,
        };
        // This only reads the file: no script runs, and no cipher is used.
        let options = Options {
            allow_insecure_ciphers: true,
            permissions: Permissions::ALL,
        };
        let (config, _) = config::openvpn::read(path, options)?.into_model()?;
        let Some(server) = config.server() else {
            return Err(unfit("this is not a server's file"));
        };
        let Some(Crl::Directory(revoked)) = &config.tls.crl else {
            return Err(unfit(
                "it has no `crl-verify DIRECTORY dir`, so clients cannot be revoked; make a server with `millrace \
                 server init`",
            ));
        };
        let revoked = config.path(revoked);
        let store = Store::of(path);
        let ccd = server.client_config_dir.as_ref();
        let ccd = ccd.map_or_else(|| store.ccd(), |it| config.path(it));
        let list = match place::read(&store.list()) {
            Ok(list) => list,
            Err(place::PlaceError::File { error, .. }) if error.kind() == ErrorKind::NotFound => {
                return Err(unfit(
                    "its certificate authority is missing; make a server with `millrace server init`",
                ));
            }
            Err(error) => return Err(error.into()),
        };
        let entries = list.lines().filter_map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            let (serial, common_name, name) = (words.next()?, words.next()?, words.next()?);
            Some(Entry {
                revoked: revoked.join(&serial).symlink_metadata().is_ok(),
                serial,
                common_name,
                name,
            })
        });
        Ok(Self {
            path: path.to_owned(),
            entries: entries.collect(),
            store,
            revoked,
            ccd,
            config,
        })
    }

    /// Finds an active client by its name.
    fn client(&self, name: &str) -> Option<&Entry> {
        let mut entries = self.entries.iter();
        entries.find(|it| it.name == name && !it.revoked)
    }

    fn write(&self, entries: &[Entry]) -> Result<(), place::PlaceError> {
        let mut text = String::new();
        for entry in entries {
            let _ = writeln!(
                text,
                "{} {} {}",
                entry.serial, entry.common_name, entry.name
            );
        }
        place::replace(&self.store.list(), &text)
    }

    /// A certificate name that no active client of this list has: if two clients shared one, the server would disconnect
    /// the first when the second connects.
    fn common_name(entries: &[Entry], name: &str) -> String {
        let taken = |wanted: &str| {
            let mut entries = entries.iter();
            entries.any(|it| !it.revoked && it.common_name == wanted)
        };
        let mut common_name = name.to_owned();
        let mut number = 2;
        while taken(&common_name) {
            let end = format!("-{number}");
            common_name = format!("{}{end}", &name[..name.len().min(63 - end.len())]);
            number += 1;
        }
        common_name
    }

    fn text_of(
        &self,
        source: Option<&Source>,
        why: &'static str,
    ) -> Result<Zeroizing<String>, PeerError> {
        let unfit = || PeerError::Unfit {
            path: self.path.clone(),
            why,
        };
        let bytes = source
            .ok_or_else(unfit)?
            .load(self.config.directory.as_deref());
        let bytes = bytes.map_err(place::failed(&self.path))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| unfit())?;
        Ok(Zeroizing::new(text.trim_start().to_owned()))
    }

    fn home(&self) -> Option<&HomeServer> {
        self.config.network.home.as_ref()
    }

    /// The routes for the client's file: everything, or only the networks at home.
    fn routes(&self, lan_only: bool) -> String {
        let mut text = String::new();
        let six = self.config.network.ifconfig_v6.is_some();
        if !lan_only {
            return match six {
                true => "redirect-gateway def1 ipv6\n".to_owned(),
                false => "redirect-gateway def1\n".to_owned(),
            };
        }
        for network in self.home().map_or(&[][..], |home| &home.lan) {
            let _ = writeln!(text, "{}", ccd::route(*network));
        }
        text
    }

    /// The text of the settings of the client with this name in its certificate, empty if it has none.
    fn settings(&self, common_name: &str) -> Result<Zeroizing<String>, PeerError> {
        match place::read(&self.ccd.join(common_name)) {
            Err(place::PlaceError::File { error, .. }) if error.kind() == ErrorKind::NotFound => {
                Ok(Zeroizing::default())
            }
            read => Ok(read?),
        }
    }

    /// The networks behind all active clients, and the clients with unreadable files.
    fn behind(&self) -> (Vec<(&Entry, AllowedIp)>, Vec<Unreadable<'_>>) {
        let (mut all, mut unreadable) = (Vec::new(), Vec::new());
        for entry in self.entries.iter().filter(|it| !it.revoked) {
            match self.settings(&entry.common_name) {
                Ok(text) => all.extend(ccd::networks(&text).into_iter().map(|it| (entry, it))),
                Err(error) => unreadable.push(Unreadable { entry, error }),
            }
        }
        (all, unreadable)
    }

    /// Whether a revoked client with the same name in its certificate left its settings.
    fn has_leftovers(&self, entry: &Entry) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|it| it.revoked && it.common_name == entry.common_name)
            && self.ccd.join(&entry.common_name).exists()
    }

    /// All networks that may not lie behind a new client, or behind the client `name`: the office or another client has
    /// them.
    fn taken(&self, name: Option<&str>) -> Vec<(Owner, AllowedIp)> {
        let others = self.behind().0.into_iter();
        let others = others.filter(|(entry, _)| Some(&*entry.name) != name);
        let mut taken: Vec<(Owner, AllowedIp)> = others
            .map(|(entry, network)| (Owner::Branch(entry.name.clone()), network))
            .collect();
        let network = &self.config.network;
        let pool = self.config.server().and_then(|it| {
            let (network, mask) = it.ifconfig_push_constraint?;
            AllowedIp::new(network.into(), mask.to_bits().count_ones() as u8).ok()
        });
        let own = network.ifconfig.map(|it| it.local.into());
        let own = own.and_then(|it| AllowedIp::new(it, 32).ok());
        let own_v6 = network.ifconfig_v6;
        let own_v6 = own_v6.and_then(|it| AllowedIp::new(it.local.into(), it.bits).ok());
        let tunnel = [pool, own, own_v6].into_iter().flatten();
        taken.extend(tunnel.map(|it| (Owner::Tunnel, it)));
        let lan = self.home().map_or(&[][..], |home| &home.lan);
        taken.extend(lan.iter().map(|it| (Owner::Lan, *it)));
        taken
    }

    /// Puts networks behind clients, and the routes to all clients' networks into the server's file.
    fn set(&self, changes: &[(&Entry, &[AllowedIp])]) -> Result<(), PeerError> {
        for (entry, wanted) in changes {
            self.set_client(entry, wanted)?;
        }
        let server = self.config.server();
        let (others, unreadable) = self.behind();
        unreadable.iter().for_each(Unreadable::note);
        let is_changed = |it: &Entry| changes.iter().any(|(entry, _)| entry.serial == it.serial);
        let others = others.into_iter().filter(|(it, _)| !is_changed(it));
        let own = changes.iter();
        let own = own.flat_map(|(entry, wanted)| wanted.iter().map(|it| (*entry, *it)));
        let all: Vec<(&str, AllowedIp)> = others
            .chain(own)
            .map(|(entry, network)| (&*entry.common_name, network))
            .collect();
        let has_ccd = server.is_some_and(|it| it.client_config_dir.is_some());
        let missing = (!has_ccd && !all.is_empty()).then_some(&*self.ccd);
        let text = place::read(&self.path)?;
        // The lines of clients with unreadable files stay.
        let is_kept = |name: &str| unreadable.iter().any(|it| it.entry.common_name == name);
        let names = self.entries.iter().map(|it| &*it.common_name);
        let mut names: Vec<&str> = names.filter(|it| !is_kept(it)).collect();
        names.extend(changes.iter().map(|(entry, _)| &*entry.common_name));
        let changed = ccd::of_server(&text, missing, &names, &all);
        if *changed != *text {
            place::replace(&self.path, &changed)?;
        }
        Ok(())
    }

    /// Puts these networks into a client's own settings.
    fn set_client(&self, entry: &Entry, wanted: &[AllowedIp]) -> Result<(), PeerError> {
        let file = self.ccd.join(&entry.common_name);
        let is_needed = self.config.server().is_some_and(|it| it.ccd_exclusive);
        // A client with its own file does not get the settings of `DEFAULT`. With `ccd-exclusive` no client does.
        let default = match is_needed {
            true => Zeroizing::default(),
            false => self.settings(DEFAULT)?,
        };
        let before = match file.exists() {
            true => self.settings(&entry.common_name)?,
            false => default.clone(),
        };
        let after = ccd::of_client(&before, wanted);
        if !self.ccd.is_dir() {
            let made = DirBuilder::new().mode(0o700).create(&self.ccd);
            made.map_err(place::failed(&self.ccd))?;
        }
        match file.exists() {
            true if after == *default && !is_needed => {
                fs::remove_file(&file).map_err(place::failed(&file))?;
            }
            true if after != *before => place::replace(&file, &after)?,
            false if !wanted.is_empty() => place::write_new(&file, &after)?,
            _ => {}
        }
        Ok(())
    }

    /// Keeps clients out, and takes away the networks behind them. The clients are out even if their networks stay.
    fn revoke(&self, entries: &[&Entry]) -> Result<(), PeerError> {
        for entry in entries {
            let file = self.revoked.join(&entry.serial);
            place::write_new(&file, &format!("{}\n", entry.name))?;
        }
        let changes: Vec<_> = entries.iter().map(|it| (*it, &[][..])).collect();
        if let Err(error) = self.set(&changes) {
            let names: Vec<&str> = entries.iter().map(|it| &*it.name).collect();
            host::terminal::note(format_args!(
                "revoked: {}; but the networks behind could not be removed: {error}",
                names.join(", ")
            ));
        }
        Ok(())
    }
}

/// A client whose own settings cannot be read.
struct Unreadable<'a> {
    entry: &'a Entry,
    error: PeerError,
}

impl Unreadable<'_> {
    fn note(&self) {
        host::terminal::note(format_args!(
            "the networks behind {} are unknown: {}",
            self.entry.name, self.error
        ));
    }
}

/// Refuses the name of the file in `client-config-dir` for all clients without their own.
fn check_name(name: &str) -> Result<(), PeerError> {
    match name == DEFAULT {
        true => Err(PeerError::Reserved(name.to_owned())),
        false => Ok(()),
    }
}

/// The parts of clients' files, and the keys that sign them.
struct Maker {
    authority: Authority,
    /// The authority's certificate.
    certificate: Zeroizing<String>,
    wrap: ServerKey,
    /// The settings of all files.
    settings: String,
}

impl Maker {
    fn new(server: &Server, terms: &Terms) -> Result<Self, PeerError> {
        let Endpoint { host, port } = terms.endpoint(server.home(), &server.path)?;
        let host = match host {
            Host::Ip(addr) => addr.to_string(),
            Host::Scoped(addr, zone) => format!("{addr}%{zone}"),
            Host::Name(name) => name,
        };
        let certificate = server.text_of(server.config.tls.ca.as_ref(), "it has no `ca`")?;
        let connection = server.config.connections.first();
        let wrap = connection.and_then(|it| it.wrap.tls_crypt_v2.as_ref());
        let wrap = ServerKey::parse(&server.text_of(wrap, "it has no `tls-crypt-v2`")?)?;
        let key = place::read(&server.store.key())?;
        let tcp = connection.is_some_and(|it| it.protocol.transport.is_tcp());
        let dns = server.home().map_or(&[][..], |home| &home.dns);
        let dns = dns.iter().filter(|_| !terms.lan_only);
        let dns: String = dns.map(|it| format!("dhcp-option DNS {it}\n")).collect();
        let settings = format!(
            "client\n\
             dev tun\n\
             proto {}\n\
             remote {host} {port}\n\
             nobind\n\
             resolv-retry infinite\n\
             remote-cert-tls server\n\
             tls-version-min 1.2\n\
             data-ciphers AES-256-GCM:CHACHA20-POLY1305:AES-128-GCM\n\
             {}{}{dns}",
            if tcp { "tcp-client" } else { "udp" },
            if tcp { "" } else { "explicit-exit-notify 1\n" },
            server.routes(terms.lan_only),
        );
        Ok(Self {
            authority: Authority::read(&key, &certificate)?,
            certificate,
            wrap,
            settings,
        })
    }

    /// Makes a key and a certificate for a client, and its file. Returns the file and the certificate's serial number.
    fn make(
        &self,
        server: &Server,
        name: &str,
        common_name: &str,
    ) -> Result<(Issued, String), PeerError> {
        let wrap = ClientKey::generate(&self.wrap, &Metadata::user(name.as_bytes()))?;
        let issued = self.authority.issue(common_name, Purpose::Client)?;
        let server = service::running::name_of(&server.path);
        let text = secret(&[
            &format!("# {name}, a client of {server}\n"),
            &self.settings,
            "<ca>\n",
            &self.certificate,
            "</ca>\n<cert>\n",
            &issued.certificate,
            "</cert>\n<key>\n",
            &issued.key,
            "</key>\n<tls-crypt-v2>\n",
            &wrap.to_text(),
            "</tls-crypt-v2>\n",
        ]);
        let name = name.to_owned();
        Ok((Issued { name, text }, issued.serial))
    }
}

/// Makes keys and certificates for new clients, and has their files taken.
pub(super) fn add(
    path: &Path,
    terms: &Terms,
    new: &[New<'_>],
    files: &dyn Recipient,
) -> Result<(), PeerError> {
    let server = Server::read(path)?;
    let active = server.entries.iter().filter(|it| !it.revoked);
    let mut names: HashSet<&str> = active.map(|it| &*it.name).collect();
    let (mut taken, mut faults) = (server.taken(None), Vec::new());
    for (number, new) in new.iter().enumerate() {
        let checked = check_name(new.name).and_then(|()| match names.insert(new.name) {
            true => behind::check(new.behind, &taken),
            false => Err(PeerError::Taken(new.name.to_owned())),
        });
        let owner = Owner::Branch(new.name.to_owned());
        taken.extend(new.behind.iter().map(|it| (owner.clone(), *it)));
        faults.extend(checked.err().map(|error| (number, error)));
    }
    if !faults.is_empty() {
        return Err(PeerError::Several(faults));
    }
    let maker = Maker::new(&server, terms)?;
    let mut entries = server.entries.clone();
    let mut issued = Vec::new();
    for new in new {
        let common_name = Server::common_name(&entries, new.name);
        let (file, serial) = maker.make(&server, new.name, &common_name)?;
        issued.push(file);
        entries.push(Entry {
            serial,
            common_name,
            name: new.name.to_owned(),
            revoked: false,
        });
    }
    // First: a certificate alone admits a client, and only listed ones can be revoked.
    server.write(&entries)?;
    let added = entries.split_off(server.entries.len());
    let networks: Vec<_> = added.iter().zip(new.iter().map(|it| it.behind)).collect();
    let is_needed = |(entry, behind): &(&Entry, &[AllowedIp])| {
        !behind.is_empty() || server.has_leftovers(entry)
    };
    let networks: Vec<_> = networks.into_iter().filter(is_needed).collect();
    let set = match networks.is_empty() {
        true => Ok(()),
        false => server.set(&networks),
    };
    if let Err(error) = set.and_then(|()| files.take(&issued)) {
        server.revoke(&added.iter().collect::<Vec<_>>())?;
        return Err(error);
    }
    terms.look_for_lan(server.home(), path);
    Ok(())
}

/// Lists clients, active and revoked.
pub(super) fn list(path: &Path) -> Result<Vec<Row>, PeerError> {
    let server = Server::read(path)?;
    let mut behind: HashMap<&str, Vec<String>> = HashMap::new();
    let (networks, unreadable) = server.behind();
    unreadable.iter().for_each(Unreadable::note);
    for (entry, network) in networks {
        let networks = behind.entry(&entry.serial).or_default();
        networks.push(network.to_string());
    }
    let row = |entry: &Entry| {
        let behind = behind.get(&*entry.serial).cloned().unwrap_or_default();
        Row {
            name: entry.name.clone(),
            note: None,
            id: entry.serial.clone(),
            revoked: entry.revoked,
            file: file::UNKNOWN,
            detail: format!(
                "{}{}{}{}",
                entry.serial,
                if entry.revoked { "  revoked" } else { "" },
                match entry.common_name == entry.name {
                    true => String::new(),
                    false => format!("  {} in its certificate", entry.common_name),
                },
                behind_it(&behind)
            ),
            behind,
        }
    };
    Ok(server.entries.iter().map(row).collect())
}

/// Revokes a client.
pub(super) fn revoke(path: &Path, name: &str) -> Result<(), PeerError> {
    let server = Server::read(path)?;
    let entry = server.client(name);
    server.revoke(&[entry.ok_or_else(|| PeerError::Absent(name.to_owned()))?])
}

/// Puts these networks behind a client, instead of others.
pub(super) fn set(path: &Path, name: &str, behind: &[AllowedIp]) -> Result<(), PeerError> {
    let server = Server::read(path)?;
    let entry = server.client(name);
    let entry = entry.ok_or_else(|| PeerError::Absent(name.to_owned()))?;
    behind::check(behind, &server.taken(Some(name)))?;
    server.set(&[(entry, behind)])
}

/// Renames a client in the list.
pub(super) fn rename(path: &Path, old: &str, new: &str) -> Result<(), PeerError> {
    check_name(new)?;
    let server = Server::read(path)?;
    if server.client(new).is_some() {
        return Err(PeerError::Taken(new.to_owned()));
    }
    let mut entries = server.entries.clone();
    let mut callers = entries.iter_mut().filter(|it| !it.revoked);
    let entry = callers.find(|it| it.name == old);
    let entry = entry.ok_or_else(|| PeerError::Absent(old.to_owned()))?;
    new.clone_into(&mut entry.name);
    Ok(server.write(&entries)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Wanted;
    use std::cell::RefCell;

    /// A server without clients.
    struct Office {
        directory: tempfile::TempDir,
    }

    impl Office {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let (authority, own) = Authority::create("office authority").unwrap();
            let server = authority.issue("office server", Purpose::Server).unwrap();
            let office = Self { directory };
            let store = Store::of(&office.path());
            for made in [&store.directory, &store.revoked(), &store.ccd()] {
                fs::create_dir(made).unwrap();
            }
            fs::write(store.key(), &*own.key).unwrap();
            fs::write(store.list(), "").unwrap();
            let text = format!(
                "dev office\ndev-type tun\nproto udp\nserver 10.8.0.0 255.255.255.0\ndh none\n\
                 remote-cert-tls client\ncrl-verify \"{}\" dir\nclient-config-dir \"{}\"\n\
                 <ca>\n{}</ca>\n<cert>\n{}</cert>\n<key>\n{}</key>\n<tls-crypt-v2>\n{}</tls-crypt-v2>\n",
                store.revoked().display(),
                store.ccd().display(),
                own.certificate,
                server.certificate,
                *server.key,
                *ServerKey::generate().unwrap().to_text()
            );
            fs::write(office.path(), text).unwrap();
            office
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("office.ovpn")
        }

        fn text(&self) -> String {
            fs::read_to_string(self.path()).unwrap()
        }

        /// The path of the settings of a client.
        fn ccd(&self, name: &str) -> PathBuf {
            Store::of(&self.path()).ccd().join(name)
        }

        fn add(&self, name: &str, networks: &[&str]) -> Result<(), PeerError> {
            let shown = RefCell::default();
            let wanted = Wanted {
                name,
                terms: Terms {
                    lan_only: false,
                    endpoint: Some("office.example:1194".parse().unwrap()),
                },
                file: None,
                qr: false,
                behind: networks.iter().map(|it| it.parse().unwrap()).collect(),
                shown: &shown,
            };
            crate::peer::add(&self.path(), &wanted)
        }

        fn set(&self, name: &str, networks: &[&str]) -> Result<(), PeerError> {
            let networks: Vec<AllowedIp> = networks.iter().map(|it| it.parse().unwrap()).collect();
            set(&self.path(), name, &networks)
        }
    }

    #[test]
    fn an_unreadable_file_of_another_client_stops_no_change() {
        let office = Office::new();
        office.add("other", &["192.168.7.0/24"]).unwrap();
        office.add("victim", &["192.168.8.0/24"]).unwrap();
        fs::write(office.ccd("other"), b"# \xfc\n").unwrap();
        revoke(&office.path(), "victim").unwrap();
        assert!(list(&office.path()).unwrap()[1].revoked);
        assert!(!office.text().contains("192.168.8.0"));
        // The routes to the networks in the unreadable file stay.
        assert!(office.text().contains("# behind other"));
        office.add("third", &["192.168.9.0/24"]).unwrap();

        // Nor does a client's own file stop its revocation.
        fs::remove_file(office.ccd("third")).unwrap();
        fs::create_dir(office.ccd("third")).unwrap();
        revoke(&office.path(), "third").unwrap();
        assert!(list(&office.path()).unwrap()[2].revoked);
        assert!(office.set("other", &[]).is_err());
    }

    #[test]
    fn a_client_with_networks_keeps_the_settings_of_all() {
        let office = Office::new();
        let default = "push \"route 10.0.0.0 255.0.0.0\"\n";
        fs::write(office.ccd(DEFAULT), default).unwrap();
        office.add("store-7", &["192.168.7.0/24"]).unwrap();
        let text = fs::read_to_string(office.ccd("store-7")).unwrap();
        assert!(
            text.starts_with(&format!("{default}iroute 192.168.7.0 ")),
            "{text}"
        );
        office.set("store-7", &[]).unwrap();
        assert!(!office.ccd("store-7").exists());
        for refused in [
            office.add(DEFAULT, &[]),
            rename(&office.path(), "store-7", DEFAULT),
        ] {
            let words = refused.unwrap_err().to_string();
            assert!(words.starts_with("DEFAULT: "), "{words}");
        }
    }

    #[test]
    fn a_new_client_has_no_networks_of_a_revoked_one() {
        let office = Office::new();
        office.add("store-7", &["192.168.7.0/24"]).unwrap();
        let left = fs::read(office.ccd("store-7")).unwrap();
        revoke(&office.path(), "store-7").unwrap();
        fs::write(office.ccd("store-7"), left).unwrap();
        office.add("store-7", &[]).unwrap();
        assert!(!office.ccd("store-7").exists());
        // A file that was there before any client of its name stays.
        let text = "iroute 192.168.8.0 255.255.255.0\n";
        fs::write(office.ccd("store-8"), text).unwrap();
        office.add("store-8", &[]).unwrap();
        assert_eq!(fs::read_to_string(office.ccd("store-8")).unwrap(), text);
    }
}
