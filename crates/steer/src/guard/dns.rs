//! Settings for the router's own `dnsmasq`: it queries name servers behind the tunnel, through the tunnel's device
//! only. They are set with the guard and stay while no tunnel is up; queries then fail instead of leaking.
//!
//! `dnsmasq` remembers the index of a device that exists when it starts ([`host::dnsmasq`]). So it is restarted for
//! each device that appears, but not for one that disappears.

use config::guard::Guard;
use host::NameServers;
use host::dnsmasq::{self, Restarts};

use crate::SteerError;
use crate::facts::{FAMILIES, Facts};
use crate::guard::plan::{tunnels, way};
use crate::plan::Plan;
use crate::system::System;

/// The guard's file, among those that `dnsmasq` reads. No tunnel's file has this name.
pub(crate) const FILE: &str = "millrace.guard.conf";

/// The beginning of the file's first line; the device's name and index follow, 0 for a missing device.
const HEAD: &str = "# millrace guard: ";

/// The new text of the guard's file, empty to remove it. `None` if nothing is to be changed.
pub(crate) fn change(guard: &Guard, facts: &Facts) -> Option<String> {
    let file = facts.dnsmasq.as_ref()?;
    if guard.dns.is_empty() {
        return file.as_ref().map(|_| String::new());
    }
    let (device, index) = device(guard, facts);
    let wanted = text(guard, device, index);
    let is_there = file.as_ref().is_some_and(|file| {
        let gone = || {
            let (device, index) = head(file)?;
            Some(text(guard, device, index) == *file)
        };
        *file == wanted || (index == 0 && gone() == Some(true))
    });
    (!is_there).then_some(wanted)
}

/// Applies the plan's change to the guard's file.
pub(super) fn tell(
    plan: &Plan,
    system: &System,
    restarts: &mut Restarts,
) -> Result<(), SteerError> {
    match (&plan.dns, &system.dnsmasq) {
        (Some(text), Some(it)) if text.is_empty() => it.remove(FILE, restarts)?,
        (Some(text), Some(it)) => it.set(FILE, text, restarts)?,
        _ => {}
    }
    Ok(())
}

fn text(guard: &Guard, device: &str, index: u32) -> String {
    let wanted = NameServers {
        servers: guard.dns.clone(),
        search: Vec::new(),
        only: guard.dns_names.clone(),
    };
    format!("{HEAD}{device} {index}\n{}", dnsmasq::text(&wanted, device))
}

fn head(file: &str) -> Option<(&str, u32)> {
    let line = file.lines().next()?.strip_prefix(HEAD)?;
    let (device, index) = line.split_once(' ')?;
    Some((device, index.parse().ok()?))
}

/// The device that queries leave through, and its index: the one in use, or the preferred tunnel. Without any, the
/// configured name and 0; of a wildcard name, the fixed part, which is a valid tunnel name too.
fn device<'a>(guard: &'a Guard, facts: &'a Facts) -> (&'a str, u32) {
    // The file's own part is always routed, even where each of its devices is in a group.
    let part = guard.own();
    let through = FAMILIES
        .into_iter()
        .find_map(|family| way(&part, facts, family).index());
    let link = match through {
        Some(index) => facts.link(index),
        None => tunnels(&part, facts).into_iter().next(),
    };
    match link {
        Some(link) => (&link.name, link.index),
        None => (guard.tunnels.first().map_or("", |it| it.start()), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{facts, guard, ip, link};

    fn settings() -> Guard {
        let mut guard = guard();
        guard.dns = vec![ip("10.8.0.1")];
        guard.dns_names = vec!["corp.example".to_owned()];
        guard
    }

    fn set(guard: &Guard, facts: &Facts) -> String {
        change(guard, facts).filter(|it| !it.is_empty()).unwrap()
    }

    #[test]
    fn debian_takes_the_file_away_at_boot() {
        let text =
            include_str!("../../../../packaging/debian/millrace/usr/lib/tmpfiles.d/millrace.conf");
        assert!(text.contains(&format!("\nr! /etc/dnsmasq.d/{FILE}\n")));
    }

    #[test]
    fn names_are_bound_to_a_tunnel_that_is_not_there() {
        let mut facts = facts();
        assert_eq!(change(&settings(), &facts), None, "there is no dnsmasq");
        facts.dnsmasq = Some(None);
        assert_eq!(change(&guard(), &facts), None, "nothing is wanted of it");
        let text = set(&settings(), &facts);
        let wanted = "server=/corp.example/10.8.0.1@mr-\n";
        assert!(text.starts_with("# millrace guard: mr- 0\n"), "{text}");
        assert!(text.contains(wanted), "{text}");
        facts.dnsmasq = Some(Some(text));
        assert_eq!(change(&settings(), &facts), None);
        assert_eq!(change(&guard(), &facts), Some(String::new()));
    }

    #[test]
    fn each_device_that_comes_is_told_and_one_that_goes_is_not() {
        let mut facts = facts();
        facts.dnsmasq = Some(None);
        for index in [7, 8] {
            facts.links.push(link(index, "mr-office", true));
            let text = set(&settings(), &facts);
            assert!(text.contains("/10.8.0.1@mr-office\n"), "{text}");
            assert!(text.starts_with(&format!("{HEAD}mr-office {index}\n")));
            facts.dnsmasq = Some(Some(text));
            assert_eq!(change(&settings(), &facts), None);
            facts.links.pop();
            assert_eq!(change(&settings(), &facts), None);
        }
        // Changed settings are written at once, even without a tunnel.
        let mut other = settings();
        other.dns_names.clear();
        assert!(set(&other, &facts).contains("no-resolv\nserver=10.8.0.1@mr-\n"));
    }

    #[test]
    fn what_has_not_been_read_is_told_again() {
        let mut facts = facts();
        facts.dnsmasq = Some(None);
        let text = set(&settings(), &facts);
        facts.dnsmasq = Some(Some(String::new()));
        assert_eq!(set(&settings(), &facts), text);
    }
}
