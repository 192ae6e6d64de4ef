//! The order of effects while a script runs.
//!
//! A script runs on its own thread, so the control connection and the data plane go on meanwhile: the machine calls the
//! data plane at once. The script's end is an event, and effects that must follow it wait: the routes for `up`, the
//! removal of the interface for `down`, the next connection for both.

use super::effect::{Effect, HostStep, Told};
use crate::openvpn::management::State;
use std::collections::VecDeque;

/// Queue of effects.
#[derive(Default)]
pub(super) struct Order {
    /// Effects to perform next, each with its batch number, unless they must wait for a script.
    ready: VecDeque<(u64, Effect)>,
    /// Effects that wait for the running script, each with its batch number.
    waiting: VecDeque<(u64, Effect)>,
    script: bool,
    /// Number of the last batch.
    batches: u64,
    /// Batch of the last effect returned, and whether that effect had waited.
    last: (u64, bool),
}

impl Order {
    /// Adds the effects of one event.
    pub(super) fn add(&mut self, effects: Vec<Effect>) {
        self.batches += 1;
        let number = self.batches;
        let batch = effects.into_iter().map(|effect| (number, effect));
        self.ready.extend(batch);
    }

    /// Returns the next effect that need not wait.
    pub(super) fn next(&mut self) -> Option<Effect> {
        loop {
            let waited = !self.script && !self.waiting.is_empty();
            let queue = match waited {
                true => &mut self.waiting,
                false => &mut self.ready,
            };
            let (batch, effect) = queue.pop_front()?;
            if self.script && !waited && waits(&effect) {
                self.defer(batch, effect);
                continue;
            }
            self.script |= matches!(effect, Effect::RunScript(..));
            self.last = (batch, waited);
            return Some(effect);
        }
    }

    /// Drops the rest of the last effect's batch, because that effect failed.
    pub(super) fn failed(&mut self) {
        let (failed, waited) = self.last;
        // If the failed effect came from `ready`, effects of its batch in `waiting` stay: they precede it.
        let queue = match waited {
            true => &mut self.waiting,
            false => &mut self.ready,
        };
        queue.retain(|(batch, _)| *batch != failed);
    }

    /// Makes the effects ready that waited for the script.
    pub(super) fn script_ended(&mut self) {
        self.script = false;
    }

    fn defer(&mut self, batch: u64, effect: Effect) {
        // Several network changes during a script need only one `Follow`.
        let follows = |effect: &Effect| matches!(effect, Effect::Host(HostStep::Follow));
        if follows(&effect) && self.waiting.iter().any(|(_, it)| follows(it)) {
            return;
        }
        self.waiting.push_back((batch, effect));
    }
}

/// Whether an effect must wait for a running script. A server can cause the other effects without limit, so they must
/// not pile up.
fn waits(effect: &Effect) -> bool {
    match effect {
        Effect::Tell(Told::State(state, ..)) => *state != State::AuthPending,
        Effect::Tell(told) => matches!(told, Told::UpDown(..) | Told::Closed),
        Effect::Log(..)
        | Effect::Fatal(_)
        | Effect::LogStatus
        | Effect::ReadLines
        | Effect::OpenLine(..)
        | Effect::KeepUsage(_)
        | Effect::KeepAddress(..)
        | Effect::Judge(..)
        | Effect::RefreshRevocations => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openvpn::scripts::environment::Environment;
    use crate::openvpn::scripts::{Hook, Invocation};
    use config::openvpn::{Command, ScriptSecurity};

    fn script() -> Effect {
        let words = vec!["/x".to_owned()];
        let (environment, security) = (Environment::default(), ScriptSecurity::Scripts);
        let program = Invocation::new(Hook::Down, &Command { words }, [], &environment, security);
        Effect::RunScript(Hook::Down, Box::new(program.unwrap()))
    }

    /// Takes the effects that need not wait, as one letter each.
    fn doable(order: &mut Order) -> String {
        let letter = |effect| match effect {
            Effect::RunScript(..) => 's',
            Effect::Host(HostStep::Undo) => 'u',
            Effect::Host(HostStep::Follow) => 'f',
            Effect::RefreshRevocations => 'r',
            Effect::Hold => 'h',
            _ => '?',
        };
        std::iter::from_fn(|| order.next()).map(letter).collect()
    }

    fn undo() -> Effect {
        Effect::Host(HostStep::Undo)
    }

    #[test]
    fn what_comes_after_a_script_waits_for_its_end_and_other_effects_do_not() {
        let mut order = Order::default();
        order.add(vec![
            Effect::RefreshRevocations,
            script(),
            undo(),
            script(),
            Effect::RefreshRevocations,
            Effect::Hold,
        ]);
        assert_eq!(doable(&mut order), "rsr");
        order.add(vec![Effect::RefreshRevocations, undo()]);
        assert_eq!(doable(&mut order), "r");
        order.script_ended();
        assert_eq!(doable(&mut order), "us");
        order.script_ended();
        assert_eq!(doable(&mut order), "hu");
        order.add(vec![undo()]);
        assert_eq!(doable(&mut order), "u");
    }

    #[test]
    fn after_a_failure_nothing_of_the_same_batch_is_done_and_what_came_before_is() {
        let mut order = Order::default();
        order.add(vec![
            script(),
            undo(),
            Effect::RefreshRevocations,
            Effect::Hold,
        ]);
        assert!(matches!(order.next(), Some(Effect::RunScript(..))));
        assert!(matches!(order.next(), Some(Effect::RefreshRevocations)));
        order.failed();
        order.add(vec![Effect::Host(HostStep::Follow), script()]);
        order.add(vec![Effect::Hold]);
        assert_eq!(doable(&mut order), "");
        order.script_ended();
        assert!(matches!(order.next(), Some(Effect::Host(HostStep::Undo))));
        assert!(matches!(order.next(), Some(Effect::Host(HostStep::Follow))));
        order.failed();
        assert_eq!(doable(&mut order), "h");
    }

    #[test]
    fn changes_of_the_network_are_followed_once_however_many_there_were() {
        let mut order = Order::default();
        order.add(vec![script()]);
        for _ in 0..100 {
            order.add(vec![Effect::Host(HostStep::Follow)]);
        }
        assert_eq!(doable(&mut order), "s");
        order.script_ended();
        assert_eq!(doable(&mut order), "f");
    }
}
