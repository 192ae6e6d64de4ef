//! Keeps the stamps of the clients' last hellos in a file, so that a restarted relay refuses recorded hellos.
//!
//! The file lies in memory, as it changes with each hello: after a reboot the stamps are forgotten.

use crypto::hex;
use lines::places;
use lines::relay::{KeyId, Table, Tai64n};
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Size of a slot of the file, in bytes: enough for the stamps of more clients than a relay serves.
const PLACE: usize = 16 << 10;

/// First line of a slot, with the version of the format.
const HEAD: &str = "millrace relay 1";

/// The file of one relay. It is opened once, as the relay drops its privileges.
pub(super) struct Stamps {
    path: PathBuf,
    file: File,
    /// Number of the last written slot.
    number: u64,
    /// Accepted hellos whose stamps are in the file.
    hellos: u64,
}

impl Stamps {
    /// Opens a relay's file, and restores its stamps in the table.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn open(path: &Path, table: &mut Table) -> io::Result<Self> {
        let file = places::open(path)?;
        // A damaged file is replaced by a new one.
        let (number, text) = places::newest(&file, HEAD, PLACE).unwrap_or_default();
        for (id, stamp) in text.lines().filter_map(parse) {
            table.remember(id, stamp);
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            number,
            hellos: 0,
        })
    }

    /// Writes the stamps if hellos came since the last time.
    pub(super) fn follow(&mut self, table: &Table) {
        let hellos = table.hellos();
        if self.hellos == hellos {
            return;
        }
        self.hellos = hellos;
        let number = self.number.wrapping_add(1);
        let mut text = String::new();
        for (id, stamp) in table.stamps() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {}", hex(&id.to_bytes()), hex(&stamp.0));
        }
        let (place, at) = places::emit(HEAD, number, &text, PLACE);
        match self.file.write_all_at(&place, at) {
            Ok(()) => self.number = number,
            Err(error) => log::debug!("{}: {error}", self.path.display()),
        }
    }
}

fn parse(line: &str) -> Option<(KeyId, Tai64n)> {
    fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        if text.len() != 2 * N || !text.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(bytes)
    }
    let (id, stamp) = line.split_once(' ')?;
    Some((KeyId::from_bytes(bytes(id)?), Tai64n(bytes(stamp)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lines::relay::{Client, Key, Rates, Refused};
    use plane::Endpoint;
    use std::time::Instant;

    fn table(count: u8) -> Table {
        let client = |at: u8| Client {
            name: format!("client{at}"),
            key: Key::new(&[at; 32]),
            rates: Rates::of(1_000_000, 1_000),
        };
        Table::new((0..count).map(client).collect(), Instant::now())
    }

    #[test]
    fn a_hello_of_an_earlier_life_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("millrace/relay.stamps");
        let from = Endpoint::new(([192, 0, 2, 1], 51820).into());
        let now = Instant::now();
        let hello = |key: u8, stamp| Key::new(&[key; 32]).hello(Tai64n([stamp; 12]));
        let mut before = table(3);
        let mut stamps = Stamps::open(&path, &mut before).unwrap();
        for stamp in [4, 5] {
            before.hello(&hello(1, stamp), from, now).unwrap();
            stamps.follow(&before);
        }
        let mut after = table(3);
        let mut stamps = Stamps::open(&path, &mut after).unwrap();
        stamps.follow(&after);
        let recorded = after.hello(&hello(1, 5), from, now);
        assert_eq!(recorded, Err(Refused::OldStamp));
        assert!(after.hello(&hello(1, 6), from, now).is_ok());
        assert!(
            after.hello(&hello(2, 1), from, now).is_ok(),
            "another client"
        );
        // A client that was removed, then a file that is damaged.
        Stamps::open(&path, &mut table(1)).unwrap();
        std::fs::write(&path, "nonsense").unwrap();
        assert!(Stamps::open(&path, &mut table(3)).is_ok());
    }

    #[test]
    fn the_most_clients_fit() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("relay.stamps");
        let mut all = table(255);
        for gone in 0..=u8::MAX {
            all.remember(KeyId::from_bytes([gone; 8]), Tai64n([7; 12]));
        }
        let gone = all.stamps().count();
        let mut stamps = Stamps::open(&path, &mut all).unwrap();
        let from = Endpoint::new(([192, 0, 2, 1], 51820).into());
        for key in 0..255 {
            let hello = Key::new(&[key; 32]).hello(Tai64n([7; 12]));
            all.hello(&hello, from, Instant::now()).unwrap();
        }
        stamps.follow(&all);
        let mut after = table(255);
        Stamps::open(&path, &mut after).unwrap();
        assert_eq!(after.stamps().count(), 255 + gone);
    }
}
