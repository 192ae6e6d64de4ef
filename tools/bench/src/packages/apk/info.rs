//! The description of a package, in the package and in an index, and its dependencies.

use super::ApkError;
use crate::packages::adb::{NULL, Reader, Writer};
use crate::packages::apk::Limited;
use std::collections::BTreeMap;

/// How a dependency's version is compared.
mod compare {
    pub(super) const EQUAL: u64 = 1;
    pub(super) const LESS: u64 = 2;
    pub(super) const GREATER: u64 = 4;
    pub(super) const FUZZY: u64 = 8;
    pub(super) const CONFLICT: u64 = 16;
    /// Bits of a dependency without a version.
    pub(super) const ANY: u64 = EQUAL | LESS | GREATER;
}

/// The description of a package, in a package and in an index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info {
    /// Name of the package.
    pub name: String,
    /// The version, such as `1.2.3-r1`.
    pub version: String,
    /// In a package, 20 bytes that identify the build; in an index, the SHA-256 of the package's ADB.
    pub identity: Vec<u8>,
    /// Purpose of the package, in one line.
    pub description: String,
    /// An architecture of `/etc/apk/arch`, or `noarch`.
    pub architecture: String,
    /// The SPDX name of the licence.
    pub license: String,
    /// The source package. Packages of the same origin may overwrite each other's files.
    pub origin: String,
    /// The maintainer's name and address.
    pub maintainer: String,
    /// The project's web page.
    pub url: String,
    /// Build date, in seconds since 1970.
    pub date: u64,
    /// Total size of the files, in bytes.
    pub installed_size: u64,
    /// Size of the package, in bytes; only in an index.
    pub file_size: u64,
    /// `NAME`, `NAME>=VERSION`, `!NAME`.
    pub depends: Vec<String>,
    /// `NAME` or `NAME=VERSION`.
    pub provides: Vec<String>,
}

/// Writes the description and returns its word.
pub(crate) fn write(writer: &mut Writer, info: &Info) -> Result<u32, ApkError> {
    let mut slots = [NULL; 16];
    let texts = [
        (1, &info.name),
        (2, &info.version),
        (4, &info.description),
        (5, &info.architecture),
        (6, &info.license),
        (7, &info.origin),
        (8, &info.maintainer),
        (9, &info.url),
    ];
    for (number, text) in texts {
        slots[number - 1] = writer.blob(text.as_bytes());
    }
    slots[2] = writer.own_blob(&info.identity);
    slots[10] = writer.int(info.date);
    slots[11] = writer.int(info.installed_size);
    if info.file_size != 0 {
        slots[12] = writer.int(info.file_size);
    }
    slots[14] = write_dependencies(writer, &info.depends)?;
    slots[15] = write_dependencies(writer, &info.provides)?;
    Ok(writer.object(&slots))
}

/// Reads the description that `word` refers to.
pub(crate) fn read(reader: &mut Limited<'_>, word: u32) -> Result<Info, ApkError> {
    let slots = reader.object(word)?;
    let mut text = |number| {
        let text = reader.text(Reader::slot(&slots, number))?;
        Ok::<_, ApkError>(text.to_owned())
    };
    let mut info = Info {
        name: text(1)?,
        version: text(2)?,
        description: text(4)?,
        architecture: text(5)?,
        license: text(6)?,
        origin: text(7)?,
        maintainer: text(8)?,
        url: text(9)?,
        ..Info::default()
    };
    let int = |number| match Reader::slot(&slots, number) {
        NULL => Ok(0),
        word => reader.int(word),
    };
    info.date = int(11)?;
    info.installed_size = int(12)?;
    info.file_size = int(13)?;
    info.identity = reader.blob(Reader::slot(&slots, 3))?.to_vec();
    info.depends = read_dependencies(reader, Reader::slot(&slots, 15))?;
    info.provides = read_dependencies(reader, Reader::slot(&slots, 16))?;
    Ok(info)
}

/// Writes dependencies sorted by name, each name once, as apk expects.
fn write_dependencies(writer: &mut Writer, texts: &[String]) -> Result<u32, ApkError> {
    let mut sorted = BTreeMap::new();
    for text in texts {
        let wrong = || ApkError::Dependency(text.clone());
        let conflict = text.starts_with('!');
        let rest = text.trim_start_matches('!');
        let name_end = rest.find(['<', '>', '=', '~']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(name_end);
        let version = rest.trim_start_matches(['<', '>', '=', '~']);
        let signs = &rest[..rest.len() - version.len()];
        let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
        if !is_name
            || (signs.is_empty() != version.is_empty())
            || version.contains(char::is_whitespace)
        {
            return Err(wrong());
        }
        let bits = signs.chars().fold(0, |bits, sign| {
            bits | match sign {
                '<' => compare::LESS,
                '>' => compare::GREATER,
                '~' => compare::FUZZY,
                _ => compare::EQUAL,
            }
        });
        let bits = match (bits, conflict) {
            (0, false) => 0,
            (0, true) => compare::ANY | compare::CONFLICT,
            (bits, false) => bits,
            (bits, true) => bits | compare::CONFLICT,
        };
        if sorted.insert(name, (version, bits)).is_some() {
            return Err(wrong());
        }
    }
    let mut words = Vec::new();
    for (name, (version, bits)) in sorted {
        let name = writer.blob(name.as_bytes());
        let version = writer.blob(version.as_bytes());
        // Equality is the default and is not written.
        let bits = match bits {
            0 | compare::EQUAL => NULL,
            bits => writer.int(bits),
        };
        words.push(writer.object(&[name, version, bits]));
    }
    Ok(writer.array(&words))
}

fn read_dependencies(reader: &mut Limited<'_>, word: u32) -> Result<Vec<String>, ApkError> {
    let mut texts = Vec::new();
    for word in reader.array(word)? {
        let slots = reader.object(word)?;
        let name = reader.text(Reader::slot(&slots, 1))?;
        let version = reader.text(Reader::slot(&slots, 2))?;
        let bits = match Reader::slot(&slots, 3) {
            NULL if version.is_empty() => 0,
            NULL => compare::EQUAL,
            word => reader.int(word)?,
        };
        let not = if bits & compare::CONFLICT == 0 {
            ""
        } else {
            "!"
        };
        let signs: String = [
            (compare::LESS, '<'),
            (compare::GREATER, '>'),
            (compare::FUZZY, '~'),
            (compare::EQUAL, '='),
        ]
        .iter()
        .filter(|(bit, _)| bits & bit != 0 && !version.is_empty())
        .map(|(_, sign)| *sign)
        .collect();
        texts.push(format!("{not}{name}{signs}{version}"));
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::apk::LONGEST;

    fn round(texts: &[&str]) -> Result<Vec<String>, ApkError> {
        let texts: Vec<String> = texts.iter().map(|&it| it.to_owned()).collect();
        let mut writer = Writer::default();
        let word = write_dependencies(&mut writer, &texts)?;
        let payload = writer.finish(word).unwrap();
        let reader = Reader::new(&payload)?;
        read_dependencies(&mut Limited::new(reader), reader.root())
    }

    /// Writes a root and reads it back.
    fn read_written(root: impl FnOnce(&mut Writer) -> u32) -> Result<Info, ApkError> {
        let mut writer = Writer::default();
        let root = root(&mut writer);
        let payload = writer.finish(root).unwrap();
        let reader = Reader::new(&payload)?;
        read(&mut Limited::new(reader), reader.root())
    }

    #[test]
    fn a_text_has_an_end() {
        let description = |length: usize| {
            read_written(|writer| {
                let text = writer.blob(&vec![b'a'; length]);
                writer.object(&[NULL, NULL, NULL, text])
            })
        };
        let longest = description(LONGEST).unwrap();
        assert_eq!(longest.description.len(), LONGEST);
        assert!(matches!(
            description(LONGEST + 1),
            Err(ApkError::Content(_))
        ));
    }

    /// A file of 150 kB at most that would expand to more than a gigabyte.
    #[test]
    fn a_value_that_is_referred_to_again_and_again_is_not_copied_without_end() {
        let dependencies = |writer: &mut Writer, count, name_length: usize| {
            let name = writer.blob(&vec![b'a'; name_length]);
            let dependency = writer.object(&[name]);
            writer.array(&vec![dependency; count])
        };
        let of = |dependencies: u32| {
            let mut slots = [NULL; 16];
            slots[14] = dependencies;
            slots
        };
        let long = read_written(|writer| {
            let dependencies = dependencies(writer, 19_000, LONGEST);
            writer.object(&of(dependencies))
        });
        assert!(matches!(long, Err(ApkError::Content(_))), "long names");
        let mut writer = Writer::default();
        // A name of a single letter, because empty values are not written.
        let many = dependencies(&mut writer, 19_000, 1);
        let info = writer.object(&of(many));
        let infos = writer.array(&vec![info; 19_000]);
        let payload = writer.finish(infos).unwrap();
        let mut reader = Limited::new(Reader::new(&payload).unwrap());
        let words = reader.array(infos).unwrap();
        let read = words
            .into_iter()
            .try_for_each(|it| read(&mut reader, it).map(drop));
        assert!(matches!(read, Err(ApkError::Content(_))), "many names");
    }

    #[test]
    fn dependencies_are_sorted_and_keep_what_they_ask_for() {
        let texts = [
            "kmod-tun",
            "a=1.0-r1",
            "!openvpn-openssl",
            "b>=2",
            "c<3",
            "d~4",
        ];
        let expected = [
            "a=1.0-r1",
            "b>=2",
            "c<3",
            "d~4",
            "kmod-tun",
            "!openvpn-openssl",
        ];
        assert_eq!(round(&texts).unwrap(), expected);
        assert_eq!(round(&[]).unwrap(), [""; 0]);
        for text in ["", "!", "a=", "a b", "=1"] {
            assert!(round(&[text]).is_err(), "{text:?}");
        }
        assert!(round(&["a", "a>1"]).is_err(), "twice");
    }
}
