//! WireGuard programs behind one trait, started in a host and configured by `wg`.

mod amnezia;
mod boringtun;
mod gotatun;
mod millrace;
mod running;
mod wg;
mod wireguard_go;

use std::path::PathBuf;
use std::time::Duration;

pub use amnezia::{AmneziaWg, HEADER_KEY};
pub use boringtun::BoringTun;
pub use gotatun::GotaTun;
pub use millrace::Millrace;
pub use running::{RunningPeer, uapi};
pub use wg::{Keys, PeerStatus, PresharedKey, WgInterface, WgPeer, WgStatus};
pub use wireguard_go::{WireguardGo, WireguardGoPackaged};

use crate::{Host, LabError, Process, tools};

/// Directory of the sockets that `wg` looks for.
const SOCKETS: &str = "/var/run/wireguard";

/// How long a program gets to answer `wg show`.
const READY: Duration = Duration::from_secs(40);

/// Settings for the start of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerOptions {
    /// Worker threads, where the program has an option for it.
    pub threads: Option<u16>,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// Lines of a UAPI request that sets what `wg` does not know; may be empty.
    pub settings: &'static str,
}

/// A program that makes a WireGuard interface and is configured over the UAPI socket.
pub trait WireGuardPeer {
    /// The program's name in tables, without a version.
    fn name(&self) -> &'static str;

    /// Returns the program's path.
    ///
    /// # Errors
    /// [`LabError::Missing`], with installation advice.
    fn available(&self) -> Result<PathBuf, LabError>;

    /// The version that the program prints, with other facts; `None` if it is not installed or prints nothing.
    fn version(&self) -> Option<String> {
        tools::version(&self.available().ok()?)
    }

    /// The arguments that keep the program in the foreground with an interface of this name, and its environment
    /// variables.
    fn invocation(&self, interface: &str, options: &PeerOptions) -> Invocation;

    /// Makes the files that the program needs in `host`.
    ///
    /// # Errors
    /// [`LabError::Host`] if the host cannot be entered.
    fn prepare(&self, _: &Host) -> Result<(), LabError> {
        Ok(())
    }

    /// Starts the program in `host` and waits until `wg` can talk to it. Control sockets are files: in hosts that are
    /// not private, interface names must differ.
    ///
    /// # Errors
    /// [`LabError::Missing`], [`LabError::Failed`] if the program ends at once, [`LabError::Timeout`].
    fn start<'h>(
        &self,
        host: &'h Host,
        interface: &str,
        options: &PeerOptions,
    ) -> Result<RunningPeer<'h>, LabError> {
        let program = self.available()?;
        self.prepare(host)?;
        let invocation = self.invocation(interface, options);
        let mut command = host
            .command(program)
            .args(invocation.arguments)
            .args(&options.arguments);
        let environment = invocation.environment.iter().chain(&options.environment);
        for (key, value) in environment {
            command = command.env(key, value);
        }
        let process: Process = command.spawn()?;
        let running = RunningPeer::ready(host, process, interface, READY)?;
        if !options.settings.is_empty() {
            running.uapi(&format!("set=1\n{}\n", options.settings))?;
        }
        Ok(running)
    }
}

/// A command line and environment, without the program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Invocation {
    /// Arguments.
    pub arguments: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
}

impl Invocation {
    fn new<const N: usize>(arguments: [&str; N]) -> Self {
        Self {
            arguments: arguments.map(str::to_owned).to_vec(),
            environment: Vec::new(),
        }
    }
}

/// All implementations but Millrace, for comparison and as the other end.
pub fn others() -> Vec<Box<dyn WireGuardPeer>> {
    vec![
        Box::new(WireguardGo),
        Box::new(WireguardGoPackaged),
        Box::new(BoringTun),
        Box::new(GotaTun),
    ]
}
