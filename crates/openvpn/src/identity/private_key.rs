//! Private keys in the forms in which people keep them.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use zeroize::Zeroizing;

use crate::der;
use crate::identity::IdentityError;
use crate::identity::encrypted::{self, Scheme};
use crate::pem::{self, Block};

/// Reads the first private key of a file: PKCS#1, PKCS#8 or SEC1, as PEM or DER, in the clear or
/// encrypted.
pub(crate) fn read(
    what: &'static str,
    file: &[u8],
    passphrase: Option<&[u8]>,
) -> Result<Arc<dyn SigningKey>, IdentityError> {
    if file.first() == Some(&der::SEQUENCE) {
        return read_der(what, file, passphrase);
    }
    let unreadable = |reason| IdentityError::Unreadable { what, reason };
    let blocks = pem::blocks(file).map_err(unreadable)?;
    let Block {
        encryption,
        content,
        ..
    } = blocks
        .into_iter()
        .find(|block| block.label.ends_with("PRIVATE KEY"))
        .ok_or_else(|| unreadable("it contains no '-----BEGIN PRIVATE KEY-----'".to_owned()))?;
    match encryption {
        Some(info) => {
            let passphrase = passphrase.ok_or(IdentityError::PassphraseNeeded(what))?;
            load(
                what,
                &encrypted::open_legacy(what, &info, &content, passphrase)?,
            )
        }
        None => read_der(what, &content, passphrase),
    }
}

/// Reads a private key without PEM around it.
pub(super) fn read_der(
    what: &'static str,
    key: &[u8],
    passphrase: Option<&[u8]>,
) -> Result<Arc<dyn SigningKey>, IdentityError> {
    let Some((algorithm, sealed)) = encrypted::encrypted_pkcs8(key) else {
        return load(what, key);
    };
    let scheme = Scheme::parse(what, algorithm)?;
    let passphrase = passphrase.ok_or(IdentityError::PassphraseNeeded(what))?;
    let opened: Zeroizing<Vec<u8>> = scheme.open(what, passphrase, sealed)?;
    load(what, &opened)
}

/// Makes a key of DER in the clear.
fn load(what: &'static str, key: &[u8]) -> Result<Arc<dyn SigningKey>, IdentityError> {
    let key = PrivateKeyDer::try_from(key).map_err(|_| IdentityError::Unreadable {
        what,
        reason: "it is neither PKCS#8, PKCS#1 nor SEC1; convert it with 'openssl pkey'".to_owned(),
    })?;
    any_supported_type(&key).map_err(|_| IdentityError::Unsupported {
        what,
        reason:
            "the key is damaged, too weak, or of a kind that is not supported; use RSA with 2048 \
                 to 8192 bits, ECDSA with P-256, P-384 or P-521, or Ed25519"
                .to_owned(),
    })
}
