//! The path of a peer's certificate, or of a revocation list that an administrator fetches.

use rustls::pki_types::{CertificateDer, UnixTime};

use crate::tls::CertificateProfile;
use crate::verify::certificate::Certificate;
use crate::verify::crl::RevocationLists;
use crate::verify::strength::{key_weakness, signature_weakness};
use crate::verify::{Fingerprint, KeyUsageRule, NameRule, PeerRules, Revocations, Trust, Usage};

/// Any bytes as a peer's certificate, pinned and not, under all rules at once; as an authority;
/// and as a revocation list.
pub fn certificate(bytes: &[u8]) {
    let _ = RevocationLists::parse(bytes);
    let peer = CertificateDer::from(bytes);
    let rules = PeerRules {
        key_usage: Some(KeyUsageRule::AnyOf(vec![0xa0])),
        extended_key_usage: Some("TLS Web Server Authentication".to_owned()),
        netscape_type: Some(Usage::Server),
        name: Some(NameRule::Subject("CN=x".to_owned())),
        ..PeerRules::default()
    };
    if let Ok(certificate) = Certificate::parse(bytes) {
        for profile in [CertificateProfile::Legacy, CertificateProfile::SuiteB] {
            let _ = (
                key_weakness(&certificate, profile),
                signature_weakness(&certificate, profile),
            );
        }
        let _ = rules.check(&certificate, "x");
        let _ = certificate.describe();
    }
    let pinned = PeerRules {
        peer_fingerprints: vec![Fingerprint::Sha256(super::rules::sha256(bytes))],
        username_fields: vec!["ext:subjectAltName".to_owned(), "serialNumber".to_owned()],
        ..PeerRules::default()
    };
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
    let algorithms =
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let profile = CertificateProfile::Legacy;
    for (authorities, rules) in [(vec![], pinned), (vec![peer.clone().into_owned()], rules)] {
        let Ok(trust) = Trust::new(authorities, algorithms.all, profile, rules) else {
            continue;
        };
        let revocations = Revocations::default();
        let sent = std::slice::from_ref(&peer);
        if let Ok(known) = trust.verify(&peer, sent, Usage::Server, &revocations, now) {
            let _ = known.environment();
        }
    }
}
