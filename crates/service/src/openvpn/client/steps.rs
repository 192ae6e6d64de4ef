//! The order of steps while a script runs.
//!
//! A script runs on its own thread, so the control connection and the data plane continue meanwhile. The script's end
//! is an event, and steps that must follow it wait: the routes for `up`, the removal of the interface for `down`, the
//! next connection for both. A server can cause the machine's other calls without limit, so these are no steps and
//! never pile up.

use super::event::Event;
use super::host::{Done, Failure, Host};
use std::collections::VecDeque;

/// A call to the host.
pub(super) type Step = Box<dyn FnOnce(&mut dyn Host) -> Done>;

/// How a step behaves while a script runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The step waits for the script.
    Plain,
    /// The step waits, and later steps wait for its end as well ([`Event::ScriptFinished`]).
    Script,
    /// The step waits, or is dropped if another of this kind waits: several network changes need only one.
    Follow,
}

/// The steps that wait, and the results of those that ran.
///
/// If a step fails, the machine gets [`Event::Failed`], and the later steps of the same event are dropped.
#[derive(Default)]
pub(super) struct Steps {
    /// Steps that wait for the running script, each with the number of its event.
    waiting: VecDeque<(u64, Kind, Step)>,
    script: bool,
    /// Number of the present event.
    number: u64,
    /// A step of the present event has failed.
    failed: bool,
    /// Results of steps; the machine gets them before all other events.
    pub(super) results: VecDeque<Event>,
}

impl Steps {
    /// Begins the steps of an event, or a part of them that does not depend on those before.
    pub(super) fn begin(&mut self) {
        self.number += 1;
        self.failed = false;
    }

    /// Runs a step at once, unless it must wait for a script or an earlier step of this event has failed.
    pub(super) fn add(&mut self, kind: Kind, step: Step, host: &mut dyn Host) {
        if self.failed || host.has_ended() {
            return;
        }
        if !self.script {
            self.failed = !self.run(kind, step, host);
        } else if kind != Kind::Follow || self.waiting.iter().all(|it| it.1 != Kind::Follow) {
            self.waiting.push_back((self.number, kind, step));
        }
    }

    /// Runs the steps that waited for the script.
    pub(super) fn script_ended(&mut self, host: &mut dyn Host) {
        self.script = false;
        while !self.script
            && !host.has_ended()
            && let Some((number, kind, step)) = self.waiting.pop_front()
        {
            if !self.run(kind, step, host) {
                self.waiting.retain(|it| it.0 != number);
            }
        }
    }

    /// Returns whether the step succeeded.
    fn run(&mut self, kind: Kind, step: Step, host: &mut dyn Host) -> bool {
        self.script |= kind == Kind::Script;
        let done = step(host);
        let succeeded = done.is_ok();
        let failed = |error: Failure| Some(Event::Failed(error.to_string()));
        self.results.extend(done.unwrap_or_else(failed));
        succeeded
    }
}
