//! Events and errors of a link, a client or a server.

use std::net::Ipv4Addr;

use crate::control::{CallEnd, CloseReason};
use crate::mppe::KeyLength;
use crate::mschap::FailureCode;
use crate::ppp::{Dns, Failure};

/// How packets of a link are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The length of the keys.
    pub key: KeyLength,
    /// Whether each packet has its own key.
    pub stateless: bool,
}

/// Describes a link that carries packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Up {
    /// Inner address of this end.
    pub address: Ipv4Addr,
    /// The peer's address, if it has one.
    pub peer: Option<Ipv4Addr>,
    /// Name servers that the peer assigned.
    pub dns: Dns,
    /// The longest packet, in bytes.
    pub mtu: u16,
    /// Encryption of the packets that we send.
    pub protection: Option<Protection>,
    /// The user who logged in, on a server.
    pub user: Option<String>,
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The server refused the login, by MS-CHAPv2.
    #[error("{0}")]
    Refused(FailureCode),
    /// The server refused the login, by PAP or CHAP; with its message.
    #[error("the server refuses the login: {0}")]
    Message(String),
    /// The server accepted the login without proof that it knows the password.
    #[error("the server does not know the password, so it is not the server that it claims to be")]
    BadProof,
    /// The login took too long.
    #[error("the login did not finish in time")]
    TimeOut,
    /// On a server: the user is unknown or the password is wrong.
    #[error("unknown user, or wrong password")]
    Denied,
}

/// Why a link is down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownReason {
    /// We ended the link.
    #[error("this end closed the session")]
    Local,
    /// The control connection ended, or could not be opened.
    #[error("PPTP control connection: {0}")]
    Control(CloseReason),
    /// The call ended, or could not be opened.
    #[error("PPTP call: {0}")]
    Call(CallEnd),
    /// No GRE packet arrived.
    #[error(
        "the control connection works, but no GRE comes back: a firewall or NAT on the path drops IP protocol 47"
    )]
    NoGre,
    /// LCP reached no agreement, or the peer ended it.
    #[error("PPP link: {0}")]
    Lcp(Failure),
    /// The server requires no login, so there would be no keys.
    #[error("the server requires no login, so the required encryption has no keys")]
    NoLogin,
    /// The login failed.
    #[error("login: {0}")]
    Login(LoginError),
    /// Encryption is required, but was not negotiated.
    #[error("both ends did not agree on the required encryption: {0}")]
    NoEncryption(Failure),
    /// Every address for clients is taken.
    #[error("all addresses for clients are in use; enlarge the pool")]
    NoAddress,
    /// On a server: another client got the call's address.
    #[error("another client got this address, as all are in use; enlarge the pool")]
    Replaced,
    /// The peer restarts encryption without a new login. The keys derive from the login, so the same keys would encrypt
    /// other packets.
    #[error(
        "the peer restarts encryption without a new login, which would use the same keys twice; connect again"
    )]
    KeysUsed,
    /// The ends agreed on no address.
    #[error("both ends did not agree on an address: {0}")]
    Ipcp(Failure),
    /// The peer does not answer echo requests.
    #[error("the peer does not answer echo requests any more")]
    EchoTimeOut,
    /// The control connection was lost, and no line answers.
    #[error("the control connection is lost, and no packet arrives on any path")]
    Silent,
    /// The peer agreed to encryption but then rejects encrypted packets.
    #[error("the peer does not decrypt packets as agreed; connect again")]
    MppeRejected,
    /// The peer's packets can no longer be decrypted.
    #[error("the keys of both ends are out of step; connect again")]
    OutOfStep,
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The link is not up.
    #[error("the link is not up")]
    NotUp,
    /// The packet is longer than the link's MTU.
    #[error("the packet is longer than {0} bytes")]
    TooLong(u16),
    /// The packet is not IPv4, or IPCP is not open.
    #[error("the packet is not IPv4, or the tunnel's IPv4 is not up")]
    Protocol,
}
