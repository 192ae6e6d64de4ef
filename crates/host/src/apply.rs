//! Does the steps of a plan, and undoes them.

mod applied;
mod change;
mod effect;
mod keep;
mod outer;
mod recovery;
mod rivals;

use std::io;

use netio::netlink::NetlinkError;
use thiserror::Error;

use crate::dns::DnsError;
use crate::journal::JournalError;

pub use applied::Applied;
pub use recovery::{left_behind, recover, recover_all, recover_profile};

/// Why a plan could not be applied or undone. Steps done before the error have been undone.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The kernel refused a change.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Another interface has a network of the tunnel.
    #[error(
        "cannot add route {network}: File exists: interface {dev} of this host has the same network; renumber one of the \
         two sites, or remove the network from the tunnel's file (AllowedIPs)"
    )]
    Taken {
        /// The network.
        network: String,
        /// The other interface.
        dev: String,
    },
    /// Setting the name servers failed.
    #[error(transparent)]
    Dns(#[from] DnsError),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another route wins over one that must lead, or block, all packets.
    #[error("{0}")]
    Shadowed(String),
    /// A setting below `/proc/sys` could not be changed.
    #[error("/proc/sys/{key}: {error}")]
    Sysctl {
        /// The setting.
        key: String,
        /// The kernel's error.
        error: io::Error,
    },
}

impl ApplyError {
    /// True when the kernel refused a request as a whole, so that nothing has changed.
    fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Netlink(NetlinkError::Refused { .. }) | Self::Taken { .. }
        )
    }
}

/// Ignores "not found" when undoing: the step may have been recorded and not done, or undone by the user.
fn absent_is_fine(outcome: Result<(), NetlinkError>) -> Result<(), ApplyError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests;
