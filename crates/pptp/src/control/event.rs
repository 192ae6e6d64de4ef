//! Events of a control connection.

use crate::control::codes::{DisconnectResult, ErrorCode, OutgoingResult, StartResult, StopReason};
use crate::control::message::{Host, LinkInfo, MessageError, OutgoingCall};

/// Something that has happened, in the order in which it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// At most a handful wait at a time; a box for each would cost more than the room that it saves.
#[allow(clippy::large_enum_variant)]
pub enum Event {
    /// The connection is there; calls can be opened.
    Established(Host),
    /// The peer wants a call: [`answer_call`](crate::control::Connection::answer_call) must follow.
    CallRequested(OutgoingCall),
    /// A call is there: packets of GRE may flow.
    CallUp {
        /// Our call ID, which the peer writes into its packets.
        call_id: u16,
        /// The peer's call ID, to write into ours.
        peer_call_id: u16,
        /// Packets that the peer takes without having acknowledged them.
        window: u16,
        /// The peer's processing delay, in tenths of a second.
        delay: u16,
    },
    /// The peer said how packets are to be escaped. Packets of GRE escape nothing.
    LinkInfo(LinkInfo),
    /// A call has ended, or was not to be had.
    CallDown {
        /// Our call ID.
        call_id: u16,
        /// Why.
        end: CallEnd,
    },
    /// The connection has ended; its calls have been reported before. The TCP connection is to be closed once everything
    /// was sent.
    Closed(CloseReason),
}

/// Why a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallEnd {
    /// We ended it.
    #[error("ended by us")]
    Local,
    /// The client ended it by Call-Clear-Request.
    #[error("ended by the client")]
    Cleared,
    /// The server ended it by Call-Disconnect-Notify.
    #[error("ended by the server: {result} ({error})")]
    Disconnected {
        /// The server's reason.
        result: DisconnectResult,
        /// More, if that is a general error.
        error: ErrorCode,
    },
    /// The server did not accept it.
    #[error("the server refuses the call: {result} ({error})")]
    Refused {
        /// The server's reason.
        result: OutgoingResult,
        /// More, if that is a general error.
        error: ErrorCode,
    },
    /// The server did not answer the request.
    #[error("the server did not answer the request for a call")]
    TimeOut,
    /// The control connection has ended.
    #[error("the control connection has ended")]
    ConnectionClosed,
}

/// Why a control connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// We closed it.
    #[error("closed by us")]
    Local,
    /// The peer closed it by Stop-Control-Connection-Request.
    #[error("closed by the peer: {0}")]
    Stopped(StopReason),
    /// The server refused Start-Control-Connection-Request.
    #[error("the server refuses the connection: {result} ({error})")]
    Refused {
        /// The server's reason.
        result: StartResult,
        /// More, if that is a general error.
        error: ErrorCode,
    },
    /// The peer speaks another version of PPTP.
    #[error("the peer speaks version {0:#06x} of PPTP, not 0x0100")]
    Version(u16),
    /// The TCP connection ended without the peer saying so in PPTP.
    #[error("the peer closed the TCP connection")]
    StreamEnded,
    /// The peer's bytes cannot be told apart into messages.
    #[error(transparent)]
    Framing(MessageError),
    /// The first message did not come.
    #[error("no answer at the PPTP port: what listens there may be no PPTP server")]
    StartTimeOut,
    /// An Echo-Request was not answered.
    #[error("the peer is gone: it does not answer echo requests")]
    EchoTimeOut,
    /// Stop-Control-Connection-Request was not answered.
    #[error("closed by us; the peer did not confirm it")]
    StopTimeOut,
    /// The client has not logged in.
    #[error("no login in time")]
    NoLogin,
    /// The client has asked for one call after the other.
    #[error("too many calls without a login")]
    TooManyCalls,
    /// There are too many clients that have not logged in, and this one makes room.
    #[error("too many connections without a login")]
    Crowded,
    /// More waits to be sent than a peer that reads could leave.
    #[error("the peer does not read what is sent to it")]
    NotReading,
}

/// Counts of faulty messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were understood.
    pub messages: u64,
    /// Messages skipped because of their kind, type or length.
    pub skipped: u64,
    /// Messages that do not belong into the state of the connection.
    pub unexpected: u64,
    /// Messages about calls that there are not.
    pub unknown_calls: u64,
    /// Requests for calls that were refused.
    pub refused_calls: u64,
}
