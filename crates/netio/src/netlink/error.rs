//! Errors of netlink operations.

use std::io;

/// A failed netlink operation, by cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// The kernel gave no socket: netlink is compiled out, or the process is out of
    /// descriptors.
    #[error("cannot open a netlink socket: {0}")]
    Open(io::Error),

    /// The kernel understood the request and refused it.
    #[error("cannot {operation} {object}: {error}{}", hint_suffix(.hint))]
    Refused {
        /// The operation, as a verb phrase ("add address").
        operation: &'static str,
        /// The operation's object ("10.0.0.1/24 to wg0").
        object: String,
        /// The kernel's error number.
        error: io::Error,
        /// The kernel's explanation, which kernels since 4.12 may send; otherwise empty.
        hint: String,
    },

    /// The request got no answer, because sending or receiving failed.
    #[error("cannot {operation} {object}: netlink socket: {error}")]
    Socket {
        /// The operation.
        operation: &'static str,
        /// The operation's object.
        object: String,
        /// The socket's error.
        error: io::Error,
    },

    /// The kernel's answer is invalid.
    #[error("cannot {operation} {object}: the kernel's answer makes no sense: {reason}")]
    Answer {
        /// The operation.
        operation: &'static str,
        /// The operation's object.
        object: String,
        /// What is wrong with the answer.
        reason: String,
    },

    /// The name cannot be a link's: empty, longer than 15 bytes, or with a `/`, blank or NUL in it.
    #[error(
        "{0:?} cannot be the name of an interface: use 1 to 15 bytes without '/', ':' or blanks"
    )]
    Name(String),
}

fn hint_suffix(hint: &str) -> String {
    if hint.is_empty() {
        String::new()
    } else {
        format!(" ({hint})")
    }
}

impl NetlinkError {
    /// The error number behind this error, if it came from the kernel.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Open(error) | Self::Refused { error, .. } | Self::Socket { error, .. } => {
                error.raw_os_error()
            }
            Self::Answer { .. } | Self::Name(_) => None,
        }
    }

    /// Whether the object to add exists already.
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }

    /// Whether the object to change, read or delete does not exist. The kernel has a different
    /// number for each kind of object: ENODEV for links, ESRCH for routes, EADDRNOTAVAIL for
    /// addresses, ENOENT for rules.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::ENOENT | libc::ENODEV | libc::ESRCH | libc::EADDRNOTAVAIL)
        )
    }

    /// Whether the routing tables have no route to an address.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.errno(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH))
    }

    /// Whether this kernel does not support the operation: it lacks an attribute, a link kind or an address family.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EPFNOSUPPORT)
        )
    }

    /// Whether CAP_NET_ADMIN is missing.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    /// The error with a better description of its object.
    pub(super) fn about(mut self, label: String) -> Self {
        match &mut self {
            Self::Refused { object, .. }
            | Self::Socket { object, .. }
            | Self::Answer { object, .. } => *object = label,
            Self::Open(_) | Self::Name(_) => {}
        }
        self
    }
}
