//! Handles the messages that a control connection receives (RFC 2637, sections 3.1 to 3.3).

use std::time::Instant;

use crate::control::call::State as CallState;
use crate::control::codes::{
    DisconnectResult, ErrorCode, OutgoingResult, PlainResult, StartResult,
};
use crate::control::connection::{Connection, Role, State, disconnect};
use crate::control::event::{CallEnd, CloseReason, Event};
use crate::control::message::{Disconnect, Host, Message, OutgoingReply, VERSION};

impl Connection {
    /// Takes bytes received on the TCP connection.
    pub fn receive(&mut self, mut bytes: &[u8], now: Instant) {
        while self.state != State::Closed {
            match self.stream.next(&mut bytes) {
                None => return,
                Some(Ok(message)) => {
                    self.heard = now;
                    self.echo = None;
                    self.take(&message);
                }
                Some(Err(error)) if error.in_step() => {}
                Some(Err(error)) => self.close(CloseReason::Framing(error)),
            }
        }
    }

    fn take(&mut self, message: &Message) {
        match (self.state, self.role, message) {
            (_, _, &Message::EchoRequest { identifier }) => self.send(&Message::EchoReply {
                identifier,
                result: PlainResult::Ok,
                error: ErrorCode::None,
            }),
            // The round trip was noted when the message came.
            (_, _, Message::EchoReply { .. }) => {}
            (_, _, &Message::StopRequest(reason)) => {
                self.send(&Message::StopReply {
                    result: PlainResult::Ok,
                    error: ErrorCode::None,
                });
                self.close(CloseReason::Stopped(reason));
            }
            (State::Stopping(_), _, Message::StopReply { .. }) => self.close(CloseReason::Local),
            // These messages crossed our request to stop.
            (State::Stopping(_), _, _) => {}
            (_, Role::Server, Message::StartRequest(host)) => self.start_requested(host),
            (
                State::Starting(_),
                Role::Client,
                Message::StartReply {
                    host,
                    result,
                    error,
                },
            ) => {
                self.start_replied(host, *result, *error);
            }
            (State::Established, Role::Server, &Message::OutgoingCallRequest { call_id, .. }) => {
                self.call_requested(call_id);
            }
            (State::Established, Role::Client, Message::OutgoingCallReply(reply)) => {
                self.call_replied(reply);
            }
            (State::Established, Role::Server, &Message::CallClearRequest { call_id }) => {
                self.call_cleared(call_id);
            }
            (State::Established, Role::Client, Message::CallDisconnectNotify(notify)) => {
                self.call_disconnected(notify);
            }
            // A client refuses calls to itself, and either end refuses incoming calls of a telephone network.
            (State::Established, _, &Message::OutgoingCallRequest { call_id, .. }) => {
                let result = OutgoingResult::DoNotAccept;
                self.reply_to_call(0, call_id, result, ErrorCode::None);
            }
            (State::Established, _, &Message::IncomingCallRequest { call_id }) => {
                let peer_call_id = call_id;
                self.send(&Message::IncomingCallReply { peer_call_id });
            }
            _ => {}
        }
    }

    fn start_requested(&mut self, host: &Host) {
        let result = match self.state {
            State::Starting(_) if major(host.version) == major(VERSION) => StartResult::Established,
            State::Starting(_) => StartResult::VersionNotSupported,
            _ => StartResult::AlreadyExists,
        };
        self.send(&Message::StartReply {
            host: self.host(),
            result,
            error: ErrorCode::None,
        });
        match result {
            StartResult::Established => self.establish(host),
            StartResult::VersionNotSupported => self.close(CloseReason::Version(host.version)),
            _ => {}
        }
    }

    fn start_replied(&mut self, host: &Host, result: StartResult, error: ErrorCode) {
        if result != StartResult::Established {
            self.close(CloseReason::Refused { result, error });
        } else if major(host.version) == major(VERSION) {
            self.establish(host);
        } else {
            self.close(CloseReason::Version(host.version));
        }
    }

    fn establish(&mut self, host: &Host) {
        if self.state != State::Closed {
            self.state = State::Established;
            self.events.push_back(Event::Established(*host));
        }
    }

    fn call_requested(&mut self, peer_call_id: u16) {
        let taken = self.calls.by_peer(peer_call_id).is_some()
            || self.calls.offered.contains(&peer_call_id);
        let error = if taken {
            ErrorCode::BadCallId
        } else if self.calls.len() >= usize::from(self.settings.max_calls) {
            ErrorCode::NoResource
        } else {
            self.calls.offered.push(peer_call_id);
            self.events.push_back(Event::CallRequested { peer_call_id });
            return;
        };
        self.reply_to_call(0, peer_call_id, OutgoingResult::GeneralError, error);
    }

    fn call_replied(&mut self, reply: &OutgoingReply) {
        let call_id = reply.peer_call_id;
        let Some(call) = self.calls.by_id.get_mut(&call_id) else {
            // We gave this request up, so the server must end the call.
            if reply.result == OutgoingResult::Connected {
                self.send(&Message::CallClearRequest { call_id });
            }
            return;
        };
        let (result, error) = (reply.result, reply.error);
        match call.state {
            CallState::Requested(_) if result == OutgoingResult::Connected => {
                call.state = CallState::Up;
                call.peer_call_id = reply.call_id;
                self.events.push_back(Event::CallUp {
                    call_id,
                    peer_call_id: reply.call_id,
                });
            }
            CallState::Requested(_) => self.end_call(call_id, CallEnd::Refused { result, error }),
            // Our request to end the call crossed the reply.
            CallState::Clearing(_) if result == OutgoingResult::Connected => {
                call.peer_call_id = reply.call_id;
            }
            CallState::Clearing(_) => self.end_call(call_id, CallEnd::Local),
            CallState::Up => {}
        }
    }

    /// Handles a Call-Clear-Request; `peer_call_id` is the client's ID.
    fn call_cleared(&mut self, peer_call_id: u16) {
        if let Some(call_id) = self.calls.by_peer(peer_call_id) {
            self.send(&disconnect(call_id, DisconnectResult::Request));
            self.end_call(call_id, CallEnd::Cleared);
        } else {
            self.calls
                .offered
                .retain(|&offered| offered != peer_call_id);
        }
    }

    fn call_disconnected(&mut self, notify: &Disconnect) {
        let Some(call_id) = self.calls.by_peer(notify.call_id) else {
            return;
        };
        let clearing = self
            .calls
            .by_id
            .get(&call_id)
            .is_some_and(|call| matches!(call.state, CallState::Clearing(_)));
        let end = if clearing {
            CallEnd::Local
        } else {
            CallEnd::Disconnected {
                result: notify.result,
                error: notify.error,
            }
        };
        self.end_call(call_id, end);
    }
}

const fn major(version: u16) -> u8 {
    version.to_be_bytes()[0]
}
