//! What the programs share that run under qemu-user with a plug-in of `tools/`: every tunnel's cipher by its name, every code
//! that this CPU has for it, and marks around what the plug-in is to look at.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crypto::backend::Backend;
use crypto::openvpn::{DataCipher, Digest, Format, KeyMaterial, legacy};
use crypto::select::{self, Algorithm};
use crypto::{ChaCha20Poly1305, PacketCipher};

/// "MARK" in ASCII; also in `tools/count.c` and `tools/traces.c`.
const MAGIC: c_int = 0x4d41_524b;

unsafe extern "C" {
    fn getpriority(which: c_int, who: c_uint) -> c_int;
}

/// Numbers the regions.
#[derive(Default)]
pub(crate) struct Marks {
    next: c_uint,
}

impl Marks {
    /// Runs `work` as a region of the program and returns its number, and what came out.
    pub(crate) fn around<T>(&mut self, work: impl FnOnce() -> T) -> (c_uint, T) {
        let id = self.next;
        self.next += 2;
        mark(id);
        let done = work();
        mark(id + 1);
        (id, done)
    }
}

fn mark(id: c_uint) {
    // SAFETY: takes two numbers; of a kind of priority that does not exist the kernel says so, and nothing happens.
    unsafe { getpriority(MAGIC, id) };
}

/// What a cipher's code is chosen by: encryption, decryption, HMAC; an AEAD has one algorithm for both directions.
fn algorithms(name: &str) -> Vec<&'static [Algorithm]> {
    let (cipher, digest) = name.split_once('/').unwrap_or((name, "none"));
    let mut algorithms: Vec<&[Algorithm]> = Vec::new();
    if cipher == "wireguard" || cipher == "CHACHA20-POLY1305" {
        algorithms.push(&[Algorithm::ChaCha20Poly1305]);
    } else if cipher.ends_with("-GCM") {
        algorithms.push(&[Algorithm::AesGcm]);
    } else if cipher.starts_with("AES-") {
        algorithms.push(&[Algorithm::AesCbcEncrypt, Algorithm::AesCbcDecrypt]);
    }
    match digest {
        "SHA1" => algorithms.push(&[Algorithm::HmacSha1]),
        "SHA224" | "SHA256" => algorithms.push(&[Algorithm::HmacSha256]),
        "SHA384" | "SHA512" => algorithms.push(&[Algorithm::HmacSha512]),
        _ => {}
    }
    algorithms
}

/// Chooses one code after the other and says which: kind and names.
pub(crate) fn codes(name: &str) -> impl Iterator<Item = String> {
    let algorithms = algorithms(name);
    let mut combined: Vec<(Option<Backend>, Vec<&'static str>)> = vec![(None, Vec::new())];
    for same in &algorithms {
        let candidates = select::candidates(same[0]);
        combined = combined
            .iter()
            .flat_map(|(kind, names)| {
                candidates
                    .iter()
                    .filter(|(of, _)| *of != Backend::Engine && kind.is_none_or(|kind| kind == *of))
                    .map(|(of, name)| (Some(*of), [&names[..], &[*name]].concat()))
            })
            .collect();
    }
    combined.into_iter().map(move |(kind, names)| {
        for (same, name) in algorithms.iter().zip(&names) {
            for &algorithm in *same {
                assert!(select::import(algorithm, name, name), "{name}");
            }
        }
        let kind = kind.unwrap_or(Backend::Portable);
        format!("{kind}\t{}", names.join(" + "))
    })
}

/// The cipher of this name with these keys. `wireguard`, a cipher of OpenVPN's, with a digest behind a slash where it needs
/// one, or with `epoch` there for an AEAD in the format of that name.
pub(crate) fn cipher(name: &str, keys: &KeyMaterial) -> Arc<dyn PacketCipher> {
    let (cipher, digest) = name.split_once('/').unwrap_or((name, "none"));
    if cipher == "wireguard" {
        let key = keys.cipher.first_chunk().expect("64 bytes");
        return Arc::new(ChaCha20Poly1305::new(key));
    }
    let cipher = DataCipher::from_name(cipher).expect("a cipher of OpenVPN's");
    let (format, digest) = match digest {
        "epoch" => (Format::Epoch, Digest::None),
        _ => (
            Format::V2,
            Digest::from_name(digest).expect("a digest of OpenVPN's"),
        ),
    };
    legacy::data_channel(cipher, digest, keys, format).expect("epochs go with AEADs")
}
