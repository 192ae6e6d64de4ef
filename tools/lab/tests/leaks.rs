//! Nothing is left behind, neither by values that are dropped nor by a process that is killed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::{Emulator, Host, Impairment, LinkOptions, may_enter};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The variable that makes this test binary run the helper below in a process of its own, to see what a killed test
/// leaves.
const HELPER: &str = "LAB_LEAK_HELPER";

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits a bounded time for a condition that the kernel causes without further action.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "{what} never came true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn build() -> (Host, Host, Emulator, lab::Process, lab::Process) {
    let (a, b) = (Host::private("a").unwrap(), Host::new("b").unwrap());
    let link = LinkOptions::numbered(1);
    let lines = [Impairment::NONE; 2];
    let line = Emulator::new(&a, "eth0", &b, "eth0", &link, lines, 1).unwrap();
    let sleeper = a.command("sleep").arg("1000").spawn().unwrap();
    // A shell with a child of its own, which must not survive it, and a daemon that has left its group and pipes.
    let script = "sleep 1001 & setsid sleep 1002 >/dev/null 2>&1 & echo started; wait";
    let mut parent = b.command("sh").args(["-c", script]).spawn().unwrap();
    parent
        .wait_for_line("the shell", Duration::from_secs(10), |line| {
            line == "started"
        })
        .unwrap();
    (a, b, line, sleeper, parent)
}

/// One test, because descriptors are counted for the whole process.
#[test]
fn nothing_is_left() {
    if std::env::var_os(HELPER).is_some() {
        helper();
    }
    if !may_enter() {
        return;
    }
    drop_leaves_nothing();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        killed_process_leaves_nothing(signal);
    }
}

fn drop_leaves_nothing() {
    drop(build());
    let before = descriptors();
    for _ in 0..5 {
        let (a, b, line, sleeper, parent) = build();
        let mut processes = children(&a, &parent);
        assert_eq!(processes.len(), 2, "{processes:?}");
        processes.extend([sleeper.id().to_string(), parent.id().to_string()]);
        drop((line, a, b, sleeper, parent));
        for process in &processes {
            eventually("its end", || gone(process));
        }
    }
    eventually("the number of descriptors before", || {
        descriptors() <= before
    });
}

fn children(host: &Host, parent: &lab::Process) -> Vec<String> {
    let found = host.output("ps", ["-o", "pid=", "--ppid", &parent.id().to_string()]);
    found
        .unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// Builds a network, prints its processes and namespaces, and waits to be killed.
fn helper() -> ! {
    lab::cleanup_on_signal().unwrap();
    let (a, b, _line, sleeper, parent) = build();
    let mut processes = vec![sleeper.id().to_string(), parent.id().to_string()];
    processes.extend(children(&a, &parent));
    println!("processes {}", processes.join(" "));
    let namespace = |host: &Host| {
        let link = host.run(|| fs::read_link("/proc/thread-self/ns/net").unwrap());
        link.unwrap().display().to_string()
    };
    println!("namespaces {} {}", namespace(&a), namespace(&b));
    loop {
        std::thread::park();
    }
}

fn killed_process_leaves_nothing(signal: Signal) {
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nothing_is_left", "--nocapture"])
        .env(HELPER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let words = |name: &str, lines: &mut dyn Iterator<Item = std::io::Result<String>>| {
        let line = lines
            .map(Result::unwrap)
            .find_map(|line| Some(line.split_once(name)?.1.to_owned()));
        line.unwrap()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let mut lines = BufReader::new(helper.stdout.take().unwrap()).lines();
    let processes = words("processes ", &mut lines);
    let namespaces = words("namespaces ", &mut lines);
    assert_eq!((processes.len(), namespaces.len()), (4, 2));
    kill(Pid::from_raw(helper.id().cast_signed()), signal).unwrap();
    let status = helper.wait().unwrap();
    if signal != Signal::SIGKILL {
        assert_eq!(status.code(), Some(130));
    }
    for process in &processes {
        eventually(&format!("end of process {process} after {signal}"), || {
            // The one case that cannot be caught: the grandchild of a process that was killed with SIGKILL.
            if signal == Signal::SIGKILL && is_grandchild(process) {
                let _ = kill(Pid::from_raw(process.parse().unwrap()), Signal::SIGKILL);
            }
            gone(process)
        });
    }
    eventually("end of the namespaces", || {
        in_use().is_disjoint(&namespaces)
    });
}

fn status(process: &str) -> String {
    fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default()
}

/// Whether the process is gone, or a zombie that its parent does not reap (init in a container may not).
fn gone(process: &str) -> bool {
    let status = status(process);
    status.is_empty() || status.contains(") Z ")
}

fn is_grandchild(process: &str) -> bool {
    fs::read(format!("/proc/{process}/cmdline"))
        .is_ok_and(|line| line.starts_with(b"sleep\x00100") && !line.starts_with(b"sleep\x001000"))
}

/// The network namespaces of all processes and their threads.
fn in_use() -> BTreeSet<String> {
    let tasks = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .flat_map(|process| {
            fs::read_dir(process.path().join("task"))
                .into_iter()
                .flatten()
                .flatten()
        });
    tasks
        .filter_map(|task| fs::read_link(task.path().join("ns/net")).ok())
        .map(|link| link.display().to_string())
        .collect()
}
