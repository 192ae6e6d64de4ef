//! Errors while a network is built and used.

use std::io;
use std::time::Duration;

use netio::ethtool::EthtoolError;
use netio::netlink::NetlinkError;

/// A failure of the lab, by the remedy that it needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// This process may not make namespaces.
    #[error(
        "the lab cannot make network namespaces: {reason}; run it as root, or allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone)"
    )]
    NotPermitted {
        /// The attempt that the kernel refused.
        reason: String,
    },

    /// A program that the lab calls is not installed.
    #[error("{tool} is not installed; {hint}")]
    Missing {
        /// Name of the program.
        tool: String,
        /// How to install the program.
        hint: String,
    },

    /// A facility of this machine cannot be used as it is.
    #[error("{what} cannot be used: {hint}")]
    Unusable {
        /// Name of the facility.
        what: String,
        /// Why, and what to do.
        hint: String,
    },

    /// The operating system refused something in a host.
    #[error("cannot {operation} in host {host}: {error}")]
    Host {
        /// What was attempted.
        operation: String,
        /// The host's name.
        host: String,
        /// Why the attempt failed.
        error: io::Error,
    },

    /// The kernel refused to configure a host's network.
    #[error("host {host}: {error}")]
    Netlink {
        /// The host's name.
        host: String,
        /// The refused request.
        error: NetlinkError,
    },

    /// The kernel refused to switch an interface's offloads.
    #[error("host {host}: {error}")]
    Ethtool {
        /// The host's name.
        host: String,
        /// The refused request.
        error: EthtoolError,
    },

    /// A program failed or ended before its time.
    #[error("{program} in host {host} ended with {status}: {output}")]
    Failed {
        /// The program with its arguments.
        program: String,
        /// The host's name.
        host: String,
        /// The program's exit status.
        status: String,
        /// The end of the program's output.
        output: String,
    },

    /// An expected event did not happen in time.
    #[error("{program} in host {host}: {what} did not happen within {deadline:?}: {output}")]
    Timeout {
        /// The program that the lab waited for.
        program: String,
        /// The host's name.
        host: String,
        /// The condition that the lab waited for.
        what: String,
        /// How long the lab waited.
        deadline: Duration,
        /// The end of the program's output.
        output: String,
    },

    /// A program's output could not be understood.
    #[error("cannot read the report of {program}: {reason}: {output}")]
    Report {
        /// The program.
        program: String,
        /// The fault.
        reason: String,
        /// The beginning of the program's output.
        output: String,
    },

    /// The load itself failed: the server refused a connection, or a file had wrong content.
    #[error("{what}: {error}")]
    Load {
        /// The task.
        what: String,
        /// Why the task failed.
        error: io::Error,
    },
}

impl LabError {
    pub(crate) fn host(host: &str, operation: impl Into<String>, error: io::Error) -> Self {
        Self::Host {
            operation: operation.into(),
            host: host.to_owned(),
            error,
        }
    }

    pub(crate) fn netlink(host: &str) -> impl Fn(NetlinkError) -> Self + '_ {
        move |error| Self::Netlink {
            host: host.to_owned(),
            error,
        }
    }

    pub(crate) fn ethtool(host: &str) -> impl Fn(EthtoolError) -> Self + '_ {
        move |error| Self::Ethtool {
            host: host.to_owned(),
            error,
        }
    }

    pub(crate) fn load(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Load { what, error }
    }
}
