//! Lines in a TOML file: the table `[uplinks]`, and a table `[[uplink]]` for each.
//!
//! ```toml
//! [uplinks]
//! mode = "failover"
//! hold = 30
//!
//! [[uplink]]
//! name = "fibre"
//! interface = "eth1"
//! ```
//!
//! Keys and values mean the same as in the comments of other files, and follow the same rules. `relay-key` is
//! `RelayKey` there; numbers and booleans stand without quotes.

use std::borrow::Cow;

use toml::de::{DeTable, DeValue};

use super::section::{Found, Sections};
use super::{LINE_KEYS, LINES_KEYS, Lines};
use crate::keys;
use crate::report::{Entry, Verdict};
use crate::text::line_of;
use crate::text::suggest;

/// Names of the two tables at the top level of a file.
pub(crate) const NAMES: [&str; 2] = ["uplinks", "uplink"];

/// Tables of lines in a file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tables {
    pub(super) sections: Sections,
    /// For each section header and key, by the number that `sections` knows it by: its line in the file (from 1), and
    /// the index of its verdict in `entries`.
    places: Vec<(usize, usize)>,
    /// Verdicts on keys.
    entries: Vec<Entry>,
}

impl Tables {
    /// Takes the values that a file has for [`NAMES`], each with the line of its name. `text` is the text of the
    /// whole file.
    pub(crate) fn read(
        text: &str,
        lines: Option<(&DeValue<'_>, usize)>,
        line: Option<(&DeValue<'_>, usize)>,
    ) -> Self {
        let mut tables = Self::default();
        match lines {
            Some((DeValue::Table(table), place)) => {
                tables.section(text, "[Uplinks]", (table, place), &keys::names(LINES_KEYS));
            }
            Some((_, place)) => tables.refuse(place, NAMES[0], "write a table: [uplinks]"),
            None => {}
        }
        let wanted = "write a table for each uplink: [[uplink]]";
        match line {
            Some((DeValue::Array(all), place)) => {
                for one in all {
                    // An empty table in an array has no offset of its own.
                    let place = line_of(text, one.span().start).max(place);
                    match one.get_ref() {
                        DeValue::Table(table) => {
                            tables.section(
                                text,
                                "[Uplink]",
                                (table, place),
                                &keys::names(LINE_KEYS),
                            );
                        }
                        _ => tables.refuse(place, NAMES[1], wanted),
                    }
                }
            }
            Some((_, place)) => tables.refuse(place, NAMES[1], wanted),
            None => {}
        }
        tables
    }

    fn section(
        &mut self,
        text: &str,
        head: &str,
        (table, place): (&DeTable<'_>, usize),
        keys: &[&'static str],
    ) {
        let number = self.number(place);
        if let Found::Fault(_, reason) = self.sections.head(number, head) {
            return self.refuse(place, &in_toml(head), &reason);
        }
        for (key, value) in table {
            let place = line_of(text, key.span().start);
            let number = self.number(place);
            let found = match name_of(key.get_ref(), keys) {
                Ok(name) => self.sections.key(number, name, &value_of(value.get_ref())),
                Err(reason) => Found::Fault(String::new(), reason),
            };
            match found {
                Found::Nothing => {}
                Found::Key(name) => self.push(place, &kebab(name), Verdict::Honoured, ""),
                Found::Fault(_, reason) => {
                    self.refuse(place, &keys::shown(key.get_ref()), &reason);
                }
            }
        }
    }

    /// Ends the file: returns the lines, and a verdict on each key. `full` says that the tunnel takes all packets of
    /// the host; `called` is the number of peers it connects to.
    pub(crate) fn finish(mut self, full: bool, called: usize) -> (Lines, Vec<Entry>) {
        let whole = std::mem::take(&mut self.sections).finish(full, called);
        for (number, why) in &whole.idle {
            let at = self.places.get(*number).map(|it| it.1);
            if let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
                entry.verdict = Verdict::Ignored;
                entry.reason = in_toml(why);
            }
        }
        for (number, reason) in &whole.faults {
            let line = self.places.get(*number).map_or(0, |it| it.0);
            self.refuse(line, "", reason);
        }
        self.entries.sort_by_key(|entry| entry.line);
        (whole.lines, self.entries)
    }

    fn number(&mut self, place: usize) -> usize {
        self.places.push((place, self.entries.len()));
        self.places.len() - 1
    }

    fn refuse(&mut self, line: usize, key: &str, reason: &str) {
        self.push(line, key, Verdict::Refused, &in_toml(reason));
    }

    fn push(&mut self, line: usize, key: &str, verdict: Verdict, reason: &str) {
        self.entries.push(Entry {
            line,
            key: key.to_owned(),
            verdict,
            reason: reason.to_owned(),
        });
    }
}

/// The spelling in comments (`RelayKey`) of a TOML key (`relay-key`).
fn name_of<'k>(key: &'k str, keys: &[&'static str]) -> Result<&'k str, String> {
    let found = keys.iter().find(|name| kebab(name) == key);
    match found {
        Some(name) => Ok(name),
        // Comments take any case; TOML takes one spelling.
        None if keys.iter().any(|name| name.eq_ignore_ascii_case(key)) => {
            let keys: Vec<String> = keys.iter().map(|name| kebab(name)).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            Err(format!("unknown key; {}", suggest(key, &keys)))
        }
        None => Ok(key),
    }
}

/// A TOML value as a comment would write it. Types without such a text become one that every key refuses.
fn value_of<'v>(value: &'v DeValue<'_>) -> Cow<'v, str> {
    match value {
        DeValue::String(text) => Cow::Borrowed(text),
        DeValue::Integer(number) => Cow::Owned(number.to_string()),
        DeValue::Boolean(true) => Cow::Borrowed("yes"),
        DeValue::Boolean(false) => Cow::Borrowed("no"),
        _ => Cow::Borrowed(""),
    }
}

/// `RelayKey` as `relay-key`.
fn kebab(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// Rewrites a sentence about keys in comments into one about TOML keys.
pub(super) fn in_toml(words: &str) -> String {
    let words = words
        .replace("[Uplinks]", "[uplinks]")
        .replace("[Uplink]", "[[uplink]]")
        .replace("`yes`", "`true`")
        .replace("`no`", "`false`")
        .replace("= yes`", "= true`");
    let mut keys = keys::names(LINES_KEYS);
    keys.extend(keys::names(LINE_KEYS));
    let parts = words.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric());
    let spelt = parts.map(|part| {
        let word = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        match keys.contains(&word) {
            true => Cow::Owned(kebab(word) + &part[word.len()..]),
            false => Cow::Borrowed(part),
        }
    });
    spelt.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{LINES_MAX, Line, LineMode};
    use crate::types::Key32;
    use proptest::prelude::*;
    use std::time::Duration;

    fn read(text: &str) -> (Lines, Vec<Entry>) {
        let root = DeTable::parse(text).unwrap();
        let [lines, line] = NAMES.map(|name| {
            let mut all = root.get_ref().iter();
            let (key, value) = all.find(|(key, _)| key.get_ref() == name)?;
            Some((value.get_ref(), line_of(text, key.span().start)))
        });
        Tables::read(text, lines, line).finish(false, 1)
    }

    fn refused(text: &str) -> Vec<(usize, String)> {
        let (_, entries) = read(text);
        let refused = entries
            .into_iter()
            .filter(|it| it.verdict == Verdict::Refused);
        let words = refused.map(|it| (it.line, format!("{}: {}", it.key, it.reason)));
        words.collect()
    }

    #[test]
    fn tables_say_what_comments_say() {
        let text = "[uplinks]\nmode = \"single\"\nhold = 5\nshape = true\nreorder = false\n\n\
            [[uplink]]\nname = \"fibre\"\ninterface = \"eth1\"\nrate = \"5M\"\n\n\
            [[uplink]]\nname = \"lte\"\ninterface = \"wwan0\"\nsource = \"192.0.2.1\"\nmark = 0x10\npriority = 20\n\
            metered = true\nrate = 50_000_000\n\n\
            [[uplink]]\nname = \"relayed\"\nrate = \"5M\"\nrelay = \"relay.example.com:51821\"\n\
            relay-key = \"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=\"\n";
        let (lines, entries) = read(text);
        let named = |name: &str| Line {
            name: name.to_owned(),
            rate: Some(5_000_000),
            ..Line::default()
        };
        let expected = vec![
            Line {
                interface: Some("eth1".to_owned()),
                ..named("fibre")
            },
            Line {
                interface: Some("wwan0".to_owned()),
                source: Some([192, 0, 2, 1].into()),
                mark: Some(16),
                priority: 20,
                metered: true,
                rate: Some(50_000_000),
                ..named("lte")
            },
            Line {
                relay: Some("relay.example.com:51821".parse().unwrap()),
                relay_key: Some(Key32::new([b'a'; 32])),
                ..named("relayed")
            },
        ];
        assert_eq!(
            (lines.mode, lines.hold),
            (LineMode::Single, Duration::from_secs(5))
        );
        assert_eq!((lines.shape, lines.reorder), (true, false));
        assert_eq!(lines.lines, expected);
        let of = |line: usize| {
            let entry = entries.iter().find(|entry| entry.line == line);
            entry.map(|it| (it.key.as_str(), it.verdict))
        };
        assert_eq!(of(3), Some(("hold", Verdict::Ignored)), "{entries:?}");
        assert_eq!(
            of(25),
            Some(("relay-key", Verdict::Honoured)),
            "{entries:?}"
        );
        assert!(!format!("{entries:?}{lines:?}").contains("YWFh"));
    }

    #[test]
    fn faults_name_the_key_and_the_place_as_the_file_spells_them() {
        for (text, line, words) in [
            ("[uplinks]\nmode = \"fast\"", 2, "mode: must be `failover`"),
            (
                "[uplinks]\nmodes = 1",
                2,
                "modes: unknown key; did you mean `mode`?",
            ),
            (
                "[uplinks]\nhold = -1",
                2,
                "hold: must be a number of seconds",
            ),
            (
                "[uplinks]\nhold = 1.5",
                2,
                "hold: must be a number of seconds",
            ),
            (
                "[uplinks]\nreorder = 1",
                2,
                "reorder: must be `true` or `false`",
            ),
            (
                "[uplinks]\nmode = \"failover\"",
                1,
                ": [uplinks] without an [[uplink]]",
            ),
            (
                "[uplinks]\nshape = true",
                1,
                "`shape = true` needs an [[uplink]], and a rate",
            ),
            ("uplinks = 1", 1, "uplinks: write a table: [uplinks]"),
            (
                "\n[uplink]\nname = \"a\"",
                2,
                "uplink: write a table for each uplink: [[uplink]]",
            ),
            (
                "uplink = [1]",
                1,
                "uplink: write a table for each uplink: [[uplink]]",
            ),
            (
                "[[uplink]]\nname = \"a\"",
                1,
                "no interface, source or relay",
            ),
            (
                "[[uplink]]\ninterface = \"a\"",
                1,
                "this [[uplink]] has no name",
            ),
            (
                "[[uplink]]\nname = 'a b'",
                2,
                "name: must be at most 32 letters",
            ),
            (
                "[[uplink]]\nname = []",
                2,
                "name: must be at most 32 letters",
            ),
            (
                "[[uplink]]\nName = 'a'",
                2,
                "Name: unknown key; did you mean `name`?",
            ),
            ("[[uplink]]\nrelaykey = 'a'", 2, "did you mean `relay-key`?"),
            (
                "[[uplink]]\nrelay_key = 'a'",
                2,
                "did you mean `relay-key`?",
            ),
            (
                "[[uplink]]\ninterfaces = 'a'",
                2,
                "did you mean `interface`?",
            ),
            ("[[uplink]]\nrate = 0", 2, "rate: must be bits per second"),
            ("[[uplink]]\nrate = 0b1", 2, "rate: must be bits per second"),
            (
                "[[uplink]]\nsource = 1979-05-27",
                2,
                "source: must be an address",
            ),
            ("[[uplink]]\nmark = {}", 2, "mark: must be a number from 1"),
            (
                "uplink = [{name='a', interface='e'}, {name='b', interface='e'}]",
                1,
                ": another [[uplink]] has the same interface, source and relay",
            ),
            (
                "[[uplink]]\nname='a'\ninterface='e'\n[[uplink]]\nname='b'\nrelay-key='YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE='",
                4,
                "a relay-key but no relay",
            ),
        ] {
            let refused = refused(text);
            let found = refused
                .iter()
                .any(|(at, why)| *at == line && why.contains(words));
            assert!(found, "{text}: {refused:?}");
        }
    }

    #[test]
    fn there_are_no_more_lines_than_numbers() {
        let text = "[[uplink]]\n".repeat(100);
        assert_eq!(read(&text).0.lines.len(), LINES_MAX);
        let more = refused(&text);
        let more = more
            .iter()
            .filter(|it| it.1 == "[[uplink]]: more than 16 uplinks");
        assert_eq!(more.count(), 100 - LINES_MAX);
    }

    proptest! {
        /// In any table each key has a verdict, and the honoured keys, written as comments, are read back unchanged.
        #[test]
        fn any_table_is_judged(
            keys in proptest::collection::btree_map(
                "[a-z-]{1,9}|name|interface|source|mark|priority|metered|rate|relay|relay-key",
                "true|false|[0-9]{1,12}|0x[0-9a-f]{1,9}|\"[ -!#-\\[\\]-~]{0,20}\"|\"eth[0-9]\"|\"[0-9]{1,3}[kMG]\"|1\\.5|\\[\\]",
                0..12,
            ),
        ) {
            let count = keys.len();
            let keys = keys.into_iter().map(|(key, value)| format!("{key} = {value}\n"));
            let text = format!("[[uplink]]\n{}", keys.collect::<String>());
            prop_assume!(DeTable::parse(&text).is_ok());
            let (lines, entries) = read(&text);
            prop_assert_eq!(entries.iter().filter(|it| it.line > 1).count(), count);
            if entries.iter().all(|it| it.verdict != Verdict::Refused) {
                let mut again = Sections::default();
                for (number, line) in lines.to_comments().lines().enumerate() {
                    again.comment(number, line.trim_start_matches("#!"));
                }
                prop_assert_eq!(again.finish(false, 1).lines, lines);
            }
        }
    }
}
