//! Releases memory that only a program's start needs.

use std::io;

/// Releases the code that has run so far. The kernel maps code that runs again from its page cache, a few pages at a
/// time. Code that only the start needed is then the first memory that a router short of it reclaims.
///
/// # Errors
/// `/proc/self/smaps` cannot be read: no `/proc`, or a kernel without `CONFIG_PROC_PAGE_MONITOR`.
pub fn let_go_of_code() -> io::Result<()> {
    let maps = std::fs::read_to_string("/proc/self/smaps")?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
        assert!(!code_of_files(&all).is_empty());
        let_go_of_code().unwrap();
        let words: Vec<String> = (0..1000).map(|number| format!("{number:x}")).collect();
        assert_eq!(words.concat().len(), 16 + 240 * 2 + 744 * 3);
    }
}
