//! The control connection of PPTP (RFC 2637, sections 2 and 3): one TCP connection to port 1723, which opens and ends
//! calls and detects a dead peer.

mod call;
mod codes;
mod connection;
mod event;
mod fields;
mod message;
mod receive;

pub use call::{Answer, CallError};
pub use codes::{
    DisconnectResult, ErrorCode, IncomingResult, OutgoingResult, PlainResult, StartResult,
    StopReason,
};
pub use connection::{Connection, Role, Settings};
pub use event::{CallEnd, CloseReason, Counters, Event};
pub use fields::Stream;
pub use message::{
    BOTH, COOKIE, Disconnect, HEADER_LEN, Host, IncomingCall, IncomingConnected, IncomingReply,
    LinkInfo, MAX_LEN, Message, MessageError, OutgoingCall, OutgoingReply, PORT, Text, VERSION,
    WanErrors, length,
};
