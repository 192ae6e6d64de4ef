//! wireguard-go, by the authors of WireGuard: the newest version, and that of the distribution.

use std::path::PathBuf;

use super::{Invocation, PeerOptions, WireGuardPeer};
use crate::{LabError, tools};

/// The newest wireguard-go, built with Millrace's other peers. `go install` names it `wireguard`.
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
                hint: "run `make peers`, or set MILLRACE_PEERS to its directory".to_owned(),
            })
    }

    /// The module's version: the number that the program prints can stay the same for a year.
    fn version(&self) -> Option<String> {
        let path = self.available().ok()?;
        let said = tools::version(&path)?;
        Some(match module_version(&std::fs::read(path).ok()?) {
            Some(module) => format!("{said} (module {module})"),
            None => said,
        })
    }

    fn invocation(&self, interface: &str, options: &PeerOptions) -> Invocation {
        invocation(interface, options)
    }
}

/// Finds the version of the main module. Go's linker stores it in the program as `mod`, path, version and checksum,
/// separated by tabs.
fn module_version(program: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = b"mod\tgolang.zx2c4.com/wireguard\t";
    let at = program
        .windows(BEFORE.len())
        .position(|window| window == BEFORE)?;
    let version = program.get(at + BEFORE.len()..)?;
    let end = version.iter().position(|byte| b"\t\n".contains(byte))?;
    String::from_utf8(version[..end].to_vec()).ok()
}

/// The wireguard-go in PATH. That of Debian 12 dates from 2022: it has no offloads and no batches.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_module_is_read_from_the_program() {
        let program = b"\x7fELF\0path\tgolang.zx2c4.com/wireguard\nmod\tgolang.zx2c4.com/wireguard\tv0.0.0-1\th1:x=\n";
        assert_eq!(module_version(program).as_deref(), Some("v0.0.0-1"));
        assert_eq!(module_version(b"mod\tgolang.zx2c4.com/wireguard\tv0"), None);
        assert_eq!(module_version(b""), None);
    }
}
