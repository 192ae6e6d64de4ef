//! The OpenVPN contenders: the program at each end, and the cipher.

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use lab::openvpn::{
    Cipher, Credentials, Digest, KeyKind, MillraceOpenVpn, OpenVpn, Setup, StockOpenVpn, Transport,
};
use lab::{Carrier, LabError};

use super::contender::{other_program, own_program};

/// The programs at the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Millrace at both ends.
    Millrace,
    /// Millrace connects to the stock server.
    Client,
    /// The stock client connects to Millrace.
    Server,
    /// The stock program at both ends, which is the reference.
    Stock,
    /// Another build of Millrace at both ends.
    Other,
}

impl Ends {
    /// All pairs that need no other build of this program.
    pub(crate) const ALL: [Self; 4] = [Self::Millrace, Self::Client, Self::Server, Self::Stock];

    /// A description for readers of the table.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Millrace => "OpenVPN by this program at both ends",
            Self::Client => "OpenVPN by this program at the end that calls, and the stock server",
            Self::Server => "OpenVPN by this program at the end that listens, and the stock client",
            Self::Stock => "OpenVPN by the stock program at both ends",
            Self::Other => "OpenVPN by the other program at both ends",
        }
    }

    /// Whether this program is at end `number`; end 0 connects, end 1 listens.
    fn millrace_at(self, number: usize) -> bool {
        match self {
            Self::Millrace => true,
            Self::Client => number == 0,
            Self::Server => number == 1,
            Self::Stock | Self::Other => false,
        }
    }

    /// Returns the program at end `number`; end 0 connects, end 1 listens. `other` is another build of this program.
    ///
    /// # Errors
    /// [`LabError::Missing`] if the other build is needed and not given.
    pub(super) fn program(
        self,
        number: usize,
        other: Option<&Path>,
    ) -> Result<Box<dyn OpenVpn>, LabError> {
        Ok(if self == Self::Other {
            Box::new(MillraceOpenVpn::new(other_program(other)?))
        } else if self.millrace_at(number) {
            Box::new(MillraceOpenVpn::new(own_program()))
        } else {
            Box::new(StockOpenVpn)
        })
    }
}

named! {
    /// A cipher with its digest, and the packet size.
    Suite {
        None = "none",
        Gcm = "gcm",
        ChaCha = "chacha",
        Cbc = "cbc",
        Bf = "bf",
        NoneJumbo = "none-9k",
        GcmJumbo = "gcm-9k",
        GcmTcp = "gcm-tcp",
    }
}

/// The MTU of jumbo packets, which make the cost per packet small.
const JUMBO: u16 = 9000;

impl Suite {
    /// The cipher's short name for the plot.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::None | Self::NoneJumbo => "none",
            Self::Gcm | Self::GcmJumbo | Self::GcmTcp => "AES-GCM",
            Self::ChaCha => "ChaCha20",
            Self::Cbc => "AES-CBC",
            Self::Bf => "Blowfish",
        }
    }

    /// A description for readers.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::None => "no cipher and no digest",
            Self::Gcm => "AES-256-GCM",
            Self::ChaCha => "ChaCha20-Poly1305",
            Self::Cbc => "AES-256-CBC with SHA1",
            Self::Bf => "BF-CBC with SHA1",
            Self::NoneJumbo => "no cipher and no digest, tun-mtu 9000, mssfix 0",
            Self::GcmJumbo => "AES-256-GCM, tun-mtu 9000, mssfix 0",
            Self::GcmTcp => "AES-256-GCM over TCP",
        }
    }

    pub(super) fn setup(self) -> Setup {
        let (cipher, auth) = match self {
            Self::None | Self::NoneJumbo => (Cipher::None, Digest::None),
            Self::Gcm | Self::GcmJumbo | Self::GcmTcp => (Cipher::Aes256Gcm, Digest::Sha1),
            Self::ChaCha => (Cipher::ChaCha20Poly1305, Digest::Sha1),
            Self::Cbc => (Cipher::Aes256Cbc, Digest::Sha1),
            Self::Bf => (Cipher::BlowfishCbc, Digest::Sha1),
        };
        let jumbo = matches!(self, Self::NoneJumbo | Self::GcmJumbo);
        let mut setup = Setup {
            cipher,
            auth,
            tun_mtu: jumbo.then_some(JUMBO),
            mssfix: jumbo.then_some(0),
            transport: match self {
                Self::GcmTcp => Transport::Tcp,
                _ => Transport::Udp,
            },
            ..Setup::default()
        };
        // A renegotiation by age or volume would occur in one repetition and not in the next.
        for end in [&mut setup.server, &mut setup.client] {
            end.line("reneg-sec 0");
        }
        setup
    }
}

/// The name of a pair in tables and on the command line.
pub(crate) fn name(ends: Ends, suite: Suite) -> &'static str {
    static NAMES: LazyLock<[[String; Suite::ALL.len()]; 5]> = LazyLock::new(|| {
        let programs = ["ovpn", "ovpn-client", "ovpn-server", "openvpn", "other"];
        programs.map(|program| Suite::ALL.map(|suite| format!("{program}-{}", suite.name())))
    });
    &NAMES[ends as usize][suite as usize]
}

/// Returns the carrier of a pair.
///
/// # Errors
/// [`LabError::Missing`] if one of the programs is not installed.
pub(super) fn carrier(ends: Ends, suite: Suite, other: Option<&Path>) -> Result<Carrier, LabError> {
    let [client, server] = [0, 1].map(|number| ends.program(number, other));
    let (client, server) = (client?, server?);
    client.available()?;
    server.available()?;
    Ok(Carrier::OpenVpn {
        client,
        server,
        setup: Box::new(suite.setup()),
        credentials: credentials()?,
    })
}

/// The authority of all OpenVPN contenders, with RSA, the most common kind.
pub(super) fn credentials() -> Result<Arc<Credentials>, LabError> {
    static MADE: Mutex<Option<Arc<Credentials>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(credentials) = &*made {
        return Ok(Arc::clone(credentials));
    }
    let fresh = Arc::new(Credentials::new(KeyKind::Rsa)?);
    *made = Some(Arc::clone(&fresh));
    Ok(fresh)
}
