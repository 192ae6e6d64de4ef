//! The certificates that may form a chain, and which of them is at fault if they form none.

use webpki::VerifiedPath;

use crate::name;
use crate::verify::certificate::Certificate;
use crate::verify::refusal::{check_dates, no_issuer, refusal, unreadable, wrong_purpose};
use crate::verify::strength::{key_weakness, signature_weakness};
use crate::verify::time::Time;
use crate::verify::{CertificateProfile, VerifyError, VerifyFault};

/// The longest chain, as in stock programs.
pub(super) const DEPTH_MAX: usize = 16;

/// All certificates that may form a chain, parsed.
pub(super) struct Candidates<'a> {
    /// The peer's own certificate.
    pub(super) own: Certificate<'a>,
    /// The peer's certificates, and the authorities at which no chain may end.
    pub(super) links: Vec<Certificate<'a>>,
    /// All certificates of `ca`, in its order.
    pub(super) authorities: Vec<Certificate<'a>>,
    pub(super) profile: CertificateProfile,
    pub(super) now: Time,
}

impl<'a> Candidates<'a> {
    /// The certificates of a path that ends at this authority.
    pub(super) fn along(
        &self,
        path: &VerifiedPath<'_>,
        anchor: Option<usize>,
    ) -> Result<Vec<Certificate<'a>>, VerifyError> {
        let mut chain = vec![self.own.clone()];
        for link in path.intermediate_certificates() {
            let der = link.der();
            let found = self.links.iter().find(|candidate| *candidate.der == *der);
            chain.push(found.ok_or_else(|| unreadable(&self.own))?.clone());
        }
        let anchor = anchor.and_then(|at| self.authorities.get(at));
        chain.push(anchor.ok_or_else(|| unreadable(&self.own))?.clone());
        Ok(chain)
    }

    /// The authorities that may have signed the one at which a chain ended. webpki does not find those that it signed
    /// in turn, nor those whose name it has in other kinds of string.
    pub(super) fn above(&self, anchor: &Certificate<'_>) -> Vec<&Certificate<'a>> {
        if name::same(anchor.subject, anchor.issuer) {
            return Vec::new();
        }
        self.authorities
            .iter()
            .filter(|authority| name::same(authority.subject, anchor.issuer))
            .collect()
    }

    /// The certificate among these that may have signed this one; after a CA renewal, the one that is valid now.
    fn issuer<'c>(
        &self,
        certificate: &Certificate<'_>,
        among: &'c [Certificate<'a>],
    ) -> Option<&'c Certificate<'a>> {
        let named = among.iter();
        let named = named.filter(|candidate| candidate.subject == certificate.issuer);
        named.min_by_key(|candidate| check_dates(candidate, self.now).is_err())
    }

    /// Determines which certificate is at fault, and why. webpki reports only that there is no chain.
    pub(super) fn blame(&self, error: &webpki::Error) -> VerifyError {
        use webpki::Error as E;
        let mut certificate = &self.own;
        // An authority of `ca`, at which a chain may end, has the name that is looked for.
        let mut has_name = false;
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
            let trusted = self.issuer(certificate, &self.authorities);
            // The peer may have sent its own root: signing itself does not make it one of our authorities.
            let Some(issuer) = trusted.or_else(|| {
                let sent = self.issuer(certificate, &self.links);
                sent.filter(|it| !it.is_self_issued())
            }) else {
                return refusal(certificate, VerifyFault::Unknown, no_issuer(certificate));
            };
            if let Some(weakness) = key_weakness(issuer, self.profile) {
                return refusal(issuer, VerifyFault::Weak, weakness);
            }
            if trusted.is_some() && self.above(issuer).is_empty() {
                if let Err(dates) = check_dates(issuer, self.now) {
                    return dates;
                }
                has_name = true;
                break;
            }
            certificate = issuer;
        }
        #[expect(deprecated, reason = "webpki still gives the old variants in places")]
        let (fault, reason) = match error {
            E::RequiredEkuNotFound | E::RequiredEkuNotFoundContext(_) | E::EmptyEkuExtension => {
                return wrong_purpose(&self.own);
            }
            E::EndEntityUsedAsCa | E::PathLenConstraintViolated => (
                VerifyFault::Purpose,
                "one of the certificates above it is not allowed to sign certificates".to_owned(),
            ),
            E::NameConstraintViolation => (
                VerifyFault::Purpose,
                "an authority above it is not allowed to sign for its name".to_owned(),
            ),
            E::InvalidSignatureForPublicKey | E::UnknownIssuer if !has_name => {
                return refusal(certificate, VerifyFault::Unknown, no_issuer(certificate));
            }
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
