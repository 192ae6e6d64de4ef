//! The `ifconfig-pool-persist` file: one line `name,IPv4,IPv6` per client, so that clients keep their addresses over a
//! restart.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::accounts::pool::Pool;

/// Longest field that is parsed, in bytes.
const FIELD_MAX: usize = 128;

/// Counts of the file's lines, by outcome.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Restored {
    /// Lines whose address is now reserved for its client.
    pub kept: usize,
    /// Lines that are invalid or outside the pool.
    pub passed_over: usize,
}

/// Loads a file's leases into the pool. `fixed` means that the file is read-only (period zero): no other client gets
/// these addresses.
pub(crate) fn restore(text: &str, pool: &mut Pool, fixed: bool) -> Restored {
    let mut restored = Restored::default();
    for line in text.lines() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if one(line, pool, fixed) {
            restored.kept += 1;
        } else {
            restored.passed_over += 1;
        }
    }
    restored
}

fn one(line: &str, pool: &mut Pool, fixed: bool) -> bool {
    let mut fields = line.split(',');
    let (Some(name), Some(ipv4)) = (fields.next(), fields.next()) else {
        return false;
    };
    let ipv6 = fields.next().unwrap_or_default();
    if name.is_empty() || name.len() >= FIELD_MAX {
        return false;
    }
    pool.remember(name, ipv4.parse().ok(), ipv6.parse().ok(), fixed)
}

/// Formats the pool's leases as the file's text.
pub fn text(pool: &Pool) -> String {
    let mut out = String::new();
    for (name, ipv4, ipv6) in pool.remembered() {
        let ipv4 = ipv4.map(|addr| addr.to_string()).unwrap_or_default();
        let ipv6 = ipv6.map(|addr| addr.to_string()).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name},{ipv4},{ipv6}");
    }
    out
}

/// Largest file that is read, in bytes: a line for each address of the largest pool.
const FILE_MAX: u64 = 16 << 20;

/// Loads the file into the pool; a missing file counts as empty.
///
/// # Errors
/// The file exists but cannot be read.
pub fn load(path: &Path, pool: &mut Pool, fixed: bool) -> io::Result<Restored> {
    match config::file::read(path, FILE_MAX) {
        Ok(bytes) => Ok(restore(&String::from_utf8_lossy(&bytes), pool, fixed)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Restored::default()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::openvpn::{Pool as Range, PoolV6, Topology};
    use proptest::prelude::*;

    fn pool(topology: Topology, ipv6: bool) -> Pool {
        let ipv4 = Range {
            start: "10.8.0.4".parse().unwrap(),
            end: "10.8.0.251".parse().unwrap(),
            netmask: None,
        };
        let ipv6 = ipv6.then(|| PoolV6 {
            base: "fd00::1000".parse().unwrap(),
            bits: 64,
        });
        Pool::new(Some(ipv4), ipv6, topology, false).unwrap()
    }

    #[test]
    fn a_file_survives_being_written_and_read() {
        let mut before = pool(Topology::Subnet, true);
        let a = before.acquire(Some("a")).unwrap();
        let b = before.acquire(Some("b")).unwrap();
        before.release(a.place);
        let written = text(&before);
        assert_eq!(written, "a,10.8.0.4,fd00::1000\nb,10.8.0.5,fd00::1001\n");
        let mut after = pool(Topology::Subnet, true);
        assert_eq!(restore(&written, &mut after, false).kept, 2);
        assert_eq!(after.acquire(Some("b")).unwrap().ipv4, b.ipv4);
        assert_eq!(text(&after), written);
    }

    #[test]
    fn net30_is_written_by_its_base() {
        let mut pool = pool(Topology::Net30, false);
        pool.acquire(Some("a")).unwrap();
        assert_eq!(text(&pool), "a,10.8.0.4,\n");
    }

    #[test]
    fn every_form_of_line_is_read_and_nonsense_passed_over() {
        let mut both = pool(Topology::Subnet, true);
        let file = "# comment\n; too\n\nold,10.8.0.9\nsix,,fd00::1003\nboth,10.8.0.6,fd00::9\n\
                    far,10.9.0.1\nnothing\n,10.8.0.8\nbad,1.2.3\n";
        let restored = restore(file, &mut both, false);
        assert_eq!(
            restored,
            Restored {
                kept: 3,
                passed_over: 4
            }
        );
        let ipv4 = |name: &str, pool: &mut Pool| pool.acquire(Some(name)).unwrap().ipv4;
        assert_eq!(ipv4("old", &mut both), "10.8.0.9".parse().ok());
        assert_eq!(ipv4("six", &mut both), "10.8.0.7".parse().ok());
        assert_eq!(ipv4("both", &mut both), "10.8.0.6".parse().ok());
    }

    #[test]
    fn a_file_that_is_not_there_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let mut pool = pool(Topology::Subnet, false);
        let loaded = load(&directory.path().join("ipp.txt"), &mut pool, false);
        assert_eq!(loaded.unwrap(), Restored::default());
        assert!(load(directory.path(), &mut pool, false).is_err());
    }

    proptest! {
        #[test]
        fn no_file_does_harm(text in ".*", fixed: bool) {
            restore(&text, &mut pool(Topology::Subnet, true), fixed);
        }
    }
}
