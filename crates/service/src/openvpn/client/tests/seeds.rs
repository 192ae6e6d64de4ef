//! Hours of random faults, from a seed.

use super::config;
use super::world::{Faults, World, secs};
use crate::openvpn::Ended;
use crate::openvpn::client::event::Event;
use crate::openvpn::seeded::Random;
use config::openvpn::AuthRetry;
use openvpn::message::Restart;
use openvpn_host::signals::Signal;
use std::net::SocketAddr;
use std::time::Duration;

/// Parts of the configurations: one from each row.
const OPTIONS: [&[&str]; 7] = [
    &[
        "--remote a.example 1194",
        "--remote 192.0.2.1 1194 --remote 192.0.2.2 1194",
        "--remote a.example 1194 --remote 192.0.2.3 1194",
    ],
    &["", "--proto tcp-client"],
    &["", "--persist-tun", "--persist-tun --persist-remote-ip"],
    &["", "--route-delay 7"],
    &[
        "",
        "--script-security 2 --up /x --down /x --route-up /x --route-pre-down /x --up-restart",
        "--script-security 2 --up /x --down /x --down-pre --ipchange /x --tls-verify /x",
    ],
    &["", "--auth-user-pass", "--auth-user-pass --auth-nocache"],
    &["", "--float", "--server-poll-timeout 15"],
];

/// Time within which a client must connect without faults. It covers the longest pause, an unanswered look-up, an
/// attempt with a server that lost its state, and a password.
const CALM: Duration = Duration::from_secs(1200);

pub(super) fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn whatever_happens_a_client_comes_back_and_leaves_nothing_behind() {
    let first = number("MILLRACE_TEST_SEED", 1);
    let mut connected = 0;
    for seed in first..first + number("MILLRACE_TEST_SEEDS", 200) {
        let result = std::panic::catch_unwind(|| one(seed));
        match result {
            Ok(it) => connected += usize::from(it),
            Err(panic) => {
                eprintln!(
                    "seed {seed}: MILLRACE_TEST_SEED={seed} MILLRACE_TEST_SEEDS=1 shows it again"
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(connected > 0, "no client was ever connected");
}

/// Runs one seed. Returns whether the client was connected at the end; it may have exited.
fn one(seed: u64) -> bool {
    let mut random = Random::new(seed);
    let mut text = "--connect-retry 1 120".to_owned();
    for options in OPTIONS {
        let at = random.below(options.len() as u64) as usize;
        text.push(' ');
        text.push_str(options[at]);
    }
    let retry = [AuthRetry::None, AuthRetry::NoInteract, AuthRetry::Interact];
    let retry = retry[random.below(3) as usize];
    let servers: Vec<SocketAddr> = (1..=3)
        .map(|last| SocketAddr::from(([192, 0, 2, last], 1194)))
        .collect();
    let mut world = World::new(config(&text), &servers, seed);
    world.handle(Event::AuthRetry(retry));
    world.handle(Event::Begin);
    for _ in 0..12 {
        happen(&mut world, &mut random);
        let pause = random.below(400);
        world.run_for(secs(pause));
        if world.ended.is_some() {
            return false;
        }
    }
    calm(&mut world);
    // The user's earlier answer may be a wrong password, which the client sends again.
    world.run_for(secs(60));
    world.handle(Event::Forget);
    world.run_for(CALM);
    if let Some(ended) = world.ended {
        assert_eq!(ended, Ended::Exit(0), "for a password only");
        return false;
    }
    assert!(world.is_connected(), "{text} {:#?}", world.log);
    // Maximum number of attempts over the whole time: the back-off's limit plus the time of each attempt.
    let most = world.elapsed().as_secs() + 10;
    assert!((world.dials.len() as u64) < most);
    world.handle(Event::Signal(Signal::Exit("SIGTERM")));
    world.run_for(secs(20));
    assert_eq!(world.ended, Some(Ended::Exit(0)));
    true
}

/// Stops all faults.
fn calm(world: &mut World) {
    world.faults = Faults::default();
    world.holds = None;
    for server in &mut world.servers {
        (server.answers, server.accepts) = (true, true);
    }
    world.set_line(true);
}

fn happen(world: &mut World, random: &mut Random) {
    let server = random.below(world.servers.len() as u64) as usize;
    match random.below(16) {
        0 => world.servers[server].answers ^= true,
        1 => world.servers[server].accepts ^= true,
        2 => {
            let now = world.now();
            world.servers[server].lose_everything(now);
        }
        3 => {
            let restart = Restart {
                next_remote: random.percent(50),
                ..Restart::default()
            };
            world.send_away(server, &restart);
        }
        4 => {
            let route = format!("route 10.{}.0.0 255.255.0.0", 20 + random.below(200));
            world.servers[server].options.push(route);
        }
        5 | 6 => {
            let line = !world.line;
            world.set_line(line);
        }
        7 => world.wall += secs(random.below(86_400 * 300)),
        8 => world.wall -= secs(random.below(86_400 * 30)),
        9 => world.holds = random.percent(50).then(|| secs(random.below(600))),
        10 => world.handle(Event::Signal(Signal::Restart)),
        11 => world.handle(Event::Signal(Signal::Status)),
        12 => world.renew(server),
        13 if world.interface => world.handle(Event::InterfaceGone),
        14 => world.address.set_port(40_000 + random.below(20_000) as u16),
        _ => {
            world.faults = Faults {
                loss: random.below(40),
                names: random.below(80),
                dials: random.below(60),
                host: random.below(20),
                scripts: random.below(20),
                passwords: random.below(30),
            };
        }
    }
}
