//! An OpenVPN program that runs in a host.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use super::{ConfigFile, Directory, Management};
use crate::peer::Invocation;
use crate::{Exit, Host, LabError, Process};

/// The line that every OpenVPN logs when it is connected, or ready for clients.
pub const READY_LINE: &str = "Initialization Sequence Completed";

/// How long to wait for a program: long for a busy machine, bounded for a broken program.
pub(super) const PATIENCE: Duration = Duration::from_secs(40);

/// An OpenVPN program in a host. Dropping the value kills the program and deletes its directory.
#[derive(Debug)]
pub struct RunningOpenVpn<'h> {
    host: &'h Host,
    /// The process, for its id and its output.
    pub process: Process,
    interface: String,
    directory: Directory,
}

impl<'h> RunningOpenVpn<'h> {
    pub(crate) fn launch(
        program: &Path,
        invocation: &Invocation,
        host: &'h Host,
        config: &ConfigFile,
    ) -> Result<Self, LabError> {
        let directory = Directory::new()?;
        let file = directory.file("openvpn.conf", config.to_string())?;
        for (path, content) in config.files() {
            directory.file(path, content)?;
        }
        let mut command = host.command(program).args(&invocation.arguments);
        for (key, value) in &invocation.environment {
            command = command.env(key, value);
        }
        let process = command
            .arg("--cd")
            .arg(directory.path())
            .arg("--config")
            .arg(file)
            .spawn()?;
        let interface = config.find("dev").and_then(|words| words.first().copied());
        Ok(Self {
            host,
            process,
            interface: interface.unwrap_or_default().to_owned(),
            directory,
        })
    }

    /// Waits until the program has reported `times` times that it is ready: once at the start, and again after each
    /// restart.
    ///
    /// # Errors
    /// [`LabError::Timeout`], [`LabError::Failed`] if the program ends.
    pub fn wait_until_ready(&mut self, times: usize) -> Result<(), LabError> {
        self.wait_for_lines(READY_LINE, times)
    }

    /// Waits until `times` lines of the program's log contain `text`.
    ///
    /// # Errors
    /// [`LabError::Timeout`], [`LabError::Failed`] if the program ends.
    pub fn wait_for_lines(&mut self, text: &str, times: usize) -> Result<(), LabError> {
        let what = format!("{text:?}, {times} times");
        let wanted = |line: &str| line.contains(text);
        self.process.wait_for_lines(&what, times, PATIENCE, wanted)
    }

    /// Number of lines in the program's log that contain `text`.
    pub fn said(&self, text: &str) -> usize {
        [self.process.stdout(), self.process.stderr()]
            .iter()
            .flat_map(|output| output.lines())
            .filter(|line| line.contains(text))
            .count()
    }

    /// The host in which the program runs.
    pub fn host(&self) -> &'h Host {
        self.host
    }

    /// The name of the program's interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The program's directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The interface's addresses of both families, except link-local ones.
    ///
    /// # Errors
    /// [`LabError::Failed`] if the interface does not exist.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, LabError> {
        let words = [
            "-o",
            "address",
            "show",
            "dev",
            &self.interface,
            "scope",
            "global",
        ];
        let text = self.host.output("ip", words)?;
        let address = |line: &str| {
            let mut words = line.split_whitespace();
            words.find(|word| word.starts_with("inet"))?;
            words.next()?.split('/').next()?.parse().ok()
        };
        Ok(text.lines().filter_map(address).collect())
    }

    /// The first IPv6 address of the program's interface.
    ///
    /// # Errors
    /// [`LabError::Failed`] if the interface does not exist, [`LabError::Report`] if it has no IPv6 address.
    pub fn inner6(&self) -> Result<IpAddr, LabError> {
        let addresses = self.addresses()?;
        let six = addresses.iter().find(|address| address.is_ipv6());
        six.copied().ok_or_else(|| LabError::Report {
            program: "ip address".to_owned(),
            reason: "no IPv6 address".to_owned(),
            output: format!("{addresses:?}"),
        })
    }

    /// The text of a file in the program's directory, such as its status file; empty if the file is missing.
    pub fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name)).unwrap_or_default()
    }

    /// Connects to the program's management socket; the configuration needs [`Management::DIRECTIVE`].
    ///
    /// # Errors
    /// [`LabError::Load`] if nothing listens or no greeting comes.
    pub fn management(&self) -> Result<Management, LabError> {
        Management::connect(&self.directory.join(Management::SOCKET))
    }

    /// Ends the program by SIGTERM.
    ///
    /// # Errors
    /// [`LabError::Timeout`] if it had to be killed.
    pub fn stop(self) -> Result<Exit, LabError> {
        self.process.stop()
    }
}
