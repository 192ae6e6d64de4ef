//! Assigns marks and routing tables to ways.

use config::policy::{Down, Policy, Way};

/// The marks and tables for these settings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ways {
    /// The bits of a mark that the policy uses.
    pub(crate) mask: u32,
    /// The marks that lead into tunnels.
    pub(crate) leads: Vec<Lead>,
    /// The mark of packets that go around tunnels.
    pub(crate) around: u32,
    /// The mark of blocked packets.
    pub(crate) block: u32,
    /// The mark of answers to connections that came in by neither the LAN nor an entry's tunnel; they take the router's
    /// own routes.
    pub(crate) answers: u32,
    /// The routing table for packets around tunnels.
    pub(crate) table: u32,
    /// Whether any entry blocks.
    pub(crate) blocks: bool,
}

/// A way into a tunnel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Lead {
    pub(crate) mark: u32,
    pub(crate) device: String,
    pub(crate) table: u32,
    pub(crate) down: Down,
    /// Whether connections that come in by the tunnel get this mark, so that answers leave by it. Only one of a
    /// tunnel's marks is for answers.
    pub(crate) is_for_answers: bool,
}

impl Ways {
    pub(crate) fn new(policy: &Policy) -> Self {
        let shift = policy.mask.trailing_zeros();
        let last = policy.mask >> shift;
        let has = |wanted: &str, wanted_down| {
            policy.entries.iter().any(|entry| {
                matches!(&entry.way, Way::Through { device, down } if device == wanted && *down == wanted_down)
            })
        };
        let mut leads: Vec<Lead> = Vec::new();
        for (place, device) in (0..).zip(policy.devices()) {
            let mut is_first = true;
            for (number, down) in [(2 * place + 1, Down::Hold), (2 * place + 2, Down::Around)] {
                if has(device, down) {
                    leads.push(Lead {
                        mark: number << shift,
                        device: device.to_owned(),
                        table: policy.table + 1 + place,
                        down,
                        is_for_answers: std::mem::take(&mut is_first),
                    });
                }
            }
        }
        Self {
            mask: policy.mask,
            leads,
            around: (last - 1) << shift,
            block: last << shift,
            answers: (last - 2) << shift,
            table: policy.table,
            blocks: policy.entries.iter().any(|it| it.way == Way::Block),
        }
    }

    /// The mark of a way of an entry.
    pub(crate) fn mark(&self, way: &Way) -> u32 {
        match way {
            Way::Around => self.around,
            Way::Block => self.block,
            Way::Through { device, down } => {
                let mut leads = self.leads.iter();
                let lead = leads.find(|it| it.device == *device && it.down == *down);
                // Every entry has a lead; an entry without one would be blocked.
                lead.map_or(self.block, |it| it.mark)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixture::policy;

    #[test]
    fn each_way_has_a_mark_of_its_own_within_the_mask() {
        let policy = policy();
        let ways = Ways::new(&policy);
        let mut marks: Vec<u32> = ways.leads.iter().map(|it| it.mark).collect();
        marks.extend([ways.around, ways.block, ways.answers]);
        assert!(marks.iter().all(|it| *it != 0 && it & !policy.mask == 0));
        marks.sort_unstable();
        marks.dedup();
        assert_eq!(marks.len(), ways.leads.len() + 3);
        for entry in &policy.entries {
            assert!(marks.contains(&ways.mark(&entry.way)));
        }
        assert!(ways.leads.iter().all(|it| it.table > policy.table));
    }
}
