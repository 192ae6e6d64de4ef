//! Ends with and without support for several lines.

use std::time::Duration;

use pptp::session::Encryption;

use crate::world::{Network, World, client_settings, server_settings};

const MINUTES: Duration = Duration::from_secs(180);

#[test]
fn both_ends_agree_to_several_lines_where_both_ask_for_them() {
    for (asks, agrees, lost) in [
        (true, true, 0),
        (true, true, 300),
        (true, false, 0),
        (false, true, 0),
        (false, false, 0),
    ] {
        let (mut client, mut server) = (client_settings(), server_settings());
        client.common.link.lines = asks;
        server.common.link.lines = agrees;
        let mut world = World::new(3, client, server);
        assert!(world.run(MINUTES, World::both_up));
        world.network = Network {
            loss: lost,
            ..world.network
        };
        let decided = |world: &World| world.client_lines.is_some();
        assert_eq!(world.run(Duration::from_secs(10), decided), asks);
        let expected = asks.then_some(agrees);
        assert_eq!(world.client_lines, expected, "{asks} {agrees}");
        assert_eq!(world.server_lines, asks && agrees);
        let probe = world.client.probe(0, 0, 1);
        assert_eq!(probe.is_some(), asks && agrees);
        // Otherwise behaviour is unchanged.
        assert!(world.client_down.is_none() && world.server_down.is_none());
    }
}

#[test]
fn there_are_no_several_lines_without_keys() {
    let (mut client, mut server) = (client_settings(), server_settings());
    for common in [&mut client.common, &mut server.common] {
        common.link.lines = true;
        common.link.encryption = Encryption::None;
    }
    let mut world = World::new(3, client, server);
    assert!(world.run(MINUTES, |world| world.client_lines.is_some()));
    assert_eq!(
        (world.client_lines, world.server_lines),
        (Some(false), false)
    );
}
