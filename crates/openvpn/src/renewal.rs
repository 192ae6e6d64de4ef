//! Renews what an authority signed: a certificate, and its list of revoked certificates (RFC 5280).
//!
//! Only times, the serial number and the signature change. The certificate keeps its key, name and extensions, the list
//! its entries, so everything that was made for the earlier ones fits the new ones.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{AlgorithmIdentifier, SignatureVerificationAlgorithm, UnixTime, alg_id};
use rustls::sign::SigningKey;
use thiserror::Error;

use crate::authority::{AuthorityError, CERTIFICATE, element, new_serial, sequence};
use crate::der::{self, BadDer, Reader};
use crate::identity::{self, IdentityError, private_key};
use crate::name::Name;
use crate::pem;
use crate::verify::{Certificate, RevocationList, Time, verifies};

/// The label of a revocation list.
const LIST: &str = "X509 CRL";

/// The number of a list, which whoever keeps the index counts up (RFC 5280 §5.2.3).
const CRL_NUMBER: &[u8] = &[0x55, 0x1d, 20];

const DAY: Duration = Duration::from_secs(86_400);

/// How an authority's key may sign, best first.
const SCHEMES: [(SignatureScheme, AlgorithmIdentifier); 5] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, alg_id::ECDSA_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, alg_id::ECDSA_SHA384),
    (SignatureScheme::ECDSA_NISTP521_SHA512, alg_id::ECDSA_SHA512),
    (SignatureScheme::ED25519, alg_id::ED25519),
    (SignatureScheme::RSA_PKCS1_SHA256, alg_id::RSA_PKCS1_SHA256),
];

/// Why nothing was renewed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RenewalError {
    /// A file cannot be read, or the key needs a passphrase.
    #[error(transparent)]
    File(#[from] IdentityError),
    /// The key is of none of the certificates in `ca`.
    #[error("this is not the key of an authority in ca")]
    Other,
    /// Another authority signed the thing.
    #[error("{what} was not signed by {authority}, whose key this is")]
    Foreign {
        /// The certificate or the list.
        what: String,
        /// The authority that has the key.
        authority: String,
    },
    /// The thing cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The authority has ended.
    #[error("the authority {0} has ended: make a new one, and a new file for each client")]
    Ended(String),
    /// No random numbers, or no signature.
    #[error(transparent)]
    Random(#[from] AuthorityError),
}

/// A renewed certificate or list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Renewed {
    /// PEM.
    pub text: String,
    /// The end of validity.
    pub ends: SystemTime,
}

/// An authority that somebody keeps, with any kind of key.
pub struct Renewer {
    key: Arc<dyn SigningKey>,
    scheme: SignatureScheme,
    /// The AlgorithmIdentifier.
    algorithm: Vec<u8>,
    /// The content of the authority's name.
    name: Vec<u8>,
    /// The content of the authority's SubjectPublicKeyInfo.
    public_key: Vec<u8>,
    ends: SystemTime,
    algorithms: &'static [&'static dyn SignatureVerificationAlgorithm],
}

/// The key is not shown.
impl std::fmt::Debug for Renewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewer").finish_non_exhaustive()
    }
}

impl Renewer {
    /// Reads the authority's key, and finds its certificate among those of `ca`: PEM or DER.
    ///
    /// # Errors
    /// [`RenewalError::File`], also for a missing or wrong passphrase; [`RenewalError::Other`].
    pub fn read(key: &[u8], ca: &[u8], passphrase: Option<&[u8]>) -> Result<Self, RenewalError> {
        let key = private_key::read("the authority's key", key, passphrase)?;
        let mut schemes = SCHEMES.into_iter();
        let (scheme, algorithm) = schemes
            .find(|(scheme, _)| key.choose_scheme(&[*scheme]).is_some())
            .ok_or(RenewalError::Other)?;
        let public = key.public_key().ok_or(RenewalError::Other)?;
        let public = Reader::new(&public).content(der::SEQUENCE);
        let public = public.map_err(|BadDer| RenewalError::Other)?;
        let certificates = identity::certificates("ca", ca)?;
        let certificates = certificates.iter().flat_map(|it| Certificate::parse(it));
        // After a renewal of the authority the later one counts.
        let certificate = certificates
            .filter(|it| it.public_key == public)
            .max_by_key(|it| it.not_after)
            .ok_or(RenewalError::Other)?;
        Ok(Self {
            scheme,
            algorithm: sequence(&[algorithm.as_ref()]),
            name: certificate.subject.to_vec(),
            public_key: public.to_vec(),
            ends: certificate.not_after.system(),
            algorithms: default_provider().signature_verification_algorithms.all,
            key,
        })
    }

    /// Renews the first certificate of a file for this many days, but not beyond the authority's own end.
    ///
    /// # Errors
    /// Another authority signed it, or the authority has ended.
    pub fn certificate(
        &self,
        cert: &[u8],
        now: SystemTime,
        days: u32,
    ) -> Result<Renewed, RenewalError> {
        let unreadable = |BadDer| RenewalError::Unreadable("cert: it is damaged".to_owned());
        let chain = identity::certificates("cert", cert)?;
        let old = chain.first().ok_or_else(|| unreadable(BadDer))?;
        let old = Certificate::parse(old).map_err(unreadable)?;
        let [body, algorithm, signature] = old.signed().map_err(unreadable)?;
        let own = (&self.public_key, self.algorithms);
        if old.issuer != self.name || !verifies(own.0, algorithm, body, signature, own.1) {
            return Err(self.foreign(format!("the certificate {}", old.describe())));
        }
        if self.ends <= now {
            return Err(RenewalError::Ended(self.describe()));
        }
        let ends = (now + days * DAY).min(self.ends);
        let body = self
            .body(body, [now - DAY, ends], &new_serial()?)
            .map_err(unreadable)?;
        let text = self.signed(&body, CERTIFICATE)?;
        Ok(Renewed { text, ends })
    }

    /// A certificate's body with another serial number and other times.
    fn body(&self, old: &[u8], times: [SystemTime; 2], serial: &[u8]) -> Result<Vec<u8>, BadDer> {
        let mut old = der::only(old, der::SEQUENCE)?;
        let version = old.optional(der::context(0))?;
        old.element(der::INTEGER)?;
        old.element(der::SEQUENCE)?;
        let issuer = old.element(der::SEQUENCE)?;
        old.element(der::SEQUENCE)?;
        Ok(sequence(&[
            version.map_or(&[], |it| it.whole),
            &element(der::INTEGER, &[serial]),
            &self.algorithm,
            issuer.whole,
            &sequence(&[&time(times[0]), &time(times[1])]),
            &all(&mut old)?.concat(),
        ]))
    }

    /// Renews the authority's lists in a file for this many days. Lists of other authorities stay as they are.
    ///
    /// # Errors
    /// The authority has no list in the file, or did not sign it.
    pub fn list(&self, crl: &[u8], now: SystemTime, days: u32) -> Result<Renewed, RenewalError> {
        let unreadable = |why| RenewalError::Unreadable(format!("crl-verify: {why}"));
        let ends = now + days * DAY;
        let (mut text, mut renewed) = (String::new(), false);
        for old in pem::blocks_or_der(crl, &[LIST]).map_err(unreadable)? {
            let list = RevocationList::parse(&old).map_err(unreadable)?;
            if !list.is_of(&self.name) {
                text += &pem::encode(&old, LIST);
                continue;
            }
            if !list.is_signed_by(&self.public_key, self.algorithms) {
                return Err(self.foreign("the revocation list".to_owned()));
            }
            let body = self.entries(&old, now, ends);
            let body = body.map_err(|BadDer| unreadable("it is damaged".to_owned()))?;
            text += &self.signed(&body, LIST)?;
            renewed = true;
        }
        match renewed {
            true => Ok(Renewed { text, ends }),
            false => Err(self.foreign("the revocation list".to_owned())),
        }
    }

    /// A list's body with the same entries and other times.
    fn entries(&self, old: &[u8], now: SystemTime, ends: SystemTime) -> Result<Vec<u8>, BadDer> {
        let mut old = der::only(old, der::SEQUENCE)?.inside(der::SEQUENCE)?;
        let version = old.optional(der::INTEGER)?;
        old.element(der::SEQUENCE)?;
        let issuer = old.element(der::SEQUENCE)?;
        old.any()?;
        let (mut entries, mut extensions) = (&[][..], Vec::new());
        while !old.is_empty() {
            let part = old.any()?;
            match part.tag {
                der::SEQUENCE => entries = part.whole,
                tag if tag == der::context(0) => {
                    let mut inside = Reader::new(part.content).inside(der::SEQUENCE)?;
                    extensions = all(&mut inside)?;
                }
                _ => {}
            }
        }
        let is_number = |it: &&[u8]| {
            let oid = der::only(it, der::SEQUENCE).and_then(|mut it| it.content(der::OID));
            oid == Ok(CRL_NUMBER)
        };
        extensions.retain(|it| !is_number(it));
        let extensions = match extensions.is_empty() {
            true => Vec::new(),
            false => element(der::context(0), &[&sequence(&extensions)]),
        };
        Ok(sequence(&[
            version.map_or(&[], |it| it.whole),
            &self.algorithm,
            issuer.whole,
            &time(now),
            &time(ends),
            entries,
            &extensions,
        ]))
    }

    /// A signed body, PEM.
    fn signed(&self, body: &[u8], label: &str) -> Result<String, RenewalError> {
        let signer = self.key.choose_scheme(&[self.scheme]);
        let signature = signer.and_then(|it| it.sign(body).ok());
        let signature = signature.ok_or(AuthorityError::Key("no signature"))?;
        let signature = element(der::BIT_STRING, &[&[0], &signature]);
        let signed = sequence(&[body, &self.algorithm, &signature]);
        Ok(pem::encode(&signed, label).to_string())
    }

    fn foreign(&self, what: String) -> RenewalError {
        let authority = self.describe();
        RenewalError::Foreign { what, authority }
    }

    /// The authority's name for people.
    fn describe(&self) -> String {
        Name::parse(&self.name).map_or_else(|BadDer| "(unreadable)".to_owned(), |it| it.to_string())
    }
}

/// All elements that are left.
fn all<'a>(rest: &mut Reader<'a>) -> Result<Vec<&'a [u8]>, BadDer> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        found.push(rest.any()?.whole);
    }
    Ok(found)
}

/// A time as an element.
fn time(at: SystemTime) -> Vec<u8> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    let since = UnixTime::since_unix_epoch(since.unwrap_or_default());
    let (tag, text) = Time::of(since).encode();
    element(tag, &[text.as_bytes()])
}
