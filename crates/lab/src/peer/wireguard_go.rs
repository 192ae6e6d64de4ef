//! wireguard-go, by the authors of WireGuard: the newest, and the one that distributions carry.

use std::path::PathBuf;

use super::{Invocation, PeerOptions, WireGuardPeer};
use crate::{LabError, tools};

/// The newest wireguard-go, built beside Millrace. `go install` calls it `wireguard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireguardGo;

impl WireGuardPeer for WireguardGo {
    fn name(&self) -> &'static str {
        "wireguard-go"
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        ["wireguard-go", "wireguard"]
            .iter()
            .find_map(|name| tools::peer(name))
            .ok_or_else(|| LabError::Missing {
                tool: "the newest wireguard-go".to_owned(),
                hint: "run `make peers`, or name the directory of it in MILLRACE_PEERS".to_owned(),
            })
    }

    fn invocation(&self, interface: &str, options: &PeerOptions) -> Invocation {
        invocation(interface, options)
    }
}

/// The wireguard-go in PATH. The one of Debian 12 is of 2022: no offloads, no batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireguardGoPackaged;

impl WireGuardPeer for WireguardGoPackaged {
    fn name(&self) -> &'static str {
        "wireguard-go (packaged)"
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        tools::find("wireguard-go")
    }

    fn invocation(&self, interface: &str, options: &PeerOptions) -> Invocation {
        invocation(interface, options)
    }
}

fn invocation(interface: &str, options: &PeerOptions) -> Invocation {
    let mut invocation = Invocation::new(["-f", interface]);
    let mut set = |key: &str, value: String| invocation.environment.push((key.to_owned(), value));
    set("LOG_LEVEL", "error".to_owned());
    if let Some(threads) = options.threads {
        set("GOMAXPROCS", threads.to_string());
    }
    invocation
}
