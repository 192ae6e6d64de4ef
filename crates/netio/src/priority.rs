//! A process's share of the processor.

use std::io;

/// Sets the nice value of the calling thread, and of threads and processes that it starts later: -20 (highest priority)
/// to 19 (lowest).
///
/// # Errors
/// `EACCES` or `EPERM` without `CAP_SYS_NICE`, if the value is lower than before.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: the call takes plain numbers; 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_step_back() {
        std::thread::spawn(|| {
            set_nice(19).unwrap();
            // SAFETY: as above.
            let now = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            assert_eq!(now, 19);
        })
        .join()
        .unwrap();
    }
}
