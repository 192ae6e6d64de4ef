//! Child processes that do not outlive the process that started them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the child of `command` die when the *thread* that starts it ends, however it ends, so that a killed test
/// leaves no daemon behind. The thread must live as long as the child should.
///
/// A child that detaches itself by forking again escapes.
pub fn die_with_thread(command: &mut Command) {
    let parent = std::process::id().cast_signed();
    let set = move || {
        // SAFETY: both calls take plain numbers and are safe between fork and exec.
        let (result, now) = unsafe {
            (
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong),
                libc::getppid(),
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have died before the call. In another PID namespace its number is 0.
        if now != parent && now != 0 {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing, takes no lock, and makes two system calls.
    unsafe { command.pre_exec(set) };
}
