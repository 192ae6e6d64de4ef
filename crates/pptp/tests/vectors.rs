//! The examples of RFC 2759, section 9, and RFC 3079, section 3.5, and the CHAP hash of RFC 1994.

#![allow(clippy::unwrap_used)]

use pptp::mppe::{KeyLength, MasterKey};
use pptp::mschap::{
    Success, authenticator_response, challenge_hash, challenge_response, des_key,
    hash_nt_password_hash, nt_password_hash, nt_response, user_without_domain,
};

const USER: &[u8] = b"User";
const PASSWORD: &str = "clientPass";

fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b' ').collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn array<const N: usize>(digits: &str) -> [u8; N] {
    hex(digits).try_into().unwrap()
}

fn authenticator_challenge() -> [u8; 16] {
    array("5B5D7C7D7B3F2F3E3C2C602132262628")
}

fn peer_challenge() -> [u8; 16] {
    array("21402324255E262A28295F2B3A337C7E")
}

fn response() -> [u8; 24] {
    array("82309ECD8D708B5EA08FAA3981CD83544233114A3D85D6DF")
}

#[test]
fn rfc_2759_hashes_and_responses() {
    let challenge = challenge_hash(&peer_challenge(), &authenticator_challenge(), USER);
    assert_eq!(challenge, array("D02E4386BCE91226"));
    let hash = nt_password_hash(PASSWORD);
    assert_eq!(*hash, array("44EBBA8D5312B8D611474411F56989AE"));
    assert_eq!(
        *hash_nt_password_hash(&hash),
        array("41C00C584BD2D91C4017A2A12FA59F3F")
    );
    assert_eq!(challenge_response(&challenge, &hash), response());
    let whole = nt_response(&authenticator_challenge(), &peer_challenge(), USER, &hash);
    assert_eq!(whole, response());
}

#[test]
fn rfc_2759_the_servers_proof() {
    let hash = nt_password_hash(PASSWORD);
    let proof = authenticator_response(
        &hash,
        &response(),
        &peer_challenge(),
        &authenticator_challenge(),
        USER,
    );
    let text = Success { proof }.to_text();
    assert!(text.starts_with("S=407A5589115FD0D6209F510FE9C04566932CDA56 "));
}

#[test]
fn rfc_2759_keys_of_des_have_odd_parity() {
    let hash = nt_password_hash("MyPw");
    assert_eq!(*hash, array("FC156AF7EDCD6C0EDDE3337D427F4EAC"));
    for (bits, key) in [
        ("FC156AF7EDCD6C", "FD0B5B5E7F6E34D9"),
        ("0EDDE3337D427F", "0E6E796737EA08FE"),
        ("4EAC0000000000", "4F57010101010101"),
    ] {
        assert_eq!(*des_key(&array(bits)), array(key), "{bits}");
    }
}

#[test]
fn a_domain_is_not_hashed() {
    assert_eq!(user_without_domain(b"BIGCO\\johndoe"), b"johndoe");
    assert_eq!(user_without_domain(b"johndoe"), b"johndoe");
    assert_eq!(user_without_domain(b"BIGCO\\"), b"");
}

#[test]
fn rfc_3079_keys_and_sample_packets() {
    let master = MasterKey::new(&nt_password_hash(PASSWORD), &response());
    assert_eq!(
        *master.as_bytes(),
        array("FDECE3717A8C838CB388E527AE3CDD31")
    );
    for (length, start, session, message) in [
        (
            KeyLength::Bits40,
            "8B7CDC149B993A1B",
            "D1269EC49FA62E3E",
            "929137917E5803D668D75898",
        ),
        (
            // The RFC prints 58 for the last byte; its own key yields B8.
            KeyLength::Bits56,
            "8B7CDC149B993A1B",
            "D15C00C49FA62E3E",
            "3F106833FA448DA842BC57B8",
        ),
        (
            KeyLength::Bits128,
            "8B7CDC149B993A1BA118CB153F56DCCB",
            "405CB2247A7956E6E211007AE27B22D4",
            "81848317DF68846272FB5ABE",
        ),
    ] {
        let server_send = master.start_key(false, length);
        assert_eq!(server_send.as_bytes(), hex(start));
        let key = server_send.session_key();
        assert_eq!(key.as_bytes(), hex(session), "{length:?}");
        let mut text = *b"test message";
        key.cipher().apply(&mut text);
        assert_eq!(text.as_slice(), hex(message), "{length:?}");
    }
}

#[test]
fn both_directions_have_keys_of_their_own() {
    let master = MasterKey::new(&nt_password_hash(PASSWORD), &response());
    let [client, server] = [true, false].map(|client| master.start_key(client, KeyLength::Bits128));
    assert_ne!(client.as_bytes(), server.as_bytes());
}

#[test]
fn a_changed_key_is_as_weak_as_the_first() {
    let master = MasterKey::new(&nt_password_hash(PASSWORD), &response());
    for (length, known) in [
        (KeyLength::Bits40, &[0xd1, 0x26, 0x9e][..]),
        (KeyLength::Bits56, &[0xd1]),
        (KeyLength::Bits128, &[]),
    ] {
        let mut key = master.start_key(true, length).session_key();
        let first = key.as_bytes().to_vec();
        let mut cipher = key.cipher();
        key.change(&mut cipher);
        assert_ne!(key.as_bytes(), first);
        assert!(key.as_bytes().starts_with(known), "{length:?}");
    }
}
