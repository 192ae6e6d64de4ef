//! The key method 2 record, the first thing each end says inside TLS.
//!
//! ```text
//! u32 0 | u8 2 | pre_master[48] (client only) | random1[32] | random2[32]
//!       | str options | str username | str password | str peer_info
//! str = u16 length, NUL included | bytes | NUL            nothing = u16 0
//! ```
//!
//! The draft RFC has the empty string as a single zero byte; programs send a length of zero, or a
//! length of one and a NUL. Both are read, the first is written. Old peers end the record after the
//! options or after the password; so a record that ends there, at the end of what TLS delivered, is
//! whole: every known peer writes its record in one piece.

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::keys::KeySource;
use crate::role::Role;

/// The largest options string, its NUL included.
pub const OPTIONS_MAX: usize = 512;

/// The largest username or password that is read, the NUL included. Stock programs read 128 bytes,
/// or 4096 if they are built for smart cards, as Debian's is.
pub const CREDENTIAL_MAX: usize = 4096;

/// The largest peer info that is read, its NUL included.
pub const PEER_INFO_MAX: usize = 8192;

/// The largest record that is read; no well-meaning peer sends a longer one.
pub const RECORD_MAX: usize = 5 + 48 + 64 + 8 + OPTIONS_MAX + 2 * CREDENTIAL_MAX + PEER_INFO_MAX;

const METHOD: u8 = 2;
/// The upper half of the byte once held flags.
const METHOD_MASK: u8 = 0x0f;

/// Credentials of a person or a token. Bytes, as no encoding is agreed upon.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Credentials {
    /// The name, without NUL.
    pub username: Vec<u8>,
    /// The password, without NUL.
    pub password: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &String::from_utf8_lossy(&self.username))
            .finish_non_exhaustive()
    }
}

/// The login in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// Both strings were absent or empty.
    Absent,
    /// A username, and perhaps a password.
    Given(Credentials),
    /// The username or the password is longer than [`CREDENTIAL_MAX`]. The peer is to be told, so the session
    /// continues.
    TooLong,
}

/// The record of one end.
#[derive(Clone, Debug)]
pub struct KeyMethod {
    /// The random bytes of the sender.
    pub source: KeySource,
    /// The options of the sender as a comma separated list ("OCC string").
    pub options: String,
    /// The username and the password, if the sender has them.
    pub login: Login,
    /// Lines of `NAME=value`; empty if the sender says nothing about itself.
    pub peer_info: String,
}

/// The fault of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyMethodError {
    /// The peer uses another key method.
    #[error("the peer uses key method {0}, and only 2 is spoken since OpenVPN 2.4")]
    Method(u8),
    /// The record is longer than [`RECORD_MAX`].
    #[error("the peer's key method 2 record does not end within {RECORD_MAX} bytes")]
    TooLong,
    /// The options string is longer than any program reads.
    #[error("the peer's options string has {0} bytes, {OPTIONS_MAX} are allowed")]
    OptionsTooLong(usize),
    /// The peer info is longer than a peer needs.
    #[error("the peer info has {0} bytes, {PEER_INFO_MAX} are allowed")]
    PeerInfoTooLong(usize),
}

/// A string of our own that does not fit into a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {field} has {len} bytes, {max} can be sent; shorten it")]
pub struct TooLongToSend {
    /// The name of the string.
    pub field: &'static str,
    /// Length of the field, with the NUL.
    pub len: usize,
    /// Maximum length of the field, with the NUL.
    pub max: usize,
}

impl KeyMethod {
    /// The bytes of the record, as the end that plays `role` sends it.
    pub fn encode(&self, role: Role) -> Result<Zeroizing<Vec<u8>>, TooLongToSend> {
        // Grown to its size at once: growing later would leave copies of the password behind.
        let mut out = Zeroizing::new(Vec::with_capacity(RECORD_MAX));
        out.extend_from_slice(&[0, 0, 0, 0, METHOD]);
        if role == Role::Client {
            out.extend_from_slice(self.source.pre_master());
        }
        out.extend_from_slice(self.source.random1());
        out.extend_from_slice(self.source.random2());
        put_string(
            &mut out,
            "options string",
            self.options.as_bytes(),
            OPTIONS_MAX,
        )?;
        match &self.login {
            Login::Given(login) => {
                put_string(&mut out, "username", &login.username, CREDENTIAL_MAX)?;
                put_string(&mut out, "password", &login.password, CREDENTIAL_MAX)?;
            }
            Login::Absent | Login::TooLong => out.extend_from_slice(&[0; 4]),
        }
        if self.peer_info.is_empty() {
            out.extend_from_slice(&[0; 2]);
        } else {
            put_string(
                &mut out,
                "peer info",
                self.peer_info.as_bytes(),
                PEER_INFO_MAX,
            )?;
        }
        Ok(out)
    }

    /// Reads the record that an end playing `sender` sent, from the start of a stream.
    ///
    /// `stream` is all that TLS has delivered so far and that was not consumed. The answer is the
    /// record and its length, or nothing if more of it has yet to come.
    pub fn decode(stream: &[u8], sender: Role) -> Result<Option<(Self, usize)>, KeyMethodError> {
        let mut reader = Reader { rest: stream };
        match Self::read(&mut reader, sender) {
            Ok(record) => Ok(Some((record, stream.len() - reader.rest.len()))),
            // A peer cannot make us keep more than a record.
            Err(Stop::Incomplete) if stream.len() >= RECORD_MAX => Err(KeyMethodError::TooLong),
            Err(Stop::Incomplete) => Ok(None),
            Err(Stop::Bad(error)) => Err(error),
        }
    }

    fn read(reader: &mut Reader<'_>, sender: Role) -> Result<Self, Stop> {
        reader.take(4)?;
        let method = reader.take(1)?[0] & METHOD_MASK;
        if method != METHOD {
            return Err(KeyMethodError::Method(method).into());
        }
        let pre_master = match sender {
            Role::Client => reader.array()?,
            Role::Server => [0; 48],
        };
        let source = KeySource::from_bytes(pre_master, reader.array()?, reader.array()?);

        let options = match reader.string(OPTIONS_MAX)? {
            Text::Fits(text) => printable(text),
            Text::TooLong(len) => return Err(KeyMethodError::OptionsTooLong(len).into()),
        };
        let mut record = Self {
            source,
            options,
            login: Login::Absent,
            peer_info: String::new(),
        };
        if reader.rest.is_empty() {
            return Ok(record);
        }
        let username = reader.string(CREDENTIAL_MAX)?;
        let password = reader.string(CREDENTIAL_MAX)?;
        record.login = match (username, password) {
            (Text::Fits([]), Text::Fits([])) => Login::Absent,
            (Text::Fits(username), Text::Fits(password)) => Login::Given(Credentials {
                username: username.to_vec(),
                password: password.to_vec(),
            }),
            _ => Login::TooLong,
        };
        if reader.rest.is_empty() {
            return Ok(record);
        }
        record.peer_info = match reader.string(PEER_INFO_MAX)? {
            Text::Fits(text) => String::from_utf8_lossy(text).into_owned(),
            Text::TooLong(len) => return Err(KeyMethodError::PeerInfoTooLong(len).into()),
        };
        Ok(record)
    }
}

/// Options go to the log: what is not printable becomes a dot.
fn printable(text: &[u8]) -> String {
    text.iter()
        .map(|&byte| {
            if byte.is_ascii_graphic() || byte == b' ' {
                char::from(byte)
            } else {
                '.'
            }
        })
        .collect()
}

/// Why reading ended early.
enum Stop {
    Incomplete,
    Bad(KeyMethodError),
}

impl From<KeyMethodError> for Stop {
    fn from(error: KeyMethodError) -> Self {
        Self::Bad(error)
    }
}

/// A string of a record.
enum Text<'a> {
    /// The bytes, without the NUL.
    Fits(&'a [u8]),
    /// The length, with the NUL.
    TooLong(usize),
}

/// Reads a record from its front.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Stop::Incomplete)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Reads a string, up to its first NUL. A string that is too long is skipped.
    fn string(&mut self, max: usize) -> Result<Text<'a>, Stop> {
        let len = usize::from(u16::from_be_bytes(self.array()?));
        if len > max {
            // A string that no record can hold is refused before it is waited for.
            self.take(len.min(RECORD_MAX))?;
            return Ok(Text::TooLong(len));
        }
        let bytes = self.take(len)?;
        let end = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or_else(|| len.saturating_sub(1));
        Ok(Text::Fits(&bytes[..end.min(len)]))
    }
}

/// Appends a string; `max` counts its NUL and is below 65536.
fn put_string(
    out: &mut Vec<u8>,
    field: &'static str,
    text: &[u8],
    max: usize,
) -> Result<(), TooLongToSend> {
    let len = text.len() + 1;
    if len > max {
        return Err(TooLongToSend { field, len, max });
    }
    // `max` is below 65536.
    out.extend_from_slice(&(len as u16).to_be_bytes());
    out.extend_from_slice(text);
    out.push(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(login: Login, peer_info: &str) -> KeyMethod {
        KeyMethod {
            source: KeySource::from_bytes([1; 48], [2; 32], [3; 32]),
            options: "V4,dev-type tun".to_owned(),
            login,
            peer_info: peer_info.to_owned(),
        }
    }

    fn login(username: &str, password: &str) -> Login {
        let (username, password) = (username.into(), password.into());
        Login::Given(Credentials { username, password })
    }

    fn decode(bytes: &[u8], sender: Role) -> (KeyMethod, usize) {
        KeyMethod::decode(bytes, sender)
            .expect("no error")
            .expect("whole")
    }

    #[test]
    fn a_clients_record_has_this_layout() {
        let bytes = record(login("u", "pw"), "IV_VER=x\n")
            .encode(Role::Client)
            .expect("fits");
        let mut expected = vec![0, 0, 0, 0, 2];
        expected.extend([1; 48]);
        expected.extend([2; 32]);
        expected.extend([3; 32]);
        expected.extend(b"\0\x10V4,dev-type tun\0\0\x02u\0\0\x03pw\0\0\x0aIV_VER=x\n\0");
        assert_eq!(*bytes, expected);
    }

    #[test]
    fn a_servers_record_has_no_pre_master_and_empty_strings() {
        let bytes = record(Login::Absent, "")
            .encode(Role::Server)
            .expect("fits");
        assert_eq!(bytes.len(), 5 + 64 + 2 + 16 + 2 + 2 + 2);
        assert!(bytes.ends_with(&[0; 6]));
        let (read, used) = decode(&bytes, Role::Server);
        assert_eq!((read.login, used), (Login::Absent, bytes.len()));
        assert_eq!(*read.source.pre_master(), [0; 48]);
    }

    /// Written by programs that follow the draft's idea of an empty string.
    #[test]
    fn an_empty_string_may_hold_its_nul() {
        let mut bytes = record(Login::Absent, "")
            .encode(Role::Server)
            .expect("fits");
        let len = bytes.len();
        bytes.truncate(len - 6);
        bytes.extend(b"\0\x01\0\0\x01\0\0\x01\0");
        let (read, used) = decode(&bytes, Role::Server);
        assert_eq!(
            (read.login, read.peer_info, used),
            (Login::Absent, String::new(), len + 3)
        );
    }

    #[test]
    fn old_peers_end_their_record_early() {
        let bytes = record(Login::Absent, "")
            .encode(Role::Server)
            .expect("fits");
        for missing in [2, 6] {
            let (read, used) = decode(&bytes[..bytes.len() - missing], Role::Server);
            assert_eq!(
                (read.options.as_str(), used),
                ("V4,dev-type tun", bytes.len() - missing)
            );
        }
        // A record cannot end between username and password.
        assert!(matches!(
            KeyMethod::decode(&bytes[..bytes.len() - 4], Role::Server),
            Ok(None)
        ));
    }

    #[test]
    fn bad_records_are_refused() {
        let good = record(Login::Absent, "")
            .encode(Role::Client)
            .expect("fits");
        let mut other = good.clone();
        other[4] = 1;
        let error = KeyMethod::decode(&other, Role::Client).expect_err("another method");
        assert_eq!(error, KeyMethodError::Method(1));

        let mut long = good[..5 + 48 + 64].to_vec();
        long.extend(513u16.to_be_bytes());
        assert!(matches!(KeyMethod::decode(&long, Role::Client), Ok(None)));
        long.extend([b'x'; 513]);
        let error = KeyMethod::decode(&long, Role::Client).expect_err("too long");
        assert_eq!(error, KeyMethodError::OptionsTooLong(513));

        let endless = [&good[..5 + 48 + 64 + 2 + 16], &[0xff; RECORD_MAX]].concat();
        let error = KeyMethod::decode(&endless, Role::Client).expect_err("endless");
        assert_eq!(error, KeyMethodError::TooLong);
    }

    #[test]
    fn credentials_that_are_too_long_do_not_end_the_session() {
        let mut bytes = record(Login::Absent, "")
            .encode(Role::Client)
            .expect("fits");
        let len = bytes.len();
        bytes.truncate(len - 6);
        bytes.extend((CREDENTIAL_MAX as u16 + 1).to_be_bytes());
        bytes.extend([b'x'; CREDENTIAL_MAX + 1]);
        bytes.extend(b"\0\x02p\0\0\x04abc\0");
        let (read, used) = decode(&bytes, Role::Client);
        assert_eq!(
            (read.login, read.peer_info.as_str()),
            (Login::TooLong, "abc")
        );
        assert_eq!(used, bytes.len());
    }

    #[test]
    fn what_does_not_fit_is_not_sent() {
        let mut long = record(login(&"u".repeat(CREDENTIAL_MAX), ""), "");
        assert_eq!(
            long.encode(Role::Client).map_err(|error| error.field).err(),
            Some("username")
        );
        long.login = Login::Absent;
        long.options = "x".repeat(OPTIONS_MAX);
        assert_eq!(
            long.encode(Role::Client).map_err(|error| error.field).err(),
            Some("options string")
        );
        long.options.pop();
        long.encode(Role::Client).expect("fits");
    }

    #[test]
    fn options_for_the_log_are_printable() {
        let mut bytes = record(Login::Absent, "")
            .encode(Role::Server)
            .expect("fits");
        bytes[5 + 64 + 2] = 0x1b;
        assert_eq!(decode(&bytes, Role::Server).0.options, ".4,dev-type tun");
    }

    #[test]
    fn debug_shows_neither_password_nor_randoms() {
        let shown = format!("{:?}", record(login("name", "hunter2"), ""));
        assert!(
            shown.contains("name") && !shown.contains("hunter2") && !shown.contains("[1,"),
            "{shown}"
        );
    }

    #[test]
    fn sources_differ_and_a_server_has_no_pre_master() {
        let (one, two) = (
            KeySource::generate(Role::Client),
            KeySource::generate(Role::Server),
        );
        let (one, two) = (one.expect("random"), two.expect("random"));
        assert_ne!(one.random1(), two.random1());
        assert_ne!(one.random1(), one.random2());
        assert_ne!(*one.pre_master(), [0; 48]);
        assert_eq!(*two.pre_master(), [0; 48]);
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(
            client: bool,
            options in "[ -~]{0,511}",
            credentials in proptest::option::of(("[^\0]{1,64}", "[^\0]{0,64}")),
            peer_info in "[^\0]{0,400}",
            tail in proptest::collection::vec(any::<u8>(), 0..8),
        ) {
            let role = if client { Role::Client } else { Role::Server };
            let login = credentials.map_or(Login::Absent, |(name, word)| login(&name, &word));
            let mut sent = record(login, &peer_info);
            sent.options = options;
            let mut bytes = sent.encode(role).expect("fits");
            let len = bytes.len();
            bytes.extend(&tail);
            let (read, used) = decode(&bytes, role);
            prop_assert_eq!(used, len);
            prop_assert_eq!(read.options, sent.options);
            prop_assert_eq!(read.login, sent.login);
            prop_assert_eq!(read.peer_info, sent.peer_info);
            prop_assert_eq!(read.source.random2(), sent.source.random2());
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..600), client: bool) {
            let mut bytes = bytes;
            if let Some(method) = bytes.get_mut(4) {
                *method = 2;
            }
            let role = if client { Role::Client } else { Role::Server };
            if let Ok(Some((_, used))) = KeyMethod::decode(&bytes, role) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}
