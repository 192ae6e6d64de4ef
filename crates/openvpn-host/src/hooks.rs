//! Runs the configured scripts with their environment.

use config::openvpn::{Command, OpenVpn};
use std::time::SystemTime;

use crate::scripts::environment::Environment;
use crate::scripts::{Hook, Invocation, ScriptError};

/// The scripts of a configuration.
pub struct Hooks<'a> {
    config: &'a OpenVpn,
    /// Environment of every script.
    pub base: Environment,
    /// Environment for the scripts of a server's clients: variables about the interface, once it exists.
    #[cfg(feature = "server")]
    pub interface: Environment,
}

impl<'a> Hooks<'a> {
    /// `file` is the first configuration file, `start` the process's start time.
    pub fn new(config: &'a OpenVpn, file: Option<&str>, start: SystemTime) -> Self {
        let mut base = Environment::default();
        base.set_configuration(config, file, std::process::id(), start);
        Self {
            config,
            base,
            #[cfg(feature = "server")]
            interface: Environment::default(),
        }
    }

    /// Prepares the script of a hook.
    pub fn invocation(
        &self,
        hook: Hook,
        command: &Command,
        arguments: impl IntoIterator<Item = String>,
        environment: &Environment,
    ) -> Result<Invocation, ScriptError> {
        let security = self.config.scripts.security;
        #[cfg(feature = "server")]
        let environment = &environment.over(&self.interface);
        Ok(
            Invocation::new(hook, command, arguments, environment, security)?
                .in_directory(self.config.directory.clone()),
        )
    }

    /// Runs the script of a hook, if there is one, and waits for it.
    ///
    /// # Errors
    /// The script could not be run, or failed.
    #[cfg(feature = "server")]
    pub fn run(
        &self,
        hook: Hook,
        command: Option<&Command>,
        arguments: impl IntoIterator<Item = String>,
        environment: &Environment,
    ) -> Result<(), ScriptError> {
        let Some(command) = command else {
            return Ok(());
        };
        let invocation = self.invocation(hook, command, arguments, environment)?;
        log::info!("{}", invocation.line());
        invocation.run_well()
    }

    /// Runs a script as [`Hooks::run`] does, but only logs a failure.
    #[cfg(feature = "server")]
    pub fn tell(
        &self,
        hook: Hook,
        command: Option<&Command>,
        arguments: impl IntoIterator<Item = String>,
        environment: &Environment,
    ) {
        if let Err(e) = self.run(hook, command, arguments, environment) {
            log::warn!("WARNING: {e}");
        }
    }
}

#[cfg(feature = "server")]
#[cfg(test)]
mod tests;
