//! PKCS#12 containers (RFC 7292) under a passphrase.

use std::sync::Arc;

use aws_lc_rs::{constant_time, hmac};
use rustls::pki_types::CertificateDer;
use rustls::sign::SigningKey;
use zeroize::Zeroizing;

use crate::der::{self, BadDer, Reader};
use crate::identity::encrypted::{self, Scheme};
use crate::identity::kdf::{self, Hash, Pkcs12Use};
use crate::identity::{IdentityError, private_key};

const WHAT: &str = "pkcs12";

/// pkcs-7; one byte follows.
const PKCS7: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7];
const DATA: u8 = 1;
const ENCRYPTED_DATA: u8 = 6;
/// The kinds of bag; one byte follows.
const BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 10, 1];
const KEY_BAG: u8 = 1;
const SHROUDED_KEY_BAG: u8 = 2;
const CERTIFICATE_BAG: u8 = 3;
const NESTED_BAG: u8 = 6;
const X509_CERTIFICATE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 22, 1];
const LOCAL_KEY_ID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 21];
const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 26];
/// NIST's hashes; one byte follows.
const SHA2: &[u8] = &[0x60, 0x86, 0x48, 1, 101, 3, 4, 2];

/// Bags may hold bags; no program nests them deeper.
const DEPTH_MAX: usize = 4;

/// The content of a container.
pub(super) struct Contents {
    pub(super) key: Arc<dyn SigningKey>,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) authorities: Vec<CertificateDer<'static>>,
}

/// The parts found so far.
#[derive(Default)]
struct Bags {
    key: Option<Bag>,
    certificates: Vec<Bag>,
}

/// A key or a certificate, and the local id that says which belong together.
struct Bag {
    content: Zeroizing<Vec<u8>>,
    id: Option<Vec<u8>>,
}

/// Opens a container. Without a passphrase the empty one is tried.
pub(super) fn read(file: &[u8], passphrase: Option<&[u8]>) -> Result<Contents, IdentityError> {
    let given = passphrase.unwrap_or(b"");
    let opened = open(file, given);
    let bags = match opened {
        Err(Failure::Bad(BadDer)) => {
            return Err(unreadable(
                "it is not a PKCS#12 container in DER, or is damaged; write it again with 'openssl pkcs12 -export'",
            ));
        }
        Err(Failure::Because(IdentityError::WrongPassphrase(_))) if passphrase.is_none() => {
            return Err(IdentityError::PassphraseNeeded(WHAT));
        }
        Err(Failure::Because(error)) => return Err(error),
        Ok(bags) => bags,
    };
    let own = bags
        .key
        .ok_or_else(|| unreadable("it contains no private key"))?;
    let key = private_key::read_der(WHAT, &own.content, Some(given))?;
    // Our certificate has the key's local id; without ids it comes first.
    let first = bags
        .certificates
        .iter()
        .position(|bag| own.id.is_some() && bag.id == own.id)
        .unwrap_or_default();
    let certificates = bags.certificates.into_iter();
    let mut certificates: Vec<_> = certificates
        .map(|bag| CertificateDer::from(bag.content.to_vec()))
        .collect();
    if certificates.is_empty() {
        return Err(unreadable("it contains no certificate"));
    }
    let certificate = certificates.remove(first);
    Ok(Contents {
        key,
        certificate,
        authorities: certificates,
    })
}

/// Why a container cannot be opened: bad encoding, or another error.
enum Failure {
    Bad(BadDer),
    Because(IdentityError),
}

impl From<BadDer> for Failure {
    fn from(bad: BadDer) -> Self {
        Self::Bad(bad)
    }
}

impl From<IdentityError> for Failure {
    fn from(error: IdentityError) -> Self {
        Self::Because(error)
    }
}

fn unreadable(reason: &str) -> IdentityError {
    IdentityError::Unreadable {
        what: WHAT,
        reason: reason.to_owned(),
    }
}

fn open(file: &[u8], passphrase: &[u8]) -> Result<Bags, Failure> {
    let mut container = der::only(file, der::SEQUENCE)?;
    container.number()?;
    let safe = match content_info(&mut container)? {
        (DATA, content) => Reader::new(content).content(der::OCTET_STRING)?,
        _ => {
            let reason = "it is signed with a public key, which is not supported; write it again with 'openssl pkcs12 \
                          -export'";
            let reason = reason.to_owned();
            return Err(IdentityError::Unsupported { what: WHAT, reason }.into());
        }
    };
    // A container without a MAC is accepted, as in stock programs: its content is checked by use.
    if !container.is_empty() {
        check_mac(container.inside(der::SEQUENCE)?, safe, passphrase)?;
    }
    let mut bags = Bags::default();
    let mut parts = der::only(safe, der::SEQUENCE)?;
    while !parts.is_empty() {
        match content_info(&mut parts)? {
            (DATA, content) => {
                let content = Reader::new(content).content(der::OCTET_STRING)?;
                read_bags(content, &mut bags, DEPTH_MAX)?;
            }
            (ENCRYPTED_DATA, content) => {
                let mut data = der::only(content, der::SEQUENCE)?;
                data.number()?;
                let mut info = data.inside(der::SEQUENCE)?;
                info.content(der::OID)?;
                let scheme = Scheme::parse(WHAT, info.content(der::SEQUENCE)?)?;
                // An implicit [0] around the octets.
                let sealed = info.content(0x80)?;
                read_bags(
                    &scheme.open(WHAT, passphrase, sealed)?,
                    &mut bags,
                    DEPTH_MAX,
                )?;
            }
            _ => {
                let reason = "a part is encrypted to a public key, which is not supported; write it again with \
                              'openssl pkcs12 -export'";
                let reason = reason.to_owned();
                return Err(IdentityError::Unsupported { what: WHAT, reason }.into());
            }
        }
    }
    Ok(bags)
}

/// The kind and the content of a ContentInfo.
fn content_info<'a>(reader: &mut Reader<'a>) -> Result<(u8, &'a [u8]), BadDer> {
    let mut info = reader.inside(der::SEQUENCE)?;
    let kind = match info.content(der::OID)? {
        [prefix @ .., kind] if prefix == PKCS7 => *kind,
        _ => return Err(BadDer),
    };
    Ok((kind, info.content(der::context(0))?))
}

fn check_mac(mut mac: Reader<'_>, safe: &[u8], passphrase: &[u8]) -> Result<(), Failure> {
    let mut info = mac.inside(der::SEQUENCE)?;
    let algorithm = info.inside(der::SEQUENCE)?.content(der::OID)?;
    let tag = info.content(der::OCTET_STRING)?;
    let salt = mac.content(der::OCTET_STRING)?;
    let rounds = if mac.is_empty() {
        std::num::NonZeroU32::MIN
    } else {
        encrypted::rounds(&mut mac)?
    };
    let (hash, algorithm) = match algorithm {
        SHA1 => (Hash::Sha1, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        [prefix @ .., 1] if prefix == SHA2 => (Hash::Sha256, hmac::HMAC_SHA256),
        [prefix @ .., 2] if prefix == SHA2 => (Hash::Sha384, hmac::HMAC_SHA384),
        [prefix @ .., 3] if prefix == SHA2 => (Hash::Sha512, hmac::HMAC_SHA512),
        other => {
            let reason = format!(
                "its kind of MAC is not supported ({}); write it again with 'openssl pkcs12 -export -macalg sha256'",
                der::dotted(other)
            );
            return Err(IdentityError::Unsupported { what: WHAT, reason }.into());
        }
    };
    let matches = |passphrase: &[u8]| {
        let len = hash.digest().output_len();
        let key = kdf::pkcs12(hash, Pkcs12Use::Mac, passphrase, salt, rounds, len);
        let computed = hmac::sign(&hmac::Key::new(algorithm, &key), safe);
        constant_time::verify_slices_are_equal(computed.as_ref(), tag).is_ok()
    };
    // Some programs encode an empty passphrase as no bytes, others as an empty string.
    let good = matches(&kdf::bmp_passphrase(passphrase)) || (passphrase.is_empty() && matches(&[]));
    if good {
        Ok(())
    } else {
        Err(IdentityError::WrongPassphrase(WHAT).into())
    }
}

fn read_bags(content: &[u8], found: &mut Bags, depth: usize) -> Result<(), BadDer> {
    let mut bags = der::only(content, der::SEQUENCE)?;
    while !bags.is_empty() {
        let mut bag = bags.inside(der::SEQUENCE)?;
        let oid = bag.content(der::OID)?;
        let value = bag.content(der::context(0))?;
        let id = match bag.optional(der::SET)? {
            Some(attributes) => local_key_id(attributes.content)?,
            None => None,
        };
        match oid {
            // A container is for one tunnel: its first key is the one.
            [prefix @ .., KEY_BAG | SHROUDED_KEY_BAG] if prefix == BAG && found.key.is_none() => {
                found.key = Some(Bag {
                    content: Zeroizing::new(value.to_vec()),
                    id,
                });
            }
            [prefix @ .., CERTIFICATE_BAG] if prefix == BAG => {
                let mut certificate = der::only(value, der::SEQUENCE)?;
                if certificate.content(der::OID)? == X509_CERTIFICATE {
                    let octets = certificate.content(der::context(0))?;
                    let octets = Reader::new(octets).content(der::OCTET_STRING)?;
                    let content = Zeroizing::new(octets.to_vec());
                    found.certificates.push(Bag { content, id });
                }
            }
            [prefix @ .., NESTED_BAG] if prefix == BAG => {
                read_bags(value, found, depth.checked_sub(1).ok_or(BadDer)?)?;
            }
            // Further keys, revocation lists and secrets are ignored.
            _ => {}
        }
    }
    Ok(())
}

fn local_key_id(attributes: &[u8]) -> Result<Option<Vec<u8>>, BadDer> {
    let mut attributes = Reader::new(attributes);
    while !attributes.is_empty() {
        let mut attribute = attributes.inside(der::SEQUENCE)?;
        if attribute.content(der::OID)? == LOCAL_KEY_ID {
            let value = attribute.inside(der::SET)?.content(der::OCTET_STRING)?;
            return Ok(Some(value.to_vec()));
        }
    }
    Ok(None)
}
