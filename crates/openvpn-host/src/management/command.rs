//! Commands of the management port: their words and arguments.

use super::history::Request;
use super::words::Word;
use crate::signals::Signal;
use std::net::{IpAddr, SocketAddr};

/// Clients to disconnect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Victim {
    /// Every client with this common name.
    CommonName(String),
    /// The client at this address and port.
    Address(SocketAddr),
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

/// Commands that the daemon calls "not currently available": it never requests a signature or certificate.
const NOT_AVAILABLE: [&str; 3] = ["rsa-sig", "pk-sig", "certificate"];

/// A command with its arguments.
pub(crate) struct Command<'a> {
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a [Word],
}

impl Command<'_> {
    pub(crate) fn optional(&self, index: usize) -> Option<&str> {
        self.arguments.get(index).map(|word| word.as_str())
    }

    pub(crate) fn number(&self) -> Option<i64> {
        self.optional(0)
            .map(|word| leading_number(word).unwrap_or(0))
    }

    pub(crate) fn needed(&self, count: usize, at_least: bool) -> Result<&[Word], String> {
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

    pub(crate) fn pair(&self) -> Result<(String, Word), String> {
        let words = self.needed(2, false)?;
        Ok((words[0].to_string(), words[1].clone()))
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        let words = self.arguments.iter().take(2);
        words.map(|word| Request::new(word)).collect()
    }

    /// Returns the signal that is named, and its name.
    pub(crate) fn signal(&self) -> Result<(Signal, &str), String> {
        let name = self.needed(1, false)?[0].as_str();
        let signal = match name {
            "SIGHUP" => Signal::Reload,
            "SIGUSR1" => Signal::Restart,
            "SIGUSR2" => Signal::Status,
            "SIGTERM" => Signal::Exit("SIGTERM"),
            "SIGINT" => Signal::Exit("SIGINT"),
            _ => return Err(format!("signal '{name}' is not a known signal type")),
        };
        Ok((signal, name))
    }
}

/// Error of a command that this daemon does not execute.
pub(crate) fn unsupported(name: &str) -> String {
    format!("The '{name}' command is not supported by the current daemon mode")
}

pub(crate) fn other(name: &str) -> String {
    if UNSUPPORTED.contains(&name) {
        unsupported(name)
    } else if NOT_AVAILABLE.contains(&name) {
        format!("The {name} command is not currently available")
    } else {
        "unknown command, enter 'help' for more options".to_owned()
    }
}

/// Parses `name`, `192.0.2.1:1194` or `[2001:db8::1]:1194`; newer GUIs put `udp:` or `tcp:` in front of the address.
pub(crate) fn victim(text: &str) -> Result<Victim, String> {
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
pub(crate) fn leading_number(text: &str) -> Option<i64> {
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

pub(crate) fn number<T: TryFrom<i64>>(text: &str, what: &str) -> Result<T, String> {
    leading_number(text)
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("cannot parse {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::Management;
    use crate::management::tests::{Daemon, settings};
    use proptest::prelude::*;
    use std::time::Instant;

    /// Returns the port's answer to a line.
    fn answer(line: &str) -> String {
        let mut port = Management::new(settings());
        port.connected();
        port.sent(usize::MAX);
        port.receive(format!("{line}\n").as_bytes());
        port.handle_lines(Instant::now(), &mut Daemon::default());
        String::from_utf8_lossy(port.transmit()).into_owned()
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
        let error = |line: &str| {
            let answer = answer(line);
            let error = answer.strip_prefix("ERROR: ").unwrap();
            error.trim_end().to_owned()
        };
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
            answer("state on 5").lines().count(),
            2,
            "on, and the end of none"
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
            answer(&format!("{name} {}", arguments.join(" ")));
        }
    }
}
