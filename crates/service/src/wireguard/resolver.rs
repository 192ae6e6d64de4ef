//! Looks up names. Each result is fetched after the waker has fired.

use config::lines::Lines;
use lines::names::{Background, LookUp};
use netio::poll::Waker;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

/// The result of a look-up.
pub(crate) type Answer = (LookUp, Result<Vec<SocketAddr>, String>);

/// Looks up names in the background.
pub(crate) struct Resolver {
    sender: Sender<Answer>,
    answers: Receiver<Answer>,
    wake: Arc<Waker>,
    names: Background,
}

impl Resolver {
    /// Makes a resolver that wakes `wake` when there is a result.
    pub(crate) fn new(wake: Arc<Waker>, lines: &Lines) -> Self {
        let (sender, answers) = mpsc::channel();
        Self {
            sender,
            answers,
            wake,
            names: Background::new(lines, None),
        }
    }

    /// Begins a look-up.
    ///
    /// # Errors
    /// Why it cannot begin.
    pub(crate) fn begin(&mut self, lookup: LookUp) -> Result<(), String> {
        let (sender, wake) = (self.sender.clone(), Arc::clone(&self.wake));
        let (mark, name) = (lookup.mark, (lookup.host.clone(), lookup.endpoint.port));
        // With a mark, unmarked packets go into the tunnel, and so do queries of the host's resolver.
        let begun = self.names.begin(name, mark, mark != 0, move |found| {
            // The interface may be gone, so an error is ignored.
            let _ = sender.send((lookup, found.map_err(|e| e.to_string())));
            wake.wake();
        });
        begun.map_err(|e| e.to_string())
    }

    /// The result of a look-up, if one has ended.
    pub(crate) fn next(&mut self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}
