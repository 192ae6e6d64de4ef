//! Events of a control connection.

use crate::control::codes::{DisconnectResult, ErrorCode, OutgoingResult, StartResult, StopReason};
use crate::control::message::{Host, MessageError};

/// An event, in order of occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Only a handful of events wait at a time, so boxing the long variants would cost more than it saves.
#[allow(clippy::large_enum_variant)]
pub enum Event {
    /// The connection is established; calls can be opened.
    Established(Host),
    /// The peer requests a call: [`answer_call`](crate::control::Connection::answer_call) must follow.
    CallRequested {
        /// The peer's call ID.
        peer_call_id: u16,
    },
    /// A call is up: GRE packets may flow.
    CallUp {
        /// Our call ID, which the peer writes into its packets.
        call_id: u16,
        /// The peer's call ID, for our packets.
        peer_call_id: u16,
    },
    /// A call has ended, or could not be opened.
    CallDown {
        /// Our call ID.
        call_id: u16,
        /// Why the call ended.
        end: CallEnd,
    },
    /// The connection has ended, after the events of its calls. Close the TCP connection once everything was sent.
    Closed(CloseReason),
}

/// Why a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallEnd {
    /// We ended the call.
    #[error("this end closed the call")]
    Local,
    /// The client ended the call by Call-Clear-Request.
    #[error("the client closed the call")]
    Cleared,
    /// The server ended the call by Call-Disconnect-Notify.
    #[error("the server closed the call: {result} ({error})")]
    Disconnected {
        /// Result code of the server.
        result: DisconnectResult,
        /// The general error, if `result` says so.
        error: ErrorCode,
    },
    /// The server refused the call.
    #[error("the server refuses the call: {result} ({error})")]
    Refused {
        /// Result code of the server.
        result: OutgoingResult,
        /// The general error, if `result` says so.
        error: ErrorCode,
    },
    /// The server did not answer the request for the call.
    #[error("the server did not answer the request for a call")]
    TimeOut,
    /// The control connection has ended.
    #[error("the control connection has ended")]
    ConnectionClosed,
}

/// Why a control connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// We closed the connection.
    #[error("this end closed the connection")]
    Local,
    /// The peer closed the connection by Stop-Control-Connection-Request.
    #[error("the peer closed the connection: {0}")]
    Stopped(StopReason),
    /// The server refused Start-Control-Connection-Request.
    #[error("the server refuses the connection: {result} ({error})")]
    Refused {
        /// Result code of the server.
        result: StartResult,
        /// The general error, if `result` says so.
        error: ErrorCode,
    },
    /// The peer uses another version of PPTP.
    #[error("the peer speaks version {0:#06x} of PPTP, not 0x0100")]
    Version(u16),
    /// The TCP connection ended without the peer saying so in PPTP.
    #[error("the peer closed the TCP connection")]
    StreamEnded,
    /// The peer's bytes cannot be split into messages.
    #[error(transparent)]
    Framing(MessageError),
    /// The first message did not arrive in time.
    #[error("no answer from the PPTP port: the program listening there may not be a PPTP server")]
    StartTimeOut,
    /// The peer did not answer an Echo-Request.
    #[error("the peer does not answer echo requests any more")]
    EchoTimeOut,
    /// The peer did not answer Stop-Control-Connection-Request.
    #[error("this end closed the connection, but the peer did not confirm that")]
    StopTimeOut,
    /// The client did not log in in time.
    #[error("the client did not log in in time")]
    NoLogin,
    /// The client requested too many calls without a login.
    #[error("too many calls without a login")]
    TooManyCalls,
    /// Too many clients have not logged in, and this one was closed to make room.
    #[error("too many connections without a login")]
    Crowded,
    /// The peer does not read: too many bytes wait for it.
    #[error("the peer does not read its messages")]
    NotReading,
}
