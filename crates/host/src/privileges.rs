//! Drops privileges that are not needed after set-up.

use crate::written_file;
use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{Gid, Group, Uid, User};
use std::fs::File;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Whether this process may look at and change the host's packet filter, routes and rules.
#[must_use]
pub fn administers() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_ADMIN).unwrap_or(false)
}

/// Keeps the capabilities that a running tunnel needs and gives up all others, for this thread and those it will start.
/// No program it executes can get more. For threads that already run, see [`confine_other_threads`].
///
/// `CAP_NET_ADMIN`: marks on sockets, links and routes. `CAP_NET_BIND_SERVICE`: a listen port
/// below 1024. `CAP_NET_RAW`: binding sockets to a device.
///
/// Does nothing where it is impossible (an old kernel, a user namespace without these capabilities), and logs that. A
/// tunnel with excess privileges is better than none.
pub fn drop_privileges() {
    keep(&[
        Capability::CAP_NET_ADMIN,
        Capability::CAP_NET_BIND_SERVICE,
        Capability::CAP_NET_RAW,
    ]);
}

/// Keeps only `CAP_NET_ADMIN` in the calling thread, also when another thread calls [`confine_other_threads`]. For one
/// thread of a process, which changes links and routes and reads nothing from strangers.
pub fn keep_network_in_this_thread() {
    keep(&[Capability::CAP_NET_ADMIN]);
    netio::privilege::except_this_thread();
}

fn keep(wanted: &[Capability]) {
    let wanted: CapsHashSet = wanted.iter().copied().collect();
    let drop = || -> Result<(), Box<dyn std::error::Error>> {
        let held = caps::read(None, CapSet::Permitted)?;
        let kept: CapsHashSet = held.intersection(&wanted).copied().collect();
        for capability in caps::all() {
            // Dropping fails for capabilities that the kernel does not know.
            if !wanted.contains(&capability) {
                let _ = caps::drop(None, CapSet::Bounding, capability);
            }
        }
        caps::set(None, CapSet::Effective, &kept)?;
        caps::set(None, CapSet::Permitted, &kept)?;
        caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
        nix::sys::prctl::set_no_new_privs()?;
        Ok(())
    };
    if let Err(e) = drop() {
        log::info!("privileges kept: {e}");
    }
}

/// Makes every other thread give up all capabilities. Workers need none once they have their descriptors, and they read
/// hostile packets.
///
/// Call it whenever workers were started, and after [`become_user`], which needs the capabilities of all threads.
pub fn confine_other_threads() {
    if let Err(e) = netio::privilege::give_up_in_other_threads() {
        log::warn!("workers keep their capabilities: {e}");
    }
}

/// Makes the calling thread give up all capabilities, for threads that need none, such as readers of untrusted packets.
pub fn confine_this_thread() {
    for set in [CapSet::Effective, CapSet::Permitted] {
        if let Err(e) = caps::clear(None, set) {
            log::debug!("a thread keeps its capabilities: {e}");
        }
    }
}

/// Why the process could not become another user.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// No user or group has this name.
    #[error("{what} {name}: this name does not exist on this machine")]
    Unknown {
        /// "user" or "group".
        what: &'static str,
        /// Name of the missing user or group.
        name: String,
    },
    /// The system refused.
    #[error("cannot become {user}: {why}")]
    Refused {
        /// Name of the user to switch to.
        user: String,
        /// Error of the system, as text.
        why: String,
    },
}

/// Checks that the user and group for [`become_user`] exist.
///
/// # Errors
/// See [`UserError`].
pub fn look_up(user: Option<&str>, group: Option<&str>) -> Result<(), UserError> {
    user.map(user_id).transpose()?;
    group.map(group_id).transpose()?;
    Ok(())
}

/// Changes the owner of a file to another user and group, and creates it if it is missing.
///
/// # Errors
/// See [`UserError`].
pub fn give_away(path: &Path, user: Option<&str>, group: Option<&str>) -> Result<(), UserError> {
    let (uid, gid) = (
        user.map(user_id).transpose()?,
        group.map(group_id).transpose()?,
    );
    let refused = |why: String| UserError::Refused {
        user: user.unwrap_or_default().to_owned(),
        why: format!("{}: {why}", path.display()),
    };
    let mut options = File::options();
    options.create(true).append(true).mode(0o600);
    let file = written_file::open(path, &mut options);
    let file = file.map_err(|error| refused(error.to_string()))?;
    let data = file
        .metadata()
        .map_err(|error| refused(error.to_string()))?;
    // Another hard link to the file may be in use elsewhere.
    if data.is_file() && data.nlink() > 1 {
        return Err(refused(
            "has several names (hard links); remove this one".to_owned(),
        ));
    }
    if !data.is_file() {
        return Ok(());
    }
    nix::unistd::fchown(&file, uid, gid).map_err(|errno| refused(errno.to_string()))
}

fn user_id(name: &str) -> Result<Uid, UserError> {
    Ok(user_entry(name)?.uid)
}

fn user_entry(name: &str) -> Result<User, UserError> {
    let found = User::from_name(name).map_err(|why| UserError::Refused {
        user: name.to_owned(),
        why: why.to_string(),
    })?;
    found.ok_or_else(|| UserError::Unknown {
        what: "user",
        name: name.to_owned(),
    })
}

fn group_id(name: &str) -> Result<Gid, UserError> {
    let found = Group::from_name(name).map_err(|why| UserError::Refused {
        user: name.to_owned(),
        why: why.to_string(),
    })?;
    found
        .map(|group| group.gid)
        .ok_or_else(|| UserError::Unknown {
            what: "group",
            name: name.to_owned(),
        })
}

/// Makes all threads run as another user and group. This thread keeps the capabilities that [`drop_privileges`] keeps.
/// Without `group` the user's own group is used: staying in root's groups would undo the effect.
///
/// # Errors
/// See [`UserError`].
pub fn become_user(user: Option<&str>, group: Option<&str>) -> Result<(), UserError> {
    let refused = |user: &str| {
        let user = user.to_owned();
        move |why: nix::Error| UserError::Refused {
            user,
            why: why.to_string(),
        }
    };
    let entry = user.map(user_entry).transpose()?;
    let own = entry.as_ref().map(|user| user.gid);
    let gid = group.map(group_id).transpose()?.or(own);
    if let (Some(gid), Some(name)) = (gid, group.or(user)) {
        nix::unistd::setgroups(&[gid]).map_err(refused(name))?;
        nix::unistd::setresgid(gid, gid, gid).map_err(refused(name))?;
    }
    if let (Some(entry), Some(name)) = (entry, user) {
        let uid = entry.uid;
        nix::sys::prctl::set_keepcaps(true).map_err(refused(name))?;
        nix::unistd::setresuid(uid, uid, uid).map_err(refused(name))?;
        nix::sys::prctl::set_keepcaps(false).map_err(refused(name))?;
        drop_privileges();
    }
    Ok(())
}
