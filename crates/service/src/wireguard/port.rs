//! The UDP port of an interface: which sockets it needs, and which are open.

use super::effect::{Effect, Refused};
use super::machine::{Machine, Turn};
use std::time::Duration;

/// Pause before sockets that could not be opened are tried again.
pub(super) const REOPEN: Duration = Duration::from_millis(100);

/// Linux's `errno` of the UAPI, the same on every architecture we build for.
const EADDRINUSE: i32 = 98;

/// A request for sockets that was not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bind {
    purpose: Purpose,
    /// The link has gone down since the request, and the sockets were closed.
    closed: bool,
}

/// Reason for opening sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The link came up.
    Link,
    /// A client asked for another port; this is the one before.
    Port(u16),
}

impl Machine {
    /// Opens the sockets, if they are not open.
    pub(super) fn open(&mut self, turn: &mut Turn<'_>) {
        if self.bound.is_none() && self.binds.is_empty() {
            self.bind(Purpose::Link, turn);
        }
    }

    pub(super) fn bind(&mut self, purpose: Purpose, turn: &mut Turn<'_>) {
        let closed = false;
        self.binds.push_back(Bind { purpose, closed });
        let (port, mark) = (self.port, self.mark);
        if self.bind_lines(turn) {
            return self.bound(Ok(port), turn);
        }
        turn.effects.push(Effect::Bind { port, mark });
    }

    /// Follows the link. A link that goes down closes the sockets, as the interface then neither sends nor answers;
    /// one that comes up opens them. Before the link is up for the first time they are open already, so that a
    /// handshake can start while addresses are still being set.
    pub(super) fn link(&mut self, up: bool, turn: &mut Turn<'_>) {
        if up == self.link_up {
            return;
        }
        self.link_up = up;
        if up {
            self.open(turn);
        } else {
            self.bound = None;
            self.reopen = None;
            self.binds.iter_mut().for_each(|bind| bind.closed = true);
            if !self.close_lines(turn) {
                turn.effects.push(Effect::Unbind);
            }
        }
    }

    /// Whether the link is up without sockets: another program has the port, or a worker still holds sockets that
    /// were closed a moment ago.
    pub(super) fn lacks_sockets(&self) -> bool {
        self.link_up && self.bound.is_none()
    }

    pub(super) fn bound(&mut self, result: Result<u16, String>, turn: &mut Turn<'_>) {
        let Some(Bind { purpose, closed }) = self.binds.pop_front() else {
            return;
        };
        if let Ok(port) = &result
            && !closed
        {
            self.bound = Some(*port);
        }
        let first_failure = self.lacks_sockets() && self.reopen.is_none();
        if !self.lacks_sockets() {
            self.reopen = None;
        } else if closed {
            self.open(turn);
        } else {
            self.reopen = Some(turn.now.monotonic + REOPEN);
        }
        let refused = result.err();
        match purpose {
            Purpose::Port(old) => {
                if refused.is_some() {
                    self.port = old;
                }
                let refused = refused.map(|words| Refused {
                    errno: EADDRINUSE,
                    words,
                });
                self.port_done(refused, turn);
            }
            Purpose::Link => {
                if let Some(words) = refused.filter(|_| first_failure) {
                    turn.log(log::Level::Warn, format!("{words}; trying again"));
                }
            }
        }
    }
}
