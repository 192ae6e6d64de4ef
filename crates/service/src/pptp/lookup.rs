//! Looks up the server's name. The result is fetched after the waker has fired.

use config::lines::Lines;
use lines::names::Background;
use netio::poll::Waker;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Addresses of a name, or why the look-up failed.
pub(super) type Found = Result<Vec<Ipv4Addr>, String>;

/// Looks names up, one at a time.
pub(super) struct Lookup {
    sender: Sender<Found>,
    answers: Receiver<Found>,
    names: Background,
    /// Wakes the executor when there is a result.
    pub(super) wake: Arc<Waker>,
}

impl Lookup {
    /// Makes look-ups for a tunnel that leaves by these lines, or by this device.
    pub(super) fn new(wake: Waker, lines: &Lines, device: Option<&str>) -> Self {
        let (sender, answers) = mpsc::channel();
        Self {
            sender,
            answers,
            names: Background::new(lines, device),
            wake: Arc::new(wake),
        }
    }

    /// Begins a look-up, whose result [`Lookup::next`] returns. `inside`: the host's name servers may be the
    /// tunnel's.
    pub(super) fn begin(&mut self, host: String, inside: bool) {
        let (sender, wake) = (self.sender.clone(), Arc::clone(&self.wake));
        let begun = self.names.begin((host, 0), 0, inside, move |found| {
            // The service may be gone, so an error is ignored.
            let _ = sender.send(found.map(|it| v4(&it)).map_err(|error| error.to_string()));
            wake.wake();
        });
        if let Err(error) = begun {
            let _ = self.sender.send(Err(error.to_string()));
            self.wake.wake();
        }
    }

    /// The result of a look-up, if one has ended.
    pub(super) fn next(&self) -> Option<Found> {
        self.wake.clear();
        self.answers.try_recv().ok()
    }
}

fn v4(all: &[SocketAddr]) -> Vec<Ipv4Addr> {
    let found = all.iter().filter_map(|address| match address {
        SocketAddr::V4(address) => Some(*address.ip()),
        SocketAddr::V6(_) => None,
    });
    found.take(ADDRESSES_MAX).collect()
}
