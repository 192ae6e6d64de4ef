//! The front's connection to the process with privileges; many threads may ask at once.

use plane::lock;
use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use serde::de::DeserializeOwned;

use crate::frame::{ANSWER_MAX, Frame};
use crate::question::Question;

/// Bytes of the stack of the thread that reads answers.
const STACK: usize = 64 << 10;

/// A connection to the process with privileges.
pub struct Link {
    stream: Mutex<UnixStream>,
    waiting: Arc<Mutex<Waiting>>,
}

/// Threads that wait for an answer, by the numbers of their questions.
#[derive(Default)]
struct Waiting {
    next: u32,
    of: BTreeMap<u32, SyncSender<Frame>>,
    /// Whether the connection has ended.
    ended: bool,
}

impl Link {
    /// Starts a thread that reads answers from the socket.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        let waiting = Arc::<Mutex<Waiting>>::default();
        let (from, to) = (stream.try_clone()?, Arc::clone(&waiting));
        let reader = thread::Builder::new().name("answers".to_owned());
        reader.stack_size(STACK).spawn(move || {
            read(from, &to);
            let mut waiting = lock(&to);
            waiting.ended = true;
            // Dropping the senders wakes all waiting threads.
            waiting.of.clear();
        })?;
        Ok(Self {
            stream: Mutex::new(stream),
            waiting,
        })
    }

    /// Asks, and waits for the answer. Other threads may ask meanwhile.
    ///
    /// # Errors
    /// The other process is gone.
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
        // The reading thread has a copy of the socket, and ends by this.
        let _ = lock(&self.stream).shutdown(Shutdown::Both);
    }
}

/// Passes answers to the threads that wait for them, until the connection ends.
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
