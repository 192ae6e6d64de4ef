//! The control connection of PPTP (RFC 2637, sections 2 and 3): one TCP connection to port 1723, which opens and ends
//! calls and detects a dead peer.

mod call;
mod codes;
mod connection;
mod event;
mod fields;
mod message;
mod receive;

pub use call::Answer;
pub use codes::{
    DisconnectResult, ErrorCode, OutgoingResult, PlainResult, StartResult, StopReason,
};
pub use connection::{Connection, Role, Settings};
pub use event::{CallEnd, CloseReason, Event};
pub use fields::Stream;
pub use message::{
    COOKIE, Disconnect, HEADER_LEN, Host, MAX_LEN, Message, MessageError, OutgoingReply, PORT,
    Text, VERSION, length,
};
