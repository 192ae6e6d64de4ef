//! The way from the front to the process with privileges, for many who ask at once.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde::de::DeserializeOwned;

use crate::frame::{ANSWER_MAX, Frame};
use crate::question::Question;

/// Bytes of the stack of the thread that reads answers.
const STACK: usize = 64 << 10;

/// The way.
pub struct Link {
    stream: Mutex<UnixStream>,
    waiting: Arc<Mutex<Waiting>>,
}

/// Threads that wait for an answer, by the numbers of their questions.
#[derive(Default)]
struct Waiting {
    next: u32,
    of: BTreeMap<u32, SyncSender<Frame>>,
    /// There are no more answers.
    ended: bool,
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// By a socket whose other end answers.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        let waiting = Arc::<Mutex<Waiting>>::default();
        let (from, to) = (stream.try_clone()?, Arc::clone(&waiting));
        let reader = thread::Builder::new().name("answers".to_owned());
        reader.stack_size(STACK).spawn(move || {
            read(from, &to);
            let mut waiting = lock(&to);
            waiting.ended = true;
            // Clearing tells all waiting threads.
            waiting.of.clear();
        })?;
        Ok(Self {
            stream: Mutex::new(stream),
            waiting,
        })
    }

    /// Asks, and waits for the answer. Others may ask meanwhile.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn ask<T: DeserializeOwned>(&self, question: &Question) -> io::Result<T> {
        let (sender, receiver) = sync_channel(1);
        let number = {
            let mut waiting = lock(&self.waiting);
            if waiting.ended {
                return Err(gone());
            }
            let number = waiting.next;
            waiting.next = number.wrapping_add(1);
            waiting.of.insert(number, sender);
            number
        };
        let sent = Frame::new(number, question).and_then(|it| it.write(&mut *lock(&self.stream)));
        if let Err(error) = sent {
            lock(&self.waiting).of.remove(&number);
            return Err(error);
        }
        receiver.recv().map_err(|_| gone())?.parse()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The thread that reads has the other half, and ends by this.
        let _ = lock(&self.stream).shutdown(Shutdown::Both);
    }
}

/// Hands answers to those who wait for them, until there are no more.
fn read(mut stream: UnixStream, waiting: &Mutex<Waiting>) {
    while let Ok(Some(frame)) = Frame::read(&mut stream, ANSWER_MAX) {
        let sender = lock(waiting).of.remove(&frame.number);
        if let Some(sender) = sender {
            let _ = sender.send(frame);
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
