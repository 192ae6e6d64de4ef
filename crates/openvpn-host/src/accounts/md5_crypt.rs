//! Apache's variant of the MD5-based password hash (`$apr1$`): old, but still `htpasswd`'s default.

use md5::{Digest as _, Md5};
use zeroize::Zeroizing;

const MAGIC: &str = "$apr1$";

/// Longest salt in bytes; the rest is cut off.
const SALT_MAX: usize = 8;

/// Number of rounds, fixed since 1995.
const ROUNDS: usize = 1000;

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Hashes a password with the salt of another hash; `None` if that is not an `$apr1$` hash.
pub(crate) fn apr1(password: &[u8], hash: &str) -> Option<String> {
    let (salt, _) = hash.strip_prefix(MAGIC)?.split_once('$')?;
    let salt = salt.as_bytes();
    let salt = &salt[..salt.len().min(SALT_MAX)];
    let digest = digest(password, salt);
    let mut text = format!("{MAGIC}{}$", String::from_utf8_lossy(salt));
    for [a, b, c] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        let group = u32::from_be_bytes([0, digest[a], digest[b], digest[c]]);
        encode(&mut text, group, 4);
    }
    encode(&mut text, u32::from(digest[11]), 2);
    Some(text)
}

/// Encodes six bits per character, the lowest first.
fn encode(text: &mut String, mut bits: u32, characters: usize) {
    for _ in 0..characters {
        text.push(char::from(ALPHABET[(bits & 63) as usize]));
        bits >>= 6;
    }
}

fn digest(password: &[u8], salt: &[u8]) -> Zeroizing<[u8; 16]> {
    let mixed = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize();
    let mut md5 = Md5::new()
        .chain_update(password)
        .chain_update(MAGIC)
        .chain_update(salt);
    for chunk in password.chunks(mixed.len()) {
        md5.update(&mixed[..chunk.len()]);
    }
    let mut length = password.len();
    while length > 0 {
        // The algorithm adds a zero or the password's first byte for each bit of the length.
        md5.update(if length & 1 == 1 {
            &[0]
        } else {
            &password[..1]
        });
        length >>= 1;
    }
    let mut state = Zeroizing::new(<[u8; 16]>::from(md5.finalize()));
    for round in 0..ROUNDS {
        let odd = round % 2 == 1;
        let mut md5 = Md5::new();
        md5.update(if odd { password } else { &state[..] });
        if round % 3 != 0 {
            md5.update(salt);
        }
        if round % 7 != 0 {
            md5.update(password);
        }
        md5.update(if odd { &state[..] } else { password });
        *state = md5.finalize().into();
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_openssl() {
        for (password, hash) in [
            ("open sesame", "$apr1$saltsalt$HIDXe7D36X22w1CH4M1cQ."),
            OPENSSL_EMPTY,
            OPENSSL_LONG,
        ] {
            assert_eq!(apr1(password.as_bytes(), hash).as_deref(), Some(hash));
        }
        assert_eq!(apr1(b"x", "$1$saltsalt$abc"), None);
        assert_eq!(apr1(b"x", "$apr1$salt"), None);
    }

    const OPENSSL_EMPTY: (&str, &str) = ("", "$apr1$ab$S8K6Sgp3W8c9Jb6LxgywZ.");
    const OPENSSL_LONG: (&str, &str) = (
        "a password that is longer than sixteen bytes, and than thirty-two",
        "$apr1$12345678$6DhS6Lfk/Q7SwdUgCeF3W1",
    );
}
