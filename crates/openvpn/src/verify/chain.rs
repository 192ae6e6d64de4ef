//! Builds the chain from the peer's certificate up to one that is trusted.

use std::cell::RefCell;

use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use crate::der::BadDer;
use crate::verify::candidates::{Candidates, DEPTH_MAX};
use crate::verify::certificate::Certificate;
use crate::verify::crl::{RevocationLists, Revocations};
use crate::verify::refusal::{check_dates, check_purpose, refusal};
use crate::verify::strength::{key_weakness, signature_weakness};
use crate::verify::time::Time;
use crate::verify::{
    CertificateProfile, ChainCertificate, Fingerprint, KeyUsageRule, NameRule, PeerCertificate,
    PeerRules, Usage, VerifyError, VerifyFault, authority_peer,
};

/// The trusted authorities, and the rules for peers.
pub(crate) struct Trust {
    /// All certificates of `ca`, in its order.
    authorities: Vec<CertificateDer<'static>>,
    /// The authorities at which a chain may end.
    anchors: Vec<TrustAnchor<'static>>,
    /// Where each of `anchors` is among `authorities`.
    anchor_places: Vec<usize>,
    /// The other authorities, which complete a chain if the peer does not send them.
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
        let (mut anchors, mut anchor_places, mut links) = (Vec::new(), Vec::new(), Vec::new());
        let ends = ends_of_chains(&parsed);
        for (at, (authority, is_end)) in authorities.iter().zip(ends).enumerate() {
            if is_end {
                let anchor =
                    webpki::anchor_from_trusted_cert(authority).map_err(|_| unreadable(at))?;
                anchors.push(anchor.to_owned());
                anchor_places.push(at);
            } else {
                links.push(authority.clone());
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
            anchor_places,
            links,
            algorithms,
            profile,
            rules,
        })
    }

    /// All certificates of `ca`.
    #[cfg(feature = "server")]
    pub(crate) fn authorities(&self) -> &[CertificateDer<'static>] {
        &self.authorities
    }

    /// The algorithms that signatures may have.
    pub(crate) fn algorithms(&self) -> &[&'static dyn SignatureVerificationAlgorithm] {
        &self.algorithms
    }

    /// The full subjects of the authorities, for the server's request.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        self.anchors.iter().map(|anchor| anchor.subject.as_ref())
    }

    /// Checks the peer's certificate, and gives the peer's identity.
    ///
    /// `sent` are the certificates that came with it; `usage` is what the peer does with it.
    pub(crate) fn verify(
        &self,
        peer: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: Usage,
        revocations: &Revocations,
        now: UnixTime,
    ) -> Result<PeerCertificate, VerifyError> {
        let unreadable = VerifyError {
            subject: "(unreadable)".to_owned(),
            fault: VerifyFault::Unreadable,
            reason: "it is not an X.509 certificate, or its encoding is not DER; have it reissued"
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
        let time = Time::of(now);
        let chain = if pinned {
            revocations.check(&own, &[], time, &self.algorithms)?;
            vec![own.clone()]
        } else if own.is_self_issued()
            && self
                .authorities
                .iter()
                .any(|authority| authority.as_ref() == own.der)
        {
            // webpki would refuse this self-signed certificate, as `openssl req -x509` marks it as an authority.
            check_dates(&own, time)?;
            check_purpose(&own, usage)?;
            revocations.check(&own, &[&own], time, &self.algorithms)?;
            vec![own.clone()]
        } else {
            self.build(&own, peer, sent, usage, revocations, now)?
        };
        let rule = |reason| refuse(VerifyFault::Rule, reason);
        let common_name = self.rules.common_name(&own).map_err(rule)?;
        self.rules.check(&own, &common_name).map_err(rule)?;
        self.rules
            .check_issuer(chain.get(1).map(|issuer| issuer.der))
            .map_err(rule)?;
        let above = chain.iter().skip(1).map(Some).chain([None]);
        let whole = chain.iter().zip(above);
        Ok(PeerCertificate {
            common_name,
            chain: whole
                .map(|(it, above)| ChainCertificate::new(it, above))
                .collect(),
        })
    }

    /// The chain from the peer's certificate to a trusted one, both included.
    fn build<'a>(
        &'a self,
        own: &Certificate<'a>,
        peer: &'a CertificateDer<'a>,
        sent: &'a [CertificateDer<'a>],
        usage: Usage,
        revocations: &Revocations,
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
            // A certificate that cannot be read cannot be part of a chain either.
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
        if own.is_authority() {
            let Some(chain) = authority_peer::chain(&candidates, usage, &self.algorithms)? else {
                return Err(candidates.blame(&webpki::Error::UnknownIssuer));
            };
            self.examine(&chain, &candidates, usage, revocations)?;
            return Ok(chain);
        }
        let purpose = match usage {
            Usage::Client => KeyUsage::client_auth(),
            Usage::Server => KeyUsage::server_auth(),
        };
        // The result of our own checks on chains that webpki found good: the refusal, or the certificates of the good
        // chain.
        let examined = RefCell::new(None);
        let examine = |path: &VerifiedPath<'_>| {
            let anchor = self.authority_of(path.anchor());
            let result = candidates.along(path, anchor).and_then(|chain| {
                self.examine(&chain, &candidates, usage, revocations)
                    .map(|()| chain)
            });
            let mut examined = examined.borrow_mut();
            match result {
                Ok(chain) => {
                    *examined = Some(Ok(chain));
                    Ok(())
                }
                Err(refused) => {
                    // A renewed authority is there twice. The expiry of its old certificate says nothing of the peer; a
                    // fault on the way to the new one does.
                    if !matches!(&*examined, Some(Err(VerifyError { fault, .. })) if !matches!(fault, VerifyFault::Time | VerifyFault::Early))
                    {
                        *examined = Some(Err(refused));
                    }
                    // webpki then tries another chain, as long as its budget of signatures lasts;
                    // which error it gets does not matter.
                    Err(webpki::Error::UnknownIssuer)
                }
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

    /// Finds the authority from which this anchor of webpki was made. Name and key are not enough: a renewed authority
    /// has the same.
    fn authority_of(&self, anchor: &TrustAnchor<'_>) -> Option<usize> {
        self.anchors
            .iter()
            .position(|own| std::ptr::eq::<TrustAnchor<'_>>(own, anchor))
            .and_then(|at| self.anchor_places.get(at).copied())
    }

    /// Checks that webpki leaves out: the dates of the trusted certificate and its right to sign certificates,
    /// Netscape's types, and revocation.
    fn examine(
        &self,
        chain: &[Certificate<'_>],
        candidates: &Candidates<'_>,
        usage: Usage,
        revocations: &Revocations,
    ) -> Result<(), VerifyError> {
        for certificate in chain {
            check_dates(certificate, candidates.now)?;
        }
        // The number of authorities below this one, not counting self-issued ones.
        let mut below = 0;
        for issuer in chain.iter().skip(1) {
            if !issuer.may_sign() {
                let reason = "its key usage or basic constraints do not allow it to sign certificates; have it \
                              reissued as an authority";
                return Err(refusal(issuer, VerifyFault::Purpose, reason.to_owned()));
            }
            if issuer.path_length().is_some_and(|most| below > most) {
                let reason =
                    "more authorities are below it than its basic constraints (pathlen) allow";
                return Err(refusal(issuer, VerifyFault::Purpose, reason.to_owned()));
            }
            below += u32::from(!issuer.is_self_issued());
        }
        for (at, certificate) in chain.iter().enumerate() {
            let issuers = match chain.get(at + 1) {
                Some(issuer) => vec![issuer],
                None => candidates.above(certificate),
            };
            revocations.check(certificate, &issuers, candidates.now, &self.algorithms)?;
        }
        chain
            .first()
            .map_or(Ok(()), |own| check_purpose(own, usage))
    }
}

/// Returns for each of the authorities whether a chain may end at it.
///
/// An authority whose issuer is there too is a link: the chain must go on to its root, so that the root's dates and the
/// link's revocation count. Authorities that have signed only each other lead to no root. Each of them is trusted for
/// itself, like an authority whose issuer is not there.
fn ends_of_chains(authorities: &[Certificate<'_>]) -> Vec<bool> {
    let issuers: Vec<Vec<usize>> = authorities
        .iter()
        .map(|own| {
            let found = authorities.iter().enumerate();
            found
                .filter(|(_, other)| other.subject == own.issuer)
                .map(|(at, _)| at)
                .collect()
        })
        .collect();
    let mut ends: Vec<bool> = authorities
        .iter()
        .zip(&issuers)
        .map(|(own, issuers)| own.is_self_issued() || issuers.is_empty())
        .collect();
    let mut rooted = ends.clone();
    while let Some(at) = issuers
        .iter()
        .enumerate()
        .position(|(at, issuers)| !rooted[at] && issuers.iter().any(|issuer| rooted[*issuer]))
    {
        rooted[at] = true;
    }
    for (end, rooted) in ends.iter_mut().zip(rooted) {
        *end |= !rooted;
    }
    ends
}

/// Whether an algorithm is of Suite B.
fn is_suite_b(algorithm: &dyn SignatureVerificationAlgorithm) -> bool {
    use rustls::pki_types::alg_id;
    [alg_id::ECDSA_P256, alg_id::ECDSA_P384].contains(&algorithm.public_key_alg_id())
        && [alg_id::ECDSA_SHA256, alg_id::ECDSA_SHA384].contains(&algorithm.signature_alg_id())
}

/// For fuzzing only: any bytes as a peer's certificate, pinned and not, under all rules at once; as an authority;
/// and as a revocation list.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
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
        peer_fingerprints: vec![Fingerprint::Sha256(crate::verify::rules::sha256(bytes))],
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
