//! The addresses that a server gives to its clients: one IPv4 and one IPv6 address each.
//!
//! As in stock, both families share one row of places: place 7 has the seventh address of each. A client that keeps its
//! place keeps both addresses. A place remembers its client and goes to another only as the place released longest ago.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use config::openvpn::{Pool as Range, PoolV6, Topology};
use thiserror::Error;

/// Maximum number of places of a pool; a larger range is an error for IPv4 and cut short for IPv6.
pub(crate) const PLACES_MAX: u32 = 65_536;

/// Error while making a pool.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum PoolError {
    /// The range runs backwards.
    #[error("the address pool's start {start} is above its end {end}; swap them")]
    Backwards {
        /// First address of the range.
        start: Ipv4Addr,
        /// Last address of the range.
        end: Ipv4Addr,
    },
    /// The range has more than [`PLACES_MAX`] addresses.
    #[error(
        "the address pool {start} to {end} has more than {PLACES_MAX} addresses; make it smaller"
    )]
    TooLarge {
        /// First address of the range.
        start: Ipv4Addr,
        /// Last address of the range.
        end: Ipv4Addr,
    },
    /// The range has fewer than two places.
    #[error("an address pool of {places} place(s) is too small; it needs two or more")]
    TooSmall {
        /// Number of places in the range.
        places: u32,
    },
    /// The pool has no address family.
    #[error("an address pool needs IPv4 or IPv6 addresses")]
    Empty,
}

/// A client's place in the pool. Return it with [`Pool::release`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Place(u32);

/// Addresses that a client got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    /// The place to release.
    pub place: Place,
    /// The client's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The server's end of the client's /30, with `topology net30`.
    pub ipv4_server: Option<Ipv4Addr>,
    /// The client's IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    in_use: bool,
    /// Current or last owner.
    common_name: Option<String>,
    /// Number of the release that freed the place; 0 if never released, or released without an owner.
    released: u64,
    /// Whether a read-only file reserves the place for its owner.
    fixed: bool,
}

/// The addresses that a server gives to clients.
#[derive(Debug)]
pub struct Pool {
    ipv4: Option<Range>,
    /// The base is the first address that is assigned.
    ipv6: Option<PoolV6>,
    /// IPv4 addresses of a place: four with `topology net30`, the server's end at .1 and the client's at .2; else one.
    step: u32,
    entries: Vec<Entry>,
    /// Places by the common name of their owner.
    owners: HashMap<String, Vec<u32>>,
    /// One common name may hold several places, so no owner is remembered.
    duplicate_names: bool,
    /// Number of releases; only their order matters.
    releases: u64,
}

impl Pool {
    /// Makes an empty pool; `duplicate_names` is `duplicate-cn`.
    ///
    /// # Errors
    /// The range is empty, backwards or too large.
    pub fn new(
        ipv4: Option<Range>,
        ipv6: Option<PoolV6>,
        topology: Topology,
        duplicate_names: bool,
    ) -> Result<Self, PoolError> {
        let step = match topology {
            Topology::Net30 => 4,
            Topology::P2p | Topology::Subnet => 1,
        };
        // A /30 starts at a multiple of four and ends before the next.
        let ipv4 = ipv4.map(|range| Range {
            start: (range.start.to_bits() & !(step - 1)).into(),
            end: (range.end.to_bits() | (step - 1)).into(),
            ..range
        });
        let ipv6 = ipv6.map(past_anycast);
        let sizes = [
            ipv4.map(|range| ipv4_places(range, step)).transpose()?,
            ipv6.map(ipv6_places).transpose()?,
        ];
        // The family with fewer addresses limits the number of clients.
        let places = sizes.into_iter().flatten().min().ok_or(PoolError::Empty)?;
        Ok(Self {
            ipv4,
            ipv6,
            step,
            entries: vec![Entry::default(); places as usize],
            owners: HashMap::new(),
            duplicate_names,
            releases: 0,
        })
    }

    /// Maximum number of clients at one time.
    #[cfg(test)]
    pub(crate) const fn places(&self) -> usize {
        self.entries.len()
    }

    /// Number of places in use.
    pub fn in_use(&self) -> usize {
        self.entries.iter().filter(|entry| entry.in_use).count()
    }

    /// Assigns a client its former place if that is free, else the place released longest ago; `None` if all are in
    /// use.
    pub fn acquire(&mut self, common_name: Option<&str>) -> Option<Lease> {
        let index = self.find(common_name)?;
        self.name(index, common_name.filter(|_| !self.duplicate_names));
        let entry = &mut self.entries[index as usize];
        entry.in_use = true;
        entry.fixed = false;
        Some(self.lease(index))
    }

    /// Releases a place. It stays reserved for its client while places released earlier are left.
    pub fn release(&mut self, place: Place) {
        self.releases += 1;
        if let Some(entry) = self.entries.get_mut(place.0 as usize) {
            entry.in_use = false;
            entry.released = self.releases;
        }
    }

    /// Releases a place and forgets its owner, who has a fixed address instead.
    pub fn forget(&mut self, place: Place) {
        if (place.0 as usize) < self.entries.len() {
            self.name(place.0, None);
            self.entries[place.0 as usize] = Entry::default();
        }
    }

    /// Reserves the place of these addresses for a common name from a lease file; a `fixed` place never goes to another
    /// client. If both addresses are given, the IPv4 address decides. Returns false if neither address is in the pool
    /// or the place is in use.
    pub(crate) fn remember(
        &mut self,
        common_name: &str,
        ipv4: Option<Ipv4Addr>,
        ipv6: Option<Ipv6Addr>,
        fixed: bool,
    ) -> bool {
        let place = ipv4
            .and_then(|addr| self.place_of_ipv4(addr))
            .or_else(|| ipv6.and_then(|addr| self.place_of_ipv6(addr)));
        let Some(place) = place.filter(|p| !self.entries[p.0 as usize].in_use) else {
            return false;
        };
        self.releases += 1;
        self.name(place.0, Some(common_name));
        let entry = &mut self.entries[place.0 as usize];
        entry.released = self.releases;
        entry.fixed = fixed;
        true
    }

    /// Returns every owned place: common name, IPv4 address for the file (with `topology net30` the base of the /30),
    /// and IPv6 address.
    pub(crate) fn remembered(
        &self,
    ) -> impl Iterator<Item = (&str, Option<Ipv4Addr>, Option<Ipv6Addr>)> {
        (0u32..).zip(&self.entries).filter_map(|(index, entry)| {
            let name = entry.common_name.as_deref()?;
            Some((name, self.ipv4_base(index), self.ipv6_at(index)))
        })
    }

    fn find(&self, common_name: Option<&str>) -> Option<u32> {
        let free = |index: &u32| !self.entries[*index as usize].in_use;
        if self.duplicate_names {
            return (0..self.entries.len() as u32).find(free);
        }
        let own = common_name
            .and_then(|name| self.owners.get(name))
            .and_then(|places| places.iter().copied().filter(free).min());
        own.or_else(|| {
            (0..self.entries.len() as u32)
                .filter(free)
                .filter(|&index| !self.entries[index as usize].fixed)
                .min_by_key(|&index| self.entries[index as usize].released)
        })
    }

    /// Sets a place's owner, and updates the index by name.
    fn name(&mut self, index: u32, common_name: Option<&str>) {
        let entry = &mut self.entries[index as usize];
        let before = std::mem::replace(&mut entry.common_name, common_name.map(str::to_owned));
        if let Some(before) = before
            && let Some(places) = self.owners.get_mut(&before)
        {
            places.retain(|&place| place != index);
            if places.is_empty() {
                self.owners.remove(&before);
            }
        }
        if let Some(now) = common_name {
            self.owners.entry(now.to_owned()).or_default().push(index);
        }
    }

    fn lease(&self, index: u32) -> Lease {
        let base = self.ipv4_base(index);
        let net30 = self.step > 1;
        let plus = |n: u32| base.map(|base| Ipv4Addr::from(u32::from(base) + n));
        Lease {
            place: Place(index),
            ipv4: if net30 { plus(2) } else { base },
            ipv4_server: if net30 { plus(1) } else { None },
            ipv6: self.ipv6_at(index),
        }
    }

    fn ipv4_base(&self, index: u32) -> Option<Ipv4Addr> {
        let start = self.ipv4?.start;
        Some(Ipv4Addr::from(u32::from(start) + index * self.step))
    }

    fn ipv6_at(&self, index: u32) -> Option<Ipv6Addr> {
        let base = self.ipv6?.base;
        Some(Ipv6Addr::from(u128::from(base) + u128::from(index)))
    }

    fn place_of_ipv4(&self, addr: Ipv4Addr) -> Option<Place> {
        let start = self.ipv4?.start;
        let index = u32::from(addr).checked_sub(u32::from(start))? / self.step;
        ((index as usize) < self.entries.len()).then_some(Place(index))
    }

    fn place_of_ipv6(&self, addr: Ipv6Addr) -> Option<Place> {
        let base = self.ipv6?.base;
        let offset = u128::from(addr).checked_sub(u128::from(base))?;
        let index = u32::try_from(offset).ok()?;
        ((index as usize) < self.entries.len()).then_some(Place(index))
    }
}

fn ipv4_places(range: Range, step: u32) -> Result<u32, PoolError> {
    let Range { start, end, .. } = range;
    let last = u32::from(end)
        .checked_sub(u32::from(start))
        .ok_or(PoolError::Backwards { start, end })?;
    if last >= PLACES_MAX {
        return Err(PoolError::TooLarge { start, end });
    }
    enough(last / step + 1)
}

/// Returns the host bits of an address, as far as the pool uses them.
fn host_part(range: PoolV6) -> u32 {
    let host_bits = 128 - u32::from(range.bits.min(128));
    let low = u128::from(range.base) as u32;
    match host_bits {
        32.. => low,
        bits => low & ((1u32 << bits) - 1),
    }
}

/// Skips a base whose host part is zero: that is the subnet-router anycast address.
fn past_anycast(range: PoolV6) -> PoolV6 {
    let skip = u128::from(host_part(range) == 0);
    PoolV6 {
        base: Ipv6Addr::from(u128::from(range.base).saturating_add(skip)),
        ..range
    }
}

fn ipv6_places(range: PoolV6) -> Result<u32, PoolError> {
    let host_bits = 128 - u32::from(range.bits.min(128));
    let room_above = u128::MAX - u128::from(range.base);
    let places = if host_bits <= 16 {
        (1u32 << host_bits).saturating_sub(host_part(range))
    } else {
        PLACES_MAX
    };
    // The limit applies only at the very end of the address space.
    enough(
        places.min(
            u32::try_from(room_above)
                .unwrap_or(u32::MAX)
                .saturating_add(1),
        ),
    )
}

fn enough(places: u32) -> Result<u32, PoolError> {
    if places < 2 {
        return Err(PoolError::TooSmall { places });
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(start: &str, end: &str) -> Option<Range> {
        Some(Range {
            start: start.parse().unwrap(),
            end: end.parse().unwrap(),
            netmask: None,
        })
    }

    fn ipv6(base: &str, bits: u8) -> Option<PoolV6> {
        let base = base.parse().unwrap();
        Some(PoolV6 { base, bits })
    }

    fn pool(start: &str, end: &str) -> Pool {
        Pool::new(ipv4(start, end), None, Topology::Subnet, false).unwrap()
    }

    fn addr(text: &str) -> Option<Ipv4Addr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_client_that_comes_back_gets_its_address_again() {
        let mut pool = pool("10.8.0.2", "10.8.0.4");
        let a = pool.acquire(Some("a")).unwrap();
        let b = pool.acquire(Some("b")).unwrap();
        assert_eq!(a.ipv4, addr("10.8.0.2"));
        assert_eq!(b.ipv4, addr("10.8.0.3"));
        pool.release(a.place);
        pool.release(b.place);
        // A new client gets a place that was never used, and both former clients find theirs.
        assert_eq!(pool.acquire(Some("c")).unwrap().ipv4, addr("10.8.0.4"));
        assert_eq!(pool.acquire(Some("b")).unwrap().ipv4, addr("10.8.0.3"));
        assert_eq!(pool.acquire(Some("a")).unwrap().ipv4, addr("10.8.0.2"));
        assert_eq!(pool.acquire(Some("d")), None);
    }

    #[test]
    fn the_place_released_longest_ago_is_given_to_another_client() {
        let mut pool = pool("10.8.0.2", "10.8.0.3");
        let a = pool.acquire(Some("a")).unwrap();
        let b = pool.acquire(Some("b")).unwrap();
        pool.release(b.place);
        pool.release(a.place);
        assert_eq!(pool.acquire(Some("c")).unwrap().place, b.place);
        // Client b has lost its place and gets the free one.
        assert_eq!(pool.acquire(Some("b")).unwrap().place, a.place);
    }

    #[test]
    fn a_fixed_address_gives_the_place_back_to_all() {
        let mut pool = pool("10.8.0.2", "10.8.0.3");
        let a = pool.acquire(Some("a")).unwrap();
        pool.forget(a.place);
        assert_eq!(pool.remembered().count(), 0);
        assert_eq!(pool.acquire(Some("b")).unwrap().place, a.place);
    }

    #[test]
    fn net30_gives_the_server_end_too() {
        let range = ipv4("10.8.0.4", "10.8.0.251");
        let mut pool = Pool::new(range, None, Topology::Net30, false).unwrap();
        assert_eq!(pool.places(), 62);
        let lease = pool.acquire(None).unwrap();
        assert_eq!(lease.ipv4, addr("10.8.0.6"));
        assert_eq!(lease.ipv4_server, addr("10.8.0.5"));
        assert_eq!(pool.acquire(None).unwrap().ipv4, addr("10.8.0.10"));
    }

    #[test]
    fn with_duplicate_names_the_first_free_place_is_taken_and_no_name_is_remembered() {
        let range = ipv4("10.8.0.2", "10.8.0.9");
        let mut pool = Pool::new(range, None, Topology::Subnet, true).unwrap();
        let first = pool.acquire(Some("a")).unwrap();
        assert_ne!(pool.acquire(Some("a")).unwrap().place, first.place);
        pool.release(first.place);
        assert_eq!(pool.acquire(Some("b")).unwrap().place, first.place);
        assert_eq!(pool.remembered().count(), 0);
    }

    #[test]
    fn families_share_places_and_the_smaller_limits() {
        let mut both = Pool::new(
            ipv4("10.8.0.2", "10.8.0.253"),
            ipv6("fd00::1000", 124),
            Topology::Subnet,
            false,
        )
        .unwrap();
        assert_eq!(both.places(), 15);
        let lease = both.acquire(Some("a")).unwrap();
        assert_eq!(lease.ipv4, addr("10.8.0.2"));
        assert_eq!(lease.ipv6, Some("fd00::1001".parse().unwrap()));
    }

    #[test]
    fn ipv6_never_gives_the_anycast_address_and_is_bounded() {
        let mut pool = Pool::new(None, ipv6("fd00::", 64), Topology::Subnet, false).unwrap();
        assert_eq!(pool.places(), PLACES_MAX as usize);
        let first = pool.acquire(None).unwrap();
        assert_eq!(first.ipv6, Some("fd00::1".parse().unwrap()));
        let end = Pool::new(
            None,
            ipv6("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0", 64),
            Topology::Subnet,
            false,
        );
        assert_eq!(end.unwrap().places(), 16);
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused() {
        let error = |v4, v6| Pool::new(v4, v6, Topology::Subnet, false).err();
        let new = |start, end| error(ipv4(start, end), None);
        assert!(matches!(
            new("10.0.0.9", "10.0.0.2"),
            Some(PoolError::Backwards { .. })
        ));
        assert!(matches!(
            new("10.0.0.0", "10.1.0.0"),
            Some(PoolError::TooLarge { .. })
        ));
        assert_eq!(
            new("10.0.0.2", "10.0.0.2"),
            Some(PoolError::TooSmall { places: 1 })
        );
        assert_eq!(error(None, None), Some(PoolError::Empty));
        assert!(error(None, ipv6("fd00::f", 124)).is_some());
        assert!(error(None, ipv6("::", 255)).is_some());
    }

    #[test]
    fn a_place_kept_by_a_file_is_fixed_or_only_remembered() {
        let mut pool = pool("10.8.0.2", "10.8.0.3");
        assert!(pool.remember("a", addr("10.8.0.2"), None, true));
        assert!(!pool.remember("z", addr("10.9.0.2"), None, false));
        assert_eq!(pool.acquire(Some("b")).unwrap().ipv4, addr("10.8.0.3"));
        // A fixed place goes to no other client, even as the last free one.
        assert_eq!(pool.acquire(Some("c")), None);
        assert_eq!(pool.acquire(Some("a")).unwrap().ipv4, addr("10.8.0.2"));
        assert!(!pool.remember("c", addr("10.8.0.2"), None, true), "in use");
    }
}
