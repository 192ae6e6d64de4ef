//! The address of a relay's target: configured, or found for a name. A name is looked up until it is found, and again
//! when none of its addresses answers.

use config::types::Endpoint;
use lines::names::{LookUp, Name, Whose};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How often to check whether answers come back. WireGuard repeats an unanswered message every 5 seconds.
const LOOK: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Target {
    address: Option<SocketAddr>,
    name: Option<Name>,
    look: Instant,
    /// Datagrams to the target and from it, at the last check.
    counted: (u64, u64),
    /// The name and the address that has answered, to be kept in a file.
    good: Option<(String, IpAddr)>,
}

impl Target {
    pub(super) fn new(endpoint: &Endpoint, now: Instant) -> Self {
        Self {
            address: endpoint.socket_addr(),
            name: Name::of(endpoint, now),
            look: now + LOOK,
            counted: (0, 0),
            good: None,
        }
    }

    /// The target's address, once known.
    pub(super) const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether the target is configured by name.
    pub(super) const fn is_name(&self) -> bool {
        self.name.is_some()
    }

    /// When [`Target::expire`] next has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let name = self.name.as_ref()?;
        Some(name.due().map_or(self.look, |at| at.min(self.look)))
    }

    /// Takes the counts of datagrams to the target and back, and begins a look-up that is due.
    pub(super) fn expire(&mut self, moved: (u64, u64), now: Instant) -> Option<LookUp> {
        let name = self.name.as_mut()?;
        if self.look <= now {
            self.look = now + LOOK;
            let (out, back) = (moved.0 > self.counted.0, moved.1 > self.counted.1);
            self.counted = moved;
            match (out, back) {
                (_, true) => self.good = name.answered(self.address, now),
                (true, false) => self.address = name.unanswered(now).or(self.address),
                (false, false) => {}
            }
        }
        name.begin_due(Whose::Target, 0, now)
    }

    /// Returns once the name and the address to keep for a start at which no name server answers.
    pub(super) const fn take_good(&mut self) -> Option<(String, IpAddr)> {
        self.good.take()
    }

    /// Takes the result of a look-up.
    pub(super) fn looked_up(
        &mut self,
        lookup: &LookUp,
        found: Result<Vec<SocketAddr>, String>,
        now: Instant,
    ) {
        let name = self.name.as_mut();
        // The configuration file may have been read again meanwhile.
        let Some(name) = name.filter(|name| *name.endpoint() == lookup.endpoint) else {
            return;
        };
        match name.looked_up(found, self.address, now) {
            Ok(Some(addr)) => self.address = Some(addr),
            Ok(None) | Err(None) => {}
            Err(Some(words)) => log::warn!("{words}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 5).into()
    }

    #[test]
    fn an_address_is_never_looked_up() {
        let now = Instant::now();
        let mut target = Target::new(&addr(1).into(), now);
        assert_eq!((target.address(), target.due()), (Some(addr(1)), None));
        assert_eq!(target.expire((9, 0), now + LOOK), None);
    }

    #[test]
    fn all_addresses_of_a_name_are_tried_and_then_it_is_looked_up_anew() {
        let mut now = Instant::now();
        let mut target = Target::new(&"vpn.example:5".parse().unwrap(), now);
        let lookup = target.expire((0, 0), now).unwrap();
        assert_eq!(
            (target.address(), lookup.host.as_str()),
            (None, "vpn.example")
        );
        target.looked_up(&lookup, Ok(vec![addr(1), addr(2)]), now);
        assert_eq!(target.address(), Some(addr(1)));
        // First nothing goes to the target, then answers come.
        for moved in [(0, 0), (5, 2), (6, 3)] {
            assert_eq!(target.take_good(), None);
            now += LOOK;
            assert_eq!(target.expire(moved, now), None);
            assert_eq!(target.address(), Some(addr(1)));
            if moved == (5, 2) {
                let good = ("vpn.example".to_owned(), addr(1).ip());
                assert_eq!(target.take_good(), Some(good));
            }
        }
        now += LOOK;
        assert_eq!(target.expire((7, 3), now), None);
        assert_eq!(target.address(), Some(addr(2)));
        now += LOOK;
        let lookup = target.expire((8, 3), now).unwrap();
        assert_eq!(target.address(), Some(addr(1)));
        target.looked_up(&lookup, Ok(vec![addr(3)]), now);
        assert_eq!(target.address(), Some(addr(3)));
        let other = LookUp {
            endpoint: addr(9).into(),
            ..lookup
        };
        target.looked_up(&other, Ok(vec![addr(4)]), now);
        assert_eq!(target.address(), Some(addr(3)));
    }
}
