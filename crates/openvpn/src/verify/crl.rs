//! Revokes certificates: by the lists of `crl-verify FILE` (RFC 5280 §5), and by the directory of
//! `crl-verify DIRECTORY dir`, into which the program looks.
//!
//! webpki reads only lists of version 2, while `openssl ca` writes version 1 unless told otherwise;
//! hence a reader of our own. Partial lists (delta, indirect, by distribution point) are refused
//! when they are loaded, as they would let revoked certificates through. As in stock programs, a
//! list that has expired lets no certificate through, and an authority without a list revokes nothing.

#[cfg(feature = "server")]
use std::collections::BTreeMap;
use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::SignatureVerificationAlgorithm;

use crate::der::{self, BadDer, Reader};
use crate::verify::certificate::Certificate;
use crate::verify::peer::ChainCertificate;
use crate::verify::refusal::refusal;
use crate::verify::time::Time;
use crate::verify::{VerifyError, VerifyFault};
use crate::{name, pem};

/// All lists of `crl-verify`.
#[derive(Debug, Default)]
pub(crate) struct RevocationLists {
    lists: Vec<RevocationList>,
}

#[derive(Debug)]
pub(crate) struct RevocationList {
    /// The issuer's name in the form in which names are compared.
    issuer: Box<[u8]>,
    this_update: Time,
    next_update: Option<Time>,
    /// Serial numbers without zeros in front.
    revoked: HashSet<Box<[u8]>>,
    /// The signed bytes; kept until an authority was found that has signed them.
    signed: Box<[u8]>,
    algorithm: Box<[u8]>,
    signature: Box<[u8]>,
    /// The key (the content of its SubjectPublicKeyInfo) that has signed the list.
    signed_by: OnceLock<Box<[u8]>>,
}

/// The status of a certificate by the lists.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// No list revokes the certificate.
    Good,
    /// A list revokes the certificate.
    Revoked,
    /// The list cannot be relied upon: the reason, and the remedy.
    Unusable(String),
}

impl RevocationLists {
    /// Reads PEM with any number of lists, or one as DER.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let blocks = pem::blocks_or_der(bytes, &["X509 CRL"])
            .map_err(|error| format!("{error}; write it with 'openssl ca -gencrl'"))?;
        let lists = blocks
            .iter()
            .map(|block| RevocationList::parse(block))
            .collect::<Result<_, _>>()?;
        Ok(Self { lists })
    }

    /// When the latest list of each authority ends; `None` for one that never does.
    #[cfg(feature = "server")]
    pub(crate) fn ends(&self) -> Vec<Option<Time>> {
        let mut ends = BTreeMap::new();
        for list in &self.lists {
            let end = ends.entry(&list.issuer).or_insert(list.next_update);
            *end = end.and_then(|end| Some(end.max(list.next_update?)));
        }
        ends.into_values().collect()
    }

    /// Whether a list of the certificate's issuer names its serial number. Where the issuer's key is not known, its
    /// name decides.
    pub(crate) fn name(
        &self,
        certificate: &ChainCertificate,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        let digits = certificate.serial_hex.split(':');
        let bytes = digits.map(|byte| u8::from_str_radix(byte, 16));
        let Ok(bytes) = bytes.collect::<Result<Vec<u8>, _>>() else {
            return false;
        };
        let serial = der::unsigned(&bytes);
        let mut theirs = self
            .lists
            .iter()
            .filter(|it| it.issuer == certificate.issuer);
        theirs.any(|list| {
            let key = certificate.issuer_key.as_ref();
            list.revoked.contains(serial)
                && key.is_none_or(|key| list.is_signed_by(key, algorithms))
        })
    }

    /// The status of a serial number by the lists of the authority with this name and key.
    ///
    /// An authority may have several lists: one that replaces another, or, after a change of its key, one
    /// for each key. A certificate that any list revokes is revoked; else one reliable list is enough.
    fn standing(
        &self,
        issuer: &[u8],
        issuer_key: &[u8],
        serial: &[u8],
        now: Time,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Standing {
        let mut fault = None;
        let mut relied_upon = false;
        let issuer = name::canonical(issuer);
        for list in self.lists.iter().filter(|list| *list.issuer == *issuer) {
            if !list.is_signed_by(issuer_key, algorithms) {
                fault.get_or_insert_with(|| {
                    "the revocation list for its authority is not signed by that authority (with \
                     SHA-256 or better); make a new list"
                        .to_owned()
                });
                continue;
            }
            if list.revoked.contains(serial) {
                return Standing::Revoked;
            }
            match list.untimely(now) {
                Some(reason) => fault = Some(reason),
                None => relied_upon = true,
            }
        }
        fault
            .filter(|_| !relied_upon)
            .map_or(Standing::Good, Standing::Unusable)
    }
}

impl RevocationList {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let unreadable = |BadDer| "it is not a revocation list, or is damaged".to_owned();
        let (list, partial) = Self::read(bytes).map_err(unreadable)?;
        if partial {
            return Err(
                "it is a partial list (delta, indirect, or of a distribution point), which \
                        is not supported; make a complete one"
                    .to_owned(),
            );
        }
        Ok(list)
    }

    /// Reads a list. The flag tells whether it has a critical extension, and so must not be used.
    fn read(bytes: &[u8]) -> Result<(Self, bool), BadDer> {
        let mut outer = der::only(bytes, der::SEQUENCE)?;
        let body = outer.element(der::SEQUENCE)?;
        let algorithm = outer.content(der::SEQUENCE)?;
        let signature = outer.bit_string()?;
        outer.end()?;

        let mut list = Reader::new(body.content);
        list.optional(der::INTEGER)?;
        list.content(der::SEQUENCE)?;
        let issuer = list.content(der::SEQUENCE)?;
        let this_update = Time::read(&mut list)?;
        let mut partial = false;
        let mut next_update = None;
        let mut revoked = HashSet::new();
        // Next update, entries and extensions may each be absent.
        let mut rest = list;
        if !rest.is_empty() && matches!(rest.any()?.tag, der::UTC_TIME | der::GENERALIZED_TIME) {
            next_update = Some(Time::read(&mut list)?);
        }
        if let Some(entries) = list.optional(der::SEQUENCE)? {
            let mut entries = Reader::new(entries.content);
            while !entries.is_empty() {
                let mut entry = entries.inside(der::SEQUENCE)?;
                revoked.insert(der::unsigned(entry.content(der::INTEGER)?).into());
                Time::read(&mut entry)?;
                if let Some(extensions) = entry.optional(der::SEQUENCE)? {
                    partial |= has_critical(extensions.content)?;
                }
            }
        }
        if let Some(extensions) = list.optional(der::context(0))? {
            let extensions = Reader::new(extensions.content).content(der::SEQUENCE)?;
            partial |= has_critical(extensions)?;
        }
        list.end()?;
        let list = Self {
            issuer: name::canonical(issuer).into(),
            this_update,
            next_update,
            revoked,
            signed: body.whole.into(),
            algorithm: algorithm.into(),
            signature: signature.into(),
            signed_by: OnceLock::new(),
        };
        Ok((list, partial))
    }

    /// Why the list does not count at this time; `None` if it does.
    fn untimely(&self, now: Time) -> Option<String> {
        if self.this_update > now {
            return Some(format!(
                "the revocation list is valid from {} on, but the clock says {now}; set the clock",
                self.this_update
            ));
        }
        let next = self.next_update.filter(|next| *next < now)?;
        Some(format!(
            "the revocation list expired on {next}; make a new one, and reload"
        ))
    }

    /// Whether the list is of the authority with this name (the content of its SEQUENCE).
    #[cfg(feature = "server")]
    pub(crate) fn is_of(&self, issuer: &[u8]) -> bool {
        *self.issuer == *name::canonical(issuer)
    }

    /// Whether the key has signed the list. It is computed once, as lists can be long.
    pub(crate) fn is_signed_by(
        &self,
        key: &[u8],
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        if let Some(known) = self.signed_by.get() {
            return **known == *key;
        }
        let signed = verifies(
            key,
            &self.algorithm,
            &self.signed,
            &self.signature,
            algorithms,
        );
        if signed {
            // Another thread can only have found the same.
            let _ = self.signed_by.set(key.into());
        }
        signed
    }
}

/// Whether one of the algorithms verifies a signature by the key with this SubjectPublicKeyInfo.
pub(crate) fn verifies(
    public_key: &[u8],
    algorithm: &[u8],
    message: &[u8],
    signature: &[u8],
    algorithms: &[&dyn SignatureVerificationAlgorithm],
) -> bool {
    let mut info = Reader::new(public_key);
    let (Ok(key_algorithm), Ok(key)) = (info.content(der::SEQUENCE), info.bit_string()) else {
        return false;
    };
    algorithms
        .iter()
        .filter(|known| {
            known.public_key_alg_id().as_ref() == key_algorithm
                && known.signature_alg_id().as_ref() == algorithm
        })
        .any(|known| known.verify_signature(key, message, signature).is_ok())
}

/// Whether one of these extensions is critical. A complete list needs no critical ones.
fn has_critical(extensions: &[u8]) -> Result<bool, BadDer> {
    let mut extensions = Reader::new(extensions);
    while !extensions.is_empty() {
        let mut extension = extensions.inside(der::SEQUENCE)?;
        extension.content(der::OID)?;
        if extension
            .optional(der::BOOLEAN)?
            .is_some_and(|critical| critical.content != [0])
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The serial numbers of revoked certificates, which are kept outside of this crate.
pub trait RevokedSerials: Debug + Send + Sync {
    /// Whether the certificate with this serial number, in decimal digits, is revoked. Asked for
    /// each certificate of a chain in each negotiation.
    ///
    /// # Errors
    /// Why that cannot be determined, and what to do. The certificate is refused then.
    fn contains(&self, serial: &str) -> Result<bool, String>;
}

/// All that revokes certificates; nothing by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Revocations {
    pub(crate) lists: Option<Arc<RevocationLists>>,
    pub(crate) serials: Option<Arc<dyn RevokedSerials>>,
}

impl Revocations {
    /// Fails if the certificate is revoked, or if that cannot be determined. `issuers` may have signed it: one inside a
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
            match serials.contains(&der::decimal(certificate.serial_integer)) {
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
