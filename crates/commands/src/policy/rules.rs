//! Writes an entry into the policy's settings, where it takes effect: the first entry that matches decides.

use crate::entries;
use config::policy::{Entry, Policy, Who};
use config::settings::tables::{self, quoted, quoted_list};
use netio::netlink::Family;
use std::net::IpAddr;
use std::path::Path;

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
    /// Whether the file may get other values of `lan` and `masquerade`.
    pub(crate) sets_keys: bool,
    /// Packets shall have the router's address in tunnels.
    pub(crate) masquerade: bool,
}

/// A changed file, which is not written yet.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The new entry, or a new file, with comments about other entries.
    pub(crate) shown: String,
    text: String,
}

impl Planned {
    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        entries::write(&self.text, path).map_err(|error| error.to_string())
    }
}

/// Plans an entry of the file at `path`.
pub(crate) fn plan(wanted: &Wanted, path: &Path) -> Result<Planned, String> {
    let words = |error: config::settings::SettingsError| error.to_string();
    let old = tables::text(path).map_err(words)?;
    let before = Policy::from_toml(&old, path).map_err(words)?;
    let is_new = old.is_empty();
    let mut lan = before.lan.clone();
    match &wanted.lan {
        Some(device) if lan.contains(device) => {}
        Some(device) if is_new || wanted.sets_keys => lan.push(device.clone()),
        Some(device) => {
            return Err(format!(
                "{} does not decide about {device}; add it to `lan` there",
                path.display()
            ));
        }
        None if lan.is_empty() => {
            return Err("name the router's device of the LAN, such as --lan br-lan".to_owned());
        }
        None => {}
    }
    let entry = table(wanted, &lan, &before);
    let new = format!("lan = [{}]\n{entry}", all_quoted(&lan));
    let new = Policy::from_toml(&new, Path::new("new")).map_err(|error| {
        // The line is not one of the file.
        let words = error.to_string();
        words
            .split_once(": ")
            .map_or_else(|| words.clone(), |(_, why)| why.to_owned())
    })?;
    let place = match new.entries.first() {
        Some(new) => place(&before, new, wanted, path)?,
        None => 0,
    };
    let inline = || match before.entries.get(place) {
        Some(entry) => format!(
            "entry {} of {} decides first, and an entry before it must be written by hand; add this one there:\n{}",
            entry.name,
            path.display(),
            table(wanted, &lan, &before)
        ),
        None => format!("{}: begin each entry with a line [[entry]]", path.display()),
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
    let policy = Policy::from_toml(&text, path).map_err(words)?;
    if let Some(fault) = policy.fault() {
        return Err(fault);
    }
    let mut others = policy.entries.clone();
    others.remove(place);
    if nameless(others) != nameless(before.entries.clone()) {
        return Err(inline());
    }
    if let Some(next) = before.entries.get(place) {
        shown = format!(
            "# Before entry {}, which would decide first:\n{shown}",
            next.name
        );
    }
    for earlier in before.entries[..place].iter().filter(|it| by_network(it)) {
        let who = earlier.who.iter().map(ToString::to_string);
        let who = who.collect::<Vec<_>>().join(", ");
        shown = format!(
            "# Entry {} decides first about {who}.\n{shown}",
            earlier.name
        );
    }
    Ok(Planned { shown, text })
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

/// The place of a new entry: before the first one that decides about more senders or destinations, so that it takes
/// effect.
fn place(policy: &Policy, new: &Entry, wanted: &Wanted, path: &Path) -> Result<usize, String> {
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
    let is_lan = new.to.is_empty() && new.who.iter().all(|it| matches!(it, Who::Device(_)));
    let everywhere = policy.entries.iter().enumerate();
    let mut place = policy.entries.len();
    for (number, entry) in everywhere.filter(|it| it.1.to.is_empty()) {
        if new.to.is_empty() && entry.who.iter().any(is_same) {
            let who: Vec<String> = new.who.iter().map(ToString::to_string).collect();
            return Err(format!(
                "entry {} of {} decides about {} already; first run `millrace policy remove {}`",
                entry.name,
                path.display(),
                who.join(", "),
                entry.name
            ));
        }
        // A name may be that of the same device.
        let is_other = |it: &Who| match it {
            Who::Device(lan) => wanted.lan.as_ref().is_some_and(|own| own != lan),
            Who::Mac(_) => new.to.is_empty(),
            _ => false,
        };
        if !is_lan && !entry.who.iter().all(is_other) {
            place = place.min(number);
        }
    }
    Ok(place)
}

/// The entry as a table.
fn table(wanted: &Wanted, lan: &[String], before: &Policy) -> String {
    let plain = |it: &char| it.is_ascii_alphanumeric() || "_.-".contains(*it);
    let own: String = wanted
        .name
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
