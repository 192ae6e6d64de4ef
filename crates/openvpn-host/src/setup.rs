//! Reads the configuration's files and makes the protocol's settings from them.

use crate::revocation::RevokedDirectory;
use config::openvpn::{Connection, Crl, OpenVpn, SharedWrap, Source, Tls};
use openvpn::identity::{Identity, IdentityError};
use openvpn::keyfile::{KeyFileError, StaticKey, v2};
use openvpn::role::Role;
use openvpn::tls::{self, TlsOptions, TlsSettings};
use openvpn::wrap::WrapSettings;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use zeroize::Zeroizing;

/// Error that prevents a start although each line of the configuration is valid.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file of a directive cannot be read.
    #[error("{what}: {name}: {error}")]
    File {
        /// Name of the directive.
        what: &'static str,
        /// The file, or "inline".
        name: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// A file's content is invalid.
    #[error("{what}: {reason}")]
    Content {
        /// Name of the directive.
        what: &'static str,
        /// The fault and its remedy.
        reason: String,
    },
    /// A key file of `tls-auth`, `tls-crypt` or `tls-crypt-v2` is invalid.
    #[error("{what}: {error}")]
    KeyFile {
        /// Name of the directive.
        what: &'static str,
        /// The error in the file.
        error: KeyFileError,
    },
    /// Certificates or keys are invalid.
    #[error(transparent)]
    Tls(#[from] tls::SettingsError),
}

/// Reads a directive's file or block. An empty one is an error: the directive would silently have no effect.
fn load(
    what: &'static str,
    source: &Source,
    directory: Option<&Path>,
) -> Result<Zeroizing<Vec<u8>>, SetupError> {
    let bytes = source.load(directory).map_err(|error| SetupError::File {
        what,
        name: match source {
            Source::Inline(_) => "inline".to_owned(),
            Source::File(path) => path.display().to_string(),
        },
        error,
    })?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let kind = if source.is_inline() { "block" } else { "file" };
        return Err(SetupError::Content {
            what,
            reason: format!("the {kind} is empty; fill it, or remove the directive"),
        });
    }
    Ok(bytes)
}

fn load_or_empty(
    what: &'static str,
    source: Option<&Source>,
    directory: Option<&Path>,
) -> Result<Zeroizing<Vec<u8>>, SetupError> {
    source.map_or_else(
        || Ok(Zeroizing::default()),
        |source| load(what, source, directory),
    )
}

fn text(what: &'static str, bytes: &[u8]) -> Result<Zeroizing<String>, SetupError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(SetupError::Content {
            what,
            reason: "it is not a text file; is it the right one?".to_owned(),
        }),
    }
}

/// Returns whether the configuration is a client's or a server's.
pub(crate) fn role(config: &OpenVpn) -> Role {
    match config.server() {
        Some(_) => Role::Server,
        None => Role::Client,
    }
}

/// Whether a passphrase can resolve the error.
pub fn wants_passphrase(error: &SetupError) -> bool {
    matches!(
        error,
        SetupError::Tls(tls::SettingsError::Identity(
            IdentityError::PassphraseNeeded(_) | IdentityError::WrongPassphrase(_)
        ))
    )
}

/// Reads and checks certificates, keys and rules.
///
/// # Errors
/// After an error for which [`wants_passphrase`] is true, try again with a passphrase.
pub fn tls_settings(
    config: &OpenVpn,
    passphrase: Option<&[u8]>,
) -> Result<TlsSettings, SetupError> {
    let (wanted, directory) = (&config.tls, config.directory.as_deref());
    let mut options = TlsOptions::new(role(config));
    options.ca = load_or_empty("ca", wanted.ca.as_ref(), directory)?.to_vec();
    options.identity = identity(wanted, directory, passphrase)?;
    options.version_min = wanted.version_min;
    if let Some(max) = wanted.version_max {
        options.version_max = max;
    }
    let joined = |names: &Option<Vec<String>>| names.as_ref().map(|names| names.join(":"));
    options.cipher = joined(&wanted.ciphers);
    options.ciphersuites = joined(&wanted.ciphersuites);
    options.groups = joined(&wanted.groups);
    options.profile = wanted.profile;
    options.client_certificate = wanted.client_certificate;
    options.rules = wanted.rules.clone();
    if let Some(Crl::List(list)) = &wanted.crl {
        options.crl = Some(load("crl-verify", list, directory)?.to_vec());
    }
    if let Some(Crl::Directory(path)) = &wanted.crl {
        let revoked =
            RevokedDirectory::open(config.path(path)).map_err(|error| SetupError::File {
                what: "crl-verify",
                name: path.display().to_string(),
                error,
            })?;
        options.revoked_serials = Some(Arc::new(revoked));
    }
    Ok(TlsSettings::new(options)?)
}

/// Prepares the keys for the first handshake on another thread, unless there is only one processor.
pub fn prepare(tls: &Arc<TlsSettings>) {
    if thread::available_parallelism().is_ok_and(|it| it.get() > 1) {
        let tls = Arc::clone(tls);
        let thread = thread::Builder::new().name("signature".to_owned());
        // If no thread starts, the handshake prepares them itself.
        let _ = thread.spawn(move || tls.prepare());
    }
}

/// Reads the current revocation list.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn crl(config: &OpenVpn) -> Result<Option<Vec<u8>>, SetupError> {
    match &config.tls.crl {
        Some(Crl::List(list)) => {
            let bytes = load("crl-verify", list, config.directory.as_deref())?;
            Ok(Some(bytes.to_vec()))
        }
        _ => Ok(None),
    }
}

/// Returns a digest of all certificate and key files, which only the start reads; `None` if one cannot be read.
#[cfg(feature = "server")]
pub fn material(config: &OpenVpn) -> Option<[u8; 32]> {
    let tls = &config.tls;
    let own = [&tls.ca, &tls.cert, &tls.key, &tls.extra_certs, &tls.pkcs12];
    let token = config.server().and_then(|it| it.auth_token.as_ref());
    let token = token.and_then(|it| it.secret.as_ref());
    let wraps = config.connections.iter().flat_map(|it| {
        let shared = match &it.wrap.shared {
            SharedWrap::None => None,
            SharedWrap::TlsAuth { key, .. } | SharedWrap::TlsCrypt { key } => Some(key),
        };
        shared.into_iter().chain(&it.wrap.tls_crypt_v2)
    });
    let all = own.into_iter().flatten().chain(token).chain(wraps);
    let mut parts = Vec::new();
    for source in all {
        let bytes = source.load(config.directory.as_deref()).ok()?;
        parts.push(Zeroizing::new((bytes.len() as u64).to_be_bytes().to_vec()));
        parts.push(bytes);
    }
    let parts: Vec<&[u8]> = parts.iter().map(|it| it.as_slice()).collect();
    Some(crypto::blake2s::hash(&parts))
}

fn identity(
    wanted: &Tls,
    directory: Option<&Path>,
    passphrase: Option<&[u8]>,
) -> Result<Option<Identity>, SetupError> {
    let extra = load_or_empty("extra-certs", wanted.extra_certs.as_ref(), directory)?;
    if let Some(source) = &wanted.pkcs12 {
        let mut bytes = load("pkcs12", source, directory)?;
        if source.is_inline() {
            bytes = from_base64("pkcs12", &bytes)?;
        }
        let identity = Identity::from_pkcs12(&bytes, &extra, passphrase);
        return Ok(Some(identity.map_err(tls::SettingsError::from)?));
    }
    let (Some(cert), Some(key)) = (&wanted.cert, &wanted.key) else {
        return Ok(None);
    };
    let cert = load("cert", cert, directory)?;
    let key = load("key", key, directory)?;
    let identity = Identity::from_pem(&cert, &key, &extra, passphrase);
    Ok(Some(identity.map_err(tls::SettingsError::from)?))
}

fn from_base64(what: &'static str, bytes: &[u8]) -> Result<Zeroizing<Vec<u8>>, SetupError> {
    use base64::Engine as _;
    let mut packed = Zeroizing::new(bytes.to_vec());
    packed.retain(|byte| !byte.is_ascii_whitespace());
    base64::engine::general_purpose::STANDARD
        .decode(&*packed)
        .map(Zeroizing::new)
        .map_err(|error| SetupError::Content {
            what,
            reason: format!("the inline block is not base64: {error}"),
        })
}

/// Returns how the control channel is wrapped.
///
/// # Errors
/// A key file is unreadable or invalid.
pub fn wrap_settings(
    config: &OpenVpn,
    connection: &Connection,
) -> Result<WrapSettings, SetupError> {
    let (wrap, directory) = (&connection.wrap, config.directory.as_deref());
    let role = role(config);
    let static_key = |what, source: &Source| -> Result<StaticKey, SetupError> {
        let bytes = load(what, source, directory)?;
        StaticKey::parse(&text(what, &bytes)?).map_err(|error| SetupError::KeyFile { what, error })
    };
    let shared = match &wrap.shared {
        SharedWrap::None => None,
        SharedWrap::TlsAuth { key, direction } => {
            let key = static_key("tls-auth", key)?;
            let wrap = WrapSettings::tls_auth(&key, *direction, config.data.auth);
            Some(wrap.ok_or_else(|| SetupError::Content {
                what: "tls-auth",
                reason: "it needs a digest: set auth to one other than none".to_owned(),
            })?)
        }
        SharedWrap::TlsCrypt { key } => Some(WrapSettings::tls_crypt(
            &static_key("tls-crypt", key)?,
            role,
        )),
    };
    let Some(source) = &wrap.tls_crypt_v2 else {
        return Ok(shared.unwrap_or_else(WrapSettings::none));
    };
    const WHAT: &str = "tls-crypt-v2";
    let bytes = load(WHAT, source, directory)?;
    let text = text(WHAT, &bytes)?;
    let key_file = |error| SetupError::KeyFile { what: WHAT, error };
    if role == Role::Client {
        let key = v2::ClientKey::parse(&text).map_err(key_file)?;
        return Ok(WrapSettings::tls_crypt_v2_client(&key));
    }
    let key = v2::ServerKey::parse(&text).map_err(key_file)?;
    let days = config.tls.tls_crypt_v2_max_age;
    let max_age = days.map(|days| Duration::from_secs(u64::from(days) * 86_400));
    Ok(match shared {
        Some(shared) => shared.and_tls_crypt_v2(&key, max_age),
        None => WrapSettings::tls_crypt_v2_server(&key, max_age),
    })
}

/// Returns the secret that signs auth tokens: from the file, or a new one.
///
/// # Errors
/// The file is unreadable or invalid.
#[cfg(feature = "server")]
pub fn token_secret(
    config: &OpenVpn,
    token: &config::openvpn::AuthToken,
) -> Result<Zeroizing<[u8; 32]>, SetupError> {
    const WHAT: &str = "auth-gen-token-secret";
    let mut secret = Zeroizing::new([0; 32]);
    let Some(source) = &token.secret else {
        crypto::random(&mut secret[..]);
        return Ok(secret);
    };
    let bytes = load(WHAT, source, config.directory.as_deref())?;
    let text = text(WHAT, &bytes)?;
    let lines = text.lines().filter(|line| !line.starts_with("-----"));
    let packed = Zeroizing::new(lines.collect::<String>());
    let key = from_base64(WHAT, packed.as_bytes())?;
    // Layout of a static key: 64 bytes of cipher key, then the HMAC key.
    match key.get(64..96) {
        Some(part) => secret.copy_from_slice(part),
        None => {
            return Err(SetupError::Content {
                what: WHAT,
                reason: "it is too short; make one with `--genkey auth-token FILE`".to_owned(),
            });
        }
    }
    Ok(secret)
}

#[cfg(test)]
mod tests;
