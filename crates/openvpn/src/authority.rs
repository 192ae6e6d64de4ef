//! A server's own authority: it signs the server's certificate and those of its clients (RFC 5280).
//!
//! The DER is written by hand, since it fits on a page: `rcgen` would bring a clock and a second writer and reader of
//! ASN.1.
//!
//! Keys are ECDSA on P-256, signatures are made with SHA-256 (RFC 5480, RFC 5758). Certificates have only the fields
//! that they need. Validity does not depend on a clock: a router may have none when this runs, and a certificate that
//! is not valid yet, or has expired unnoticed, would keep everyone out. To revoke a client, put [`Issued::serial`] as a
//! file name into the directory of `crl-verify DIRECTORY dir`.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::der::oid::{
    BASIC_CONSTRAINTS, CLIENT_AUTH, EC, ECDSA_SHA256, EXTENDED_KEY_USAGE, KEY_USAGE, P256,
    SERVER_AUTH,
};
use crate::der::{self, decimal};
use crate::pem::{self, encode};
use crate::verify::Certificate;

/// The validity of each certificate. It ends in 2049, the last year that UTCTime can express.
const VALIDITY: [&[u8]; 2] = [b"240101000000Z", b"491231235959Z"];

/// Bytes of a serial number (at most 20).
const SERIAL: usize = 16;

/// The longest common name (RFC 5280, `ub-common-name`), in bytes.
pub const NAME_MAX: usize = 64;

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const SUBJECT_KEY: &[u8] = &[0x55, 0x1d, 14];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 35];

const UTF8_STRING: u8 = 0x0c;

pub(crate) const CERTIFICATE: &str = "CERTIFICATE";
const PRIVATE_KEY: &str = "PRIVATE KEY";

/// Why no certificate was made.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AuthorityError {
    /// A key cannot be generated: no random numbers, or no memory.
    #[error("cannot make a key: {0}")]
    Key(&'static str),
    /// The authority's own key or certificate cannot be read.
    #[error("cannot read the authority's {what}: {why}")]
    Unreadable {
        /// Which of the two: the key or the certificate.
        what: &'static str,
        /// The fault of the key or certificate.
        why: String,
    },
    /// The key and the certificate do not belong together.
    #[error("the authority's key does not belong to its certificate")]
    Other,
    /// A name that no certificate can have.
    #[error("{0:?} is not a valid name; use 1 to 64 printable characters")]
    Name(String),
}

/// The purpose of a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// `extendedKeyUsage = serverAuth`
    Server,
    /// `extendedKeyUsage = clientAuth`
    Client,
}

/// A certificate with its private key.
#[derive(Clone)]
pub struct Issued {
    /// The certificate, PEM.
    pub certificate: String,
    /// The private key, PKCS#8 in PEM.
    pub key: Zeroizing<String>,
    /// The certificate's serial number in decimal digits.
    pub serial: String,
}

/// The key is not shown.
impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued")
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}

/// An authority, with its key.
pub struct Authority {
    key: EcdsaKeyPair,
    /// The content of the authority's name.
    name: Vec<u8>,
}

/// The key is not shown.
impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes an authority, and its own certificate.
    ///
    /// # Errors
    /// [`AuthorityError::Name`], and when there is no randomness.
    pub fn create(name: &str) -> Result<(Self, Issued), AuthorityError> {
        let (key, text) = new_key()?;
        let name = common_name(name)?;
        let authority = Self { key, name };
        let public = authority.key.public_key().as_ref();
        let critical = &[der::BOOLEAN, 1, 0xff];
        let extensions = [
            extension(BASIC_CONSTRAINTS, critical, &sequence(&[critical])),
            // keyCertSign, cRLSign
            extension(KEY_USAGE, critical, &[der::BIT_STRING, 2, 1, 0x06]),
            extension(
                SUBJECT_KEY,
                &[],
                &element(der::OCTET_STRING, &[&key_id(public)]),
            ),
        ];
        let (certificate, serial) =
            authority.sign(&authority.name, public, &extensions.concat())?;
        let issued = Issued {
            certificate,
            key: text,
            serial,
        };
        Ok((authority, issued))
    }

    /// Reads an authority: its private key and its certificate, both PEM.
    ///
    /// # Errors
    /// [`AuthorityError::Unreadable`], and [`AuthorityError::Other`] if the key does not belong to the certificate.
    pub fn read(key: &str, certificate: &str) -> Result<Self, AuthorityError> {
        let unreadable =
            |what: &'static str| move |why: String| AuthorityError::Unreadable { what, why };
        let block = |text: &str, label: &'static str, what: &'static str| {
            let blocks = pem::blocks(text.as_bytes()).map_err(unreadable(what))?;
            let found = blocks.into_iter().find(|block| block.label == label);
            let none = || unreadable(what)(format!("it contains no '-----BEGIN {label}-----'"));
            found.map(|block| block.content).ok_or_else(none)
        };
        let bytes = block(key, PRIVATE_KEY, "key")?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &bytes);
        let key = key.map_err(|error| unreadable("key")(error.to_string()))?;
        let bytes = block(certificate, CERTIFICATE, "certificate")?;
        let damaged = |_| unreadable("certificate")("it is damaged".to_owned());
        let certificate = Certificate::parse(&bytes).map_err(damaged)?;
        match certificate.public_key.ends_with(key.public_key().as_ref()) {
            true => Ok(Self {
                name: certificate.subject.to_vec(),
                key,
            }),
            false => Err(AuthorityError::Other),
        }
    }

    /// Makes a key for this name, and signs a certificate for it.
    ///
    /// # Errors
    /// [`AuthorityError::Name`], and when there is no randomness.
    pub fn issue(&self, name: &str, purpose: Purpose) -> Result<Issued, AuthorityError> {
        let (key, text) = new_key()?;
        let public = key.public_key().as_ref();
        let usage = match purpose {
            Purpose::Server => SERVER_AUTH,
            Purpose::Client => CLIENT_AUTH,
        };
        let own = key_id(self.key.public_key().as_ref());
        let extensions = [
            extension(BASIC_CONSTRAINTS, &[], &sequence(&[])),
            // digitalSignature
            extension(
                KEY_USAGE,
                &[der::BOOLEAN, 1, 0xff],
                &[der::BIT_STRING, 2, 7, 0x80],
            ),
            extension(
                EXTENDED_KEY_USAGE,
                &[],
                &sequence(&[&element(der::OID, &[usage])]),
            ),
            extension(
                SUBJECT_KEY,
                &[],
                &element(der::OCTET_STRING, &[&key_id(public)]),
            ),
            // keyIdentifier, an implicit [0]
            extension(AUTHORITY_KEY, &[], &sequence(&[&element(0x80, &[&own])])),
        ];
        let (certificate, serial) = self.sign(&common_name(name)?, public, &extensions.concat())?;
        Ok(Issued {
            certificate,
            key: text,
            serial,
        })
    }

    /// A certificate for a name (its content), PEM, and its serial number.
    fn sign(
        &self,
        subject: &[u8],
        public: &[u8],
        extensions: &[u8],
    ) -> Result<(String, String), AuthorityError> {
        let serial = new_serial()?;
        let algorithm = sequence(&[&element(der::OID, &[ECDSA_SHA256])]);
        let times = VALIDITY.map(|time| element(der::UTC_TIME, &[time]));
        let curve = [EC, P256].map(|oid| element(der::OID, &[oid]));
        let key_info = sequence(&[
            &sequence(&[&curve[0], &curve[1]]),
            &element(der::BIT_STRING, &[&[0], public]),
        ]);
        let body = sequence(&[
            // Version 3.
            &element(der::context(0), &[&[der::INTEGER, 1, 2]]),
            &element(der::INTEGER, &[&serial]),
            &algorithm,
            &sequence(&[&self.name]),
            &sequence(&[&times[0], &times[1]]),
            &sequence(&[subject]),
            &key_info,
            &element(der::context(3), &[&sequence(&[extensions])]),
        ]);
        let signature = self
            .key
            .sign(&SystemRandom::new(), &body)
            .map_err(|_| AuthorityError::Key("no signature"))?;
        let signature = element(der::BIT_STRING, &[&[0], signature.as_ref()]);
        let certificate = sequence(&[&body, &algorithm, &signature]);
        Ok((
            encode(&certificate, CERTIFICATE).to_string(),
            decimal(&serial),
        ))
    }
}

/// A random serial number: positive, and its first byte not zero.
pub(crate) fn new_serial() -> Result<[u8; SERIAL], AuthorityError> {
    let mut serial = [0; SERIAL];
    let filled = aws_lc_rs::rand::fill(&mut serial);
    filled.map_err(|_| AuthorityError::Key("the system gave no random numbers"))?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

fn new_key() -> Result<(EcdsaKeyPair, Zeroizing<String>), AuthorityError> {
    let failed = |_| AuthorityError::Key("the system gave no random numbers");
    let bytes = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let bytes = bytes.map_err(failed)?;
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, bytes.as_ref());
    let key = key.map_err(|_| AuthorityError::Key("it cannot be read back"))?;
    Ok((key, encode(bytes.as_ref(), PRIVATE_KEY)))
}

/// The content of a name that is a common name only.
fn common_name(name: &str) -> Result<Vec<u8>, AuthorityError> {
    let printable = name.chars().all(|it| !it.is_control());
    if name.is_empty() || name.len() > NAME_MAX || !printable {
        return Err(AuthorityError::Name(name.to_owned()));
    }
    let text = element(UTF8_STRING, &[name.as_bytes()]);
    let part = sequence(&[&element(der::OID, &[COMMON_NAME]), &text]);
    Ok(element(der::SET, &[&part]))
}

/// The identifier of a key: 160 bits of its digest (RFC 7093 §2, method 1).
fn key_id(public: &[u8]) -> Vec<u8> {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, public);
    digest.as_ref()[..20].to_vec()
}

fn extension(oid: &[u8], critical: &[u8], value: &[u8]) -> Vec<u8> {
    let value = element(der::OCTET_STRING, &[value]);
    sequence(&[&element(der::OID, &[oid]), critical, &value])
}

pub(crate) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(der::SEQUENCE, parts)
}

/// An element with these parts as its content.
pub(crate) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let length = der::unsigned(&length);
    let head = match content.len() {
        0 => vec![tag, 0],
        1..=0x7f => vec![tag, length[0]],
        _ => [&[tag, 0x80 | length.len() as u8], length].concat(),
    };
    [head, content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_what_they_say() {
        let (authority, own) = Authority::create("home CA").unwrap();
        let again = Authority::read(&own.key, &own.certificate).unwrap();
        let bytes = |text: &str| pem::blocks(text.as_bytes()).unwrap()[0].content.to_vec();
        let own_bytes = bytes(&own.certificate);
        let ca = Certificate::parse(&own_bytes).unwrap();
        assert!(ca.may_sign() && ca.is_self_issued());
        for (authority, purpose) in [(&authority, Purpose::Server), (&again, Purpose::Client)] {
            let issued = authority.issue("phone", purpose).unwrap();
            let issued_bytes = bytes(&issued.certificate);
            let certificate = Certificate::parse(&issued_bytes).unwrap();
            assert_eq!(certificate.issuer, ca.subject);
            assert_eq!(certificate.version, 3);
            assert_eq!(decimal(certificate.serial_integer), issued.serial);
            assert!(!certificate.may_sign());
            assert_eq!(certificate.describe(), "CN=phone");
            let usage = certificate.extended_key_usage().unwrap().unwrap();
            let wanted = match purpose {
                Purpose::Server => SERVER_AUTH,
                Purpose::Client => CLIENT_AUTH,
            };
            assert_eq!(usage, [wanted]);
        }
    }

    #[test]
    fn a_key_of_another_authority_is_told() {
        let (_, one) = Authority::create("one").unwrap();
        let (_, two) = Authority::create("two").unwrap();
        let error = Authority::read(&one.key, &two.certificate).unwrap_err();
        assert_eq!(error, AuthorityError::Other);
        let error = Authority::read("", &two.certificate)
            .unwrap_err()
            .to_string();
        assert!(error.contains("BEGIN PRIVATE KEY"), "{error}");
        for name in ["", "a\nb", &"x".repeat(65)] {
            assert!(Authority::create(name).is_err(), "{name:?}");
        }
    }
}
