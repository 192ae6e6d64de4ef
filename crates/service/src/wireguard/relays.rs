//! The relays of an interface's lines: their addresses, and the hellos that tell them ours.

use super::lines::look;
use super::machine::{Cx, Machine};
use super::names::Name;
use plane::LineId;
use std::net::SocketAddr;
use std::time::Instant;

impl Machine {
    /// Looks up relays that are configured by name.
    pub(super) fn name_relays(&mut self, now: Instant) {
        let Some(lines) = &self.lines else { return };
        for (line, settings) in (0..).map(LineId).zip(&lines.settings().lines) {
            let name = settings.relay.as_ref().and_then(|it| Name::of(it, now));
            if let Some(name) = name {
                self.relays.entry(line).or_insert(name);
            }
        }
    }

    /// Handles the result of a look-up.
    pub(super) fn relay_looked_up(
        &mut self,
        line: LineId,
        found: Result<Vec<SocketAddr>, String>,
        cx: &mut Cx<'_>,
    ) {
        let current = self.lines.as_ref().and_then(|it| it.relay(line));
        let Some(name) = self.relays.get_mut(&line) else {
            return;
        };
        match name.looked_up(found, current, cx.now.monotonic) {
            Ok(Some(addr)) => self.set_relay(line, addr, cx),
            Ok(None) | Err(None) => {}
            Err(Some(words)) => cx.log(log::Level::Warn, &words),
        }
    }

    fn set_relay(&mut self, line: LineId, addr: SocketAddr, cx: &mut Cx<'_>) {
        self.with_lines(cx, |lines, cx, out| {
            lines.set_relay(line, addr, out);
            look(lines, cx, out);
        });
    }

    /// Tells a relay our address. If no peer answers by a relay, it may have moved: then the next address of its name
    /// is tried, and after the last the name is looked up anew.
    pub(super) fn say_hello(&mut self, line: LineId, (works, lost): (bool, bool), cx: &mut Cx<'_>) {
        let now = cx.now;
        let current = self.lines.as_ref().and_then(|it| it.relay(line));
        if let Some(name) = self.relays.get_mut(&line) {
            if works {
                cx.keep_address(name.answered(current, now.monotonic));
            }
            let next = lost.then(|| name.unanswered(now.monotonic)).flatten();
            if let Some(addr) = next.filter(|next| Some(*next) != current) {
                // Sends the hello to the new address.
                return self.set_relay(line, addr, cx);
            }
        }
        let lines = self.lines.as_mut();
        if let Some((to, hello)) = lines.and_then(|lines| lines.hello(line, now.wall)) {
            self.keep_floor(cx);
            cx.plane.send(&to, &hello);
        }
    }

    /// The known addresses of the relays.
    #[must_use]
    pub fn relays(&self) -> Vec<SocketAddr> {
        let lines = self.lines.iter();
        lines.flat_map(|lines| lines.relays()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::LineFacts;
    use crate::now::Now;
    use crate::wireguard::event::Event;
    use crate::wireguard::fixture::FakeHost;
    use crate::wireguard::host::Whose;
    use ::wireguard::WireGuard;
    use config::lines::{Line, Lines as Settings};
    use config::types::Key32;
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
        // No peer answers in these hundred seconds: each address is tried, then the name is looked up anew.
        hellos.dedup();
        assert!(
            hellos.starts_with(&[addresses[0], addresses[1], addresses[0]]),
            "{hellos:?}"
        );
        assert!(lookups > 1, "{lookups}");
        assert!(addresses.contains(&machine.relays()[0]));
    }
}
