//! The page's password, stored as a salted PBKDF2 hash.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use crypto::hmac::{STRETCHED_LEN, stretch};
use thiserror::Error;

/// Shortest password, in characters.
pub const LEAST: usize = 8;

/// Longest password, in bytes: a longer one would not fit into a request.
pub const MOST: usize = 1024;

/// Rounds that a file may request. The fewest cost a router of 2012 about a quarter of a second.
const ROUNDS: std::ops::RangeInclusive<u32> = 100_000..=5_000_000;

/// The target time for checking a new password on this machine.
const COST: Duration = Duration::from_millis(250);

/// The first word in the file.
const KIND: &str = "pbkdf2-sha256";

const SALT_LEN: usize = 16;

/// The hash of a password, which only allows checking it.
#[derive(Clone)]
pub struct Password {
    rounds: NonZeroU32,
    salt: [u8; SALT_LEN],
    stretched: [u8; STRETCHED_LEN],
}

/// Why a file or a password is unusable.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum PasswordError {
    /// The file is not one that [`Password::to_text`] writes.
    #[error("is no password of the monitor; `millrace monitor password` makes one")]
    File,
    /// The password is shorter than [`LEAST`].
    #[error("too short: at least {LEAST} characters")]
    Short,
    /// The password is longer than [`MOST`].
    #[error("too long: at most {MOST} bytes")]
    Long,
}

impl Password {
    /// Hashes a password, with as many rounds as this machine does in a quarter of a second.
    ///
    /// # Errors
    /// The password is too short or too long.
    pub fn new(text: &str) -> Result<Self, PasswordError> {
        Self::with_rounds(text, rounds(measured()))
    }

    fn with_rounds(text: &str, rounds: NonZeroU32) -> Result<Self, PasswordError> {
        if text.chars().count() < LEAST {
            return Err(PasswordError::Short);
        }
        if text.len() > MOST {
            return Err(PasswordError::Long);
        }
        let mut salt = [0; SALT_LEN];
        crypto::random(&mut salt);
        Ok(Self {
            rounds,
            salt,
            stretched: *stretch(text.as_bytes(), &salt, rounds),
        })
    }

    /// Whether the text is the password. Takes equally long either way.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        text.len() <= MOST
            && crypto::equal(
                &stretch(text.as_bytes(), &self.salt, self.rounds),
                &self.stretched,
            )
    }

    /// A key derived from the hash, different for each use, which reveals nothing about the hash.
    #[must_use]
    pub fn key(&self, using: &[u8]) -> [u8; 32] {
        crypto::blake2s::hmac(&self.stretched, &[&self.salt, using])
    }

    /// A hash with the fewest rounds.
    #[cfg(test)]
    pub(crate) fn quick(text: &str) -> Self {
        let rounds = NonZeroU32::new(*ROUNDS.start());
        Self::with_rounds(text, rounds.unwrap()).unwrap()
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let [salt, stretched] =
            [&self.salt[..], &self.stretched].map(|it| STANDARD_NO_PAD.encode(it));
        format!("{KIND} {} {salt} {stretched}\n", self.rounds)
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// The text is not in the file's format.
    pub fn from_text(text: &str) -> Result<Self, PasswordError> {
        Self::parse(text).ok_or(PasswordError::File)
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let mut words = line.split(' ');
        if words.next()? != KIND {
            return None;
        }
        let rounds = words.next()?.parse().ok()?;
        let mut bytes = || STANDARD_NO_PAD.decode(words.next()?).ok();
        let password = Self {
            rounds: NonZeroU32::new(rounds)?,
            salt: bytes()?.try_into().ok()?,
            stretched: bytes()?.try_into().ok()?,
        };
        (ROUNDS.contains(&rounds) && words.next().is_none()).then_some(password)
    }
}

/// The time of a thousand rounds on this machine.
fn measured() -> Duration {
    const SOME: NonZeroU32 = NonZeroU32::new(20_000).expect("is not zero");
    let begin = Instant::now();
    let _ = stretch(b"measured", b"by the clock", SOME);
    begin.elapsed() / 20
}

/// The number of rounds that take [`COST`], if a thousand take `thousand`.
fn rounds(thousand: Duration) -> NonZeroU32 {
    let thousands = COST.as_nanos() / thousand.as_nanos().max(1);
    let rounds = u32::try_from(thousands * 1000).unwrap_or(u32::MAX);
    let rounds = rounds.clamp(*ROUNDS.start(), *ROUNDS.end());
    NonZeroU32::new(rounds).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn password(text: &str) -> Result<Password, PasswordError> {
        Password::with_rounds(text, NonZeroU32::new(*ROUNDS.start()).unwrap())
    }

    #[test]
    fn only_the_password_is_it_and_its_file_says_the_same() {
        let made = password("a long secret").unwrap();
        let text = made.to_text();
        assert!(!text.contains("secret"));
        let read = Password::from_text(&text).unwrap();
        assert!(made.is("a long secret") && read.is("a long secret"));
        assert!(!read.is("a long secreT") && !read.is("") && !read.is(&"a".repeat(2000)));
        assert_ne!(text, password("a long secret").unwrap().to_text());
    }

    #[test]
    fn passwords_have_a_length() {
        assert_eq!(password("seven s").err(), Some(PasswordError::Short));
        assert_eq!(
            password("\u{e9}\u{e9}\u{e9}\u{e9}").err(),
            Some(PasswordError::Short)
        );
        assert_eq!(password(&"a".repeat(1025)).err(), Some(PasswordError::Long));
    }

    #[test]
    fn rounds_follow_the_machine_and_stay_within_bounds() {
        assert_eq!(rounds(Duration::from_micros(500)).get(), 500_000);
        assert_eq!(rounds(Duration::from_secs(1)).get(), 100_000);
        assert_eq!(rounds(Duration::ZERO).get(), 5_000_000);
    }

    proptest! {
        #[test]
        fn any_text(text in "\\PC{0,120}", junk in "(pbkdf2-sha256) [0-9]{0,9} [A-Za-z0-9+/]{0,30} [A-Za-z0-9+/]{0,50}") {
            prop_assert!(Password::from_text(&text).is_err());
            let _ = Password::from_text(&junk);
        }
    }
}
