//! Looking the server's name up, on a thread of its own: the C library's resolver waits.

use crate::names::{self, Asker};
use config::lines::Lines;
use netio::poll::Waker;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Bytes of a look-up's stack: the C library's resolver needs more than its own buffers.
const STACK: usize = 256 << 10;

/// Addresses of a name, or why there are none.
pub(super) type Found = Result<Vec<Ipv4Addr>, String>;

/// Looks names up, one at a time.
pub(super) struct Lookup {
    sender: Sender<Found>,
    answers: Receiver<Found>,
    /// Rung when there is an answer.
    pub(super) wake: Arc<Waker>,
}

impl Lookup {
    pub(super) fn new(wake: Waker) -> Self {
        let (sender, answers) = mpsc::channel();
        Self {
            sender,
            answers,
            wake: Arc::new(wake),
        }
    }

    /// Begins. [`Lookup::next`] has the end.
    pub(super) fn begin(&self, host: String) {
        let asker = Asker::new(&names::of_host(), 0, &Lines::default());
        let (sender, wake) = (self.sender.clone(), Arc::clone(&self.wake));
        let thread = thread::Builder::new()
            .name("resolve".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                host::privileges::confine_this_thread();
                // The service may be gone.
                let _ = sender.send(look_up(&host, &asker));
                wake.wake();
            });
        if let Err(error) = thread {
            let _ = self.sender.send(Err(error.to_string()));
            self.wake.wake();
        }
    }

    /// The end of a look-up, if one has come.
    pub(super) fn next(&self) -> Option<Found> {
        self.wake.clear();
        self.answers.try_recv().ok()
    }
}

fn look_up(host: &str, asker: &Asker) -> Found {
    let all = asker.look_up(host);
    let all = all.map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for address in all {
        if let IpAddr::V4(address) = address
            && !found.contains(&address)
            && found.len() < ADDRESSES_MAX
        {
            found.push(address);
        }
    }
    Ok(found)
}
