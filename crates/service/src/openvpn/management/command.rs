//! Commands of the management port.

use std::net::{IpAddr, SocketAddr};

use super::history::Request;
use super::words::Word;

/// A signal that the daemon is to act on as if the kernel had sent it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Signal {
    /// Restart with the configuration read again.
    Hup,
    /// Reconnect.
    Usr1,
    /// Write the status into the log.
    Usr2,
    /// Exit.
    Term,
    /// Exit.
    Int,
}

impl Signal {
    /// The signal's name in commands.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hup => "SIGHUP",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Term => "SIGTERM",
            Self::Int => "SIGINT",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Hup, Self::Usr1, Self::Usr2, Self::Term, Self::Int]
            .into_iter()
            .find(|signal| signal.name() == name)
    }
}

/// Clients to disconnect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Victim {
    /// Every client with this common name.
    CommonName(String),
    /// The client at this address and port.
    Address(SocketAddr),
}

/// A parsed command.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Command {
    Exit,
    Help,
    Version(Option<u32>),
    Pid,
    ClientCount,
    LoadStats,
    EnvFilter(u8),
    Signal(Signal),
    /// `status`; 0 for the configured format.
    Status(i64),
    Kill(Victim),
    Verb(Option<i64>),
    Mute(Option<i64>),
    AuthRetry(Option<String>),
    State(Vec<Request>),
    Log(Vec<Request>),
    Echo(Vec<Request>),
    Username {
        kind: String,
        value: Word,
    },
    Password {
        kind: String,
        value: Word,
    },
    NeedOk {
        kind: String,
        value: Word,
    },
    NeedStr {
        kind: String,
        value: Word,
    },
    ForgetPasswords,
    Hold(Option<String>),
    Bytecount(u64),
    CrResponse(String),
    ClientKill {
        client: u64,
        message: Option<String>,
    },
    /// Lines follow up to `END`.
    ClientAuth,
    /// A stock command that this daemon does not support.
    Unsupported(&'static str),
}

/// Stock commands that this daemon does not support.
const UNSUPPORTED: [&str; 11] = [
    "client-auth-nt",
    "client-deny",
    "client-pending-auth",
    "net",
    "proxy",
    "remote",
    "remote-entry-count",
    "remote-entry-get",
    "push-update-broad",
    "push-update-cid",
    "test",
];

/// Commands that the daemon calls "not currently available": it never asks for a signature or certificate.
const NOT_AVAILABLE: [&str; 3] = ["rsa-sig", "pk-sig", "certificate"];

/// Parses a line's words into a command; `None` for an empty line.
///
/// # Errors
/// Returns the text to send after `ERROR: `.
pub(super) fn parse(words: &[Word]) -> Result<Option<Command>, String> {
    let Some((name, arguments)) = words.split_first() else {
        return Ok(None);
    };
    let arguments = Arguments { name, arguments };
    arguments.command().map(Some)
}

struct Arguments<'a> {
    name: &'a str,
    arguments: &'a [Word],
}

impl Arguments<'_> {
    fn command(&self) -> Result<Command, String> {
        Ok(match self.name {
            "exit" | "quit" => Command::Exit,
            "help" => Command::Help,
            "version" => Command::Version(
                self.optional(0)
                    .map(|text| u32::try_from(leading_number(text).unwrap_or(0)).unwrap_or(0)),
            ),
            "pid" => Command::Pid,
            "nclients" => Command::ClientCount,
            "load-stats" => Command::LoadStats,
            "env-filter" => {
                let level = self.optional(0).and_then(leading_number).unwrap_or(0);
                Command::EnvFilter(level.clamp(0, 255) as u8)
            }
            "signal" => self.signal()?,
            "status" => Command::Status(self.optional(0).and_then(leading_number).unwrap_or(0)),
            "kill" => Command::Kill(victim(self.needed(1, false)?[0].as_str())?),
            "verb" => Command::Verb(self.number()),
            "mute" => Command::Mute(self.number()),
            "auth-retry" => Command::AuthRetry(self.optional(0).map(str::to_owned)),
            // Without arguments, the last state.
            "state" if self.arguments.is_empty() => Command::State(vec![Request::Last(1)]),
            "state" => Command::State(self.requests()),
            "log" => {
                self.needed(1, true)?;
                Command::Log(self.requests())
            }
            "echo" => {
                self.needed(1, true)?;
                Command::Echo(self.requests())
            }
            "username" => {
                let (kind, value) = self.pair()?;
                Command::Username { kind, value }
            }
            "password" => {
                let (kind, value) = self.pair()?;
                Command::Password { kind, value }
            }
            "needok" => {
                let (kind, value) = self.pair()?;
                Command::NeedOk { kind, value }
            }
            "needstr" => {
                let (kind, value) = self.pair()?;
                Command::NeedStr { kind, value }
            }
            "forget-passwords" => Command::ForgetPasswords,
            "hold" => Command::Hold(self.optional(0).map(str::to_owned)),
            "bytecount" => {
                let seconds = leading_number(&self.needed(1, false)?[0]).unwrap_or(0);
                Command::Bytecount(u64::try_from(seconds).unwrap_or(0))
            }
            "cr-response" => Command::CrResponse(self.needed(1, false)?[0].to_string()),
            "client-kill" => Command::ClientKill {
                client: number(&self.needed(1, true)?[0], "CID")?,
                message: self.optional(1).map(str::to_owned),
            },
            "client-auth" => Command::ClientAuth,
            name => return other(name),
        })
    }

    fn optional(&self, index: usize) -> Option<&str> {
        self.arguments.get(index).map(|word| word.as_str())
    }

    fn number(&self) -> Option<i64> {
        self.optional(0)
            .map(|word| leading_number(word).unwrap_or(0))
    }

    fn needed(&self, count: usize, at_least: bool) -> Result<&[Word], String> {
        if self.arguments.len() >= count {
            return Ok(self.arguments);
        }
        let (more, plural) = (
            if at_least { "at least " } else { "" },
            if count > 1 { "s" } else { "" },
        );
        Err(format!(
            "the '{}' command requires {more}{count} parameter{plural}",
            self.name
        ))
    }

    fn pair(&self) -> Result<(String, Word), String> {
        let words = self.needed(2, false)?;
        Ok((words[0].to_string(), words[1].clone()))
    }

    fn requests(&self) -> Vec<Request> {
        let words = self.arguments.iter().take(2);
        words.map(|word| Request::new(word)).collect()
    }

    fn signal(&self) -> Result<Command, String> {
        let name = self.needed(1, false)?[0].as_str();
        Signal::from_name(name)
            .map(Command::Signal)
            .ok_or_else(|| format!("signal '{name}' is not a known signal type"))
    }
}

fn other(name: &str) -> Result<Command, String> {
    if let Some(name) = UNSUPPORTED.iter().find(|&&known| known == name) {
        return Ok(Command::Unsupported(name));
    }
    Err(if NOT_AVAILABLE.contains(&name) {
        format!("The {name} command is not currently available")
    } else {
        "unknown command, enter 'help' for more options".to_owned()
    })
}

/// Parses `name`, `192.0.2.1:1194` or `[2001:db8::1]:1194`; newer GUIs put `udp:` or `tcp:` in front of the address.
fn victim(text: &str) -> Result<Victim, String> {
    let bare = ["udp:", "tcp:"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .unwrap_or(text);
    if let Ok(addr) = bare.parse() {
        return Ok(Victim::Address(addr));
    }
    match bare.rsplit_once(':') {
        None if bare.is_empty() => Err("kill parse".to_owned()),
        None => Ok(Victim::CommonName(bare.to_owned())),
        Some(("", _) | (_, "")) => Err("kill parse".to_owned()),
        Some((host, port)) => {
            let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
            let host = host.trim_matches(['[', ']']);
            Err(match (host.parse::<IpAddr>().is_ok(), is_port) {
                (false, true) => format!("error parsing IP address: {host}"),
                (_, _) => format!("port number is out of range: {port}"),
            })
        }
    }
}

/// Parses the number at the start of a text, like C.
pub(super) fn leading_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    if length == 0 {
        return None;
    }
    let sign = text.len() - digits.len();
    // A number that does not fit becomes the largest one.
    let largest = if text.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    };
    Some(text[..sign + length].parse().unwrap_or(largest))
}

fn number<T: TryFrom<i64>>(text: &str, what: &str) -> Result<T, String> {
    leading_number(text)
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("cannot parse {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openvpn::management::words::words;
    use proptest::prelude::*;

    fn command(line: &str) -> Result<Option<Command>, String> {
        parse(&words(line).unwrap())
    }

    #[test]
    fn victims_are_names_or_addresses() {
        let name = |text: &str| Ok(Victim::CommonName(text.to_owned()));
        let addr = |text: &str| Ok(Victim::Address(text.parse().unwrap()));
        assert_eq!(victim("branch"), name("branch"));
        assert_eq!(victim("192.0.2.1:5"), addr("192.0.2.1:5"));
        assert_eq!(victim("tcp:192.0.2.1:5"), addr("192.0.2.1:5"));
        assert_eq!(victim("udp:[2001:db8::1]:5"), addr("[2001:db8::1]:5"));
        let error = |text: &str| victim(text).unwrap_err();
        assert_eq!(error("1.2.3:4"), "error parsing IP address: 1.2.3");
        assert_eq!(error("1.2.3.4:x"), "port number is out of range: x");
        assert_eq!(error(":"), "kill parse");
        assert_eq!(error(""), "kill parse");
    }

    #[test]
    fn words_that_are_missing_are_asked_for() {
        let error = |line: &str| command(line).unwrap_err();
        assert_eq!(error("kill"), "the 'kill' command requires 1 parameter");
        assert_eq!(
            error("password x"),
            "the 'password' command requires 2 parameters"
        );
        assert_eq!(error("client-kill x"), "cannot parse CID");
        assert_eq!(
            error("nosuch"),
            "unknown command, enter 'help' for more options"
        );
        assert_eq!(
            error("signal FOO"),
            "signal 'FOO' is not a known signal type"
        );
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(leading_number("12abc"), Some(12));
        assert_eq!(leading_number(" -7"), Some(-7));
        assert_eq!(leading_number("abc"), None);
        assert_eq!(leading_number("-"), None);
        assert_eq!(leading_number("99999999999999999999"), Some(i64::MAX));
        assert_eq!(
            command("state on 5").unwrap(),
            Some(Command::State(vec![
                Request::Realtime(true),
                Request::Last(5)
            ]))
        );
    }

    proptest! {
        #[test]
        fn no_command_does_harm(
            name in prop::sample::select(vec![
                "version", "kill", "state", "log", "status", "verb", "client-auth", "client-kill",
                "client-pending-auth", "password", "bytecount", "hold", "signal", "x",
            ]),
            arguments in prop::collection::vec("\\PC{0,20}|-?[0-9]{1,30}|[0-9.:\\[\\]]{0,20}", 0..6),
        ) {
            let words: Vec<Word> = std::iter::once(name.to_owned())
                .chain(arguments)
                .map(Word::new)
                .collect();
            let _ = parse(&words);
        }
    }
}
