//! Makes passwords costly to guess: PBKDF2 with HMAC-SHA-256 (RFC 8018, section 5.2).

use aws_lc_rs::pbkdf2;
use std::num::NonZeroU32;
use zeroize::Zeroizing;

/// Bytes of a stretched password.
pub const STRETCHED_LEN: usize = 32;

/// Stretches the password by so many `rounds`, which cost the owner as much as someone who guesses.
#[must_use]
pub fn stretch(password: &[u8], salt: &[u8], rounds: NonZeroU32) -> Zeroizing<[u8; STRETCHED_LEN]> {
    let mut out = Zeroizing::new([0; STRETCHED_LEN]);
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA256,
        rounds,
        salt,
        password,
        &mut *out,
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_rfc_7914() {
        let rounds = NonZeroU32::new(80_000).unwrap();
        let stretched = stretch(b"Password", b"NaCl", rounds);
        let hex: String = stretched.iter().map(|it| format!("{it:02x}")).collect();
        assert_eq!(
            hex,
            "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56"
        );
    }
}
