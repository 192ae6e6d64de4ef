//! The clients of a WireGuard server.

#[cfg(test)]
mod tests;

use super::behind::{self, Owner};
use super::chain::surplus;
use super::file::{self, Public, Ranges, Record, sum};
use super::issue::{Chosen, Issued, New, Picked, Recipient, Terms, tell_ended};
use super::{Change, PeerError, Row, elsewhere, place, secret, settle};
use crate::keys;
use config::clients::{self, Section};
use config::free;
use config::home::KEEPALIVE;
use config::kind::Kind;
use config::tunnel::Tunnel;
use config::types::{AllowedIp, family_bits};
use config::wgquick::{self, LINE_MAX};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::iter;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The line that permits post-quantum keys in a new client's file and in its section at the server.
#[cfg(feature = "postquantum")]
const PREFER: &str = "#! PostQuantum = prefer\n";
#[cfg(not(feature = "postquantum"))]
const PREFER: &str = "";

/// A server's file.
struct File {
    path: PathBuf,
    text: Zeroizing<String>,
    /// Whether [`settle`] has changed the text, which is not written yet.
    is_settled: bool,
    tunnel: Tunnel,
    /// The server's public key; empty without a private key.
    key: String,
    /// The lines of AmneziaWG, which clients' files have, too; empty for plain WireGuard.
    amnezia: Zeroizing<String>,
}

impl File {
    fn read(path: &Path) -> Result<Self, PeerError> {
        let text = place::read(path)?;
        let settled = settle::settled(path, &text);
        let is_settled = settled.is_some();
        let text = settled.unwrap_or(text);
        // Scripts do not run here.
        let options = config::permissions::Permissions::ALL;
        let import = wgquick::parse(&text, &path.display().to_string(), options);
        let (tunnel, _) = import.into_tunnel()?;
        let private = tunnel.interface.private_key.as_ref();
        let public = private.map(|it| keys::public_of(it).to_base64().to_string());
        #[cfg(feature = "amnezia")]
        let amnezia = config::amnezia::lines(&tunnel.interface.amnezia);
        #[cfg(not(feature = "amnezia"))]
        let amnezia = Zeroizing::default();
        Ok(Self {
            path: path.to_owned(),
            text,
            is_settled,
            key: public.unwrap_or_default(),
            amnezia,
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
        let sections = clients::sections(&self.text);
        let client = |places: Vec<usize>| {
            let mut sections = places.into_iter().map(|it| sections[it].clone());
            let section = sections.next().unwrap_or_default();
            let ranges = ranges.get(&section.public_key).copied().unwrap_or_default();
            let (own, behind) = self.split(ranges);
            Client {
                section,
                next: sections.collect(),
                own,
                behind,
            }
        };
        let clients = settle::chains(&sections).clients().into_iter();
        clients.map(client).collect()
    }

    /// Finds a client by its name or key.
    fn client(&self, name: &str) -> Result<Client, PeerError> {
        let found = self.clients().into_iter().find(|it| it.is_called(name));
        found.ok_or_else(|| PeerError::Absent(name.to_owned()))
    }

    /// All networks that may not lie behind a new client, or behind the client `name`: the office or another client has
    /// them.
    fn taken(&self, clients: &[Client], name: Option<&str>) -> Vec<(Owner, AllowedIp)> {
        let is_other = |it: &&Client| name.is_none_or(|name| !it.is_called(name));
        let others = clients.iter().filter(is_other);
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
        taken.extend(elsewhere::name_servers(self.tunnel.home.as_ref()));
        taken
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

    /// `PersistentKeepalive` of clients' files, if the server's file says it.
    fn keepalive(&self) -> Option<u16> {
        self.tunnel.home.as_ref()?.keepalive
    }

    /// All networks that clients reach: of the tunnel, of the office, and behind these clients and new ones.
    fn reached(&self, clients: &[Client], new: &[New<'_>]) -> Reached {
        let behind = clients.iter().flat_map(|it| &it.behind);
        let behind = behind.filter(|it| !it.is_default());
        let office = self
            .networks()
            .into_iter()
            .chain(self.lan().iter().copied());
        let new = new.iter().flat_map(|it| it.behind);
        let ranges: Vec<AllowedIp> = office.chain(behind.chain(new).copied()).collect();
        Reached {
            sum: sum(&ranges),
            ranges,
        }
    }

    /// The ranges in the file of a client with these networks behind it.
    fn ranges(&self, lan_only: bool, behind: &[AllowedIp], reached: &Reached) -> Ranges {
        match lan_only {
            true => Ranges::Networks(reached.sum.wrapping_sub(sum(behind))),
            false => Ranges::All {
                v6: self.networks().iter().any(|it| it.addr().is_ipv6()),
            },
        }
    }

    /// The public part of the file of a client with these addresses.
    fn public<'a>(
        &'a self,
        endpoint: &'a str,
        addresses: &'a [AllowedIp],
        ranges: Ranges,
    ) -> Public<'a> {
        Public {
            server: &self.key,
            endpoint,
            addresses,
            dns: self.dns(matches!(ranges, Ranges::Networks(_))),
            ranges,
            keepalive: self.keepalive().filter(|it| *it != KEEPALIVE),
            amnezia: &self.amnezia,
        }
    }

    /// How the file that a client got last compares with the one that it would get today.
    fn state(&self, client: &Client, reached: &Reached) -> &'static str {
        // Without an address of its own, a client gets no file.
        let record = client.record().filter(|_| !client.own.is_empty());
        let Some(record) = record else {
            return file::UNKNOWN;
        };
        let common = || Some(self.tunnel.home.as_ref()?.endpoint.as_ref()?.to_string());
        let Some(endpoint) = record.endpoint.map(str::to_owned).or_else(common) else {
            return file::UNKNOWN;
        };
        let ranges = self.ranges(record.lan_only, &client.behind, reached);
        let public = self.public(&endpoint, &client.own, ranges);
        match record.state(&public) {
            file::CURRENT if !client.next.is_empty() => file::PENDING,
            state => state,
        }
    }

    /// All addresses that a new client cannot have.
    fn used(&self) -> Vec<AllowedIp> {
        let own = self.tunnel.interface.addresses.iter();
        let own = own.filter_map(|it| single(it.addr));
        own.chain(self.tunnel.allowed_ips()).collect()
    }

    /// An address in each network that is not used.
    fn free_addresses(&self, used: &[AllowedIp]) -> Result<Vec<AllowedIp>, PeerError> {
        let networks = self.networks();
        if networks.is_empty() {
            return Err(self.unfit(
                "`Address` has no room for clients: write it with its network, such as 10.7.0.1/24",
            ));
        }
        let free = networks.iter().map(|network| {
            let host = free::free_host(*network, used).and_then(single);
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

/// The networks that clients reach, and their [`sum`].
struct Reached {
    ranges: Vec<AllowedIp>,
    sum: u64,
}

/// A client of a server.
struct Client {
    section: Section,
    /// The sections of the client's new files that the client has not used, the newest last.
    next: Vec<Section>,
    /// The client's addresses in the tunnel.
    own: Vec<AllowedIp>,
    /// The networks behind the client.
    behind: Vec<AllowedIp>,
}

impl Client {
    /// Whether this is the client's name or key.
    fn is_called(&self, name: &str) -> bool {
        self.section.name.as_deref() == Some(name)
            || self.sections().any(|it| it.public_key == name)
    }

    /// The section of the file that the client got last.
    fn newest(&self) -> &Section {
        self.next.last().unwrap_or(&self.section)
    }

    /// The record of the file that the client got last.
    fn record(&self) -> Option<Record<'_>> {
        self.newest().file.as_deref().and_then(Record::read)
    }

    /// The line for the policy of post-quantum keys that the client's newest section has.
    fn post_quantum(&self, file: &str) -> Cow<'static, str> {
        match self.newest().setting(file, "PostQuantum") {
            Some(policy) => format!("#! PostQuantum = {policy}\n").into(),
            None => PREFER.into(),
        }
    }

    /// The client's sections.
    fn sections(&self) -> impl Iterator<Item = &Section> {
        iter::once(&self.section).chain(&self.next)
    }
}

fn is_single(range: &AllowedIp) -> bool {
    range.prefix() == family_bits(range.addr())
}

fn single(addr: IpAddr) -> Option<AllowedIp> {
    AllowedIp::new(addr, family_bits(addr)).ok()
}

/// Items in the format of a file's lists.
pub(crate) fn list_of<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(", ")
}

/// Whether a file has a `[Server]` section.
pub(super) fn is_home(path: &Path) -> bool {
    // Most files are clients', and need no parsing.
    let text = place::read(path).unwrap_or_default();
    text.contains("[Server]") && File::read(path).is_ok_and(|it| it.tunnel.home.is_some())
}

/// Keys and a file for a client.
struct Made {
    /// The client's file.
    text: Zeroizing<String>,
    /// The end of the client's section: the record of the file, and the keys.
    section: Zeroizing<String>,
}

impl File {
    /// Makes keys and a file for a client. The client's file names no network behind the client itself; `post_quantum` is
    /// the line for both files, or empty.
    fn make(
        &self,
        terms: &Terms,
        own: &[AllowedIp],
        behind: &[AllowedIp],
        reached: &Reached,
        post_quantum: &str,
    ) -> Result<Made, PeerError> {
        let endpoint = terms.endpoint(self.tunnel.home.as_ref(), &self.path)?;
        let endpoint = endpoint.to_string();
        if self.key.is_empty() {
            return Err(self.unfit("it has no PrivateKey"));
        }
        let (private, shared) = (keys::new(), keys::preshared());
        let public = keys::public_of(&private).to_base64();
        let [private, shared] = [private, shared].map(|it| it.to_base64());
        let ranges = self.ranges(terms.lan_only, behind, reached);
        let plain = self.public(&endpoint, own, ranges);
        let dns = plain.dns;
        let own_endpoint = terms.endpoint.as_ref().map(|_| &*endpoint);
        let record = Record::new(&plain, own_endpoint).to_string();
        let dns = match dns.is_empty() {
            true => String::new(),
            false => format!("DNS = {}\n", list_of(dns)),
        };
        let ranges = match ranges {
            Ranges::Networks(_) => {
                let ranges = reached.ranges.iter().filter(|it| !behind.contains(it));
                list_of(&ranges.collect::<Vec<_>>())
            }
            Ranges::All { v6 } => ["0.0.0.0/0", "0.0.0.0/0, ::/0"][usize::from(v6)].to_owned(),
        };
        if ranges.len() + "AllowedIPs = ".len() > LINE_MAX {
            return Err(self.unfit(
                "the networks of the office and the branches are too many for the file of a --lan-only client; give \
                 --full-tunnel, or larger networks",
            ));
        }
        let text = secret(&[
            "[Interface]\nPrivateKey = ",
            &private,
            "\nAddress = ",
            &list_of(own),
            "\n",
            &dns,
            &self.amnezia,
            "\n[Peer]\n",
            post_quantum,
            "PublicKey = ",
            &self.key,
            "\nPresharedKey = ",
            &shared,
            "\nEndpoint = ",
            &endpoint,
            "\nAllowedIPs = ",
            &ranges,
            "\n",
            &keepalive(self.keepalive().unwrap_or(KEEPALIVE)),
        ]);
        let section = secret(&[
            "#! File = ",
            &record,
            "\n",
            post_quantum,
            "PublicKey = ",
            &public,
            "\nPresharedKey = ",
            &shared,
            "\n",
        ]);
        Ok(Made { text, section })
    }
}

/// The line of a section for keepalive packets; empty for none.
fn keepalive(seconds: u16) -> String {
    match seconds {
        0 => String::new(),
        seconds => format!("PersistentKeepalive = {seconds}\n"),
    }
}

/// Makes keys for new clients, has their files taken, and adds the clients to the server.
pub(super) fn add(
    path: &Path,
    terms: &Terms,
    new: &[New<'_>],
    files: &dyn Recipient,
) -> Result<(), PeerError> {
    let file = File::read(path)?;
    file.check()?;
    let clients = file.clients();
    let sections = clients.iter().map(|it| &it.section);
    let mut names: HashSet<&str> = sections
        .flat_map(|it| it.name.as_deref().into_iter().chain([&*it.public_key]))
        .collect();
    let (mut taken, mut used) = (file.taken(&clients, None), file.used());
    let (mut addresses, mut faults) = (Vec::new(), Vec::new());
    for (number, new) in new.iter().enumerate() {
        let mut place = || {
            if !names.insert(new.name) {
                return Err(PeerError::Taken(new.name.to_owned()));
            }
            behind::check(path, new.behind, &taken)?;
            let own = file.free_addresses(&used)?;
            file.check_single(&[&own, new.behind].concat(), new.behind)?;
            Ok(own)
        };
        match place() {
            Ok(own) => {
                used.extend(own.iter().chain(new.behind));
                let owner = Owner::New(new.name.to_owned());
                taken.extend(new.behind.iter().map(|it| (owner.clone(), *it)));
                addresses.push(own);
            }
            Err(error) => faults.push((number, error)),
        }
    }
    if !faults.is_empty() {
        return Err(PeerError::Several(faults));
    }
    let reached = file.reached(&clients, new);
    let (mut issued, mut sections) = (Vec::new(), Vec::new());
    for (new, own) in new.iter().zip(&addresses) {
        let Made { text, section } = file.make(terms, own, new.behind, &reached, PREFER)?;
        let note = new.note.map(|it| format!("#! Note = {it}\n"));
        sections.push(secret(&[
            if sections.is_empty() { "" } else { "\n" },
            "[Peer]\n#! Name = ",
            new.name,
            "\n",
            &note.unwrap_or_default(),
            &section,
            "AllowedIPs = ",
            &list_of(&[own, new.behind].concat()),
            "\n",
            &keepalive(new.keepalive.unwrap_or_default()),
        ]));
        issued.push(Issued {
            name: new.name.to_owned(),
            text,
        });
    }
    let sections: Vec<&str> = sections.iter().map(|it| it.as_str()).collect();
    let added = clients::added(&file.text, &secret(&sections));
    place::check_size(path, added.len())?;
    files.take(&issued)?;
    terms.look_for_lan(file.tunnel.home.as_ref(), path);
    let written = place::replace(path, &added);
    Ok(written.inspect_err(|_| files.give_back())?)
}

/// Makes new keys and files for clients, and has the files taken. A client keeps its old file until it uses the new
/// one; the last files that it has not used stay good, too. Returns clients that were left out.
pub(super) fn reissue(
    path: &Path,
    chosen: &Chosen,
    files: &dyn Recipient,
) -> Result<Vec<String>, PeerError> {
    let file = File::read(path)?;
    file.check()?;
    let clients = file.clients();
    let reached = file.reached(&clients, &[]);
    let all = clients.iter().map(|client| {
        let Section { name, .. } = &client.section;
        (client, name.as_deref(), file.state(client, &reached))
    });
    let Picked { clients, left } = chosen.pick(all.collect())?;
    files.check(Kind::WireGuard, &mut clients.iter().map(|(_, name)| *name))?;
    let (mut issued, mut sections) = (Vec::new(), Vec::new());
    let (mut changes, mut ended) = (Vec::new(), Vec::new());
    for (client, name) in &clients {
        if client.own.is_empty() {
            return Err(PeerError::Addressless((*name).to_owned()));
        }
        let terms = chosen.terms(name, client.record())?;
        let post_quantum = client.post_quantum(&file.text);
        let Made { text, section } =
            file.make(&terms, &client.own, &client.behind, &reached, &post_quantum)?;
        sections.push(secret(&[
            if sections.is_empty() { "" } else { "\n" },
            "[Peer]\n#! Name = ",
            name,
            "\n#! Replaces = ",
            &client.newest().public_key,
            "\n",
            &section,
        ]));
        let (old, kept) = client.next.split_at(surplus(client.next.len()));
        let is_old = |key: &str| old.iter().any(|it| it.public_key == key);
        let heirs = kept.iter();
        let heirs = heirs.filter(|it| it.replaces.as_deref().is_some_and(is_old));
        changes.extend(heirs.map(|it| {
            let replaces = [("Replaces", &*client.section.public_key)];
            (it, Some(it.text_with(&file.text, &replaces)))
        }));
        for section in old {
            changes.push((section, None));
            ended.push(format!("{name} ({})", section.public_key));
        }
        let name = (*name).to_owned();
        issued.push(Issued { name, text });
    }
    if issued.is_empty() {
        return Ok(left);
    }
    let changes = changes.iter();
    let changes = changes.map(|(section, new)| (*section, new.as_ref().map(|it| it.as_str())));
    let text = clients::changed(&file.text, &changes.collect::<Vec<_>>());
    let sections: Vec<&str> = sections.iter().map(|it| it.as_str()).collect();
    let text = clients::added(&text, &secret(&sections));
    place::check_size(path, text.len())?;
    files.take(&issued)?;
    let written = place::replace(path, &text);
    written.inspect_err(|_| files.give_back())?;
    tell_ended(&ended);
    Ok(left)
}

/// Lists the peers. With `settles`, the server's file gets the keys that clients use.
pub(super) fn list(path: &Path, settles: bool) -> Result<Vec<Row>, PeerError> {
    let file = File::read(path)?;
    if settles
        && file.is_settled
        && !file.tunnel.interface.save_config
        && let Err(error) = place::replace(path, &*file.text)
    {
        host::terminal::note(format_args!(
            "old keys, whose clients use new ones, could not be removed: {error}"
        ));
    }
    let clients = file.clients();
    let reached = file.reached(&clients, &[]);
    let row = |client: &Client| {
        let Client {
            section,
            own,
            behind,
            ..
        } = client;
        let key = &section.public_key;
        let texts = |ranges: &[AllowedIp]| ranges.iter().map(ToString::to_string).collect();
        Row {
            name: section.name.clone().unwrap_or_else(|| "-".to_owned()),
            note: section.note.clone(),
            detail: format!("{key}  {}", list_of(own)),
            addresses: texts(own),
            behind: texts(behind),
            file: file.state(client, &reached),
            id: key.clone(),
            ..Row::default()
        }
    };
    Ok(clients.iter().map(row).collect())
}

/// Changes a client's section.
pub(super) fn set(path: &Path, name: &str, change: &Change) -> Result<(), PeerError> {
    let file = File::read(path)?;
    let clients = file.clients();
    let client = clients.iter().find(|it| it.is_called(name));
    let client = client.ok_or_else(|| PeerError::Absent(name.to_owned()))?;
    let mut values: Vec<(&str, Option<String>)> = Vec::new();
    if let Some(behind) = &change.behind {
        behind::check(path, behind, &file.taken(&clients, Some(name)))?;
        let ranges = [&client.own[..], behind].concat();
        file.check_single(&ranges, behind)?;
        values.push(("AllowedIPs", Some(list_of(&ranges))));
    }
    if let Some(note) = &change.note {
        values.push(("Note", note.clone()));
    }
    if let Some(seconds) = change.keepalive {
        let seconds = (seconds != 0).then(|| seconds.to_string());
        values.push(("PersistentKeepalive", seconds));
    }
    let values: Vec<_> = values
        .iter()
        .map(|(key, value)| (*key, value.as_deref()))
        .collect();
    let section = client.section.text_after(&file.text, &values);
    file.write(&clients::changed(
        &file.text,
        &[(&client.section, Some(&section))],
    ))
}

/// All networks of the server, its clients and the office.
pub(super) fn taken(path: &Path) -> Result<Vec<(Owner, AllowedIp)>, PeerError> {
    let file = File::read(path)?;
    Ok(file.taken(&file.clients(), None))
}

/// The server's own addresses in the tunnel, and whether there are networks at home.
pub(super) fn own(path: &Path) -> Result<(Vec<IpAddr>, bool), PeerError> {
    let file = File::read(path)?;
    let addresses = file.tunnel.interface.addresses.iter();
    let own = addresses.map(|it| it.addr).collect();
    Ok((own, !file.lan().is_empty()))
}

/// Removes a client.
pub(super) fn revoke(path: &Path, name: &str) -> Result<(), PeerError> {
    let file = File::read(path)?;
    let client = file.client(name)?;
    let gone: Vec<_> = client.sections().map(|it| (it, None)).collect();
    file.write(&clients::changed(&file.text, &gone))
}

/// Renames a client.
pub(super) fn rename(path: &Path, old: &str, new: &str) -> Result<(), PeerError> {
    let file = File::read(path)?;
    if file.client(new).is_ok() {
        return Err(PeerError::Taken(new.to_owned()));
    }
    let client = file.client(old)?;
    let named = |it: &Section| it.text_with(&file.text, &[("Name", new)]);
    let named: Vec<_> = client.sections().map(|it| (it, named(it))).collect();
    let named: Vec<_> = named
        .iter()
        .map(|(it, text)| (*it, Some(text.as_str())))
        .collect();
    file.write(&clients::changed(&file.text, &named))
}
