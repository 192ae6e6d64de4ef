//! The ubus daemon, as a client that calls methods sees it.

use openwrt::blob::Value;
use openwrt::ubus::{Decoder, Message, Status, attr, kind};
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Answers calls, given path, method and arguments.
pub(super) type Answer =
    dyn Fn(&str, &str, &[(String, Value)]) -> (Status, Option<Vec<(String, Value)>>) + Send + Sync;

/// Tells whether an object exists.
pub(super) type Known = dyn Fn(&str) -> bool + Send + Sync;

/// How often the daemon checks whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Answers of interfaces to `status`, by name.
pub type States = Arc<Mutex<BTreeMap<String, serde_json::Value>>>;

/// A daemon that listens for clients.
pub struct Bus {
    path: PathBuf,
    over: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<UnixStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Bus {
    /// Starts a daemon at a socket path, with netifd's interfaces in these states.
    pub fn with_states(path: &Path, states: States) -> Self {
        let name = |path: &str| path.strip_prefix("network.interface.").map(str::to_owned);
        let known = Arc::clone(&states);
        let known =
            move |path: &str| name(path).is_some_and(|it| known.lock().unwrap().contains_key(&it));
        let answer = move |path: &str, method: &str, _: &[(String, Value)]| {
            let states = states.lock().unwrap();
            let state = name(path).and_then(|it| states.get(&it).map(blob_of));
            match method {
                "status" => (Status::Ok, state.map(|it| it.fields().to_vec())),
                _ => (Status::MethodNotFound, None),
            }
        };
        Self::start(path, Arc::new(known), Arc::new(answer))
    }

    /// Starts a daemon at a socket path.
    pub(super) fn start(path: &Path, known: Arc<Known>, answer: Arc<Answer>) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (over, streams) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let thread = thread::spawn({
            let (over, streams) = (Arc::clone(&over), Arc::clone(&streams));
            move || accept(&listener, &over, &streams, &known, &answer)
        });
        Self {
            path: path.to_owned(),
            over,
            streams,
            thread: Some(thread),
        }
    }
}

/// A JSON value as ubus has it.
fn blob_of(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Object(fields) => {
            let fields = fields.iter();
            Value::Table(
                fields
                    .map(|(name, it)| (name.clone(), blob_of(it)))
                    .collect(),
            )
        }
        serde_json::Value::Array(items) => Value::Array(items.iter().map(blob_of).collect()),
        serde_json::Value::Bool(yes) => Value::flag(*yes),
        serde_json::Value::String(text) => Value::text(text),
        _ => Value::Null,
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn accept(
    listener: &UnixListener,
    over: &AtomicBool,
    streams: &Mutex<Vec<UnixStream>>,
    known: &Arc<Known>,
    answer: &Arc<Answer>,
) {
    let mut number = 0x1000;
    while !over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                number += 1;
                let (known, answer) = (Arc::clone(known), Arc::clone(answer));
                // The thread ends with its connection.
                thread::spawn(move || serve(stream, number, &*known, &*answer));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(LOOK),
            Err(error) => panic!("{error}"),
        }
    }
}

fn serve(mut stream: UnixStream, number: u32, known: &Known, answer: &Answer) {
    let hello = Message::new(kind::HELLO, 0, number);
    let mut decoder = Decoder::default();
    let mut objects: Vec<String> = Vec::new();
    let mut out = hello.to_bytes();
    let mut bytes = [0; 4096];
    loop {
        if stream.write_all(&out).is_err() {
            return;
        }
        out.clear();
        match stream.read(&mut bytes) {
            Ok(count) if count > 0 => decoder.push(&bytes[..count]),
            _ => return,
        }
        while let Some(message) = decoder.next().unwrap() {
            let reply = match message.kind {
                kind::LOOKUP => look_up(&message, &mut objects, known),
                kind::INVOKE => invoke(&message, &objects, answer),
                _ => vec![status(&message, Status::InvalidCommand)],
            };
            reply.iter().for_each(|it| out.extend(it.to_bytes()));
        }
    }
}

fn status(to: &Message, status: Status) -> Message {
    Message::new(kind::STATUS, to.number, to.peer).number(attr::STATUS, status.number())
}

fn look_up(message: &Message, objects: &mut Vec<String>, known: &Known) -> Vec<Message> {
    let path = message.text_of(attr::OBJECT_PATH).unwrap_or_default();
    if !known(&path) {
        return vec![status(message, Status::NotFound)];
    }
    objects.push(path.clone());
    let found = Message::new(kind::DATA, message.number, message.peer)
        .text(attr::OBJECT_PATH, &path)
        .number(attr::OBJECT, objects.len() as u32);
    vec![found, status(message, Status::Ok)]
}

fn invoke(message: &Message, objects: &[String], answer: &Answer) -> Vec<Message> {
    let object = message.number_of(attr::OBJECT).unwrap_or_default() as usize;
    let Some(path) = objects.get(object.wrapping_sub(1)) else {
        return vec![status(message, Status::NotFound)];
    };
    let method = message.text_of(attr::METHOD).unwrap_or_default();
    let (how, data) = answer(path, &method, &message.data_of().unwrap_or_default());
    let data = data.map(|it| Message::new(kind::DATA, message.number, message.peer).data(&it));
    data.into_iter().chain([status(message, how)]).collect()
}
