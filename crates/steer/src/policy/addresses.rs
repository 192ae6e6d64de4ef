//! Addresses of names, kept as long as the set that `dnsmasq` fills has them, and a day longer.
//!
//! The sets end with their table, and at a reboot. Devices go on using the addresses that they have looked up, and
//! `dnsmasq` does not add an address that it answers from its cache. So kept addresses are put back, into sets of their
//! own: an address that only these have was not seen again, and the kernel removes it when its time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::policy::{Domain, Policy};
use netio::netlink::Netfilter;

use crate::policy::second::is_fit;
use crate::policy::table::{TABLE, kept_set_of, set_of};

/// Maximum number of addresses of a name.
const ADDRESSES_MAX: usize = 256;

/// Maximum number of addresses of all names, except that each name may have [`ADDRESSES_MIN`].
const ALL_MAX: usize = 2048;
const ADDRESSES_MIN: usize = 4;

/// How long an address is kept, in hours. The current hour counts as a whole one.
const KEPT: u64 = 25;

/// Time between two writes of the file, to spare the flash.
const WRITES: Duration = Duration::from_secs(3600);

/// Number of a name's addresses that are written at once: an answer of DNS has several, which come one by one.
const AT_ONCE: usize = 8;

/// Largest file that is read, in bytes: an address takes about 30.
const FILE_MAX: u64 = 1 << 20;

/// News of the sets since the last look.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Addresses that programs have put into sets since, each with the name of its set.
    pub(super) added: Vec<Element>,
    /// The hour in which all sets were last read; `None` if they are to be read, as something may have been missed.
    pub(super) read: Option<u64>,
}

/// The name of a set, and an address in it.
type Element = (String, IpAddr);

/// Addresses by name. Each has the hour since boot in which it becomes too old. The address that `dnsmasq` added last
/// comes last.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Addresses(BTreeMap<Domain, Vec<(IpAddr, u64)>>);

impl Addresses {
    /// Reads lines as [`Addresses::lines`] makes them, each hour changed by `of`.
    pub(super) fn of_lines<'t>(
        lines: impl Iterator<Item = &'t str>,
        of: impl Fn(u64) -> u64,
    ) -> Self {
        let named = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let domain = Domain::new(words.next().filter(|it| !it.starts_with('#'))?)?;
            let addresses = words.filter_map(|it| {
                let (ip, hour) = it.split_once('=')?;
                Some((ip.parse().ok()?, of(hour.parse().ok()?)))
            });
            Some((domain, addresses.take(ADDRESSES_MAX).collect()))
        };
        Self(lines.filter_map(named).collect())
    }

    /// A line for each name, with its addresses and their hours after `start`.
    pub(super) fn lines(&self, start: u64) -> impl Iterator<Item = String> {
        self.0.iter().map(move |(domain, addresses)| {
            let words = addresses
                .iter()
                .map(|(ip, end)| format!(" {ip}={}", end.saturating_sub(start)));
            format!("{domain}{}", words.collect::<String>())
        })
    }

    /// Whether addresses are kept, and every name keeps fewer than it may. A name with as many may have had more.
    pub(super) fn is_complete(&self, policy: &Policy) -> bool {
        let most = most(policy);
        !self.0.is_empty() && self.0.values().all(|all| all.len() < most)
    }

    /// The addresses of a name.
    pub(super) fn of(&self, domain: &Domain) -> impl Iterator<Item = IpAddr> {
        self.0.get(domain).into_iter().flatten().map(|it| it.0)
    }

    /// The addresses that were not known earlier.
    pub(super) fn since(&self, earlier: &Self) -> BTreeSet<IpAddr> {
        let all =
            |it: &Self| -> BTreeSet<IpAddr> { it.0.values().flatten().map(|it| it.0).collect() };
        &all(self) - &all(earlier)
    }

    /// The addresses of a name and a family, 4 or 6, as elements for `nft` that time out; `None` without any.
    pub(super) fn elements(&self, domain: &Domain, family: u8, hour: u64) -> Option<String> {
        let all = self.0.get(domain).into_iter().flatten();
        let own = all.filter(|it| it.0.is_ipv4() == (family == 4) && it.1 > hour);
        let own: Vec<String> = own
            .map(|(ip, end)| format!("{ip} timeout {}h", end - hour))
            .collect();
        (!own.is_empty()).then(|| own.join(", "))
    }

    /// Adds addresses that were put into sets in this hour.
    pub(super) fn hear(&mut self, policy: &Policy, elements: &[Element], hour: u64) {
        let domains = policy.domains().into_iter();
        let sets: BTreeMap<String, &Domain> = domains
            .flat_map(|it| [4, 6].map(|family| (set_of(it, family), it)))
            .collect();
        for (set, ip) in elements {
            if let Some(domain) = sets.get(set).filter(|_| is_fit(ip)) {
                let all = self.0.entry((*domain).clone()).or_default();
                all.retain(|it| it.0 != *ip);
                all.push((*ip, hour + KEPT));
            }
        }
    }

    /// Renews the addresses in all sets of the policy's names. Returns whether the table lacks a kept one.
    pub(super) fn read(&mut self, policy: &Policy, netfilter: &mut Netfilter, hour: u64) -> bool {
        let (mut lacks, most) = (false, most(policy));
        for domain in policy.domains() {
            let mut of = |set: String| netfilter.addresses(TABLE, &set).unwrap_or_default();
            let now = [4, 6].map(|it| of(set_of(domain, it))).concat();
            let kept = [4, 6].map(|it| of(kept_set_of(domain, it))).concat();
            let mut before = self.0.get(domain).into_iter().flatten();
            lacks |= before.any(|it| it.1 > hour && !now.contains(&it.0) && !kept.contains(&it.0));
            self.renew(domain, &now, most, hour);
        }
        lacks
    }

    /// Renews the hours of addresses that a name's sets have. The kernel lists them in any order, so known addresses
    /// keep their places. Unknown ones count as older than these, and are added while the name has fewer than `most`.
    fn renew(&mut self, domain: &Domain, ips: &[IpAddr], most: usize, hour: u64) {
        let all = self.0.entry(domain.clone()).or_default();
        for ip in ips {
            if let Some(it) = all.iter_mut().find(|it| it.0 == *ip) {
                it.1 = hour + KEPT;
            } else if all.len() < most && is_fit(ip) {
                all.insert(0, (*ip, hour + KEPT));
            }
        }
    }

    /// Drops addresses that are too old, too many, or of names that no entry has.
    pub(super) fn trim(&mut self, policy: &Policy, hour: u64) {
        let (domains, most) = (policy.domains(), most(policy));
        self.0.retain(|domain, all| {
            all.retain(|it| it.1 > hour);
            while all.len() > most {
                // The first of the oldest ones.
                let oldest = (0..all.len()).min_by_key(|place| all[*place].1);
                all.remove(oldest.unwrap_or(0));
            }
            !all.is_empty() && domains.contains(&domain)
        });
    }

    /// Writes the addresses to their file, where they outlive a boot: at most once an hour, but a name's first ones at
    /// once.
    pub(super) fn keep(&self, policy: &Policy, path: &Path, hour: u64) -> io::Result<()> {
        let before = Self::kept(path, hour);
        let at_once = AT_ONCE.min(most(policy));
        let is_new = self.0.iter().any(|(domain, all)| {
            let kept = before.0.get(domain).map_or(&[][..], Vec::as_slice);
            kept.len() < at_once && all.iter().any(|it| kept.iter().all(|old| old.0 != it.0))
        });
        if *self == before || !is_new && !is_due(path) {
            return Ok(());
        }
        let mut text =
            "# Addresses of the entries' names, and for how many hours they are kept.\n".to_owned();
        for line in self.lines(hour) {
            text += &format!("{line}\n");
        }
        host::written_file::replace(path, text.as_bytes(), 0o600)
    }

    /// Reads the addresses that were kept over a boot.
    pub(super) fn kept(path: &Path, hour: u64) -> Self {
        let bytes = config::file::read(path, FILE_MAX).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        Self::of_lines(text.lines(), |left| hour + left.min(KEPT))
    }
}

/// Maximum number of addresses that each of the policy's names keeps.
fn most(policy: &Policy) -> usize {
    (ALL_MAX / policy.domains().len().max(1)).clamp(ADDRESSES_MIN, ADDRESSES_MAX)
}

/// The file of addresses that belongs to the file of leases.
pub(super) fn file_beside(leases: &Path) -> PathBuf {
    leases.with_extension("names")
}

/// The current hour since boot. The clock of the day would not do: at boot, many routers do not know the time.
pub(super) fn hour() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split('.').next().unwrap_or_default();
    seconds.parse::<u64>().unwrap_or(0) / 3600
}

/// Whether the last write is an hour ago. A time in the future is that of a clock that was wrong.
fn is_due(path: &Path) -> bool {
    let written = path.metadata().and_then(|it| it.modified());
    let age = written.map(|it| it.elapsed());
    !matches!(age, Ok(Ok(age)) if age < WRITES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ip, of, policy};
    use proptest::prelude::*;
    use std::ops::Range;

    fn domain(text: &str) -> Domain {
        Domain::new(text).unwrap()
    }

    fn seen(addresses: &mut Addresses, name: &str, address: &str, hour: u64) {
        let family = if ip(address).is_ipv4() { 4 } else { 6 };
        let element = (set_of(&domain(name), family), ip(address));
        addresses.hear(&policy(), &[element], hour);
    }

    #[test]
    fn an_address_is_kept_for_a_day_after_it_was_last_seen() {
        let mut it = Addresses::default();
        seen(&mut it, "bank.example", "203.0.113.42", 7);
        seen(&mut it, "bank.example", "2001:db8:f::42", 7);
        // An address in the set of no entry, and one that was only put back.
        let other = [
            set_of(&domain("other.example"), 4),
            kept_set_of(&domain("bank.example"), 4),
        ];
        it.hear(&policy(), &other.map(|set| (set, ip("203.0.113.9"))), 7);
        let all = |it: &Addresses| it.of(&domain("bank.example")).collect::<Vec<_>>();
        assert_eq!(all(&it), [ip("203.0.113.42"), ip("2001:db8:f::42")]);
        it.trim(&policy(), 31);
        seen(&mut it, "bank.example", "2001:db8:f::42", 31);
        it.trim(&policy(), 32);
        assert_eq!(all(&it), [ip("2001:db8:f::42")]);
        let elements = [4, 6].map(|family| it.elements(&domain("bank.example"), family, 32));
        assert_eq!(
            elements,
            [None, Some("2001:db8:f::42 timeout 24h".to_owned())]
        );
        it.trim(&policy(), 56);
        assert_eq!(it, Addresses::default());
    }

    #[test]
    fn of_too_many_addresses_the_newest_stay() {
        let mut it = Addresses::default();
        let number = |it: u32| format!("198.18.{}.{}", it / 256, it % 256);
        for place in 0..300 {
            seen(
                &mut it,
                "bank.example",
                &number(place),
                u64::from(place % 2),
            );
        }
        it.trim(&policy(), 1);
        let all: Vec<IpAddr> = it.of(&domain("bank.example")).collect();
        assert_eq!(all.len(), ADDRESSES_MAX);
        for place in 0..300 {
            assert_eq!(
                all.contains(&ip(&number(place))),
                place % 2 == 1 || place >= 88,
                "{place}"
            );
        }
        // An entry that is gone takes its names along.
        it.trim(&Policy::default(), 1);
        assert_eq!(it, Addresses::default());
    }

    #[test]
    fn addresses_read_from_a_set_keep_their_order_and_replace_none() {
        let bank = domain("bank.example");
        let mut it = Addresses::default();
        for address in ["203.0.113.1", "203.0.113.2", "203.0.113.3"] {
            seen(&mut it, "bank.example", address, 1);
        }
        let text = |it: &Addresses| it.lines(0).collect::<String>();
        let set = ["203.0.113.9", "203.0.113.3", "203.0.113.1"].map(ip);
        for (most, wanted) in [
            (
                3,
                "bank.example 203.0.113.1=27 203.0.113.2=26 203.0.113.3=27",
            ),
            (
                4,
                "bank.example 203.0.113.9=27 203.0.113.1=27 203.0.113.2=26 203.0.113.3=27",
            ),
        ] {
            it.renew(&bank, &set, most, 2);
            assert_eq!(text(&it), wanted);
        }
        it.renew(&bank, &["127.0.0.1", "169.254.0.1"].map(ip), 9, 2);
        // `dnsmasq` adds an address again.
        seen(&mut it, "bank.example", "203.0.113.1", 2);
        let wanted = "bank.example 203.0.113.9=27 203.0.113.2=26 203.0.113.3=27 203.0.113.1=27";
        assert_eq!(text(&it), wanted);

        // A set with more addresses than the name keeps, in the hour after the newest were heard.
        let of = |net: u32| (0..300).map(move |it| format!("198.{net}.{}.{}", it / 256, it % 256));
        let mut it = Addresses::default();
        for address in of(18) {
            seen(&mut it, "bank.example", &address, 1);
        }
        it.trim(&policy(), 1);
        let kept: Vec<IpAddr> = it.of(&bank).collect();
        let set: Vec<IpAddr> = of(19).chain(of(18)).map(|it| ip(&it)).collect();
        it.renew(&bank, &set, most(&policy()), 2);
        it.trim(&policy(), 2);
        assert_eq!(it.of(&bank).collect::<Vec<_>>(), kept);
    }

    /// A policy with 300 names, each of which may keep six addresses.
    fn crowded() -> Policy {
        let entry = |names: Range<usize>| {
            let names: Vec<String> = names.map(|it| format!("n{it}.example")).collect();
            format!("[[entry]]\nto = {names:?}\nway = \"around\"\n")
        };
        let entries = [entry(0..150), entry(150..300)].concat();
        let text = format!("lan = [\"br-lan\"]\n{entries}");
        of(&text).policy
    }

    /// An address of each given number, all of one name.
    fn of_one_name(name: &str, numbers: Range<usize>) -> Vec<Element> {
        let set = set_of(&domain(name), 4);
        let address = |it| ip(&format!("198.18.{}.{}", it / 256, it % 256));
        numbers.map(|it| (set.clone(), address(it))).collect()
    }

    #[test]
    fn names_that_may_have_had_more_addresses_are_known() {
        for (policy, name, count, is_complete) in [
            (policy(), "bank.example", 0, false),
            (policy(), "bank.example", 1, true),
            (policy(), "bank.example", 255, true),
            (policy(), "bank.example", 256, false),
            (policy(), "bank.example", 300, false),
            (crowded(), "n7.example", 5, true),
            (crowded(), "n7.example", 6, false),
        ] {
            let mut it = Addresses::default();
            it.hear(&policy, &of_one_name(name, 0..count), 1);
            it.trim(&policy, 1);
            assert_eq!(it.is_complete(&policy), is_complete, "{count} of {name}");
        }
    }

    #[test]
    fn a_name_with_its_full_share_does_not_rewrite_the_file_at_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("policy.toml.names");
        let policy = crowded();
        let mut it = Addresses::default();
        for number in 0..9 {
            it.hear(&policy, &of_one_name("n7.example", number..number + 1), 1);
            it.trim(&policy, 1);
            it.keep(&policy, &path, 1).unwrap();
            assert_eq!(Addresses::kept(&path, 1) == it, number < 6, "{number}");
        }
    }

    #[test]
    fn a_file_keeps_them_over_a_boot_and_is_seldom_written() {
        let place = tempfile::tempdir().unwrap();
        let path = file_beside(&place.path().join("policy.toml.leases"));
        assert_eq!(path.file_name().unwrap(), "policy.toml.names");
        let mut it = Addresses::default();
        seen(&mut it, "bank.example", "203.0.113.42", 90);
        it.keep(&policy(), &path, 100).unwrap();
        // The router was off for an unknown time: only its own hours count.
        let again = Addresses::kept(&path, 0);
        assert_eq!(
            again.lines(0).collect::<Vec<_>>(),
            ["bank.example 203.0.113.42=15"]
        );
        assert_eq!(Addresses::kept(&path, 100), it);
        for last in 43..=49 {
            seen(&mut it, "bank.example", &format!("203.0.113.{last}"), 100);
            it.keep(&policy(), &path, 100).unwrap();
            assert_eq!(
                Addresses::kept(&path, 100),
                it,
                "one of the first addresses"
            );
        }
        seen(&mut it, "bank.example", "203.0.113.50", 100);
        it.keep(&policy(), &path, 100).unwrap();
        assert_ne!(Addresses::kept(&path, 100), it, "within the hour");
        let old = fs::File::options().append(true).open(&path).unwrap();
        let earlier = std::time::SystemTime::now() - WRITES;
        old.set_modified(earlier).unwrap();
        it.keep(&policy(), &path, 100).unwrap();
        assert_eq!(Addresses::kept(&path, 100), it);
        // A file that another program has changed cannot keep an address for longer.
        fs::write(
            &path,
            "bank.example 203.0.113.42=99999999999 x=1 1.2.3.4=-1\n#a\n-\n",
        )
        .unwrap();
        let again = Addresses::kept(&path, 3);
        assert_eq!(
            again.lines(3).collect::<Vec<_>>(),
            ["bank.example 203.0.113.42=25"]
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            Addresses::of_lines(text.lines(), |it| it);
        }
    }
}
