//! X.509 names, as OpenVPN prints and compares them: `C=DE, O=Example, CN=server`.

use crate::der::{self, BadDer, Reader};

/// OpenSSL's short names of the parts of a name.
const SHORT_NAMES: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 13], "description"),
    (&[0x55, 4, 15], "businessCategory"),
    (&[0x55, 4, 17], "postalCode"),
    (&[0x55, 4, 20], "telephoneNumber"),
    (&[0x55, 4, 41], "name"),
    (&[0x55, 4, 42], "GN"),
    (&[0x55, 4, 43], "initials"),
    (&[0x55, 4, 44], "generationQualifier"),
    (&[0x55, 4, 45], "x500UniqueIdentifier"),
    (&[0x55, 4, 46], "dnQualifier"),
    (&[0x55, 4, 65], "pseudonym"),
    (&[0x55, 4, 97], "organizationIdentifier"),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
        "emailAddress",
    ),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2],
        "unstructuredName",
    ),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 8],
        "unstructuredAddress",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
        "UID",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
        "DC",
    ),
];

/// One part of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// OpenSSL's short name, or the identifier in dotted form.
    label: String,
    /// Whether `label` is a short name.
    known: bool,
    value: String,
    /// Whether this part is in one set with the part before.
    joined: bool,
}

/// A distinguished name, in order of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    parts: Vec<Part>,
}

impl Name {
    /// Reads a name from the content of its SEQUENCE.
    pub(crate) fn parse(content: &[u8]) -> Result<Self, BadDer> {
        let mut parts = Vec::new();
        let mut sets = Reader::new(content);
        while !sets.is_empty() {
            let mut set = sets.inside(der::SET)?;
            let mut joined = false;
            while !set.is_empty() {
                let mut part = set.inside(der::SEQUENCE)?;
                let oid = part.content(der::OID)?;
                let value = part.any()?;
                let short = SHORT_NAMES.iter().find(|(known, _)| *known == oid);
                parts.push(Part {
                    label: short.map_or_else(|| der::dotted(oid), |(_, name)| (*name).to_owned()),
                    known: short.is_some(),
                    value: text(value.tag, value.content),
                    joined,
                });
                joined = true;
            }
        }
        Ok(Self { parts })
    }

    /// The value of the last part with this label: a short name or a dotted identifier.
    pub(crate) fn last(&self, label: &str) -> Option<String> {
        let label = match label {
            // OpenSSL's long names of the parts that are requested most.
            "commonName" => "CN",
            "userId" => "UID",
            "organizationName" => "O",
            "organizationalUnitName" => "OU",
            other => other,
        };
        let part = self.parts.iter().rfind(|part| {
            part.label == label
                || SHORT_NAMES
                    .iter()
                    .any(|(oid, name)| *name == part.label && der::dotted(oid) == label)
        })?;
        Some(part.value.chars().map(printable).collect())
    }

    /// The parts that have a short name, in order, with unprintable characters replaced.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        let known = self.parts.iter().filter(|part| part.known);
        known
            .map(|part| {
                (
                    part.label.clone(),
                    part.value.chars().map(printable).collect(),
                )
            })
            .collect()
    }
}

impl std::fmt::Display for Name {
    /// Control characters become `\XX`, so that a name is one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                f.write_str(if part.joined { " + " } else { ", " })?;
            }
            write!(f, "{}=", part.label)?;
            for character in part.value.chars() {
                if u32::from(character) < 0x20 || character == '\x7f' {
                    write!(f, "\\{:02X}", u32::from(character))?;
                } else {
                    write!(f, "{character}")?;
                }
            }
        }
        Ok(())
    }
}

/// Whether two names, each the content of its SEQUENCE, are equal (RFC 5280 §7.1).
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    one == other || canonical(one) == canonical(other)
}

/// The canonical form of a name, which is the content of its SEQUENCE: equal names have equal forms. Kinds of string,
/// the case of ASCII and repeated spaces do not count, as in OpenSSL. Bytes that are not a name are equal only to
/// themselves.
pub(crate) fn canonical(content: &[u8]) -> Vec<u8> {
    canonical_sets(content).unwrap_or_else(|BadDer| [&[0], content].concat())
}

fn canonical_sets(content: &[u8]) -> Result<Vec<u8>, BadDer> {
    let mut name = vec![1];
    let mut sets = Reader::new(content);
    while !sets.is_empty() {
        let mut set = sets.inside(der::SET)?;
        let mut parts = Vec::new();
        while !set.is_empty() {
            let mut part = set.inside(der::SEQUENCE)?;
            let oid = part.content(der::OID)?;
            let value = part.any()?;
            // A tag of 0 stands for all kinds of string.
            let (tag, value) = if STRINGS.contains(&value.tag) {
                let text = text(value.tag, value.content).to_ascii_lowercase();
                let words: Vec<_> = text.split(BLANKS).filter(|word| !word.is_empty()).collect();
                (0, words.join(" ").into_bytes())
            } else {
                (value.tag, value.content.to_vec())
            };
            parts.push((oid, tag, value));
        }
        // The parts are a set; their order depends on their encoding.
        parts.sort();
        put(&mut name, &parts.len().to_be_bytes());
        for (oid, tag, value) in parts {
            put(&mut name, oid);
            put(&mut name, &[tag]);
            put(&mut name, &value);
        }
    }
    Ok(name)
}

/// Appends a field with its length.
fn put(name: &mut Vec<u8>, field: &[u8]) {
    name.extend_from_slice(&field.len().to_be_bytes());
    name.extend_from_slice(field);
}

/// UTF8String, NumericString, PrintableString, T61String, IA5String, VisibleString,
/// UniversalString and BMPString.
const STRINGS: [u8; 8] = [0x0c, 0x12, 0x13, 0x14, 0x16, 0x1a, 0x1c, 0x1e];

/// The characters that C's `isspace` calls spaces.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];

/// Replaces control characters and line ends for scripts and logs.
fn printable(character: char) -> char {
    if character.is_control() {
        '_'
    } else {
        character
    }
}

/// The text of one of ASN.1's kinds of string.
fn text(tag: u8, content: &[u8]) -> String {
    const UTF8: u8 = 0x0c;
    const UNIVERSAL: u8 = 0x1c;
    const BMP: u8 = 0x1e;
    match tag {
        UTF8 => String::from_utf8_lossy(content).into_owned(),
        BMP => {
            let units = content
                .chunks_exact(2)
                .map(|two| u16::from_be_bytes([two[0], two[1]]));
            char::decode_utf16(units)
                .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect()
        }
        UNIVERSAL => content
            .chunks_exact(4)
            .map(|four| {
                let code = u32::from_be_bytes([four[0], four[1], four[2], four[3]]);
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            })
            .collect(),
        // Printable, IA5 and numeric strings are ASCII; T61 is taken for Latin-1, as OpenSSL does.
        _ => content.iter().map(|&byte| char::from(byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wraps `content` into an element of less than 128 bytes.
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag, content.len() as u8];
        bytes.extend_from_slice(content);
        bytes
    }

    fn part(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        element(
            der::SEQUENCE,
            &[element(der::OID, oid), element(tag, value)].concat(),
        )
    }

    #[test]
    fn names_print_as_openvpn_prints_them() {
        let name = [
            element(der::SET, &part(&[0x55, 4, 6], 0x13, b"DE")),
            element(
                der::SET,
                &[
                    part(&[0x55, 4, 10], 0x0c, "M\u{fc}hle".as_bytes()),
                    part(&[0x55, 4, 11], 0x14, b"n\xe4"),
                ]
                .concat(),
            ),
            element(der::SET, &part(&[0x55, 4, 3], 0x1e, &[0, b'a', 0, 7])),
            element(der::SET, &part(&[0x2a, 3, 4], 0x0c, b"x")),
        ]
        .concat();
        let name = Name::parse(&name).expect("a name");
        assert_eq!(
            name.to_string(),
            "C=DE, O=M\u{fc}hle + OU=n\u{e4}, CN=a\\07, 1.2.3.4=x"
        );
        assert_eq!(name.last("CN").as_deref(), Some("a_"));
        assert_eq!(name.last("2.5.4.3").as_deref(), Some("a_"));
        assert_eq!(name.last("ST"), None);
        assert_eq!(name.fields().len(), 4);
    }

    #[test]
    fn the_last_of_several_counts() {
        let name = [b"first".as_slice(), b"second"]
            .map(|value| element(der::SET, &part(&[0x55, 4, 3], 0x0c, value)))
            .concat();
        assert_eq!(
            Name::parse(&name).expect("a name").last("CN").as_deref(),
            Some("second")
        );
    }

    #[test]
    fn names_are_the_same_whatever_their_strings_are() {
        let name = |tag, text: &[u8]| element(der::SET, &part(&[0x55, 4, 3], tag, text));
        let printable = name(0x13, b"Office CA");
        for (tag, text) in [
            (0x0c, b"Office CA".as_slice()),
            (0x0c, b" office  ca "),
            (0x14, b"Office CA"),
            (0x1e, b"\0O\0f\0f\0i\0c\0e\0 \0C\0A"),
        ] {
            assert!(same(&printable, &name(tag, text)), "{tag:#x} {text:?}");
        }
        for (tag, text) in [
            (0x0c, b"Office CB".as_slice()),
            (0x0c, b"OfficeCA"),
            (0x04, b"Office CA"),
            (0x0c, b""),
        ] {
            assert!(!same(&printable, &name(tag, text)), "{tag:#x} {text:?}");
        }
        let umlaut = |tag, text: &[u8]| name(tag, text);
        assert!(same(
            &umlaut(0x0c, "M\u{fc}hle".as_bytes()),
            &umlaut(0x14, b"M\xfchle")
        ));
        // Two parts in one set are not two sets.
        let parts = [
            part(&[0x55, 4, 3], 0x13, b"a"),
            part(&[0x55, 4, 10], 0x13, b"b"),
        ];
        let joined = element(der::SET, &parts.concat());
        let apart = parts.map(|part| element(der::SET, &part)).concat();
        assert!(!same(&joined, &apart));
        // Bytes that are not a valid name are compared as they are.
        assert!(same(b"x", b"x") && !same(b"x", b"X") && !same(b"x", &printable));
    }

    #[test]
    fn a_nul_cannot_hide_what_follows() {
        let name = element(der::SET, &part(&[0x55, 4, 3], 0x0c, b"server\0.evil"));
        assert_eq!(
            Name::parse(&name).expect("a name").last("CN").as_deref(),
            Some("server_.evil")
        );
    }
}
