//! The kernel and `nft`.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use host::Dnsmasq;
use netio::netlink::{Netfilter, Netlink};

use crate::SteerError;

/// Access to the host's network, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct System {
    /// Links, addresses, routes, rules.
    pub(crate) netlink: Netlink,
    /// The packet filter and connection tracking; `None` if the kernel lacks them.
    pub(crate) netfilter: Option<Netfilter>,
    /// The `dnsmasq` of the host, if it has one.
    pub(crate) dnsmasq: Option<Dnsmasq>,
}

impl System {
    /// Opens the sockets.
    pub(crate) fn open() -> Result<Self, SteerError> {
        Ok(Self {
            netlink: Netlink::open()?,
            netfilter: Netfilter::open().ok(),
            dnsmasq: dnsmasq(),
        })
    }
}

/// The host's `dnsmasq`. Before OpenWrt has started it, as at boot, UCI tells which directory it will read.
pub(crate) fn dnsmasq() -> Option<Dnsmasq> {
    let not_started = || openwrt::uci::dnsmasq_directory(Path::new("/etc/config"));
    Dnsmasq::find().or_else(|| not_started().map(Dnsmasq::not_started))
}

/// Runs an `nft` script, in one transaction.
pub(crate) fn nft(script: &str) -> Result<(), SteerError> {
    run(&["-f", "-"], script).map(drop)
}

/// The listing by `nft` of a table of the family `inet`.
pub(crate) fn listed(table: &str) -> Result<String, SteerError> {
    run(&["list", "table", "inet", table], "")
}

/// Runs `nft` with this input, and returns its output.
fn run(words: &[&str], input: &str) -> Result<String, SteerError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => SteerError::NoNft,
        _ => SteerError::Nft(error.to_string()),
    };
    let mut child = Command::new("nft")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let written = match child.stdin.take() {
        Some(mut pipe) => pipe.write_all(input.as_bytes()),
        None => Ok(()),
    };
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or("it failed without a message");
        return Err(SteerError::Nft(first.to_owned()));
    }
    written.map_err(failed)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
