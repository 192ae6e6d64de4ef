//! Cleans up when the user presses Ctrl-C.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long killed processes get to disappear.
const BURIAL: Duration = Duration::from_secs(2);

/// Processes and namespaces that this process must not leave behind.
static LIVING: Mutex<Living> = Mutex::new(Living {
    groups: BTreeSet::new(),
    networks: BTreeSet::new(),
});

struct Living {
    /// Processes, each the leader of its group.
    groups: BTreeSet<u32>,
    /// Network namespaces.
    networks: BTreeSet<Network>,
}

/// A network namespace, by the device and inode of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Network(u64, u64);

impl Network {
    /// Reads the identity of the namespace behind a file of /proc.
    pub(crate) fn of(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self(file.dev(), file.ino()))
    }
}

fn living() -> MutexGuard<'static, Living> {
    // A panic of another thread cannot damage these sets of numbers.
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn remember(process: u32) {
    living().groups.insert(process);
}

pub(crate) fn forget(process: u32) {
    living().groups.remove(&process);
}

pub(crate) fn remember_network(network: Network) {
    living().networks.insert(network);
}

/// Kills every process that still runs in the given namespace of ours, and forgets the namespace. Daemons can escape
/// their process group and their parent's death, but not their namespace.
pub(crate) fn clear_network(network: Network) {
    living().networks.remove(&network);
    let end = Instant::now() + BURIAL;
    while kill_inhabitants(|found| *found == network) && Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
    }
}

/// Kills the processes whose namespace is `wanted`; returns false if there were none. A dead process has no
/// namespace, even before its parent has waited for it.
fn kill_inhabitants(wanted: impl Fn(&Network) -> bool) -> bool {
    let mut any = false;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_string_lossy().parse::<i32>();
        let Ok(process) = number else { continue };
        if process.cast_unsigned() == process::id() {
            continue;
        }
        if Network::of(entry.path().join("ns/net")).is_ok_and(|found| wanted(&found)) {
            any = true;
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
    }
    any
}

/// Makes SIGINT, SIGTERM and SIGHUP kill everything that runs in the hosts and end this process with status 130. The
/// namespaces vanish with their last process.
///
/// # Errors
/// If the handlers cannot be set.
pub fn cleanup_on_signal() -> io::Result<()> {
    cleanup_on_signal_then(|| {})
}

/// Cleans up as [`cleanup_on_signal`] does, then calls `last`, for a final message to the user.
///
/// # Errors
/// If the handlers cannot be set.
pub fn cleanup_on_signal_then(last: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if signals.forever().next().is_some() {
                let living = living();
                for group in &living.groups {
                    let _ = killpg(Pid::from_raw(group.cast_signed()), Signal::SIGKILL);
                }
                kill_inhabitants(|found| living.networks.contains(found));
                last();
                process::exit(130);
            }
        })?;
    Ok(())
}
