//! The UDP port of an interface: which sockets it needs, and which are open.

use super::machine::{Cx, Machine};
use plane::LineId;
use std::time::Duration;

/// Pause before sockets that could not be opened are tried again.
const REOPEN: Duration = Duration::from_millis(100);

impl Machine {
    /// Opens the sockets, if they are not open.
    pub(super) fn open(&mut self, cx: &mut Cx<'_>) {
        if self.bound.is_some() {
            return;
        }
        if let Err(words) = self.bind(cx)
            && self.lacks_sockets()
        {
            let again = self.reopen.replace(cx.now.monotonic + REOPEN);
            if again.is_none() {
                cx.log(log::Level::Warn, &format!("{words}; trying again"));
            }
        }
    }

    /// Opens sockets on the configured port. With lines, each opens its own as soon as its device exists.
    pub(super) fn bind(&mut self, cx: &mut Cx<'_>) -> Result<(), String> {
        let port = match self.lines {
            Some(_) => self.port,
            None => cx.host.open_sockets(LineId::FIRST, self.port, self.mark)?,
        };
        self.bound = Some(port);
        self.reopen = None;
        self.bind_lines(cx);
        Ok(())
    }

    /// Follows the link. A link that goes down closes the sockets, as the interface then neither sends nor answers;
    /// one that comes up opens them. Before the link is up for the first time they are open already, so that a
    /// handshake can start while addresses are still being set.
    pub(super) fn link(&mut self, up: bool, cx: &mut Cx<'_>) {
        if up == self.link_up {
            return;
        }
        self.link_up = up;
        if up {
            return self.open(cx);
        }
        self.bound = None;
        self.reopen = None;
        if !self.close_lines(cx) {
            cx.plane.close_line(LineId::FIRST);
        }
    }

    /// Opens sockets that could not be opened before, if it is time.
    pub(super) fn reopen(&mut self, cx: &mut Cx<'_>) {
        if self.lacks_sockets() && self.reopen.is_some_and(|at| at <= cx.now.monotonic) {
            self.open(cx);
        }
    }

    /// Whether the link is up without sockets: another program has the port, or a worker still holds sockets that
    /// were closed a moment ago.
    fn lacks_sockets(&self) -> bool {
        self.link_up && self.bound.is_none()
    }
}
