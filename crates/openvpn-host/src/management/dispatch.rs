//! Handles the lines that the management client sends.

use std::time::{Duration, Instant};

use config::openvpn::AuthRetry;
#[cfg(feature = "kernel")]
use config::settings::Kind;
use subtle::ConstantTimeEq as _;

use super::answer::{Asked, Part, needless, take};
use super::command::{Command, Victim, leading_number, number, other, unsupported, victim};
use super::history::Request;
use super::port::{Answer, Management};
use super::words::{Word, words};
use crate::monitored::{Monitored, ProcessRequest};
use crate::signals::Signal;
use crate::status_file::Format;

/// Version of the management protocol.
const VERSION: u32 = 5;

/// A client that announces this version or a later one gets an acknowledgement.
const ACKNOWLEDGED: i64 = 4;

/// Wrong passwords before the port closes the connection.
const TRIES: u32 = 3;

/// Highest `verb`.
const VERB_MAX: i64 = 15;

/// Supported commands, one help line each, as GUIs show them.
const HELP: &[&str] = &[
    "Commands:",
    "auth-retry [t]         : Set the action after a refused password (none, nointeract, interact).",
    "bytecount n            : Report bytes in and out every n seconds (0: never).",
    "client-kill CID [M]    : Disconnect a client with message M (default RESTART).",
    "cr-response text       : Answer the server's challenge.",
    #[cfg(feature = "kernel")]
    "dataplane [t]          : Show or set who moves the packets (user, kernel, auto).",
    "echo [on|off] [N|all]  : Show echo texts, as `log` does log lines.",
    "exit|quit              : Close this connection.",
    "forget-passwords       : Forget the entered passwords.",
    "help                   : Show this text.",
    "hold [on|off|release]  : Show or set the hold flag, or let the tunnel start.",
    "kill cn | IP:port      : Disconnect clients by common name or address.",
    "load-stats             : Show the numbers of clients and bytes.",
    "log [on|off] [N|all]   : Show new log lines, or the last N.",
    "mute [n]               : Show or set the limit for repeated log lines.",
    "nclients               : Show the number of clients.",
    "password type p        : Enter a requested password.",
    "pid                    : Show the daemon's process ID.",
    "signal s               : Act as on SIGHUP, SIGTERM, SIGUSR1 or SIGUSR2.",
    "state [on|off] [N|all] : Show states, as `log` does log lines.",
    "status [n]             : Show the status in format n.",
    "username type u        : Enter a requested user name.",
    "verb [n]               : Show or set the log level.",
    "version [n]            : Show the versions of program and protocol.",
];

impl Management {
    pub(crate) fn line(&mut self, line: &str, now: Instant, monitored: &mut dyn Monitored) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        if !peer.trusted {
            return self.check_password(line);
        }
        let done = if peer.skipping {
            peer.skipping = line != "END";
            match peer.skipping {
                true => Ok(()),
                false => Err(unsupported("client-auth")),
            }
        } else {
            words(line).and_then(|words| match words.split_first() {
                Some((name, arguments)) => {
                    self.command(&Command { name, arguments }, now, monitored)
                }
                None => Ok(()),
            })
        };
        if let Err(error) = done {
            self.say(&format!("ERROR: {error}"));
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

    /// Executes a command and answers it. Returns an error for the client.
    fn command(
        &mut self,
        it: &Command<'_>,
        now: Instant,
        monitored: &mut dyn Monitored,
    ) -> Result<(), String> {
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
                self.requests.push(ProcessRequest::Forget);
            }
            "signal" => return self.signal(it),
            "status" => {
                let format = self.format(it.number().unwrap_or(0))?;
                let text = monitored
                    .status()
                    .text(format, &self.settings.title, &self.clock);
                for line in text.lines() {
                    self.say(line);
                }
            }
            "verb" => return self.verb(it.number()),
            "mute" => return self.mute(it.number()),
            "auth-retry" => return self.auth_retry(it.optional(0)),
            #[cfg(feature = "kernel")]
            "dataplane" => return self.dataplane(it.optional(0), monitored),
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
            "load-stats" => {
                let status = monitored.status();
                let (clients, (received, sent)) = (status.clients(), status.bytes());
                self.say(&format!(
                    "SUCCESS: nclients={clients},bytesin={received},bytesout={sent}"
                ));
            }
            "kill" => {
                let victim = victim(&it.needed(1, false)?[0])?;
                self.of_servers(it)?;
                let count = monitored.kill(&victim);
                self.say(&killed(&victim, count));
            }
            "client-kill" => {
                let client = number(&it.needed(1, true)?[0], "CID")?;
                self.of_servers(it)?;
                self.say(match monitored.kill_client(client) {
                    true => "SUCCESS: client-kill command succeeded",
                    false => "ERROR: client-kill command failed",
                });
            }
            "nclients" => {
                self.of_servers(it)?;
                let clients = monitored.status().clients();
                self.say(&format!("SUCCESS: nclients={clients}"));
            }
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
        Ok(())
    }

    /// Refuses a command that only servers execute.
    fn of_servers(&self, it: &Command<'_>) -> Result<(), String> {
        match self.settings.server {
            true => Ok(()),
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
                "state" => self.state.answer(request),
                "log" => self.log.answer(request),
                _ => self.echo.answer(request),
            };
            self.say_all(lines);
        }
    }

    fn signal(&mut self, it: &Command<'_>) -> Result<(), String> {
        let (signal, name) = it.signal()?;
        if self.holding && matches!(signal, Signal::Reload | Signal::Restart) {
            self.say(&format!("ERROR: signal '{name}' is currently ignored"));
            self.say_special();
            return Ok(());
        }
        self.say(&format!("SUCCESS: signal {name} thrown"));
        self.requests.push(ProcessRequest::Signal(signal));
        Ok(())
    }

    /// The status format of this number; 0 is the configured one.
    fn format(&self, number: i64) -> Result<Format, String> {
        let format = match u8::try_from(number) {
            Ok(0) => Some(self.settings.format),
            Ok(number) => Format::from_number(number),
            Err(_) => None,
        };
        match format {
            Some(format) => Ok(format),
            // A client's status has only one format.
            None if !self.settings.server => Ok(Format::One),
            None => Err("bad status format version number".to_owned()),
        }
    }

    fn verb(&mut self, level: Option<i64>) -> Result<(), String> {
        let Some(level) = level else {
            self.say(&format!("SUCCESS: verb={}", self.settings.verb));
            return Ok(());
        };
        if !(0..=VERB_MAX).contains(&level) {
            return Err("verb level is out of range".to_owned());
        }
        self.settings.verb = level as u8;
        self.say("SUCCESS: verb level changed");
        self.requests.push(ProcessRequest::Verb(self.settings.verb));
        Ok(())
    }

    fn mute(&mut self, count: Option<i64>) -> Result<(), String> {
        let Some(count) = count else {
            self.say(&format!("SUCCESS: mute={}", self.settings.mute));
            return Ok(());
        };
        let Ok(count) = u32::try_from(count) else {
            return Err("mute level is out of range".to_owned());
        };
        self.settings.mute = count;
        self.say("SUCCESS: mute level changed");
        self.requests.push(ProcessRequest::Mute(count));
        Ok(())
    }

    fn auth_retry(&mut self, how: Option<&str>) -> Result<(), String> {
        let how = match how {
            None => {
                let now = match self.settings.auth_retry {
                    AuthRetry::None => "none",
                    AuthRetry::NoInteract => "nointeract",
                    AuthRetry::Interact => "interact",
                };
                self.say(&format!("SUCCESS: auth-retry={now}"));
                return Ok(());
            }
            Some("none") => AuthRetry::None,
            Some("nointeract") => AuthRetry::NoInteract,
            Some("interact") => AuthRetry::Interact,
            Some(_) => return Err("bad auth-retry parameter".to_owned()),
        };
        self.settings.auth_retry = how;
        self.say("SUCCESS: auth-retry parameter changed");
        self.requests.push(ProcessRequest::AuthRetry(how));
        Ok(())
    }

    #[cfg(feature = "kernel")]
    fn dataplane(
        &mut self,
        wanted: Option<&str>,
        monitored: &mut dyn Monitored,
    ) -> Result<(), String> {
        if self.settings.server {
            return Err(unsupported("dataplane"));
        }
        let kind = |word: &str| Kind::NAMES.into_iter().find(|(name, _)| *name == word);
        let wanted = match wanted {
            None => None,
            Some(word) => Some(kind(word).ok_or("bad dataplane parameter")?),
        };
        let at_present = monitored.move_to(wanted.map(|(_, kind)| kind))?;
        self.say(&match wanted {
            None => format!("SUCCESS: dataplane={at_present}"),
            Some((name, _)) => format!("SUCCESS: dataplane {name} is asked for"),
        });
        Ok(())
    }

    fn hold_command(&mut self, what: Option<&str>) -> Result<(), String> {
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
                if std::mem::take(&mut self.holding) {
                    self.requests.push(ProcessRequest::Begin);
                }
            }
            Some(_) => return Err("bad hold command parameter".to_owned()),
        }
        Ok(())
    }

    fn answer(&mut self, part: Part, (kind, value): (String, Word)) -> Result<(), String> {
        let reply = take(self.asked.as_mut(), part, &kind, value)?;
        self.say(&reply);
        if let Some((username, text)) = self.asked.as_mut().and_then(Asked::complete) {
            self.asked = None;
            self.requests.push(ProcessRequest::Answer(Answer {
                kind,
                username,
                text,
            }));
        }
        Ok(())
    }
}

/// The answer to `kill`, which disconnected this many clients.
fn killed(victim: &Victim, count: usize) -> String {
    match (victim, count) {
        (Victim::CommonName(name), 0) => format!("ERROR: common name '{name}' not found"),
        (Victim::CommonName(name), _) => {
            format!("SUCCESS: common name '{name}' found, {count} client(s) killed")
        }
        (Victim::Address(addr), 0) => format!("ERROR: client at address {addr} not found"),
        (Victim::Address(addr), _) => {
            format!("SUCCESS: {count} client(s) at address {addr} killed")
        }
    }
}
