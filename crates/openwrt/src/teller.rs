//! Decides what to tell netifd, and when: events and the time in, effects out.
//!
//! The tunnel reports its state, up or link lost, and its faults. The teller repeats the last state until netifd has taken
//! it, also over new connections and restarts of netifd, with one call at a time. It accepts "permission denied":
//! netifd answers so while it takes the interface down.
//!
//! netifd keeps each error that is reported, the same twice. It clears its list when the interface comes up and when it
//! starts the process, and has no other way to clear it. So the state is told first; then the list is read, and faults
//! that it lacks are reported. To get rid of mended faults, see [`Teller::is_stale`].

use crate::blob::Value;
use crate::ubus::Status;
use crate::update::{self, Update};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// First pause before a new connection or a repeated call. It doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Longest pause: netifd may return at any moment, and a check costs little.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Time limit for an answer of netifd, which takes an update without waiting for anything.
const ANSWER: Duration = Duration::from_secs(10);

/// Maximum number of faults of one source. A thousand faulty peers would fill netifd's memory.
const FAULTS_MAX: usize = 8;

/// Maximum number of faults that netifd may list; more are not reported.
const LISTED_MAX: usize = 32;

/// A fault that netifd keeps for `ubus call network.interface.NAME status` and the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Code of the fault.
    pub code: String,
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
    /// How the last [`Effect::Call`] or [`Effect::Ask`] ended, and the data that it returned.
    Answered(Status, Value),
    /// The tunnel is up with these addresses and routes.
    Up(Update),
    /// The tunnel's link is lost: netifd removes addresses and routes.
    Lost,
    /// netifd may have the state of a program before this one, and is to remove its addresses and routes.
    GiveUp,
    /// The faults of one source, in place of those that it had before.
    Faults(&'static str, Vec<Fault>),
    /// netifd is to take an interface that is up down and up again: it then sets everything anew, and clears its list of
    /// errors.
    Anew,
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
    /// Call [`update::STATUS`] of the interface's own object, [`update::object_of`].
    Ask,
    /// Hold up packets for the tunnel, so that none leaves elsewhere while netifd takes the link down; or let them pass.
    Shield(bool),
    /// netifd has carried out the last call: [`Teller::set`] says what the device now has.
    Set,
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
    Fault(Fault),
    Errors,
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
    /// The present faults, by source.
    faults: BTreeMap<&'static str, Vec<Fault>>,
    /// Faults in netifd's list; `None` until it was read.
    listed: Option<Vec<Fault>>,
    block: bool,
    anew: bool,
    /// Whether packets for the tunnel are held up.
    shielded: bool,
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
            faults: BTreeMap::new(),
            listed: None,
            block: false,
            anew: false,
            shielded: false,
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

    /// Whether a call is without an answer, in which netifd may change the device, or nothing is sent any more.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.asked.is_some() || matches!(self.connection, Connection::Over)
    }

    /// Whether the link is down for a moment, or will be.
    #[must_use]
    pub fn needs_shield(&self) -> bool {
        self.shielded || self.is_to_bounce()
    }

    /// The settings that netifd has given the device; `None` while the interface is not up.
    #[must_use]
    pub const fn set(&self) -> Option<&Update> {
        match &self.told {
            Some(State::Up(update)) => Some(update),
            _ => None,
        }
    }

    /// Whether netifd lists a fault that is mended. While the interface is up, [`Event::Anew`] clears the list; before
    /// that, the end of the process does, which netifd starts again.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        let mended = |it: &Fault| !self.present().any(|present| present == it);
        self.listed.iter().flatten().any(mended)
    }

    fn present(&self) -> impl Iterator<Item = &Fault> {
        self.faults.values().flatten()
    }

    /// The first fault that netifd's list lacks.
    fn missing(&self) -> Option<&Fault> {
        let listed = self.listed.as_ref()?;
        let mut missing = self.present().filter(|it| !listed.contains(it));
        missing.next().filter(|_| listed.len() < LISTED_MAX)
    }

    /// Whether netifd's list has to be read.
    fn must_read(&self) -> bool {
        self.listed.is_none() && (self.told.is_some() || !self.faults.is_empty())
    }

    /// Whether the link is to be taken down for a moment.
    fn is_to_bounce(&self) -> bool {
        self.anew && self.set().is_some() && matches!(self.wanted, Some(State::Up(_)))
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
                (self.told, self.listed, self.anew) = (None, None, false);
                self.pause = PAUSE_MIN;
            }
            Event::Disconnected => self.lost_connection(now),
            Event::Answered(status, data) => {
                if let Some((asked, _)) = self.asked.take() {
                    self.answered(asked, (status, &data), now, effects);
                }
            }
            Event::Up(update) => self.wanted = Some(State::Up(update)),
            // Before the first `Up` there is no link to lose.
            Event::Lost if self.wanted.is_none() => {}
            Event::Lost => {
                self.wanted = Some(State::Lost);
                self.shield(false, effects);
            }
            Event::GiveUp => {
                self.wanted.get_or_insert(State::Lost);
            }
            Event::Faults(source, mut list) => {
                list.truncate(FAULTS_MAX);
                self.faults.insert(source, list);
            }
            Event::Anew => self.anew = true,
            Event::Block => self.block = true,
            Event::End => {
                self.shield(false, effects);
                self.connection = Connection::Over;
                return effects.push(Effect::Disconnect);
            }
            Event::Deadline => self.expire(now, effects),
        }
        self.go_on(now, effects);
    }

    fn has_something(&self) -> bool {
        let is_new = self.wanted.is_some() && self.wanted != self.told;
        self.block || is_new || self.is_to_bounce() || self.must_read() || self.missing().is_some()
    }

    fn shield(&mut self, wanted: bool, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.shielded, wanted) != wanted {
            effects.push(Effect::Shield(wanted));
        }
    }

    fn lost_connection(&mut self, now: Instant) {
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

    fn answered(
        &mut self,
        asked: Asked,
        (status, data): (Status, &Value),
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let is_state = matches!(asked, Asked::State(_));
        match (status, asked) {
            (Status::Ok, asked) => {
                (self.pause, self.not_before, self.said) = (PAUSE_MIN, None, None);
                match asked {
                    Asked::Fault(fault) => self.listed.get_or_insert_default().push(fault),
                    Asked::Errors => self.listed = Some(update::errors(data)),
                    Asked::Block => self.block = false,
                    Asked::State(state) => self.has_taken(state, effects),
                }
                return;
            }
            // A fault that netifd does not accept is not sent again.
            (Status::InvalidArgument, Asked::Fault(fault)) => {
                self.listed.get_or_insert_default().push(fault);
                return;
            }
            // Without the list, a fault may be listed twice, which is better than not at all.
            (_, Asked::Errors) => {
                self.listed = Some(Vec::new());
                return;
            }
            _ => {}
        }
        if is_state {
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

    /// netifd has this state now.
    fn has_taken(&mut self, state: State, effects: &mut Vec<Effect>) {
        let was_up = self.set().is_some();
        if matches!(state, State::Up(_)) && !was_up {
            // Coming up clears netifd's list. After a new connection it may have been up all the time.
            self.listed = None;
            self.anew = false;
        }
        self.told = Some(state);
        effects.push(Effect::Set);
        if self.set().is_some() {
            self.shield(false, effects);
        }
    }

    /// Sends the next call, if one is due.
    fn go_on(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let early = self.not_before.is_some_and(|at| now < at);
        if self.connection != Connection::Open || self.asked.is_some() || early {
            return;
        }
        let name = &self.interface;
        let (asked, call) = if self.block {
            (Asked::Block, Effect::Call(update::block_restart(name)))
        } else if self.is_to_bounce() {
            let call = Effect::Call(update::lost(name));
            self.shield(true, effects);
            (Asked::State(State::Lost), call)
        } else if let Some(state) = self.wanted.clone().filter(|_| self.wanted != self.told) {
            let arguments = match &state {
                State::Up(update) => update.to_arguments(name),
                State::Lost => update::lost(name),
            };
            (Asked::State(state), Effect::Call(arguments))
        } else if self.must_read() {
            (Asked::Errors, Effect::Ask)
        } else if let Some(fault) = self.missing() {
            let arguments = update::error(name, &fault.code, &fault.words);
            (Asked::Fault(fault.clone()), Effect::Call(arguments))
        } else {
            return;
        };
        self.anew &= !matches!(asked, Asked::State(_));
        self.asked = Some((asked, now + ANSWER));
        effects.push(call);
    }
}

#[cfg(test)]
mod tests;
