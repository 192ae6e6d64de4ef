//! The kernel and `nft`.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use host::Dnsmasq;
use netio::netlink::{Netfilter, Netlink};

use crate::GuardError;

/// Access to the host's network, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct System {
    /// Links, addresses, routes, rules.
    pub netlink: Netlink,
    /// The packet filter and connection tracking; `None` if the kernel lacks them.
    pub netfilter: Option<Netfilter>,
    /// The `dnsmasq` of the host, if it has one.
    pub(crate) dnsmasq: Option<Dnsmasq>,
}

impl System {
    /// Opens the sockets.
    ///
    /// # Errors
    /// When the kernel provides no routing socket.
    pub fn open() -> Result<Self, GuardError> {
        Ok(Self {
            netlink: Netlink::open()?,
            netfilter: Netfilter::open().ok(),
            dnsmasq: dnsmasq(),
        })
    }
}

/// The host's `dnsmasq`. Before OpenWrt has started it, as at boot, UCI tells which directory it will read.
#[must_use]
pub fn dnsmasq() -> Option<Dnsmasq> {
    let not_started = || openwrt::uci::dnsmasq_directory(Path::new("/etc/config"));
    Dnsmasq::find().or_else(|| not_started().map(Dnsmasq::not_started))
}

/// Runs an `nft` script, in one transaction.
///
/// # Errors
/// [`GuardError::NoNft`], or the message of `nft`.
pub fn nft(script: &str) -> Result<(), GuardError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => GuardError::NoNft,
        _ => GuardError::Nft(error.to_string()),
    };
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let written = match child.stdin.take() {
        Some(mut input) => input.write_all(script.as_bytes()),
        None => Ok(()),
    };
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or("it failed without a word");
        return Err(GuardError::Nft(first.to_owned()));
    }
    written.map_err(failed)
}

/// The listing by `nft` of a table of the family `inet`.
///
/// # Errors
/// The errors of [`nft`].
pub fn listed(table: &str) -> Result<String, GuardError> {
    let output = Command::new("nft")
        .args(["list", "table", "inet", table])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => GuardError::NoNft,
            _ => GuardError::Nft(error.to_string()),
        })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
