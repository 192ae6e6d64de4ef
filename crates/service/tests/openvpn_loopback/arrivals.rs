//! Clients that connect at the same moment.

use super::ends::{Running, client, clients, exclusive, free_port, pki, server};
use lab::openvpn::Directory;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::thread;

/// This process's handshake threads, with each one's running time in nanoseconds.
fn handshake_threads() -> HashMap<PathBuf, u64> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
    let threads = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let times = fs::read_to_string(task.join("schedstat")).ok()?;
        let nanoseconds = times.split_whitespace().next()?.parse().ok()?;
        (name.trim() == "handshake").then_some((task, nanoseconds))
    });
    threads.collect()
}

/// The threads that have run for at least 0.1 ms since `then`.
fn busy_since(then: &HashMap<PathBuf, u64>) -> impl Iterator<Item = PathBuf> {
    let now = handshake_threads().into_iter();
    now.filter_map(|(task, nanoseconds)| {
        let before = then.get(&task).copied().unwrap_or(0);
        (nanoseconds.saturating_sub(before) > 100_000).then_some(task)
    })
}

/// A server that ends sends goodbyes to all clients, and all return at the same moment.
#[test]
fn handshakes_of_clients_that_come_at_once_are_done_by_several_threads() {
    const CLIENTS: usize = 24;
    let _one = exclusive();
    let processors = thread::available_parallelism().unwrap().get();
    let several = (processors > 1).then_some(()).ok_or("several processors");
    let Some(()) = lab::require(several) else {
        return;
    };
    let Some(pki) = pki() else { return };
    let directory = Directory::new().unwrap();
    let port = free_port("udp4");
    let mut config = server(&pki, "udp4", port, &directory);
    config.push_str("duplicate-cn\nexplicit-exit-notify 1\npersist-key\npersist-tun\n");
    // A limit below the number of clients: the others get an answer when these have connected.
    config.push_str("connect-freq-initial 4 60\n");
    let mut server = Running::start(&directory, "server", &config);
    server.wait_for_state("CONNECTED");
    // Idle threads of another test's server may still exist.
    let mut before = handshake_threads();
    let mut busy = HashSet::new();
    let config = client(&pki, "udp4", port);
    let mut all: Vec<Running> = (0..CLIENTS)
        .map(|number| Running::start(&directory, &format!("client{number}"), &config))
        .collect();
    for round in 0.. {
        for client in &mut all {
            client.wait_for_state("CONNECTED");
            busy.extend(busy_since(&before));
        }
        assert_eq!(clients(&mut server).len(), CLIENTS);
        // The scheduler decides how many clients find no idle thread.
        if round > 0 && busy.len() > 1 {
            break;
        }
        assert!(round < 20, "one thread did all");
        busy.clear();
        before = handshake_threads();
        server.command("signal SIGUSR1");
    }
    for client in all {
        client.end();
    }
    server.end();
}
