//! Runs the configured scripts: program, arguments, environment and exit status.
//!
//! [`Invocation::run`] waits for the program. The interface code waits for `up`, `down` and the route hooks. Scripts
//! that a peer can cause run in `Background`. No shell is involved: a hook is a program and its
//! arguments.

#[cfg(feature = "server")]
pub mod auth_script;
#[cfg(feature = "server")]
pub mod connect_script;
pub mod environment;
pub mod names;
pub mod variables;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command as Process, ExitStatus, Stdio};

use config::openvpn::{Command, ScriptSecurity};
use thiserror::Error;

use environment::Environment;

/// Event at which a program runs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Hook {
    /// The interface has its addresses.
    Up,
    /// The interface is being removed or gone.
    Down,
    /// The routes are set.
    RouteUp,
    /// The routes are about to be removed.
    RoutePreDown,
    /// The peer is authenticated, or has moved.
    IpChange,
    /// A certificate of the peer's chain needs a verdict.
    TlsVerify,
    /// A client is authenticated and needs its settings.
    #[cfg(feature = "server")]
    ClientConnect,
    /// A client has disconnected.
    #[cfg(feature = "server")]
    ClientDisconnect,
    /// A tunnel address was assigned to a client or removed from it.
    #[cfg(feature = "server")]
    LearnAddress,
    /// A name and a password need a verdict.
    #[cfg(feature = "server")]
    AuthUserPassVerify,
    /// An answer to a challenge needs a verdict.
    #[cfg(feature = "server")]
    ClientCrResponse,
}

impl Hook {
    /// Name of the hook's directive.
    pub const fn directive(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::RouteUp => "route-up",
            Self::RoutePreDown => "route-pre-down",
            Self::IpChange => "ipchange",
            Self::TlsVerify => "tls-verify",
            #[cfg(feature = "server")]
            Self::ClientConnect => "client-connect",
            #[cfg(feature = "server")]
            Self::ClientDisconnect => "client-disconnect",
            #[cfg(feature = "server")]
            Self::LearnAddress => "learn-address",
            #[cfg(feature = "server")]
            Self::AuthUserPassVerify => "auth-user-pass-verify",
            #[cfg(feature = "server")]
            Self::ClientCrResponse => "client-crresponse",
        }
    }

    /// Value of `script_type`. As in stock, and unlike its manual, only one differs from the directive.
    pub(crate) const fn script_type(self) -> &'static str {
        match self {
            #[cfg(feature = "server")]
            Self::AuthUserPassVerify => "user-pass-verify",
            hook => hook.directive(),
        }
    }
}

/// Error while running a script.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The configuration permits no scripts.
    #[error(
        "{hook} is not run: `script-security 2` or higher must be in the configuration to call scripts"
    )]
    NotPermitted {
        /// Name of the hook's directive.
        hook: &'static str,
    },
    /// The program cannot be started.
    #[error("{hook}: `{program}` cannot be run: {error}")]
    Run {
        /// Name of the hook's directive.
        hook: &'static str,
        /// The program.
        program: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The program failed.
    #[error("{hook}: `{program}`: {status}")]
    Failed {
        /// Name of the hook's directive.
        hook: &'static str,
        /// The program.
        program: String,
        /// The exit status.
        status: ExitStatus,
    },
    /// A file for a script cannot be made or read.
    #[cfg(feature = "server")]
    #[error("a file for a script in {directory}: {error}")]
    File {
        /// The directory (`tmp-dir`).
        directory: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The script wrote a malformed `auth_pending_file`.
    #[cfg(feature = "server")]
    #[error(
        "auth_pending_file needs three lines: seconds to wait, the method, and what the user is told"
    )]
    Pending,
    /// The script wrote 0, or an unknown value, to `client_connect_deferred_file`.
    #[cfg(feature = "server")]
    #[error("client-connect: the script refused the client in client_connect_deferred_file")]
    Refused,
}

/// A program that is ready to be run.
#[derive(Clone, Debug)]
pub struct Invocation {
    hook: Hook,
    program: String,
    arguments: Vec<String>,
    environment: Environment,
    security: ScriptSecurity,
    directory: Option<PathBuf>,
}

impl Invocation {
    /// Prepares a hook's program with its configured arguments, then `arguments`.
    ///
    /// # Errors
    /// [`ScriptError::NotPermitted`] below `script-security 2`.
    pub(crate) fn new(
        hook: Hook,
        command: &Command,
        arguments: impl IntoIterator<Item = String>,
        environment: &Environment,
        security: ScriptSecurity,
    ) -> Result<Self, ScriptError> {
        let words = command.words.split_first();
        let (true, Some((program, words))) = (security >= ScriptSecurity::Scripts, words) else {
            return Err(ScriptError::NotPermitted {
                hook: hook.directive(),
            });
        };
        let mut environment = environment.clone();
        environment.set("script_type", hook.script_type());
        Ok(Self {
            hook,
            program: program.clone(),
            arguments: words.iter().cloned().chain(arguments).collect(),
            environment,
            security,
            directory: None,
        })
    }

    /// Runs the program in this directory (`cd`) instead of the daemon's.
    pub(crate) fn in_directory(mut self, directory: Option<PathBuf>) -> Self {
        self.directory = directory;
        self
    }

    /// Adds an environment variable.
    #[cfg(feature = "server")]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.set(name, value);
        self
    }

    /// Adds a last argument.
    #[cfg(feature = "server")]
    pub(crate) fn argument(mut self, argument: String) -> Self {
        self.arguments.push(argument);
        self
    }

    /// The program and its arguments as one line, for the log.
    pub fn line(&self) -> String {
        let words = self.arguments.iter().map(String::as_str);
        let words: Vec<&str> = std::iter::once(self.program.as_str())
            .chain(words)
            .collect();
        words.join(" ")
    }

    /// Runs the program and waits for it.
    ///
    /// # Errors
    /// The program cannot be started. The caller must check the exit status.
    pub fn run(&self) -> Result<ExitStatus, ScriptError> {
        // A name without a slash is a file in this directory, not a search: a peer could set the environment's PATH.
        let program = match self.program.contains('/') {
            true => self.program.clone(),
            false => format!("./{}", self.program),
        };
        let mut process = Process::new(program);
        process
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.visible(self.security))
            .stdin(Stdio::null());
        if let Some(directory) = &self.directory {
            process.current_dir(directory);
        }
        process.status().map_err(|error| ScriptError::Run {
            hook: self.hook.directive(),
            program: self.program.clone(),
            error,
        })
    }

    /// Runs the program and waits for its success.
    ///
    /// # Errors
    /// The program cannot be started, or failed.
    pub fn run_well(&self) -> Result<(), ScriptError> {
        let status = self.run()?;
        if status.success() {
            return Ok(());
        }
        Err(ScriptError::Failed {
            hook: self.hook.directive(),
            program: self.program.clone(),
            status,
        })
    }
}

/// Arguments of `up`, `down` and `route-pre-down`: device, MTU, a former link MTU, the tunnel's address, the peer's
/// address or the netmask, and `init` or `restart`. Missing addresses are empty.
pub fn device_arguments(
    device: &str,
    mtu: u16,
    local: Option<Ipv4Addr>,
    second: Option<Ipv4Addr>,
    context: &str,
) -> [String; 6] {
    let text = |addr: Option<Ipv4Addr>| addr.map(|a| a.to_string()).unwrap_or_default();
    [
        device.to_owned(),
        mtu.to_string(),
        "0".to_owned(),
        text(local),
        text(second),
        context.to_owned(),
    ]
}

/// Arguments of `ipchange`: `[AF_INET]192.0.2.1` and the port.
pub fn ipchange_arguments(peer: SocketAddr) -> [String; 2] {
    let family = if peer.is_ipv4() {
        "AF_INET"
    } else {
        "AF_INET6"
    };
    [format!("[{family}]{}", peer.ip()), peer.port().to_string()]
}

/// Arguments of `tls-verify`: the distance from the peer's own certificate, and the subject.
pub fn tls_verify_arguments(depth: usize, subject: &str) -> [String; 2] {
    [depth.to_string(), names::name(subject)]
}

/// Change of an address, for `learn-address`.
#[cfg(feature = "server")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Learned<'a> {
    /// The address belongs to this client now.
    Add(&'a str),
    /// The address belongs to no client now.
    Delete,
}

/// Arguments of `learn-address`: the change, the address or network, and the client's name. With [`Learned::Delete`]
/// the environment has only `script_type`.
#[cfg(feature = "server")]
pub fn learn_address_arguments(learned: Learned<'_>, address: &str) -> Vec<String> {
    let (operation, name) = match learned {
        Learned::Add(name) => ("add", Some(name)),
        Learned::Delete => ("delete", None),
    };
    [operation, address]
        .into_iter()
        .chain(name)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
pub(crate) mod testing {
    //! Scripts for tests.

    use super::*;

    /// A command that runs this text in a shell; the hook's arguments are `$1` and following.
    pub(crate) fn shell(text: &str) -> Command {
        let words = ["/bin/sh", "-c", text, "hook"];
        Command {
            words: words.map(str::to_owned).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::shell;
    use super::*;

    fn invocation(text: &str, environment: &Environment) -> Invocation {
        Invocation::new(
            Hook::Up,
            &shell(text),
            device_arguments("tun0", 1500, Some([10, 8, 0, 2].into()), None, "init"),
            environment,
            ScriptSecurity::Scripts,
        )
        .unwrap()
    }

    #[test]
    fn a_script_sees_its_arguments_and_its_environment_and_nothing_else() {
        let mut environment = Environment::default();
        environment.set("dev", "tun0");
        environment.set("password", "sesame");
        let script = "test $# = 6 && test $1 = tun0 && test $3 = 0 && test -z \"$5\" && \
                      test $6 = init && test $dev = tun0 && test $script_type = up && \
                      test -z \"$password$CARGO_PKG_NAME$HOME\"";
        invocation(script, &environment).run_well().unwrap();
    }

    #[test]
    fn failure_names_the_hook_and_the_program() {
        let error = invocation("exit 3", &Environment::default())
            .run_well()
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("up: `/bin/sh`") && text.contains('3'),
            "{text}"
        );
        let missing = Command {
            words: vec!["no-such-program".to_owned()],
        };
        let invocation = Invocation::new(
            Hook::Down,
            &missing,
            [],
            &Environment::default(),
            ScriptSecurity::Scripts,
        );
        let error = invocation.unwrap().run().unwrap_err().to_string();
        assert!(error.starts_with("down: `no-such-program`"), "{error}");
    }

    #[test]
    fn scripts_need_permission() {
        let environment = Environment::default();
        let new = |security| Invocation::new(Hook::Up, &shell(":"), [], &environment, security);
        for security in [ScriptSecurity::None, ScriptSecurity::BuiltIn] {
            let error = new(security).unwrap_err();
            assert!(error.to_string().contains("script-security 2"), "{error}");
        }
        assert!(new(ScriptSecurity::Scripts).is_ok());
    }

    #[test]
    fn programs_without_a_path_are_looked_for_only_in_the_directory() {
        let here = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/bin/true", here.path().join("hook")).unwrap();
        let words = vec!["hook".to_owned()];
        let environment = Environment::default();
        let security = ScriptSecurity::Scripts;
        Invocation::new(Hook::Up, &Command { words }, [], &environment, security)
            .unwrap()
            .in_directory(Some(here.path().to_owned()))
            .run_well()
            .unwrap();
    }

    #[test]
    fn arguments_are_those_of_stock() {
        assert_eq!(
            ipchange_arguments("192.0.2.1:1194".parse().unwrap()),
            ["[AF_INET]192.0.2.1", "1194"]
        );
        assert_eq!(tls_verify_arguments(1, "CN=a;\n"), ["1", "CN=a;_"]);
    }

    #[cfg(feature = "server")]
    #[test]
    fn arguments_of_learn_address_are_those_of_stock() {
        assert_eq!(
            learn_address_arguments(Learned::Add("c"), "10.8.0.2"),
            ["add", "10.8.0.2", "c"]
        );
        assert_eq!(
            learn_address_arguments(Learned::Delete, "fd00::/64"),
            ["delete", "fd00::/64"]
        );
    }
}
