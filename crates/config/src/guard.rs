//! The guard's settings: which devices of the LAN leave only by a tunnel.
//!
//! ```toml
//! lan = ["br-lan", "br-guest"]   # what comes in by these leaves by a tunnel, or not at all
//! reach = ["br-iot"]             # further devices that it may reach
//! tunnels = ["mr-*", "tun0"]     # devices that are tunnels
//! table = 77                     # the routing table with the default route into the tunnel
//! lead = true                    # the guard makes that route itself when a tunnel is up
//! ```
//!
//! The names come to stand in a text for `nft`: only those are taken that have nothing in them that means something there.

use std::fmt;
use std::path::Path;

use toml::de::DeValue;

use crate::settings::{Origin, SettingsError, parsed, text_of};
use crate::suggest::suggest;
use crate::text::line_of;
use crate::types::{decimal, is_ifname};

/// Where the settings are looked for when no file is named.
pub const DEFAULT_PATH: &str = "/etc/millrace/guard.toml";

/// Names of the devices that are tunnels, where nothing is said of them: those of `millrace netifd`.
pub const TUNNELS: &str = "mr-*";

/// The routing table where none is named.
pub const TABLE: u32 = 77;

/// Most devices in one list.
pub const DEVICES_MAX: usize = 16;

/// The kernel's own tables: 253 to 255, and 0 for none.
const KERNEL_TABLES: [u32; 4] = [0, 253, 254, 255];

const KEYS: [&str; 5] = ["lan", "reach", "tunnels", "table", "lead"];

const DEVICES: &str = "a list of up to 16 names of devices, such as [\"br-lan\"]";
const PATTERNS: &str =
    "a list of up to 16 names of devices, of which the end may be open, such as [\"mr-*\"]";
const NUMBER: &str = "the number of a routing table other than 253 to 255";
const SWITCH: &str = "true or false";

/// Which devices leave only by a tunnel.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Guard {
    /// Devices whose packets leave only by a tunnel; empty where nothing is guarded.
    pub lan: Vec<String>,
    /// Further devices that they may reach.
    pub reach: Vec<String>,
    /// Devices that are tunnels, the preferred one first.
    pub tunnels: Vec<Pattern>,
    /// The routing table that has the default route into the tunnel.
    pub table: u32,
    /// The guard makes that route itself.
    pub lead: bool,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            lan: Vec::new(),
            reach: Vec::new(),
            tunnels: Pattern::new(TUNNELS).into_iter().collect(),
            table: TABLE,
            lead: true,
        }
    }
}

/// The name of a device, or its beginning.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pattern {
    start: String,
    open: bool,
}

impl Pattern {
    /// Takes `wg0`, or `wg*` for all names that begin so; `None` for what names no device, or any.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let (start, open) = match text.strip_suffix('*') {
            Some(start) => (start, true),
            None => (text, false),
        };
        is_ifname(start).then(|| Self {
            start: start.to_owned(),
            open,
        })
    }

    /// Whether a device of this name is meant.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self.open {
            true => name.starts_with(&self.start),
            false => name == self.start,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.start, if self.open { "*" } else { "" })
    }
}

impl Guard {
    /// Reads a file.
    ///
    /// # Errors
    /// [`SettingsError::Read`], [`SettingsError::TooLarge`], and what [`Guard::from_toml`] says.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        Self::from_toml(&text_of(path)?, path)
    }

    /// Reads TOML text over the defaults; `path` only names it in errors.
    ///
    /// # Errors
    /// [`SettingsError::Syntax`], [`SettingsError::Unknown`] or [`SettingsError::Value`], each with the line.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, SettingsError> {
        let place = |offset: usize| Origin::File {
            path: path.to_owned(),
            line: line_of(text, offset),
        };
        let root = parsed(text, place)?;
        let mut guard = Self::default();
        for (key, value) in root.get_ref() {
            let origin = place(key.span().start);
            let key = key.get_ref().as_ref();
            let refused = |wanted| SettingsError::Value {
                origin: origin.clone(),
                key: key.to_owned(),
                found: shown(value.get_ref()),
                wanted,
            };
            match key {
                "lan" => guard.lan = devices(value.get_ref()).ok_or_else(|| refused(DEVICES))?,
                "reach" => {
                    guard.reach = devices(value.get_ref()).ok_or_else(|| refused(DEVICES))?;
                }
                "tunnels" => {
                    let words = words(value.get_ref());
                    let patterns = words.and_then(|it| it.into_iter().map(Pattern::new).collect());
                    guard.tunnels = patterns.ok_or_else(|| refused(PATTERNS))?;
                }
                "table" => {
                    let number = match value.get_ref() {
                        DeValue::Integer(number) if number.radix() == 10 => table(number.as_str()),
                        _ => None,
                    };
                    guard.table = number.ok_or_else(|| refused(NUMBER))?;
                }
                "lead" => {
                    let DeValue::Boolean(lead) = value.get_ref() else {
                        return Err(refused(SWITCH));
                    };
                    guard.lead = *lead;
                }
                _ => {
                    return Err(SettingsError::Unknown {
                        suggestion: suggest(key, &KEYS),
                        found: key.to_owned(),
                        origin,
                    });
                }
            }
        }
        guard.merge_doubles();
        Ok(guard)
    }

    /// Leaves each name once: the first of its list, and in `lan` rather than in `reach`. The kernel refuses a rule that
    /// there is.
    pub fn merge_doubles(&mut self) {
        fn once<T: Clone + PartialEq>(list: &mut Vec<T>) {
            let mut kept: Vec<T> = Vec::new();
            list.retain(|it| {
                let is_new = !kept.contains(it);
                kept.extend(is_new.then(|| it.clone()));
                is_new
            });
        }
        once(&mut self.lan);
        once(&mut self.reach);
        self.reach.retain(|name| !self.lan.contains(name));
        once(&mut self.tunnels);
    }

    /// What [`Guard::from_toml`] reads as the same settings.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // No name has anything in it that a string of TOML writes otherwise.
        let list = |names: &[String]| {
            let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            quoted.join(", ")
        };
        let tunnels: Vec<String> = self.tunnels.iter().map(Pattern::to_string).collect();
        format!(
            "lan = [{}]\nreach = [{}]\ntunnels = [{}]\ntable = {}\nlead = {}\n",
            list(&self.lan),
            list(&self.reach),
            list(&tunnels),
            self.table,
            self.lead
        )
    }

    /// Why these settings would guard nothing, or hold what they should not: a sentence. `None` where they are well.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if self.lan.is_empty() {
            return Some("no device of the LAN is named".to_owned());
        }
        if self.tunnels.is_empty() {
            return Some("no device is named as a tunnel".to_owned());
        }
        let lists = [&self.lan, &self.reach];
        if lists.iter().any(|list| list.len() > DEVICES_MAX) || self.tunnels.len() > DEVICES_MAX {
            return Some(format!("more than {DEVICES_MAX} devices in one list"));
        }
        let all = || self.lan.iter().chain(&self.reach);
        if all().any(|name| name == "lo") {
            return Some("lo is the host itself".to_owned());
        }
        for pattern in &self.tunnels {
            if let Some(name) = all().find(|name| pattern.matches(name)) {
                return Some(format!(
                    "{name} is a device of the LAN, and {pattern} says that it is a tunnel"
                ));
            }
        }
        None
    }

    /// Whether a device of this name is a tunnel; the place of its name among them, the preferred first.
    #[must_use]
    pub fn rank(&self, name: &str) -> Option<usize> {
        self.tunnels.iter().position(|it| it.matches(name))
    }
}

/// The number of a routing table that may be the guard's.
#[must_use]
pub fn table(text: &str) -> Option<u32> {
    let number = decimal(text).and_then(|number| u32::try_from(number).ok())?;
    (!KERNEL_TABLES.contains(&number)).then_some(number)
}

/// The texts of a list.
fn words<'a>(value: &'a DeValue<'_>) -> Option<Vec<&'a str>> {
    let DeValue::Array(list) = value else {
        return None;
    };
    let word = |value: &'a toml::Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(word) => Some(word.as_ref()),
        _ => None,
    };
    let words: Option<Vec<&str>> = list.iter().map(word).collect();
    words.filter(|words| words.len() <= DEVICES_MAX)
}

pub(crate) fn devices(value: &DeValue<'_>) -> Option<Vec<String>> {
    let words = words(value)?;
    words
        .iter()
        .all(|word| is_ifname(word))
        .then(|| words.into_iter().map(str::to_owned).collect())
}

/// A value as an error names it.
pub(crate) fn shown(value: &DeValue<'_>) -> String {
    match (words(value), value) {
        (Some(words), _) => format!("{words:?}"),
        (None, DeValue::String(text)) => format!("{text:?}"),
        (None, DeValue::Integer(number)) => number.as_str().to_owned(),
        (None, other) => format!("a {}", other.type_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Guard, SettingsError> {
        Guard::from_toml(text, Path::new("guard.toml"))
    }

    #[test]
    fn everything_may_be_said() {
        let text = "lan = [\"br-lan\", \"br-guest\"]\nreach = [\"br-iot\"]\n\
            tunnels = [\"mr-*\", \"tun0\"]\ntable = 1077\nlead = false\n";
        let guard = read(text).unwrap();
        assert_eq!(guard.lan, ["br-lan", "br-guest"]);
        assert_eq!(guard.reach, ["br-iot"]);
        assert_eq!((guard.table, guard.lead), (1077, false));
        assert_eq!(guard.rank("tun0"), Some(1));
        assert_eq!(guard.rank("mr-office"), Some(0));
        assert_eq!(guard.rank("tun01"), None);
        assert_eq!(guard.to_toml(), text);
        assert_eq!(guard.fault(), None);
        let least = read("lan = [\"br-lan\"]").unwrap();
        assert_eq!((least.table, least.lead), (77, true));
        assert!(least.rank("mr-office").is_some() && least.rank("wan").is_none());
    }

    #[test]
    fn a_name_counts_once() {
        let text = "lan = [\"a\", \"b\", \"a\"]\nreach = [\"c\", \"b\", \"c\"]\n\
            tunnels = [\"mr-*\", \"tun0\", \"mr-*\", \"mr-\"]\n";
        let guard = read(text).unwrap();
        assert_eq!(guard.lan, ["a", "b"]);
        assert_eq!(guard.reach, ["c"]);
        let tunnels: Vec<String> = guard.tunnels.iter().map(Pattern::to_string).collect();
        assert_eq!(tunnels, ["mr-*", "tun0", "mr-"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, told) in [
            (
                "\nlan = \"br-lan\"",
                "guard.toml:2: lan cannot be \"br-lan\"",
            ),
            ("lan = [\"a b\"]", "lan cannot be [\"a b\"]"),
            ("tunnels = [\"*\"]", "tunnels cannot be"),
            ("tunnels = [\"m*r\"]", "tunnels cannot be"),
            ("table = 254", "table cannot be 254"),
            ("table = 0x4d", "table cannot be"),
            ("lead = 1", "true or false"),
            ("lans = []", "no setting `lans`"),
            ("lan = [", "not valid TOML"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn what_guards_nothing_or_too_much_is_a_fault() {
        for (text, told) in [
            ("", "no device of the LAN"),
            (
                "lan = [\"a\"]\ntunnels = []",
                "no device is named as a tunnel",
            ),
            ("lan = [\"lo\"]", "host itself"),
            ("lan = [\"mr-lan\"]", "mr-lan is a device of the LAN"),
        ] {
            let fault = read(text).unwrap().fault().unwrap();
            assert!(fault.contains(told), "{text}: {fault}");
        }
    }

    proptest! {
        /// No name that is taken has a character that means something to nft, to a shell, or in TOML.
        #[test]
        fn names_that_are_taken_are_plain(text in "[ -~]{0,17}", any in any::<String>()) {
            for text in [text, any] {
                if let Some(pattern) = Pattern::new(&text) {
                    let written = pattern.to_string();
                    prop_assert_eq!(&written, &text);
                    let start = written.strip_suffix('*').unwrap_or(&written);
                    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_=+.-".contains(c);
                    prop_assert!((1..=15).contains(&start.len()) && start.chars().all(is_plain));
                }
            }
        }

        /// What is written is read as the same.
        #[test]
        fn settings_survive_being_written(
            lan in prop::collection::vec("[a-z0-9=+._-]{2,15}", 0..4),
            tunnels in prop::collection::vec("[a-z][a-z0-9]{0,10}[*]?", 0..4),
            table in 256..u32::MAX,
            lead: bool,
        ) {
            prop_assume!(lan.iter().all(|name| is_ifname(name)));
            let tunnels = tunnels.iter().filter_map(|it| Pattern::new(it)).collect();
            let mut guard = Guard { lan, reach: Vec::new(), tunnels, table, lead };
            guard.merge_doubles();
            prop_assert_eq!(read(&guard.to_toml()).unwrap(), guard);
        }
    }
}
