//! Constant time: no branch and no address depends on a secret.
//!
//! Valgrind's memcheck follows every bit that was never written, and complains when a branch or an address depends on
//! one. Here keys and plaintexts are marked as such bits (Adam Langley's "ctgrind"), and the candidates run under
//! valgrind. One fact about a packet is declassified, as its fate may depend on it: whether its tag was right.
//!
//! Valgrind has no AVX-512, and tells programs so. Candidates that need it are hidden under valgrind. HMAC's AVX-512
//! lanes have the same source as those with AVX2, which are tested; `traces.rs` compares the branches of all. AWS-LC
//! declassifies its verdict on a tag where this test cannot reach it, so only its sealing is tested.
//!
//! Without valgrind the test prints that it tried nothing. If [`REQUIRED`] is set, as `make test` does, that is a
//! failure.

use std::collections::BTreeSet;
use std::process::Command;

use super::common::*;

/// Exit code of valgrind when it has complained.
const COMPLAINED: i32 = 99;

/// Sends a request to valgrind; returns 0 without valgrind.
fn request(code: usize, at: usize, len: usize) -> usize {
    let arguments = [code, at, len, 0, 0, 0];
    let mut answer = 0_usize;
    // SAFETY: valgrind recognises its requests by these rotations, which together restore the register, before an
    // exchange of a register with itself. To a CPU they do nothing.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdx") answer,
            in("rax") arguments.as_ptr(),
            inout("rdi") 0_usize => _,
        );
    }
    answer
}

const RUNNING: usize = 0x1001;
const MAKE_UNDEFINED: usize = 0x4d43_0001;
const MAKE_DEFINED: usize = 0x4d43_0002;

fn make_secret(bytes: &mut [u8]) {
    request(MAKE_UNDEFINED, bytes.as_mut_ptr() as usize, bytes.len());
}

/// Marks the bytes as public from now on.
fn make_public(bytes: &mut [u8]) {
    request(MAKE_DEFINED, bytes.as_mut_ptr() as usize, bytes.len());
}

/// Returns the value, marked as public.
pub(crate) fn declassified<T: Copy>(mut value: T) -> T {
    request(MAKE_DEFINED, (&raw mut value) as usize, size_of::<T>());
    std::hint::black_box(value)
}

/// Runs one of the tests below under valgrind and returns its exit code and output.
fn under_valgrind(test: &str) -> Option<(Option<i32>, String)> {
    let this = std::env::current_exe().unwrap();
    let output = Command::new("valgrind")
        .args(["--quiet", "--error-limit=no", "--main-stacksize=8388608"])
        .arg(format!("--error-exitcode={COMPLAINED}"))
        .arg(this)
        .args(["--ignored", "--exact", "--nocapture", "--test-threads=1"])
        .arg(format!("implementations::tests::secrets::{test}"))
        .output();
    let output =
        output.map_err(|error| format!("valgrind does not run: {error}: apt install valgrind"));
    let output = lab::require(output)?;
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    Some((
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

const AEAD_ALGORITHMS: [AeadAlgorithm; 3] = [
    AeadAlgorithm::Aes128Gcm,
    AeadAlgorithm::Aes256Gcm,
    AeadAlgorithm::ChaCha20Poly1305,
];
const CBC_KEYS: [usize; 2] = [16, 32];
const DIGESTS: [Digest; 3] = [Digest::Sha1, Digest::Sha256, Digest::Sha512];

/// The candidates of this machine that should be tried, as [`all_candidates`] names them.
fn present() -> BTreeSet<String> {
    let key = [7; 32];
    let mut all = BTreeSet::new();
    for algorithm in AEAD_ALGORITHMS {
        for (name, _) in aeads(algorithm, &key[..algorithm.key_len()]) {
            all.insert(format!("{name}: {}", algorithm.name()));
        }
    }
    for len in CBC_KEYS {
        for (name, _) in cbcs(&key[..len]) {
            all.insert(format!("{name}: aes-{}-cbc", 8 * len));
        }
    }
    for digest in DIGESTS {
        for (name, _) in macs(digest, &key) {
            all.insert(format!("{name}: {digest}"));
        }
    }
    all
}

/// Whether valgrind cannot test a candidate: its CPU has no AVX-512, and an accelerator is not in this process.
fn is_hidden(tried: &str) -> bool {
    ["avx512-ifma: ", "vaes: ", "avx512: ", "accelerator: "]
        .iter()
        .any(|name| tried.starts_with(name))
}

#[test]
fn nothing_depends_on_a_secret() {
    let Some((code, said)) = under_valgrind("all_candidates") else {
        return;
    };
    assert_eq!(code, Some(0), "{said}");
    // The harness may print text in front of a line.
    let tried: BTreeSet<_> = said
        .lines()
        .filter_map(|line| Some(line.split_once("tried ")?.1.to_owned()))
        .collect();
    let (hidden, expected): (BTreeSet<_>, BTreeSet<_>) =
        present().into_iter().partition(|of| is_hidden(of));
    for of in &tried {
        println!("under valgrind: {of}");
    }
    for of in hidden.difference(&tried) {
        println!("not under valgrind: {of}");
    }
    // Both lists come from the same tables, so comparing them cannot detect that they are too short.
    let mut surely = vec!["aws-lc: aes-256-gcm", "portable: aes-256-gcm"];
    if is_x86_feature_detected!("aes") {
        surely.extend(["aes-ni: aes-128-cbc", "aes-ni: aes-256-cbc"]);
    }
    if is_x86_feature_detected!("avx2") {
        surely.extend(["avx2: SHA1", "avx2: SHA256", "avx2: SHA512"]);
    }
    let missing: BTreeSet<_> = expected
        .iter()
        .map(String::as_str)
        .chain(surely)
        .filter(|&of| !tried.contains(of))
        .collect();
    assert!(missing.is_empty(), "not tried: {missing:?}\n{said}");
}

#[test]
fn what_depends_on_a_secret_is_found() {
    for test in ["a_branch_on_a_secret", "a_table_by_a_secret"] {
        if let Some((code, said)) = under_valgrind(test) {
            assert_eq!(code, Some(COMPLAINED), "{test}: {said}");
        }
    }
}

#[test]
#[ignore = "runs under valgrind, by another test"]
fn a_branch_on_a_secret() {
    let mut secret = [3];
    make_secret(&mut secret);
    if std::hint::black_box(secret[0]) == 4 {
        println!("four");
    }
}

#[test]
#[ignore = "runs under valgrind, by another test"]
fn a_table_by_a_secret() {
    let table: [u8; 256] = core::array::from_fn(|at| at as u8 ^ 0x63);
    let mut secret = [3];
    make_secret(&mut secret);
    let found = std::hint::black_box(&table)[usize::from(secret[0])];
    std::hint::black_box(found);
}

#[test]
#[ignore = "runs under valgrind, by another test"]
fn all_candidates() {
    assert_ne!(request(RUNNING, 0, 0), 0, "valgrind answers");
    let mut key = [7; 32];
    make_secret(&mut key);
    let lens: [usize; 11] = [200, 200, 200, 200, 200, 63, 0, 16, 129, 300, 64];
    for algorithm in AEAD_ALGORITHMS {
        for (name, implementation) in aeads(algorithm, &key[..algorithm.key_len()]) {
            let mut memory = vec![9; 4096];
            let mut end = 0;
            let places = lens.map(|len| {
                let text = end + 8..end + 8 + len;
                end = text.end + TAG_LEN;
                Place {
                    aad: text.start - 8..text.start,
                    tag: text.end,
                    text,
                    nonce: [end as u8; 12],
                }
            });
            for place in &places {
                make_secret(&mut memory[place.text.clone()]);
            }
            implementation.seal(&mut memory, &places);
            println!("tried {name}: {}", algorithm.name());
            if name == "aws-lc" {
                continue;
            }
            // A sealed packet is public on the wire.
            make_public(&mut memory);
            memory[places[1].tag] ^= 1;
            let mut authentic = [false; 11];
            implementation.open(&mut memory, &places, &mut authentic);
            assert_eq!(authentic, core::array::from_fn(|number| number != 1));
        }
    }
    for len in CBC_KEYS {
        for (name, implementation) in cbcs(&key[..len]) {
            let mut memory = vec![9; 4096];
            let mut end = 0;
            let chains = lens.map(|len| {
                let text = end + 16..end + 16 + len / 16 * 16;
                end = text.end;
                Chain::new(&text, 16)
            });
            make_secret(&mut memory);
            implementation.encrypt(&mut memory, &chains);
            make_public(&mut memory);
            implementation.decrypt(&mut memory, &chains);
            println!("tried {name}: aes-{}-cbc", 8 * len);
        }
    }
    for digest in DIGESTS {
        for (name, implementation) in macs(digest, &key) {
            let mut memory = vec![9; 4096];
            make_secret(&mut memory);
            let mut end = 0;
            let messages = lens.map(|len| {
                end += len;
                end - len..end
            });
            let mut found = [Mac::EMPTY; 11];
            implementation.sign_each(&memory, &messages, &mut found);
            println!("tried {name}: {digest}");
        }
    }
}
