//! Giving up what is not needed after set-up.

use caps::{CapSet, Capability, CapsHashSet};

/// Keeps the capabilities that a running tunnel needs and gives up all others, for this thread
/// and those it will start; no program it executes can get more.
///
/// `CAP_NET_ADMIN`: marks on sockets, links and routes. `CAP_NET_BIND_SERVICE`: a listen port
/// below 1024. `CAP_NET_RAW`: binding sockets to a device.
///
/// Does nothing where it cannot (an old kernel, a user namespace that lacks them): a tunnel with
/// more privileges than it needs is better than none, and the log says so.
pub(crate) fn drop_privileges() {
    let wanted: CapsHashSet = [
        Capability::CAP_NET_ADMIN,
        Capability::CAP_NET_BIND_SERVICE,
        Capability::CAP_NET_RAW,
    ]
    .into_iter()
    .collect();
    let drop = || -> Result<(), Box<dyn std::error::Error>> {
        let held = caps::read(None, CapSet::Permitted)?;
        let kept: CapsHashSet = held.intersection(&wanted).copied().collect();
        for capability in caps::all() {
            // Refused for those that this kernel does not know.
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

/// Why the process could not become another user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    /// There is none of that name.
    #[error("there is no {what} {name}")]
    Unknown {
        /// "user" or "group".
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The system refused.
    #[error("cannot become {user}: {why}")]
    Refused {
        /// Who.
        user: String,
        /// What the system said.
        why: String,
    },
}

/// Becomes another user and group, all threads, and keeps for this thread the capabilities that
/// [`drop_privileges`] keeps.
///
/// # Errors
/// See [`UserError`].
pub(crate) fn become_user(user: Option<&str>, group: Option<&str>) -> Result<(), UserError> {
    let refused = |user: &str| {
        let user = user.to_owned();
        move |why: nix::Error| UserError::Refused {
            user,
            why: why.to_string(),
        }
    };
    let unknown = |what, name: &str| UserError::Unknown {
        what,
        name: name.to_owned(),
    };
    if let Some(name) = group {
        let found = nix::unistd::Group::from_name(name).map_err(refused(name))?;
        let gid = found.ok_or_else(|| unknown("group", name))?.gid;
        nix::unistd::setgroups(&[gid]).map_err(refused(name))?;
        nix::unistd::setresgid(gid, gid, gid).map_err(refused(name))?;
    }
    if let Some(name) = user {
        let found = nix::unistd::User::from_name(name).map_err(refused(name))?;
        let uid = found.ok_or_else(|| unknown("user", name))?.uid;
        nix::sys::prctl::set_keepcaps(true).map_err(refused(name))?;
        nix::unistd::setresuid(uid, uid, uid).map_err(refused(name))?;
        nix::sys::prctl::set_keepcaps(false).map_err(refused(name))?;
        drop_privileges();
    }
    Ok(())
}
