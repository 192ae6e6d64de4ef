//! A WireGuard program that runs, and its interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{WgInterface, WgStatus};
use crate::{Exit, Host, LabError, Process, tools};

/// A program with a WireGuard interface in a host. Dropping it kills the program, and the interface
/// goes with it.
#[derive(Debug)]
pub struct RunningPeer<'h> {
    host: &'h Host,
    /// The program itself, for its process id and what it says.
    pub process: Process,
    interface: String,
}

impl<'h> RunningPeer<'h> {
    /// Waits until `wg` can talk to a program that was just started.
    pub(crate) fn ready(
        host: &'h Host,
        mut process: Process,
        interface: &str,
        deadline: Duration,
    ) -> Result<Self, LabError> {
        let wg = tools::find("wg")?;
        let socket = format!("/var/run/wireguard/{interface}.sock");
        process.wait_until("an answer to `wg show`", deadline, || {
            // The link comes first, and asking for it is cheaper than running a program. And `wg`
            // removes a socket that refuses it, as one does that is bound and not yet listening.
            host.has_interface(interface).unwrap_or(false)
                && host
                    .run(|| UnixStream::connect(&socket).is_ok())
                    .unwrap_or(false)
                && host
                    .command(&wg)
                    .args(["show", interface, "dump"])
                    .output()
                    .is_ok()
        })?;
        Ok(Self {
            host,
            process,
            interface: interface.to_owned(),
        })
    }

    /// The host that it runs in.
    pub fn host(&self) -> &'h Host {
        self.host
    }

    /// The name of its interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Replaces its whole configuration (`wg setconf`).
    ///
    /// # Errors
    /// [`LabError::Failed`] with what `wg` said.
    pub fn configure(&self, configuration: &WgInterface) -> Result<(), LabError> {
        self.host
            .command(tools::find("wg")?)
            .args(["setconf", &self.interface, "/dev/stdin"])
            .output_with_input(&configuration.file())
            .map(drop)
    }

    /// Changes something (`wg set IFNAME ARGUMENTS`).
    ///
    /// # Errors
    /// [`LabError::Failed`] with what `wg` said.
    pub fn set(&self, arguments: &[&str]) -> Result<(), LabError> {
        self.host
            .command(tools::find("wg")?)
            .args(["set", &self.interface])
            .args(arguments)
            .output()
            .map(drop)
    }

    /// Sets as [`RunningPeer::set`] does; an argument `/dev/stdin` reads `input`, which is how `wg` takes keys.
    ///
    /// # Errors
    /// [`LabError::Failed`] with what `wg` said.
    pub fn set_with_input(&self, arguments: &[&str], input: &str) -> Result<(), LabError> {
        self.host
            .command(tools::find("wg")?)
            .args(["set", &self.interface])
            .args(arguments)
            .output_with_input(input)
            .map(drop)
    }

    /// The output of `wg show`.
    ///
    /// # Errors
    /// [`LabError::Failed`] if the program does not answer, [`LabError::Report`] if `wg` changed.
    pub fn status(&self) -> Result<WgStatus, LabError> {
        let dump = self
            .host
            .command(tools::find("wg")?)
            .args(["show", &self.interface, "dump"])
            .output()?;
        WgStatus::parse(&dump).ok_or_else(|| LabError::Report {
            program: "wg show".to_owned(),
            reason: "unknown fields".to_owned(),
            // Its first field is the private key.
            output: format!("{} lines", dump.lines().count()),
        })
    }

    /// Gives the interface addresses and an MTU and brings it up.
    ///
    /// # Errors
    /// [`LabError::Netlink`].
    pub fn bring_up(&self, addresses: &[(IpAddr, u8)], mtu: u32) -> Result<(), LabError> {
        self.host.set_mtu(&self.interface, mtu)?;
        for (ip, prefix) in addresses {
            self.host.add_address(&self.interface, *ip, *prefix)?;
        }
        self.host.set_up(&self.interface, true)
    }

    /// Routes a network into the tunnel.
    ///
    /// # Errors
    /// [`LabError::Netlink`].
    pub fn route(&self, network: IpAddr, prefix: u8) -> Result<(), LabError> {
        self.host
            .add_device_route((network, prefix), &self.interface)
    }

    /// Routes everything of both families into the tunnel, which only helps when the other end of the
    /// tunnel is on a link of this host's.
    ///
    /// # Errors
    /// [`LabError::Netlink`].
    pub fn route_everything(&self) -> Result<(), LabError> {
        self.route(Ipv4Addr::UNSPECIFIED.into(), 0)?;
        self.route(Ipv6Addr::UNSPECIFIED.into(), 0)
    }

    /// Ends the program by SIGTERM.
    ///
    /// # Errors
    /// [`LabError::Timeout`] if it had to be killed.
    pub fn stop(self) -> Result<Exit, LabError> {
        self.process.stop()
    }
}
