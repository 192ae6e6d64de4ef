//! Which code computes this process's ciphers.

use config::settings::CryptoBackend;
use crypto::Backend;
use crypto::select::{self, Algorithm};

use crate::profile;

/// Narrows the ciphers to the kind of code that the settings ask for, and measures which candidate of it is fastest, so that
/// the first key need not wait for that. Takes some milliseconds, unless the profile knows; `algorithms` are those that may
/// be needed.
///
/// Before the tunnel's threads are started: they would disturb the measurement.
pub(crate) fn choose(wanted: CryptoBackend, algorithms: &[Algorithm]) {
    narrow(wanted, algorithms);
    measure(algorithms);
}

/// Chooses as [`choose`] does, but a thread of its own measures, beside the handshake; in the order of `algorithms`, of
/// which the first key waits for its own. The measurement of an accelerator opens descriptors, for which there may be
/// no rights later: it is not done beside.
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
            "crypto-backend: this build of Millrace has no code for accelerators: it runs what is fastest"
        );
        return;
    }
    for &algorithm in algorithms {
        if !select::set(algorithm, backend) {
            log::warn!(
                "crypto-backend: this machine has no {} code for {}: it runs what is fastest",
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

/// The kind of code that computes a data channel cipher of this name, where the choice is free.
pub(crate) fn kind(cipher: &str) -> Backend {
    let algorithm = match cipher.to_ascii_lowercase() {
        name if name.ends_with("-gcm") => Algorithm::AesGcm,
        name if name.starts_with("chacha20") => Algorithm::ChaCha20Poly1305,
        name if name.starts_with("aes-") => Algorithm::AesCbcEncrypt,
        _ => return Backend::Portable,
    };
    select::chosen(algorithm).backend
}
