//! The right to create network namespaces: as root, or in a user namespace.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};

use crate::{LabError, tools};

/// Environment variable of a process that was restarted inside a user namespace. It prevents endless restarts on a
/// kernel that grants the namespace but not the rights.
const ENTERED: &str = "MILLRACE_LAB_ENTERED";

/// Bit of CapEff in /proc/self/status (linux/capability.h).
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_NET_RAW: u64 = 1 << 13;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Makes sure that this process may create network namespaces. Root already may; any other user is moved into a new
/// user, mount and network namespace as its root. Call this at the start of `main`: a process with several threads is
/// *started again* inside that namespace, with the same arguments.
///
/// # Errors
/// [`LabError::NotPermitted`] if the kernel or its administrator forbids user namespaces.
pub fn enter() -> Result<(), LabError> {
    if has_rights() {
        return Ok(());
    }
    if env::var_os(ENTERED).is_some() {
        return Err(not_permitted("the user namespace did not bring the rights"));
    }
    if threads() == 1 {
        enter_here()
    } else {
        Err(enter_again())
    }
}

/// [`enter`] for tests: where networks cannot be made, notes that (see [`require`](crate::require)) and returns
/// false.
///
/// # Panics
/// Where [`require`](crate::require) panics.
#[track_caller]
pub fn may_enter() -> bool {
    crate::require(enter()).is_some()
}

fn not_permitted(reason: impl Into<String>) -> LabError {
    LabError::NotPermitted {
        reason: reason.into(),
    }
}

fn has_rights() -> bool {
    const NEEDED: u64 = CAP_NET_ADMIN | CAP_NET_RAW | CAP_SYS_ADMIN;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_some_and(|bits| bits & NEEDED == NEEDED)
}

fn threads() -> usize {
    // If /proc is unreadable, assume many threads: a restart works for any number.
    fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count)
}

/// Moves this process, which must have a single thread, into new namespaces.
fn enter_here() -> Result<(), LabError> {
    let (user, group) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .map_err(|error| not_permitted(format!("unshare: {error}")))?;
    let map = |file: &str, text: String| {
        fs::write(file, text).map_err(|error| not_permitted(format!("write {file}: {error}")))
    };
    // The kernel accepts a group map only after this. Kernels before 3.19 have no such file, and need none.
    let _ = fs::write("/proc/self/setgroups", "deny");
    map("/proc/self/uid_map", format!("0 {user} 1"))?;
    map("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Starts this program again in new namespaces. Returns only if that fails.
fn enter_again() -> LabError {
    let unshare = match tools::find("unshare") {
        Ok(path) => path,
        Err(error) => return not_permitted(error.to_string()),
    };
    let program = match env::current_exe() {
        Ok(path) => path,
        Err(error) => return not_permitted(format!("find this program: {error}")),
    };
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let error = Command::new(unshare)
        .args(["--user", "--map-root-user", "--net", "--mount", "--"])
        .arg(program)
        .args(arguments)
        .env(ENTERED, "1")
        .exec();
    not_permitted(format!("start again in a user namespace: {error}"))
}
