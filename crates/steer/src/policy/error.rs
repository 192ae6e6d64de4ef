//! Errors of the policy.

use crate::guard::GuardError;
use netio::netlink::NetlinkError;
use thiserror::Error;

/// Why a part of the policy could not be set, removed or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The settings decide nothing, or contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The program `nft` is missing.
    #[error(
        "there is no program nft (nftables), by which packets are told apart: no entry does anything; install nftables"
    )]
    NoNft,
    /// The kernel refused a request.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// `nft` failed, or the record of the settings could not be written.
    #[error(transparent)]
    Host(GuardError),
    /// Entries name domains, but the host has no `dnsmasq`.
    #[error(
        "entries name domains, and there is no program dnsmasq, which would tell their addresses"
    )]
    NoDnsmasq,
    /// Entries name domains, but this `dnsmasq` cannot fill sets.
    #[error(
        "entries name domains, and this dnsmasq cannot fill sets of nftables: install one that is built with nftset (on \
         OpenWrt the package dnsmasq-full in the place of dnsmasq)"
    )]
    NoNftset,
    /// Entries name domains, but the directory that `dnsmasq` reads is unknown.
    #[error(
        "entries name domains, and the directory that dnsmasq reads is not known (yet): name it, `dnsmasq = \"/etc/dnsmasq.d\"`"
    )]
    NoDirectory,
    /// `dnsmasq` could not be configured, or refuses the lines.
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
