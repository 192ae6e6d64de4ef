//! The names that an interface looks up: endpoints of peers, and relays of lines.

use super::host::LOOKUPS_MAX;
use super::lines::look;
use super::machine::{Cx, Machine};
use lines::names::{LookUp, Name, Whose};
use std::net::SocketAddr;
use std::time::Instant;

impl Machine {
    /// The known addresses of the relays.
    #[must_use]
    pub fn relays(&self) -> Vec<SocketAddr> {
        let lines = self.lines.iter();
        lines.flat_map(|lines| lines.relays()).collect()
    }

    /// When to look up the next name. It may have to wait for another look-up to end.
    pub(super) fn names_due(&self) -> Option<Instant> {
        let names = self.names.values().filter_map(Name::due);
        let relays = self.lines.iter().filter_map(|it| it.relays_due());
        let first = names.chain(relays).min();
        first.filter(|_| self.lookups < LOOKUPS_MAX)
    }

    /// Begins the look-ups that are due.
    pub(super) fn begin_lookups(&mut self, cx: &mut Cx<'_>) {
        let names = self.names.iter_mut();
        let names = names.map(|(id, name)| (Whose::Peer(*id), name));
        let relays = self.lines.iter_mut().flat_map(|it| it.relay_names());
        let begin =
            |(whose, name): (_, &mut Name)| name.begin_due(whose, self.mark, cx.now.monotonic);
        let due = names.chain(relays).filter_map(begin);
        for lookup in due.take(LOOKUPS_MAX.saturating_sub(self.lookups)) {
            self.lookups += 1;
            cx.host.look_up(lookup);
        }
    }

    /// Takes the result of a look-up.
    pub(super) fn looked_up(
        &mut self,
        lookup: &LookUp,
        found: Result<Vec<SocketAddr>, String>,
        cx: &mut Cx<'_>,
    ) {
        self.lookups = self.lookups.saturating_sub(1);
        cx.host.changed();
        let peer = match lookup.whose {
            Whose::Peer(peer) => peer,
            Whose::Relay(line) => {
                self.with_lines(cx, |lines, now, out| {
                    lines.relay_looked_up(line, found, now, out);
                    look(lines, now, out);
                });
                return;
            }
            Whose::Target => return,
        };
        let current = cx.endpoint(peer).map(|it| it.addr);
        // The peer may be gone, or may have another name now.
        let name = self.names.get_mut(&peer);
        let Some(name) = name.filter(|name| *name.endpoint() == lookup.endpoint) else {
            return;
        };
        match name.looked_up(found, current, cx.now.monotonic) {
            Ok(Some(addr)) => self.call_at(peer, plane::Endpoint::new(addr), cx),
            Ok(None) | Err(None) => {}
            Err(Some(words)) => cx.log(log::Level::Warn, &words),
        }
    }

    /// Looks up names that were not found, now that the network has changed.
    pub(super) fn hurry_names(&mut self, now: Instant) {
        self.names.values_mut().for_each(|name| name.hurry(now));
        if let Some(lines) = &mut self.lines {
            lines.hurry_relays(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wireguard::event::Event;
    use crate::wireguard::fixture::FakeHost;
    use ::wireguard::WireGuard;
    use config::lines::{Line, Lines as Settings};
    use config::types::Key32;
    use lines::control::LineFacts;
    use plane::LineId;
    use plane::Now;
    use plane::fake::{Call, FakeDataPlane};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn the_name_of_a_relay_is_looked_up_and_its_next_address_tried_when_the_first_is_of_no_use() {
        let mut now = Now::read();
        let mut machine = Machine::new(now, 1);
        machine.set_lines(&Settings {
            lines: vec![Line {
                name: "relayed".to_owned(),
                relay: Some("relay.example:5".parse().unwrap()),
                relay_key: Some(Key32::new([7; 32])),
                ..Line::default()
            }],
            ..Settings::default()
        });
        let there = Some(LineFacts {
            ifindex: 0,
            running: true,
            addressed: true,
        });
        let addresses = [1, 2].map(|last| SocketAddr::from(([192, 0, 2, last], 5)));
        let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
        let mut host = FakeHost::new(plane.clone());
        host.facts = vec![there];
        let mut hellos = Vec::new();
        let mut lookups = 0;
        let mut events = vec![Event::Start];
        for _ in 0..1000 {
            for event in events.drain(..) {
                machine.handle(event, &mut Cx::new(now, &*plane, &mut host));
            }
            for lookup in host.lookups.drain(..) {
                assert_eq!(
                    (lookup.whose, lookup.host.as_str()),
                    (Whose::Relay(LineId(0)), "relay.example")
                );
                lookups += 1;
                let found = Ok(addresses.to_vec());
                events.push(Event::LookedUp { lookup, found });
            }
            for call in plane.take_calls() {
                if let Call::Send(line, bytes) = call {
                    assert!(bytes.starts_with(b"\xffmrelay"));
                    hellos.push(line.endpoint.addr);
                }
            }
            if events.is_empty() {
                now.monotonic += Duration::from_millis(100);
                events.push(Event::Deadline);
            }
        }
        // No peer answers in these hundred seconds: each address is tried, then the name is looked up again.
        hellos.dedup();
        assert!(
            hellos.starts_with(&[addresses[0], addresses[1], addresses[0]]),
            "{hellos:?}"
        );
        assert!(lookups > 1, "{lookups}");
        assert!(addresses.contains(&machine.relays()[0]));
    }
}
