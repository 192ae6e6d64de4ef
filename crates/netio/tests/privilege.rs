//! Capabilities of threads. A file of its own, and so a process: what it does is done to every thread of the process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::sync::mpsc;
use std::thread;

use netio::privilege::give_up_in_other_threads;

/// The set of permitted capabilities of the calling thread, as the kernel writes it.
fn permitted() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    set.unwrap().trim().to_owned()
}

#[test]
fn other_threads_lose_what_they_have_and_this_one_keeps_it() {
    let before = permitted();
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        begin.send(()).unwrap();
        // Waits in a call when the signal comes.
        let _ = ended.recv();
        permitted()
    });
    begun.recv().unwrap();
    give_up_in_other_threads().unwrap();
    end.send(()).unwrap();
    let none = thread.join().unwrap();
    assert!(none.bytes().all(|digit| digit == b'0'), "{none}");
    assert_eq!(permitted(), before);
    // Again, with no thread left that has any.
    give_up_in_other_threads().unwrap();
}
