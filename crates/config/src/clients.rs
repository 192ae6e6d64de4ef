//! Clients of a WireGuard server, edited in the text of its file: adds, removes or changes one client and keeps every
//! other byte.
//!
//! Comments of its `[Peer]` section, which other programs skip, have the client's name, `#! Name = phone`, a note,
//! `#! Note = …`, and what is known of the file that the client got, `#! File = …`. A client that got a new file, but
//! has not used it, has a second section with the new file's key, and with the key that it replaces,
//! `#! Replaces = KEY`. The next new file's section replaces that one, and so on.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use zeroize::Zeroizing;

/// Longest name of a client, in bytes.
pub const NAME_MAX: usize = 63;

/// Whether a client may have this name: at most 63 letters, digits, `-`, `_` and `.`, a letter or digit first.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let first = name
        .bytes()
        .next()
        .is_some_and(|it| it.is_ascii_alphanumeric());
    first && name.len() <= NAME_MAX && name.bytes().all(fits)
}

/// Keys that stand in comments.
const COMMENTS: [&str; 6] = [
    "Name",
    "Note",
    "File",
    "Replaces",
    "PostQuantum",
    "PostQuantumAddress",
];

/// A `[Peer]` section.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Section {
    /// The client's name, if the section has one.
    pub name: Option<String>,
    /// The value of `#! Note`, if the section has one.
    pub note: Option<String>,
    /// The value of `#! File`, if the section has one.
    pub file: Option<String>,
    /// The public key of the section that this one replaces, as written, at the client's first use of the new key.
    pub replaces: Option<String>,
    /// `PublicKey`, as written.
    pub public_key: String,
    /// Byte range from the head to the last setting.
    bytes: Range<usize>,
}

impl Section {
    /// The section's text in its file.
    #[must_use]
    pub fn text<'a>(&self, file: &'a str) -> &'a str {
        &file[self.bytes.clone()]
    }

    /// The text of the section in its file, in which these keys have these values, as by [`with`].
    #[must_use]
    pub fn text_with(&self, file: &str, values: &[(&str, &str)]) -> Zeroizing<String> {
        let values: Vec<_> = values.iter().map(|(key, it)| (*key, Some(*it))).collect();
        self.text_after(file, &values)
    }

    /// The text of the section in its file, in which these keys have these values, or are missing.
    #[must_use]
    pub fn text_after(&self, file: &str, values: &[(&str, Option<&str>)]) -> Zeroizing<String> {
        let mut text = joined(&[self.text(file)]);
        for (key, value) in values {
            let section = sections(&text).into_iter().next().unwrap_or_default();
            text = match value {
                Some(value) => with(&text, &section, key, value),
                None => without(&text, key),
            };
        }
        text
    }

    /// The last value of a setting of the section.
    #[must_use]
    pub fn setting<'a>(&self, file: &'a str, key: &str) -> Option<&'a str> {
        let entries = self.text(file).lines().filter_map(Entry::of);
        entries
            .filter(|it| it.is(key))
            .map(|it| it.value)
            .next_back()
    }
}

/// The key and the value of a line.
struct Entry<'a> {
    /// A comment, `#! Key = value`, and no setting.
    is_comment: bool,
    key: &'a str,
    value: &'a str,
}

impl<'a> Entry<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let line = line.trim_start_matches('\u{feff}').trim();
        let (is_comment, text) = match line.strip_prefix("#!") {
            Some(comment) => (true, comment),
            None => (false, line.split('#').next().unwrap_or_default()),
        };
        let (key, value) = text.split_once('=')?;
        let (key, value) = (key.trim(), value.trim());
        Some(Self {
            is_comment,
            key,
            value,
        })
    }

    /// Whether this is the setting `key`, or for a key in comments a comment whose value has a meaning.
    fn is(&self, key: &str) -> bool {
        let has_meaning = match key {
            "Name" => self.is_comment && is_name(self.value),
            _ if COMMENTS.contains(&key) => self.is_comment && !self.value.is_empty(),
            _ => !self.is_comment,
        };
        has_meaning && self.key.eq_ignore_ascii_case(key)
    }
}

/// The name in the text behind a `#!`, if it is `Name = …` with a valid name.
pub(crate) fn name_in(comment: &str) -> Option<&str> {
    let (key, value) = comment.split_once('=')?;
    let value = value.trim();
    (key.trim().eq_ignore_ascii_case("Name") && is_name(value)).then_some(value)
}

/// Finds the sections of a file, in order. A comment after the last setting belongs to the next section: people write
/// comments above the head.
#[must_use]
pub fn sections(text: &str) -> Vec<Section> {
    let mut found: Vec<Section> = Vec::new();
    let (mut inside, mut start) = (false, 0);
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        let trimmed = line.trim_start_matches('\u{feff}').trim();
        let setting = trimmed.split('#').next().unwrap_or_default().trim();
        let comment = trimmed.strip_prefix("#!").map(str::trim);
        if setting.starts_with('[') {
            inside = setting.eq_ignore_ascii_case("[Peer]");
            if inside {
                found.push(Section {
                    bytes: start..end,
                    ..Section::default()
                });
            }
        } else if comment.is_some_and(|it| it.starts_with('[')) {
            inside = false;
        } else if let Some(section) = found.last_mut().filter(|_| inside)
            && let Some(entry) = Entry::of(line)
        {
            let value = || entry.value.to_owned();
            let known = COMMENTS.into_iter().find(|key| entry.is(key));
            match known {
                Some("Name") => section.name = Some(value()),
                Some("Note") => section.note = Some(value()),
                Some("File") => section.file = Some(value()),
                Some("Replaces") => section.replaces = Some(value()),
                None if entry.is("PublicKey") => section.public_key = value(),
                _ => {}
            }
            if !entry.is_comment || known.is_some() {
                section.bytes.end = end;
            }
        }
        start = end;
    }
    found
}

/// The text with `section` appended.
#[must_use]
pub fn added(text: &str, section: &str) -> Zeroizing<String> {
    let between = match text.is_empty() || text.ends_with('\n') {
        true => "\n",
        false => "\n\n",
    };
    joined(&[text, between, section])
}

/// The text without `section`, and without an empty line above it.
#[must_use]
pub fn removed(text: &str, section: &Section) -> Zeroizing<String> {
    changed(text, &[(section, None)])
}

/// The text with the texts of some of its sections replaced, or removed with the empty line above.
#[must_use]
pub fn changed(text: &str, changes: &[(&Section, Option<&str>)]) -> Zeroizing<String> {
    let mut changes = changes.to_vec();
    changes.sort_by_key(|(section, _)| section.bytes.start);
    let (mut parts, mut end) = (Vec::new(), 0);
    for (section, new) in changes {
        if section.bytes.start < end {
            // A second change of this section.
            continue;
        }
        let before = &text[end..section.bytes.start];
        let above = match before.strip_suffix('\n') {
            Some(rest) if new.is_none() && (rest.is_empty() || rest.ends_with('\n')) => rest,
            _ => before,
        };
        parts.extend([above, new.unwrap_or_default()]);
        end = section.bytes.end;
    }
    parts.push(&text[end..]);
    joined(&parts)
}

/// The text in which `key` of `section` has this value: a setting, or a key of the comments. Of several lines of the key
/// the last one stays, and what stands behind its value.
#[must_use]
pub fn with(text: &str, section: &Section, key: &str, value: &str) -> Zeroizing<String> {
    let mark = if COMMENTS.contains(&key) { "#! " } else { "" };
    let is_it = |line: &str| Entry::of(line).is_some_and(|entry| entry.is(key));
    let lines = text[section.bytes.clone()].split_inclusive('\n');
    let last = lines.clone().enumerate().filter(|(_, line)| is_it(line));
    let last = last.last().map(|(number, _)| number);
    let mut parts = vec![&text[..section.bytes.start]];
    for (number, line) in lines.enumerate() {
        match is_it(line) {
            true if last == Some(number) => {
                let at = line.find('=').map_or(0, |it| it + 1);
                let old = Entry::of(line).map_or("", |entry| entry.value);
                let gap = line[at..].find(old).unwrap_or(0);
                parts.extend([&line[..at + gap], value, &line[at + gap + old.len()..]]);
            }
            true => {}
            false => parts.push(line),
        }
        if number == 0 && last.is_none() {
            // The head may be the file's last line, without its end.
            let end = if line.ends_with('\n') { "" } else { "\n" };
            parts.extend([end, mark, key, " = ", value, "\n"]);
        }
    }
    parts.push(&text[section.bytes.end..]);
    joined(&parts)
}

/// The text of a section without the lines of `key`.
fn without(section: &str, key: &str) -> Zeroizing<String> {
    let is_it = |line: &&str| Entry::of(line).is_some_and(|entry| entry.is(key));
    let lines = section.split_inclusive('\n').filter(|it| !is_it(it));
    joined(&lines.collect::<Vec<_>>())
}

/// The text, whose sections get the comments `#! Key = value` that sections of the same keys have in an `older` text;
/// without `Replaces`, if the text lacks the replaced key.
#[must_use]
pub fn with_comments(text: &str, older: &str) -> Zeroizing<String> {
    let known = sections(older).into_iter();
    let known: HashMap<String, Range<usize>> = known.map(|it| (it.public_key, it.bytes)).collect();
    let (mut parts, mut end) = (Vec::new(), 0);
    let sections = sections(text);
    let keys: HashSet<&str> = sections.iter().map(|it| &*it.public_key).collect();
    let is_kept = |it: Entry<'_>| it.is_comment && (!it.is("Replaces") || keys.contains(it.value));
    for section in &sections {
        let Some(bytes) = known.get(&section.public_key) else {
            continue;
        };
        let head = text[section.bytes.clone()].find('\n');
        let head = head.map_or(section.bytes.end, |at| section.bytes.start + at + 1);
        parts.push(&text[end..head]);
        end = head;
        let lines = older[bytes.clone()].lines();
        for line in lines.filter(|line| Entry::of(line).is_some_and(is_kept)) {
            parts.extend([line, "\n"]);
        }
    }
    parts.push(&text[end..]);
    joined(&parts)
}

/// Joins parts into a text with keys. Allocates once: a string that grows leaves copies of keys behind.
#[must_use]
pub fn joined(parts: &[&str]) -> Zeroizing<String> {
    let mut out = Zeroizing::new(String::with_capacity(parts.iter().map(|it| it.len()).sum()));
    for part in parts {
        out.push_str(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: &str = "# the house\r\n[Interface]\nPrivateKey = k # mine\n#! [Server]\n#! Masquerade = yes\n\n\
        # of the first\n[Peer] # a\n#! Name = phone\nPublicKey = AAA=\n\n# above the second\n\
        [peer]\npublickey=BBB= # no name\nAllowedIPs = 10.0.0.3/32\n# the last word\n\
        #! [Uplinks]\n#! Mode = duplicate\n#! Name = none";

    #[test]
    fn sections_end_with_their_last_setting() {
        let found = sections(FILE);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].name.as_deref(), Some("phone"));
        assert_eq!((&*found[1].public_key, &found[1].name), ("BBB=", &None));
        let first = &FILE[found[0].bytes.clone()];
        assert_eq!(first, "[Peer] # a\n#! Name = phone\nPublicKey = AAA=\n");
        let second = &FILE[found[1].bytes.clone()];
        assert!(second.ends_with("10.0.0.3/32\n"), "{second}");
        let without = removed(FILE, &found[1]);
        assert_eq!(*without, FILE.replace(second, ""));
        let named = with(FILE, &found[0], "Name", "tablet");
        assert_eq!(*named, FILE.replace("phone", "tablet"));
        let named = with(FILE, &found[1], "Name", "tablet");
        assert_eq!(
            *named,
            FILE.replace("[peer]\n", "[peer]\n#! Name = tablet\n")
        );
        assert_eq!(sections(&named)[1].name.as_deref(), Some("tablet"));
    }

    #[test]
    fn a_setting_or_a_note_goes_and_the_rest_of_the_section_stays() {
        let text = "[Peer] # a\n#! Note = one\n# mine\nPublicKey = K=\npersistentkeepalive=25 # s\n#! Note = two\n";
        let section = &sections(text)[0];
        let wanted = "[Peer] # a\n#! Name = x\n# mine\nPublicKey = K=\n";
        let values = [
            ("Note", None),
            ("PersistentKeepalive", None),
            ("Name", Some("x")),
        ];
        assert_eq!(*section.text_after(text, &values), *wanted);
        assert_eq!(*section.text_after(text, &[("Replaces", None)]), *text);
    }

    #[test]
    fn a_setting_changes_and_what_stands_around_it_stays() {
        let head = "[Peer]\r\n#! Name = a b\n AllowedIPs=10.0.0.2/32  # its own\n";
        let file = format!("{head}PublicKey = K=\nallowedips = fd00::2/128\n# end");
        let ranges = "10.0.0.2/32, 192.168.7.0/24";
        let section = &sections(&file)[0];
        let set = with(&file, section, "AllowedIPs", ranges);
        let wanted = file.replace("fd00::2/128", ranges);
        assert_eq!(
            *set,
            wanted.replace(" AllowedIPs=10.0.0.2/32  # its own\n", "")
        );
        let single = head.replace("10.0.0.2/32", ranges);
        assert_eq!(
            *with(head, &sections(head)[0], "AllowedIPs", ranges),
            single
        );
        let known = with(&file, section, "File", "12345678 lan");
        let wanted = file.replace("[Peer]\r\n", "[Peer]\r\n#! File = 12345678 lan\n");
        assert_eq!(*known, wanted);
        let section = &sections(&known)[0];
        assert_eq!(section.file.as_deref(), Some("12345678 lan"));
        assert_eq!(*removed(&known, section), "# end");
        let bare = &sections("[Peer]")[0];
        assert_eq!(*with("[Peer]", bare, "Name", "x"), "[Peer]\n#! Name = x\n");
        let empty = "[Peer]\nAllowedIPs =\nPublicKey = K=";
        let set = with(empty, &sections(empty)[0], "AllowedIPs", ranges);
        assert_eq!(
            *set,
            empty.replace("AllowedIPs =", &format!("AllowedIPs ={ranges}"))
        );
    }

    #[test]
    fn comments_of_an_older_text_are_kept_by_key() {
        let older = "[Peer]\r\n #! Name = phone\n# other\nPublicKey = A=\n#! File = 1 lan\n\n\
            [Peer]\nPublicKey = B=\n[Peer]\nPublicKey = C=\n#! Name = gone\n#! [Uplinks]\n#! Mode = single\n";
        let text = "[Interface]\n\n[Peer]\nPublicKey = B=\n\n[Peer]\nPublicKey = A=\n[Peer]\nPublicKey = D=";
        let kept = with_comments(text, older);
        let wanted = text.replace(
            "[Peer]\nPublicKey = A=",
            "[Peer]\n #! Name = phone\n#! File = 1 lan\nPublicKey = A=",
        );
        assert_eq!(*kept, wanted);
    }

    #[test]
    fn a_key_that_has_replaced_another_says_so_no_longer() {
        let peer = |key: &str, comment: &str| format!("[Peer]\n{comment}PublicKey = {key}\n");
        let older = peer("A=", "#! Name = phone\n")
            + &peer("B=", "#! Name = phone\n#! Replaces = A=\n")
            + &peer("C=", "#! Name = phone\n#! Replaces = B=\n");
        for (text, wanted) in [
            (["A=", "B=", "C="].as_slice(), older.clone()),
            // The client has used its second file, which has the ranges now.
            (
                &["B=", "C="],
                peer("B=", "#! Name = phone\n")
                    + &peer("C=", "#! Name = phone\n#! Replaces = B=\n"),
            ),
            (&["C="], peer("C=", "#! Name = phone\n")),
        ] {
            let text: String = text.iter().map(|it| peer(it, "")).collect();
            assert_eq!(*with_comments(&text, &older), wanted);
        }
    }

    #[test]
    fn names_are_checked() {
        for good in ["a", "Phone-2_x.y", "9", &"a".repeat(63)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-a", ".a", "a b", "a/b", "ä", "a\n", &"a".repeat(64)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    /// Files made of lines that a person may write.
    fn files() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            Just("[Interface]"),
            Just("[Peer]"),
            Just(" [peer] # x"),
            Just(""),
            Just("# c"),
            Just("#! Name = old"),
            Just("#! Name = not one"),
            Just("#! File = 12345678 full"),
            Just("AllowedIPs = 10.0.0.3/32 # its own"),
            Just("PublicKey = K="),
            Just("AllowedIPs = 10.0.0.0/8"),
            Just("#! [Uplinks]"),
            Just("#! [Server]"),
            Just("no setting"),
            Just("\u{feff}[Peer]"),
        ];
        let end = prop_oneof![Just("\n"), Just("\r\n")];
        proptest::collection::vec((line, end), 0..20).prop_map(|lines| {
            lines
                .iter()
                .map(|(line, end)| format!("{line}{end}"))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_added_and_removed_leaves_no_difference(file in files()) {
            let before = sections(&file);
            let with = added(&file, "[Peer]\n#! Name = new\nPublicKey = N=\n");
            let found = sections(&with);
            prop_assert_eq!(found.len(), before.len() + 1);
            prop_assert_eq!(&found[..before.len()], &before[..]);
            let new = found.last().unwrap();
            prop_assert_eq!(new.name.as_deref(), Some("new"));
            prop_assert_eq!(&*removed(&with, new), &*file);
        }

        #[test]
        fn one_removed_takes_no_other_with_it(file in files()) {
            let found = sections(&file);
            for (at, section) in found.iter().enumerate() {
                let left = sections(&removed(&file, section));
                let names = |it: &[Section]| -> Vec<_> {
                    it.iter().map(|it| (it.name.clone(), it.public_key.clone())).collect()
                };
                let mut rest = found.clone();
                rest.remove(at);
                prop_assert_eq!(names(&left), names(&rest));
            }
        }

        #[test]
        fn a_value_that_is_set_is_read_and_changes_no_other_line(file in files()) {
            for (at, section) in sections(&file).iter().enumerate() {
                for key in ["Name", "File", "AllowedIPs"] {
                    let set = with(&file, section, key, "changed");
                    let (before, after) = (&file[..section.bytes.start], &file[section.bytes.end..]);
                    prop_assert!(set.starts_with(before) && set.ends_with(after));
                    let inner = &set[before.len()..set.len() - after.len()];
                    let others = |text: &str| -> Vec<String> {
                        let is_it = |line: &&str| Entry::of(line).is_some_and(|it| it.is(key));
                        text.lines().filter(|it| !is_it(it)).map(str::to_owned).collect()
                    };
                    prop_assert_eq!(others(inner), others(&file[section.bytes.clone()]));
                    let now = &sections(&set)[at];
                    prop_assert_eq!(&set[now.bytes.clone()], inner);
                    let lines = inner.lines().filter_map(Entry::of).filter(|it| it.is(key));
                    prop_assert_eq!(lines.map(|it| it.value).collect::<Vec<_>>(), ["changed"]);
                    let again = with(&set, now, key, "changed");
                    prop_assert_eq!(&*again, &*set);
                }
            }
        }
    }
}
