//! Settings of the daemon process itself.

use config::openvpn::Service;
use host::background;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use std::io;

/// Goes into the background if the process is to run there.
pub fn into_background() {
    leave_terminal(background::ready);
}

/// Goes into the background, if the process is to run there, before the tunnel is up.
pub fn stop_waiting() {
    leave_terminal(background::not_yet);
}

fn leave_terminal(tell: fn() -> io::Result<()>) {
    if background::is_child() {
        // Only for `millrace up`; otherwise the log is OpenVPN's.
        host::logging::leave_terminal("openvpn");
        if let Err(error) = tell() {
            log::warn!("{error}");
        }
    }
}

/// Applies `nice` and `mlock`, before threads start and privileges are dropped.
pub fn settle(service: &Service) {
    if let Some(nice) = service.nice
        && let Err(error) = netio::process::set_nice(nice)
    {
        log::warn!("WARNING: nice {nice} failed: {error}");
    }
    if !service.mlock {
        return;
    }
    // Later mappings are locked too; that must not fail without root's rights.
    let all = MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE;
    let locked = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY)
        .and_then(|()| mlockall(all));
    match locked {
        Ok(()) => log::info!("mlockall call succeeded"),
        Err(error) => log::warn!("WARNING: mlockall call failed: {error}"),
    }
}

/// Raises the limit of open files to `needed`, or as far as permitted, and returns the limit. It goes no higher:
/// scripts inherit it, and programs that close every possible descriptor would be slow.
#[cfg(feature = "server")]
pub fn raise_open_files(needed: usize) -> usize {
    // An unreadable limit counts as the usual one.
    let (soft, hard) =
        nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    let wanted = hard.min(needed as _);
    let limit = match wanted > soft && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() {
        true => wanted,
        false => soft,
    };
    usize::try_from(limit).unwrap_or(usize::MAX)
}
