//! The clients of an OpenVPN server with its own certificate authority.
//!
//! The server has no list of clients. It accepts each certificate of its authority, unless the directory of
//! `crl-verify` has a file with the serial number. The list is only for people.

mod entry;
mod maker;
#[cfg(test)]
mod tests;

use super::behind::{self, Owner};
use super::chain::{Chains, surplus};
use super::file::{self, Public, Ranges};
use super::issue::{Chosen, New, Picked, Recipient, Terms, tell_ended};
use super::list::certificate_name;
use super::{Change, PeerError, Row, ccd, elsewhere, place};
use config::home::HomeServer;
use config::kind::Kind;
use config::openvpn::{Crl, OpenVpn, Options, Source};
use config::permissions::Permissions;
use config::types::AllowedIp;
use entry::Entry;
use maker::Maker;
use service::status::Status;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The name of the settings in `client-config-dir` of all clients without their own.
const DEFAULT: &str = "DEFAULT";

/// Maximum number of networks behind all clients: a server's file has at most 10,000 routes.
const BEHIND_MAX: usize = 8000;

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

    /// The path of the list of clients, a line each: serial number, name in the certificate, name. These may follow:
    /// `replaces=SERIAL`, `file=RECORD`, `note=TEXT`. Older versions read only the first three words.
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
    /// The protocol and the authority's certificate, by which clients know the server.
    identity: String,
    /// Serial numbers of certificates whose clients are connected with new ones. The entries count as revoked, but the
    /// server still admits them.
    replaced: HashSet<String>,
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
        let entries = list.lines().filter_map(Entry::read).map(|entry| Entry {
            revoked: revoked.join(&entry.serial).symlink_metadata().is_ok(),
            ..entry
        });
        let mut server = Self {
            path: path.to_owned(),
            entries: entries.collect(),
            replaced: HashSet::new(),
            identity: String::new(),
            store,
            revoked,
            ccd,
            config,
        };
        let certificate = server.text_of(server.config.tls.ca.as_ref(), "it has no `ca`");
        server.identity = format!("{} {}", server.is_tcp(), *certificate.unwrap_or_default());
        server.find_replaced();
        Ok(server)
    }

    /// Reads a server that a command changes: certificates whose clients use new ones are revoked first.
    fn open(path: &Path) -> Result<Self, PeerError> {
        let mut server = Self::read(path)?;
        server.settle()?;
        Ok(server)
    }

    /// Revokes the certificates whose clients use new ones.
    fn settle(&mut self) -> Result<(), PeerError> {
        if self.replaced.is_empty() {
            return Ok(());
        }
        let replaced = self.entries.iter();
        let replaced = replaced.filter(|it| self.replaced.contains(&it.serial));
        self.revoke(&replaced.collect::<Vec<_>>())?;
        self.replaced.clear();
        // The command has not made its own change yet, so this does not stop it.
        if let Err(error) = super::tell(&self.path, false) {
            host::terminal::note(format_args!("old certificates are revoked: {error}"));
        }
        Ok(())
    }

    /// Counts certificates as revoked whose clients are connected with new ones.
    fn find_replaced(&mut self) {
        let is_new = |client: &Vec<&Entry>| client.len() > 1;
        if !self.clients().iter().any(is_new) {
            return;
        }
        if let Ok(status) = super::live(&self.path, false) {
            self.replace(&status);
        }
    }

    /// Counts certificates as revoked whose clients are connected with new ones, by this status.
    fn replace(&mut self, status: &Status) {
        let names = status.peers.iter().filter_map(certificate_name);
        let names: HashSet<&str> = names.collect();
        let chains = self.chains();
        let in_use = (0..self.entries.len()).filter(|at| {
            let entry = &self.entries[*at];
            !entry.revoked && names.contains(&*entry.common_name)
        });
        let replaced: HashSet<usize> = in_use.flat_map(|at| chains.before(at)).collect();
        for (at, entry) in self.entries.iter_mut().enumerate() {
            if replaced.contains(&at) && !entry.revoked {
                entry.revoked = true;
                self.replaced.insert(entry.serial.clone());
            }
        }
    }

    /// The chains of all certificates.
    fn chains(&self) -> Chains {
        let entries = self.entries.iter();
        Chains::of(entries.map(|it| (&*it.serial, it.replaces.as_deref())))
    }

    /// The active certificates of each client: the one that it uses, and new ones that it has not used, the newest last.
    fn clients(&self) -> Vec<Vec<&Entry>> {
        let active = |places: Vec<usize>| {
            let entries = places.into_iter().map(|it| &self.entries[it]);
            entries.filter(|it| !it.revoked).collect()
        };
        let clients = self.chains().clients().into_iter().map(active);
        clients.filter(|it: &Vec<_>| !it.is_empty()).collect()
    }

    /// All active certificates of a client.
    fn client(&self, name: &str) -> Result<Vec<&Entry>, PeerError> {
        let entries = self.entries.iter();
        let found: Vec<&Entry> = entries
            .filter(|it| it.name == name && !it.revoked)
            .collect();
        match found.is_empty() {
            true => Err(PeerError::Absent(name.to_owned())),
            false => Ok(found),
        }
    }

    fn write(&self, entries: &[Entry]) -> Result<(), place::PlaceError> {
        let mut text = String::new();
        for entry in entries {
            let _ = writeln!(text, "{entry}");
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

    /// Whether clients connect over TCP.
    fn is_tcp(&self) -> bool {
        let connection = self.config.connections.first();
        connection.is_some_and(|it| it.protocol.transport.is_tcp())
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
        taken.extend(elsewhere::name_servers(self.home()));
        taken
    }

    /// Puts networks behind clients, and the routes to all clients' networks into the server's file.
    fn set(&self, changes: &[(&Entry, &[AllowedIp])]) -> Result<(), PeerError> {
        let server = self.config.server();
        let (others, unreadable) = self.behind();
        unreadable.iter().for_each(Unreadable::note);
        let is_changed = |it: &Entry| changes.iter().any(|(entry, _)| entry.serial == it.serial);
        let others = others.into_iter().filter(|(it, _)| !is_changed(it));
        let own = changes.iter();
        let own = own.flat_map(|(entry, wanted)| wanted.iter().map(|it| (*entry, *it)));
        let mut all: Vec<(&str, AllowedIp)> = others
            .chain(own)
            .map(|(entry, network)| (&*entry.common_name, network))
            .collect();
        // The order does not depend on the clients' certificates: another order would send clients away. A client with
        // a new certificate has its networks twice.
        all.sort_by_key(|(_, network)| *network);
        all.dedup_by_key(|(_, network)| *network);
        if all.len() > BEHIND_MAX && changes.iter().any(|(_, wanted)| !wanted.is_empty()) {
            return Err(PeerError::Unfit {
                path: self.path.clone(),
                why: "it would have more than 8,000 networks behind clients; put larger networks behind them",
            });
        }
        let has_ccd = server.is_some_and(|it| it.client_config_dir.is_some());
        let missing = (!has_ccd && !all.is_empty()).then_some(&*self.ccd);
        let text = place::read(&self.path)?;
        // The lines of clients with unreadable files stay.
        let is_kept = |name: &str| unreadable.iter().any(|it| it.entry.common_name == name);
        let names = self.entries.iter().map(|it| &*it.common_name);
        let mut names: Vec<&str> = names.filter(|it| !is_kept(it)).collect();
        names.extend(changes.iter().map(|(entry, _)| &*entry.common_name));
        let changed = ccd::of_server(&text, missing, &names, &all);
        place::check_size(&self.path, changed.len())?;
        for (entry, wanted) in changes {
            self.set_client(entry, wanted)?;
        }
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

impl Server {
    /// Name servers for a client. With `lan_only`, it keeps its own.
    fn dns(&self, lan_only: bool) -> &[IpAddr] {
        let home = self.home().filter(|_| !lan_only);
        home.map_or(&[], |home| &home.dns)
    }

    /// The part of a client's file that may change. The server pushes all else.
    fn public<'a>(&'a self, endpoint: &'a str, lan_only: bool) -> Public<'a> {
        let lan = self.home().map_or(&[][..], |home| &home.lan);
        Public {
            server: &self.identity,
            endpoint,
            addresses: &[],
            dns: self.dns(lan_only),
            ranges: match lan_only {
                true => Ranges::Networks(file::sum(lan)),
                false => Ranges::All {
                    v6: self.config.network.ifconfig_v6.is_some(),
                },
            },
            keepalive: None,
            amnezia: "",
        }
    }

    /// How the file that a client got last compares with the one that it would get today. `client` has the client's
    /// active certificates.
    fn state(&self, client: &[&Entry]) -> &'static str {
        let common = || Some(self.home()?.endpoint.as_ref()?.to_string());
        let Some(record) = client.last().and_then(|it| it.record()) else {
            return file::UNKNOWN;
        };
        let Some(endpoint) = record.endpoint.map(str::to_owned).or_else(common) else {
            return file::UNKNOWN;
        };
        match record.state(&self.public(&endpoint, record.lan_only)) {
            file::CURRENT if client.len() > 1 => file::PENDING,
            state => state,
        }
    }

    /// Gives a client's new certificate the settings of its old one.
    fn copy_settings(&self, old: &Entry, new: &Entry) -> Result<(), PeerError> {
        let [from, to] = [old, new].map(|it| self.ccd.join(&it.common_name));
        let there = to.symlink_metadata().is_ok();
        match from.exists() {
            true if there => place::replace(&to, &*self.settings(&old.common_name)?)?,
            true => place::write_new(&to, &self.settings(&old.common_name)?)?,
            // A revoked client left it.
            false if there => fs::remove_file(&to).map_err(place::failed(&to))?,
            false => {}
        }
        Ok(())
    }
}

/// Makes new keys and certificates for clients, and has the files taken. A client keeps its old certificate until it
/// uses the new one; the last ones that it has not used stay good, too. Returns clients that were left out.
pub(super) fn reissue(
    path: &Path,
    chosen: &Chosen,
    files: &dyn Recipient,
) -> Result<Vec<String>, PeerError> {
    let server = Server::open(path)?;
    let clients = server.clients();
    let all = clients.iter();
    let all = all.map(|it| (it, it.first().map(|own| &*own.name), server.state(it)));
    let Picked {
        clients: picked,
        left,
    } = chosen.pick(all.collect())?;
    if picked.is_empty() {
        return Ok(left);
    }
    files.check(Kind::OpenVpn, &mut picked.iter().map(|(_, name)| *name))?;
    let maker = Maker::new(&server)?;
    let mut entries = server.entries.clone();
    let mut issued = Vec::new();
    for (client, name) in &picked {
        let newest = client[client.len() - 1];
        let terms = chosen.terms(name, newest.record())?;
        let common_name = Server::common_name(&entries, name);
        let (file, entry) = maker.make(name, common_name, &terms)?;
        issued.push(file);
        entries.push(Entry {
            replaces: Some(newest.serial.clone()),
            note: newest.note.clone(),
            ..entry
        });
    }
    server.write(&entries)?;
    let added = &entries[server.entries.len()..];
    let mut pairs = picked.iter().zip(added);
    let handed = pairs
        .try_for_each(|((client, _), new)| server.copy_settings(client[0], new))
        .and_then(|()| files.take(&issued));
    if let Err(error) = handed {
        server.revoke(&added.iter().collect::<Vec<_>>())?;
        return Err(error);
    }
    let unused = picked.iter().map(|(client, _)| &client[1..]);
    let ended = unused.flat_map(|it| it[..surplus(it.len())].iter().copied());
    let ended: Vec<&Entry> = ended.collect();
    server.revoke(&ended)?;
    let words = ended
        .iter()
        .map(|it| format!("{} ({} in its certificate)", it.name, it.common_name));
    tell_ended(&words.collect::<Vec<_>>());
    Ok(left)
}

/// Makes keys and certificates for new clients, and has their files taken.
pub(super) fn add(
    path: &Path,
    terms: &Terms,
    new: &[New<'_>],
    files: &dyn Recipient,
) -> Result<(), PeerError> {
    for new in new {
        refuse_keepalive(path, new.keepalive)?;
    }
    let server = Server::open(path)?;
    let active = server.entries.iter().filter(|it| !it.revoked);
    let mut names: HashSet<&str> = active.map(|it| &*it.name).collect();
    let (mut taken, mut faults) = (server.taken(None), Vec::new());
    for (number, new) in new.iter().enumerate() {
        let checked = check_name(new.name).and_then(|()| match names.insert(new.name) {
            true => behind::check(path, new.behind, &taken),
            false => Err(PeerError::Taken(new.name.to_owned())),
        });
        let owner = Owner::New(new.name.to_owned());
        taken.extend(new.behind.iter().map(|it| (owner.clone(), *it)));
        faults.extend(checked.err().map(|error| (number, error)));
    }
    if !faults.is_empty() {
        return Err(PeerError::Several(faults));
    }
    let maker = Maker::new(&server)?;
    let mut entries = server.entries.clone();
    let mut issued = Vec::new();
    for new in new {
        let common_name = Server::common_name(&entries, new.name);
        let (file, entry) = maker.make(new.name, common_name, terms)?;
        issued.push(file);
        entries.push(Entry {
            note: new.note.map(str::to_owned),
            ..entry
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

/// Lists the clients, active and revoked. With `settles`, certificates whose clients use new ones are revoked first.
pub(super) fn list(path: &Path, settles: bool) -> Result<Vec<Row>, PeerError> {
    let mut server = Server::read(path)?;
    if settles && let Err(error) = server.settle() {
        host::terminal::note(format_args!(
            "old certificates, whose clients use new ones, could not be revoked: {error}"
        ));
    }
    Ok(server.rows())
}

impl Server {
    /// The serial numbers of revoked clients' last certificates. Of a revoked client, no certificate and no name is in
    /// use.
    fn gone(&self) -> HashSet<&str> {
        let active = self.entries.iter().filter(|it| !it.revoked);
        let active: HashSet<&str> = active.map(|it| &*it.name).collect();
        let mut gone: HashMap<&str, &str> = HashMap::new();
        for places in self.chains().clients() {
            let mut client = places.iter().map(|at| &self.entries[*at]);
            let is_gone = client.clone().all(|it| it.revoked);
            let last = client.next_back().filter(|_| is_gone);
            gone.extend(last.map(|it| (&*it.name, &*it.serial)));
        }
        gone.retain(|name, _| !active.contains(name));
        gone.into_values().collect()
    }

    /// The clients, active and revoked: a row each.
    fn rows(&self) -> Vec<Row> {
        let mut behind: HashMap<&str, Vec<String>> = HashMap::new();
        let (networks, unreadable) = self.behind();
        unreadable.iter().for_each(Unreadable::note);
        for (entry, network) in networks {
            let networks = behind.entry(&entry.serial).or_default();
            networks.push(network.to_string());
        }
        let clients = self.clients();
        let own = clients.iter().map(|it| (&*it[0].serial, &**it));
        let own: HashMap<&str, &[&Entry]> = own.collect();
        let gone = self.gone();
        let row = |entry: &Entry, client: &[&Entry]| Row {
            name: entry.name.clone(),
            note: entry.note.clone(),
            id: entry.serial.clone(),
            common_name: Some(entry.common_name.clone()),
            revoked: entry.revoked,
            file: self.state(client),
            behind: behind.get(&*entry.serial).cloned().unwrap_or_default(),
            detail: format!(
                "{}{}{}",
                entry.serial,
                if entry.revoked { "  revoked" } else { "" },
                match entry.common_name == entry.name {
                    true => String::new(),
                    false => format!("  {} in its certificate", entry.common_name),
                },
            ),
            ..Row::default()
        };
        let entries = self.entries.iter();
        let rows = entries.filter_map(|it| match own.get(&*it.serial) {
            Some(client) => Some(row(it, client)),
            None => gone.contains(&*it.serial).then(|| row(it, &[])),
        });
        rows.collect()
    }
}

/// Revokes a client.
pub(super) fn revoke(path: &Path, name: &str) -> Result<(), PeerError> {
    let server = Server::open(path)?;
    server.revoke(&server.client(name)?)
}

/// Changes the networks behind a client, and its note.
pub(super) fn set(path: &Path, name: &str, change: &Change) -> Result<(), PeerError> {
    refuse_keepalive(path, change.keepalive)?;
    let server = Server::open(path)?;
    let client = server.client(name)?;
    if let Some(behind) = &change.behind {
        behind::check(path, behind, &server.taken(Some(name)))?;
    }
    // First: a running server is told only after everything is saved, and it need not know the note.
    if let Some(note) = &change.note {
        let mut entries = server.entries.clone();
        let active = entries.iter_mut().filter(|it| !it.revoked);
        for entry in active.filter(|it| it.name == name) {
            entry.note.clone_from(note);
        }
        server.write(&entries)?;
    }
    let Some(behind) = &change.behind else {
        return Ok(());
    };
    let changes: Vec<_> = client.into_iter().map(|it| (it, &behind[..])).collect();
    server.set(&changes)
}

/// Refuses keepalive packets for a single client.
fn refuse_keepalive(path: &Path, keepalive: Option<u16>) -> Result<(), PeerError> {
    match keepalive {
        None => Ok(()),
        Some(_) => Err(PeerError::Unfit {
            path: path.to_owned(),
            why: "OpenVPN has no keepalive for a single client; the line `keepalive` of the server's file is for all",
        }),
    }
}

/// All networks of the server, its clients and the office.
pub(super) fn taken(path: &Path) -> Result<Vec<(Owner, AllowedIp)>, PeerError> {
    Ok(Server::read(path)?.taken(None))
}

/// The server's own addresses in the tunnel, and whether there are networks at home.
pub(super) fn own(path: &Path) -> Result<(Vec<IpAddr>, bool), PeerError> {
    let server = Server::read(path)?;
    let has_lan = server.home().is_some_and(|home| !home.lan.is_empty());
    let network = server.config.network;
    let own = network.ifconfig.map(|it| it.local.into());
    let own_v6 = network.ifconfig_v6.map(|it| it.local.into());
    Ok((own.into_iter().chain(own_v6).collect(), has_lan))
}

/// Renames a client in the list.
pub(super) fn rename(path: &Path, old: &str, new: &str) -> Result<(), PeerError> {
    check_name(new)?;
    let server = Server::open(path)?;
    if server.client(new).is_ok() {
        return Err(PeerError::Taken(new.to_owned()));
    }
    server.client(old)?;
    let mut entries = server.entries.clone();
    let active = entries.iter_mut().filter(|it| !it.revoked);
    for entry in active.filter(|it| it.name == old) {
        new.clone_into(&mut entry.name);
    }
    Ok(server.write(&entries)?)
}
