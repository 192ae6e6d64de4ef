//! The two processes of the monitor: the front gets answers, and no permission that the password has not granted.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use config::types::Secret;
use monitor::back::{Source, answer};
use monitor::frame::Frame;
use monitor::link::Link;
use monitor::password::Password;
use monitor::question::{AtHome, Begin, Login, Question, Refused};
use monitor::rights::Rights;
use monitor::sample::Sample;
use proptest::prelude::*;
use serde_json::{Value, json};

const PASSWORD: &str = "correct horse";

/// A hash of PASSWORD with the fewest rounds.
fn password() -> Password {
    // 100,000 rounds; made by another program (Python's hashlib.pbkdf2_hmac).
    Password::from_text(include_str!("password.txt")).unwrap()
}

/// A host stub that records changes to it.
#[derive(Clone, Default)]
struct Double {
    kept: String,
    changed: Arc<Mutex<Vec<AtHome>>>,
    /// If set, each change waits for a message on this channel.
    held: Option<Arc<Mutex<Receiver<()>>>>,
}

impl Source for Double {
    fn sample(&mut self) -> Sample {
        Sample {
            trouble: Some("none".to_owned()),
            ..Sample::default()
        }
    }
    fn day(&mut self) -> String {
        self.kept.clone()
    }
    fn keep(&mut self, day: String) {
        self.kept = day;
    }
}

impl Double {
    fn at_home(&self, asked: AtHome) -> Result<Value, String> {
        if asked.method == AtHome::PEERS {
            return Ok(json!(["home"]));
        }
        if let Some(held) = &self.held {
            let _ = held.lock().unwrap().recv();
        }
        let answer = match asked.given["name"].as_str() {
            Some("absent") => Err("there is no such client".to_owned()),
            name => Ok(json!({"said": name})),
        };
        self.changed.lock().unwrap().push(asked);
        answer
    }
}

/// Starts the privileged process.
fn back(password: Option<Password>, mut double: Double) -> (UnixStream, thread::JoinHandle<bool>) {
    let (front, back) = UnixStream::pair().unwrap();
    let rights = Rights::new(password);
    let answering = thread::spawn(move || {
        let servers = double.clone();
        answer(&back, &rights, &mut double, |asked| servers.at_home(asked)).is_ok()
    });
    (front, answering)
}

fn at_home(session: Option<&Secret>, method: &str, given: Value) -> Question {
    Question::AtHome {
        session: session.cloned(),
        asked: AtHome {
            method: method.to_owned(),
            given,
        },
    }
}

fn change(session: &Secret, name: &str) -> Question {
    at_home(Some(session), "peer_add", json!({"name": name}))
}

fn server(session: &Secret, endpoint: &str) -> Question {
    at_home(Some(session), "server_init", json!({"endpoint": endpoint}))
}

#[test]
fn questions_get_their_own_answers() {
    let (front, answering) = back(None, Double::default());
    let link = Link::new(front).unwrap();
    let begin: Begin = link.ask(&Question::Begin).unwrap();
    assert!(!begin.password && begin.day.is_empty());
    let sample: Sample = link.ask(&Question::Sample).unwrap();
    assert_eq!(sample.trouble.as_deref(), Some("none"));
    let (): () = link.ask(&Question::Keep("day".to_owned())).unwrap();
    assert_eq!(link.ask::<Begin>(&Question::Begin).unwrap().day, "day");
    let servers = at_home(None, AtHome::PEERS, Value::Null);
    let servers: Result<Value, Refused> = link.ask(&servers).unwrap();
    assert_eq!(servers, Ok(json!(["home"])));
    // Without the password, a request changes nothing.
    let told: Result<Value, Refused> = link.ask(&change(&"x".into(), "phone")).unwrap();
    assert_eq!(told, Err(Refused::Open));
    drop(link);
    assert!(answering.join().unwrap());
}

/// The process that reads requests changes nothing without the password, whatever else it knows.
#[test]
fn only_a_session_that_the_password_began_changes_something() {
    let double = Double::default();
    let (front, answering) = back(Some(password()), double.clone());
    let link = Link::new(front).unwrap();
    assert!(link.ask::<Begin>(&Question::Begin).unwrap().password);
    let login = |text: &str| {
        link.ask::<Option<Login>>(&Question::Login(text.into()))
            .unwrap()
    };
    assert_eq!(login("a guess of many"), None);
    for forged in ["", "guess", PASSWORD] {
        let forged = Secret::from(forged);
        let told: Result<Value, Refused> = link.ask(&change(&forged, "phone")).unwrap();
        assert_eq!(told, Err(Refused::Session));
        let told: Result<Value, Refused> = link.ask(&server(&forged, "home")).unwrap();
        assert_eq!(told, Err(Refused::Session));
        for session in [None, Some(forged.clone())] {
            let told: Result<Value, Refused> = link
                .ask(&at_home(session.as_ref(), AtHome::PEERS, Value::Null))
                .unwrap();
            assert_eq!(told, Err(Refused::Session));
        }
        assert!(!link.ask::<bool>(&Question::Session(forged)).unwrap());
    }
    assert!(double.changed.lock().unwrap().is_empty());

    let login = login(PASSWORD).unwrap();
    let session = login.session;
    assert!(
        link.ask::<bool>(&Question::Session(session.clone()))
            .unwrap()
    );
    assert!(link.ask::<bool>(&Question::Known(login.known)).unwrap());
    let told: Result<Value, Refused> = link.ask(&change(&session, "phone")).unwrap();
    assert_eq!(told, Ok(json!({"said": "phone"})));
    let told: Result<Value, Refused> = link.ask(&change(&session, "absent")).unwrap();
    let why = Refused::Because("there is no such client".to_owned());
    assert_eq!(told, Err(why));
    let told: Result<Value, Refused> = link.ask(&server(&session, "home")).unwrap();
    assert!(told.is_ok());
    let long = server(&session, &"a".repeat(5000));
    assert!(link.ask::<Result<Value, Refused>>(&long).unwrap().is_err());
    let (): () = link.ask(&Question::End(session.clone())).unwrap();
    let told: Result<Value, Refused> = link.ask(&change(&session, "phone")).unwrap();
    assert_eq!(told, Err(Refused::Session));
    assert_eq!(double.changed.lock().unwrap().len(), 3);
    drop(link);
    assert!(answering.join().unwrap());
}

/// Session checks are answered while a change waits for a lock, and while a password is being verified.
#[test]
fn sessions_wait_for_nothing() {
    let (release, held): (Sender<()>, _) = channel();
    let double = Double {
        held: Some(Arc::new(Mutex::new(held))),
        ..Double::default()
    };
    let (front, answering) = back(Some(password()), double);
    let link = Arc::new(Link::new(front).unwrap());
    let login: Option<Login> = link.ask(&Question::Login(PASSWORD.into())).unwrap();
    let session = login.unwrap().session;
    let (asking, question) = (Arc::clone(&link), change(&session, "phone"));
    let changing = thread::spawn(move || asking.ask::<Result<Value, Refused>>(&question).unwrap());
    assert!(
        link.ask::<bool>(&Question::Session(session.clone()))
            .unwrap()
    );
    let again: Option<Login> = link.ask(&Question::Login(PASSWORD.into())).unwrap();
    // The page's own status query does not wait either.
    let sample: Sample = link.ask(&Question::Sample).unwrap();
    assert!(sample.trouble.is_some());
    assert!(again.is_some() && !changing.is_finished());
    release.send(()).unwrap();
    assert!(changing.join().unwrap().is_ok());
    drop(link);
    assert!(answering.join().unwrap());
}

#[test]
fn those_who_wait_are_told_that_the_other_end_is_gone() {
    let (front, back) = UnixStream::pair().unwrap();
    let link = Arc::new(Link::new(front).unwrap());
    let asking = Arc::clone(&link);
    let asked = thread::spawn(move || asking.ask::<Sample>(&Question::Sample).is_err());
    let mut reader = &back;
    let _question = Frame::read(&mut reader, 100).unwrap().unwrap();
    drop(back);
    assert!(asked.join().unwrap());
    assert!(link.ask::<Sample>(&Question::Sample).is_err());
}

#[test]
fn what_is_no_question_ends_it() {
    for message in [
        &b"\xff\xff\xff\xff\0\0\0\0"[..],
        b"\0\0\0\x02\0\0\0\0{}",
        b"\0\0\0\x09\0\0\0\0\"nothing\"",
    ] {
        let (mut front, answering) = back(None, Double::default());
        front.write_all(message).unwrap();
        drop(front);
        assert!(!answering.join().unwrap(), "{message:?}");
    }
}

/// A front that sends queries without reading answers cannot exhaust the memory.
#[test]
fn too_many_questions_at_once_end_it() {
    let (release, held): (Sender<()>, _) = channel();
    let double = Double {
        held: Some(Arc::new(Mutex::new(held))),
        ..Double::default()
    };
    let (mut front, answering) = back(Some(password()), double);
    let ask = |stream: &mut UnixStream, number: u32, question: &Question| {
        Frame::new(number, question).unwrap().write(stream)
    };
    ask(&mut front, 0, &Question::Login(PASSWORD.into())).unwrap();
    let login = Frame::read(&mut front, 1000).unwrap().unwrap();
    let session = login.parse::<Option<Login>>().unwrap().unwrap().session;
    let mut number = 1;
    while ask(&mut front, number, &change(&session, "phone")).is_ok() && number < 100 {
        number += 1;
    }
    // It ends while the first query is still pending: with an earlier release, each answer could precede the next read.
    front
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    assert_eq!(front.read(&mut [0]).unwrap(), 0);
    drop(release);
    assert!(!answering.join().unwrap());
}

/// Valid and nearly valid queries in a session that does not exist.
fn any_question() -> impl Strategy<Value = Vec<u8>> {
    let text = "[a-zA-Z0-9{}\":, ]{0,20}";
    let session = (text, text).prop_map(|(session, name)| {
        serde_json::to_vec(&change(&session.as_str().into(), &name)).unwrap()
    });
    let making = (text, text).prop_map(|(session, endpoint)| {
        serde_json::to_vec(&server(&session.as_str().into(), &endpoint)).unwrap()
    });
    let body = prop_oneof![
        making,
        proptest::collection::vec(any::<u8>(), 0..60),
        session,
        text.prop_map(|it| serde_json::to_vec(&Question::Session(it.as_str().into())).unwrap()),
        text.prop_map(|it| serde_json::to_vec(&Question::Known(it.as_str().into())).unwrap()),
        Just(b"\"sample\"".to_vec()),
    ];
    (body, any::<u32>(), -2..3_i32).prop_map(|(body, number, off)| {
        let length = u32::try_from(body.len())
            .unwrap()
            .saturating_add_signed(off);
        [&length.to_be_bytes()[..], &number.to_be_bytes(), &body].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Arbitrary queries from a front without the password cause no panic, and change nothing.
    #[test]
    fn a_front_that_was_taken_over_changes_nothing(questions in proptest::collection::vec(any_question(), 1..8)) {
        let double = Double::default();
        let (mut front, answering) = back(Some(password()), double.clone());
        for question in questions {
            // The other process may have closed the connection already.
            let _ = front.write_all(&question);
        }
        let _ = front.shutdown(std::net::Shutdown::Write);
        let _ = std::io::copy(&mut front, &mut std::io::sink());
        answering.join().unwrap();
        prop_assert!(double.changed.lock().unwrap().is_empty());
    }
}
