//! The management port: its client, the received commands, the output.

use std::fmt;
use std::time::{Duration, Instant};

use config::openvpn::{AuthRetry, ScriptSecurity};
use zeroize::Zeroizing;

use super::answer::{Asked, Query};
use super::history::{Addresses, History, LogFlag, State, state_entry};
use super::words::{Line, Lines};
use crate::monitored::{Monitored, ProcessRequest, Status};
use crate::scripts::environment::Environment;
use crate::status_file::Format;
use crate::timestamp::Clock;

/// Maximum number of states and echoes kept.
const HISTORY: usize = 100;

/// Maximum number of bytes of unread output; beyond that the port drops the client.
const WAITING_MAX: usize = 1 << 20;

/// Longest text of a log or echo entry, in bytes.
const TEXT_MAX: usize = 1024;

/// Daemon settings that the port needs.
#[derive(Clone)]
pub struct Settings {
    /// The password, if there is one.
    pub password: Option<Zeroizing<String>>,
    /// `management-hold`: the tunnel waits for a release.
    pub hold: bool,
    /// The daemon is a server.
    pub server: bool,
    /// The program's name and version, for `version` and the head of `status`.
    pub title: String,
    /// The daemon's process ID.
    pub pid: u32,
    /// Number of log lines kept.
    pub log_lines: u16,
    /// `verb`.
    pub verb: u8,
    /// `mute`.
    pub mute: u32,
    /// `auth-retry`.
    pub auth_retry: AuthRetry,
    /// `status-version`.
    pub format: Format,
}

/// The user's answer to a query.
#[derive(Eq, PartialEq)]
pub struct Answer {
    /// Kind of the query.
    pub kind: String,
    /// The name; empty if the query requested none.
    pub username: Zeroizing<String>,
    /// The password, `ok` or `cancel`, or the text.
    pub text: Zeroizing<String>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Event that the port reports.
pub enum Told {
    /// The tunnel's state changed. The text is `SUCCESS` or `ERROR` when connected, the reason with
    /// [`State::Reconnecting`] and [`State::Exiting`], else empty.
    State(State, String, Addresses),
    /// The server sent a token in place of the password.
    AuthToken(Zeroizing<String>),
    /// The configuration or the server has an `echo` text.
    Echo(String),
    /// The server refused the password; with its reason.
    VerificationFailed(Option<String>),
    /// The interface went up or down, with the script's environment.
    UpDown(bool, Environment),
    /// The tunnel has ended; the next one begins with a new hold.
    Closed,
}

/// Connection of a management client.
#[derive(Default)]
pub(crate) struct Peer {
    pub(crate) input: Lines,
    output: Zeroizing<Vec<u8>>,
    pub(crate) trusted: bool,
    pub(crate) tries: u32,
    /// Lines up to `END` belong to an unsupported command.
    pub(crate) skipping: bool,
    /// Interval of byte counts, and when the next is due.
    pub(crate) bytecount: Option<(Duration, Instant)>,
    pub(crate) closing: bool,
    /// The client has sent a line, after the password if there is one.
    pub(crate) spoken: bool,
    /// The port has checked the first line for other protocols.
    greeted: bool,
    /// The first line is of another protocol.
    stranger: bool,
}

/// The management port; the module's documentation explains its use.
pub struct Management {
    pub(crate) settings: Settings,
    pub(crate) peer: Option<Peer>,
    pub(crate) clock: Clock,
    pub(crate) log: History,
    pub(crate) echo: History,
    pub(crate) state: History,
    pub(crate) asked: Option<Asked>,
    /// The tunnel waits for the client's release.
    pub(crate) holding: bool,
    pub(crate) released: bool,
    /// Requests to the process; the daemon takes them.
    pub requests: Vec<ProcessRequest>,
}

impl fmt::Debug for Management {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Management")
            .field("connected", &self.peer.is_some())
            .field("holding", &self.holding)
            .finish_non_exhaustive()
    }
}

impl Management {
    /// Makes a port without a client.
    pub fn new(settings: Settings) -> Self {
        Self {
            clock: Clock::system(),
            log: History::new("log", settings.log_lines.into()),
            echo: History::new("echo", HISTORY),
            state: History::new("state", HISTORY),
            settings,
            peer: None,
            asked: None,
            holding: false,
            released: false,
            requests: Vec::new(),
        }
    }

    /// Takes a new client. There can be only one: the daemon accepts the next after this one has left.
    pub fn connected(&mut self) {
        self.peer = Some(Peer {
            trusted: self.settings.password.is_none(),
            ..Peer::default()
        });
        self.greet();
    }

    /// Removes the client and resets its settings. Returns whether there was one.
    pub fn disconnected(&mut self) -> bool {
        self.log.realtime = false;
        self.echo.realtime = false;
        self.state.realtime = false;
        self.peer.take().is_some()
    }

    /// Whether the connected client began with another protocol, as a browser does.
    pub(crate) fn has_stranger(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.stranger)
    }

    /// Whether the connected client has sent the password.
    pub(crate) fn has_trusted_peer(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.trusted)
    }

    /// Whether the client has sent a line, after the password if there is one.
    pub(crate) fn has_spoken(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.spoken)
    }

    /// Whether the client has used up its password attempts.
    pub(crate) fn has_guessed(&self) -> bool {
        let peer = self.peer.as_ref();
        peer.is_some_and(|peer| !peer.trusted && peer.tries > 0)
    }

    /// Takes received bytes; then call [`Self::handle_lines`].
    pub fn receive(&mut self, bytes: &[u8]) {
        if let Some(peer) = self.peer.as_mut().filter(|peer| !peer.closing) {
            peer.input.push(bytes);
        }
    }

    /// Bytes to send to the client.
    pub fn transmit(&self) -> &[u8] {
        self.peer.as_ref().map_or(&[], |peer| &peer.output)
    }

    /// Removes this many sent bytes from the output.
    pub fn sent(&mut self, count: usize) {
        if let Some(peer) = &mut self.peer {
            let count = count.min(peer.output.len());
            peer.output.drain(..count);
        }
    }

    /// Whether to close the connection: the client requested it or is not allowed. Pending output goes first, unless it
    /// is too much.
    pub fn wants_close(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| {
            peer.closing && peer.output.is_empty() || peer.output.len() > WAITING_MAX
        })
    }

    /// Executes the received lines and answers each. Requests to the process go into [`Self::requests`].
    pub fn handle_lines(&mut self, now: Instant, monitored: &mut dyn Monitored) {
        while let Some(peer) = &mut self.peer {
            if peer.closing {
                peer.input.clear();
                return;
            }
            let Some(line) = peer.input.next_line() else {
                return;
            };
            if !std::mem::replace(&mut peer.greeted, true) && line.is_of_another_protocol() {
                peer.stranger = true;
                peer.closing = true;
                // A web page must get no output to read.
                peer.output.clear();
                continue;
            }
            match line {
                Line::TooLong => self.say("ERROR: the line is too long (1024 bytes max)"),
                Line::Whole(line) => self.line(&line, now, monitored),
            }
            if let Some(peer) = &mut self.peer {
                peer.spoken = peer.trusted;
            }
            self.prompt();
        }
    }

    pub(crate) fn greet(&mut self) {
        if !self.has_trusted_peer() {
            self.prompt();
            return;
        }
        self.say(">INFO:OpenVPN Management Interface Version 5 -- type 'help' for more info");
        self.say_special();
    }

    /// Informs the client of an open query or hold; also called when it connects.
    pub(crate) fn say_special(&mut self) {
        if let Some(text) = self.special() {
            self.say(&text);
        }
    }

    fn special(&self) -> Option<String> {
        let asked = self.asked.as_ref().map(|asked| asked.query.text());
        let hold = || ">HOLD:Waiting for hold release:0".to_owned();
        asked.or_else(|| self.holding.then(hold))
    }

    fn prompt(&mut self) {
        if let Some(peer) = self
            .peer
            .as_mut()
            .filter(|peer| !peer.trusted && !peer.closing)
        {
            peer.output.extend_from_slice(b"ENTER PASSWORD:");
        }
    }

    /// Sends one or more lines to a client that has sent the password.
    pub(crate) fn say(&mut self, text: &str) {
        let Some(peer) = self.peer.as_mut().filter(|peer| peer.trusted) else {
            return;
        };
        // A client with more unread output is dropped anyway.
        if peer.output.len() <= WAITING_MAX {
            peer.output.extend_from_slice(text.as_bytes());
            peer.output.extend_from_slice(b"\r\n");
        }
    }

    pub(crate) fn say_all(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            self.say(&line);
        }
    }

    /// Starts a hold before the tunnel begins, which the client's release ends. Returns false if no hold is configured
    /// or it was released already.
    pub fn hold(&mut self) -> bool {
        if !self.settings.hold || self.released {
            return false;
        }
        self.holding = true;
        self.say_special();
        true
    }

    /// Asks the user. The answer is taken from the client connected by then.
    pub fn ask(&mut self, query: Query) {
        self.asked = Some(Asked::new(query));
        self.say_special();
    }

    /// Reports an event `at` these seconds since 1970.
    pub fn tell(&mut self, at: u64, told: &Told) {
        match told {
            Told::State(state, detail, addresses) => {
                if self.settings.server && !state.is_of_servers() {
                    return;
                }
                let told = self.state.add(state_entry(at, *state, detail, *addresses));
                self.say_all(told);
            }
            Told::AuthToken(token) => {
                self.say(&format!(">PASSWORD:Auth-Token:{}", one_line(token)));
            }
            Told::Echo(text) => {
                let told = self.echo.add(format!("{at},{}", one_line(text)));
                self.say_all(told);
            }
            Told::VerificationFailed(reason) => {
                let reason = reason.as_deref().map(one_line);
                let reason = reason.map(|reason| format!(" ['{reason}']"));
                let reason = reason.unwrap_or_default();
                self.say(&format!(">PASSWORD:Verification Failed: 'Auth'{reason}"));
            }
            Told::UpDown(up, environment) => {
                let word = if *up { "UP" } else { "DOWN" };
                self.say(&format!(">UPDOWN:{word}"));
                for (name, value) in environment.visible(ScriptSecurity::Scripts) {
                    self.say(&format!(">UPDOWN:ENV,{name}={value}"));
                }
                self.say(">UPDOWN:ENV,END");
            }
            Told::Closed => self.released = false,
        }
    }

    /// Adds a log line.
    pub fn logged(&mut self, at: u64, flag: LogFlag, text: &str) {
        let text = one_line(text);
        if flag == LogFlag::Fatal {
            self.say(&format!(">FATAL:{text}"));
        }
        let told = self.log.add(format!("{at},{},{text}", flag.letter()));
        self.say_all(told);
    }

    /// When the next byte counts are due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let (_, next) = self.peer.as_ref()?.bytecount?;
        Some(next)
    }

    /// Reports the bytes received and sent, if that is due; a server reports each client.
    pub fn tell_bytes(&mut self, now: Instant, monitored: &dyn Monitored) {
        let Some((period, next)) = self.peer.as_mut().and_then(|peer| peer.bytecount.as_mut())
        else {
            return;
        };
        if now < *next {
            return;
        }
        *next = now + *period;
        match monitored.status() {
            Status::Client(status) => {
                let (received, sent) = (status.link_read, status.link_write);
                self.say(&format!(">BYTECOUNT:{received},{sent}"));
            }
            #[cfg(feature = "server")]
            Status::Server(status) => {
                for client in &status.clients {
                    self.say(&format!(
                        ">BYTECOUNT_CLI:{},{},{}",
                        client.client_id, client.bytes_received, client.bytes_sent
                    ));
                }
            }
        }
    }
}

/// Makes one bounded line of a text that may come from a peer.
fn one_line(text: &str) -> String {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let space = |c: char| if c.is_control() { ' ' } else { c };
    text[..end].chars().map(space).collect()
}
