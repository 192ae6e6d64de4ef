//! Drops the capabilities of other threads.
//!
//! Capabilities belong to threads, and a thread can only change its own. So this sends the others a signal whose
//! handler gives them up, as the C library does for `setresuid`.

use std::fs;
use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for the other threads; one that a debugger has stopped never answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// First and longest pause between checks of the threads; each pause is twice the one before. A thread that waits in a
/// system call is done in microseconds, and a tunnel's first packet waits for all of them.
const LOOK: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// `_LINUX_CAPABILITY_VERSION_3`, in which a set of capabilities has two words.
const VERSION: u32 = 0x2008_0522;

/// The thread that keeps its capabilities; 0 for none.
static EXCEPTED: AtomicI32 = AtomicI32::new(0);

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Excepts the calling thread, which lives as long as the process, from [`give_up_in_other_threads`].
pub fn except_this_thread() {
    // SAFETY: takes nothing and cannot fail.
    EXCEPTED.store(unsafe { libc::gettid() }, Ordering::Relaxed);
}

/// Drops every capability of all threads of this process except the calling one, and returns when that is done.
/// Threads that the calling one starts later inherit its capabilities.
///
/// The process ignores one of the real-time signals from then on.
///
/// # Errors
/// Without `/proc` the threads cannot be listed, the kernel refuses, or a thread does not run: `TimedOut` after 5
/// seconds.
pub fn give_up_in_other_threads() -> io::Result<()> {
    // One at a time: a second call would take the first one's handler away.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let signal = libc::SIGRTMAX() - 3;
    let handler: extern "C" fn(libc::c_int) = give_up;
    set_handler(signal, handler as usize)?;
    let outcome = signal_until_given_up(signal);
    // Ignored instead of restored: a signal that is still pending would end the process.
    set_handler(signal, libc::SIG_IGN)?;
    outcome
}

fn signal_until_given_up(signal: libc::c_int) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let [mut look, longest] = LOOK;
    let mut told: Vec<libc::c_int> = Vec::new();
    loop {
        let mut waiting = false;
        for thread in with_capabilities()? {
            waiting = true;
            if told.contains(&thread) {
                continue;
            }
            told.push(thread);
            // SAFETY: three numbers; the thread group is our own, so that a number that was used
            // again elsewhere is refused with ESRCH.
            let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
            let error = io::Error::last_os_error();
            if sent != 0 && error.raw_os_error() != Some(libc::ESRCH) {
                return Err(error);
            }
        }
        if !waiting {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(look);
        look = longest.min(look * 2);
    }
}

/// The other threads that have any capability.
fn with_capabilities() -> io::Result<Vec<libc::c_int>> {
    // SAFETY: takes nothing and cannot fail.
    let me = unsafe { libc::gettid() };
    let excepted = EXCEPTED.load(Ordering::Relaxed);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let Some(thread) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        // A thread that has ended meanwhile has no file.
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if thread != me && thread != excepted && has_capabilities(&status) {
            found.push(thread);
        }
    }
    Ok(found)
}

fn has_capabilities(status: &str) -> bool {
    let sets = ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"];
    status.lines().any(|line| {
        let set = sets.iter().find_map(|set| line.strip_prefix(set));
        set.is_some_and(|bits| bits.trim().bytes().any(|digit| digit != b'0'))
    })
}

/// The handler: allocates nothing, takes no lock, and leaves `errno` as it was.
extern "C" fn give_up(_: libc::c_int) {
    let header = Header {
        version: VERSION,
        pid: 0,
    };
    let none = [Data {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    }; 2];
    // SAFETY: both structures are what version 3 of the call reads, and live until it returns;
    // `errno` is this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        libc::syscall(libc::SYS_capset, std::ptr::from_ref(&header), none.as_ptr());
        *libc::__errno_location() = errno;
    }
}

fn set_handler(signal: libc::c_int, handler: usize) -> io::Result<()> {
    // SAFETY: an all-zero `sigaction` is one without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    // A system call that the signal interrupts is restarted.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the structure is initialised, the handler is a function of the type that a signal
    // without SA_SIGINFO calls, or SIG_IGN, and what was there before is not asked for.
    match unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_capabilities_are_found() {
        assert!(has_capabilities("CapInh:\t0\nCapPrm:\t0000000000001000\n"));
        assert!(!has_capabilities(
            "CapPrm:\t0000000000000000\nCapBnd:\t1ff\n"
        ));
    }
}
