//! Thread capabilities. This file is a separate test process, because it changes every thread of the process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::sync::mpsc;
use std::thread;

use netio::privilege::give_up_in_other_threads;

/// The calling thread's permitted capabilities, in the kernel's notation.
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
        // The thread waits in this call when the signal arrives.
        let _ = ended.recv();
        permitted()
    });
    begun.recv().unwrap();
    give_up_in_other_threads().unwrap();
    end.send(()).unwrap();
    let none = thread.join().unwrap();
    assert!(none.bytes().all(|digit| digit == b'0'), "{none}");
    assert_eq!(permitted(), before);
    // A second call succeeds when no thread has capabilities left.
    give_up_in_other_threads().unwrap();
}
