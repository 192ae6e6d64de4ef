//! Errors of the guard.

use std::io;
use std::path::PathBuf;

use netio::netlink::NetlinkError;
use thiserror::Error;

/// Why something of the guard could not be set, taken away or seen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The settings guard nothing, or contradict each other.
    #[error("{0}")]
    Settings(String),
    /// There is no `nft`.
    #[error(
        "there is no program nft (nftables): only the routing rules hold. While another program flushes all rules, as \
         OpenWrt's netifd does when it starts, packets leave in clear; install nftables, or a firmware that has it"
    )]
    NoNft,
    /// `nft` did not do what it was told.
    #[error("nft: {0}")]
    Nft(String),
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// `dnsmasq` was not told.
    #[error("name servers: {0}")]
    Dns(#[from] host::DnsError),
    /// The record of what was asked for.
    #[error("{}: {error}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}
