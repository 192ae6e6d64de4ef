//! Errors of the policy.

use guard::GuardError;
use netio::netlink::NetlinkError;
use thiserror::Error;

/// Why something of the policy could not be set, taken away or seen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The settings decide nothing, or contradict each other.
    #[error("{0}")]
    Settings(String),
    /// There is no `nft`.
    #[error(
        "there is no program nft (nftables), by which packets are told apart: no entry does anything; install nftables"
    )]
    NoNft,
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// `nft` did not do what it was told, or the record of what was asked for could not be written.
    #[error(transparent)]
    Host(GuardError),
    /// Entries name domains, and there is no `dnsmasq`.
    #[error(
        "entries name domains, and there is no program dnsmasq, which would tell their addresses"
    )]
    NoDnsmasq,
    /// `dnsmasq` cannot fill sets.
    #[error(
        "entries name domains, and this dnsmasq cannot fill sets of nftables: install one that is built with nftset (on \
         OpenWrt the package dnsmasq-full in the place of dnsmasq)"
    )]
    NoNftset,
    /// `dnsmasq` reads no directory that is known.
    #[error(
        "entries name domains, and the directory that dnsmasq reads is not known (yet): name it, `dnsmasq = \"/etc/dnsmasq.d\"`"
    )]
    NoDirectory,
    /// `dnsmasq` was not told, or refuses what it is told.
    #[error(transparent)]
    Dns(#[from] host::DnsError),
}

impl From<GuardError> for PolicyError {
    fn from(error: GuardError) -> Self {
        match error {
            GuardError::NoNft => Self::NoNft,
            other => Self::Host(other),
        }
    }
}
