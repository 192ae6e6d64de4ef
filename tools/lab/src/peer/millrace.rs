//! Millrace as a WireGuard peer.

use std::path::PathBuf;

use super::{Invocation, PeerOptions, WireGuardPeer};
use crate::LabError;

/// `millrace wireguard`, from a path that the caller knows: `CARGO_BIN_EXE_millrace` in tests, its
/// own executable in `millrace demo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Millrace {
    program: PathBuf,
}

impl Millrace {
    /// The program at `program`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
        }
    }
}

impl WireGuardPeer for Millrace {
    fn name(&self) -> &'static str {
        "millrace"
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        if self.program.is_file() {
            return Ok(self.program.clone());
        }
        Err(LabError::Missing {
            tool: self.program.display().to_string(),
            hint: "build it with `cargo build --release`".to_owned(),
        })
    }

    fn invocation(&self, interface: &str, options: &PeerOptions) -> Invocation {
        let mut invocation = Invocation::new(["wireguard", interface, "-f"]);
        if let Some(threads) = options.threads {
            let setting = format!("dataplane.workers={threads}");
            invocation.arguments.extend(["--set".to_owned(), setting]);
        }
        invocation
    }
}
