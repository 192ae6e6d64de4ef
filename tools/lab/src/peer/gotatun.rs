//! GotaTun, by Mullvad: a descendant of boringtun.

use std::path::PathBuf;

use super::{Invocation, PeerOptions, WireGuardPeer};
use crate::{LabError, tools};

/// gotatun-cli, whose program is called `gotatun`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GotaTun;

impl WireGuardPeer for GotaTun {
    fn name(&self) -> &'static str {
        "gotatun"
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        const PROGRAM: &str = "gotatun";
        tools::peer(PROGRAM)
            .or_else(|| tools::in_path(PROGRAM))
            .ok_or_else(|| LabError::Missing {
                tool: PROGRAM.to_owned(),
                hint: "run `make peers`, or `cargo install gotatun-cli`".to_owned(),
            })
    }

    fn invocation(&self, interface: &str, options: &PeerOptions) -> Invocation {
        let mut invocation = Invocation::new(["-f", "--disable-drop-privileges", interface]);
        if let Some(threads) = options.threads {
            // GotaTun runs on tokio, which reads this variable.
            let variable = ("TOKIO_WORKER_THREADS".to_owned(), threads.to_string());
            invocation.environment.push(variable);
        }
        invocation
    }
}
