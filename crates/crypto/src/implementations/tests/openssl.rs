//! Random batches of random lengths: every candidate computes the same as OpenSSL, packet by packet.
//!
//! The test loads the machine's own libcrypto at run time and links nothing with it: the build needs no second library
//! of cryptography. Functions and constants are those of OpenSSL's manual, EVP_EncryptInit(3) and HMAC(3).
//!
//! `MILLRACE_CRYPTO_BATCHES` sets the number of batches; 200 by default.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use std::sync::OnceLock;

use proptest::prelude::*;

use super::agreement::{batches, lens, places, shapes};
use super::common::*;

/// `EVP_CTRL_AEAD_SET_IVLEN`, `EVP_CTRL_AEAD_GET_TAG`.
const SET_IV_LEN: c_int = 0x9;
const GET_TAG: c_int = 0x10;

/// The functions of libcrypto that are used.
struct OpenSsl {
    cipher_by_name: unsafe extern "C" fn(*const c_char) -> *const c_void,
    digest_by_name: unsafe extern "C" fn(*const c_char) -> *const c_void,
    new: unsafe extern "C" fn() -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    init: unsafe extern "C" fn(
        *mut c_void,
        *const c_void,
        *mut c_void,
        *const u8,
        *const u8,
        c_int,
    ) -> c_int,
    set_padding: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    ctrl: unsafe extern "C" fn(*mut c_void, c_int, c_int, *mut c_void) -> c_int,
    update: unsafe extern "C" fn(*mut c_void, *mut u8, *mut c_int, *const u8, c_int) -> c_int,
    end: unsafe extern "C" fn(*mut c_void, *mut u8, *mut c_int) -> c_int,
    hmac: unsafe extern "C" fn(
        *const c_void,
        *const c_void,
        c_int,
        *const u8,
        usize,
        *mut u8,
        *mut u32,
    ) -> *mut u8,
}

impl OpenSsl {
    /// Loads the machine's libcrypto, if it has one.
    fn found() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<OpenSsl>> = OnceLock::new();
        FOUND.get_or_init(Self::load).as_ref()
    }

    #[expect(
        clippy::missing_transmute_annotations,
        reason = "the fields have the types"
    )]
    fn load() -> Option<Self> {
        let library = [c"libcrypto.so.3", c"libcrypto.so.1.1"]
            .into_iter()
            // SAFETY: a name that ends with a zero. What the library does when it is loaded is its own.
            .map(|name| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
            .find(|library| !library.is_null())?;
        let symbol = |name: &CStr| {
            // SAFETY: a library that was loaded, and is never unloaded, and a name that ends with a zero.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!address.is_null(), "libcrypto has {name:?}");
            address
        };
        // SAFETY: none is null, and the types are those of the manual, the same in 1.1 and in 3.
        unsafe {
            let version: unsafe extern "C" fn(c_int) -> *const c_char =
                core::mem::transmute(symbol(c"OpenSSL_version"));
            println!("{:?}", CStr::from_ptr(version(0)));
            Some(Self {
                cipher_by_name: core::mem::transmute(symbol(c"EVP_get_cipherbyname")),
                digest_by_name: core::mem::transmute(symbol(c"EVP_get_digestbyname")),
                new: core::mem::transmute(symbol(c"EVP_CIPHER_CTX_new")),
                free: core::mem::transmute(symbol(c"EVP_CIPHER_CTX_free")),
                init: core::mem::transmute(symbol(c"EVP_CipherInit_ex")),
                set_padding: core::mem::transmute(symbol(c"EVP_CIPHER_CTX_set_padding")),
                ctrl: core::mem::transmute(symbol(c"EVP_CIPHER_CTX_ctrl")),
                update: core::mem::transmute(symbol(c"EVP_CipherUpdate")),
                end: core::mem::transmute(symbol(c"EVP_CipherFinal_ex")),
                hmac: core::mem::transmute(symbol(c"HMAC")),
            })
        }
    }

    /// Encrypts in place, without padding; writes the tag if the cipher has one.
    fn encrypt(
        &self,
        name: &CStr,
        key: &[u8],
        nonce: &[u8],
        aad: Option<&[u8]>,
        text: &mut [u8],
    ) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        let mut len = 0;
        let mut rest = [0; 32];
        // SAFETY: slices with their lengths, a key and a nonce as long as the cipher's, room for two blocks where
        // nothing is expected, and a context that is made and freed here.
        unsafe {
            let cipher = (self.cipher_by_name)(name.as_ptr());
            assert!(!cipher.is_null(), "OpenSSL has {name:?}");
            let context = (self.new)();
            assert_eq!(
                (self.init)(context, cipher, null_mut(), null(), null(), 1),
                1
            );
            if aad.is_some() {
                let nonce_len = nonce.len() as c_int;
                assert_eq!((self.ctrl)(context, SET_IV_LEN, nonce_len, null_mut()), 1);
            }
            let (key, nonce) = (key.as_ptr(), nonce.as_ptr());
            assert_eq!((self.init)(context, null(), null_mut(), key, nonce, 1), 1);
            assert_eq!((self.set_padding)(context, 0), 1);
            if let Some(aad) = aad {
                let aad_len = aad.len() as c_int;
                let added = (self.update)(context, null_mut(), &raw mut len, aad.as_ptr(), aad_len);
                assert_eq!(added, 1);
            }
            if !text.is_empty() {
                let at = text.as_mut_ptr();
                let updated = (self.update)(context, at, &raw mut len, at, text.len() as c_int);
                assert_eq!((updated, len as usize), (1, text.len()));
            }
            let ended = (self.end)(context, rest.as_mut_ptr(), &raw mut len);
            assert_eq!((ended, len), (1, 0));
            if aad.is_some() {
                let tag = tag.as_mut_ptr().cast();
                assert_eq!((self.ctrl)(context, GET_TAG, TAG_LEN as c_int, tag), 1);
            }
            (self.free)(context);
        }
        tag
    }

    fn hmac(&self, digest: Digest, key: &[u8], message: &[u8]) -> Vec<u8> {
        let name = std::ffi::CString::new(digest.name()).unwrap();
        let mut mac = vec![0; 64];
        let mut len = 0;
        // SAFETY: slices with their lengths, and room for the longest code.
        unsafe {
            let digest = (self.digest_by_name)(name.as_ptr());
            assert!(!digest.is_null(), "OpenSSL has {name:?}");
            let made = (self.hmac)(
                digest,
                key.as_ptr().cast(),
                key.len() as c_int,
                message.as_ptr(),
                message.len(),
                mac.as_mut_ptr(),
                &raw mut len,
            );
            assert!(!made.is_null());
        }
        mac.truncate(len as usize);
        mac
    }
}

fn aeads_are_openssls(
    openssl: &OpenSsl,
    numbers: &mut Numbers,
    algorithm: AeadAlgorithm,
    lens: &[usize],
) {
    let name = match algorithm {
        AeadAlgorithm::Aes128Gcm => c"id-aes128-GCM",
        AeadAlgorithm::Aes192Gcm => c"id-aes192-GCM",
        AeadAlgorithm::Aes256Gcm => c"id-aes256-GCM",
        AeadAlgorithm::ChaCha20Poly1305 => c"ChaCha20-Poly1305",
    };
    let mut key = [0; 32];
    numbers.fill(&mut key);
    let key = &key[..algorithm.key_len()];
    let (places, len) = places(numbers, lens);
    let mut plain = vec![0; len];
    numbers.fill(&mut plain);
    let mut sealed = plain.clone();
    for place in &places {
        let aad = &plain[place.aad.clone()];
        let text = &mut sealed[place.text.clone()];
        let tag = openssl.encrypt(name, key, &place.nonce, Some(aad), text);
        sealed[place.tag..][..TAG_LEN].copy_from_slice(&tag);
    }
    let mut opened = sealed.clone();
    for place in &places {
        opened[place.text.clone()].copy_from_slice(&plain[place.text.clone()]);
    }
    for (candidate, implementation) in aeads(algorithm, key) {
        let mut memory = plain.clone();
        implementation.seal(&mut memory, &places);
        assert!(
            memory == sealed,
            "{candidate} seals as OpenSSL's {name:?} does"
        );
        let mut authentic = vec![false; places.len()];
        implementation.open(&mut memory, &places, &mut authentic);
        assert!(!authentic.contains(&false), "{candidate} {name:?}");
        assert!(memory == opened, "{candidate} opens OpenSSL's {name:?}");
    }
}

fn cbcs_are_openssls(openssl: &OpenSsl, numbers: &mut Numbers, lens: &[usize]) {
    let mut key = [0; 32];
    numbers.fill(&mut key);
    let (key, name) = match numbers.below(3) {
        0 => (&key[..16], c"AES-128-CBC"),
        1 => (&key[..24], c"AES-192-CBC"),
        _ => (&key[..], c"AES-256-CBC"),
    };
    let mut end = 0;
    let texts: Vec<_> = lens
        .iter()
        .map(|len| {
            let start = end + 16 + numbers.below(20);
            end = start + len / 16 * 16;
            start..end
        })
        .collect();
    let mut plain = vec![0; end + 3];
    numbers.fill(&mut plain);
    let mut sealed = plain.clone();
    for text in &texts {
        let (front, back) = sealed.split_at_mut(text.start);
        let iv = &front[text.start - 16..];
        openssl.encrypt(name, key, iv, None, &mut back[..text.len()]);
    }
    let chains: Vec<_> = texts.iter().map(|text| Chain::new(text, 16)).collect();
    for (candidate, implementation) in cbcs(key) {
        let mut memory = plain.clone();
        implementation.encrypt(&mut memory, &chains);
        assert!(
            memory == sealed,
            "{candidate} encrypts as OpenSSL's {name:?} does"
        );
        implementation.decrypt(&mut memory, &chains);
        assert!(memory == plain, "{candidate} decrypts OpenSSL's {name:?}");
    }
}

fn macs_are_openssls(openssl: &OpenSsl, numbers: &mut Numbers, digest: Digest, lens: &[usize]) {
    let mut key = [0; 200];
    numbers.fill(&mut key);
    let key = &key[..numbers.below(200)];
    let mut end = 0;
    let messages: Vec<_> = lens
        .iter()
        .map(|len| {
            let start = end + numbers.below(20);
            end = start + len;
            start..end
        })
        .collect();
    let mut memory = vec![0; end];
    numbers.fill(&mut memory);
    let right: Vec<_> = messages
        .iter()
        .map(|message| openssl.hmac(digest, key, &memory[message.clone()]))
        .collect();
    for (candidate, implementation) in macs(digest, key) {
        let mut found = vec![Mac::EMPTY; messages.len()];
        implementation.sign_each(&memory, &messages, &mut found);
        for (found, right) in found.iter().zip(&right) {
            assert!(found.as_bytes() == right, "{candidate} {digest}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: batches(200),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn all_candidates_agree_with_openssl((seed, packets, longest) in shapes(), kind in 0..13_usize) {
        let found = OpenSsl::found().ok_or("no libcrypto: apt install openssl");
        let Some(openssl) = lab::require(found) else {
            return Ok(());
        };
        let mut numbers = Numbers(seed);
        let lens = lens(&mut numbers, packets, longest);
        let (openssl, numbers) = (openssl, &mut numbers);
        match kind {
            0 => aeads_are_openssls(openssl, numbers, AeadAlgorithm::Aes128Gcm, &lens),
            1 => aeads_are_openssls(openssl, numbers, AeadAlgorithm::Aes192Gcm, &lens),
            2 | 3 => aeads_are_openssls(openssl, numbers, AeadAlgorithm::Aes256Gcm, &lens),
            4 | 5 => aeads_are_openssls(openssl, numbers, AeadAlgorithm::ChaCha20Poly1305, &lens),
            6..=8 => cbcs_are_openssls(openssl, numbers, &lens),
            _ => {
                let digests = Digest::ALL.into_iter().filter(|digest| *digest != Digest::None);
                let digests: Vec<_> = digests.collect();
                let digest = digests[(seed % digests.len() as u64) as usize];
                macs_are_openssls(openssl, numbers, digest, &lens);
            }
        }
    }
}
