//! Compares every candidate of the table with the first.

use crate::TAG_LEN;
use crate::implementations::{AEADS, CBCS, Chain, Place};
use crate::packet_aead::AeadAlgorithm;

/// Pseudo-random words, the same in every run.
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
            let Some(implementation) = (candidate.make)(&key) else {
                continue;
            };
            checked += 1;
            let mut other = plain.clone();
            implementation.encrypt(&mut other, &chains);
            assert!(other == memory, "{} encrypting", candidate.name);
            implementation.decrypt(&mut other, &chains);
            assert!(other == plain, "{} decrypting", candidate.name);
        }
    }
    assert!(checked > 0 || !crate::cpu::has_neon());
}

/// Packets of all lengths, with tags in front of the text and behind it, in batches of all sizes. One packet of each
/// batch has a bit turned at a random place.
#[test]
fn all_candidates_seal_and_open_packets_alike() {
    let algorithms = [
        AeadAlgorithm::Aes128Gcm,
        AeadAlgorithm::Aes192Gcm,
        AeadAlgorithm::Aes256Gcm,
    ];
    let mut next = noise(2);
    let mut checked = 0;
    for round in 0..90 {
        let algorithm = algorithms[round % 3];
        let key: Vec<u8> = (0..algorithm.key_len()).map(|_| next() as u8).collect();
        let mut memory: Vec<u8> = (0..64 * 2000).map(|_| next() as u8).collect();
        let mut places = Vec::new();
        let mut at = next() as usize % 16;
        for number in 0..next() % 65 {
            let aad_len = match number % 4 {
                0 => next() as usize % 160,
                1 => 0,
                _ => 8,
            };
            let text_len = next() as usize % [40, 600, 40, 1700][round % 4];
            let aad = at..at + aad_len;
            let behind = number % 3 == 0;
            let text = if behind { aad.end } else { aad.end + TAG_LEN };
            let text = text..text + text_len;
            let tag = if behind { text.end } else { aad.end };
            at = aad.end + TAG_LEN + text_len + next() as usize % 3;
            let nonce = core::array::from_fn(|_| next() as u8);
            places.push(Place {
                aad,
                text,
                tag,
                nonce,
            });
        }
        let first = (AEADS[0].make)(algorithm, &key).expect("the first candidate is everywhere");
        let plain = memory.clone();
        first.seal(&mut memory, &places);
        for candidate in &AEADS[1..] {
            let Some(implementation) = (candidate.make)(algorithm, &key) else {
                continue;
            };
            checked += 1;
            let name = candidate.name;
            let mut other = plain.clone();
            implementation.seal(&mut other, &places);
            assert!(other == memory, "{name} sealing");
            let forged = places.len() / 2;
            if let Some(place) = places.get(forged) {
                let part = match next() % 3 {
                    0 if !place.aad.is_empty() => place.aad.clone(),
                    1 if !place.text.is_empty() => place.text.clone(),
                    _ => place.tag..place.tag + TAG_LEN,
                };
                let byte = part.start + next() as usize % part.len();
                other[byte] ^= 1 << (next() % 8);
            }
            let mut authentic = vec![false; places.len()];
            implementation.open(&mut other, &places, &mut authentic);
            for (number, (place, authentic)) in places.iter().zip(authentic).enumerate() {
                assert_eq!(authentic, number != forged, "{name} {place:?}");
                let text = &other[place.text.clone()];
                if authentic {
                    assert!(text == &plain[place.text.clone()], "{name} {place:?}");
                } else {
                    assert!(text.iter().all(|&byte| byte == 0), "{name} {place:?}");
                }
            }
        }
    }
    assert!(checked > 0 || !crate::cpu::has_neon());
}

/// NIST SP 800-38A, appendices F.2.1 to F.2.6: one text under one initialisation vector, with a key of each length.
#[test]
fn chains_are_those_of_the_standard() {
    let bytes = |hex: &str| -> Vec<u8> {
        let digits: Vec<_> = hex.bytes().filter(|byte| *byte != b' ').collect();
        let digit = |at: usize| char::from(digits[at]).to_digit(16).unwrap() as u8;
        (0..digits.len() / 2)
            .map(|at| digit(2 * at) << 4 | digit(2 * at + 1))
            .collect()
    };
    let iv = bytes("000102030405060708090a0b0c0d0e0f");
    let text = bytes(
        "6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51 \
         30c81c46a35ce411e5fbc1191a0a52ef f69f2445df4f9b17ad2b417be66c3710",
    );
    for (key, sealed) in [
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "7649abac8119b246cee98e9b12e9197d 5086cb9b507219ee95db113a917678b2 \
             73bed6b8e3c1743b7116e69e22229516 3ff1caa1681fac09120eca307586e1a7",
        ),
        (
            "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
            "4f021db243bc633d7178183a9fa071e8 b4d9ada9ad7dedf4e5e738763f69145a \
             571b242012fb7ae07fa9baac3df102e0 08b0e27988598881d920a9e64f5615cd",
        ),
        (
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "f58c4c04d6e5f1ba779eabfb5f7bfbd6 9cfc4e967edb808d679f777bc6702c7d \
             39f23369a9d9bacfa530e26304231461 b2eb05e2c39be9fcda6c19078c6a9d1b",
        ),
    ] {
        for candidate in CBCS {
            let Some(implementation) = (candidate.make)(&bytes(key)) else {
                continue;
            };
            // One chain more than there are lanes.
            let mut memory = [&iv[..], &text].concat().repeat(9);
            let chains: Vec<_> = (0..9)
                .map(|number| Chain::new(&(80 * number + 16..80 * number + 80), 16))
                .collect();
            implementation.encrypt(&mut memory, &chains);
            let name = candidate.name;
            for chain in &chains {
                assert!(memory[chain.text()] == bytes(sealed), "{name} {chain:?}");
            }
            implementation.decrypt(&mut memory, &chains);
            for chain in &chains {
                assert!(memory[chain.text()] == text, "{name} {chain:?}");
            }
        }
    }
}
