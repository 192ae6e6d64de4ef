//! From the peer's certificate up to one that is trusted.

use std::cell::RefCell;

use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use crate::der::BadDer;
use crate::tls::CertificateProfile;
use crate::verify::certificate::{Certificate, KEY_CERT_SIGN};
use crate::verify::crl::{RevocationLists, Standing};
use crate::verify::rules::{CLIENT_AUTH, SERVER_AUTH};
use crate::verify::strength::{key_weakness, signature_weakness};
use crate::verify::time::Time;
use crate::verify::{
    ChainCertificate, PeerCertificate, PeerRules, Usage, VerifyError, VerifyFault,
};

/// The longest chain, as in stock programs.
const DEPTH_MAX: usize = 16;

/// Whom we trust, and which rules hold.
pub(crate) struct Trust {
    /// `ca`, whole, in its order.
    authorities: Vec<CertificateDer<'static>>,
    /// Those of them at which a chain may end.
    anchors: Vec<TrustAnchor<'static>>,
    /// The others, which complete a chain if the peer does not send them.
    links: Vec<CertificateDer<'static>>,
    algorithms: Vec<&'static dyn SignatureVerificationAlgorithm>,
    profile: CertificateProfile,
    rules: PeerRules,
}

impl Trust {
    /// `authorities` may be empty if the rules name fingerprints of peers.
    pub(crate) fn new(
        authorities: Vec<CertificateDer<'static>>,
        all_algorithms: &[&'static dyn SignatureVerificationAlgorithm],
        profile: CertificateProfile,
        rules: PeerRules,
    ) -> Result<Self, String> {
        let unreadable = |at: usize| format!("certificate {} in it cannot be read", at + 1);
        let mut parsed = Vec::with_capacity(authorities.len());
        for (at, authority) in authorities.iter().enumerate() {
            parsed.push(Certificate::parse(authority).map_err(|BadDer| unreadable(at))?);
        }
        let (mut anchors, mut links) = (Vec::new(), Vec::new());
        for (at, (authority, certificate)) in authorities.iter().zip(&parsed).enumerate() {
            // One whose issuer is here too is a link; a chain must go on to its root, so that the
            // root's dates and the link's revocation count.
            let has_issuer = !certificate.is_self_issued()
                && parsed
                    .iter()
                    .any(|other| other.subject == certificate.issuer);
            if has_issuer {
                links.push(authority.clone());
            } else {
                let anchor =
                    webpki::anchor_from_trusted_cert(authority).map_err(|_| unreadable(at))?;
                anchors.push(anchor.to_owned());
            }
        }
        let algorithms = all_algorithms
            .iter()
            .copied()
            .filter(|algorithm| profile != CertificateProfile::SuiteB || is_suite_b(*algorithm))
            .collect();
        Ok(Self {
            authorities,
            anchors,
            links,
            algorithms,
            profile,
            rules,
        })
    }

    /// The subjects of the authorities, whole, for the server's request.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        self.anchors.iter().map(|anchor| anchor.subject.as_ref())
    }

    /// Checks the peer's certificate, and says who the peer is.
    ///
    /// `sent` are the certificates that came with it; `usage` is what the peer does with it.
    pub(crate) fn verify(
        &self,
        peer: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: Usage,
        lists: Option<&RevocationLists>,
        now: UnixTime,
    ) -> Result<PeerCertificate, VerifyError> {
        let unreadable = VerifyError {
            subject: "(unreadable)".to_owned(),
            fault: VerifyFault::Unreadable,
            reason: "it is no X.509 certificate, or its encoding is not DER; have it made anew"
                .to_owned(),
        };
        let own = Certificate::parse(peer).map_err(|BadDer| unreadable)?;
        let refuse = |fault, reason| VerifyError {
            subject: own.describe(),
            fault,
            reason,
        };

        if let Some(weakness) = key_weakness(&own, self.profile) {
            return Err(refuse(VerifyFault::Weak, weakness));
        }
        // A pinned certificate is trusted for what it is: neither its signer nor its dates count,
        // as in stock programs.
        let pinned = self.authorities.is_empty() && !self.rules.peer_fingerprints.is_empty();
        let chain = if pinned {
            vec![own.clone()]
        } else if own.is_self_issued()
            && self
                .authorities
                .iter()
                .any(|authority| authority.as_ref() == own.der)
        {
            // webpki would refuse it, as `openssl req -x509` makes authorities of such.
            check_dates(&own, Time(now.as_secs() as i64))?;
            check_purpose(&own, usage)?;
            vec![own.clone()]
        } else {
            self.build(&own, peer, sent, usage, lists, now)?
        };
        let rule = |reason| refuse(VerifyFault::Rule, reason);
        let common_name = self.rules.common_name(&own).map_err(rule)?;
        self.rules.check(&own, &common_name).map_err(rule)?;
        self.rules
            .check_issuer(chain.get(1).map(|issuer| issuer.der))
            .map_err(rule)?;
        Ok(PeerCertificate {
            common_name,
            chain: chain.iter().map(ChainCertificate::new).collect(),
        })
    }

    /// The chain from the peer's certificate to a trusted one, both included.
    fn build<'a>(
        &'a self,
        own: &Certificate<'a>,
        peer: &'a CertificateDer<'a>,
        sent: &'a [CertificateDer<'a>],
        usage: Usage,
        lists: Option<&RevocationLists>,
        now: UnixTime,
    ) -> Result<Vec<Certificate<'a>>, VerifyError> {
        let pool: Vec<CertificateDer<'a>> = sent
            .iter()
            .take(DEPTH_MAX)
            .chain(&self.links)
            .map(|certificate| CertificateDer::from(certificate.as_ref()))
            .collect();
        let candidates = Candidates {
            own: own.clone(),
            // What cannot be read cannot be part of a chain either.
            links: sent
                .iter()
                .take(DEPTH_MAX)
                .chain(&self.links)
                .filter_map(|certificate| Certificate::parse(certificate).ok())
                .collect(),
            authorities: self
                .authorities
                .iter()
                .filter_map(|certificate| Certificate::parse(certificate).ok())
                .collect(),
            profile: self.profile,
            now: Time(now.as_secs() as i64),
        };
        let purpose = match usage {
            Usage::Client => KeyUsage::client_auth(),
            Usage::Server => KeyUsage::server_auth(),
        };
        // Why the last chain that webpki found good is not, or its certificates if it is.
        let examined = RefCell::new(None);
        let examine = |path: &VerifiedPath<'_>| {
            let result = candidates.along(path).and_then(|chain| {
                self.examine(&chain, usage, lists, candidates.now)
                    .map(|()| chain)
            });
            let refused = result.is_err();
            *examined.borrow_mut() = Some(result);
            // webpki then tries another chain; which error it gets does not matter.
            if refused {
                Err(webpki::Error::UnknownIssuer)
            } else {
                Ok(())
            }
        };
        let verified = EndEntityCert::try_from(peer).and_then(|end| {
            end.verify_for_usage(
                &self.algorithms,
                &self.anchors,
                &pool,
                now,
                purpose,
                None,
                Some(&examine),
            )
            .map(|_| ())
        });
        match (examined.into_inner(), verified) {
            (Some(Ok(chain)), Ok(())) => Ok(chain),
            (Some(Err(refused)), _) => Err(refused),
            (_, Err(error)) => Err(candidates.blame(&error)),
            (None, Ok(())) => Err(candidates.blame(&webpki::Error::UnknownIssuer)),
        }
    }

    /// What webpki does not look at: the dates of the trusted certificate, the right to sign
    /// certificates, Netscape's types, and revocation.
    fn examine(
        &self,
        chain: &[Certificate<'_>],
        usage: Usage,
        lists: Option<&RevocationLists>,
        now: Time,
    ) -> Result<(), VerifyError> {
        for certificate in chain {
            check_dates(certificate, now)?;
        }
        for pair in chain.windows(2) {
            let [certificate, issuer] = pair else {
                continue;
            };
            let refuse = |of: &Certificate<'_>, fault, reason: String| {
                Err(VerifyError {
                    subject: of.describe(),
                    fault,
                    reason,
                })
            };
            if issuer.key_usage() != Ok(None)
                && !issuer
                    .key_usage()
                    .is_ok_and(|usage| usage.unwrap_or(0) & KEY_CERT_SIGN != 0)
            {
                let reason = "its key usage does not allow it to sign certificates; have it made anew \
                              as an authority";
                return refuse(issuer, VerifyFault::Purpose, reason.to_owned());
            }
            let Some(lists) = lists else { continue };
            let standing = lists.standing(
                issuer.subject,
                issuer.public_key,
                certificate.serial,
                now,
                &self.algorithms,
            );
            match standing {
                Standing::Good => {}
                Standing::Revoked => {
                    let reason = "it is revoked (crl-verify); have a new one made".to_owned();
                    return refuse(certificate, VerifyFault::Revoked, reason);
                }
                Standing::Unusable(reason) => {
                    return refuse(certificate, VerifyFault::Revoked, reason);
                }
            }
        }
        chain
            .first()
            .map_or(Ok(()), |own| check_purpose(own, usage))
    }
}

/// All certificates of which a chain may consist, taken apart.
struct Candidates<'a> {
    own: Certificate<'a>,
    links: Vec<Certificate<'a>>,
    authorities: Vec<Certificate<'a>>,
    profile: CertificateProfile,
    now: Time,
}

impl<'a> Candidates<'a> {
    /// The certificates of a path.
    fn along(&self, path: &VerifiedPath<'_>) -> Result<Vec<Certificate<'a>>, VerifyError> {
        let mut chain = vec![self.own.clone()];
        for link in path.intermediate_certificates() {
            let der = link.der();
            let found = self.links.iter().find(|candidate| *candidate.der == *der);
            chain.push(found.ok_or_else(|| unreadable(&self.own))?.clone());
        }
        let anchor = path.anchor();
        let found = self.authorities.iter().find(|authority| {
            *authority.subject == *anchor.subject
                && *authority.public_key == *anchor.subject_public_key_info
        });
        chain.push(found.ok_or_else(|| unreadable(&self.own))?.clone());
        Ok(chain)
    }

    /// Says which certificate is at fault, and why. webpki tells only that there is no chain.
    fn blame(&self, error: &webpki::Error) -> VerifyError {
        use webpki::Error as E;
        let mut certificate = &self.own;
        if certificate.version < 3 {
            let reason = format!(
                "it is of version {}, from before usages could be stated; have it made anew with \
                 extensions (openssl x509 -extfile, or easy-rsa)",
                certificate.version
            );
            return refusal(certificate, VerifyFault::Unreadable, reason);
        }
        for _ in 0..DEPTH_MAX {
            if let Err(dates) = check_dates(certificate, self.now) {
                return dates;
            }
            if certificate.is_self_issued() {
                return refusal(
                    certificate,
                    VerifyFault::Unknown,
                    "it is self-signed and not among those of ca; add it there, or its fingerprint \
                     to peer-fingerprint, if it is the right one"
                        .to_owned(),
                );
            }
            if let Some(weakness) = signature_weakness(certificate, self.profile) {
                return refusal(certificate, VerifyFault::Weak, weakness);
            }
            let issuer = self
                .authorities
                .iter()
                .chain(&self.links)
                .find(|candidate| candidate.subject == certificate.issuer);
            let Some(issuer) = issuer else {
                return refusal(certificate, VerifyFault::Unknown, no_issuer(certificate));
            };
            if let Some(weakness) = key_weakness(issuer, self.profile) {
                return refusal(issuer, VerifyFault::Weak, weakness);
            }
            if issuer.is_self_issued() {
                if let Err(dates) = check_dates(issuer, self.now) {
                    return dates;
                }
                break;
            }
            certificate = issuer;
        }
        #[expect(deprecated, reason = "webpki still gives the old variants in places")]
        let (fault, reason) = match error {
            E::RequiredEkuNotFound | E::RequiredEkuNotFoundContext(_) | E::EmptyEkuExtension => {
                return wrong_purpose(&self.own);
            }
            E::CaUsedAsEndEntity => (
                VerifyFault::Purpose,
                "it is an authority's certificate (CA:TRUE) in the place of a peer's; have one made \
                 without CA:TRUE"
                    .to_owned(),
            ),
            E::EndEntityUsedAsCa | E::PathLenConstraintViolated => (
                VerifyFault::Purpose,
                "one of the certificates above it is not allowed to sign certificates".to_owned(),
            ),
            E::NameConstraintViolation => (
                VerifyFault::Purpose,
                "an authority above it is not allowed to sign for its name".to_owned(),
            ),
            E::InvalidSignatureForPublicKey | E::UnknownIssuer => (
                VerifyFault::Unknown,
                "its authority has the name, but not the key, of one in ca; ca may be older or newer \
                 than the certificate"
                    .to_owned(),
            ),
            other => (VerifyFault::Unreadable, format!("{other:?}; have it made anew")),
        };
        refusal(&self.own, fault, reason)
    }
}

fn refusal(certificate: &Certificate<'_>, fault: VerifyFault, reason: String) -> VerifyError {
    VerifyError {
        subject: certificate.describe(),
        fault,
        reason,
    }
}

fn unreadable(certificate: &Certificate<'_>) -> VerifyError {
    let reason = "a certificate above it cannot be read".to_owned();
    refusal(certificate, VerifyFault::Unreadable, reason)
}

fn wrong_purpose(certificate: &Certificate<'_>) -> VerifyError {
    let reason = "it was made for another purpose than this end of TLS (a client's certificate on a \
                  server, or the reverse); have it made for the right one";
    refusal(certificate, VerifyFault::Purpose, reason.to_owned())
}

/// A certificate that says what it is for must be for this end of TLS.
fn check_purpose(own: &Certificate<'_>, usage: Usage) -> Result<(), VerifyError> {
    let (bit, purpose) = match usage {
        Usage::Client => (0x80, CLIENT_AUTH),
        Usage::Server => (0x40, SERVER_AUTH),
    };
    let netscape = own
        .netscape_type()
        .map(|kinds| kinds.is_none_or(|kinds| kinds & bit != 0));
    let extended = own
        .extended_key_usage()
        .map(|uses| uses.is_none_or(|uses| uses.contains(&purpose)));
    if netscape == Ok(true) && extended == Ok(true) {
        Ok(())
    } else {
        Err(wrong_purpose(own))
    }
}

fn no_issuer(certificate: &Certificate<'_>) -> String {
    let issuer = crate::name::Name::parse(certificate.issuer).map(|name| name.to_string());
    format!(
        "its authority '{}' is not among those of ca; check that ca is the right one, or have the \
         peer send the certificates between (extra-certs)",
        issuer.unwrap_or_default()
    )
}

fn check_dates(certificate: &Certificate<'_>, now: Time) -> Result<(), VerifyError> {
    let reason = if now < certificate.not_before {
        format!(
            "it is valid from {} on, and the clock says {now}; set the clock",
            certificate.not_before
        )
    } else if now > certificate.not_after {
        format!(
            "it expired on {}, and the clock says {now}; have it renewed",
            certificate.not_after
        )
    } else {
        return Ok(());
    };
    Err(refusal(certificate, VerifyFault::Time, reason))
}

/// Whether an algorithm is of Suite B.
fn is_suite_b(algorithm: &dyn SignatureVerificationAlgorithm) -> bool {
    use rustls::pki_types::alg_id;
    [alg_id::ECDSA_P256, alg_id::ECDSA_P384].contains(&algorithm.public_key_alg_id())
        && [alg_id::ECDSA_SHA256, alg_id::ECDSA_SHA384].contains(&algorithm.signature_alg_id())
}
