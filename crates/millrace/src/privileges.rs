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
