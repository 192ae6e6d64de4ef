//! Writes an entry into the policy's settings, where it takes effect: the first entry that matches decides.

use crate::entries::{self, EntriesError};
use config::policy::{Entry, Policy, Target, Who};
use config::settings::SettingsError;
use config::settings::tables::{self, quoted, quoted_list};
use config::types::AllowedIp;
use netio::netlink::Family;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Longest name of an entry, in characters.
const NAME_MAX: usize = 32;

/// An entry that a person wants, in the words of the settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// The entry's name, if its characters are possible; a number follows if it is taken.
    pub(crate) name: String,
    /// Senders.
    pub(crate) who: Vec<String>,
    /// Destinations; empty for all.
    pub(crate) to: Vec<String>,
    /// The device of a tunnel; empty without one.
    pub(crate) through: String,
    /// The way of the packets without a tunnel.
    pub(crate) way: &'static str,
    /// Name servers behind the tunnel.
    pub(crate) dns: Vec<String>,
    /// The device of the LAN through which the packets come in, if it is known.
    pub(crate) lan: Option<String>,
    /// The sender's address, if it is known.
    pub(crate) address: Option<IpAddr>,
    /// Whether an existing file's `lan` and `masquerade` may change.
    pub(crate) sets_keys: bool,
    /// Packets shall have the router's address in tunnels.
    pub(crate) masquerade: bool,
}

/// Why an entry is not added.
#[derive(Debug, Error)]
pub(crate) enum RuleError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Write(#[from] EntriesError),
    #[error("{} does not decide about {device}; add it to `lan` there", .path.display())]
    Lan { path: PathBuf, device: String },
    #[error("name the router's device of the LAN, such as --lan br-lan")]
    NoLan,
    /// A value of the entry; no line of the file names it yet.
    #[error("{0}")]
    Value(String),
    /// The whole settings would not work.
    #[error("{0}")]
    Fault(String),
    #[error(
        "entry {name} of {} decides about {what} already; first run `millrace policy remove {name}`", .path.display()
    )]
    Double {
        path: PathBuf,
        name: String,
        what: String,
    },
    #[error(
        "entry {name} of {} decides first, and an entry before it must be written by hand; add this one there:\n{entry}",
        .path.display()
    )]
    ByHand {
        path: PathBuf,
        name: String,
        entry: String,
    },
    #[error("{}: begin each entry with a line [[entry]]", .0.display())]
    Inline(PathBuf),
}

/// A changed file, which is not written yet.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The new entry, or a new file, with the notes as comments.
    pub(crate) shown: String,
    /// Sentences about the order of the entries, and about packets that the new one does not cover.
    pub(crate) notes: Vec<String>,
    text: String,
}

/// Adds an entry to the file at `path`.
pub(crate) fn add(wanted: &Wanted, path: &Path) -> Result<Planned, RuleError> {
    let _lock = entries::lock(path)?;
    let planned = plan(wanted, path)?;
    entries::write(&planned.text, path)?;
    Ok(planned)
}

/// Plans an entry of the file at `path`.
pub(crate) fn plan(wanted: &Wanted, path: &Path) -> Result<Planned, RuleError> {
    let old = tables::text(path)?;
    let before = Policy::from_toml(&old, path)?;
    let is_new = old.is_empty();
    let mut lan = before.lan.clone();
    match &wanted.lan {
        Some(device) if lan.contains(device) => {}
        Some(device) if is_new || wanted.sets_keys => lan.push(device.clone()),
        Some(device) => {
            return Err(RuleError::Lan {
                path: path.to_owned(),
                device: device.clone(),
            });
        }
        None if lan.is_empty() => return Err(RuleError::NoLan),
        None => {}
    }
    let entry = table(wanted, &lan, &before);
    let new = format!("lan = [{}]\n{entry}", all_quoted(&lan));
    let new = Policy::from_toml(&new, Path::new("new")).map_err(|error| {
        // The line is not one of the file.
        let words = error.to_string();
        let why = words.split_once(": ").map(|(_, why)| why.to_owned());
        RuleError::Value(why.unwrap_or(words))
    })?;
    let place = match new.entries.first() {
        Some(new) => place(&before, new, wanted, path)?,
        None => 0,
    };
    let inline = || match before.entries.get(place) {
        Some(old) => RuleError::ByHand {
            path: path.to_owned(),
            name: old.name.clone(),
            entry: entry.clone(),
        },
        None => RuleError::Inline(path.to_owned()),
    };
    let mut text = match is_new {
        // Without masquerade a provider drops the device's packets.
        true => format!("lan = [{}]\nmasquerade = true\n\n{entry}", all_quoted(&lan)),
        false => tables::inserted(&old, "entry", place, &entry).ok_or_else(inline)?,
    };
    let keys = [
        (lan != before.lan, "lan", format!("[{}]", all_quoted(&lan))),
        (
            (wanted.masquerade || before.lan.is_empty()) && !before.masquerade,
            "masquerade",
            "true".to_owned(),
        ),
    ];
    let mut shown = if is_new { text.clone() } else { entry.clone() };
    for (_, key, value) in keys.iter().filter(|it| it.0 && !is_new) {
        text = tables::with_key(&text, key, value).ok_or_else(inline)?;
        shown = format!("{key} = {value}\n{shown}");
    }
    let policy = Policy::from_toml(&text, path)?;
    if let Some(fault) = policy.fault() {
        return Err(RuleError::Fault(fault));
    }
    let mut others = policy.entries.clone();
    others.remove(place);
    if nameless(others) != nameless(before.entries.clone()) {
        return Err(inline());
    }
    let notes = notes(&before, place, new.entries.first(), wanted);
    let comments = notes.iter().map(|it| format!("# {it}\n"));
    Ok(Planned {
        shown: comments.collect::<String>() + &shown,
        notes,
        text,
    })
}

/// Sentences about the order of a new entry at `place` and the others, and about packets that it does not cover.
fn notes(before: &Policy, place: usize, new: Option<&Entry>, wanted: &Wanted) -> Vec<String> {
    let (earlier, later) = before.entries.split_at(place);
    let meets = |it: &&Entry| new.is_some_and(|new| extent(new, it, wanted) != Extent::Apart);
    let earlier = earlier.iter().filter(|it| by_network(it)).filter(meets);
    let earlier =
        earlier.map(|it| format!("Entry {} decides first about {}.", it.name, listed(&it.who)));
    let next = later.first().map(|it| {
        let name = &it.name;
        format!("This entry comes before entry {name}, which would decide first.")
    });
    let family = new.and_then(|it| steer::policy::one_family(it, before));
    earlier.chain(next).chain(family).collect()
}

/// Entries to compare: one without a name has its number, which may change.
pub(super) fn nameless(mut entries: Vec<Entry>) -> Vec<Entry> {
    let is_number = |it: &&mut Entry| it.name.parse::<usize>().is_ok();
    let numbered = entries.iter_mut().filter(is_number);
    numbered.for_each(|it| it.name.clear());
    entries
}

fn all_quoted(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|it| quoted(it)).collect();
    words.join(", ")
}

/// Whether an entry decides about all packets of a network's addresses.
fn by_network(entry: &Entry) -> bool {
    entry.to.is_empty() && entry.who.iter().any(|it| matches!(it, Who::Network(_)))
}

/// The senders or destinations of an entry, as those of another one see them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    /// No packet belongs to both.
    Apart,
    /// Both have the same packets, or some in common.
    Same,
    /// The other has these packets and more.
    Narrower,
    /// These packets include the other's.
    Wider,
}

impl Extent {
    /// Compares each of `new` with each of `old`. A list that includes a part of the other's is wider; an empty list
    /// stands for all.
    fn of<T>(new: &[T], old: &[T], compare: impl Fn(&T, &T) -> Self) -> Self {
        match (new, old) {
            ([], []) => Self::Same,
            ([], _) => Self::Wider,
            (_, []) => Self::Narrower,
            _ => {
                let pairs = new
                    .iter()
                    .flat_map(|it| old.iter().map(move |old| (it, old)));
                let found: Vec<Self> = pairs.map(|(new, old)| compare(new, old)).collect();
                let mut all = [Self::Wider, Self::Narrower, Self::Same].into_iter();
                all.find(|it| found.contains(it)).unwrap_or(Self::Apart)
            }
        }
    }

    fn of_networks(new: &AllowedIp, old: &AllowedIp) -> Self {
        let has = |a: &AllowedIp, b: &AllowedIp| a.prefix() <= b.prefix() && a.contains(b.addr());
        match (has(new, old), has(old, new)) {
            (true, true) => Self::Same,
            (true, false) => Self::Wider,
            (false, true) => Self::Narrower,
            (false, false) => Self::Apart,
        }
    }

    fn of_targets(new: &Target, old: &Target) -> Self {
        match (new, old) {
            (Target::Network(new), Target::Network(old)) => Self::of_networks(new, old),
            (Target::Domain(new), Target::Domain(old)) if new == old => Self::Same,
            (Target::Domain(new), Target::Domain(old)) if new.is_within(old) => Self::Narrower,
            (Target::Domain(new), Target::Domain(old)) if old.is_within(new) => Self::Wider,
            (Target::Domain(_), Target::Network(old)) if old.is_default() => Self::Narrower,
            (Target::Network(new), Target::Domain(_)) if new.is_default() => Self::Wider,
            _ => Self::Apart,
        }
    }

    /// `lan` is the device through which the new entry's packets come in, if it is known.
    fn of_senders(new: &Who, old: &Who, lan: Option<&String>) -> Self {
        match (new, old) {
            (new, old) if new == old => Self::Same,
            (Who::Network(new), Who::Network(old)) => Self::of_networks(new, old),
            (Who::Device(_), Who::Device(_)) => Self::Apart,
            (_, Who::Device(old)) if lan.is_some_and(|it| it != old) => Self::Apart,
            (_, Who::Device(_)) => Self::Narrower,
            (Who::Device(_), _) => Self::Wider,
            // A device may have an address of the network.
            (_, Who::Network(_)) => Self::Narrower,
            (Who::Network(_), _) => Self::Wider,
            // A name may be that of the same device.
            (Who::Mac(_), Who::Lease(_)) => Self::Narrower,
            (Who::Lease(_), Who::Mac(_)) => Self::Wider,
            _ => Self::Apart,
        }
    }
}

/// Compares a new entry with an older one: by their destinations, or by their senders if these are the same.
fn extent(new: &Entry, old: &Entry, wanted: &Wanted) -> Extent {
    let who = Extent::of(&new.who, &old.who, |new, old| {
        Extent::of_senders(new, old, wanted.lan.as_ref())
    });
    let to = Extent::of(&new.to, &old.to, Extent::of_targets);
    match (to, who) {
        (Extent::Apart, _) | (_, Extent::Apart) => Extent::Apart,
        (Extent::Same, who) => who,
        (to, _) => to,
    }
}

fn listed<T: ToString>(all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// The place of a new entry: before the first one that includes its packets, so that it takes effect. Narrower entries
/// stay before it.
fn place(policy: &Policy, new: &Entry, wanted: &Wanted, path: &Path) -> Result<usize, RuleError> {
    let is_same = |it: &Who| match it {
        Who::Lease(name) => new.who.iter().any(|who| match who {
            Who::Mac(_) => name.eq_ignore_ascii_case(&wanted.name),
            Who::Lease(own) => name.eq_ignore_ascii_case(own),
            _ => false,
        }),
        Who::Network(network) if wanted.address.is_some() => wanted
            .address
            .is_some_and(|it| network.addr() == it && network.prefix() == Family::of(it).bits()),
        it => new.who.contains(it),
    };
    let is_double = |old: &&Entry| match (&new.to[..], &old.to[..]) {
        ([], []) => old.who.iter().any(is_same),
        (to, old_to) => are_equal(to, old_to) && are_equal(&new.who, &old.who),
    };
    if let Some(old) = policy.entries.iter().find(is_double) {
        let who = listed(&new.who);
        return Err(RuleError::Double {
            path: path.to_owned(),
            name: old.name.clone(),
            what: if who.is_empty() { listed(&new.to) } else { who },
        });
    }
    let mut old = policy.entries.iter();
    let place = old.position(|it| extent(new, it, wanted) == Extent::Narrower);
    Ok(place.unwrap_or(policy.entries.len()))
}

/// Whether two lists have the same elements.
fn are_equal<T: PartialEq>(one: &[T], other: &[T]) -> bool {
    let has_all = |one: &[T], other: &[T]| other.iter().all(|it| one.contains(it));
    has_all(one, other) && has_all(other, one)
}

/// The entry as a table.
fn table(wanted: &Wanted, lan: &[String], before: &Policy) -> String {
    let plain = |it: &char| it.is_ascii_alphanumeric() || "_.-".contains(*it);
    let own: String = wanted
        .name
        .replace('/', "-")
        .chars()
        .filter(plain)
        .take(NAME_MAX - 4)
        .collect();
    let own = match own.is_empty() {
        true => wanted
            .lan
            .as_ref()
            .or_else(|| lan.first())
            .cloned()
            .unwrap_or_default(),
        false => own,
    };
    let is_taken = |name: &str| before.entries.iter().any(|it| it.name == name);
    let mut name = own.clone();
    let mut number = 1;
    while is_taken(&name) {
        number += 1;
        name = format!("{own}-{number}");
    }
    let mut text = format!("[[entry]]\nname = {}\n", quoted(&name));
    let (through, way) = (vec![wanted.through.clone()], vec![wanted.way.to_owned()]);
    for (key, values) in [
        ("who", &wanted.who),
        ("to", &wanted.to),
        ("through", &through),
        ("way", &way),
        ("dns", &wanted.dns),
    ] {
        if values.iter().any(|it| !it.is_empty()) {
            text += &format!("{key} = {}\n", quoted_list(values));
        }
    }
    text
}
