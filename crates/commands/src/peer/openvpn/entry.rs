//! A line of the list of clients.

use crate::peer::file::Record;
use std::fmt;

/// A client in the list.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Entry {
    /// The certificate's serial number.
    pub(super) serial: String,
    /// The name in the client's certificate, which never changes.
    pub(super) common_name: String,
    pub(super) name: String,
    /// The serial number of the client's certificate that this one replaces, once it is used.
    pub(super) replaces: Option<String>,
    /// The record of the client's file.
    pub(super) file: Option<String>,
    pub(super) note: Option<String>,
    pub(super) revoked: bool,
}

impl Entry {
    /// Reads a line of the list.
    pub(super) fn read(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ').map(str::to_owned);
        let mut entry = Self {
            serial: words.next()?,
            common_name: words.next()?,
            name: words.next()?,
            ..Self::default()
        };
        let rest = words.next().unwrap_or_default();
        let mut rest = rest.as_str();
        while let Some((key, value)) = rest.split_once('=') {
            // A note may have spaces, and is the last.
            let (value, more) = match value.split_once(' ') {
                Some(parts) if key != "note" => parts,
                _ => (value, ""),
            };
            match key {
                "replaces" => entry.replaces = Some(value.to_owned()),
                "file" => entry.file = Some(value.replace(',', " ")),
                "note" => entry.note = Some(value.to_owned()),
                _ => {}
            }
            rest = more;
        }
        Some(entry)
    }

    /// The record of the client's file.
    pub(super) fn record(&self) -> Option<Record<'_>> {
        Record::read(self.file.as_deref()?)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            serial,
            common_name,
            name,
            ..
        } = self;
        write!(f, "{serial} {common_name} {name}")?;
        let record = self.file.as_ref().map(|it| it.replace(' ', ","));
        let rest = [
            ("replaces", &self.replaces),
            ("file", &record),
            ("note", &self.note),
        ];
        for (key, value) in rest {
            if let Some(value) = value {
                write!(f, " {key}={value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_list_are_read_as_they_were_written() {
        for line in [
            "01 store-7 store-7",
            "02 store-7-2 berlin replaces=01 file=1a2b3c4d,lan,at=x:1 note=Ms Long = key, file=none",
            "03 a a file=1,full",
        ] {
            assert_eq!(Entry::read(line).unwrap().to_string(), line);
        }
        let later = Entry::read("01 a b some=thing note=x").unwrap();
        assert_eq!(later.to_string(), "01 a b note=x");
        assert_eq!(Entry::read("01 a"), None);
    }
}
