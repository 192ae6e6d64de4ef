//! Two ends over a wire that loses, repeats, delays and reorders packets, and restarts of both: worlds by seed.
//!
//! WireGuard is a model here: message 2 carries its key in clear, and sessions are numbers. `crates/wireguard` tests the
//! exchange in real handshakes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod end;
mod world;

use world::{Kind, World};

/// Worlds of each kind; `MILLRACE_WORLDS` sets another number.
fn seeds() -> std::ops::Range<u64> {
    let number = std::env::var("MILLRACE_WORLDS");
    0..number.map_or(100, |it| it.parse().unwrap())
}

fn run(kind: Kind) {
    let mut longest = 0;
    for seed in seeds() {
        let world = World::new(kind, seed).run();
        world.check();
        longest = longest.max(world.failed_in_a_row);
    }
    println!("{kind:?}: at most {longest} handshakes in a row failed");
}

#[test]
fn loss_makes_two_handshakes_in_a_row_fail_at_most() {
    run(Kind::Loss);
}

#[test]
fn native_ends_recover_from_restarts() {
    run(Kind::Restarts);
}

#[test]
fn a_single_slot_and_a_native_end_recover_from_restarts() {
    run(Kind::SingleSlot);
}

#[test]
fn a_plain_peer_is_left_alone_and_carries_traffic() {
    run(Kind::Plain);
}
