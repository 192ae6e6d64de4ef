//! Facts and settings of a process: its start time, which distinguishes it from later processes with the same number;
//! its share of the processor; release of memory that only a program's start needs; the network namespace of a thread;
//! child processes that do not outlive the process that started them.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

/// Start time of a process of this PID namespace, in the kernel's clock ticks since the boot. `None` without `/proc`,
/// or if `/proc` hides other users' processes or belongs to another namespace, and for a process that has ended.
#[must_use]
pub fn started(process: u32) -> Option<u64> {
    let me = fs::read_link("/proc/self").ok()?;
    if me.to_str() != Some(std::process::id().to_string().as_str()) {
        return None;
    }
    start_in(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The start of the oldest process in a process group, as [`started`] tells it; `None` if the group has ended.
#[must_use]
pub fn group(number: u32) -> Option<u64> {
    let of = |process: fs::DirEntry| {
        let process = process.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (_, behind) = stat.rsplit_once(')')?;
        let its: u32 = behind.split_ascii_whitespace().nth(2)?.parse().ok()?;
        if its == number {
            started(process)
        } else {
            None
        }
    };
    let all = fs::read_dir("/proc").ok()?.flatten();
    all.filter_map(of).min()
}

/// The 22nd field of a process's `stat`, unless the process has ended and only waits for its parent. The second field
/// is a name, which may hold any character.
fn start_in(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start)
}

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

/// Releases the code that has run so far. The kernel maps code that runs again from its page cache, a few pages at a
/// time. Code that only the start needed is then the first memory that a router short of it reclaims.
///
/// # Errors
/// `/proc/self/smaps` cannot be read: no `/proc`, or a kernel without `CONFIG_PROC_PAGE_MONITOR`.
pub fn let_go_of_code() -> io::Result<()> {
    let maps = fs::read_to_string("/proc/self/smaps")?;
    for (start, length) in code_of_files(&maps) {
        // SAFETY: the range is a mapping of this process that is not writable and that no page of has been written to,
        // so that the kernel finds in the file what it drops here. Nothing is unmapped.
        let _ = unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) };
    }
    Ok(())
}

/// Makes all threads allocate from one heap. glibc makes another heap for each thread that allocates while another
/// does. Memory that one thread allocates and another frees then leaves holes that neither fills. For programs whose
/// threads seldom allocate at once: a server with 1,000 clients and handshakes on two threads used 50 MB without this,
/// 41 MB with it.
pub fn one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes plain numbers. Where it is refused nothing changes.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Returns freed memory to the system, such as after a flood of unknown senders. musl does this by itself.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes a plain number. It touches only memory that is free.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Start and length of executable file mappings without private pages. Private pages hold relocations in the code, or a
/// debugger's breakpoints, which would be lost.
fn code_of_files(smaps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if let Some(range) = range(first) {
            let is_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
            current = Some(range).filter(|_| second == "r-xp" && is_file);
        } else if matches!(first, "Anonymous:" | "Swap:") && second != "0" {
            current = None;
        } else if first == "VmFlags:" {
            // `VmFlags:` is the last line of each mapping.
            found.extend(current.take());
        }
    }
    found
}

/// Start and length from `start-end` in hexadecimal digits.
fn range(word: &str) -> Option<(usize, usize)> {
    let (start, end) = word.split_once('-')?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    Some((start, end.checked_sub(start)?))
}

/// Inode number of the calling thread's network namespace. The kernel reuses the numbers of namespaces that are gone.
///
/// # Errors
/// `/proc` is missing.
pub fn netns_inode() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// The number of the calling thread's network namespace. The kernel gives it to no other namespace until the next boot.
///
/// # Errors
/// The kernel gives no socket, or is older than 5.14.
pub fn netns_cookie() -> io::Result<u64> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("0.0.0.0", 0)))?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the option is a number of eight bytes; the buffer has that size, and its length is passed.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match got {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the child of `command` die when the *thread* that starts it ends, however it ends, so that a killed test
/// leaves no daemon behind. The thread must live as long as the child should.
///
/// A child that detaches itself by forking again escapes.
#[cfg(feature = "lab")]
pub fn die_with_thread(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt as _;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_anything_in_it() {
        let before = "1 (a) R 1) S 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 4711 22";
        assert_eq!(start_in(before), Some(4711));
        assert_eq!(start_in("1 (a) S 2"), None);
        let ended = before.replace(" S ", " Z ");
        assert_eq!(start_in(&ended), None);
        assert!(started(std::process::id()).is_some());
    }

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

    #[test]
    fn only_clean_code_of_files_is_let_go() {
        let of = |range: &str, rights: &str, path: &str, anonymous: u32| {
            format!(
                "{range} {rights} 00001000 fe:00 77 {path}\nRss: 8 kB\nAnonymous: {anonymous} kB\nSwap: 0 kB\n\
                 VmFlags: rd ex mr mw me\n"
            )
        };
        let smaps = [
            of("1000-3000", "r-xp", "/usr/bin/millrace", 0),
            of("3000-4000", "r--p", "/usr/bin/millrace", 0),
            of("4000-5000", "rw-p", "/usr/bin/millrace", 4),
            of("5000-6000", "r-xp", "/lib/with relocations.so", 4),
            of("6000-7000", "r-xp", "[vdso]", 0),
            of("7000-8000", "r-xp", "", 0),
            of(
                "7f0000008000-7f000000a000",
                "r-xp",
                "/lib/libc.so.6 (deleted)",
                0,
            ),
        ];
        let found = code_of_files(&smaps.concat());
        assert_eq!(found, [(0x1000, 0x2000), (0x7f00_0000_8000, 0x2000)]);
        assert_eq!(code_of_files("nonsense\n\n-\nVmFlags:\n"), []);
    }

    #[test]
    fn the_program_goes_on() {
        let all = fs::read_to_string("/proc/self/smaps").unwrap();
        assert!(!code_of_files(&all).is_empty());
        let_go_of_code().unwrap();
        let words: Vec<String> = (0..1000).map(|number| format!("{number:x}")).collect();
        assert_eq!(words.concat().len(), 16 + 240 * 2 + 744 * 3);
    }

    #[test]
    fn a_namespace_is_always_the_same() {
        assert_eq!(netns_inode().unwrap(), netns_inode().unwrap());
        if let Ok(first) = netns_cookie() {
            assert_eq!(netns_cookie().unwrap(), first);
        }
    }
}
