//! What a server pushes and says, what a signal means, and what the status tells, one situation each.

use super::scenarios::{begin, begin_with};
use super::world::{Faults, World, secs};
use crate::openvpn::Ended;
use crate::openvpn::client::event::Event;
use crate::openvpn::client::host::SERVER;
use openvpn::message::{Message, Restart};
use openvpn_host::management::State;
use openvpn_host::signals::Signal;
use plane::{DataPlane as _, Notice};
#[cfg(feature = "kernel")]
use {
    super::config, super::scenarios::leave, crate::openvpn::kernel_plane::Choice,
    std::net::SocketAddr,
};

fn has_logged(world: &World, text: &str) -> bool {
    world.log.iter().any(|line| line.contains(text))
}

/// A connected client.
fn connected(more: &str) -> World {
    let mut world = begin(more, 1);
    world.run_for(secs(20));
    assert!(world.is_connected());
    world
}

#[test]
fn pushed_options_that_the_file_leaves_out_are_named_to_the_user() {
    let world = connected("--route-nopull --pull-filter ignore ping-restart");
    let said = "pushed options ignored, as the file says: ";
    let line = world.said.iter().find_map(|it| it.strip_prefix(said));
    let line = line.unwrap_or_else(|| panic!("{:?}", world.said));
    let expected = [
        "route 10.9.0.0 255.255.0.0",
        "dhcp-option DNS 10.8.0.1",
        "ping-restart 60",
    ];
    assert_eq!(line.split(", ").collect::<Vec<_>>(), expected);
    assert!(world.host.set.as_ref().unwrap().routes.is_empty());

    // A server may push thousands.
    let mut world = begin("--route-nopull", 1);
    let route = |n| format!("route 10.{n}.0.0 255.255.0.0");
    world.servers[0].options.extend((10..30).map(route));
    world.run_for(secs(20));
    let line = world.said.iter().find(|it| it.starts_with(said)).unwrap();
    assert!(line.ends_with(" and 14 more"), "{line}");
}

#[test]
fn a_text_that_the_server_echoes_is_logged() {
    let mut world = begin("", 1);
    world.servers[0]
        .options
        .push("echo maintenance at noon".to_owned());
    world.run_for(secs(20));
    assert!(
        has_logged(&world, "ECHO:maintenance at noon"),
        "{:?}",
        world.log
    );
}

#[test]
fn a_server_may_make_the_client_wait_or_stop() {
    let mut world = connected("");
    world.tell_clients(0, &Message::AuthPending { timeout: None });
    world.run_for(secs(1));
    assert!(world.states.contains(&State::AuthPending) && world.is_connected());
    world.tell_clients(0, &Message::Unknown("PUSH_SOMETHING,new".to_owned()));
    world.run_for(secs(1));
    assert!(world.is_connected());
    let halt = Restart {
        reason: "closed for good".to_owned(),
        ..Restart::default()
    };
    world.tell_clients(0, &Message::Halt(halt));
    world.run_for(secs(10));
    assert_eq!(world.ended, Some(Ended::Exit(0)));
    assert!(has_logged(&world, "closed for good"), "{:?}", world.log);
}

#[test]
fn a_restart_is_what_remap_usr1_says() {
    for (word, ended) in [("SIGHUP", Ended::Reload), ("SIGTERM", Ended::Exit(0))] {
        let mut world = connected(&format!("--remap-usr1 {word}"));
        world.handle(Event::Signal(Signal::Restart));
        world.run_for(secs(10));
        assert_eq!(world.ended, Some(ended), "{word}");
    }
}

#[test]
fn a_tunnel_without_traffic_or_past_its_time_ends() {
    for (more, why) in [
        ("--inactive 60", "inactiv"),
        ("--session-timeout 90", "session"),
    ] {
        let mut world = connected(more);
        world.run_for(secs(300));
        assert_eq!(world.ended, Some(Ended::Exit(0)), "{more}");
        let last = world.log.iter().rfind(|it| it.ends_with(", exiting"));
        let last = last.map(|it| it.to_lowercase()).unwrap_or_default();
        assert!(last.contains(why), "{last}");
    }
}

#[test]
fn a_client_that_may_try_only_so_often_gives_up() {
    let mut world = begin(
        "--connect-retry-max 2 --connect-timeout 5 --connect-retry 1",
        1,
    );
    world.servers[0].answers = false;
    world.run_for(secs(60));
    assert_eq!(world.ended, Some(Ended::Exit(1)));
    assert_eq!(world.dials.len(), 2);
}

#[test]
fn keys_are_renewed_when_the_data_plane_asks_for_it() {
    let mut world = connected("");
    assert_eq!(world.plane.installed, 1);
    world.handle(Event::Notice(Notice::Refresh { index: 0 }));
    world.run_for(secs(10));
    assert_eq!(world.plane.installed, 2);
    assert!(world.is_connected());
}

#[test]
fn a_server_that_compresses_or_does_not_frame_is_told_of_with_the_remedy() {
    let compressed = |unpacked| Notice::Compressed { unpacked };
    let cases = [
        (compressed(true), "VORACLE", "Remove comp-lzo"),
        (compressed(false), "they are dropped", "Remove comp-lzo"),
        (
            Notice::Unframed,
            "lack the agreed framing",
            "`pull-filter ignore comp`",
        ),
    ];
    for (notice, words, remedy) in cases {
        let mut world = connected("");
        world.handle(Event::Notice(notice));
        let found = world.log.iter().find(|it| it.contains(words));
        assert!(
            found.is_some_and(|it| it.contains(remedy)),
            "{:?}",
            world.log
        );
        // The status keeps it: the tunnel looks connected.
        let dropped = world.machine().connection().unwrap().dropped;
        let is_dropped = !matches!(notice, Notice::Compressed { unpacked: true });
        assert_eq!(dropped.is_some_and(|it| it.contains(remedy)), is_dropped);
    }
}

const BY_PROXY: &str = "--proto tcp-client --http-proxy 192.0.2.1 1194 stdin basic";

#[test]
fn a_proxy_is_shown_the_users_name_before_it_is_called() {
    let world = connected(BY_PROXY);
    assert_eq!(world.proxy_user.as_deref(), Some("proxy user"));
    let world = connected("--proto tcp-client --http-proxy 192.0.2.1 1194");
    assert_eq!(world.proxy_user, None);
}

#[test]
fn a_client_without_a_name_for_its_proxy_ends_and_says_why() {
    let no_terminal = Faults {
        passwords: 100,
        ..Faults::default()
    };
    let mut world = begin_with(BY_PROXY, 1, no_terminal);
    world.run_for(secs(1));
    assert_eq!(world.ended, Some(Ended::Exit(1)));
    assert!(has_logged(&world, "there is no terminal to ask"));
    assert_eq!(world.dials, []);
}

#[test]
fn the_status_tells_the_server_and_its_keys() {
    for (more, transport) in [("", "udp"), ("--proto tcp-client", "tcp")] {
        let world = connected(more);
        let plane = world.fake.as_ref().unwrap();
        let state = plane.peer(SERVER).unwrap();
        let connection = world.machine().connection().unwrap();
        let status = connection.status(&state);
        assert_eq!(status.endpoint.as_deref(), Some("192.0.2.1:1194"));
        assert_eq!(status.transport.as_deref(), Some(transport));
        assert_eq!(status.cipher.as_deref(), Some("AES-256-GCM"));
        assert!(status.crypto_backend.is_some() && status.backend.is_some());
        let since = 1_800_000_000..1_800_000_020;
        assert!(since.contains(&status.connected_unix.unwrap()));
        assert!(since.contains(&status.last_handshake_unix.unwrap()));
        // Control packets count; there were no others.
        assert!(status.rx_bytes > 1000 && status.tx_bytes > 1000);
        assert_eq!(status.state, None, "the server is not silent");
    }
}

/// A client of 192.0.2.1 for which `auto` chose the kernel, and the choice.
#[cfg(feature = "kernel")]
fn moved_by_the_kernel(more: &str) -> (World, &'static Choice) {
    let choice = Choice::by(Ok("measured".to_owned()), false);
    let choice = &*Box::leak(Box::new(choice));
    let server = SocketAddr::from(([192, 0, 2, 1], 1194));
    // A kernel that fails is no failure of the server.
    let options = format!("--remote 192.0.2.1 1194 --connect-retry-max 1 {more}");
    let mut world = World::new(config(&options), &[server], 1);
    world.is_moved_by(choice);
    (world, choice)
}

/// A server whose options only user space can meet costs nothing: the session begins there.
#[test]
#[cfg(feature = "kernel")]
fn auto_leaves_the_kernel_for_what_the_server_pushes() {
    for (more, pushed, reason) in [
        ("--mssfix 0", "comp-lzo no", "framing of compression"),
        ("--mssfix 0", "compress stub-v2", "framing of compression"),
        ("--mssfix 0", "shaper 100000", "`shaper`"),
        // The server's own MTU is 1500, which it pushes.
        ("--tun-mtu 1420", "ping 10", "mssfix"),
    ] {
        let (mut world, choice) = moved_by_the_kernel(more);
        world.servers[0].options.push(pushed.to_owned());
        world.handle(Event::Begin);
        assert!(choice.is_for_kernel());
        world.run_for(secs(20));
        assert!(world.is_connected() && !choice.is_for_kernel(), "{pushed}");
        let (_, why) = choice.rung().unwrap();
        assert!(why.contains(reason), "{pushed}: {why}");
        assert_eq!((world.dials.len(), world.plane.installed), (1, 1));
        assert!(!has_logged(&world, "pushed option"), "{:?}", world.log);
        leave(&mut world);
    }
}

#[test]
#[cfg(feature = "kernel")]
fn a_client_calls_the_same_server_at_once_when_the_kernel_fails() {
    let (mut world, choice) = moved_by_the_kernel("--mssfix 0");
    world.handle(Event::Begin);
    for dials in 1..3 {
        world.run_for(secs(20));
        assert!(world.is_connected() && choice.is_for_kernel());
        assert_eq!(world.dials.len(), dials);
        // No pause has to precede the next dial.
        world.was_up = true;
        world.handle(Event::Notice(Notice::Failed));
    }
    world.run_for(secs(20));
    assert!(world.is_connected());
    leave(&mut world);
}
