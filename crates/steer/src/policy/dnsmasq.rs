//! Settings for `dnsmasq`, in a file of its own: they have it put the addresses of names into `nft` sets.
//!
//! Of several lines that match a name, `dnsmasq` takes only the closest. So each name has one line, and a name below
//! another one lists the sets of both. A faulty line would keep `dnsmasq` from starting, and DHCP with it, so `dnsmasq`
//! tests the lines first.

use std::io;

use config::policy::Policy;
use host::dnsmasq::{Restarts, knows_sets};
use host::{DnsError, Dnsmasq};

use crate::SteerError;
use crate::policy::table::{TABLE, set_of};

/// The file's name. No tunnel's file has it: those begin with `millrace-`.
const FILE: &str = "millrace.policy.conf";

/// The file's first line.
const FIRST: &str = "# Made by `millrace policy` from its settings; changes here are lost.\n";

/// The file's lines for the entries' names; `None` if the entries have no names.
pub(super) fn lines(policy: &Policy) -> Option<String> {
    let domains = policy.domains();
    if domains.is_empty() {
        return None;
    }
    let mut text = FIRST.to_owned();
    for domain in &domains {
        let above = domains.iter().filter(|it| domain.is_within(it));
        let sets: Vec<String> = above
            .flat_map(|it| {
                [4, 6].map(|family| format!("{family}#inet#{TABLE}#{}", set_of(it, family)))
            })
            .collect();
        text += &format!("nftset=/{domain}/{}\n", sets.join(","));
    }
    Some(text)
}

/// Has `dnsmasq` put the addresses of the entries' names, and of no others, into sets. `again` when the sets are new:
/// `dnsmasq` does not add cached addresses to them.
pub(super) fn set(policy: &Policy, again: bool, restarts: &mut Restarts) -> Result<(), SteerError> {
    let Some(text) = lines(policy) else {
        return unset(policy, restarts);
    };
    let dnsmasq = find(policy);
    if let Some(it) = dnsmasq
        .as_ref()
        .filter(|it| it.read(FILE).as_ref() == Some(&text))
    {
        if again {
            it.again(FILE, restarts)?;
        }
        return Ok(());
    }
    match knows_sets() {
        Ok(true) => {}
        Ok(false) => return Err(SteerError::NoNftset),
        Err(DnsError::Run { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            return Err(SteerError::NoDnsmasq);
        }
        Err(error) => return Err(error.into()),
    }
    let dnsmasq = dnsmasq.ok_or(SteerError::NoDirectory)?;
    Ok(dnsmasq.set(FILE, &text, restarts)?)
}

/// Has `dnsmasq` fill no sets.
pub(super) fn unset(policy: &Policy, restarts: &mut Restarts) -> Result<(), SteerError> {
    match find(policy) {
        Some(dnsmasq) => Ok(dnsmasq.remove(FILE, restarts)?),
        None => Ok(()),
    }
}

/// Whether the file is up to date, and `dnsmasq` has read it.
pub(super) fn is_set(policy: &Policy) -> bool {
    find(policy).and_then(|it| it.read(FILE)) == lines(policy)
}

/// Finds the `dnsmasq` that the settings name, or else the host's.
fn find(policy: &Policy) -> Option<Dnsmasq> {
    let named = policy.dnsmasq.clone().map(Dnsmasq::at);
    let found = named.or_else(crate::system::dnsmasq)?;
    Some(found.restarted_by(policy.restart.clone()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fixture::policy;

    fn of(text: &str) -> Policy {
        Policy::from_toml(text, Path::new("policy.toml")).unwrap()
    }

    #[test]
    fn no_tunnel_has_the_policys_file() {
        for device in ["policy", "guard", ".policy"] {
            assert_ne!(host::dnsmasq::name_of(device), FILE);
        }
    }

    #[test]
    fn each_name_has_one_line_with_the_sets_of_those_above_it() {
        let text = lines(&policy()).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let sets = |line: &str| line.matches("#inet#millrace_policy#n").count();
        assert!(lines[0].starts_with("nftset=/bank.example/4#inet#millrace_policy#n"));
        assert_eq!(
            lines.iter().map(|it| sets(it)).collect::<Vec<_>>(),
            [2, 2, 4]
        );
        assert!(lines[2].starts_with("nftset=/www.example.org/"));
        assert_eq!(super::lines(&of("")), None);
    }

    #[test]
    fn the_longest_line_is_one_that_dnsmasq_reads() {
        let label = "a".repeat(60);
        let names: Vec<String> = (1..=8)
            .map(|count| match count {
                // Each name below the one before, the last with the maximum length.
                8 => format!("{0}.{0}.{0}.{1}.b.b.b.b.b.b.org", label, "c".repeat(50)),
                _ => format!("{}org", "b.".repeat(count - 1)),
            })
            .collect();
        let text = format!(
            "lan = [\"a\"]\n[[entry]]\nto = {:?}\nway = \"around\"\n",
            &names[1..]
        );
        let policy = of(&text);
        assert_eq!(policy.fault(), None);
        let longest = lines(&policy).unwrap().lines().map(str::len).max().unwrap();
        assert!((800..1024).contains(&longest), "{longest}");
        let text = format!("lan = [\"a\"]\n[[entry]]\nto = {names:?}\nway = \"around\"\n");
        assert!(of(&text).fault().unwrap().contains("other domains"));
    }
}
