//! Finds unused addresses: a network for a server's clients, and the next address in it.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::types::AllowedIp;

/// Random networks to try before all are searched.
const ATTEMPTS: usize = 64;

/// Maximum number of addresses to try in one network.
const HOSTS_MAX: u128 = 1 << 17;

/// Whether two ranges share an address.
#[must_use]
pub fn overlap(a: AllowedIp, b: AllowedIp) -> bool {
    a.contains(b.addr()) || b.contains(a.addr())
}

/// A private IPv4 /24 that overlaps with no range in `taken`; default routes do not count. `random` makes the choice
/// unpredictable: clients are likely to be in a network that many people choose.
#[must_use]
pub fn free_v4(taken: &[AllowedIp], random: &mut dyn FnMut() -> u64) -> Option<AllowedIp> {
    let is_free = |network: &AllowedIp| is_free(*network, taken);
    let network = |bits: u32| AllowedIp::new(Ipv4Addr::from_bits(bits).into(), 24).ok();
    let chosen = (0..ATTEMPTS).find_map(|_| {
        let number = random();
        // Start at 10.64.0.0: programs and router makers use the networks below.
        let (second, third) = (64 + (number >> 8) % 192, number % 256);
        network(10 << 24 | (second as u32) << 16 | (third as u32) << 8).filter(is_free)
    });
    let all = [(0x0a00_0000, 16), (0xac10_0000, 12), (0xc0a8_0000, 8)];
    let mut all = all
        .into_iter()
        .flat_map(|(first, bits)| (0..1_u32 << bits).map(move |number| first + (number << 8)));
    chosen.or_else(|| all.find_map(|bits| network(bits).filter(is_free)))
}

/// A unique local IPv6 /64 (RFC 4193) that overlaps with no range in `taken`.
#[must_use]
pub fn free_v6(taken: &[AllowedIp], random: &mut dyn FnMut() -> u64) -> Option<AllowedIp> {
    (0..ATTEMPTS).find_map(|_| {
        let global = u128::from(random() & 0xff_ffff_ffff);
        let addr = Ipv6Addr::from_bits(0xfd << 120 | global << 80);
        let network = AllowedIp::new(addr.into(), 64).ok()?;
        is_free(network, taken).then_some(network)
    })
}

fn is_free(network: AllowedIp, taken: &[AllowedIp]) -> bool {
    let mut taken = taken.iter().filter(|it| !it.is_default());
    !taken.any(|it| overlap(*it, network))
}

/// The lowest address of a network that no range in `taken` holds. Skips the network address and the IPv4 broadcast
/// address. Ignores ranges at least as wide as the network: the narrower route decides.
#[must_use]
pub fn free_host(network: AllowedIp, taken: &[AllowedIp]) -> Option<IpAddr> {
    let narrower = taken.iter().filter(|it| it.prefix() > network.prefix());
    let (hosts, ranges): (Vec<AllowedIp>, Vec<AllowedIp>) =
        narrower.partition(|it| it.prefix() == crate::types::family_bits(it.addr()));
    let hosts: HashSet<IpAddr> = hosts.iter().map(AllowedIp::addr).collect();
    let (first, bits) = match network.addr() {
        IpAddr::V4(addr) => (u128::from(addr.to_bits()), 32 - network.prefix()),
        IpAddr::V6(addr) => (addr.to_bits(), 128 - network.prefix()),
    };
    let size = 1_u128.checked_shl(bits.into()).unwrap_or(u128::MAX);
    let last = size.saturating_sub(1).min(HOSTS_MAX);
    let addr = |number: u128| -> Option<IpAddr> {
        let bits = first.checked_add(number)?;
        Some(match network.addr() {
            IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(bits).ok()?).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
        })
    };
    (1..last)
        .filter_map(addr)
        .find(|addr| !hosts.contains(addr) && !ranges.iter().any(|range| range.contains(*addr)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(text: &str) -> AllowedIp {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_taken_is_passed_over() {
        let mut zero = || 0;
        assert_eq!(free_v4(&[], &mut zero), Some(range("10.64.0.0/24")));
        let taken = [range("10.0.0.0/8"), range("0.0.0.0/0")];
        assert_eq!(free_v4(&taken, &mut zero), Some(range("172.16.0.0/24")));
        let all = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"].map(range);
        assert_eq!(free_v4(&all, &mut zero), None);
        assert_eq!(free_v6(&[], &mut zero), Some(range("fd00::/64")));
        assert_eq!(free_v6(&[range("fd00::/8")], &mut zero), None);
        let network = range("10.64.0.0/29");
        let taken = [
            range("10.64.0.1"),
            range("10.64.0.2/31"),
            range("10.64.0.0/8"),
        ];
        assert_eq!(
            free_host(network, &taken),
            Some("10.64.0.4".parse().unwrap())
        );
        let full = [
            range("10.64.0.1"),
            range("10.64.0.2/31"),
            range("10.64.0.4/30"),
        ];
        assert_eq!(free_host(network, &full), None);
        assert_eq!(free_host(range("10.0.0.1/32"), &[]), None);
        let six = free_host(range("fd00:1::/64"), &[range("fd00:1::1")]);
        assert_eq!(six, Some("fd00:1::2".parse().unwrap()));
    }

    fn ranges() -> impl Strategy<Value = Vec<AllowedIp>> {
        let one = (any::<u32>(), 8_u8..=32, any::<bool>()).prop_map(|(bits, prefix, ten)| {
            let bits = if ten { 10 << 24 | bits >> 8 } else { bits };
            AllowedIp::new(Ipv4Addr::from_bits(bits).into(), prefix).unwrap()
        });
        proptest::collection::vec(one, 0..24)
    }

    proptest! {
        #[test]
        fn networks_and_hosts_never_collide(taken in ranges(), seed in any::<u64>()) {
            let mut state = seed;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state >> 16
            };
            if let Some(network) = free_v4(&taken, &mut random) {
                prop_assert!(taken.iter().all(|it| !overlap(*it, network)));
                let mut given = vec![network];
                for _ in 0..260 {
                    let Some(host) = free_host(network, &given) else { break };
                    let host = AllowedIp::new(host, 32).unwrap();
                    prop_assert!(overlap(network, host));
                    prop_assert!(given[1..].iter().all(|it| !overlap(*it, host)));
                    given.push(host);
                }
                prop_assert_eq!(given.len(), 1 + 254);
            }
        }
    }
}
