//! Undoes the steps that killed processes left behind; the next process runs this.

use std::path::Path;

use netio::netlink::Netlink;

use super::ApplyError;
use super::effect::revert;
use crate::journal::{self, DIRECTORY, Directory, Journal, JournalError};
use crate::system::System;

/// Undoes the steps that a process left when it was killed with `ifname` up. Returns whether there were any. Logs steps
/// that cannot be undone.
///
/// # Errors
/// [`JournalError::Running`] while the process runs, [`JournalError::File`] for a journal that
/// other users may write to, and when the kernel gives no netlink socket.
pub fn recover(ifname: &str) -> Result<bool, ApplyError> {
    let path = Path::new(DIRECTORY);
    // Opening the journal would create a file only to remove it.
    if !journal::path_of(path, ifname).exists() {
        return Ok(false);
    }
    let mut netlink = Netlink::open()?;
    let directory = Directory::lock(path)?;
    let (journal, any) = recovered(&directory, ifname, &mut netlink)?;
    journal.remove()?;
    Ok(any)
}

/// The interfaces of this network namespace that still have steps left by a killed process, each with the marks of its
/// routing rules. Empty if this user may not read them.
pub fn left_behind() -> Vec<(String, Vec<u32>)> {
    let path = Path::new(DIRECTORY);
    if !path.exists() {
        return Vec::new();
    }
    let Ok(directory) = Directory::lock(path) else {
        return Vec::new();
    };
    let with_marks = |ifname: String| {
        let steps = directory.steps(&ifname);
        let marks = steps.iter().filter_map(|it| it.rule()?.fwmark).collect();
        (ifname, marks)
    };
    directory
        .abandoned(None)
        .into_iter()
        .map(with_marks)
        .collect()
}

/// Undoes the steps that killed processes left for any interface: for tunnels whose interface gets its name from the
/// kernel. Returns the names of those interfaces.
///
/// Leaves journals of running processes and of other network namespaces alone.
///
/// # Errors
/// When the kernel gives no netlink socket. Steps that cannot be undone are logged.
pub fn recover_all() -> Result<Vec<String>, ApplyError> {
    recover_abandoned(None)
}

/// Undoes the steps that a process left when it was killed with the profile of this name up. Returns whether there were
/// any.
///
/// # Errors
/// The errors of [`recover_all`].
pub fn recover_profile(name: &str) -> Result<bool, ApplyError> {
    recover_abandoned(Some(&journal::known(name))).map(|names| !names.is_empty())
}

fn recover_abandoned(profile: Option<&str>) -> Result<Vec<String>, ApplyError> {
    let mut recovered = Vec::new();
    let path = Path::new(DIRECTORY);
    if !path.exists() {
        return Ok(recovered);
    }
    let abandoned = Directory::lock(path)?.abandoned(profile);
    for ifname in abandoned {
        match recover(&ifname) {
            Ok(true) => recovered.push(ifname),
            Ok(false) | Err(ApplyError::Journal(JournalError::Running { .. })) => {}
            Err(error @ ApplyError::Journal(_)) => log::warn!("{error}"),
            Err(error) => return Err(error),
        }
    }
    Ok(recovered)
}

/// The interface's journal after undoing the steps left in it, and whether there were any.
pub(super) fn recovered(
    directory: &Directory,
    ifname: &str,
    system: &mut dyn System,
) -> Result<(Journal, bool), ApplyError> {
    let (mut journal, mut left) = Journal::open(directory, ifname)?;
    // Another program may have an interface of that name by now, with its own name servers and routes.
    let now = system.index_of(ifname);
    if now.is_ok_and(|index| index != left.interface) {
        left.steps.retain(|step| !step.is_by_interface_name(ifname));
    }
    let any = !left.steps.is_empty();
    if any {
        log::warn!("{ifname}: undoing the changes of an earlier run");
        for error in revert(&left.steps, ifname, system, &journal) {
            log::warn!("{ifname}: {error}");
        }
    }
    journal.clear()?;
    Ok((journal, any))
}
