//! The control connection as a state machine (RFC 2637, section 3.1).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::control::call::{Answer, Call, Calls, State as CallState};
use crate::control::codes::{DisconnectResult, ErrorCode, OutgoingResult, StopReason};
use crate::control::event::{CallEnd, CloseReason, Event};
use crate::control::fields::Stream;
use crate::control::message::{Disconnect, Host, Message, OutgoingReply, Text, VERSION};

/// Maximum number of bytes that may wait for a peer to read: more than the messages of all calls at once.
const MAX_TRANSMIT: usize = 16 * 1024;

/// Time for a client's first message, which it has ready before it connects.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that calls: PNS in the RFC.
    Client,
    /// The end that is called: PAC in the RFC.
    Server,
}

/// The settings of a connection.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our host name, for the peer's logs.
    pub name: String,
    /// Our vendor name, for the peer's logs.
    pub vendor: String,
    /// Receive window: unacknowledged packets that we accept.
    pub window: u16,
    /// Silence after which the peer gets an Echo-Request: 60 s in the RFC (section 3.1.4).
    pub echo_interval: Duration,
    /// Time for the reply to an Echo-Request, and to every other request: 60 s in the RFC.
    pub reply_timeout: Duration,
    /// Time for the peer to confirm the end of the connection.
    pub stop_timeout: Duration,
    /// Maximum number of calls on the connection.
    pub max_calls: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: String::new(),
            vendor: "millrace".into(),
            window: 64,
            echo_interval: Duration::from_secs(60),
            reply_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(3),
            max_calls: 16,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits until this time for the first message.
    Starting(Instant),
    Established,
    /// We asked to stop, and wait until this time for the confirmation.
    Stopping(Instant),
    Closed,
}

/// One control connection, client or server.
///
/// Received TCP bytes go in by [`receive`](Self::receive); [`transmit`](Self::transmit) holds bytes to send. Take the
/// events after each call.
#[derive(Debug)]
pub struct Connection {
    pub(super) role: Role,
    pub(super) settings: Settings,
    pub(super) state: State,
    pub(super) stream: Stream,
    pub(super) calls: Calls,
    /// When the last message of the peer arrived.
    pub(super) heard: Instant,
    /// An unanswered Echo-Request: its identifier, and the deadline for its answer.
    pub(super) echo: Option<(u32, Instant)>,
    echoes: u32,
    serial: u16,
    transmit: Vec<u8>,
    pub(super) events: VecDeque<Event>,
}

impl Connection {
    /// A control connection on a new TCP connection. A client sends the first message.
    #[must_use]
    pub fn new(role: Role, settings: Settings, now: Instant) -> Self {
        let start = match role {
            Role::Client => settings.reply_timeout,
            Role::Server => settings.reply_timeout.min(FIRST_MESSAGE),
        };
        let mut connection = Self {
            role,
            state: State::Starting(now + start),
            settings,
            stream: Stream::new(),
            calls: Calls::default(),
            heard: now,
            echo: None,
            echoes: 0,
            serial: 0,
            transmit: Vec::new(),
            events: VecDeque::new(),
        };
        if role == Role::Client {
            connection.send(&Message::StartRequest(connection.host()));
        }
        connection
    }

    /// Whether calls can be opened.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Bytes to send over TCP.
    #[must_use]
    pub fn transmit(&self) -> &[u8] {
        &self.transmit
    }

    /// Records that TCP has taken the first `len` bytes of [`transmit`](Self::transmit).
    pub fn transmitted(&mut self, len: usize) {
        self.transmit.drain(..len.min(self.transmit.len()));
    }

    /// Removes and returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Requests a call; [`Event::CallUp`] or [`Event::CallDown`] follows (RFC 2637, section 3.2.2). Returns false, and
    /// does nothing, at a server, before the connection is established, for an ID that is taken, and beyond
    /// [`Settings::max_calls`].
    pub fn open_call(&mut self, call_id: u16, now: Instant) -> bool {
        let possible = self.role == Role::Client
            && self.state == State::Established
            && !self.calls.by_id.contains_key(&call_id)
            && self.calls.len() < usize::from(self.settings.max_calls);
        if possible {
            self.serial = self.serial.wrapping_add(1);
            let until = now + self.settings.reply_timeout;
            let call = Call {
                state: CallState::Requested(until),
                peer_call_id: 0,
            };
            self.calls.by_id.insert(call_id, call);
            self.send(&Message::OutgoingCallRequest {
                call_id,
                serial: self.serial,
                window: self.settings.window,
            });
        }
        possible
    }

    /// Answers [`Event::CallRequested`]; with [`Answer::Accept`] the call is up when this returns true. Returns false,
    /// and leaves the request unanswered, for an ID that is taken; false, too, if there is no such request.
    pub fn answer_call(&mut self, peer_call_id: u16, answer: Answer) -> bool {
        let at = self.calls.offered.iter().position(|&id| id == peer_call_id);
        let Some(at) = at else {
            return false;
        };
        match answer {
            Answer::Accept { call_id } => {
                if self.calls.by_id.contains_key(&call_id) {
                    return false;
                }
                // A reply may close the connection, which forgets all requests.
                self.calls.offered.remove(at);
                let call = Call {
                    state: CallState::Up,
                    peer_call_id,
                };
                self.calls.by_id.insert(call_id, call);
                let result = OutgoingResult::Connected;
                self.reply_to_call(call_id, peer_call_id, result, ErrorCode::None);
            }
            Answer::Refuse { result, error } => {
                self.calls.offered.remove(at);
                self.reply_to_call(0, peer_call_id, result, error);
            }
        }
        true
    }

    /// Ends a call, if there is one with this ID (RFC 2637, sections 2.12 and 2.13): a client requests the end, a
    /// server announces it.
    pub fn clear_call(&mut self, call_id: u16, now: Instant) {
        let Some(call) = self.calls.by_id.get_mut(&call_id) else {
            return;
        };
        match self.role {
            Role::Client => {
                if !matches!(call.state, CallState::Clearing(_)) {
                    call.state = CallState::Clearing(now + self.settings.stop_timeout);
                    self.send(&Message::CallClearRequest { call_id });
                }
            }
            Role::Server => {
                self.send(&disconnect(call_id, DisconnectResult::AdminShutdown));
                self.end_call(call_id, CallEnd::Local);
            }
        }
    }

    /// Tells the peer of a call that is up that no characters need escaping (RFC 2637, section 2.15); some servers wait
    /// for this.
    pub fn set_link_info(&mut self, call_id: u16) {
        let call = self.calls.by_id.get(&call_id);
        if let Some(&Call { peer_call_id, .. }) = call.filter(|call| call.state == CallState::Up) {
            self.send(&Message::SetLinkInfo { peer_call_id });
        }
    }

    /// Ends the connection and its calls (RFC 2637, section 2.3). [`Event::Closed`] follows when the peer has confirmed
    /// it, or after a time-out.
    pub fn stop(&mut self, reason: StopReason, now: Instant) {
        match self.state {
            State::Established => {
                self.end_calls(CallEnd::Local);
                self.send(&Message::StopRequest(reason));
                if self.state == State::Established {
                    self.state = State::Stopping(now + self.settings.stop_timeout);
                }
            }
            State::Starting(_) => self.close(CloseReason::Local),
            State::Stopping(_) | State::Closed => {}
        }
    }

    /// Ends the connection and its calls at once, without telling the peer.
    pub fn abandon(&mut self, reason: CloseReason) {
        self.close(reason);
    }

    /// Records that the TCP connection has ended.
    pub fn stream_ended(&mut self) {
        let reason = match self.state {
            State::Stopping(_) => CloseReason::Local,
            _ => CloseReason::StreamEnded,
        };
        self.close(reason);
    }

    /// When [`expire`](Self::expire) must be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Starting(until) | State::Stopping(until) => Some(until),
            State::Established => {
                let echo = match self.echo {
                    Some((_, until)) => until,
                    None => self.heard + self.settings.echo_interval,
                };
                Some(self.calls.deadline().map_or(echo, |calls| calls.min(echo)))
            }
            State::Closed => None,
        }
    }

    /// Handles timers that are due. An early call does nothing.
    pub fn expire(&mut self, now: Instant) {
        match self.state {
            State::Starting(until) if now >= until => self.close(CloseReason::StartTimeOut),
            State::Stopping(until) if now >= until => self.close(CloseReason::StopTimeOut),
            State::Established => {
                self.expire_calls(now);
                self.expire_echo(now);
            }
            State::Starting(_) | State::Stopping(_) | State::Closed => {}
        }
    }

    fn expire_calls(&mut self, now: Instant) {
        let due = |call: &Call| call.deadline().is_some_and(|until| now >= until);
        while let Some((&call_id, call)) = self.calls.by_id.iter().find(|(_, call)| due(call)) {
            let end = match call.state {
                CallState::Requested(_) => {
                    // The reply may still come, so the peer must end a call that it opens late.
                    self.send(&Message::CallClearRequest { call_id });
                    CallEnd::TimeOut
                }
                CallState::Up | CallState::Clearing(_) => CallEnd::Local,
            };
            self.end_call(call_id, end);
        }
    }

    fn expire_echo(&mut self, now: Instant) {
        match self.echo {
            Some((_, until)) if now >= until => self.close(CloseReason::EchoTimeOut),
            None if now >= self.heard + self.settings.echo_interval => {
                self.echoes = self.echoes.wrapping_add(1);
                let identifier = self.echoes;
                self.echo = Some((identifier, now + self.settings.reply_timeout));
                self.send(&Message::EchoRequest { identifier });
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn reply_to_call(
        &mut self,
        call_id: u16,
        peer_call_id: u16,
        result: OutgoingResult,
        error: ErrorCode,
    ) {
        self.send(&Message::OutgoingCallReply(OutgoingReply {
            call_id,
            peer_call_id,
            result,
            error,
            window: self.settings.window,
        }));
    }

    pub(super) fn host(&self) -> Host {
        Host {
            version: VERSION,
            max_channels: match self.role {
                Role::Client => 0,
                Role::Server => self.settings.max_calls,
            },
            name: Text::new(&self.settings.name),
            vendor: Text::new(&self.settings.vendor),
        }
    }

    pub(super) fn send(&mut self, message: &Message) {
        if self.state == State::Closed {
            return;
        }
        if self.transmit.len() > MAX_TRANSMIT {
            self.close(CloseReason::NotReading);
            return;
        }
        message.write(&mut self.transmit);
    }

    pub(super) fn end_call(&mut self, call_id: u16, end: CallEnd) {
        if self.calls.by_id.remove(&call_id).is_some() {
            self.events.push_back(Event::CallDown { call_id, end });
        }
    }

    fn end_calls(&mut self, end: CallEnd) {
        self.calls.offered.clear();
        while let Some((&call_id, _)) = self.calls.by_id.first_key_value() {
            self.end_call(call_id, end);
        }
    }

    pub(super) fn close(&mut self, reason: CloseReason) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.echo = None;
        self.end_calls(CallEnd::ConnectionClosed);
        self.events.push_back(Event::Closed(reason));
    }
}

/// The notice that a call of ours has ended.
pub(super) fn disconnect(call_id: u16, result: DisconnectResult) -> Message {
    Message::CallDisconnectNotify(Disconnect {
        call_id,
        result,
        error: ErrorCode::None,
    })
}
