//! When certificates and revocation lists end.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::identity;
use crate::verify::{Certificate, RevocationLists};

/// A thing that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// An authority's certificate.
    Authority,
    /// Our own certificate.
    Certificate,
    /// A revocation list.
    List,
}

/// The end of a certificate or a revocation list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The thing that ends.
    pub of: Ending,
    /// The subject of a certificate, as OpenVPN prints it; empty for a list.
    pub name: String,
    /// The end of validity.
    pub at: SystemTime,
}

/// Reads when the contents of `cert`, `ca` and `crl-verify` end: PEM or DER, empty if not given. Unreadable ones are
/// left out.
pub fn read(cert: &[u8], ca: &[u8], crl: &[u8]) -> Vec<End> {
    let certificates = |bytes| identity::certificates("", bytes).unwrap_or_default();
    let (cert, ca) = (certificates(cert), certificates(ca));
    let own = cert.iter().take(1).map(|it| (Ending::Certificate, &**it));
    let others = cert.iter().skip(1).chain(&ca);
    let others = others.map(|it| (Ending::Authority, &**it));
    ends(own.chain(others), RevocationLists::parse(crl).ok().as_ref())
}

/// The ends of certificates (DER) and lists. Of several certificates of one name, and of several lists of one
/// authority, the latest counts, as it does for peers.
pub(crate) fn ends<'a>(
    certificates: impl Iterator<Item = (Ending, &'a [u8])>,
    lists: Option<&RevocationLists>,
) -> Vec<End> {
    let mut latest = BTreeMap::new();
    for (of, der) in certificates {
        if let Ok(certificate) = Certificate::parse(der) {
            let end = certificate.not_after.system();
            let known = latest.entry((of, certificate.describe())).or_insert(end);
            *known = end.max(*known);
        }
    }
    let certificates = latest.into_iter();
    let certificates = certificates.map(|((of, name), at)| End { of, name, at });
    let lists = lists.into_iter().flat_map(RevocationLists::ends).flatten();
    let lists = lists.map(|end| End {
        of: Ending::List,
        name: String::new(),
        at: end.system(),
    });
    certificates.chain(lists).collect()
}
