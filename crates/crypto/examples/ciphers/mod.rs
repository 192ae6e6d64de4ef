//! Shared code of the programs that run under qemu-user with a plug-in of `tools/`: every tunnel's cipher by its name,
//! every code that this CPU has for it, and marks around the part that the plug-in is to look at.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crypto::Backend;
use crypto::packet_aead::{self, AeadLayout};
use crypto::primitives::packet_cipher;
use crypto::select::{self, Algorithm};
use crypto::{Cipher, Digest, PacketCipher};

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
    /// Runs `work` as a marked region of the program, and returns the region's number and the result.
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
    // SAFETY: takes two numbers; for an unknown kind of priority the kernel returns an error and changes nothing.
    unsafe { getpriority(MAGIC, id) };
}

/// The algorithms by which a cipher's code is chosen: encryption, decryption, HMAC; an AEAD has one algorithm for both
/// directions.
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

/// Selects each implementation in turn, and yields its kind and names.
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
                    .filter(|(of, _)| {
                        *of != Backend::Accelerator && kind.is_none_or(|kind| kind == *of)
                    })
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

/// The keys of a cipher and of an HMAC.
pub(crate) type Keys = [[u8; 64]; 2];

/// Makes the cipher of this name with these keys: `wireguard`, or a cipher's name. A slash follows where needed, and
/// behind it a digest, or `64` for an AEAD with packet numbers of 64 bits.
pub(crate) fn cipher(name: &str, keys: &Keys) -> Arc<dyn PacketCipher> {
    let (cipher, digest) = name.split_once('/').unwrap_or((name, "none"));
    let [key, second] = keys;
    if cipher == "wireguard" {
        let cipher = Cipher::ChaCha20Poly1305;
        return packet_aead::new(None, cipher, key, AeadLayout::NoNumber).expect("an AEAD");
    }
    let cipher = Cipher::from_name(cipher).expect("a cipher");
    if digest == "64" {
        let iv = *second.first_chunk().expect("64 bytes");
        let layout = AeadLayout::Number64 { header: 4, iv };
        return packet_aead::new(None, cipher, key, layout).expect("an AEAD");
    }
    let digest = Digest::from_name(digest).expect("a digest");
    packet_cipher(None, (cipher, digest), keys).expect("there is always a back end")
}
