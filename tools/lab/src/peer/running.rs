//! A running WireGuard program and its interface.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{READY, SOCKETS, WgInterface, WgStatus};
use crate::{Exit, Host, LabError, Process, tools};

/// Sends a UAPI request to the socket in a directory, and returns the answer.
///
/// # Errors
/// [`LabError::Host`] if there is no socket, or no answer within 40 seconds.
pub fn uapi(
    host: &Host,
    directory: &str,
    interface: &str,
    request: &str,
) -> Result<String, LabError> {
    let talk = || {
        let mut stream = UnixStream::connect(format!("{directory}/{interface}.sock"))?;
        stream.set_read_timeout(Some(READY))?;
        stream.write_all(request.as_bytes())?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        // An empty line ends the answer; the connection stays open.
        while !answer.ends_with(b"\n\n") {
            match stream.read(&mut buffer)? {
                0 => break,
                count => answer.extend_from_slice(&buffer[..count]),
            }
        }
        io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    host.run(talk)?
        .map_err(|error| LabError::host(host.name(), format!("talk to {interface}"), error))
}

/// A program with a WireGuard interface in a host. Dropping the value kills the program, which removes the interface.
#[derive(Debug)]
pub struct RunningPeer<'h> {
    host: &'h Host,
    /// The process, for its id and its output.
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
        let socket = format!("{SOCKETS}/{interface}.sock");
        process.wait_until("an answer to `wg show`", deadline, || {
            // Check for the interface first, which is cheaper than running `wg`. Also, `wg` deletes a socket that
            // refuses connections, as a socket does between bind and listen.
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

    /// The host in which the program runs.
    pub fn host(&self) -> &'h Host {
        self.host
    }

    /// The name of the program's interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Sends a UAPI request, for requests that the installed `wg` cannot make.
    ///
    /// # Errors
    /// [`LabError::Host`], or [`LabError::Report`] if the program refuses.
    pub fn uapi(&self, request: &str) -> Result<String, LabError> {
        let answer = uapi(self.host, SOCKETS, &self.interface, request)?;
        if answer.ends_with("errno=0\n\n") {
            return Ok(answer);
        }
        Err(LabError::Report {
            program: "UAPI".to_owned(),
            reason: "the request was refused".to_owned(),
            output: answer,
        })
    }

    /// Replaces the interface's whole configuration (`wg setconf`).
    ///
    /// # Errors
    /// [`LabError::Failed`] with the output of `wg`.
    pub fn configure(&self, configuration: &WgInterface) -> Result<(), LabError> {
        self.host
            .command(tools::find("wg")?)
            .args(["setconf", &self.interface, "/dev/stdin"])
            .output_with_input(&configuration.file())
            .map(drop)
    }

    /// Changes part of the configuration (`wg set IFNAME ARGUMENTS`).
    ///
    /// # Errors
    /// [`LabError::Failed`] with the output of `wg`.
    pub fn set(&self, arguments: &[&str]) -> Result<(), LabError> {
        self.host
            .command(tools::find("wg")?)
            .args(["set", &self.interface])
            .args(arguments)
            .output()
            .map(drop)
    }

    /// Sets as [`RunningPeer::set`] does. The argument `/dev/stdin` reads `input`; `wg` takes keys that way.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the output of `wg`.
    pub fn set_with_input(&self, arguments: &[&str], input: &str) -> Result<(), LabError> {
        self.host
            .command(tools::find("wg")?)
            .args(["set", &self.interface])
            .args(arguments)
            .output_with_input(input)
            .map(drop)
    }

    /// Runs `wg show` and parses its output.
    ///
    /// # Errors
    /// [`LabError::Failed`] if the program does not answer, [`LabError::Report`] if the output cannot be parsed.
    pub fn status(&self) -> Result<WgStatus, LabError> {
        let dump = self
            .host
            .command(tools::find("wg")?)
            .args(["show", &self.interface, "dump"])
            .output()?;
        WgStatus::parse(&dump).ok_or_else(|| LabError::Report {
            program: "wg show".to_owned(),
            reason: "unknown fields".to_owned(),
            // The text itself is left out: its first field is the private key.
            output: format!("{} lines", dump.lines().count()),
        })
    }

    /// Adds addresses to the interface, sets its MTU and brings it up.
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

    /// Routes all traffic of both families into the tunnel. The endpoint of the tunnel must be on a link of this
    /// host.
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
