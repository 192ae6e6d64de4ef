//! Steering: through which tunnel packets of the LAN leave, or that they do not leave at all.
//!
//! The [`guard`] *holds* devices of the LAN: it blocks their packets unless a tunnel carries them. The [`policy`] leads
//! packets by sender and destination. Both are chains of the packet filter, routing rules, and default routes in
//! routing tables of their own. These belong to the kernel and to no process. A `plan` only decides: settings and facts
//! in, changes out. The actions of both apply the changes, and a `watch` applies them again when another program has
//! undone them.
//!
//! The [`forward`]er asks providers' gateways for public ports, and leads packets to them on to devices of the LAN.
//!
//! One writer makes two tables of the packet filter, `millrace` and `millrace_policy`. One table would not do: the
//! guard's outlives the policy's, which `off` deletes as a whole with its sets, and is shared with other parts of the
//! program. Each of the guard's chains is a transaction of its own, so that a kernel that cannot make one can still
//! hold packets; the policy's chains jump to each other, and are one transaction.

#![forbid(unsafe_code)]

mod facts;
mod filter;
mod flows;
pub mod forward;
pub mod guard;
mod networks;
pub mod picture;
mod plan;
pub mod policy;
mod record;
mod report;
mod settings;
mod system;
mod watch;
mod way;

use std::io;
use std::path::PathBuf;

use netio::netlink::{Family, NetlinkError, Rule};
use thiserror::Error;

pub use record::{Claim, claim};
pub use report::{Part, to_watch};
pub use way::{Way, Why};

/// For each routing table or mark, the interfaces that its IPv4 and IPv6 packets go through, and whether the interface
/// has an address of the family, to which connections are translated; `None` where packets are blocked.
pub(crate) type Ways = Vec<(u32, [Option<(u32, bool)>; 2])>;

/// The result of an action.
#[derive(Debug)]
pub struct Done<R> {
    /// The state after the action.
    pub report: R,
    /// Errors of the steps that failed. All others were done.
    pub errors: Vec<SteerError>,
    /// Whether a part that holds packets was missing and is set again.
    pub closed: bool,
    /// Number of connection tracking entries deleted because the connection now takes another route.
    pub forgotten: usize,
    pub(crate) ways: Ways,
}

/// Why a part of the guard or the policy could not be set, removed or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SteerError {
    /// The settings decide nothing, or contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The program `nft` is missing.
    #[error(
        "the program nft (nftables) is missing: a policy's entries have no effect, and the guard has only its routing \
         rules. While another program flushes all rules, as OpenWrt's netifd does when it starts, packets leave \
         unencrypted; install nftables, or a firmware that has it"
    )]
    NoNft,
    /// `nft` failed, with this message.
    #[error("nft: {0}")]
    Nft(String),
    /// The kernel refused a request.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// `dnsmasq` could not be configured, or refuses the lines.
    #[error("name servers: {0}")]
    Dns(#[from] host::DnsError),
    /// Entries name domains, but the host has no `dnsmasq`.
    #[error(
        "entries name domains, but dnsmasq, which reports their addresses, is missing; install it"
    )]
    NoDnsmasq,
    /// Entries name domains, but this `dnsmasq` cannot fill sets.
    #[error(
        "entries name domains, but this dnsmasq cannot fill nftables sets; install one that is built with nftset (on \
         OpenWrt the package dnsmasq-full in place of dnsmasq)"
    )]
    NoNftset,
    /// Entries name domains, but the directory that `dnsmasq` reads is unknown.
    #[error(
        "entries name domains, but the directory that dnsmasq reads is not known (yet); set it, for example `dnsmasq \
         = \"/etc/dnsmasq.d\"`"
    )]
    NoDirectory,
    /// Another process does the same.
    #[error("{}: {} runs it already; end that one first", .name.replace('-', " "), process(*pid))]
    Runs {
        /// The command.
        name: &'static str,
        /// The other process; 0 if it is not known yet.
        pid: u32,
    },
    /// The record of the settings in force cannot be written or locked.
    #[error("{}: {error}", path.display())]
    Record {
        /// Path of the record.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

/// A process in words, by its number; 0 if that is not known.
fn process(pid: u32) -> String {
    match pid {
        0 => "another process".to_owned(),
        pid => format!("process {pid}"),
    }
}

/// The value; an error is added to `errors`.
pub(crate) fn or_note<T, E: Into<SteerError>>(
    result: Result<T, E>,
    errors: &mut Vec<SteerError>,
) -> Option<T> {
    result.map_err(|error| errors.push(error.into())).ok()
}

/// Whether a routing rule is the guard's or the policy's.
#[must_use]
pub fn is_ours(rule: &Rule) -> bool {
    guard::rules::is_ours(rule) || policy::rules::is_ours(rule)
}

/// Rules of both families as comments of a script.
fn rules_in_words(wanted: impl Fn(Family) -> Vec<Rule>) -> String {
    let numbers = facts::FAMILIES.into_iter().zip([4, 6]);
    let rules = numbers.flat_map(|(family, number)| {
        let rules = wanted(family).into_iter();
        rules.map(move |it| format!("# IPv{number} rule {} {it}\n", it.priority.unwrap_or(0)))
    });
    rules.collect()
}

#[cfg(test)]
mod fixture;
