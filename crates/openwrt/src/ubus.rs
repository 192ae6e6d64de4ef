//! ubus: messages between ubusd and its clients, and a client without I/O.
//!
//! A message is a head of 8 bytes (version 0, type, number, peer; most significant byte first) and one attribute that
//! holds all others. The daemon greets first. Answers have their request's number: any data messages first, then a
//! status.

use crate::blob::{self, Attribute, Attributes, HEAD, Malformed, Value};
use std::collections::VecDeque;
use std::fmt;

/// Where the daemon listens, on releases since 2021 and on older ones.
pub const SOCKETS: [&str; 2] = ["/var/run/ubus/ubus.sock", "/var/run/ubus.sock"];

/// Largest accepted message, in bytes. Answers to the calls made here have a few thousand.
pub const MESSAGE_MAX: usize = 256 << 10;

/// Maximum number of queued calls.
pub const CALLS_MAX: usize = 16;

/// Bytes of a message's head.
const MESSAGE_HEAD: usize = 8;

/// Message types.
pub mod kind {
    /// The daemon's greeting; its peer is the client's number.
    pub const HELLO: u8 = 0;
    /// A request's final status.
    pub const STATUS: u8 = 1;
    /// An answer's data.
    pub const DATA: u8 = 2;
    /// Looks objects up by path.
    pub const LOOKUP: u8 = 4;
    /// Calls a method.
    pub const INVOKE: u8 = 5;
    /// Publishes an object.
    pub const ADD_OBJECT: u8 = 6;
}

/// Attribute ids.
pub mod attr {
    /// A status.
    pub const STATUS: u8 = 1;
    /// An object's path.
    pub const OBJECT_PATH: u8 = 2;
    /// An object's number.
    pub const OBJECT: u8 = 3;
    /// A method's name.
    pub const METHOD: u8 = 4;
    /// Arguments or results.
    pub const DATA: u8 = 7;
}

/// Status of a finished call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Success.
    Ok,
    /// The message makes no sense.
    InvalidCommand,
    /// An argument is wrong or missing.
    InvalidArgument,
    /// The object has no such method.
    MethodNotFound,
    /// The object, or the requested item, does not exist.
    NotFound,
    /// There is no data.
    NoData,
    /// The call is not allowed now, or not for this user.
    PermissionDenied,
    /// The object did not answer.
    TimeOut,
    /// The operation is not supported here.
    NotSupported,
    /// Any other error.
    UnknownError,
    /// The daemon could not reach the object.
    ConnectionFailed,
    /// A status number without a name.
    Other(u32),
}

impl Status {
    const NAMED: [Self; 11] = [
        Self::Ok,
        Self::InvalidCommand,
        Self::InvalidArgument,
        Self::MethodNotFound,
        Self::NotFound,
        Self::NoData,
        Self::PermissionDenied,
        Self::TimeOut,
        Self::NotSupported,
        Self::UnknownError,
        Self::ConnectionFailed,
    ];

    /// The status for a number.
    #[must_use]
    pub fn of(number: u32) -> Self {
        let named = usize::try_from(number)
            .ok()
            .and_then(|it| Self::NAMED.get(it));
        named.copied().unwrap_or(Self::Other(number))
    }

    /// Number of the status in ubus messages.
    #[must_use]
    pub fn number(self) -> u32 {
        match (self, Self::NAMED.iter().position(|it| *it == self)) {
            (_, Some(at)) => at as u32,
            (Self::Other(number), None) => number,
            _ => Self::UnknownError.number(),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Ok => "done",
            Self::InvalidCommand => "invalid command",
            Self::InvalidArgument => "invalid argument",
            Self::MethodNotFound => "method not found",
            Self::NotFound => "not found",
            Self::NoData => "no response",
            Self::PermissionDenied => "permission denied",
            Self::TimeOut => "request timed out",
            Self::NotSupported => "not supported",
            Self::UnknownError => "unknown error",
            Self::ConnectionFailed => "connection failed",
            Self::Other(number) => return write!(f, "status {number}"),
        };
        f.write_str(words)
    }
}

/// A ubus message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The type; see [`kind`].
    pub kind: u8,
    /// Sequence number of the request.
    pub number: u16,
    /// The client or object that the message comes from or goes to.
    pub peer: u32,
    /// Content of the message's one attribute: attributes of [`attr`].
    pub body: Vec<u8>,
}

impl Message {
    /// Makes a message without attributes.
    #[must_use]
    pub fn new(kind: u8, number: u16, peer: u32) -> Self {
        Self {
            kind,
            number,
            peer,
            body: Vec::new(),
        }
    }

    /// Adds a number attribute.
    #[must_use]
    pub fn number(mut self, id: u8, number: u32) -> Self {
        blob::attribute(id, false, &mut self.body, |out| {
            out.extend_from_slice(&number.to_be_bytes());
        });
        self
    }

    /// Adds a text attribute.
    #[must_use]
    pub fn text(mut self, id: u8, text: &str) -> Self {
        blob::attribute(id, false, &mut self.body, |out| {
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        });
        self
    }

    /// Adds arguments or results.
    #[must_use]
    pub fn data(mut self, fields: &[(String, Value)]) -> Self {
        blob::attribute(attr::DATA, false, &mut self.body, |out| {
            out.extend_from_slice(&blob::to_bytes(fields));
        });
        self
    }

    /// Returns a number attribute, if the message has it.
    #[must_use]
    pub fn number_of(&self, id: u8) -> Option<u32> {
        blob::number(self.attribute(id)?).ok()
    }

    /// Returns a text attribute, if the message has it.
    #[must_use]
    pub fn text_of(&self, id: u8) -> Option<String> {
        blob::text(self.attribute(id)?).ok()
    }

    /// Returns the arguments or results, if the message has them.
    #[must_use]
    pub fn data_of(&self) -> Option<Vec<(String, Value)>> {
        blob::from_bytes(self.attribute(attr::DATA)?).ok()
    }

    fn attribute(&self, id: u8) -> Option<&[u8]> {
        let mut all = Attributes(&self.body).map_while(Result::ok);
        all.find(|it| it.id == id).map(|it| it.data)
    }

    /// The message as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0, self.kind];
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.peer.to_be_bytes());
        blob::attribute(0, false, &mut out, |out| out.extend_from_slice(&self.body));
        out
    }
}

/// Decodes messages from a stream of bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: VecDeque<u8>,
}

impl Decoder {
    /// Takes received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Returns the next message, if it is complete.
    ///
    /// # Errors
    /// [`Malformed`], or longer than [`MESSAGE_MAX`]: later messages cannot be read either.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator does not resume after `None`, but this one does"
    )]
    pub fn next(&mut self) -> Result<Option<Message>, Malformed> {
        let bytes = self.bytes.make_contiguous();
        let Some(head) = bytes.get(..MESSAGE_HEAD + HEAD) else {
            return Ok(None);
        };
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (first, peer) = (word(0), word(4));
        let len = (word(MESSAGE_HEAD) & 0x00ff_ffff) as usize;
        if first >> 24 != 0 || !(HEAD..=MESSAGE_MAX).contains(&len) {
            return Err(Malformed);
        }
        // libubus sends this length without the final padding.
        let Some(body) = bytes.get(MESSAGE_HEAD..MESSAGE_HEAD + len) else {
            return Ok(None);
        };
        let (attribute, _) = Attribute::read(body)?;
        let message = Message {
            kind: (first >> 16) as u8,
            number: first as u16,
            peer,
            body: attribute.data.to_vec(),
        };
        self.bytes.drain(..MESSAGE_HEAD + len);
        Ok(Some(message))
    }
}

/// An event from the client.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The daemon has greeted: calls can be sent.
    Greeted,
    /// A call has ended.
    Ended {
        /// The number that [`Client::call`] returned.
        call: u64,
        /// Status that ended the call.
        status: Status,
        /// The method's result, a table; [`Value::Null`] if there is none.
        data: Value,
    },
}

#[derive(Debug)]
struct Call {
    id: u64,
    path: String,
    method: String,
    arguments: Vec<(String, Value)>,
}

/// Progress of the call at the head of the queue.
#[derive(Debug)]
enum Stage {
    /// The call is not sent yet.
    Idle,
    /// Looking up the call's object.
    LookedUp(Option<u32>),
    /// Calling the object's method.
    Called(Value),
}

/// One connection of a client. It makes one call at a time, and looks the object up before each: a restarted object
/// has another number.
#[derive(Debug)]
pub struct Client {
    decoder: Decoder,
    greeted: bool,
    calls: VecDeque<Call>,
    stage: Stage,
    /// Number of the current request.
    number: u16,
    last: u64,
    out: Vec<u8>,
    events: VecDeque<Event>,
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// Makes a client for a new connection.
    #[must_use]
    pub fn new() -> Self {
        Self {
            decoder: Decoder::default(),
            greeted: false,
            calls: VecDeque::new(),
            stage: Stage::Idle,
            number: 0,
            last: 0,
            out: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Calls a method of the object at `path`. Returns the call's number; `None` if [`CALLS_MAX`] calls wait.
    pub fn call(
        &mut self,
        path: &str,
        method: &str,
        arguments: Vec<(String, Value)>,
    ) -> Option<u64> {
        if self.calls.len() >= CALLS_MAX {
            return None;
        }
        self.last += 1;
        self.calls.push_back(Call {
            id: self.last,
            path: path.to_owned(),
            method: method.to_owned(),
            arguments,
        });
        self.go_on();
        Some(self.last)
    }

    /// Takes bytes from the daemon.
    ///
    /// # Errors
    /// [`Malformed`]: close the connection.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.decoder.push(bytes);
        while let Some(message) = self.decoder.next()? {
            self.take(&message);
        }
        Ok(())
    }

    /// Returns the next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes to send to the daemon.
    #[must_use]
    pub fn transmit(&self) -> &[u8] {
        &self.out
    }

    /// Drops the first `len` bytes to send, which were sent.
    pub fn transmitted(&mut self, len: usize) {
        self.out.drain(..len.min(self.out.len()));
    }

    fn take(&mut self, message: &Message) {
        if message.kind == kind::HELLO {
            if !std::mem::replace(&mut self.greeted, true) {
                self.events.push_back(Event::Greeted);
                self.go_on();
            }
            return;
        }
        // A late answer to an earlier call.
        if message.number != self.number {
            return;
        }
        match (message.kind, &mut self.stage) {
            (kind::DATA, Stage::LookedUp(object)) => {
                *object = object.or(message.number_of(attr::OBJECT));
            }
            (kind::DATA, Stage::Called(data)) => {
                if let Some(fields) = message.data_of() {
                    *data = Value::Table(fields);
                }
            }
            (kind::STATUS, stage) => {
                let status = message.number_of(attr::STATUS);
                let status = status.map_or(Status::UnknownError, Status::of);
                let stage = std::mem::replace(stage, Stage::Idle);
                self.answered(stage, status);
            }
            _ => {}
        }
    }

    /// Ends the current request.
    fn answered(&mut self, stage: Stage, status: Status) {
        let (status, data) = match stage {
            Stage::Idle => return,
            Stage::LookedUp(Some(object)) if status == Status::Ok => return self.invoke(object),
            Stage::LookedUp(_) if status == Status::Ok => (Status::NotFound, Value::Null),
            Stage::LookedUp(_) => (status, Value::Null),
            Stage::Called(data) => (status, data),
        };
        if let Some(call) = self.calls.pop_front() {
            let call = call.id;
            self.events.push_back(Event::Ended { call, status, data });
        }
        self.go_on();
    }

    fn go_on(&mut self) {
        if let (true, Stage::Idle, Some(call)) = (self.greeted, &self.stage, self.calls.front()) {
            self.number = self.number.wrapping_add(1);
            let lookup = Message::new(kind::LOOKUP, self.number, 0);
            let lookup = lookup.text(attr::OBJECT_PATH, &call.path);
            self.out.extend_from_slice(&lookup.to_bytes());
            self.stage = Stage::LookedUp(None);
        }
    }

    fn invoke(&mut self, object: u32) {
        if let Some(call) = self.calls.front() {
            self.number = self.number.wrapping_add(1);
            let invoke = Message::new(kind::INVOKE, self.number, object)
                .number(attr::OBJECT, object)
                .text(attr::METHOD, &call.method)
                .data(&call.arguments);
            self.out.extend_from_slice(&invoke.to_bytes());
            self.stage = Stage::Called(Value::Null);
        }
    }
}

#[cfg(test)]
mod tests;
