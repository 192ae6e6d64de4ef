//! A process's start time, which distinguishes it from later processes with the same number.

use std::fs;

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

/// The 22nd field of a process's `stat`, unless the process has ended and only waits for its parent. The second field is a
/// name, which may hold any character.
fn start_in(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start)
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
}
