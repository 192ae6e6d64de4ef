//! Faults of policies whose single entries are valid.

use super::{DOMAINS_MAX, Domain, ENTRIES_MAX, Policy, TUNNELS_MAX, Target, Way};

/// Most domains of entries in one chain of subdomains: each is two sets in one line of `dnsmasq`, which reads up to
/// 1024 bytes of a line.
const DEPTH_MAX: usize = 7;

impl Policy {
    /// Why this policy would decide nothing, or cannot work: a sentence. `None` if it is sound.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if self.lan.is_empty() {
            return Some(
                "no device of the LAN is named: write `lan = [\"br-lan\"]` before the first entry"
                    .to_owned(),
            );
        }
        if self.entries.is_empty() {
            return Some("there is no entry: an entry begins with [[entry]]".to_owned());
        }
        if self.lan.iter().any(|name| name == "lo") {
            return Some("lo is the host itself".to_owned());
        }
        if let Some(name) = self.lan.iter().find(|name| self.is_tunnel(name)) {
            return Some(format!(
                "{name} is a device of the LAN, and `tunnels` or an entry says that it is a tunnel"
            ));
        }
        if self.entries.len() > ENTRIES_MAX {
            return Some(format!("more than {ENTRIES_MAX} entries"));
        }
        // Three mark values mean "around", "blocked" and "answers"; 0 means no mark.
        let room = (self.mask >> self.mask.trailing_zeros()) as usize - 3;
        let ways = self.devices().len() * 2;
        if self.devices().len() > TUNNELS_MAX || ways > room {
            return Some(format!(
                "entries lead through {} tunnels: at most {} with this mask",
                self.devices().len(),
                TUNNELS_MAX.min(room / 2)
            ));
        }
        let domains = self.domains();
        if domains.len() > DOMAINS_MAX {
            return Some(format!("more than {DOMAINS_MAX} domain names"));
        }
        let above = |domain: &Domain| domains.iter().filter(|it| domain.is_within(it)).count();
        if let Some(domain) = domains.iter().find(|it| above(it) > DEPTH_MAX) {
            return Some(format!(
                "{domain} is below more than {} other names of entries",
                DEPTH_MAX - 1
            ));
        }
        self.entries.iter().enumerate().find_map(|(place, entry)| {
            let earlier = &self.entries[..place];
            if earlier.iter().any(|it| it.name == entry.name) {
                return Some(format!("two entries are called {}", entry.name));
            }
            // Blocking everything is the firewall's task.
            let all = |it: &Target| matches!(it, Target::Network(network) if network.is_default());
            let is_all = entry.who.is_empty() && entry.to.iter().any(all);
            (is_all && entry.way == Way::Block)
                .then(|| format!("entry {} would block all that the LAN sends", entry.name))
        })
    }
}
