//! Programs of AmneziaWG, by its authors and around their library.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::{Invocation, PeerOptions, SOCKETS, WireGuardPeer};
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

/// Where these programs make their sockets.
const OWN_SOCKETS: &str = "/var/run/amneziawg";

/// The key in [`AmneziaWg::settings`], as UAPI and as files write it.
pub const HEADER_KEY: [&str; 2] = [
    "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f",
    "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=",
];

impl AmneziaWg {
    /// Settings like those that the apps draw, as UAPI writes them. Files write only the key otherwise.
    #[must_use]
    pub const fn settings(self) -> &'static str {
        match self {
            Self::V10 | Self::V15 => {
                "jc=4\njmin=50\njmax=100\ns1=30\ns2=40\nh1=111111\nh2=222222\nh3=333333\nh4=444444\n"
            }
            Self::V20 => {
                "jc=4\njmin=50\njmax=100\ns1=30\ns2=40\ns3=25\ns4=16\n\
                 h1=100000-200000\nh2=300000-400000\nh3=500000-600000\nh4=700000-800000\n"
            }
            Self::V31 => {
                "jc=4\njmin=50\njmax=100\ns1=30\ns2=40\ns3=25\ns4=16\n\
                 header_protection_key=404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f\n\
                 content_padding_addition=10-100\nrandom_trailers=1\ndisable_cookies=1\n"
            }
        }
    }
}

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
        // Both may exist from an earlier start.
        host.run(|| {
            let _ = fs::create_dir_all(SOCKETS).and_then(|()| symlink(SOCKETS, OWN_SOCKETS));
        })
    }
}
