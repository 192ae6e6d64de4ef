//! Chooses the code that computes this process's ciphers.

use config::settings::CryptoBackend;
use crypto::Backend;
use crypto::select::{self, Algorithm};

use crate::profile;

/// Narrows the ciphers to the kind of code in the settings, and measures which candidate is fastest, so that the
/// first key need not wait for that. Takes some milliseconds, unless the profile has the answer. `algorithms` are
/// those that may be needed.
///
/// Call it before the tunnel's threads start, as they would disturb the measurement.
pub(crate) fn choose(wanted: CryptoBackend, algorithms: &[Algorithm]) {
    narrow(wanted, algorithms);
    measure(algorithms);
}

/// Chooses like [`choose`], but measures on a thread beside the handshake. The first key waits only for its own
/// algorithm; the thread measures in the order of `algorithms`. Accelerators are measured by the caller's thread, as
/// opening their descriptors may need privileges that are dropped later.
pub(crate) fn choose_beside(wanted: CryptoBackend, algorithms: Vec<Algorithm>) {
    narrow(wanted, &algorithms);
    let shared = std::sync::Arc::new(algorithms);
    let own = std::sync::Arc::clone(&shared);
    let started = wanted != CryptoBackend::Accelerator
        && std::thread::Builder::new()
            .name("ciphers".to_owned())
            .spawn(move || measure(&own))
            .is_ok();
    if !started {
        measure(&shared);
    }
}

fn narrow(wanted: CryptoBackend, algorithms: &[Algorithm]) {
    let backend = match wanted {
        CryptoBackend::Auto => None,
        CryptoBackend::Portable => Some(Backend::Portable),
        CryptoBackend::Simd => Some(Backend::Simd),
        CryptoBackend::Accelerator => Some(Backend::Accelerator),
    };
    profile::load();
    if backend == Some(Backend::Accelerator) && !crypto::accelerator::BUILT {
        log::warn!(
            "crypto-backend: this build of Millrace does not support accelerators; it uses the fastest code"
        );
        return;
    }
    for &algorithm in algorithms {
        if !select::set(algorithm, backend) {
            log::warn!(
                "crypto-backend: this machine has no {} code for {}; it uses the fastest code",
                backend.map_or("auto", Backend::name),
                algorithm.name()
            );
        }
    }
}

fn measure(algorithms: &[Algorithm]) {
    for &algorithm in algorithms {
        let choice = select::chosen(algorithm);
        log::debug!(
            "{}: {} ({}; {} for few packets)",
            algorithm.name(),
            choice.backend,
            choice.many,
            choice.few
        );
    }
}

/// The kind of code that computes a data channel cipher of this name, if the settings leave the choice free.
pub(crate) fn kind(cipher: &str) -> Backend {
    let algorithm = match cipher.to_ascii_lowercase() {
        name if name.ends_with("-gcm") => Algorithm::AesGcm,
        name if name.starts_with("chacha20") => Algorithm::ChaCha20Poly1305,
        name if name.starts_with("aes-") => Algorithm::AesCbcEncrypt,
        _ => return Backend::Portable,
    };
    select::chosen(algorithm).backend
}
