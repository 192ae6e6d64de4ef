//! CHAP packets, and CHAP's MD5 (RFC 1994, section 4).

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

use crate::ppp::packet::Packet;

const CHALLENGE: u8 = 1;
const RESPONSE: u8 = 2;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;
const CHANGE_PASSWORD: u8 = 7;

/// A CHAP packet of any algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChapPacket<'a> {
    /// A request to prove knowledge of the password.
    Challenge {
        /// Identifier that answers repeat.
        id: u8,
        /// The challenge value.
        value: &'a [u8],
        /// Name of the challenger.
        name: &'a [u8],
    },
    /// The answer to a challenge.
    Response {
        /// Identifier of the challenge.
        id: u8,
        /// Response value, which proves the secret.
        value: &'a [u8],
        /// The name of the end that proves itself.
        name: &'a [u8],
    },
    /// The proof was correct.
    Success {
        /// Identifier of the challenge.
        id: u8,
        /// Message for people, or in the algorithm's format.
        message: &'a [u8],
    },
    /// The proof was wrong.
    Failure {
        /// Identifier of the challenge.
        id: u8,
        /// Message for people, or in the algorithm's format.
        message: &'a [u8],
    },
    /// A request to change the password (RFC 2759, section 7); its contents are ignored.
    ChangePassword {
        /// Identifier of the failure.
        id: u8,
    },
}

impl<'a> ChapPacket<'a> {
    /// Reads the information field of a frame; `None` if it is not a CHAP packet.
    #[must_use]
    pub fn parse(information: &'a [u8]) -> Option<Self> {
        let Packet { code, id, data } = Packet::parse(information)?;
        let split = || {
            let (&len, rest) = data.split_first()?;
            rest.split_at_checked(usize::from(len))
        };
        Some(match code {
            CHALLENGE => {
                let (value, name) = split()?;
                Self::Challenge { id, value, name }
            }
            RESPONSE => {
                let (value, name) = split()?;
                Self::Response { id, value, name }
            }
            SUCCESS => Self::Success { id, message: data },
            FAILURE => Self::Failure { id, message: data },
            CHANGE_PASSWORD => Self::ChangePassword { id },
            _ => return None,
        })
    }

    /// The packet's bytes. A value of more than 255 bytes is cut.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let with_name = |value: &[u8], name: &[u8]| {
            let value = &value[..value.len().min(255)];
            // The value was cut above, so the length fits.
            let mut data = vec![value.len() as u8];
            data.extend_from_slice(value);
            data.extend_from_slice(name);
            data
        };
        let (code, id, data) = match *self {
            Self::Challenge { id, value, name } => (CHALLENGE, id, with_name(value, name)),
            Self::Response { id, value, name } => (RESPONSE, id, with_name(value, name)),
            Self::Success { id, message } => (SUCCESS, id, message.to_vec()),
            Self::Failure { id, message } => (FAILURE, id, message.to_vec()),
            Self::ChangePassword { id } => (CHANGE_PASSWORD, id, Vec::new()),
        };
        let data = &data;
        Packet { code, id, data }.to_vec()
    }
}

/// A challenge packet (RFC 1994, section 4.1).
#[must_use]
pub fn challenge(id: u8, value: &[u8], name: &str) -> Vec<u8> {
    let name = name.as_bytes();
    ChapPacket::Challenge { id, value, name }.to_vec()
}

/// The response of CHAP with MD5 (RFC 1994, section 4.1).
#[must_use]
pub fn md5_response(id: u8, secret: &str, challenge: &[u8]) -> [u8; 16] {
    Md5::new()
        .chain_update([id])
        .chain_update(secret)
        .chain_update(challenge)
        .finalize()
        .into()
}

/// Whether a response is correct; compares in constant time.
#[must_use]
pub fn verify_md5(id: u8, secret: &str, challenge: &[u8], response: &[u8]) -> bool {
    md5_response(id, secret, challenge).ct_eq(response).into()
}
