//! The text messages of the control channel.
//!
//! After the keys are exchanged, both sides talk in lines of text inside TLS, each ended by a NUL. What they mean is in
//! OpenVPN's own documentation of the protocol; the words here are those on the wire.

use std::time::Duration;

use thiserror::Error;

/// Longest message that is read, in bytes without the NUL. Longer ones are refused.
///
/// OpenVPN itself never writes more than 1,024 bytes of options in one message.
pub const MAX_MESSAGE_LEN: usize = 8192;

/// A message, in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Client: requests its options.
    PushRequest,
    /// Server: the options, separated by commas, unparsed.
    PushReply(String),
    /// Server: changes of the options while the tunnel is up. Nothing here acts on them.
    PushUpdate(String),
    /// Server: refuses the client, or ends its session.
    AuthFailed(AuthFailed),
    /// Server: the answer takes longer, for example because a person must confirm.
    AuthPending {
        /// How long the server will wait at most, where it says so.
        timeout: Option<Duration>,
    },
    /// Server: for people or for a graphical program, for example a web page to log in at.
    Info(String),
    /// Server: information while authentication continues.
    InfoPre(String),
    /// Client: the answer to a question that the server asked by [`InfoPre`](Self::InfoPre), in base64.
    CrResponse(String),
    /// Server: the client is to connect again.
    Restart(Restart),
    /// Server: the client is to stop, and not to come back.
    Halt(Restart),
    /// Either side leaves.
    Exit,
    /// An unknown message, perhaps of a later version. The session continues without it.
    Unknown(String),
}

/// Why a server refuses a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthFailed {
    /// The kind of refusal.
    pub kind: AuthFailedKind,
    /// The reason, for people; empty if the server gives none. For a dynamic challenge it begins with `CRV1:`.
    pub reason: String,
}

/// The kinds of refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuthFailedKind {
    /// Wrong credentials, as far as the server says.
    #[default]
    Plain,
    /// The login token is no longer valid: try again with user name and password.
    Session,
    /// A temporary refusal: try again.
    Temporary {
        /// How long to wait before the next attempt.
        backoff: Option<Duration>,
        /// Which address or server to try next.
        advance: Advance,
    },
}

/// Where to connect to after a temporary refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advance {
    /// The next address, as after any other failure.
    #[default]
    Unspecified,
    /// The next address of the same remote.
    Addr,
    /// Try the next remote.
    Remote,
    /// The client stays at the address.
    No,
}

impl core::fmt::Display for AuthFailed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.kind {
            AuthFailedKind::Plain if self.reason.is_empty() => Ok(()),
            AuthFailedKind::Plain => write!(f, ",{}", self.reason),
            AuthFailedKind::Session => write!(f, ",SESSION:{}", self.reason),
            AuthFailedKind::Temporary { backoff, advance } => {
                let backoff = backoff.map(|it| format!("backoff {}", it.as_secs()));
                let advance = match advance {
                    Advance::Unspecified => None,
                    Advance::Addr => Some("advance addr"),
                    Advance::Remote => Some("advance remote"),
                    Advance::No => Some("advance no"),
                };
                let flags: Vec<&str> = backoff.as_deref().into_iter().chain(advance).collect();
                f.write_str(",TEMP")?;
                if !flags.is_empty() {
                    write!(f, "[{}]", flags.join(","))?;
                }
                write!(f, ":{}", self.reason)
            }
        }
    }
}

impl AuthFailed {
    /// A refusal for wrong credentials. The client may show the reason to people.
    #[must_use]
    pub fn because(reason: &str) -> Self {
        Self {
            kind: AuthFailedKind::Plain,
            reason: reason.to_owned(),
        }
    }

    fn parse(rest: &str) -> Self {
        if let Some(reason) = rest.strip_prefix("SESSION:") {
            return Self {
                kind: AuthFailedKind::Session,
                reason: reason.to_owned(),
            };
        }
        let Some(after) = rest.strip_prefix("TEMP") else {
            return Self::because(rest);
        };
        let (mut backoff, mut advance) = (None, Advance::Unspecified);
        let reason = match after.strip_prefix('[').and_then(|it| it.split_once(']')) {
            Some((flags, reason)) => {
                for flag in flags.split(',') {
                    match flag.trim().split_once(' ') {
                        Some(("backoff", n)) => {
                            // More than a day is a mistake or an attack; a client that sleeps for ever is no use.
                            let secs = n.trim().parse().unwrap_or(0).min(24 * 3600);
                            backoff = Some(Duration::from_secs(secs));
                        }
                        Some(("advance", "addr")) => advance = Advance::Addr,
                        Some(("advance", "remote")) => advance = Advance::Remote,
                        Some(("advance", "no")) => advance = Advance::No,
                        _ => log::debug!("unknown flag in AUTH_FAILED,TEMP: {flag}"),
                    }
                }
                reason
            }
            None => after,
        };
        Self {
            kind: AuthFailedKind::Temporary { backoff, advance },
            reason: reason.strip_prefix(':').unwrap_or(reason).to_owned(),
        }
    }
}

/// How to behave after `RESTART` or `HALT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restart {
    /// Connect to the next remote, not to the same.
    pub next_remote: bool,
    /// Keep the password that is remembered.
    pub keep_credentials: bool,
    /// The reason, for people; may be empty.
    pub reason: String,
}

impl core::fmt::Display for Restart {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let flags = match (self.keep_credentials, self.next_remote) {
            (false, false) if self.reason.is_empty() => return Ok(()),
            // Empty flags, since a `[` at the start of the reason would be read as flags.
            (false, false) if self.reason.starts_with('[') => "[]",
            (false, false) => "",
            (true, false) => "[P]",
            (false, true) => "[N]",
            (true, true) => "[PN]",
        };
        write!(f, ",{flags}{}", self.reason)
    }
}

impl Restart {
    fn parse(rest: &str) -> Self {
        let Some((flags, reason)) = rest.strip_prefix('[').and_then(|it| it.split_once(']')) else {
            return Self {
                reason: rest.to_owned(),
                ..Self::default()
            };
        };
        Self {
            next_remote: flags.contains('N'),
            keep_credentials: flags.contains('P'),
            reason: reason.to_owned(),
        }
    }
}

/// Why a message was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The message has bytes that are neither printable ASCII nor part of UTF-8 text.
    #[error("a control message has unprintable characters")]
    Unprintable,
    /// The message is longer than [`MAX_MESSAGE_LEN`].
    #[error("a control message is longer than {MAX_MESSAGE_LEN} bytes")]
    TooLong,
}

impl Message {
    /// Reads one message, without its NUL.
    ///
    /// # Errors
    /// [`MessageError`]; such a message is dropped and the session continues.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() > MAX_MESSAGE_LEN {
            return Err(MessageError::TooLong);
        }
        let text = core::str::from_utf8(bytes).map_err(|_| MessageError::Unprintable)?;
        // Some servers end their messages with a line break.
        let text = text.trim_end_matches(['\r', '\n']);
        if text.chars().any(char::is_control) {
            return Err(MessageError::Unprintable);
        }
        let (word, rest) = text.split_once(',').unwrap_or((text, ""));
        Ok(match word {
            "PUSH_REQUEST" => Self::PushRequest,
            "PUSH_REPLY" => Self::PushReply(rest.to_owned()),
            "PUSH_UPDATE" => Self::PushUpdate(rest.to_owned()),
            "AUTH_FAILED" => Self::AuthFailed(AuthFailed::parse(rest)),
            "AUTH_PENDING" => Self::AuthPending {
                timeout: rest
                    .split(',')
                    .find_map(|word| word.trim().strip_prefix("timeout "))
                    .and_then(|n| n.trim().parse().ok())
                    .map(Duration::from_secs),
            },
            "INFO" => Self::Info(rest.to_owned()),
            "INFO_PRE" => Self::InfoPre(rest.to_owned()),
            "CR_RESPONSE" => Self::CrResponse(rest.to_owned()),
            "RESTART" => Self::Restart(Restart::parse(rest)),
            "HALT" => Self::Halt(Restart::parse(rest)),
            "EXIT" => Self::Exit,
            _ => Self::Unknown(text.to_owned()),
        })
    }

    /// The bytes to send, with the NUL. Control characters, which no receiver accepts, become spaces.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self
            .to_string()
            .chars()
            .map(|it| if it.is_control() { ' ' } else { it })
            .collect::<String>()
            .into_bytes();
        bytes.push(0);
        bytes
    }
}

impl core::fmt::Display for Message {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::PushRequest => f.write_str("PUSH_REQUEST"),
            Self::PushReply(options) => write!(f, "PUSH_REPLY,{options}"),
            Self::PushUpdate(options) => write!(f, "PUSH_UPDATE,{options}"),
            Self::AuthFailed(failed) => write!(f, "AUTH_FAILED{failed}"),
            Self::AuthPending { timeout: None } => f.write_str("AUTH_PENDING"),
            Self::AuthPending { timeout: Some(it) } => {
                write!(f, "AUTH_PENDING,timeout {}", it.as_secs())
            }
            Self::Info(text) => write!(f, "INFO,{text}"),
            Self::InfoPre(text) => write!(f, "INFO_PRE,{text}"),
            Self::CrResponse(text) => write!(f, "CR_RESPONSE,{text}"),
            Self::Restart(restart) => write!(f, "RESTART{restart}"),
            Self::Halt(restart) => write!(f, "HALT{restart}"),
            Self::Exit => f.write_str("EXIT"),
            Self::Unknown(text) => f.write_str(text),
        }
    }
}

/// Splits what TLS delivered into messages.
///
/// A message ends at a NUL, or where the TLS record ends: some servers leave the NUL out. Empty pieces are skipped.
pub fn split(plaintext: &[u8]) -> impl Iterator<Item = &[u8]> {
    plaintext
        .split(|&byte| byte == 0)
        .filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Message {
        Message::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn every_message_survives_the_wire() {
        for text in [
            "PUSH_REQUEST",
            "PUSH_REPLY,route 10.0.0.0 255.0.0.0,ping 10",
            "PUSH_UPDATE,-route",
            "AUTH_FAILED",
            "AUTH_FAILED,no such user",
            "AUTH_FAILED,SESSION:token expired",
            "AUTH_FAILED,TEMP:full",
            "AUTH_FAILED,TEMP[backoff 7,advance remote]:full",
            "AUTH_PENDING",
            "AUTH_PENDING,timeout 120",
            "INFO,OPEN_URL:https://login.example/",
            "INFO_PRE,WEB_AUTH::https://login.example/",
            "CR_RESPONSE,SGVsbG8=",
            "RESTART",
            "RESTART,[N]",
            "RESTART,[P]server goes down",
            "RESTART,[][P]of a machine",
            "HALT,go away",
            "EXIT",
            "ACC,something",
        ] {
            let message = parse(text);
            assert_eq!(message.to_string(), text);
            let bytes = message.emit();
            assert_eq!(bytes.last(), Some(&0));
            assert_eq!(&bytes[..bytes.len() - 1], text.as_bytes());
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let Message::AuthFailed(failed) = parse("AUTH_FAILED,TEMP[backoff 42,advance no]:later")
        else {
            panic!("not a refusal");
        };
        assert_eq!(failed.reason, "later");
        let AuthFailedKind::Temporary { backoff, advance } = failed.kind else {
            panic!("not temporary");
        };
        assert_eq!(backoff, Some(Duration::from_secs(42)));
        assert_eq!(advance, Advance::No);

        // Only a forged message could make a client sleep for a century.
        let Message::AuthFailed(failed) = parse("AUTH_FAILED,TEMP[backoff 9999999999]") else {
            panic!("not a refusal");
        };
        assert!(matches!(
            failed.kind,
            AuthFailedKind::Temporary { backoff: Some(it), .. } if it == Duration::from_secs(86400)
        ));
        assert_eq!(
            parse("AUTH_FAILED,CRV1:R,E:id:dXNlcg==:Enter"),
            Message::AuthFailed(AuthFailed::because("CRV1:R,E:id:dXNlcg==:Enter"))
        );
    }

    #[test]
    fn unprintable_and_endless_messages_are_refused() {
        assert_eq!(
            Message::parse(b"PUSH_REPLY,route\x1b[2J"),
            Err(MessageError::Unprintable)
        );
        assert_eq!(
            Message::parse(b"INFO,\xff\xfe"),
            Err(MessageError::Unprintable)
        );
        assert_eq!(
            Message::parse(&vec![b'a'; MAX_MESSAGE_LEN + 1]),
            Err(MessageError::TooLong)
        );
        assert_eq!(parse("EXIT\n"), Message::Exit);
    }

    #[test]
    fn messages_are_split_at_nul_and_at_the_end() {
        let parts: Vec<&[u8]> = split(b"PUSH_REQUEST\0\0EXIT").collect();
        assert_eq!(parts, [&b"PUSH_REQUEST"[..], b"EXIT"]);
        assert_eq!(split(b"").count(), 0);
    }

    #[test]
    fn what_we_write_has_no_control_characters() {
        let message = Message::AuthFailed(AuthFailed::because("two\nlines\0"));
        let bytes = message.emit();
        assert_eq!(bytes, b"AUTH_FAILED,two lines \0");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for part in split(&bytes) {
                if let Ok(message) = Message::parse(part) {
                    let again = message.emit();
                    prop_assert_eq!(Message::parse(&again[..again.len() - 1]).unwrap(), message);
                }
            }
        }
    }
}
