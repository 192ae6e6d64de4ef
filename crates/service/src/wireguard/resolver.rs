//! Looking names up: each answer is taken when its bell has rung.

use super::effect::LookUp;
use crate::names::Background;
use config::lines::Lines;
use netio::poll::Waker;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

/// A look-up that has ended.
pub(crate) type Answer = (LookUp, Result<Vec<SocketAddr>, String>);

/// Looks names up without anything waiting for it.
pub(crate) struct Resolver {
    sender: Sender<Answer>,
    answers: Receiver<Answer>,
    wake: Arc<Waker>,
    names: Background,
}

impl Resolver {
    /// `wake` is rung when an answer is there.
    pub(crate) fn new(wake: Arc<Waker>, lines: &Lines) -> Self {
        let (sender, answers) = mpsc::channel();
        Self {
            sender,
            answers,
            wake,
            names: Background::new(lines, None),
        }
    }

    /// Begins a look-up. Returns its end, if it cannot begin.
    pub(crate) fn begin(&mut self, lookup: LookUp) -> Option<Answer> {
        let (sender, wake) = (self.sender.clone(), Arc::clone(&self.wake));
        let (asked, name) = (lookup.clone(), (lookup.host.clone(), lookup.endpoint.port));
        // With a mark, what others send goes into the tunnel, and so do the questions of the host's resolver.
        let inside = lookup.mark != 0;
        let begun = self.names.begin(name, lookup.mark, inside, move |found| {
            // The interface may be gone.
            let _ = sender.send((asked, found.map_err(|e| e.to_string())));
            wake.wake();
        });
        Some((lookup, Err(begun.err()?.to_string())))
    }

    /// The end of a look-up, if one has come.
    pub(crate) fn next(&mut self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}
