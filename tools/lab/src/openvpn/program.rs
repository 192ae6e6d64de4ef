//! OpenVPN programs.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::{ConfigFile, RunningOpenVpn};
use crate::peer::Invocation;
use crate::{Host, LabError, tools};

/// A program that takes OpenVPN's command line and configuration files.
pub trait OpenVpn: fmt::Debug + Send + Sync {
    /// The program's name in tables and messages.
    fn name(&self) -> &'static str;

    /// Returns the program's path.
    ///
    /// # Errors
    /// [`LabError::Missing`], with installation advice.
    fn available(&self) -> Result<PathBuf, LabError>;

    /// The arguments that come before OpenVPN's own options, and environment variables.
    fn invocation(&self) -> Invocation {
        Invocation::default()
    }

    /// The OpenVPN release whose directives the program takes: major and minor number.
    fn release(&self) -> (u16, u16) {
        (2, 7)
    }

    /// The directive that allows insecure ciphers, if the program needs one.
    fn insecure(&self) -> Option<&'static str>;

    /// Starts the program in `host` with a configuration and a directory of its own. Relative paths in the
    /// configuration are relative to that directory.
    ///
    /// # Errors
    /// [`LabError::Missing`], [`LabError::Host`].
    fn launch<'h>(
        &self,
        host: &'h Host,
        config: &ConfigFile,
    ) -> Result<RunningOpenVpn<'h>, LabError> {
        RunningOpenVpn::launch(&self.available()?, &self.invocation(), host, config)
    }

    /// Launches as [`OpenVpn::launch`] does, and waits until the program reports that it is ready.
    ///
    /// # Errors
    /// [`LabError::Failed`] if the program ends at once, [`LabError::Timeout`].
    fn start<'h>(
        &self,
        host: &'h Host,
        config: &ConfigFile,
    ) -> Result<RunningOpenVpn<'h>, LabError> {
        let mut running = self.launch(host, config)?;
        running.wait_until_ready(1)?;
        Ok(running)
    }
}

/// Stock OpenVPN: the program that `MILLRACE_OPENVPN` names, or else the installed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StockOpenVpn;

impl OpenVpn for StockOpenVpn {
    fn name(&self) -> &'static str {
        "openvpn"
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        match env::var_os("MILLRACE_OPENVPN") {
            Some(path) => Ok(PathBuf::from(path)),
            None => tools::find("openvpn"),
        }
    }

    fn release(&self) -> (u16, u16) {
        static RELEASE: OnceLock<(u16, u16)> = OnceLock::new();
        *RELEASE.get_or_init(|| {
            self.available()
                .ok()
                .and_then(|it| release_of(&it))
                .unwrap_or((2, 6))
        })
    }

    fn insecure(&self) -> Option<&'static str> {
        // OpenSSL 3 has the old ciphers in a provider that is not loaded by default. OpenVPN before 2.6 can load it
        // only through OpenSSL's own configuration (`OPENSSL_CONF`).
        (self.release() >= (2, 6)).then_some("providers legacy default")
    }
}

/// The release that the program prints: `OpenVPN 2.5.11 …`.
pub(super) fn release_of(program: &Path) -> Option<(u16, u16)> {
    // OpenVPN exits with status 1 after printing its version.
    let said = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout);
    let mut numbers = said.strip_prefix("OpenVPN ")?.split(['.', '_', ' ']);
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

/// `millrace openvpn`, from a path that the caller knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MillraceOpenVpn {
    program: PathBuf,
    environment: Vec<(String, String)>,
}

impl MillraceOpenVpn {
    /// The program at `program`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            environment: Vec::new(),
        }
    }

    /// Adds an environment variable, such as `MILLRACE_SET` for settings.
    #[must_use]
    pub fn with_environment(mut self, key: &str, value: &str) -> Self {
        self.environment.push((key.to_owned(), value.to_owned()));
        self
    }
}

impl OpenVpn for MillraceOpenVpn {
    fn name(&self) -> &'static str {
        "millrace"
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        if self.program.is_file() {
            return Ok(self.program.clone());
        }
        Err(LabError::Missing {
            tool: self.program.display().to_string(),
            hint: "build it with `cargo build --release`".to_owned(),
        })
    }

    fn invocation(&self) -> Invocation {
        Invocation {
            arguments: vec!["openvpn".to_owned()],
            environment: self.environment.clone(),
        }
    }

    fn insecure(&self) -> Option<&'static str> {
        Some("allow-insecure-ciphers")
    }
}
