//! A server and its clients on a simulated network and clock.
//!
//! The server is the [`Machine`](super::Machine), and its clients are sessions of the protocol crate. The wire between
//! them loses, duplicates and delays packets. The machine calls a fake data plane and a simulated host;
//! [`World`](world::World) checks the invariants after each event.
//!
//! `MILLRACE_TEST_SEEDS` is the number of worlds (200), `MILLRACE_TEST_SEED` the first seed.

mod client;
mod data_plane;
mod invariants;
mod jobs;
mod management_client;
mod seen;
mod setup;
mod situations;
mod trouble;
mod wire;
mod world;

use super::Event;
use openvpn::server::ClientId;
use plane::Notice;
use seen::Seen;
use std::time::Duration;
use world::{Size, World};

const SEC: Duration = Duration::from_secs(1);

fn number(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |it| it.parse().expect("a number"))
}

/// Injects faults for a while, then stops: every client must connect. Then the server ends and must leave nothing
/// behind.
fn live(seed: u64, size: Size) -> Seen {
    let mut world = World::new(seed, size);
    world.run_for(size.troubled);
    world.calm();
    world.run_for(SEC * 240);
    world.all_are_in();
    world.end();
    world.nothing_is_left();
    world.seen()
}

#[test]
fn clients_come_in_after_any_trouble_and_leave_nothing_behind() {
    let first = number("MILLRACE_TEST_SEED", 1);
    let seeds = number("MILLRACE_TEST_SEEDS", 200);
    let mut seen = Seen::default();
    for seed in first..first + seeds {
        println!("seed {seed}");
        let size = Size {
            clients: 2 + (seed % 5) as usize,
            max_clients: if seed.is_multiple_of(3) { 3 } else { 100 },
            troubled: SEC * 300,
            apart: !seed.is_multiple_of(4),
            come_within: SEC * 10,
            resets: (100_000, SEC),
            check_every: 1,
        };
        seen += live(seed, size);
    }
    // A single world does not see every kind of event.
    if seeds >= 20 {
        seen.is_all();
    }
}

#[test]
fn a_thousand_clients_come_in_after_any_trouble_and_leave_nothing_behind() {
    let size = Size {
        clients: 1000,
        max_clients: 1000,
        troubled: SEC * 120,
        apart: true,
        come_within: SEC * 10,
        resets: (100_000, SEC),
        check_every: 5000,
    };
    live(number("MILLRACE_TEST_SEED", 1), size).is_all();
}

/// Simulates a restart: all clients connect at once. Each soon proves its address. The limits on answers to unproven
/// addresses and on memory for unfinished logins therefore delay none of them for long.
#[test]
fn clients_that_come_at_once_come_in_at_once() {
    log::set_max_level(log::LevelFilter::Info);
    for (clients, behind_one, within) in [(300, false, 8), (1000, false, 16), (1000, true, 16)] {
        println!("{clients} clients, behind one address: {behind_one}");
        let size = Size {
            clients,
            max_clients: clients,
            troubled: SEC,
            apart: true,
            come_within: SEC / 10,
            resets: (20, SEC * 10),
            check_every: 100,
        };
        let mut world = World::new(number("MILLRACE_TEST_SEED", 1), size);
        for at in 0..clients * usize::from(behind_one) {
            world.move_client(at, ([203, 0, 113, 1], 40_000 + at as u16).into());
        }
        world.calm();
        world.run_for(SEC * within);
        assert_eq!(world.around.crowded_out, 0);
        world.all_are_in();
    }
}

/// Thirty clients of one address guess passwords of thirty users. Few guesses are judged, and a client of another
/// address connects as usual.
#[test]
fn guesses_of_one_address_become_few() {
    let size = Size {
        clients: 31,
        max_clients: 100,
        troubled: SEC,
        apart: true,
        come_within: SEC,
        resets: (100_000, SEC),
        check_every: 1,
    };
    let mut world = World::new(number("MILLRACE_TEST_SEED", 1), size);
    world.calm();
    world.around.jobs.all_wrong = true;
    for at in 0..30 {
        let address = ([192, 0, 2, 1], 1000 + at as u16).into();
        world.around.clients[at].address = address;
        world.around.at.insert(address, at);
    }
    world.run_for(SEC * 300);
    // Each of the two addresses gets its first logins judged at once, until the first verdict.
    let logins = world.around.jobs.logins;
    assert!((100..230).contains(&logins), "{logins} in 300 seconds");
    world.around.jobs.all_wrong = false;
    world.run_for(SEC * 30);
    assert!(world.around.clients[30].is_up());
}

/// Thirty clients of one address guess the password of one user: few are judged before the first verdict.
#[test]
fn a_burst_of_guesses_of_one_user_is_no_way_around_the_waits() {
    let size = Size {
        clients: 30,
        max_clients: 100,
        troubled: SEC,
        apart: true,
        come_within: SEC,
        resets: (100_000, SEC),
        check_every: 1,
    };
    let mut world = World::new(number("MILLRACE_TEST_SEED", 1), size);
    world.calm();
    world.around.jobs.all_wrong = true;
    world.around.jobs.takes = Some(SEC * 20);
    for at in 0..30 {
        world.around.clients[at].name = "alice".to_owned();
        world.move_client(at, ([192, 0, 2, 1], 1000 + at as u16).into());
    }
    world.run_for(SEC * 12);
    // Four guesses at once, and one more each second.
    let logins = world.around.jobs.logins;
    assert!((4..18).contains(&logins), "{logins} without a verdict");
}

/// A client may change its port with each packet. The machine follows it once a second, logs one line, and reaches its
/// last address: its keys are renewed.
#[test]
fn a_client_that_moves_with_each_packet_is_followed_quietly() {
    log::set_max_level(log::LevelFilter::Info);
    let size = Size {
        clients: 2,
        max_clients: 10,
        troubled: SEC,
        apart: true,
        come_within: SEC,
        resets: (100_000, SEC),
        check_every: 1,
    };
    let mut world = World::new(number("MILLRACE_TEST_SEED", 1), size);
    world.calm();
    world.run_for(SEC * 30);
    world.all_are_in();
    let before = world.seen().floats;
    for _ in 0..500 {
        world.float(0);
        let (from, now) = (world.around.clients[0].address, world.around.now.monotonic);
        let Some(wire::Packet::Data(packet)) = world.around.clients[0].talk(now) else {
            panic!("it has no keys");
        };
        if let Some(event) = world.data_plane.arrive(from, &packet, now) {
            world.tell(event);
        }
        world.run_for(SEC / 50);
    }
    let floats = world.seen().floats - before;
    assert!((5..=15).contains(&floats), "{floats} in ten seconds");
    assert_eq!(world.around.floats_told, 1, "lines of the log");
    world.run_for(SEC * 2);
    let address = world.around.clients[0].address;
    let mut known = world.machine.clients.values();
    assert!(known.any(|it| it.from.address == address), "{address}");
    let renewals = world.seen().renewals;
    world.run_for(SEC * 150);
    assert!(world.seen().renewals >= renewals + 4, "both clients' keys");
    world.all_are_in();
}

#[test]
fn a_client_that_the_data_plane_gives_up_is_out_at_once_and_comes_again() {
    for notice in [Notice::Silent, Notice::Failed] {
        let size = Size {
            clients: 2,
            max_clients: 10,
            troubled: SEC,
            apart: true,
            come_within: SEC,
            resets: (100_000, SEC),
            check_every: 1,
        };
        let mut world = World::new(1, size);
        world.calm();
        world.run_for(SEC * 30);
        world.all_are_in();
        let given_up = world.status().clients[0].peer_id;
        world.tell(Event::Notice(ClientId(given_up), notice));
        let inside = world.status().clients;
        assert!(
            inside.len() == 1 && inside[0].peer_id != given_up,
            "{notice:?}"
        );
        world.run_for(SEC * 60);
        world.all_are_in();
        world.end();
        world.nothing_is_left();
    }
}
