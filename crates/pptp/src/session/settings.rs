//! The settings of a session, and why it may not start.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::control;
use crate::mppe::KeyLength;
use crate::mschap::Password;
use crate::ppp::{Auth, Dns, MppeBits, Timing};

/// How keys of MPPE change (RFC 3078, section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With each packet, or not at all.
    Stateless,
    /// With each packet, unless the peer insists on a stream.
    PreferStateless,
    /// A stream, unless the peer insists on a key for each packet. Each loss costs a round trip.
    PreferStateful,
}

/// How packets are encrypted. There is no "if possible": who can change packets would turn it off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Not at all: everything can be read on the way. Some providers want that.
    None,
    /// With MPPE, or not at all.
    Mppe {
        /// Keys that may be used. Anything but 128 bits is for peers that know nothing else.
        keys: Vec<KeyLength>,
        /// How they change.
        mode: Mode,
    },
}

impl Encryption {
    /// Keys of 128 bits, one for each packet.
    #[must_use]
    pub fn strongest() -> Self {
        Self::Mppe {
            keys: vec![KeyLength::Bits128],
            mode: Mode::Stateless,
        }
    }

    /// The bits that may be agreed on, and whether a stream may.
    pub(super) fn bits(&self) -> Option<(MppeBits, bool)> {
        let Self::Mppe { keys, mode } = self else {
            return None;
        };
        let begin = match mode {
            Mode::Stateless | Mode::PreferStateless => MppeBits::STATELESS,
            Mode::PreferStateful => MppeBits::NONE,
        };
        let bits = keys.iter().fold(begin, |bits, key| {
            bits.and(match key {
                KeyLength::Bits40 => MppeBits::KEY_40,
                KeyLength::Bits56 => MppeBits::KEY_56,
                KeyLength::Bits128 => MppeBits::KEY_128,
            })
        });
        Some((bits, *mode != Mode::Stateless))
    }
}

/// The settings of both ends.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Must be true: see the crate's documentation.
    pub allow_insecure: bool,
    /// The control connection.
    pub control: control::Settings,
    /// The link.
    pub link: LinkSettings,
}

/// The settings of both ends of a link.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// How packets are encrypted.
    pub encryption: Encryption,
    /// How a client may log in, best first: what a client accepts and a server asks for.
    pub auth: Vec<Auth>,
    /// The longest information field that we take: 128 to 1500.
    pub mru: u16,
    /// The longest IP packet that the path to the peer carries.
    pub path_mtu: u16,
    /// Whether IPv6 is negotiated as well.
    pub ipv6: bool,
    /// The timers of option negotiation.
    pub timing: Timing,
    /// Silence after which the peer is asked whether it is there (RFC 1661, section 5.8); pppd's `lcp-echo-interval`.
    pub echo_interval: Duration,
    /// Unanswered questions after which it counts as gone; pppd's `lcp-echo-failure`.
    pub echo_failures: u8,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// How long the Configure-Ack of CCP waits. accel-ppp opens its kernel's decryption only after it has sent its request:
    /// a client that answers at once meets a server that does not decrypt.
    pub ccp_ack_delay: Duration,
    /// Whether several lines are asked for, by a client, or agreed to, by a server ([`lines`](crate::lines)). Without it
    /// nothing is other than RFC 1661 has it.
    pub lines: bool,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            encryption: Encryption::strongest(),
            auth: vec![Auth::MsChapV2],
            mru: 1400,
            path_mtu: 1500,
            ipv6: false,
            timing: Timing::default(),
            echo_interval: Duration::from_secs(30),
            echo_failures: 4,
            login_timeout: Duration::from_secs(30),
            ccp_ack_delay: Duration::ZERO,
            lines: false,
        }
    }
}

/// The further settings of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The settings of both ends.
    pub common: Settings,
    /// The user's name, perhaps with a domain before it (`DOMAIN\user`).
    pub user: String,
    /// The password.
    pub password: Password,
    /// The address that we want; `None` to be given one, as is usual.
    pub address: Option<Ipv4Addr>,
    /// Whether we ask for name servers (RFC 1877).
    pub ask_dns: bool,
}

impl ClientSettings {
    /// A client that takes what it is given. The Ack of CCP waits for 80 ms, for the sake of accel-ppp.
    #[must_use]
    pub fn new(user: String, password: Password) -> Self {
        let mut common = Settings::default();
        common.link.ccp_ack_delay = Duration::from_millis(80);
        Self {
            common,
            user,
            password,
            address: None,
            ask_dns: true,
        }
    }
}

/// The further settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The settings of both ends.
    pub common: Settings,
    /// Our name, for clients' logs.
    pub name: String,
    /// Our address inside.
    pub address: Ipv4Addr,
    /// Addresses for clients: as many as there can be at a time.
    pub pool: Vec<Ipv4Addr>,
    /// Name servers for clients.
    pub dns: Dns,
    /// The most control connections of clients that have not logged in. The others are as many as the pool has room for.
    pub max_strangers: usize,
}

impl ServerSettings {
    /// A server with an address of its own and addresses for clients.
    #[must_use]
    pub fn new(address: Ipv4Addr, pool: Vec<Ipv4Addr>) -> Self {
        Self {
            common: Settings::default(),
            name: "millrace".into(),
            address,
            pool,
            dns: [None; 2],
            max_strangers: 64,
        }
    }
}

/// Why a session does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// `allow_insecure` is false.
    #[error(
        "PPTP protects nothing: a recording of one login opens everything, and packets can be changed on their way. \
         Use WireGuard, or OpenVPN where that is all the other end has. If it has to be PPTP, write \
         allow-insecure = \"pptp\", and use a password that is used for nothing else"
    )]
    Insecure,
    /// Keys come from MS-CHAPv2 and from nothing else.
    #[error("MPPE needs MS-CHAPv2: no other login gives keys. Allow only that")]
    KeysNeedMsChapV2,
    /// No way to log in.
    #[error("no way to log in is allowed")]
    NoAuth,
    /// No length of keys.
    #[error("encryption is required, and no length of keys is allowed")]
    NoKeys,
    /// An MRU that does not do.
    #[error("an MRU of {0} bytes: it has to be between 128 and 1500")]
    Mru(u16),
    /// A server without addresses for clients.
    #[error("the server has no addresses for clients")]
    NoAddresses,
}

impl Settings {
    /// Whether a session may start with these.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn check(&self) -> Result<(), StartError> {
        if !self.allow_insecure {
            return Err(StartError::Insecure);
        }
        let link = &self.link;
        if link.auth.is_empty() {
            return Err(StartError::NoAuth);
        }
        if let Encryption::Mppe { keys, .. } = &link.encryption {
            if keys.is_empty() {
                return Err(StartError::NoKeys);
            }
            if link.auth.iter().any(|&auth| auth != Auth::MsChapV2) {
                return Err(StartError::KeysNeedMsChapV2);
            }
        }
        if !(128..=1500).contains(&link.mru) {
            return Err(StartError::Mru(link.mru));
        }
        Ok(())
    }
}
