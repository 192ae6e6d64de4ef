//! boringtun, by Cloudflare.

use std::path::PathBuf;

use super::{Invocation, PeerOptions, WireGuardPeer};
use crate::{LabError, tools};

/// boringtun-cli.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoringTun;

impl WireGuardPeer for BoringTun {
    fn name(&self) -> &'static str {
        "boringtun"
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        const PROGRAM: &str = "boringtun-cli";
        tools::peer(PROGRAM)
            .or_else(|| tools::in_path(PROGRAM))
            .ok_or_else(|| LabError::Missing {
                tool: PROGRAM.to_owned(),
                hint: "run `make peers`, or `cargo install boringtun-cli`".to_owned(),
            })
    }

    fn invocation(&self, interface: &str, options: &PeerOptions) -> Invocation {
        // Otherwise boringtun would switch to the user that called sudo, who may be unable to open the TUN.
        let mut invocation = Invocation::new(["-f", "--disable-drop-privileges", interface]);
        if let Some(threads) = options.threads {
            let threads = ["--threads".to_owned(), threads.to_string()];
            invocation.arguments.extend(threads);
        }
        invocation
    }
}
