//! The right to make networks: root's, or a user namespace's.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};

use crate::{LabError, tools};

/// Set in the environment of the process that was started again inside a user namespace, so that a
/// kernel that grants the namespace but not the rights does not start it forever.
const ENTERED: &str = "MILLRACE_LAB_ENTERED";

/// Bits of CapEff in /proc/self/status, linux/capability.h.
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_NET_RAW: u64 = 1 << 13;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Makes sure that this process may make network namespaces. Root may already; any other user is moved
/// into a new user, mount and network namespace in which they are root. Call it at the start of
/// `main`: a process that has threads already is *started again* inside of that namespace, from
/// the beginning, with the same arguments.
///
/// # Errors
/// [`LabError::NotPermitted`] where the kernel or its administrator allows neither.
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

/// [`enter`] for tests: false, and a note of it (see [`require`](crate::require)), where networks cannot be made.
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
    // An unreadable /proc counts as many: starting again is right for any number of threads.
    fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count)
}

/// Moves this process, which must have a single thread, into namespaces of its own.
fn enter_here() -> Result<(), LabError> {
    let (user, group) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .map_err(|error| not_permitted(format!("unshare: {error}")))?;
    let map = |file: &str, text: String| {
        fs::write(file, text).map_err(|error| not_permitted(format!("write {file}: {error}")))
    };
    // A group map needs this first; kernels before 3.19 neither have nor want it.
    let _ = fs::write("/proc/self/setgroups", "deny");
    map("/proc/self/uid_map", format!("0 {user} 1"))?;
    map("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Starts this program again in namespaces of its own. Only returns if that fails.
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
