//! Complete WireGuard interfaces on a virtual wire and a virtual clock, with a simulated data plane.
//!
//! `MILLRACE_SEEDS` sets the number of worlds to run (200 if unset), `MILLRACE_SEED` the first seed. A failure names
//! its seed, and that seed fails again.

// This crate contains tests only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod host;
mod plane;
mod pool;
mod random;
mod scenes;
mod story;
mod world;

use story::Story;

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

#[test]
fn a_pool_reaches_a_server_that_lives_whichever_die() {
    let (first, seeds) = (number("MILLRACE_SEED", 0), number("MILLRACE_SEEDS", 100));
    for seed in first..first + seeds {
        let run = std::panic::catch_unwind(|| pool::run(seed));
        assert!(
            run.is_ok(),
            "seed {seed}: MILLRACE_SEED={seed} MILLRACE_SEEDS=1"
        );
    }
}

/// The renewal of keys every two minutes loses a few packets, while the server goes on to send.
#[test]
fn a_pool_keeps_a_server_that_loses_packets_of_a_handshake() {
    for lost in 0..4 {
        pool::keeps(lost);
    }
}

#[test]
fn a_pool_leaves_a_server_that_hears_nothing() {
    pool::leaves_a_deaf_server();
}

#[test]
fn sessions_come_up_and_nothing_is_left_behind_whatever_happened_before() {
    let (first, seeds) = (number("MILLRACE_SEED", 0), number("MILLRACE_SEEDS", 200));
    for seed in first..first + seeds {
        let run = std::panic::catch_unwind(|| Story::new(seed).run());
        assert!(
            run.is_ok(),
            "seed {seed}: MILLRACE_SEED={seed} MILLRACE_SEEDS=1"
        );
    }
}
