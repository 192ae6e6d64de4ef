//! Settings of the process itself.

use config::openvpn::Service;
use host::background;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use std::io;

/// Goes into the background, if that is where this process is to be.
pub(super) fn into_background() {
    leave_terminal(background::ready);
}

/// Goes into the background though the tunnel is not up yet, if the background is where this process is to be.
pub(super) fn stop_waiting() {
    leave_terminal(background::not_yet);
}

fn leave_terminal(tell: fn() -> io::Result<()>) {
    if background::is_child() {
        // Of `millrace up`; otherwise the log is OpenVPN's.
        host::logging::leave_terminal("openvpn");
        if let Err(error) = tell() {
            log::warn!("{error}");
        }
    }
}

/// `nice` and `mlock`, before there are threads and privileges are gone.
pub(super) fn settle(service: &Service) {
    if let Some(nice) = service.nice
        && let Err(error) = netio::priority::set_nice(nice)
    {
        log::warn!("WARNING: nice {nice} failed: {error}");
    }
    if !service.mlock {
        return;
    }
    // Later mappings count too, and must not fail when root's rights are gone.
    let all = MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE;
    let locked = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY)
        .and_then(|()| mlockall(all));
    match locked {
        Ok(()) => log::info!("mlockall call succeeded"),
        Err(error) => log::warn!("WARNING: mlockall call failed: {error}"),
    }
}

/// Raises the limit of open files to what is needed, or as far as this process may, and says what it is now. To no more:
/// scripts inherit it, and programs that close every descriptor below it take long where it is high.
#[cfg(feature = "server")]
pub(super) fn raise_open_files(needed: usize) -> usize {
    // A limit that cannot be read is the usual one.
    let (soft, hard) =
        nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    let wanted = hard.min(needed as _);
    let limit = match wanted > soft && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() {
        true => wanted,
        false => soft,
    };
    usize::try_from(limit).unwrap_or(usize::MAX)
}
