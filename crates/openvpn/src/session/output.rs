//! Requests of a session to its caller, TLS handshakes on other threads, why packets were dropped, and the bytes of the
//! control channel.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crypto::Digest;
use plane::AtomicU64;
use zeroize::Zeroizing;

use crate::data::wire::Layout;
use crate::keys::KeyMaterial;
use crate::message::{AuthFailed, Message, Restart};
use crate::negotiate::{Cipher, PeerInfo};
use crate::packet::{Opcode, PacketError};
use crate::push::PushReply;
use crate::tls::{TlsError, TlsSession};
use crate::verify::PeerCertificate;
use crate::wrap::WrapError;

/// Keys of both directions from one negotiation, with all parameters for their use.
#[derive(Clone, Debug)]
pub struct DataKeys {
    /// The number in each packet's first byte: 0 for a session's first keys, then 1 to 7 in turn. Keys with the same
    /// number that were installed before are replaced.
    pub key_id: u8,
    /// Cipher of the data channel.
    pub cipher: Cipher,
    /// The digest of the HMAC beside a cipher that does not authenticate; none beside an AEAD.
    pub auth: Digest,
    /// The layout of the packets.
    pub layout: Layout,
    /// Key material for outgoing packets.
    pub send: KeyMaterial,
    /// Key material for incoming packets.
    pub receive: KeyMaterial,
}

/// Names a question to the daemon, see [`Output::Authenticate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AuthId(pub u64);

/// A client's request to come in. Answer it with [`Session::authenticated`](super::Session::authenticated).
pub struct AuthRequest {
    /// The id to name in the answer.
    pub id: AuthId,
    /// The user name; empty if the client sent none.
    pub username: String,
    /// The password; empty if the client sent none.
    pub password: Zeroizing<String>,
    /// The client's certificate, whose chain and usage were checked. `None` where none is required and none was shown.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// The client's peer info. Trust it for protocol features only.
    pub peer_info: Arc<PeerInfo>,
    /// The client's option string, unparsed.
    pub options: String,
    /// Whether this renews the keys of a session that is already up.
    pub renegotiation: bool,
    /// How the password relates to our tokens.
    pub token: TokenState,
}

/// How a password relates to the tokens that this server gives out (`auth-gen-token`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// The password is not a token, or this server issues no tokens.
    Initial,
    /// A good token for this user.
    Authenticated,
    /// A token that this server made, but too long ago.
    Expired,
}

impl core::fmt::Debug for AuthRequest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AuthRequest")
            .field("id", &self.id)
            .field("username", &self.username)
            .field("renegotiation", &self.renegotiation)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// The daemon's answer to an [`AuthRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Let the client in.
    Accept,
    /// Tell the client `AUTH_FAILED` and end the session.
    Reject(AuthFailed),
}

/// An action for the caller. Carry actions out in the order in which the session emits them.
#[derive(Debug)]
pub enum Output {
    /// Send this to the peer: one datagram, or over TCP one packet behind its length.
    Send(Vec<u8>),
    /// Open packets with these keys. They seal only from [`UseForSending`](Self::UseForSending) on.
    InstallKeys(Box<DataKeys>),
    /// Seal with the keys of this key id from now on.
    UseForSending {
        /// Key id of keys that were installed before.
        key_id: u8,
    },
    /// Forget the keys of this key id.
    RemoveKeys {
        /// Key id to remove.
        key_id: u8,
    },
    /// Send a ping (the 16 bytes of `ping`) on the data channel.
    SendPing,
    /// Send this payload on the data channel with the usual framing. It is not an IP packet.
    SendData(Vec<u8>),
    /// Server: call [`Handshake::run`] on any thread and pass the result to
    /// [`Session::handshaken`](super::Session::handshaken). A session has at most one handshake out at a time. Only if
    /// the settings [ask for it](crate::tls::TlsSettings::hand_out_handshakes).
    Handshake(Box<Handshake>),
    /// Client: give a verdict on the server, whose certificate passed all rules. Answer with
    /// [`Session::judged`](super::Session::judged). The negotiation waits for the verdict until its own time limit.
    /// Only if the settings [ask for verdicts](crate::tls::TlsSettings::ask_for_verdicts).
    Judge {
        /// The number of the negotiation, to name in the answer.
        key_id: u8,
        /// The server's certificate and those that signed it.
        peer: Box<PeerCertificate>,
    },
    /// Client: the server's options. Keys follow.
    Pushed(Box<PushReply>),
    /// Client: the server renewed the token, and the session uses it by itself. Keep it to use after a reconnect.
    AuthToken(Zeroizing<String>),
    /// Server: ask whether this client may come in; answer with
    /// [`Session::authenticated`](super::Session::authenticated).
    Authenticate(Box<AuthRequest>),
    /// Server: the client is authenticated and waits for its options: answer with
    /// [`Session::push`](super::Session::push).
    PushRequested,
    /// A message from the peer that the session does not deal with: `INFO`, `AUTH_PENDING`, `CR_RESPONSE` and such.
    Message(Message),
    /// Keys are installed: packets may flow. Once for each session.
    Connected,
    /// New keys were negotiated in a session that is up.
    Renegotiated {
        /// Key id of the new keys.
        key_id: u8,
    },
    /// The session is over and answers no more. Its keys have been removed before.
    Closed(CloseReason),
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// No answer came, or the negotiation did not end in time.
    #[error(
        "TLS key negotiation failed to occur within {} seconds (check your network connectivity)",
        .0.as_secs()
    )]
    HandshakeWindow(Duration),
    /// The TLS handshake failed. The text names the reason and, where there is one, the remedy.
    #[error("TLS handshake failed: {0}")]
    Tls(String),
    /// The peer broke the protocol, and the session cannot continue.
    #[error("the peer violates the protocol: {0}")]
    Protocol(String),
    /// Client: the server refused the login.
    #[error("AUTH_FAILED{0}")]
    AuthFailed(AuthFailed),
    /// Server: the client was refused, and informed of it.
    #[error("the client was refused{0}")]
    Refused(AuthFailed),
    /// Client: no answer to our requests for options.
    #[error("the server did not push options within {} seconds", .0.as_secs())]
    NoPushReply(Duration),
    /// Server: the client was accepted and did not request its options.
    #[error("the client did not ask for options within {} seconds", .0.as_secs())]
    NoPushRequest(Duration),
    /// Client: the server's pushed options are unusable. The text names the setting that helps, if any.
    #[error("the server's options: {0}")]
    Push(String),
    /// Both sides have no data cipher in common. The text names the remedy.
    #[error("{0}")]
    NoCipher(String),
    /// Nothing was heard from the peer for this long; a client tries again.
    #[error("Inactivity timeout (--ping-restart), nothing heard for {} seconds", .0.as_secs())]
    PingRestart(Duration),
    /// Nothing was heard from the peer for this long; the program ends.
    #[error("Inactivity timeout (--ping-exit), nothing heard for {} seconds", .0.as_secs())]
    PingExit(Duration),
    /// The tunnel carried too little for this long (`inactive`).
    #[error("Inactivity timeout (--inactive), idle for {} seconds", .0.as_secs())]
    Inactive(Duration),
    /// The session reached its time limit (`session-timeout`).
    #[error("Session timeout (--session-timeout), up for {} seconds", .0.as_secs())]
    SessionTimeout(Duration),
    /// The last keys may not be used any longer, and no others were agreed on.
    #[error("the keys ran out, and their renewal failed")]
    WornOut,
    /// The peer said that it leaves.
    #[error("the peer exited")]
    PeerExit,
    /// The server wants us to connect again.
    #[error("the server is restarting{0}")]
    Restart(Restart),
    /// The server wants us to stop.
    #[error("the server halts this connection{0}")]
    Halt(Restart),
    /// Server: the client has begun another session, and proved its identity.
    #[error("the client has begun a new session")]
    Replaced,
    /// Server: too many clients were waiting to be let in, and this one gave way.
    #[error("the session was closed to make room: too many clients negotiate at once")]
    Crowded,
    /// The data plane cannot go on with the peer, for a reason that the log has; a client tries again.
    #[error("the data plane cannot continue with the peer")]
    DataPlane,
    /// We ended the session.
    #[error("ended by us")]
    Local,
}

impl CloseReason {
    /// All names that [`refusal`](Self::refusal) returns.
    pub const REFUSALS: [&'static str; 7] = [
        "auth_failed",
        "handshake_timeout",
        "no_common_cipher",
        "no_push",
        "protocol_error",
        "push_unusable",
        "tls_failed",
    ];

    /// The name of the counter of sessions that failed for this reason; `None` if no peer was refused.
    #[must_use]
    pub const fn refusal(&self) -> Option<&'static str> {
        Some(match self {
            Self::HandshakeWindow(_) => "handshake_timeout",
            Self::Tls(_) => "tls_failed",
            Self::Protocol(_) => "protocol_error",
            Self::AuthFailed(_) | Self::Refused(_) => "auth_failed",
            Self::NoPushReply(_) | Self::NoPushRequest(_) => "no_push",
            Self::Push(_) => "push_unusable",
            Self::NoCipher(_) => "no_common_cipher",
            _ => return None,
        })
    }
}

/// How many bytes a session's control packets had, as they are on the wire, without what UDP or TCP puts in front. It
/// outlives the session, for the report of what went through it.
#[derive(Debug, Default)]
pub struct ControlTraffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl ControlTraffic {
    /// Bytes of packets that the session took from the peer.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes of packets that the session has emitted for the peer.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Why a packet changed nothing. It costs a counter and, at most, a line in a detailed log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// The packet belongs to the data channel.
    #[error("the packet belongs to the data channel")]
    Data,
    /// The datagram is not a control packet.
    #[error(transparent)]
    Packet(PacketError),
    /// The wrap refuses the packet.
    #[error(transparent)]
    Wrap(WrapError),
    /// The packet comes from, or is intended for, another session.
    #[error("control packet belongs to a different session")]
    OtherSession,
    /// No negotiation with this key id is running, nor may one begin.
    #[error("control packet has key id {0}, which is not in use")]
    KeyId(u8),
    /// This kind of packet has no place here.
    #[error("control packet has opcode {0:?}, which is not expected now")]
    Unexpected(Opcode),
    /// The message is too far ahead of those that have come.
    #[error("control packet is too far ahead")]
    TooFarAhead,
    /// The client begins a renewal of the keys too soon after the one before. It sends the packet again.
    #[error("the client renews the keys too soon after the last renewal")]
    TooSoon,
    /// The session is over.
    #[error("the session is over")]
    Closed,
}

impl Dropped {
    /// The names of the counters.
    pub const REASONS: [&'static str; 4] =
        ["malformed", "not_authentic", "other_session", "replayed"];

    /// The name of the counter, one of [`REASONS`](Self::REASONS).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Packet(_) | Self::Wrap(WrapError::TooLong(_) | WrapError::Packet(_)) => {
                "malformed"
            }
            Self::Wrap(WrapError::NotAuthentic | WrapError::ClientKey(_)) => "not_authentic",
            Self::Wrap(WrapError::Replay) => "replayed",
            _ => "other_session",
        }
    }
}

/// TLS of a session in the midst of its handshake, and the messages that have come for it.
///
/// The cost of a handshake is signatures and key agreements, which need only the TLS of the session. So a server with
/// several processors hands the TLS of a session, with the bytes that came for it, to another thread
/// ([`Output::Handshake`]), and takes it back ([`Session::handshaken`](super::Session::handshaken)). Meanwhile the
/// session continues: packets are acknowledged and sent again, time passes, it may end. Messages for TLS wait in the
/// receive window, so that at most one handshake of a session is in another thread, and messages stay in order.
pub struct Handshake {
    /// The number that the session gave this handshake.
    number: u64,
    tls: Box<TlsSession>,
    messages: Vec<Vec<u8>>,
}

impl Handshake {
    pub(super) const fn new(number: u64, tls: Box<TlsSession>, messages: Vec<Vec<u8>>) -> Self {
        Self {
            number,
            tls,
            messages,
        }
    }

    /// Runs the handshake, which takes one or several milliseconds of a processor.
    #[must_use]
    pub fn run(self) -> Handshaken {
        let Self {
            number,
            mut tls,
            messages,
        } = self;
        let mut messages = messages.iter();
        let outcome = messages.try_for_each(|message| tls.read_tls(message));
        Handshaken {
            number,
            tls,
            outcome,
        }
    }
}

impl core::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Handshake")
            .field("number", &self.number)
            .field("messages", &self.messages.len())
            .finish_non_exhaustive()
    }
}

/// The result of a [`Handshake`]. Return it to its session.
#[derive(Debug)]
pub struct Handshaken {
    pub(super) number: u64,
    pub(super) tls: Box<TlsSession>,
    pub(super) outcome: Result<(), TlsError>,
}
