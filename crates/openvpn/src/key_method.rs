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

use crate::role::Role;

/// The largest options string, its NUL included.
pub const OPTIONS_MAX: usize = 512;

/// The largest username or password that is read, the NUL included. Stock programs read 128 bytes,
/// or 4096 if they are built for smart cards, as Debian's is.
pub const CREDENTIAL_MAX: usize = 4096;

/// The largest peer info that is read, its NUL included.
pub const PEER_INFO_MAX: usize = 8192;

/// The largest record that is read; what is longer was not made by a peer that means well.
pub const RECORD_MAX: usize = 5 + 48 + 64 + 8 + OPTIONS_MAX + 2 * CREDENTIAL_MAX + PEER_INFO_MAX;

/// The largest record that stock programs read in one piece.
pub const STOCK_RECORD_MAX: usize = 2048;

const METHOD: u8 = 2;
/// The upper half of the byte once held flags.
const METHOD_MASK: u8 = 0x0f;

/// The random bytes of one end. The server has no pre-master secret: it is zeros.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeySource {
    pre_master: [u8; 48],
    random1: [u8; 32],
    random2: [u8; 32],
}

impl KeySource {
    /// Draws the random bytes of an end.
    pub fn generate(role: Role) -> Result<Self, RandomError> {
        let mut source = Self {
            pre_master: [0; 48],
            random1: [0; 32],
            random2: [0; 32],
        };
        let fill = |bytes: &mut [u8]| aws_lc_rs::rand::fill(bytes).map_err(|_| RandomError);
        if role == Role::Client {
            fill(&mut source.pre_master)?;
        }
        fill(&mut source.random1)?;
        fill(&mut source.random2)?;
        Ok(source)
    }

    /// Takes given bytes, for known answers.
    pub fn from_bytes(pre_master: [u8; 48], random1: [u8; 32], random2: [u8; 32]) -> Self {
        Self {
            pre_master,
            random1,
            random2,
        }
    }

    /// The pre-master secret; zeros if this is a server's.
    pub fn pre_master(&self) -> &[u8; 48] {
        &self.pre_master
    }

    /// The seed of the master secret.
    pub fn random1(&self) -> &[u8; 32] {
        &self.random1
    }

    /// The seed of the key expansion.
    pub fn random2(&self) -> &[u8; 32] {
        &self.random2
    }
}

impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeySource { .. }")
    }
}

/// The system gave no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random numbers")]
pub struct RandomError;

/// What a person or a token shows to be let in. Bytes, as no encoding is agreed upon.
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

/// What came in the place of a username and a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// Both strings were absent or empty.
    Absent,
    /// A username, and perhaps a password.
    Given(Credentials),
    /// One of them is longer than [`CREDENTIAL_MAX`]; the peer is to be told, the session goes on.
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

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyMethodError {
    /// The peer speaks another key method.
    #[error("the peer uses key method {0}, and only 2 is spoken since OpenVPN 2.4")]
    Method(u8),
    /// The record is longer than [`RECORD_MAX`].
    #[error("the peer's key method 2 record does not end within {RECORD_MAX} bytes")]
    TooLong,
    /// The options string is longer than anybody reads.
    #[error("the peer's options string has {0} bytes, {OPTIONS_MAX} are allowed")]
    OptionsTooLong(usize),
    /// The peer info is longer than a peer needs.
    #[error("the peer info has {0} bytes, {PEER_INFO_MAX} are allowed")]
    PeerInfoTooLong(usize),
}

/// What of our own does not fit into a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {field} has {len} bytes, {max} can be sent; shorten it")]
pub struct TooLongToSend {
    /// Which string.
    pub field: &'static str,
    /// How long it is, with the NUL.
    pub len: usize,
    /// How long it may be, with the NUL.
    pub max: usize,
}

impl KeyMethod {
    /// The bytes of the record, as the end that plays `role` sends it.
    pub fn encode(&self, role: Role) -> Result<Zeroizing<Vec<u8>>, TooLongToSend> {
        // Grown to its size at once: growing later would leave copies of the password behind.
        let mut out = Zeroizing::new(Vec::with_capacity(RECORD_MAX));
        out.extend_from_slice(&[0, 0, 0, 0, METHOD]);
        if role == Role::Client {
            out.extend_from_slice(&self.source.pre_master);
        }
        out.extend_from_slice(&self.source.random1);
        out.extend_from_slice(&self.source.random2);
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
        let source = KeySource {
            pre_master,
            random1: reader.array()?,
            random2: reader.array()?,
        };

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

enum Text<'a> {
    /// Without the NUL.
    Fits(&'a [u8]),
    /// How long it is, with the NUL.
    TooLong(usize),
}

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

    /// A string, up to its first NUL. What is too long is skipped.
    fn string(&mut self, max: usize) -> Result<Text<'a>, Stop> {
        let len = usize::from(u16::from_be_bytes(self.array()?));
        if len > max {
            // What cannot be a record is refused before it is waited for.
            self.take(len.min(RECORD_MAX))?;
            return Ok(Text::TooLong(len));
        }
        let bytes = self.take(len)?;
        let end = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(len.saturating_sub(1));
        Ok(Text::Fits(&bytes[..end.min(len)]))
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
    // `max` of every caller is below 65536.
    out.extend_from_slice(&(len as u16).to_be_bytes());
    out.extend_from_slice(text);
    out.push(0);
    Ok(())
}
