//! Errors of the guard.

use std::io;
use std::path::PathBuf;

use netio::netlink::NetlinkError;
use thiserror::Error;

/// Why a part of the guard could not be set, removed or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The settings guard nothing, or contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The program `nft` is missing.
    #[error(
        "there is no program nft (nftables): only the routing rules hold. While another program flushes all rules, as \
         OpenWrt's netifd does when it starts, packets leave in clear; install nftables, or a firmware that has it"
    )]
    NoNft,
    /// `nft` failed, with this message.
    #[error("nft: {0}")]
    Nft(String),
    /// The kernel refused a request.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// `dnsmasq` could not be configured.
    #[error("name servers: {0}")]
    Dns(#[from] host::DnsError),
    /// The guard's record cannot be written or locked.
    #[error("{}: {error}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}
