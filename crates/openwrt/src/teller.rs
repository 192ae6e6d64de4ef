//! Decides what to tell netifd, and when: events and the time in, effects out.
//!
//! The tunnel reports its state: up, link lost, or a fault. The teller repeats the last state until netifd has taken
//! it, also over new connections and restarts of netifd, with one call at a time. It accepts "permission denied":
//! netifd answers so while it takes the interface down.

use crate::blob::Value;
use crate::ubus::Status;
use crate::update::{self, Update};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// First pause before a new connection or a repeated call. It doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Longest pause: netifd may return at any moment, and a check costs little.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Time limit for an answer of netifd, which takes an update without waiting for anything.
const ANSWER: Duration = Duration::from_secs(10);

/// Maximum number of faults that wait to be sent.
const FAULTS_MAX: usize = 8;

/// Maximum number of faults that are remembered as sent.
const KNOWN_MAX: usize = 64;

/// A fault that netifd keeps for `ubus call network.interface.NAME status` and the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Code of the fault.
    pub code: &'static str,
    /// The fault in words.
    pub words: String,
}

/// An event for the teller.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The teller starts.
    Start,
    /// ubusd has sent its greeting.
    Connected,
    /// The connection has ended, or could not be made.
    Disconnected,
    /// How the last [`Effect::Call`] ended.
    Answered(Status),
    /// The tunnel is up with these addresses and routes.
    Up(Update),
    /// The tunnel's link is lost: netifd removes addresses and routes.
    Lost,
    /// The tunnel has a fault.
    Fault(Fault),
    /// netifd must not restart the interface by itself: the server refused the credentials.
    Block,
    /// The process ends, and netifd knows that it does: nothing more is sent.
    End,
    /// [`Teller::deadline`] has passed.
    Deadline,
}

/// An action that the caller carries out; they come in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Connect to ubusd.
    Connect,
    /// End the connection.
    Disconnect,
    /// Call [`update::METHOD`] of [`update::OBJECT`].
    Call(Vec<(String, Value)>),
    /// Write to the log.
    Log(log::Level, String),
}

/// A state that netifd has to know.
#[derive(Clone, Debug, PartialEq)]
enum State {
    Up(Update),
    Lost,
}

/// The pending request.
#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Fault,
    Block,
    State(State),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// The next attempt to connect is due at this time.
    At(Instant),
    /// The connection is being made, until this time at the latest.
    Awaited(Instant),
    Open,
    Over,
}

/// The teller of one interface; see the module.
#[derive(Debug)]
pub struct Teller {
    interface: String,
    connection: Connection,
    wanted: Option<State>,
    /// The state that netifd has taken.
    told: Option<State>,
    faults: VecDeque<Fault>,
    /// Faults that netifd has. A fault sent twice would be listed twice.
    known: VecDeque<Fault>,
    block: bool,
    /// The request without an answer yet, and its time limit.
    asked: Option<(Asked, Instant)>,
    /// Earliest time for the next call.
    not_before: Option<Instant>,
    pause: Duration,
    /// Status of the refusal that was last logged.
    said: Option<Status>,
}

impl Teller {
    /// Makes a teller for an interface.
    #[must_use]
    pub fn new(interface: &str, now: Instant) -> Self {
        Self {
            interface: interface.to_owned(),
            connection: Connection::At(now),
            wanted: None,
            told: None,
            faults: VecDeque::new(),
            known: VecDeque::new(),
            block: false,
            asked: None,
            not_before: None,
            pause: PAUSE_MIN,
            said: None,
        }
    }

    /// The time at which the teller acts without an event.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.connection {
            Connection::At(at) | Connection::Awaited(at) => Some(at),
            Connection::Over => None,
            Connection::Open => match &self.asked {
                Some((_, until)) => Some(*until),
                None => self.not_before.filter(|_| self.has_something()),
            },
        }
    }

    /// Whether netifd has taken everything.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.connection == Connection::Over || (self.asked.is_none() && !self.has_something())
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event, now: Instant, effects: &mut Vec<Effect>) {
        if self.connection == Connection::Over {
            return;
        }
        match event {
            Event::Start => {}
            Event::Connected => {
                self.connection = Connection::Open;
                // netifd may have restarted since.
                self.not_before = None;
                self.told = None;
                self.pause = PAUSE_MIN;
            }
            Event::Disconnected => self.lost_connection(now),
            Event::Answered(status) => {
                if let Some((asked, _)) = self.asked.take() {
                    self.answered(asked, status, now, effects);
                }
            }
            Event::Up(update) => self.wanted = Some(State::Up(update)),
            // Before the first `Up` there is no link to lose.
            Event::Lost if self.wanted.is_none() => {}
            Event::Lost => self.wanted = Some(State::Lost),
            Event::Fault(fault) => {
                if !self.faults.contains(&fault) && !self.known.contains(&fault) {
                    self.faults.truncate(FAULTS_MAX - 1);
                    self.faults.push_back(fault);
                }
            }
            Event::Block => self.block = true,
            Event::End => {
                self.connection = Connection::Over;
                return effects.push(Effect::Disconnect);
            }
            Event::Deadline => self.expire(now, effects),
        }
        self.go_on(now, effects);
    }

    fn has_something(&self) -> bool {
        !self.faults.is_empty() || self.block || (self.wanted.is_some() && self.wanted != self.told)
    }

    fn lost_connection(&mut self, now: Instant) {
        // A fault without an answer is sent again; netifd lists it once.
        self.asked = None;
        self.connection = Connection::At(now + self.longer_pause());
    }

    fn longer_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        pause
    }

    fn expire(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        match self.connection {
            Connection::At(at) if at <= now => {
                self.connection = Connection::Awaited(now + ANSWER);
                effects.push(Effect::Connect);
            }
            Connection::Awaited(until) if until <= now => {
                effects.push(Effect::Disconnect);
                self.lost_connection(now);
            }
            Connection::Open if self.asked.as_ref().is_some_and(|it| it.1 <= now) => {
                effects.push(Effect::Log(
                    log::Level::Warn,
                    "netifd does not answer; reconnecting".to_owned(),
                ));
                effects.push(Effect::Disconnect);
                self.lost_connection(now);
            }
            _ => {}
        }
    }

    fn answered(&mut self, asked: Asked, status: Status, now: Instant, effects: &mut Vec<Effect>) {
        match status {
            Status::Ok => {
                (self.pause, self.not_before, self.said) = (PAUSE_MIN, None, None);
                match asked {
                    Asked::Fault => {
                        self.known.extend(self.faults.pop_front());
                        if self.known.len() > KNOWN_MAX {
                            self.known.pop_front();
                        }
                    }
                    Asked::Block => self.block = false,
                    Asked::State(state) => self.told = Some(state),
                }
                return;
            }
            // Forget a fault that netifd does not accept.
            Status::InvalidArgument if asked == Asked::Fault => {
                self.faults.pop_front();
                return;
            }
            _ => {}
        }
        if matches!(asked, Asked::State(_)) {
            // netifd's present state is unknown: start over.
            self.told = None;
        }
        let quiet = status == Status::PermissionDenied || self.said == Some(status);
        if !quiet {
            effects.push(Effect::Log(
                log::Level::Warn,
                format!("netifd refuses the notification: {status}; sending it again"),
            ));
        }
        self.said = Some(status);
        self.not_before = Some(now + self.longer_pause());
    }

    /// Sends the next call, if one is due.
    fn go_on(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let early = self.not_before.is_some_and(|at| now < at);
        if self.connection != Connection::Open || self.asked.is_some() || early {
            return;
        }
        let (asked, arguments) = if let Some(fault) = self.faults.front() {
            let arguments = update::error(&self.interface, fault.code, &fault.words);
            (Asked::Fault, arguments)
        } else if self.block {
            (Asked::Block, update::block_restart(&self.interface))
        } else if let Some(state) = self.wanted.clone().filter(|_| self.wanted != self.told) {
            let arguments = match &state {
                State::Up(update) => update.to_arguments(&self.interface),
                State::Lost => update::lost(&self.interface),
            };
            (Asked::State(state), arguments)
        } else {
            return;
        };
        self.asked = Some((asked, now + ANSWER));
        effects.push(Effect::Call(arguments));
    }
}

#[cfg(test)]
mod tests;
