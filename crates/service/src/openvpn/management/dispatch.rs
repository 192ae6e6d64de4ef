//! Handles the lines that the management client sends.

use std::time::{Duration, Instant};

use config::openvpn::AuthRetry;
use subtle::ConstantTimeEq as _;

use super::answer::{Asked, Part, needless, take};
use super::command::{Command, Victim, leading_number, number, other, unsupported, victim};
use super::history::Request;
use super::port::{Action, Answer, Management};
use super::words::{Word, words};
use crate::openvpn::monitoring::ProcessRequest;
use crate::openvpn::signals::Signal;
use crate::openvpn::status_file::Format;

/// Version of the management protocol.
const VERSION: u32 = 5;

/// A client that announces this version or a later one gets an acknowledgement.
const ACKNOWLEDGED: i64 = 4;

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
                false => {
                    self.say(&format!("ERROR: {}", unsupported("client-auth")));
                    None
                }
            };
        }
        let done = words(line).map_err(|error| error.to_string());
        let done = done.and_then(|words| match words.split_first() {
            Some((name, arguments)) => self.command(&Command { name, arguments }, now),
            None => Ok(None),
        });
        done.unwrap_or_else(|error| {
            self.say(&format!("ERROR: {error}"));
            None
        })
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

    /// Executes a command. Returns the daemon's part of it, or an error for the client.
    fn command(&mut self, it: &Command<'_>, now: Instant) -> Result<Option<Action>, String> {
        match it.name {
            "exit" | "quit" => {
                if let Some(peer) = &mut self.peer {
                    peer.closing = true;
                }
            }
            "client-auth" => {
                if let Some(peer) = &mut self.peer {
                    peer.skipping = true;
                }
            }
            "help" => self.help(),
            "version" => self.version(it.number()),
            "pid" => self.say(&format!("SUCCESS: pid={}", self.settings.pid)),
            "env-filter" => {
                let level = it.number().unwrap_or(0).clamp(0, 255);
                self.say(&format!("SUCCESS: env_filter_level={level}"));
            }
            "state" if it.arguments.is_empty() => self.history(&[Request::Last(1)], it.name),
            "state" => self.history(&it.requests(), it.name),
            "log" | "echo" => {
                it.needed(1, true)?;
                self.history(&it.requests(), it.name);
            }
            "bytecount" => {
                let seconds = leading_number(&it.needed(1, false)?[0]).unwrap_or(0);
                let seconds = seconds.clamp(0, u32::MAX.into()) as u64;
                let period = Duration::from_secs(seconds);
                if let Some(peer) = &mut self.peer {
                    peer.bytecount = (seconds > 0).then(|| (period, now + period));
                }
                self.say("SUCCESS: bytecount interval changed");
            }
            "forget-passwords" => {
                self.say("SUCCESS: Passwords were forgotten");
                return Ok(Some(Action::Request(ProcessRequest::Forget)));
            }
            "signal" => return self.signal(it),
            "status" => return self.status(it.number().unwrap_or(0)),
            "verb" => return self.verb(it.number()),
            "mute" => return self.mute(it.number()),
            "auth-retry" => return self.auth_retry(it.optional(0)),
            "hold" => return self.hold_command(it.optional(0)),
            "username" => return self.answer(Part::Username, it.pair()?),
            "password" => return self.answer(Part::Password, it.pair()?),
            "needok" | "needstr" => {
                it.pair()?;
                let what = if it.name == "needok" {
                    "confirmation"
                } else {
                    "string"
                };
                return Err(needless(&format!("{}-{what}", it.name)));
            }
            "load-stats" => return Ok(Some(Action::LoadStats)),
            "kill" => {
                let victim = victim(&it.needed(1, false)?[0])?;
                return self.of_servers(it, Action::Kill(victim));
            }
            "client-kill" => {
                let client = number(&it.needed(1, true)?[0], "CID")?;
                return self.of_servers(it, Action::ClientKill(client));
            }
            "nclients" => return self.of_servers(it, Action::ClientCount),
            "cr-response" => {
                it.needed(1, false)?;
                return Err(match self.settings.server {
                    true => unsupported(it.name),
                    // This client answers no challenge by this command.
                    false => format!("{} command failed", it.name),
                });
            }
            name => return Err(other(name)),
        }
        Ok(None)
    }

    /// Returns the action of a command that only servers execute.
    fn of_servers(&self, it: &Command<'_>, action: Action) -> Result<Option<Action>, String> {
        match self.settings.server {
            true => Ok(Some(action)),
            false => Err(unsupported(it.name)),
        }
    }

    fn help(&mut self) {
        self.say(&format!("Management Interface for {}", self.settings.title));
        for line in HELP {
            self.say(line);
        }
        self.say("END");
    }

    fn version(&mut self, version: Option<i64>) {
        match version {
            None => {
                self.say(&format!("OpenVPN Version: {}", self.settings.title));
                self.say(&format!("Management Version: {VERSION}"));
                self.say("END");
            }
            Some(version) if (ACKNOWLEDGED..=u32::MAX.into()).contains(&version) => self.say(
                &format!("SUCCESS: Management client version set to {version}"),
            ),
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

    fn signal(&mut self, it: &Command<'_>) -> Result<Option<Action>, String> {
        let (signal, name) = it.signal()?;
        if self.holding.is_some() && matches!(signal, Signal::Reload | Signal::Restart) {
            self.say(&format!("ERROR: signal '{name}' is currently ignored"));
            self.say_special();
            return Ok(None);
        }
        self.say(&format!("SUCCESS: signal {name} thrown"));
        Ok(Some(Action::Request(ProcessRequest::Signal(signal))))
    }

    fn status(&mut self, number: i64) -> Result<Option<Action>, String> {
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
            return Err("bad status format version number".to_owned());
        };
        Ok(Some(Action::Status(format)))
    }

    fn verb(&mut self, level: Option<i64>) -> Result<Option<Action>, String> {
        let Some(level) = level else {
            self.say(&format!("SUCCESS: verb={}", self.settings.verb));
            return Ok(None);
        };
        if !(0..=VERB_MAX).contains(&level) {
            return Err("verb level is out of range".to_owned());
        }
        self.settings.verb = level as u8;
        self.say("SUCCESS: verb level changed");
        Ok(Some(Action::Verb(self.settings.verb)))
    }

    fn mute(&mut self, count: Option<i64>) -> Result<Option<Action>, String> {
        let Some(count) = count else {
            self.say(&format!("SUCCESS: mute={}", self.settings.mute));
            return Ok(None);
        };
        let Ok(count) = u32::try_from(count) else {
            return Err("mute level is out of range".to_owned());
        };
        self.settings.mute = count;
        self.say("SUCCESS: mute level changed");
        Ok(Some(Action::Mute(count)))
    }

    fn auth_retry(&mut self, how: Option<&str>) -> Result<Option<Action>, String> {
        let how = match how {
            None => {
                let now = match self.settings.auth_retry {
                    AuthRetry::None => "none",
                    AuthRetry::NoInteract => "nointeract",
                    AuthRetry::Interact => "interact",
                };
                self.say(&format!("SUCCESS: auth-retry={now}"));
                return Ok(None);
            }
            Some("none") => AuthRetry::None,
            Some("nointeract") => AuthRetry::NoInteract,
            Some("interact") => AuthRetry::Interact,
            Some(_) => return Err("bad auth-retry parameter".to_owned()),
        };
        self.settings.auth_retry = how;
        self.say("SUCCESS: auth-retry parameter changed");
        Ok(Some(Action::Request(ProcessRequest::AuthRetry(how))))
    }

    fn hold_command(&mut self, what: Option<&str>) -> Result<Option<Action>, String> {
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
                let begin = Action::Request(ProcessRequest::Begin);
                return Ok(self.holding.take().map(|_| begin));
            }
            Some(_) => return Err("bad hold command parameter".to_owned()),
        }
        Ok(None)
    }

    fn answer(
        &mut self,
        part: Part,
        (kind, value): (String, Word),
    ) -> Result<Option<Action>, String> {
        let reply = take(self.asked.as_mut(), part, &kind, value)?;
        self.say(&reply);
        let complete = self.asked.as_mut().and_then(Asked::complete);
        let answer = complete.map(|(username, text)| Answer {
            kind,
            username,
            text,
        });
        self.asked.take_if(|_| answer.is_some());
        Ok(answer.map(|answer| Action::Request(ProcessRequest::Answer(answer))))
    }

    /// Replies to [`Action::Status`] with the status text, which ends with `END`.
    pub(crate) fn reply_status(&mut self, text: &str) {
        for line in text.lines() {
            self.say(line);
        }
    }

    /// Replies to [`Action::Kill`] with the number of disconnected clients.
    pub(crate) fn reply_kill(&mut self, victim: &Victim, count: usize) {
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
        self.say(&format!(
            "SUCCESS: nclients={clients},bytesin={received},bytesout={sent}"
        ));
    }

    /// Replies to [`Action::ClientCount`].
    pub(crate) fn reply_client_count(&mut self, clients: usize) {
        self.say(&format!("SUCCESS: nclients={clients}"));
    }

    /// Replies to [`Action::ClientKill`].
    pub(crate) fn reply_client_kill(&mut self, success: bool) {
        self.say(match success {
            true => "SUCCESS: client-kill command succeeded",
            false => "ERROR: client-kill command failed",
        });
    }
}
