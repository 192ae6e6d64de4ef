//! Published vectors, each several times in a batch with others of various lengths. `tests/data/README.md` names their
//! origin; the vectors of AEADs are in `vectors.rs`.

use core::ops::Range;

use super::common::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.trim_start_matches('-');
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

fn fields<const N: usize>(line: &str) -> [&str; N] {
    let fields: Vec<_> = line.split(' ').collect();
    fields.try_into().unwrap()
}

/// Places for `copies` of a text of `len` bytes, each with `front` bytes in front; every second place has another
/// length.
fn scattered(len: usize, front: usize, unit: usize, copies: usize) -> Vec<Range<usize>> {
    let mut end = 0;
    (0..copies)
        .map(|number| {
            let start = end + front + number % 7;
            let len = match number % 2 {
                0 => len,
                _ => (number * 5 % 11) * unit,
            };
            end = start + len;
            start..end
        })
        .collect()
}

fn aes_cbc_is(key: &[u8], iv: &[u8], text: &[u8], sealed: &[u8], id: &str) {
    for (name, implementation) in cbcs(key) {
        for copies in [1, 2, 3, 21, 40] {
            let texts = scattered(text.len(), 16, 16, copies);
            let mut memory = vec![0x55; texts.last().unwrap().end];
            let copies = texts.iter().step_by(2);
            for place in copies.clone() {
                memory[place.start - 16..place.start].copy_from_slice(iv);
                memory[place.clone()].copy_from_slice(text);
            }
            let plain = memory.clone();
            let chains: Vec<_> = texts.iter().map(|text| Chain::new(text, 16)).collect();
            implementation.encrypt(&mut memory, &chains);
            for place in copies {
                assert_eq!(&memory[place.clone()], sealed, "{name} {id}");
            }
            implementation.decrypt(&mut memory, &chains);
            assert_eq!(memory, plain, "{name} {id}");
        }
    }
}

#[test]
fn aes_cbc_of_nist() {
    let file = include_str!("../../../tests/data/aes_cbc_nist.txt");
    for line in file.lines() {
        let [id, key, iv, text, sealed] = fields(line);
        aes_cbc_is(&bytes(key), &bytes(iv), &bytes(text), &bytes(sealed), id);
    }
    assert_eq!(file.lines().count(), 57);
}

#[test]
fn aes_cbc_of_wycheproof() {
    let file = include_str!("../../../tests/data/aes_cbc.txt");
    let mut valid = 0;
    for line in file.lines() {
        let [id, result, key, iv, text, sealed] = fields(line);
        // The other vectors are about padding, which implementations do not handle.
        if result == "valid" {
            let mut text = bytes(text);
            let padding = 16 - text.len() % 16;
            text.resize(text.len() + padding, padding as u8);
            aes_cbc_is(&bytes(key), &bytes(iv), &text, &bytes(sealed), id);
            valid += 1;
        }
    }
    assert!(valid > 50, "{valid}");
}

#[test]
fn hmacs_of_wycheproof() {
    let file = include_str!("../../../tests/data/hmac.txt");
    for line in file.lines() {
        let [digest, id, result, key, text, mac] = fields(line);
        let (text, mac) = (bytes(text), bytes(mac));
        for (name, implementation) in macs(Digest::from_name(digest).unwrap(), &bytes(key)) {
            for copies in [1, 4, 19, 40] {
                let messages = scattered(text.len(), 0, 9, copies);
                let mut memory = vec![0x55; messages.last().unwrap().end];
                for message in messages.iter().step_by(2) {
                    memory[message.clone()].copy_from_slice(&text);
                }
                let mut macs = vec![Mac::EMPTY; messages.len()];
                implementation.sign_each(&memory, &messages, &mut macs);
                for found in macs.iter().step_by(2) {
                    let right = found.equals(&mac);
                    assert_eq!(right, result == "valid", "{name} {digest} {id}");
                }
            }
        }
    }
    assert_eq!(file.lines().count(), 435);
}

#[test]
fn hmacs_of_nist() {
    let file = include_str!("../../../tests/data/hmac_nist.txt");
    for (number, line) in file.lines().enumerate() {
        let [digest, key, text, mac] = fields(line);
        let (text, mac) = (bytes(text), bytes(mac));
        for (name, implementation) in macs(Digest::from_name(digest).unwrap(), &bytes(key)) {
            for copies in [1, 4, 19, 40] {
                let (memory, messages) = among_others(&text, copies);
                let mut macs = vec![Mac::EMPTY; messages.len()];
                implementation.sign_each(&memory, &messages, &mut macs);
                for found in macs.iter().step_by(2) {
                    // NIST truncates many of the codes.
                    assert_eq!(found.as_bytes()[..mac.len()], mac, "{name} line {number}");
                }
            }
        }
    }
    assert_eq!(file.lines().count(), 155);
}

#[test]
fn hashes_of_nist() {
    let file = include_str!("../../../tests/data/hashes_nist.txt");
    for (number, line) in file.lines().enumerate() {
        let [digest, text, hash] = fields(line);
        let (text, hash) = (bytes(text), bytes(hash));
        for (name, implementation) in macs(Digest::from_name(digest).unwrap(), b"") {
            for copies in [1, 4, 19, 40] {
                let (memory, messages) = among_others(&text, copies);
                let mut hashes = vec![Mac::EMPTY; messages.len()];
                assert!(
                    implementation.hash_each(&memory, &messages, &mut hashes),
                    "{name}"
                );
                for found in hashes.iter().step_by(2) {
                    assert_eq!(found.as_bytes(), hash, "{name} line {number}");
                }
            }
        }
    }
    assert_eq!(file.lines().count(), 521);
}

/// Puts a text several times into a batch with others.
fn among_others(text: &[u8], copies: usize) -> (Vec<u8>, Vec<Range<usize>>) {
    let messages = scattered(text.len(), 0, 9, copies);
    let mut memory = vec![0x55; messages.last().unwrap().end];
    for message in messages.iter().step_by(2) {
        memory[message.clone()].copy_from_slice(text);
    }
    (memory, messages)
}

/// RFC 2202 and RFC 4231: test cases with keys longer than a block, and with HMAC-MD5, which Wycheproof lacks.
#[test]
fn hmacs_of_the_rfcs() {
    let hashed_first = b"Test Using Larger Than Block-Size Key - Hash Key First";
    for (digest, key, text, mac) in [
        (
            Digest::Md5,
            &b"Jefe"[..],
            &b"what do ya want for nothing?"[..],
            "750c783e6ab0b503eaa86e310a5db738",
        ),
        (
            Digest::Sha1,
            b"Jefe",
            b"what do ya want for nothing?",
            "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
        ),
        (
            Digest::Sha1,
            &[0xaa; 80],
            hashed_first,
            "aa4ae5e15272d00e95705637ce8a3b55ed402112",
        ),
        (
            Digest::Sha256,
            &[0xaa; 131],
            hashed_first,
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
    ] {
        for (name, implementation) in macs(digest, key) {
            let mut found = [Mac::EMPTY; 9];
            let messages = [const { 0..0 }; 9].map(|_: Range<usize>| 0..text.len());
            implementation.sign_each(text, &messages, &mut found);
            assert!(
                found.iter().all(|found| found.equals(&bytes(mac))),
                "{name} {digest}"
            );
        }
    }
}
