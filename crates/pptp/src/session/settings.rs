//! The settings of a session, its source of random numbers, and the checks before it may start.

use core::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::control;
use crate::mppe::KeyLength;
use crate::mschap::Password;
use crate::ppp::{Auth, Dns, MppeBits, Timing};

/// How keys of MPPE change (RFC 3078, section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The key changes with each packet; no other mode is accepted.
    Stateless,
    /// The key changes with each packet, unless the peer insists on stateful mode.
    PreferStateless,
    /// Stateful mode, unless the peer insists on a key per packet. Each loss costs a round trip.
    PreferStateful,
}

/// How packets are encrypted. There is no "if possible" mode: an attacker who can change packets would turn encryption
/// off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// No encryption: anyone on the path can read everything. Some providers require this.
    None,
    /// MPPE, and no link without it.
    Mppe {
        /// Allowed key lengths. Lengths other than 128 bits are for peers that support nothing better.
        keys: Vec<KeyLength>,
        /// How keys change.
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

    /// The MPPE bits to negotiate, and whether stateful mode is allowed.
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
    /// Must be true, or the session does not start: see the crate's documentation.
    pub allow_insecure: bool,
    /// Settings of the control connection.
    pub control: control::Settings,
    /// Settings of the link.
    pub link: LinkSettings,
}

/// Settings for either end of a link.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// How packets are encrypted.
    pub encryption: Encryption,
    /// Login protocols, best first: those that a client accepts and a server requests.
    pub auth: Vec<Auth>,
    /// The longest information field that we accept: 128 to 1500 bytes.
    pub mru: u16,
    /// The longest IP packet that the path to the peer carries.
    pub path_mtu: u16,
    /// The timers of option negotiation.
    pub timing: Timing,
    /// Silence after which the peer gets an Echo-Request (RFC 1661, section 5.8); pppd's `lcp-echo-interval`.
    pub echo_interval: Duration,
    /// Unanswered Echo-Requests after which the peer counts as gone; pppd's `lcp-echo-failure`.
    pub echo_failures: u8,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// Delay of CCP's Configure-Ack. accel-ppp enables its kernel's decryption only after sending its request. A client
    /// that answers at once would meet a server that does not decrypt yet.
    pub ccp_ack_delay: Duration,
    /// Whether a client requests several lines, or a server agrees to them ([`lines`](crate::lines)). If false, the
    /// link follows RFC 1661 exactly.
    pub lines: bool,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            encryption: Encryption::strongest(),
            auth: vec![Auth::MsChapV2],
            mru: 1400,
            path_mtu: 1500,
            timing: Timing::default(),
            echo_interval: Duration::from_secs(30),
            echo_failures: 4,
            login_timeout: Duration::from_secs(30),
            ccp_ack_delay: Duration::ZERO,
            lines: false,
        }
    }
}

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The settings of both ends.
    pub common: Settings,
    /// The user's name, perhaps with a domain before it (`DOMAIN\user`).
    pub user: String,
    /// The password.
    pub password: Password,
    /// The address that we request; `None` to let the server assign one, as is usual.
    pub address: Option<Ipv4Addr>,
    /// Whether we request name servers (RFC 1877).
    pub ask_dns: bool,
}

impl ClientSettings {
    /// A client that accepts what the server assigns. It delays CCP's Ack by 80 ms for accel-ppp.
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

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The settings of both ends.
    pub common: Settings,
    /// Our name, for clients' logs.
    pub name: String,
    /// Inner address of the server.
    pub address: Ipv4Addr,
    /// Addresses for clients, which limit the number of clients.
    pub pool: Vec<Ipv4Addr>,
    /// Name servers for clients.
    pub dns: Dns,
    /// Maximum number of control connections of clients that have not logged in. The pool limits the others.
    pub max_strangers: usize,
}

impl ServerSettings {
    /// Settings with the server's inner address and a pool for clients.
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

/// Source of unguessable random bytes, for example for challenges. A program passes the kernel's.
#[derive(Clone)]
pub struct Entropy(Arc<Fill>);

/// Type of the function that fills a slice.
type Fill = dyn Fn(&mut [u8]) + Send + Sync;

impl Entropy {
    /// Creates a source from `fill`, which fills a slice with random bytes.
    #[must_use]
    pub fn new(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    pub(super) fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.0)(&mut bytes);
        bytes
    }

    pub(super) fn number(&self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

/// Why a session may not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// `allow_insecure` is false.
    #[error(
        "PPTP protects nothing: a recording of one login opens everything, and packets can be changed on their way. \
         Use WireGuard, or OpenVPN where that is all the other end has. If it has to be PPTP, write \
         allow-insecure = \"pptp\", and use a password that is used for nothing else"
    )]
    Insecure,
    /// MPPE is required, but only MS-CHAPv2 gives keys.
    #[error("MPPE needs MS-CHAPv2: no other login gives keys. Allow only that")]
    KeysNeedMsChapV2,
    /// No login protocol is allowed.
    #[error("no way to log in is allowed")]
    NoAuth,
    /// No key length is allowed.
    #[error("encryption is required, and no length of keys is allowed")]
    NoKeys,
    /// The MRU is out of range.
    #[error("an MRU of {0} bytes: it has to be between 128 and 1500")]
    Mru(u16),
    /// The pool of addresses for clients is empty.
    #[error("the server has no addresses for clients")]
    NoAddresses,
}

impl Settings {
    /// Checks whether a session may start with these settings.
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
