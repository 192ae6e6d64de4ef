//! Tests of a client, one situation each.

use super::config;
use super::server::PASSWORD;
use super::world::{Faults, World, secs};
use crate::openvpn::Ended;
use crate::openvpn::client::event::Event;
use openvpn::message::{Message, Restart};
use openvpn_host::management::State;
use openvpn_host::signals::Signal;
use plane::Notice;
use std::net::SocketAddr;
use std::time::Duration;

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 1194))
}

/// A world whose client has started.
pub(super) fn begin(more: &str, servers: u8) -> World {
    begin_with(more, servers, Faults::default())
}

/// Begins with faults set from the start: a client whose server is given by address asks for its password at once.
pub(super) fn begin_with(more: &str, servers: u8, faults: Faults) -> World {
    let mut remotes = String::new();
    let servers: Vec<SocketAddr> = (1..=servers).map(address).collect();
    for server in &servers {
        remotes.push_str(&format!(" --remote {} {}", server.ip(), server.port()));
    }
    let mut world = World::new(config(&format!("{remotes} {more}")), &servers, 1);
    world.faults = faults;
    world.handle(Event::Begin);
    world
}

/// Faults under which every password that the client gets is wrong.
fn wrong_passwords() -> Faults {
    Faults {
        passwords: 100,
        ..Faults::default()
    }
}

pub(super) fn leave(world: &mut World) {
    world.handle(Event::Signal(Signal::Exit("SIGTERM")));
    world.run_for(secs(10));
}

/// Pauses for an unreachable server grow. When the clock is set or a default route appears, the next attempt starts at
/// once.
#[test]
fn a_pause_ends_when_what_was_lacking_may_be_there() {
    let no_way = Faults {
        dials: 100,
        ..Faults::default()
    };
    let mut world = begin_with("--connect-retry 200 300", 1, no_way);
    world.run_for(secs(5));
    world.faults.dials = 0;
    world.run_for(secs(20));
    assert!(!world.is_connected(), "it pauses for 200 s");
    // Skips the check that a pause precedes the next dial.
    world.was_up = true;
    world.handle(Event::Hurry);
    world.run_for(secs(20));
    assert!(world.is_connected());
    // No pause is running now.
    world.handle(Event::Hurry);
    world.run_for(secs(20));
    assert!(world.is_connected());
    leave(&mut world);
}

#[test]
fn a_client_connects_and_leaves_nothing_behind() {
    let mut world = begin("", 1);
    world.run_for(secs(20));
    assert!(world.is_connected());
    assert_eq!(world.plane.installed, 1);
    assert!(world.plane.sealing.is_some());
    world.run_for(secs(600));
    assert!(world.is_connected(), "pings keep it up");
    leave(&mut world);
    assert_eq!(world.ended, Some(Ended::Exit(0)));
}

#[test]
fn routes_come_when_route_delay_is_over_and_only_then_is_it_connected() {
    let mut world = begin("--route-delay 30", 1);
    world.run_for(secs(20));
    assert!(world.host.set.is_some() && !world.host.routes);
    assert!(!world.is_connected());
    world.run_for(secs(20));
    assert!(world.host.routes && world.is_connected());
}

#[test]
fn a_server_that_does_not_answer_is_left_for_the_next() {
    let mut world = begin("--connect-timeout 20 --connect-retry 2", 2);
    world.servers[0].answers = false;
    world.run_for(secs(60));
    assert!(world.is_connected());
    let servers: Vec<SocketAddr> = world.dials.iter().map(|it| it.1).collect();
    assert_eq!(servers, [address(1), address(2)]);
}

/// Servers that are tried in turn within five seconds are named together: the last one has not been silent for so long.
#[test]
fn silence_of_several_servers_is_explained_as_theirs() {
    let mut world = begin("--connect-timeout 3 --connect-retry 1", 3);
    for server in &mut world.servers {
        server.answers = false;
    }
    world.run_for(secs(9));
    let mut said = world.said.iter().filter(|it| it.starts_with("no answer"));
    let text = said.next().expect("an explanation");
    assert!(
        text.starts_with("no answer from 192.0.2.2:1194, UDP and the server before it for 5 s: "),
        "{text}"
    );
    assert_eq!(said.next(), None);
    leave(&mut world);
}

/// The client tells the user which server it connects to and, once per outage, explains five seconds of silence.
#[test]
fn a_call_that_nobody_answers_is_explained_once() {
    for (more, explains) in [
        ("", "the server may use TCP); still trying"),
        ("--proto tcp", "the server may use UDP); still trying"),
    ] {
        let mut world = begin(&format!("--connect-timeout 7 --connect-retry 2 {more}"), 1);
        world.servers[0].answers = false;
        let explained = |world: &World| {
            let said = world.said.iter();
            said.filter(|it| it.starts_with("no answer from 192.0.2.1:1194"))
                .count()
        };
        world.run_for(secs(4));
        assert!(world.said[0].starts_with("connecting to 192.0.2.1:1194, "));
        assert!(world.said[0].ends_with(", over wan"));
        assert_eq!(explained(&world), 0);
        world.run_for(secs(2));
        assert_eq!(explained(&world), 1, "{more}: {:?}", world.said);
        assert!(world.said.last().is_some_and(|it| it.ends_with(explains)));
        world.run_for(secs(3));
        assert_eq!(world.silent, None);
        world.run_for(secs(3));
        let told = world.silent.as_deref().unwrap_or_default();
        assert!(
            told.contains("192.0.2.1:1194") && told.contains("for 10 s"),
            "{told}"
        );
        world.run_for(secs(600));
        assert_eq!(explained(&world), 1, "{more}: {:?}", world.said);
        assert!(world.said.len() < 10, "{:?}", world.said);
        world.servers[0].answers = true;
        world.run_for(secs(600));
        assert!(world.is_connected() && world.silent.is_none());
        let connected = |world: &World| {
            let said = world.said.iter();
            said.filter_map(|it| {
                it.strip_prefix("connected in ")?
                    .strip_suffix('s')?
                    .parse()
                    .ok()
            })
            .collect::<Vec<f32>>()
        };
        let took = connected(&world);
        assert!(matches!(took[..], [seconds] if seconds > 606.0), "{took:?}");
        // A second outage is reported again.
        world.servers[0].answers = false;
        world.run_for(secs(600));
        assert_eq!(explained(&world), 2, "{more}: {:?}", world.said);
    }
}

/// A captive portal resolves every name to its own address, where no server listens.
#[test]
fn the_address_of_a_name_is_kept_when_the_server_has_proved_itself_there() {
    let portal = address(1);
    let remote = "--remote vpn.example 1194 --connect-timeout 20 --connect-retry 2";
    let mut world = World::new(config(remote), &[portal, address(2)], 1);
    world.servers[0].answers = false;
    world.servers[1].answers = false;
    world.handle(Event::Begin);
    world.run_for(secs(50));
    assert!(world.dials.iter().any(|it| it.1 == portal));
    assert!(world.kept.is_empty(), "{:?}", world.kept);
    world.servers[1].answers = true;
    world.run_for(secs(90));
    assert!(world.is_connected());
    let good = ("vpn.example".to_owned(), address(2).ip());
    assert_eq!(world.kept, [good]);
    // A literal address is not kept, and a random label is never looked up twice.
    for remote in ["192.0.2.2", "vpn.example 1194 --remote-random-hostname"] {
        let mut world = World::new(config(&format!("--remote {remote}")), &[address(2)], 1);
        world.handle(Event::Begin);
        world.run_for(secs(30));
        assert!(
            world.is_connected() && world.kept.is_empty(),
            "{:?}",
            world.kept
        );
    }
}

#[test]
fn a_server_that_restarts_is_connected_to_again() {
    let mut world = begin("", 2);
    world.run_for(secs(20));
    world.send_away(0, &Restart::default());
    world.run_for(secs(20));
    assert!(world.is_connected());
    let next = Restart {
        next_remote: true,
        ..Restart::default()
    };
    world.send_away(0, &next);
    world.run_for(secs(20));
    assert!(world.is_connected());
    let servers: Vec<SocketAddr> = world.dials.iter().map(|it| it.1).collect();
    assert_eq!(servers, [address(1), address(1), address(2)]);
}

#[test]
fn a_server_that_talks_without_end_fills_no_log() {
    let mut world = begin("", 1);
    world.run_for(secs(20));
    for _ in 0..20 {
        let now = world.now();
        let sent = world.servers[0].say(&Message::InfoPre("talk".to_owned()), 50, now);
        world.fly(address(1), sent);
        world.run_for(secs(1));
    }
    let told = world.log.iter().filter(|line| line.contains("'talk'"));
    assert!((80..=110).contains(&told.count()), "{:?}", world.log);
    assert!(world.is_connected());
}

#[test]
fn a_server_that_forgot_its_clients_is_found_out_by_the_missing_pings() {
    let mut world = begin("", 1);
    world.run_for(secs(20));
    let now = world.now();
    world.servers[0].lose_everything(now);
    world.run_for(secs(120));
    assert!(world.is_connected());
    assert_eq!(world.dials.len(), 2);
}

#[test]
fn a_server_that_the_data_plane_hears_no_more_is_connected_to_again() {
    let mut world = begin("", 1);
    world.run_for(secs(20));
    assert!(world.is_connected());
    world.handle(Event::Notice(Notice::Silent));
    assert!(!world.is_connected());
    world.run_for(secs(20));
    assert!(world.is_connected());
    leave(&mut world);
}

#[test]
fn a_server_that_the_data_plane_cannot_go_on_with_is_connected_to_again_with_ping_exit_too() {
    for (notice, again) in [(Notice::Failed, true), (Notice::Silent, false)] {
        let mut world = begin("", 1);
        world.servers[0].options.push("ping-exit 120".to_owned());
        world.run_for(secs(20));
        assert!(world.is_connected());
        world.handle(Event::Notice(notice));
        assert!(!world.is_connected());
        world.run_for(secs(20));
        assert_eq!(world.is_connected(), again);
    }
}

#[test]
fn other_options_of_the_server_replace_those_that_persist_tun_kept() {
    let mut world = begin("--persist-tun", 1);
    world.run_for(secs(20));
    let before = world.host.set.clone();
    world.send_away(0, &Restart::default());
    world.run_for(secs(20));
    assert!(world.is_connected());
    assert_eq!(world.host.set, before);
    let kept = |world: &World| {
        let text = "Preserving previous TUN/TAP instance";
        world.log.iter().filter(|line| line.contains(text)).count()
    };
    assert_eq!(kept(&world), 1);
    world.servers[0]
        .options
        .push("route 10.77.0.0 255.255.0.0".to_owned());
    world.send_away(0, &Restart::default());
    world.run_for(secs(20));
    assert!(world.is_connected());
    assert_ne!(world.host.set, before);
    assert_eq!(kept(&world), 1);
}

#[test]
fn a_server_may_move_where_float_says_so() {
    let mut world = begin("--float", 1);
    world.run_for(secs(20));
    world.servers[0].address = address(99);
    // The server pings from its new address, and before that the client's pings do not reach it.
    world.run_for(secs(200));
    assert!(world.is_connected());
    assert_eq!(world.dials.len(), 1);

    let mut world = begin("", 1);
    world.run_for(secs(20));
    world.servers[0].address = address(99);
    world.run_for(secs(100));
    assert!(!world.is_connected());
}

#[test]
fn a_refused_password_ends_it_unless_auth_retry_says_otherwise() {
    let mut world = begin_with("--auth-user-pass", 1, wrong_passwords());
    world.run_for(secs(300));
    assert_eq!((world.ended, world.asked), (Some(Ended::Exit(0)), 1));
    assert_eq!(world.dials.len(), 1);

    let more = "--auth-user-pass --auth-retry nointeract";
    let mut world = begin_with(more, 1, wrong_passwords());
    world.run_for(secs(300));
    assert_eq!((world.ended, world.asked), (None, 1));
    assert!(world.dials.len() > 3);

    let more = "--auth-user-pass --auth-retry interact";
    let mut world = begin_with(more, 1, wrong_passwords());
    world.run_for(secs(300));
    assert!(world.asked > 1);
    world.faults.passwords = 0;
    world.run_for(secs(300));
    assert!(world.is_connected());
}

/// A user's one-time code for a dead server is sent to the next server, because no server has seen it.
#[test]
fn an_answer_that_no_server_got_is_kept_for_the_next() {
    for more in ["--static-challenge code 1", "--auth-nocache"] {
        for answers_at_first in [false, true] {
            let more = format!("--auth-user-pass {more} --connect-timeout 20 --hand-window 20");
            let mut world = begin(&more, 2);
            world.servers[0].answers = answers_at_first;
            while !world.states.contains(&State::Wait) {
                world.run_for(secs(1));
            }
            if answers_at_first {
                // The server dies in the middle of the handshake.
                while !world.states.contains(&State::Auth) {
                    world.run_for(Duration::from_millis(1));
                }
                assert!(!world.states.contains(&State::GetConfig));
                world.servers[0].answers = false;
            }
            world.run_for(secs(90));
            assert!(world.is_connected(), "{more}");
            assert_eq!(world.asked, 1, "{more}, {answers_at_first}");
        }
    }
}

/// Stock servers before 2.6 stay silent if they support no cipher suite of the hello.
#[test]
fn a_server_that_does_not_answer_in_tls_is_told_from_one_that_is_not_there() {
    for silent in [false, true] {
        let mut world = begin("--hand-window 20 --connect-timeout 20", 1);
        world.servers[0].answers = !silent;
        while !silent && !world.states.contains(&State::Auth) {
            world.run_for(Duration::from_millis(1));
        }
        world.servers[0].answers = false;
        world.run_for(secs(30));
        let told = |it: &&String| it.contains("not to our TLS hello");
        let told: Vec<_> = world.log.iter().filter(told).collect();
        assert_eq!(told.is_empty(), silent, "{:?}", world.log);
        assert!(
            told.iter()
                .all(|it| it.contains("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"))
        );
    }
}

/// A server uses up a one-time code. If it sent a token, the client presents the token and does not prompt.
#[test]
fn a_token_takes_the_place_of_another_code() {
    for (token, asked) in [(true, 1), (false, 2)] {
        let mut world = begin("--auth-user-pass --static-challenge code 1", 1);
        if token {
            world.servers[0]
                .options
                .push(format!("auth-token {PASSWORD}"));
        }
        world.run_for(secs(90));
        assert!(world.is_connected());
        world.send_away(0, &Restart::default());
        world.run_for(secs(90));
        assert!(world.is_connected());
        assert_eq!((world.asked, world.dials.len()), (asked, 2));
    }
}

/// Scripts that call the stock program see success; those that call `millrace up` see failure.
#[test]
fn a_failed_handshake_ends_it_where_tls_exit_says_so() {
    for given_up in [0, 1] {
        let options = "--remote 192.0.2.1 1194 --tls-exit --hand-window 10";
        let mut world = World::new(config(options), &[address(1)], 1);
        world.exits_with(given_up);
        world.servers[0].answers = false;
        world.handle(Event::Begin);
        world.run_for(secs(60));
        assert_eq!(world.ended, Some(Ended::Exit(given_up)));
        let last = world.log.last().map(String::as_str).unwrap_or_default();
        assert!(last.contains("SIGTERM[soft,tls-error]"), "{last}");
    }
}

#[test]
fn a_hold_is_waited_for_with_nothing_set() {
    let mut world = begin("", 1);
    world.run_for(secs(20));
    world.holds = Some(secs(1000));
    world.send_away(0, &Restart::default());
    world.run_for(secs(900));
    assert!(!world.is_connected());
    assert!(world.host.set.is_none() && !world.interface);
    assert_eq!(world.dials.len(), 1);
    world.holds = None;
    world.run_for(secs(200));
    assert!(world.is_connected());
    assert_eq!(
        world
            .states
            .iter()
            .filter(|it| **it == State::Reconnecting)
            .count(),
        1
    );
}

#[test]
fn a_line_that_is_gone_for_hours_is_connected_over_again_when_it_is_back() {
    let mut world = begin("--connect-retry 1 60 --server-poll-timeout 10", 1);
    world.run_for(secs(20));
    world.set_line(false);
    world.run_for(secs(6 * 3600));
    assert!(!world.is_connected());
    // At most one attempt per 70 seconds in the end, but attempts continue.
    let dials = world.dials.len();
    assert!((300..450).contains(&dials), "{dials}");
    world.set_line(true);
    world.run_for(secs(80));
    assert!(world.is_connected());
}

#[test]
fn a_wall_clock_that_jumps_disturbs_no_session() {
    let mut world = begin("", 1);
    world.run_for(secs(20));
    world.wall += secs(86_400 * 400);
    world.run_for(secs(600));
    world.wall -= secs(86_400 * 800);
    world.run_for(secs(600));
    assert!(world.is_connected());
    assert_eq!(world.dials.len(), 1);
}

#[test]
fn a_second_signal_ends_a_leave_that_takes_too_long() {
    let mut world = begin("--explicit-exit-notify 5", 1);
    world.run_for(secs(20));
    world.handle(Event::Signal(Signal::Exit("SIGTERM")));
    if world.ended.is_none() {
        world.handle(Event::Signal(Signal::Exit("SIGTERM")));
    }
    assert_eq!(world.ended, Some(Ended::Exit(0)));
}

#[test]
fn an_answer_to_a_question_of_before_changes_nothing() {
    let mut world = begin("--auth-user-pass", 1);
    // The prompt is still open when the attempt is abandoned.
    world.handle(Event::Signal(Signal::Restart));
    world.run_for(secs(180));
    assert!(world.is_connected());
    leave(&mut world);
    assert_eq!(world.ended, Some(Ended::Exit(0)));
}

#[test]
fn routes_that_could_not_be_set_are_not_taken_for_set_the_next_time() {
    let mut world = begin("--persist-tun --route-delay 5", 1);
    world.run_for(secs(4));
    world.faults.host = 100;
    world.run_for(secs(4));
    assert!(world.host.set.is_none(), "incomplete settings do not stay");
    world.faults.host = 0;
    world.run_for(secs(60));
    assert!(world.is_connected());
}

#[test]
fn tcp_connects_again_when_its_connection_ends() {
    let mut world = begin("--proto tcp-client --connect-retry 1 10", 1);
    world.run_for(secs(20));
    assert!(world.is_connected());
    world.set_line(false);
    world.run_for(secs(70));
    assert!(!world.is_connected());
    world.set_line(true);
    world.run_for(secs(60));
    assert!(world.is_connected());
}

#[test]
fn the_rate_is_the_servers_or_that_of_the_file() {
    let mut world = begin("--shaper 1000 --reorder", 1);
    world.run_for(secs(20));
    assert_eq!(world.plane.rate, Some(8000));
    assert!(world.plane.reorders, "its own switch");
    world.servers[0].options.push("shaper 500".to_owned());
    world.handle(Event::Signal(Signal::Restart));
    world.run_for(secs(30));
    assert!(world.is_connected());
    assert_eq!(world.plane.rate, Some(4000));
    world.servers[0].options.pop();
    world.handle(Event::Signal(Signal::Restart));
    world.run_for(secs(30));
    assert!(world.is_connected());
    assert_eq!(world.plane.rate, Some(8000), "the file's again");
    assert!(world.plane.reorders, "also of the new peer");
}

/// An idle client wakes for its pings and for little else. With keys that wear out fast it checks often.
#[test]
fn a_client_at_rest_sleeps() {
    for (more, least, most) in [
        ("", 30, 60),
        ("--reneg-bytes 1000000", 600, 660),
        ("--reneg-pkts 1000000", 600, 660),
    ] {
        let mut world = begin(&format!("--ping 10 --ping-restart 60 {more}"), 1);
        world.run_for(secs(20));
        assert!(world.is_connected(), "{more}");
        let before = world.wakes;
        world.run_for(secs(300));
        let wakes = world.wakes - before;
        assert!(
            (least..=most).contains(&wakes),
            "{more}: {wakes} in five minutes"
        );
    }
}
