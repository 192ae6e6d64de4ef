//! Handles the lines that the management client sends.

use std::time::{Duration, Instant};

use config::openvpn::AuthRetry;
use subtle::ConstantTimeEq as _;

use super::answer::{Part, take};
use super::command::{Command, Signal, Victim, parse};
use super::history::Request;
use super::port::{Action, Answer, Management, Owed};
use super::words::{Word, words};
use crate::openvpn::status_file::Format;

/// Version of the management protocol.
const VERSION: u32 = 5;

/// A client that announces this version or a later one gets an acknowledgement.
const ACKNOWLEDGED: u32 = 4;

/// Wrong passwords before the port closes the connection.
const TRIES: u32 = 3;

/// Highest `verb`.
const VERB_MAX: i64 = 15;

/// Supported commands, one help line each, as GUIs show them.
const HELP: [&str; 23] = [
    "Commands:",
    "auth-retry [t]         : What follows a refused password (none, nointeract, interact).",
    "bytecount n            : Tell bytes in and out every n seconds (0: not at all).",
    "client-kill CID [M]    : Send a client away with message M (RESTART if none).",
    "cr-response text       : Answer the server's challenge.",
    "echo [on|off] [N|all]  : As log, for texts of echo.",
    "exit|quit              : Close this connection.",
    "forget-passwords       : Forget what was entered.",
    "help                   : This text.",
    "hold [on|off|release]  : Show or set whether the tunnel waits, or let it begin.",
    "kill cn | IP:port      : Send clients away by common name or address.",
    "load-stats             : Count clients and bytes.",
    "log [on|off] [N|all]   : Tell new lines of the log, or the last N.",
    "mute [n]               : Show or set how many equal lines are logged.",
    "nclients               : Count clients.",
    "password type p        : Enter a password that was asked for.",
    "pid                    : The daemon's process.",
    "signal s               : Act as on SIGHUP, SIGTERM, SIGUSR1 or SIGUSR2.",
    "state [on|off] [N|all] : As log, for states.",
    "status [n]             : The status, in format n.",
    "username type u        : Enter a name that was asked for.",
    "verb [n]               : Show or set how much is logged.",
    "version [n]            : The versions of program and protocol.",
];

impl Management {
    pub(super) fn line(&mut self, line: &str, now: Instant) -> Option<Action> {
        let peer = self.peer.as_mut()?;
        if !peer.trusted {
            self.check_password(line);
            return None;
        }
        if peer.skipping {
            peer.skipping = line != "END";
            return match peer.skipping {
                true => None,
                false => self.unsupported("client-auth"),
            };
        }
        let command = words(line)
            .map_err(|error| error.to_string())
            .and_then(|words| parse(&words));
        match command {
            Ok(command) => self.command(command?, now),
            Err(error) => self.error(&error),
        }
    }

    fn check_password(&mut self, line: &str) {
        let (Some(password), Some(peer)) = (&self.settings.password, &mut self.peer) else {
            return;
        };
        if bool::from(line.as_bytes().ct_eq(password.as_bytes())) {
            peer.trusted = true;
            self.say("SUCCESS: password is correct");
            self.greet();
        } else {
            peer.tries += 1;
            peer.closing = peer.tries >= TRIES;
        }
    }

    fn command(&mut self, command: Command, now: Instant) -> Option<Action> {
        match command {
            Command::Exit => self.peer.as_mut()?.closing = true,
            Command::Help => self.help(),
            Command::Version(version) => self.version(version),
            Command::Pid => self.say(&format!("SUCCESS: pid={}", self.settings.pid)),
            Command::EnvFilter(level) => self.say(&format!("SUCCESS: env_filter_level={level}")),
            Command::State(requests) => self.history(&requests, "state"),
            Command::Log(requests) => self.history(&requests, "log"),
            Command::Echo(requests) => self.history(&requests, "echo"),
            Command::Bytecount(seconds) => {
                let period = Duration::from_secs(seconds.min(u64::from(u32::MAX)));
                let due = (seconds > 0).then(|| (period, now + period));
                self.peer.as_mut()?.bytecount = due;
                self.say("SUCCESS: bytecount interval changed");
            }
            Command::ForgetPasswords => {
                self.say("SUCCESS: Passwords were forgotten");
                return Some(Action::ForgetPasswords);
            }
            Command::Unsupported(name) => return self.unsupported(name),
            Command::Signal(signal) => return self.signal(signal),
            Command::Status(number) => return self.status(number),
            Command::Verb(level) => return self.verb(level),
            Command::Mute(count) => return self.mute(count),
            Command::AuthRetry(how) => return self.auth_retry(how.as_deref()),
            Command::Hold(what) => return self.hold_command(what.as_deref()),
            Command::Username { kind, value } => return self.answer(Part::Username, &kind, value),
            Command::Password { kind, value } => return self.answer(Part::Password, &kind, value),
            Command::NeedOk { kind, value } => return self.answer(Part::NeedOk, &kind, value),
            Command::NeedStr { kind, value } => return self.answer(Part::NeedStr, &kind, value),
            Command::LoadStats => {
                return self.owe_other(true, "load-stats", Action::LoadStats);
            }
            Command::ClientCount => {
                let server = self.settings.server;
                return self.owe_other(server, "nclients", Action::ClientCount);
            }
            Command::Kill(victim) => {
                let owed = Owed::Kill(victim.clone());
                return self.owe(self.settings.server, "kill", owed, Action::Kill(victim));
            }
            Command::CrResponse(text) => {
                let action = Action::ChallengeResponse(text);
                return self.owe_done(!self.settings.server, "cr-response", action);
            }
            Command::ClientKill { client, message } => {
                let action = Action::ClientKill { client, message };
                return self.owe_done(self.settings.server, "client-kill", action);
            }
            // The lines that follow are client settings, not commands.
            Command::ClientAuth => self.peer.as_mut()?.skipping = true,
        }
        None
    }

    fn error(&mut self, text: &str) -> Option<Action> {
        self.say(&format!("ERROR: {text}"));
        None
    }

    fn unsupported(&mut self, name: &str) -> Option<Action> {
        self.error(&format!(
            "The '{name}' command is not supported by the current daemon mode"
        ))
    }

    /// Returns an action whose reply the daemon owes, or answers with an error if it is not possible.
    fn owe(&mut self, possible: bool, name: &str, owed: Owed, action: Action) -> Option<Action> {
        if !possible {
            return self.unsupported(name);
        }
        self.owed = Some(owed);
        Some(action)
    }

    fn owe_other(&mut self, possible: bool, name: &'static str, action: Action) -> Option<Action> {
        self.owe(possible, name, Owed::Other(name), action)
    }

    fn owe_done(&mut self, possible: bool, name: &'static str, action: Action) -> Option<Action> {
        self.owe(possible, name, Owed::Done(name), action)
    }

    fn help(&mut self) {
        self.say(&format!("Management Interface for {}", self.settings.title));
        for line in HELP {
            self.say(line);
        }
        self.say("END");
    }

    fn version(&mut self, version: Option<u32>) {
        match version {
            None => {
                self.say(&format!("OpenVPN Version: {}", self.settings.title));
                self.say(&format!("Management Version: {VERSION}"));
                self.say("END");
            }
            Some(version) if version >= ACKNOWLEDGED => self.say(&format!(
                "SUCCESS: Management client version set to {version}"
            )),
            // Older clients expect no answer.
            Some(_) => {}
        }
    }

    fn history(&mut self, requests: &[Request], name: &str) {
        for &request in requests {
            let lines = match name {
                "state" => self.state.answer(request, name),
                "log" => self.log.answer(request, name),
                _ => self.echo.answer(request, name),
            };
            self.say_all(&lines);
        }
    }

    fn signal(&mut self, signal: Signal) -> Option<Action> {
        let name = signal.name();
        // Nothing can restart before the tunnel has begun.
        if self.holding.is_some() && matches!(signal, Signal::Hup | Signal::Usr1) {
            self.error(&format!("signal '{name}' is currently ignored"));
            self.say_special();
            return None;
        }
        self.say(&format!("SUCCESS: signal {name} thrown"));
        Some(Action::Signal(signal))
    }

    fn status(&mut self, number: i64) -> Option<Action> {
        let format = match u8::try_from(number) {
            Ok(0) => Some(self.settings.format),
            Ok(number) => Format::from_number(number),
            Err(_) => None,
        };
        // A client's status has only one format.
        let format = match format {
            None if !self.settings.server => Some(Format::One),
            format => format,
        };
        let Some(format) = format else {
            return self.error("bad status format version number");
        };
        self.owe(true, "status", Owed::Status, Action::Status(format))
    }

    fn verb(&mut self, level: Option<i64>) -> Option<Action> {
        let Some(level) = level else {
            self.say(&format!("SUCCESS: verb={}", self.settings.verb));
            return None;
        };
        if !(0..=VERB_MAX).contains(&level) {
            return self.error("verb level is out of range");
        }
        self.settings.verb = level as u8;
        self.say("SUCCESS: verb level changed");
        Some(Action::Verb(self.settings.verb))
    }

    fn mute(&mut self, count: Option<i64>) -> Option<Action> {
        let Some(count) = count else {
            self.say(&format!("SUCCESS: mute={}", self.settings.mute));
            return None;
        };
        let Ok(count) = u32::try_from(count) else {
            return self.error("mute level is out of range");
        };
        self.settings.mute = count;
        self.say("SUCCESS: mute level changed");
        Some(Action::Mute(count))
    }

    fn auth_retry(&mut self, how: Option<&str>) -> Option<Action> {
        let how = match how {
            None => {
                let now = match self.settings.auth_retry {
                    AuthRetry::None => "none",
                    AuthRetry::NoInteract => "nointeract",
                    AuthRetry::Interact => "interact",
                };
                self.say(&format!("SUCCESS: auth-retry={now}"));
                return None;
            }
            Some("none") => AuthRetry::None,
            Some("nointeract") => AuthRetry::NoInteract,
            Some("interact") => AuthRetry::Interact,
            Some(_) => return self.error("bad auth-retry parameter"),
        };
        self.settings.auth_retry = how;
        self.say("SUCCESS: auth-retry parameter changed");
        Some(Action::AuthRetry(how))
    }

    fn hold_command(&mut self, what: Option<&str>) -> Option<Action> {
        match what {
            None => {
                let hold = u8::from(self.settings.hold);
                self.say(&format!("SUCCESS: hold={hold}"));
            }
            Some("on") => {
                self.settings.hold = true;
                self.say("SUCCESS: hold flag set to ON");
            }
            Some("off") => {
                self.settings.hold = false;
                self.say("SUCCESS: hold flag set to OFF");
            }
            Some("release") => {
                self.released = true;
                self.say("SUCCESS: hold release succeeded");
                return self.holding.take().map(|_| Action::Begin);
            }
            Some(_) => return self.error("bad hold command parameter"),
        }
        None
    }

    fn answer(&mut self, part: Part, kind: &str, value: Word) -> Option<Action> {
        let (reply, wanted) = take(self.asked.as_mut(), part, kind, value);
        self.say(&reply);
        if !wanted {
            return None;
        }
        let (username, text) = self.asked.as_mut()?.complete()?;
        let asked = self.asked.take()?;
        Some(Action::Answer(Answer {
            kind: asked.query.kind,
            username,
            text,
        }))
    }

    /// Replies to [`Action::Status`] with the status text, which ends with `END`.
    pub(crate) fn reply_status(&mut self, text: &str) {
        self.owed = None;
        for line in text.lines() {
            self.say(line);
        }
    }

    /// Replies to [`Action::Kill`] with the number of disconnected clients.
    pub(crate) fn reply_kill(&mut self, count: usize) {
        let Some(Owed::Kill(victim)) = self.owed.take() else {
            return;
        };
        self.say(&match (victim, count) {
            (Victim::CommonName(name), 0) => format!("ERROR: common name '{name}' not found"),
            (Victim::CommonName(name), _) => {
                format!("SUCCESS: common name '{name}' found, {count} client(s) killed")
            }
            (Victim::Address(addr), 0) => format!("ERROR: client at address {addr} not found"),
            (Victim::Address(addr), _) => {
                format!("SUCCESS: {count} client(s) at address {addr} killed")
            }
        });
    }

    /// Replies to [`Action::LoadStats`] with the number of clients and the total bytes.
    pub(crate) fn reply_load(&mut self, clients: usize, received: u64, sent: u64) {
        self.owed = None;
        self.say(&format!(
            "SUCCESS: nclients={clients},bytesin={received},bytesout={sent}"
        ));
    }

    /// Replies to [`Action::ClientCount`].
    pub(crate) fn reply_client_count(&mut self, clients: usize) {
        self.owed = None;
        self.say(&format!("SUCCESS: nclients={clients}"));
    }

    /// Replies to an action that may fail.
    pub(crate) fn reply_done(&mut self, success: bool) {
        let Some(Owed::Done(name)) = self.owed.take() else {
            return;
        };
        self.say(&if success {
            format!("SUCCESS: {name} command succeeded")
        } else {
            format!("ERROR: {name} command failed")
        });
    }
}
