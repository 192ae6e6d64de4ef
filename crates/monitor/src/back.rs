//! The process with privileges: what it answers, and to whom.
//!
//! The front is not trusted: it asks what it likes, and gets no change done without a session, which only the password
//! begins. Four threads answer, so that neither a password, which takes a quarter of a second, nor a server's files, which
//! another process may have locked, nor a tunnel that hangs hold up the others, or the question whether a session is one. Each
//! does one thing at a time.

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
use crate::question::{Begin, Change, Question, Refused, Server};
use crate::rights::Rights;
use crate::sample::Sample;
use crate::secret::Secret;

/// Questions about the host that wait. The front has one for each connection and one of its own.
const WAITING: usize = 32;

/// Passwords that wait: the front has one looked at at a time.
const PASSWORDS: usize = 1;

/// Answers the questions that need privileges.
pub trait Source: Send {
    /// How everything stands.
    fn sample(&mut self) -> Sample;
    /// The text of the day that was kept.
    fn day(&mut self) -> String;
    /// Keeps the text of the day.
    fn keep(&mut self, day: String);
}

/// Answers questions about the servers at home.
pub trait Servers: Send {
    /// The servers at home.
    fn servers(&mut self) -> Value;
    /// Changes a client.
    ///
    /// # Errors
    /// Why not, in words.
    fn change(&mut self, change: &Change) -> Result<Value, String>;
    /// Plans or makes a server at home.
    ///
    /// # Errors
    /// Why not, in words.
    fn server(&mut self, server: &Server) -> Result<Value, String>;
}

/// Answers what the other end asks, until it has no more questions.
///
/// # Errors
/// It asks what is no question, or too much at once.
pub fn answer(
    stream: &UnixStream,
    rights: &Rights,
    source: &mut impl Source,
    servers: &mut impl Servers,
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
        // The threads end when their channels do, behind this.
        let ended = read(stream, rights, out, [&to_host, &to_home], &to_door);
        let _ = stream.shutdown(Shutdown::Both);
        ended
    })
}

/// Where answers go.
struct Out<'a> {
    stream: Mutex<&'a UnixStream>,
}

impl Out<'_> {
    fn tell(&self, number: u32, value: &impl Serialize) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let told = Frame::new(number, value).and_then(|it| it.write(&mut *stream));
        if told.is_err() {
            // Half an answer: nothing that follows would be understood.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Reads what is asked. What takes no time is answered at once.
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
            it @ (Question::Servers { .. } | Question::Change { .. } | Question::Server { .. }) => {
                home.try_send((number, it)).is_ok()
            }
            other => host.try_send((number, other)).is_ok(),
        };
        if !has_room {
            return Err(io::Error::other("too many questions at once"));
        }
    }
    Ok(())
}

/// Looks at passwords, one after the other.
fn door(passwords: Receiver<(u32, Secret)>, rights: &Rights, out: &Out<'_>) {
    for (number, password) in passwords {
        out.tell(number, &rights.login(password.expose(), Instant::now()));
    }
}

/// Answers what is asked about the host.
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
            // Answered elsewhere.
            _ => {}
        }
    }
}

/// Answers what is asked about the servers at home, and changes them.
fn home(
    questions: Receiver<(u32, Question)>,
    rights: &Rights,
    servers: &mut impl Servers,
    out: &Out<'_>,
) {
    for (number, question) in questions {
        let now = Instant::now();
        match question {
            Question::Servers { session } => {
                let may = rights.may_see(session.as_ref(), now);
                out.tell(number, &may.map(|()| servers.servers()));
            }
            Question::Change { session, change } => {
                let may = rights.may_change(&session, now);
                let told = may.and_then(|()| servers.change(&change).map_err(Refused::Because));
                out.tell(number, &told);
            }
            Question::Server { session, server } => {
                let may = rights.may_change(&session, now);
                let told = may.and_then(|()| match server.is_bounded() {
                    true => servers.server(&server).map_err(Refused::Because),
                    false => Err(Refused::Because("too long".to_owned())),
                });
                out.tell(number, &told);
            }
            // Answered elsewhere.
            _ => {}
        }
    }
}
