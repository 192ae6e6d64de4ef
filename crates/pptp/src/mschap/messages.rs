//! MS-CHAP version 2 fields in CHAP packets (RFC 2759, sections 4 to 6).

use core::fmt::{self, Write as _};

use crate::bytes::Reader;

/// Bytes of the response's value (RFC 2759, section 4).
pub const RESPONSE_LEN: usize = 49;

/// The value of a response (RFC 2759, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The challenge of the end that authenticates itself.
    pub peer_challenge: [u8; 16],
    /// The proof of the password.
    pub nt_response: [u8; 24],
}

impl Response {
    /// Parses a response; `None` if the length is wrong. Reserved bytes and flags must be zero but are not checked, as
    /// in deployed servers.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        if value.len() != RESPONSE_LEN {
            return None;
        }
        let mut reader = Reader::new(value);
        let peer_challenge = reader.array()?;
        let _reserved: [u8; 8] = reader.array()?;
        let nt_response = reader.array()?;
        Some(Self {
            peer_challenge,
            nt_response,
        })
    }

    /// The response's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RESPONSE_LEN] {
        let mut bytes = [0; RESPONSE_LEN];
        bytes[..16].copy_from_slice(&self.peer_challenge);
        bytes[24..48].copy_from_slice(&self.nt_response);
        bytes
    }
}

/// The message of a success: the server's proof (RFC 2759, section 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Success {
    /// `S=`: the result of [`authenticator_response`](super::authenticator_response).
    pub proof: [u8; 20],
}

impl Success {
    /// Parses a success message; `None` without a proof. The text after it is for people.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Self> {
        let digits = message.strip_prefix(b"S=")?.get(..40)?;
        let mut proof = [0; 20];
        hex(digits, &mut proof)?;
        Some(Self { proof })
    }

    /// The message's text.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("S={} M=Access granted", digits(&self.proof))
    }
}

/// Why a login failed (RFC 2759, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// Error 646.
    RestrictedLogonHours,
    /// Error 647.
    AccountDisabled,
    /// Error 648. The RFC has a message to change the password, which this crate does not send.
    PasswordExpired,
    /// Error 649.
    NoDialInPermission,
    /// Error 691.
    AuthenticationFailure,
    /// Error 709.
    ChangingPassword,
    /// Another error number.
    Other(u32),
}

impl FailureCode {
    /// The error number in the message.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::RestrictedLogonHours => 646,
            Self::AccountDisabled => 647,
            Self::PasswordExpired => 648,
            Self::NoDialInPermission => 649,
            Self::AuthenticationFailure => 691,
            Self::ChangingPassword => 709,
            Self::Other(number) => number,
        }
    }
}

impl From<u32> for FailureCode {
    fn from(number: u32) -> Self {
        [
            Self::RestrictedLogonHours,
            Self::AccountDisabled,
            Self::PasswordExpired,
            Self::NoDialInPermission,
            Self::AuthenticationFailure,
            Self::ChangingPassword,
        ]
        .into_iter()
        .find(|code| code.number() == number)
        .unwrap_or(Self::Other(number))
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RestrictedLogonHours => "the account may not log in at this hour",
            Self::AccountDisabled => "the account is disabled",
            Self::PasswordExpired => {
                "the password has expired; change it with another program first"
            }
            Self::NoDialInPermission => "the account may not dial in",
            Self::AuthenticationFailure => "wrong user name or password",
            Self::ChangingPassword => "the password could not be changed",
            Self::Other(number) => {
                return write!(f, "the server refuses the login, error {number}");
            }
        })
    }
}

/// The message of a failure (RFC 2759, section 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `E=`: the error number.
    pub code: FailureCode,
    /// `R=`: whether another try is allowed.
    pub retry: bool,
    /// `C=`: the challenge for the next try.
    pub challenge: Option<[u8; 16]>,
}

impl Failure {
    /// Parses as much as possible: a message without an error number counts as a failure too.
    #[must_use]
    pub fn parse(message: &[u8]) -> Self {
        let mut failure = Self {
            code: FailureCode::AuthenticationFailure,
            retry: false,
            challenge: None,
        };
        for word in message.split(|&byte| byte == b' ') {
            match word {
                // The rest of the message is for people.
                [b'M', b'=', ..] => break,
                [b'E', b'=', number @ ..] => {
                    let number = core::str::from_utf8(number)
                        .ok()
                        .and_then(|n| n.parse().ok());
                    failure.code = number.map_or(failure.code, |number: u32| number.into());
                }
                [b'R', b'=', retry @ ..] => failure.retry = retry == b"1",
                [b'C', b'=', digits @ ..] if digits.len() == 32 => {
                    let mut challenge = [0; 16];
                    failure.challenge = hex(digits, &mut challenge).map(|()| challenge);
                }
                _ => {}
            }
        }
        failure
    }

    /// The message's text in version 3 (RFC 2759, section 6).
    #[must_use]
    pub fn to_text(&self) -> String {
        let challenge = self.challenge.unwrap_or_default();
        format!(
            "E={} R={} C={} V=3 M=Access denied",
            self.code.number(),
            u8::from(self.retry),
            digits(&challenge)
        )
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// Reads hexadecimal digits, two for each byte of `out`.
fn hex(digits: &[u8], out: &mut [u8]) -> Option<()> {
    for (pair, byte) in digits.chunks_exact(2).zip(out) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        // Two hexadecimal digits fit a byte.
        *byte = (high << 4 | low) as u8;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_windows_is_understood() {
        let message = b"E=648 R=1 C=000102030405060708090a0b0c0d0e0f V=3 M=E=691 expired";
        let failure = Failure::parse(message);
        assert_eq!(failure.code, FailureCode::PasswordExpired);
        assert!(failure.retry);
        assert_eq!(failure.challenge, Some(core::array::from_fn(|at| at as u8)));
        assert_eq!(Failure::parse(failure.to_text().as_bytes()), failure);
    }

    #[test]
    fn a_failure_without_anything_is_a_failure() {
        for message in [&b""[..], b"no", b"E= R= C=", b"E=x C=00"] {
            let failure = Failure::parse(message);
            assert_eq!(failure.code, FailureCode::AuthenticationFailure);
            assert!(!failure.retry);
        }
    }

    #[test]
    fn a_success_has_forty_digits() {
        let success = Success { proof: [0xa5; 20] };
        assert_eq!(Success::parse(success.to_text().as_bytes()), Some(success));
        for message in [&b""[..], b"S=", b"S=00", b"M=yes", &[b'S'; 60]] {
            assert_eq!(Success::parse(message), None);
        }
        assert_eq!(
            Success::parse(&[b"S=".as_slice(), &[b'g'; 40]].concat()),
            None
        );
    }
}
