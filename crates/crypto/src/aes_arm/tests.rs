//! Every candidate of the table against the first.

use crate::kernels::{CBCS, Chain};

/// Bytes that nobody would guess, the same in every run.
fn noise(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    }
}

/// Chains of all lengths, at odd places, in batches of all sizes.
#[test]
fn all_candidates_encrypt_and_decrypt_chains_alike() {
    let mut next = noise(1);
    let mut checked = 0;
    for round in 0..60 {
        let key: Vec<u8> = (0..16 + 8 * (round % 3)).map(|_| next() as u8).collect();
        let mut memory: Vec<u8> = (0..40_000).map(|_| next() as u8).collect();
        let mut chains = Vec::new();
        let mut at = 0;
        for _ in 0..next() % 65 {
            at += 16 + next() as usize % 4;
            let blocks = next() as usize % if round % 2 == 0 { 4 } else { 30 };
            chains.push(Chain::new(&(at..at + 16 * blocks), 16));
            at += 16 * blocks;
        }
        let first = (CBCS[0].make)(&key).expect("the first candidate is everywhere");
        let plain = memory.clone();
        first.encrypt(&mut memory, &chains);
        for candidate in &CBCS[1..] {
            let Some(kernel) = (candidate.make)(&key) else {
                continue;
            };
            checked += 1;
            let mut other = plain.clone();
            kernel.encrypt(&mut other, &chains);
            assert!(other == memory, "{} encrypting", candidate.name);
            kernel.decrypt(&mut other, &chains);
            assert!(other == plain, "{} decrypting", candidate.name);
        }
    }
    assert!(checked > 0 || !crate::cpu::has_neon());
}
