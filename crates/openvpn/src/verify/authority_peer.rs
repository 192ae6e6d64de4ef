//! The chain of a peer whose own certificate says CA:TRUE, as older guides and routers make them.
//!
//! webpki takes no such certificate for a peer's, OpenSSL does. This code makes webpki's checks of the certificates
//! above it: names, signatures, critical extensions, purposes. Dates, the right to sign, path lengths and revocation
//! are checked afterwards as for every chain.

use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use webpki::EndEntityCert;

use crate::der::oid::{CLIENT_AUTH, SERVER_AUTH};
use crate::verify::candidates::{Candidates, DEPTH_MAX};
use crate::verify::certificate::Certificate;
use crate::verify::crl::verifies;
use crate::verify::refusal::{check_dates, refusal, unreadable, wrong_purpose};
use crate::verify::strength::key_weakness;
use crate::verify::{Usage, VerifyError, VerifyFault};

/// digitalSignature, keyEncipherment, keyAgreement: one of them lets a key be used in a handshake.
const USAGES_OF_PEERS: u16 = 0x80 | 0x20 | 0x08;

/// Maximum number of signatures that are verified for one peer, whatever it sends.
const SIGNATURES_MAX: usize = 32;

/// The chain from the peer's certificate up to one of `ca` at which a chain may end. `None` if there is none.
pub(super) fn chain<'a>(
    candidates: &Candidates<'a>,
    usage: Usage,
    algorithms: &[&dyn SignatureVerificationAlgorithm],
) -> Result<Option<Vec<Certificate<'a>>>, VerifyError> {
    let own = &candidates.own;
    if !own
        .key_usage()
        .is_ok_and(|it| it.is_none_or(|it| it & USAGES_OF_PEERS != 0))
    {
        let reason = "it is an authority's certificate (CA:TRUE) in the place of a peer's, and its key usage is for \
                      signing others only; have one made for the peer";
        return Err(refusal(own, VerifyFault::Purpose, reason.to_owned()));
    }
    let mut chain = vec![own.clone()];
    let mut budget = SIGNATURES_MAX;
    while chain.len() <= DEPTH_MAX {
        let Some(own) = chain.last() else {
            break;
        };
        checked(own)?;
        let all = candidates.authorities.iter().chain(&candidates.links);
        let mut named: Vec<_> = all.filter(|it| it.subject == own.issuer).collect();
        // After a CA renewal, the certificate that is valid now comes first; among equals, those of `ca`.
        named.sort_by_key(|it| check_dates(it, candidates.now).is_err());
        let issuer = named.into_iter().take(budget).find(|issuer| {
            budget -= 1;
            key_weakness(issuer, candidates.profile).is_none()
                && own.signed().is_ok_and(|[body, algorithm, signature]| {
                    verifies(issuer.public_key, algorithm, body, signature, algorithms)
                })
        });
        let Some(issuer) = issuer else {
            return Ok(None);
        };
        let purpose = match usage {
            Usage::Client => CLIENT_AUTH,
            Usage::Server => SERVER_AUTH,
        };
        let uses = issuer.extended_key_usage();
        if !uses.is_ok_and(|uses| uses.is_none_or(|uses| uses.contains(&purpose))) {
            return Err(wrong_purpose(issuer));
        }
        if issuer.has_name_constraints() {
            let reason = "it restricts the names that it signs for, which is not checked for a peer's \
                          certificate with CA:TRUE; have the peer's certificate made without CA:TRUE";
            return Err(refusal(issuer, VerifyFault::Purpose, reason.to_owned()));
        }
        chain.push(issuer.clone());
        let trusted = candidates.authorities.iter();
        let trusted = trusted.filter(|it| it.der == issuer.der).count() > 0;
        if trusted && candidates.above(issuer).is_empty() {
            checked(issuer)?;
            return Ok(Some(chain));
        }
        if issuer.is_self_issued() {
            break;
        }
    }
    Ok(None)
}

/// Refuses certificates that webpki refuses one by one, such as those with critical extensions that it does not know.
fn checked(certificate: &Certificate<'_>) -> Result<(), VerifyError> {
    let der = CertificateDer::from(certificate.der);
    // Authorities of version 1 have no extensions at all.
    let readable = certificate.version < 3 || EndEntityCert::try_from(&der).is_ok();
    readable
        .then_some(())
        .ok_or_else(|| unreadable(certificate))
}
