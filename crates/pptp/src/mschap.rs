//! MS-CHAP version 2 (RFC 2759).
//!
//! Three DES keys come from the password's MD4; the third has only 16 bits. From a recorded login, an attacker finds
//! the hash, and with it every MPPE key, by trying 2^56 DES keys: hours on rented machines. See the crate's
//! documentation.

mod functions;
mod messages;
mod password;

pub use functions::{
    authenticator_response, challenge_hash, challenge_response, des_key, hash_nt_password_hash,
    nt_password_hash, nt_response, user_without_domain,
};
pub use messages::{Failure, FailureCode, RESPONSE_LEN, Response, Success};
pub use password::Password;
