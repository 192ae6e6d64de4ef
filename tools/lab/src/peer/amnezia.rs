//! Programs of AmneziaWG, by its authors and around their library.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::{Invocation, PeerOptions, WireGuardPeer};
use crate::{Host, LabError, tools};

/// A program that speaks AmneziaWG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AmneziaWg {
    /// amneziawg-go 0.2.12: generation 1.0.
    V10,
    /// amneziawg-go 0.2.13: generation 1.5.
    V15,
    /// amneziawg-go 0.2.16: generation 2.0.
    V20,
    /// The library of generation 3.1, and a program around it.
    V31,
}

/// Where `wg` looks for sockets, and where these programs make theirs.
const SOCKETS: [&str; 2] = ["/var/run/wireguard", "/var/run/amneziawg"];

impl WireGuardPeer for AmneziaWg {
    fn name(&self) -> &'static str {
        match self {
            Self::V10 => "amneziawg-go-0.2.12",
            Self::V15 => "amneziawg-go-0.2.13",
            Self::V20 => "amneziawg-go-0.2.16",
            Self::V31 => "amneziawg-3.1",
        }
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        tools::peer(self.name()).ok_or_else(|| LabError::Missing {
            tool: self.name().to_owned(),
            hint: "run `scripts/peers amnezia`, or set MILLRACE_PEERS to its directory".to_owned(),
        })
    }

    fn version(&self) -> Option<String> {
        self.available().ok().map(|_| self.name().to_owned())
    }

    fn invocation(&self, interface: &str, _: &PeerOptions) -> Invocation {
        let mut invocation = match self {
            Self::V31 => Invocation::new([interface]),
            _ => Invocation::new(["-f", interface]),
        };
        let level = ("LOG_LEVEL".to_owned(), "error".to_owned());
        invocation.environment.push(level);
        invocation
    }

    /// Has the program make its socket where `wg` looks. The host must be private.
    fn prepare(&self, host: &Host) -> Result<(), LabError> {
        let [standard, own] = SOCKETS;
        // Both may exist from an earlier start.
        host.run(|| {
            let _ = fs::create_dir_all(standard).and_then(|()| symlink(standard, own));
        })
    }
}
