//! The record of a file that a client got, with WireGuard in the server's file: `#! File = 1a2b3c4d5e6f7081 lan`.
//!
//! The client's file itself is not kept, as it has a private key. The record has a digest of its public part. If a file
//! made for this client today has another digest, the client runs an outdated file.

use config::types::AllowedIp;
use std::fmt;
use std::net::IpAddr;

/// How a client's file compares with the one that the client would get today.
pub(crate) const CURRENT: &str = "current";
/// The client needs a new file to reach all networks, or the server where it is now.
pub(crate) const OUTDATED: &str = "outdated";
/// The client got a new file, and has not used it.
pub(crate) const PENDING: &str = "pending";
/// The server's file has no record.
pub(crate) const UNKNOWN: &str = "unknown";

/// The public part of a client's file.
pub(super) struct Public<'a> {
    /// How the client knows the server: by its public key, or by the protocol and the authority's certificate.
    pub(super) server: &'a str,
    /// `HOST:PORT` of the server.
    pub(super) endpoint: &'a str,
    /// The client's addresses.
    pub(super) addresses: &'a [AllowedIp],
    /// Name servers, of a full tunnel only.
    pub(super) dns: &'a [IpAddr],
    /// The ranges that the client sends here.
    pub(super) ranges: Ranges,
    /// `PersistentKeepalive`, if it is not the usual one.
    pub(super) keepalive: Option<u16>,
    /// The lines of AmneziaWG; empty for plain WireGuard. They may have a key, of which the digest tells nothing.
    pub(super) amnezia: &'a str,
}

/// The ranges that a client sends to the server.
#[derive(Clone, Copy)]
pub(super) enum Ranges {
    /// All addresses.
    All {
        /// IPv6 addresses, too.
        v6: bool,
    },
    /// Networks, by their [`sum`].
    Networks(u64),
}

impl Public<'_> {
    fn digest(&self) -> u64 {
        let Self {
            server,
            endpoint,
            addresses,
            dns,
            ranges,
            keepalive,
            amnezia,
        } = self;
        let ranges = match ranges {
            Ranges::All { v6: false } => "all of IPv4".to_owned(),
            Ranges::All { v6: true } => "all".to_owned(),
            Ranges::Networks(sum) => sum.to_string(),
        };
        // Older records do not know it.
        let keepalive = keepalive.map_or_else(String::new, |it| format!(" {it}"));
        let words = format!("{server} {endpoint} {addresses:?} {dns:?} {ranges}{keepalive}");
        hash(&[&words, amnezia])
    }
}

fn hash(texts: &[&str]) -> u64 {
    let texts: Vec<&[u8]> = texts.iter().map(|it| it.as_bytes()).collect();
    let [a, b, c, d, e, f, g, h, ..] = crypto::blake2s::hash(&texts);
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The sum of ranges, which does not depend on their order: each client's is that of all ranges less its own, without
/// a look at each pair of clients. A range of all addresses does not count: no file of such a client has it.
pub(super) fn sum(ranges: &[AllowedIp]) -> u64 {
    let ranges = ranges.iter().filter(|it| !it.is_default());
    let hashes = ranges.map(|it| hash(&[&it.to_string()]));
    hashes.fold(0, u64::wrapping_add)
}

/// The record of a file.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Record<'a> {
    digest: u64,
    /// The client sends only what goes to the networks at home and behind branches.
    pub(super) lan_only: bool,
    /// The endpoint that only this client got.
    pub(super) endpoint: Option<&'a str>,
}

impl<'a> Record<'a> {
    /// The record of a file with this public part; `endpoint` if it is the client's own.
    pub(super) fn new(public: &Public<'_>, endpoint: Option<&'a str>) -> Self {
        Self {
            digest: public.digest(),
            lan_only: matches!(public.ranges, Ranges::Networks(_)),
            endpoint,
        }
    }

    /// Reads a record; anything else counts as no record, such as one of a version whose shorter digest left out the
    /// server's key.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let digest = words.next().filter(|it| it.len() == 16)?;
        let digest = u64::from_str_radix(digest, 16).ok()?;
        let lan_only = match words.next()? {
            "lan" => true,
            "full" => false,
            _ => return None,
        };
        let endpoint = match words.next() {
            None => None,
            Some("at") => Some(words.next()?),
            Some(_) => return None,
        };
        Some(Self {
            digest,
            lan_only,
            endpoint,
        })
    }

    /// Compares the file with one that has this public part.
    pub(super) fn state(&self, public: &Public<'_>) -> &'static str {
        match self.digest == public.digest() {
            true => CURRENT,
            false => OUTDATED,
        }
    }
}

impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.lan_only { "lan" } else { "full" };
        write!(f, "{:016x} {way}", self.digest)?;
        match self.endpoint {
            Some(endpoint) => write!(f, " at {endpoint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Vec<AllowedIp> {
        texts.iter().map(|it| it.parse().unwrap()).collect()
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_changes_with_the_file() {
        let addresses = ranges(&["10.7.0.2/32"]);
        let public = |endpoint, lan: Option<&[&str]>| Public {
            server: "key",
            endpoint,
            addresses: &addresses,
            dns: &[],
            ranges: match lan {
                Some(lan) => Ranges::Networks(sum(&ranges(lan))),
                None => Ranges::All { v6: false },
            },
            keepalive: None,
            amnezia: "",
        };
        let lan = ["192.168.1.0/24", "192.168.7.0/24"];
        let one = public("home:1", Some(&lan));
        for own in [None, Some("other:1")] {
            let record = Record::new(&one, own);
            let text = record.to_string();
            assert_eq!(Record::read(&text), Some(record), "{text}");
        }
        let record = Record::new(&one, None);
        assert_eq!(record.state(&one), CURRENT);
        let turned = [lan[1], lan[0]];
        assert_eq!(record.state(&public("home:1", Some(&turned))), CURRENT);
        for other in [
            public("home:2", Some(&lan)),
            public("home:1", Some(&lan[..1])),
            public("home:1", None),
            Public {
                server: "other",
                ..public("home:1", Some(&lan))
            },
            Public {
                keepalive: Some(10),
                ..public("home:1", Some(&lan))
            },
            Public {
                amnezia: "S1 = 20\n",
                ..public("home:1", Some(&lan))
            },
        ] {
            assert_eq!(record.state(&other), OUTDATED);
        }
        let full = public("home:1", None);
        let both = Public {
            ranges: Ranges::All { v6: true },
            ..public("home:1", None)
        };
        assert_eq!(Record::new(&full, None).state(&full), CURRENT);
        assert_eq!(Record::new(&full, None).state(&both), OUTDATED);
        let digest = "0123456789abcdef";
        assert!(Record::read(&format!("{digest} lan")).is_some());
        for wrong in [
            "",
            digest,
            "x lan",
            "1a2b3c4d lan",
            &format!("{digest} both"),
            &format!("{digest} lan at"),
            &format!("{digest} lan by x"),
        ] {
            assert_eq!(Record::read(wrong), None, "{wrong}");
        }
    }
}
