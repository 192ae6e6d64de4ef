//! The order of steps while a script runs.

use super::config;
use super::world::World;
use crate::openvpn::Ended;
use crate::openvpn::client::host::Host;
use crate::openvpn::client::steps::{Kind, Steps};
use std::cell::RefCell;
use std::rc::Rc;

/// Steps that each record a letter when they run.
struct Letters {
    steps: Steps,
    seen: Rc<RefCell<String>>,
    world: World,
}

impl Letters {
    fn new() -> Self {
        Self {
            steps: Steps::default(),
            seen: Rc::default(),
            world: World::new(config("--remote 192.0.2.1 1194"), &[], 1),
        }
    }

    /// Adds the steps of one event: a script at `s`, `f` once for all, the end at `e`, failing steps in capitals.
    fn event(&mut self, letters: &str) {
        self.steps.begin();
        for letter in letters.chars() {
            let kind = match letter {
                's' => Kind::Script,
                'f' | 'F' => Kind::Follow,
                _ => Kind::Plain,
            };
            let seen = Rc::clone(&self.seen);
            let step = Box::new(move |host: &mut dyn Host| {
                seen.borrow_mut().push(letter);
                if letter == 'e' {
                    host.end(Ended::Exit(1));
                }
                match letter.is_uppercase() {
                    true => Err("it fails".into()),
                    false => Ok(None),
                }
            });
            self.steps.add(kind, step, &mut self.world);
        }
    }

    /// The steps that ran since the last call.
    fn seen(&mut self) -> String {
        self.seen.take()
    }

    fn script_ended(&mut self) -> String {
        self.steps.script_ended(&mut self.world);
        self.seen()
    }
}

#[test]
fn a_step_after_a_script_waits_for_its_end() {
    let mut it = Letters::new();
    it.event("rsush");
    assert_eq!(it.seen(), "rs");
    it.event("u");
    assert_eq!(it.seen(), "");
    assert_eq!(it.script_ended(), "us");
    assert_eq!(it.script_ended(), "hu");
    it.event("u");
    assert_eq!(it.seen(), "u");
    assert!(it.steps.results.is_empty());
}

#[test]
fn after_a_failure_no_step_of_the_same_event_runs_but_those_before_it() {
    let mut it = Letters::new();
    it.event("uHh");
    assert_eq!((it.seen().as_str(), it.steps.results.len()), ("uH", 1));
    it.event("su");
    it.event("Fs");
    it.event("h");
    assert_eq!(it.seen(), "s");
    assert_eq!(it.script_ended(), "uFh");
    assert_eq!(it.steps.results.len(), 2);
}

#[test]
fn nothing_comes_after_the_end() {
    let mut it = Letters::new();
    it.event("seu");
    it.event("s");
    it.event("e");
    assert_eq!(it.seen(), "s");
    assert_eq!(it.script_ended(), "e");
    it.event("u");
    assert_eq!(it.script_ended(), "");
}

#[test]
fn changes_of_the_network_are_followed_once_however_many_there_were() {
    let mut it = Letters::new();
    it.event("s");
    for _ in 0..100 {
        it.event("f");
    }
    assert_eq!(it.seen(), "s");
    assert_eq!(it.script_ended(), "f");
}
