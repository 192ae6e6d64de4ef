//! The process with privileges: answers questions of the front, and decides who may ask.
//!
//! The front is not trusted: it may ask anything, but changes need a session, and only the password starts one. Four
//! threads answer, each doing one thing at a time. So checks of a session, and all other questions, never wait for a
//! password (a quarter of a second), for locked files, or for a hanging tunnel.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;

use crate::frame::{Frame, QUESTION_MAX};
use crate::question::{AtHome, Begin, Question, Refused};
use crate::rights::Rights;
use crate::sample::Sample;
use config::types::Secret;

/// Maximum number of questions about the host that wait: one for each of the front's connections, and one of its own.
const WAITING: usize = 32;

/// Maximum number of passwords that wait: the front has one password checked at a time.
const PASSWORDS: usize = 1;

/// Answers the questions that need privileges.
pub trait Source: Send {
    /// The state of the tunnels and the guard.
    fn sample(&mut self) -> Sample;
    /// The saved text of the day's rates.
    fn day(&mut self) -> String;
    /// Saves the text of the day's rates.
    fn keep(&mut self, day: String);
}

/// Answers the front's questions until it closes the connection. `servers` answers those about servers at home.
///
/// # Errors
/// The front sends an invalid question, or too many at once.
pub fn answer(
    stream: &UnixStream,
    rights: &Rights,
    source: &mut impl Source,
    servers: impl FnMut(AtHome) -> Result<Value, String> + Send,
) -> io::Result<()> {
    let out = Out {
        stream: Mutex::new(stream),
    };
    let out = &out;
    thread::scope(|scope| {
        let (to_host, of_host) = sync_channel(WAITING);
        let (to_home, of_home) = sync_channel(WAITING);
        let (to_door, of_door) = sync_channel(PASSWORDS);
        scope.spawn(move || host(of_host, rights, source, out));
        scope.spawn(move || home(of_home, rights, servers, out));
        scope.spawn(move || door(of_door, rights, out));
        // The threads end when this block drops their channels.
        let ended = read(stream, rights, out, [&to_host, &to_home], &to_door);
        let _ = stream.shutdown(Shutdown::Both);
        ended
    })
}

/// The socket that answers go to.
struct Out<'a> {
    stream: Mutex<&'a UnixStream>,
}

impl Out<'_> {
    fn tell(&self, number: u32, value: &impl Serialize) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let told = Frame::new(number, value).and_then(|it| it.write(&mut *stream));
        if told.is_err() {
            // After a partial answer, the front could not parse a later one.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Reads the front's questions. Answers the quick ones at once, and passes the others to the threads.
fn read(
    mut stream: &UnixStream,
    rights: &Rights,
    out: &Out<'_>,
    [host, home]: [&SyncSender<(u32, Question)>; 2],
    door: &SyncSender<(u32, Secret)>,
) -> io::Result<()> {
    while let Some(frame) = Frame::read(&mut stream, QUESTION_MAX)? {
        let number = frame.number;
        let now = Instant::now();
        let has_room = match frame.parse()? {
            Question::Session(it) => {
                out.tell(number, &rights.has(it.expose(), now));
                true
            }
            Question::End(it) => {
                rights.end(it.expose());
                out.tell(number, &());
                true
            }
            Question::Known(it) => {
                out.tell(number, &rights.is_known(it.expose()));
                true
            }
            Question::Login(password) => door.try_send((number, password)).is_ok(),
            it @ Question::AtHome { .. } => home.try_send((number, it)).is_ok(),
            other => host.try_send((number, other)).is_ok(),
        };
        if !has_room {
            return Err(io::Error::other("too many questions at once"));
        }
    }
    Ok(())
}

/// Checks passwords, one after the other.
fn door(passwords: Receiver<(u32, Secret)>, rights: &Rights, out: &Out<'_>) {
    for (number, password) in passwords {
        out.tell(number, &rights.login(password.expose(), Instant::now()));
    }
}

/// Answers questions about the host.
fn host(
    questions: Receiver<(u32, Question)>,
    rights: &Rights,
    source: &mut impl Source,
    out: &Out<'_>,
) {
    for (number, question) in questions {
        match question {
            Question::Begin => {
                let begin = Begin {
                    day: source.day(),
                    password: rights.has_password(),
                };
                out.tell(number, &begin);
            }
            Question::Sample => out.tell(number, &source.sample()),
            Question::Keep(day) => {
                source.keep(day);
                out.tell(number, &());
            }
            // Another thread answers these.
            _ => {}
        }
    }
}

/// Answers questions about the servers at home, and changes their clients.
fn home(
    questions: Receiver<(u32, Question)>,
    rights: &Rights,
    mut servers: impl FnMut(AtHome) -> Result<Value, String>,
    out: &Out<'_>,
) {
    for (number, question) in questions {
        // Another thread answers all others.
        let Question::AtHome { session, asked } = question else {
            continue;
        };
        let (session, now) = (session.as_ref(), Instant::now());
        let may = match asked.method.as_str() {
            AtHome::PEERS => rights.may_see(session, now),
            _ => rights.may_change(session, now),
        };
        let told = may.and_then(|()| match asked.is_bounded() {
            true => servers(asked).map_err(Refused::Because),
            false => Err(Refused::Because("too long".to_owned())),
        });
        out.tell(number, &told);
    }
}
