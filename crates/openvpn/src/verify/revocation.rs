//! Revokes certificates: by the lists of `crl-verify FILE`, and by the directory of `crl-verify DIRECTORY dir`, into
//! which the program looks.

use std::fmt::Debug;
use std::sync::Arc;

use rustls::pki_types::SignatureVerificationAlgorithm;

use crate::verify::certificate::Certificate;
use crate::verify::crl::{RevocationLists, Standing};
use crate::verify::refusal::refusal;
use crate::verify::time::Time;
use crate::verify::{VerifyError, VerifyFault, serial};

/// The serial numbers of revoked certificates, which are kept outside of this crate.
pub trait RevokedSerials: Debug + Send + Sync {
    /// Whether the certificate with this serial number, in decimal digits, is revoked. Asked for
    /// each certificate of a chain in each negotiation.
    ///
    /// # Errors
    /// Why it cannot be told, and what to do. The certificate is refused then.
    fn contains(&self, serial: &str) -> Result<bool, String>;
}

/// All that revokes certificates; nothing by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Revocations {
    pub(crate) lists: Option<Arc<RevocationLists>>,
    pub(crate) serials: Option<Arc<dyn RevokedSerials>>,
}

impl Revocations {
    /// Fails if the certificate is revoked, or if that cannot be told. `issuers` may have signed it: one inside a
    /// chain, perhaps several at its end.
    pub(super) fn check(
        &self,
        certificate: &Certificate<'_>,
        issuers: &[&Certificate<'_>],
        now: Time,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), VerifyError> {
        let refuse = |reason| Err(refusal(certificate, VerifyFault::Revoked, reason));
        let revoked = || refuse("it is revoked (crl-verify); have a new one made".to_owned());
        if let Some(serials) = &self.serials {
            match serials.contains(&serial::decimal(certificate.serial_integer)) {
                Ok(false) => {}
                Ok(true) => return revoked(),
                Err(reason) => return refuse(reason),
            }
        }
        let Some(lists) = &self.lists else {
            return Ok(());
        };
        let (mut good, mut unusable) = (false, None);
        for issuer in issuers {
            let (subject, key) = (issuer.subject, issuer.public_key);
            match lists.standing(subject, key, certificate.serial, now, algorithms) {
                Standing::Good => good = true,
                Standing::Revoked => return revoked(),
                Standing::Unusable(reason) => unusable = Some(reason),
            }
        }
        unusable.filter(|_| !good).map_or(Ok(()), refuse)
    }
}
