//! Random batches of random lengths: every candidate computes the same as the first of its table, which is AWS-LC, and
//! opens no packet with a turned bit.
//!
//! `MILLRACE_CRYPTO_BATCHES` sets the number of batches; 800 by default.

use proptest::prelude::*;

use super::common::*;

pub(super) fn batches(unless_told: u32) -> u32 {
    std::env::var("MILLRACE_CRYPTO_BATCHES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(unless_told)
}

/// The shape of a batch: a seed, packets, and the longest text in bytes.
pub(super) fn shapes() -> impl Strategy<Value = (u64, usize, usize)> {
    let packets = prop_oneof![6 => 1..=12_usize, 2 => 13..=34_usize, 1 => 35..=CHUNK];
    let longest = prop_oneof![8 => 1..=100_usize, 4 => 101..=600_usize, 1 => 601..=2400_usize];
    (any::<u64>(), packets, longest)
}

/// Lengths of the texts of a batch: all alike, in runs, or all different; sometimes 0.
pub(super) fn lens(numbers: &mut Numbers, packets: usize, longest: usize) -> Vec<usize> {
    let mix = numbers.below(3);
    let mut len = numbers.below(longest + 1);
    (0..packets)
        .map(|_| {
            if mix == 2 || mix == 1 && numbers.below(5) == 0 {
                len = numbers.below(longest + 1);
            }
            if numbers.below(40) == 0 { 0 } else { len }
        })
        .collect()
}

/// Places in a memory with gaps between them, tags in front of or behind the texts; and the length of the memory.
pub(super) fn places(numbers: &mut Numbers, lens: &[usize]) -> (Vec<Place>, usize) {
    let behind = numbers.below(2) == 0;
    let same_aad = numbers.below(4) > 0;
    let mut aad_len = [0, 4, 8, 12, 13, 33][numbers.below(6)];
    let mut end = 0;
    let places = lens.iter().map(|len| {
        if !same_aad {
            aad_len = numbers.below(40);
        }
        let aad = end + numbers.below(20);
        let aad = aad..aad + aad_len;
        let start = aad.end + if behind { 0 } else { TAG_LEN };
        let text = start..start + len;
        let tag = if behind { text.end } else { aad.end };
        end = text.end + if behind { TAG_LEN } else { 0 };
        let mut nonce = [0; 12];
        numbers.fill(&mut nonce);
        Place {
            aad,
            text,
            tag,
            nonce,
        }
    });
    let places = places.collect();
    (places, end + 3)
}

fn aeads_agree(numbers: &mut Numbers, algorithm: AeadAlgorithm, lens: &[usize]) {
    let mut key = [0; 32];
    numbers.fill(&mut key);
    let (places, len) = places(numbers, lens);
    let mut plain = vec![0; len];
    numbers.fill(&mut plain);
    let implementations = aeads(algorithm, &key[..algorithm.key_len()]);

    let mut sealed = plain.clone();
    implementations[0].1.seal(&mut sealed, &places);
    for (name, implementation) in &implementations[1..] {
        let mut memory = plain.clone();
        implementation.seal(&mut memory, &places);
        assert!(
            memory == sealed,
            "{name} seals as {} does",
            implementations[0].0
        );
    }

    // Turns a bit of some packets: of the associated data, the text, or the tag.
    let mut received = sealed;
    let mut genuine = vec![true; places.len()];
    for (place, genuine) in places.iter().zip(&mut genuine) {
        if numbers.below(4) == 0 {
            let (aad, text) = (place.aad.len(), place.text.len());
            let at = match numbers.below(aad + text + TAG_LEN) {
                at if at < aad => place.aad.start + at,
                at if at < aad + text => place.text.start + at - aad,
                at => place.tag + at - aad - text,
            };
            received[at] ^= 1 << numbers.below(8);
            *genuine = false;
        }
    }
    let mut expected = received.clone();
    for (place, genuine) in places.iter().zip(&genuine) {
        let text = place.text.clone();
        if *genuine {
            expected[text.clone()].copy_from_slice(&plain[text]);
        } else {
            expected[text].fill(0);
        }
    }
    for (name, implementation) in &implementations {
        let mut memory = received.clone();
        let mut authentic = vec![numbers.below(2) == 0; places.len()];
        implementation.open(&mut memory, &places, &mut authentic);
        assert!(authentic == genuine, "{name} knows the genuine ones");
        assert!(
            memory == expected,
            "{name} opens them, and leaves zeros of the others"
        );
    }
}

fn cbcs_agree(numbers: &mut Numbers, lens: &[usize]) {
    let mut key = [0; 32];
    numbers.fill(&mut key);
    let key = &key[..[16, 24, 32][numbers.below(3)]];
    let mut end = 0;
    let chains: Vec<_> = lens
        .iter()
        .map(|len| {
            let start = end + numbers.below(20) + 16;
            end = start + len / 16 * 16;
            Chain::new(&(start..end), 16)
        })
        .collect();
    let mut plain = vec![0; end + 3];
    numbers.fill(&mut plain);
    let implementations = cbcs(key);
    let mut sealed = plain.clone();
    implementations[0].1.encrypt(&mut sealed, &chains);
    for (name, implementation) in &implementations {
        let mut memory = plain.clone();
        implementation.encrypt(&mut memory, &chains);
        assert!(
            memory == sealed,
            "{name} encrypts as {} does",
            implementations[0].0
        );
        implementation.decrypt(&mut memory, &chains);
        assert!(memory == plain, "{name} decrypts");
    }
}

fn macs_agree(numbers: &mut Numbers, digest: Digest, lens: &[usize]) {
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
    let implementations = macs(digest, key);
    let sign = |implementation: &dyn MacImplementation| {
        let mut macs = vec![Mac::EMPTY; messages.len()];
        implementation.sign_each(&memory, &messages, &mut macs);
        macs
    };
    let expected = sign(&*implementations[0].1);
    for (name, implementation) in &implementations {
        for (mac, expected) in sign(&**implementation).iter().zip(&expected) {
            assert!(mac.equals(expected.as_bytes()), "{name} {digest}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: batches(800), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_candidates_agree((seed, packets, longest) in shapes(), kind in 0..14_usize) {
        let mut numbers = Numbers(seed);
        let lens = lens(&mut numbers, packets, longest);
        match kind {
            0 => aeads_agree(&mut numbers, AeadAlgorithm::Aes128Gcm, &lens),
            1 => aeads_agree(&mut numbers, AeadAlgorithm::Aes192Gcm, &lens),
            2 | 3 => aeads_agree(&mut numbers, AeadAlgorithm::Aes256Gcm, &lens),
            4..=6 => aeads_agree(&mut numbers, AeadAlgorithm::ChaCha20Poly1305, &lens),
            7..=9 => cbcs_agree(&mut numbers, &lens),
            _ => {
                let digest = [Digest::Sha1, Digest::Sha224, Digest::Sha256, Digest::Sha384, Digest::Sha512];
                macs_agree(&mut numbers, digest[(seed % 5) as usize], &lens);
            }
        }
    }
}

/// Turns every bit of one packet, in the middle of others.
#[test]
fn no_candidate_takes_a_packet_of_which_any_bit_was_turned() {
    let mut numbers = Numbers(7);
    for algorithm in [
        AeadAlgorithm::Aes128Gcm,
        AeadAlgorithm::Aes192Gcm,
        AeadAlgorithm::Aes256Gcm,
        AeadAlgorithm::ChaCha20Poly1305,
    ] {
        let mut key = [0; 32];
        numbers.fill(&mut key);
        let (places, len) = places(&mut numbers, &[75; 9]);
        let mut sealed = vec![0; len];
        numbers.fill(&mut sealed);
        let implementations = aeads(algorithm, &key[..algorithm.key_len()]);
        implementations[0].1.seal(&mut sealed, &places);
        let place = &places[4];
        let bytes = [
            place.aad.clone(),
            place.text.clone(),
            place.tag..place.tag + TAG_LEN,
        ];
        for (name, implementation) in &implementations {
            for at in bytes.iter().cloned().flatten() {
                for bit in 0..8 {
                    let mut memory = sealed.clone();
                    memory[at] ^= 1 << bit;
                    let mut authentic = [false; 9];
                    implementation.open(&mut memory, &places, &mut authentic);
                    let genuine = core::array::from_fn(|number| number != 4);
                    assert_eq!(authentic, genuine, "{name} {at} {bit}");
                }
            }
        }
    }
}
