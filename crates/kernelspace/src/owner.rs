//! The process that owns an interface: unlike a TUN, an interface of the kernel's data plane survives a killed
//! process.

use netio::process::started;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::os::unix::fs::MetadataExt;
use std::{fmt, fs};

/// The beginning of an interface's alias. The process number, its PID namespace and its start time follow.
const ALIAS: &str = "millrace ";

/// Stands for an unknown value in the alias.
const UNKNOWN: &str = "-";

/// A process, distinguished from earlier processes with its number and from processes of other PID namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    process: u32,
    /// Inode of the process's PID namespace.
    namespace: Option<u64>,
    /// When the process started, in the kernel's clock ticks.
    started: Option<u64>,
}

impl Owner {
    /// Returns the owner that stands for this process.
    pub(crate) fn this() -> Self {
        let process = std::process::id();
        Self {
            process,
            namespace: fs::metadata("/proc/self/ns/pid").ok().map(|it| it.ino()),
            started: started(process),
        }
    }

    /// The process whose interface has this alias; `None` if the alias is not ours.
    pub(crate) fn of(alias: &str) -> Option<Self> {
        let mut words = alias.strip_prefix(ALIAS)?.split_ascii_whitespace();
        let process = words.next()?.parse().ok()?;
        let mut number = || words.next().and_then(|it| it.parse().ok());
        Some(Self {
            process,
            namespace: number(),
            started: number(),
        })
    }

    /// Whether the process is known to have ended, as seen from the process `here`.
    pub(crate) fn is_gone(&self, here: &Self) -> bool {
        self.is_gone_by(here, exists, started)
    }

    fn is_gone_by(
        &self,
        here: &Self,
        exists: impl Fn(u32) -> bool,
        started: impl Fn(u32) -> Option<u64>,
    ) -> bool {
        // A process number of another namespace means nothing here.
        if self.namespace.is_none() || self.namespace != here.namespace {
            return false;
        }
        let now = started(self.process);
        let other = self.started.zip(now).is_some_and(|(was, is)| was != is);
        other || !exists(self.process)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known =
            |number: Option<u64>| number.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string());
        let (namespace, started) = (known(self.namespace), known(self.started));
        write!(f, "{ALIAS}{} {namespace} {started}", self.process)
    }
}

/// Whether a process of this namespace has this number. A process that we may not signal exists.
fn exists(process: u32) -> bool {
    kill(Pid::from_raw(process.cast_signed()), None) != Err(Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const HERE: Owner = Owner {
        process: 50,
        namespace: Some(7),
        started: Some(1000),
    };

    fn owner(process: u32, namespace: u64, started: u64) -> Owner {
        Owner {
            process,
            namespace: Some(namespace),
            started: Some(started),
        }
    }

    #[test]
    fn an_alias_says_whose_an_interface_is() {
        assert_eq!(HERE.to_string(), "millrace 50 7 1000");
        let unknown = Owner {
            namespace: None,
            started: None,
            ..HERE
        };
        assert_eq!(unknown.to_string(), "millrace 50 - -");
        for owner in [HERE, unknown, Owner::this()] {
            assert_eq!(Owner::of(&owner.to_string()), Some(owner));
        }
        for other in [
            "",
            "millrace",
            "millrace x",
            "millrace50",
            "office 50 7 1000",
        ] {
            assert_eq!(Owner::of(other), None, "{other}");
        }
        // The limit is the kernel's IFALIASZ.
        assert!(owner(u32::MAX, u64::MAX, u64::MAX).to_string().len() < 256);
    }

    #[test]
    fn a_process_is_gone_only_if_that_is_known() {
        let gone = |owner: Owner, exists: bool, started: Option<u64>| {
            owner.is_gone_by(&HERE, |_| exists, |_| started)
        };
        assert!(gone(owner(60, 7, 900), false, None));
        // The process is hidden in /proc, or /proc is missing.
        assert!(!gone(owner(60, 7, 900), true, None));
        // Another process with that number and start time.
        assert!(!gone(owner(60, 7, 900), true, Some(900)));
        assert!(gone(owner(60, 7, 900), true, Some(950)));
        // This process's number, owned by an earlier process.
        assert!(gone(owner(50, 7, 900), true, Some(1000)));
        assert!(!gone(HERE, true, Some(1000)));
        // Numbers of another namespace, and unknown ones.
        assert!(!gone(owner(60, 8, 900), false, None));
        let unknown = Owner {
            namespace: None,
            ..owner(60, 7, 900)
        };
        assert!(!gone(unknown, false, None));
        assert!(!unknown.is_gone_by(&unknown, |_| false, |_| None));
    }

    #[test]
    fn living_processes_are_told_from_those_that_ended() {
        let here = Owner::this();
        assert!(here.namespace.is_some() && here.started.is_some());
        assert!(!here.is_gone(&here));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let its = Owner {
            process: child.id(),
            started: started(child.id()),
            ..here
        };
        assert!(!its.is_gone(&here));
        // The child ends when its input closes.
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(its.is_gone(&here));
    }
}
