//! Which keys and signatures are strong enough, and what to do about those that are not.

use crate::der::oid::{EC, ECDSA_SHA256, P256};
use crate::der::{self, BadDer, Reader};
use crate::verify::certificate::Certificate;

/// `tls-cert-profile`: how strong certificates must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CertificateProfile {
    /// RSA from 2048 bits, any elliptic curve that is known, SHA-256 and longer. Stock programs
    /// go lower (RSA 1024, SHA-1); Millrace does not.
    #[default]
    Legacy,
    /// Equal to `legacy`, which is already this strict.
    Preferred,
    /// ECDSA with P-256 or P-384 and SHA-256 or SHA-384 only.
    SuiteB,
}

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 34];
const P521: &[u8] = &[0x2b, 0x81, 4, 0, 35];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3];

/// Signatures that are refused, by their name.
const WEAK_SIGNATURES: &[(&[u8], &str)] = &[
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 2], "MD2"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4], "MD5"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], "SHA-1"),
    (&[0x2b, 0x0e, 3, 2, 29], "SHA-1"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], "SHA-1"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 3], "DSA and SHA-1"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 14], "SHA-224"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 1], "SHA-224"),
];

const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Why the key of a certificate cannot be used; `None` if it can.
pub(crate) fn key_weakness(
    certificate: &Certificate<'_>,
    profile: CertificateProfile,
) -> Option<String> {
    let reason = match read_key(certificate.public_key) {
        Ok(Key::Rsa { bits }) if bits < *RSA_BITS.start() => format!(
            "its RSA key has {bits} bits, which can be broken; make a new key with at least 2048 \
             bits and a new certificate for it"
        ),
        Ok(Key::Rsa { bits }) if bits > *RSA_BITS.end() => {
            format!("its RSA key has {bits} bits, but at most 8192 are supported; make a new key")
        }
        Ok(Key::Rsa { .. } | Key::P521 | Key::Ed25519) if profile == CertificateProfile::SuiteB => {
            "tls-cert-profile suiteb allows ECDSA keys of P-256 and P-384 only".to_owned()
        }
        Ok(Key::Other(what)) => format!(
            "its kind of key is not supported ({what}); use RSA with 2048 to 8192 bits, ECDSA with P-256, P-384 or \
             P-521, or Ed25519"
        ),
        Err(BadDer) => "its public key cannot be read".to_owned(),
        Ok(_) => return None,
    };
    Some(reason)
}

/// Why the signature on a certificate is too weak; `None` if it is strong enough.
pub(crate) fn signature_weakness(
    certificate: &Certificate<'_>,
    profile: CertificateProfile,
) -> Option<String> {
    let algorithm = Reader::new(certificate.signature_algorithm)
        .content(der::OID)
        .ok()?;
    if let Some((_, name)) = WEAK_SIGNATURES.iter().find(|(weak, _)| *weak == algorithm) {
        return Some(format!(
            "it is signed with {name}, which can be forged; have the authority sign it again with SHA-256"
        ));
    }
    let suite_b = algorithm == ECDSA_SHA256 || algorithm == ECDSA_SHA384;
    (profile == CertificateProfile::SuiteB && !suite_b).then(|| {
        "tls-cert-profile suiteb allows signatures by ECDSA with SHA-256 or SHA-384 only".to_owned()
    })
}

/// The kinds of key that are told apart.
enum Key {
    Rsa { bits: usize },
    P256,
    P384,
    P521,
    Ed25519,
    Other(String),
}

fn read_key(public_key: &[u8]) -> Result<Key, BadDer> {
    let mut public_key = Reader::new(public_key);
    let mut algorithm = public_key.inside(der::SEQUENCE)?;
    let bits = public_key.bit_string()?;
    let oid = algorithm.content(der::OID)?;
    Ok(if oid == RSA {
        let modulus = der::unsigned(der::only(bits, der::SEQUENCE)?.content(der::INTEGER)?);
        let zeros = modulus
            .first()
            .map_or(0, |first| first.leading_zeros() as usize);
        Key::Rsa {
            bits: 8 * modulus.len() - zeros,
        }
    } else if oid == EC {
        match algorithm.any()?.content {
            P256 => Key::P256,
            P384 => Key::P384,
            P521 => Key::P521,
            curve => Key::Other(format!("the curve {}", der::dotted(curve))),
        }
    } else if oid == ED25519 {
        Key::Ed25519
    } else if oid == RSA_PSS {
        Key::Other("RSA for PSS only".to_owned())
    } else {
        Key::Other(der::dotted(oid))
    })
}
