//! Calls that a test answers in the kernel's place: with an error of its choice, or as done.
//!
//! Only with the feature `simulated`, which no program has: without it there is no field and no branch.

use crate::udp::Train;
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::{Mutex, PoisonError};

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// A packet is read from the interface.
    Read,
    /// A packet is written to the interface.
    Write {
        /// Its parts, the header first if it has one.
        parts: &'a [IoSlice<'a>],
    },
    /// Datagrams are received.
    Receive,
    /// How long the datagram that was received last has waited: the answer is in microseconds.
    Waited,
    /// Datagrams are sent.
    Send {
        /// Where they lie.
        memory: &'a [u8],
        /// One message each; those of more than one datagram are to be cut by the kernel (`UDP_SEGMENT`).
        trains: &'a [Train],
    },
}

/// Says what a call returns; `None` lets the kernel answer it. A [`Call::Receive`] that is answered with a count has
/// received nothing; one that answers a [`Call::Send`] says how many of its messages went.
type Answer = dyn FnMut(Call<'_>) -> Option<io::Result<usize>> + Send;

/// Answers of one interface or socket in the kernel's place; none until [`Faults::set`].
#[derive(Default)]
pub struct Faults(Mutex<Option<Box<Answer>>>);

impl Faults {
    /// Asks `answer` before each call from now on.
    pub fn set(&self, answer: impl FnMut(Call<'_>) -> Option<io::Result<usize>> + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(answer));
    }

    /// Leaves every call to the kernel again.
    pub fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn answer(&self, call: Call<'_>) -> Option<io::Result<usize>> {
        let mut answer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answer.as_mut().and_then(|answer| answer(call))
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}
