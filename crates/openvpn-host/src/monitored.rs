//! A client or server, as the status file and the management port see it.

use crate::management::{Answer, Victim};
use crate::signals::Signal;
#[cfg(feature = "server")]
use crate::status_file::server::ServerStatus;
use crate::status_file::{ClientStatus, Format};
use crate::timestamp::Clock;
use config::openvpn::AuthRetry;
use std::time::SystemTime;

/// Daemon functions that the status file and the management port use.
pub trait Monitored {
    /// Returns the current status.
    fn status(&self) -> Status;
    /// Disconnects clients and returns their number; always 0 in a client.
    fn kill(&mut self, victim: &Victim) -> usize {
        let _ = victim;
        0
    }
    /// Disconnects one client, named by its number in the status.
    fn kill_client(&mut self, number: u64) -> bool {
        let _ = number;
        false
    }
    /// Moves the tunnel to a data plane, if one is named. Returns the one that moves the packets at present.
    ///
    /// # Errors
    /// Says why the tunnel cannot be moved.
    #[cfg(feature = "kernel")]
    fn move_to(&mut self, wanted: Option<config::settings::Kind>) -> Result<&'static str, String> {
        let _ = wanted;
        Err("there is no tunnel yet".to_owned())
    }
}

/// Status of a tunnel at one moment.
pub enum Status {
    /// Status of a client.
    Client(ClientStatus),
    /// Status of a server.
    #[cfg(feature = "server")]
    Server(ServerStatus),
}

impl Status {
    /// The status in this format, under this title.
    pub fn text(&self, format: Format, title: &str, clock: &Clock) -> String {
        let now = SystemTime::now();
        match self {
            Self::Client(status) => {
                // A client's status has one format and no title.
                let _ = (format, title);
                status.text(clock, now)
            }
            #[cfg(feature = "server")]
            Self::Server(status) => status.text(format, title, clock, now),
        }
    }

    /// Total bytes received and sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        match self {
            Self::Client(status) => (status.link_read, status.link_write),
            #[cfg(feature = "server")]
            Self::Server(status) => status.clients.iter().fold((0, 0), |(r, s), client| {
                (r + client.bytes_received, s + client.bytes_sent)
            }),
        }
    }

    /// Number of clients; 0 in a client.
    pub(crate) fn clients(&self) -> usize {
        match self {
            Self::Client(_) => 0,
            #[cfg(feature = "server")]
            Self::Server(status) => status.clients.len(),
        }
    }
}

/// The release of OpenVPN that this program behaves like and is tested with.
const RELEASE: &str = "2.6.14";

/// The program's name and version where the stock program has its own: `--version`, the log's first
/// line, `version` at the management port, the head of status files. Monitoring programs split it
/// at its spaces: the second word is three numbers, the third is the machine, and brackets follow.
pub fn title() -> String {
    format!(
        "OpenVPN {RELEASE} {}-linux [millrace {}] [AEAD]",
        std::env::consts::ARCH,
        env!("CARGO_PKG_VERSION")
    )
}

/// Request of a management client to the process itself.
#[derive(Debug, PartialEq, Eq)]
pub enum ProcessRequest {
    /// Act as on this signal.
    Signal(Signal),
    /// Begin, after a hold.
    Begin,
    /// Answer to a question.
    Answer(Answer),
    /// Forget passwords.
    Forget,
    /// Set the reaction to a refused password.
    AuthRetry(AuthRetry),
    /// Set `verb`.
    Verb(u8),
    /// Set `mute`.
    Mute(u32),
}
