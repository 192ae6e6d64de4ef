//! WireGuard programs, all behind one trait: started in a host, configured by `wg`.

mod boringtun;
mod gotatun;
mod millrace;
mod running;
mod wg;
mod wireguard_go;

use std::path::PathBuf;
use std::time::Duration;

pub use boringtun::BoringTun;
pub use gotatun::GotaTun;
pub use millrace::Millrace;
pub use running::RunningPeer;
pub use wg::{Keys, PeerStatus, PresharedKey, WgInterface, WgPeer, WgStatus};
pub use wireguard_go::{WireguardGo, WireguardGoPackaged};

use crate::{Host, LabError, Process, tools};

/// How long a program gets to answer `wg show`.
const READY: Duration = Duration::from_secs(40);

/// How a peer shall be started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerOptions {
    /// Worker threads, where the program lets us choose.
    pub threads: Option<u16>,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
}

/// A program that makes a WireGuard interface and is driven over the UAPI socket.
pub trait WireGuardPeer {
    /// Its name in tables, without a version.
    fn name(&self) -> &'static str;

    /// Where it is installed.
    ///
    /// # Errors
    /// [`LabError::Missing`], with how to get it.
    fn available(&self) -> Result<PathBuf, LabError>;

    /// Its version in its own words, with other facts; none if it is not installed or says nothing.
    fn version(&self) -> Option<String> {
        tools::version(&self.available().ok()?)
    }

    /// The arguments that make it stay in the foreground with an interface of this name, and the
    /// environment that it needs.
    fn invocation(&self, interface: &str, options: &PeerOptions) -> Invocation;

    /// Starts it in `host` and waits until `wg` can talk to it. Control sockets live in the file system:
    /// interface names must differ between hosts that are not private.
    ///
    /// # Errors
    /// [`LabError::Missing`], [`LabError::Failed`] if it ends at once, [`LabError::Timeout`].
    fn start<'h>(
        &self,
        host: &'h Host,
        interface: &str,
        options: &PeerOptions,
    ) -> Result<RunningPeer<'h>, LabError> {
        let program = self.available()?;
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
        RunningPeer::ready(host, process, interface, READY)
    }
}

/// The call of a program.
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

/// The programs of others, for comparison and as the other end.
pub fn others() -> Vec<Box<dyn WireGuardPeer>> {
    vec![
        Box::new(WireguardGo),
        Box::new(WireguardGoPackaged),
        Box::new(BoringTun),
        Box::new(GotaTun),
    ]
}
