//! Calls that a test answers in the kernel's place: with an error of its choice, or with success.
//!
//! Only with the feature `simulated`, which no program enables: without it there is neither field nor branch.

use crate::udp::Train;
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::{Mutex, PoisonError};

/// A system call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// A packet is read from the interface.
    Read,
    /// A packet is written to the interface.
    Write {
        /// Parts of the write, the header first if it has one.
        parts: &'a [IoSlice<'a>],
    },
    /// Datagrams are received.
    Receive,
    /// The age of the last received datagram is read: the answer is in microseconds.
    Waited,
    /// Datagrams are sent.
    Send {
        /// The memory of the datagrams.
        memory: &'a [u8],
        /// One message per train; the kernel must cut those of several datagrams (`UDP_SEGMENT`).
        trains: &'a [Train],
    },
}

/// Returns a call's result; `None` lets the kernel answer it. A count as the answer to a [`Call::Receive`] means that
/// nothing was received. As the answer to a [`Call::Send`] it is the number of messages sent.
type Answer = dyn FnMut(Call<'_>) -> Option<io::Result<usize>> + Send;

/// Answers in place of the kernel for one interface or socket; the kernel answers until [`Faults::set`].
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
