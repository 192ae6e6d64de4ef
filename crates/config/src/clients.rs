//! Clients of a WireGuard server, edited in the text of its file: adds, removes or renames one client and keeps every
//! other byte.
//!
//! A client's name stands in a comment of its `[Peer]` section, `#! Name = phone`, which other programs skip.

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

/// A `[Peer]` section.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Section {
    /// The client's name, if the section has one.
    pub name: Option<String>,
    /// `PublicKey`, as written.
    pub public_key: String,
    /// Byte range from the head to the last setting.
    bytes: Range<usize>,
    /// Byte range of the name.
    name_bytes: Option<Range<usize>>,
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
                    name: None,
                    public_key: String::new(),
                    bytes: start..end,
                    name_bytes: None,
                });
            }
        } else if comment.is_some_and(|it| it.starts_with('[')) {
            inside = false;
        } else if let Some(section) = found.last_mut().filter(|_| inside)
            && let Some((key, value)) = comment.unwrap_or(setting).split_once('=')
        {
            let (key, value) = (key.trim(), value.trim());
            if comment.is_none() {
                section.bytes.end = end;
                if key.eq_ignore_ascii_case("PublicKey") {
                    value.clone_into(&mut section.public_key);
                }
            } else if key.eq_ignore_ascii_case("Name") && is_name(value) {
                let at = start + line.rfind(value).unwrap_or(0);
                section.bytes.end = end;
                section.name = Some(value.to_owned());
                section.name_bytes = Some(at..at + value.len());
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
    joined([text, between, section])
}

/// The text without `section`, and without an empty line above it.
#[must_use]
pub fn removed(text: &str, section: &Section) -> Zeroizing<String> {
    let before = &text[..section.bytes.start];
    let before = match before.strip_suffix('\n') {
        Some(rest) if rest.is_empty() || rest.ends_with('\n') => rest,
        _ => before,
    };
    joined([before, &text[section.bytes.end..], ""])
}

/// The text with the client of `section` renamed.
#[must_use]
pub fn renamed(text: &str, section: &Section, name: &str) -> Zeroizing<String> {
    match &section.name_bytes {
        Some(at) => joined([&text[..at.start], name, &text[at.end..]]),
        None => {
            let head = &text[section.bytes.clone()];
            let line = head
                .find('\n')
                .map_or(section.bytes.end, |it| section.bytes.start + it + 1);
            joined([&text[..line], &format!("#! Name = {name}\n"), &text[line..]])
        }
    }
}

/// Allocates once: a string that grows leaves copies of keys behind.
fn joined(parts: [&str; 3]) -> Zeroizing<String> {
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
        let named = renamed(FILE, &found[0], "tablet");
        assert_eq!(*named, FILE.replace("phone", "tablet"));
        let named = renamed(FILE, &found[1], "tablet");
        assert_eq!(
            *named,
            FILE.replace("[peer]\n", "[peer]\n#! Name = tablet\n")
        );
        assert_eq!(sections(&named)[1].name.as_deref(), Some("tablet"));
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
    }
}
