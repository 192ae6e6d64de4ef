//! Finds other programs that route by marks and rules, and their conflicts with the policy.
//!
//! The other programs are recognised by the rules that they make:
//!
//! | program | marks | priorities | tables |
//! |---|---|---|---|
//! | `wg-quick`, and full tunnels of this program | not 51820 (0xca6c), all bits | before the main table's | 51820 |
//! | mwan3 | 0x3f00 | 1001 to 3254 | 1 to 252 |
//! | pbr | 0x00ff0000 | 30000 downwards | 256 and more |
//! | Tailscale | 0x40000 and 0x80000 of 0xff0000 | 5210 to 5270, beside mwan3 1310 to 1370 | 52 |

use std::collections::BTreeSet;

use config::policy::{Policy, TUNNELS_MAX, Way};
use netio::netlink::{Rule, TABLE_LOCAL, TABLE_MAIN};

use crate::facts::Facts;
use crate::guard::rules as guarded;
use crate::policy::resolved::Resolved;
use crate::policy::routes;
use crate::policy::rules::{AROUND, Place};

const MWAN3_MASK: u32 = 0x3f00;
const PBR_MASK: u32 = 0x00ff_0000;
const TAILSCALE_MARKS: [u32; 2] = [0x4_0000, 0x8_0000];
const TAILSCALE_TABLE: u32 = 52;
/// The table of the kernel's last rule.
const TABLE_DEFAULT: u32 = 253;

/// Another program, known or unknown, that routes by rules.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Other {
    /// Name of the program.
    pub name: &'static str,
    /// Rules of the program that were found, in words.
    pub what: String,
    /// Conflicts, and their remedies.
    pub conflicts: Vec<String>,
    /// Other notes for the user.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    WgQuick,
    Mwan3,
    Pbr,
    Tailscale,
    Unknown,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::WgQuick,
        Self::Mwan3,
        Self::Pbr,
        Self::Tailscale,
        Self::Unknown,
    ];

    fn of(rule: &Rule) -> Option<Self> {
        let priority = rule.priority.unwrap_or(0);
        let is_kernels = match rule.table {
            TABLE_LOCAL => priority == 0,
            TABLE_MAIN => priority == 32766,
            TABLE_DEFAULT => priority == 32767,
            _ => false,
        };
        if is_kernels || crate::is_ours(rule) {
            return None;
        }
        let mask = rule.mask.unwrap_or(u32::MAX);
        Some(match rule.fwmark {
            _ if rule.table == TAILSCALE_TABLE => Self::Tailscale,
            Some(mark)
                if mask == PBR_MASK && TAILSCALE_MARKS.contains(&mark) && priority < 6000 =>
            {
                Self::Tailscale
            }
            Some(_) if rule.invert => Self::WgQuick,
            _ if is_mwan3(rule) => Self::Mwan3,
            Some(_) if mask == PBR_MASK => Self::Pbr,
            // Rules behind the policy's that match no mark cannot conflict. Examples: these programs' rules for local
            // networks, and netifd's own rules.
            None if priority > AROUND => return None,
            _ => Self::Unknown,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::WgQuick => "wg-quick or a full tunnel of Millrace",
            Self::Mwan3 => "mwan3",
            Self::Pbr => "pbr",
            Self::Tailscale => "Tailscale",
            Self::Unknown => "another program",
        }
    }
}

/// Whether a rule is one of mwan3's.
pub(super) fn is_mwan3(rule: &Rule) -> bool {
    rule.fwmark.is_some()
        && rule.mask == Some(MWAN3_MASK)
        && (1001..5000).contains(&rule.priority.unwrap_or(0))
}

/// The other programs, and their conflicts with these settings.
pub(super) fn others(resolved: &Resolved, facts: &Facts) -> Vec<Other> {
    let policy = &resolved.policy;
    let rules = facts.rules();
    let rules: Vec<(Kind, &Rule)> = rules
        .filter_map(|rule| Some((Kind::of(rule)?, rule)))
        .collect();
    let place = Place::among(facts);
    let mut others = Vec::new();
    for kind in Kind::ALL {
        let own = rules.iter().filter(|it| it.0 == kind);
        let own: Vec<&Rule> = own.map(|it| it.1).collect();
        if own.is_empty() {
            continue;
        }
        let has = |kind| rules.iter().any(|(it, _)| *it == kind);
        let mut conflicts: Vec<String> = Vec::new();
        for rule in &own {
            for conflict in overlaps(policy, place, rule) {
                if !conflicts.contains(&conflict) {
                    conflicts.push(conflict);
                }
            }
        }
        others.push(Other {
            name: kind.name(),
            what: what(&own),
            conflicts,
            notes: notes(
                kind,
                resolved,
                facts,
                has(Kind::Tailscale) && has(Kind::Pbr),
            ),
        });
    }
    // An unknown program is listed only if it conflicts.
    others.retain(|it| it.name != Kind::Unknown.name() || !it.conflicts.is_empty());
    others
}

/// Priorities, marks and tables of rules.
fn what(rules: &[&Rule]) -> String {
    let priorities: BTreeSet<u32> = rules.iter().filter_map(|it| it.priority).collect();
    let marks = rules.iter().filter_map(|it| {
        let mask = it.mask.unwrap_or(u32::MAX);
        it.fwmark.map(|mark| format!("{mark:#x}/{mask:#x}"))
    });
    let marks: BTreeSet<String> = marks.collect();
    let tables = rules.iter().map(|it| it.table).filter(|it| *it != 0);
    let tables: BTreeSet<u32> = tables.collect();
    let mut parts = Vec::new();
    if let (Some(first), Some(last)) = (priorities.first(), priorities.last()) {
        parts.push(match first == last {
            true => format!("rule {first}"),
            false => format!("rules {first} to {last}"),
        });
    }
    let list = |values: &[String]| match values.len() {
        0..=4 => values.join(", "),
        count => format!("{}, {} and {} more", values[0], values[1], count - 2),
    };
    if !marks.is_empty() {
        parts.push(format!("marks {}", list(&Vec::from_iter(marks))));
    }
    if !tables.is_empty() {
        let tables: Vec<String> = tables.iter().map(u32::to_string).collect();
        parts.push(format!("tables {}", list(&tables)));
    }
    parts.join("; ")
}

/// Conflicts with a rule.
fn overlaps(policy: &Policy, place: Place, rule: &Rule) -> Vec<String> {
    let mut conflicts = Vec::new();
    let priority = rule.priority.unwrap_or(0);
    if rule.fwmark.is_some() {
        let mask = rule.mask.unwrap_or(u32::MAX);
        // A rule that compares all bits matches only its own mark. The policy's packets do not have it, and meet the
        // policy's rules first.
        let shared = mask & policy.mask;
        if shared != 0 && mask != u32::MAX {
            conflicts.push(format!(
                "its marks share the bits {shared:#x} with `mask`; set `mask` to other bits, such as 0x{:08x}",
                free_mask(mask)
            ));
        } else if mask == u32::MAX && rule.fwmark.unwrap_or(0) & policy.mask != 0 {
            conflicts.push(format!(
                "its mark {:#x} has bits of the policy's mask; set `mask` to other bits",
                rule.fwmark.unwrap_or(0)
            ));
        }
    }
    let tables = policy.table..=policy.table.saturating_add(TUNNELS_MAX as u32);
    if tables.contains(&rule.table) {
        conflicts.push(format!(
            "rule {priority} uses table {}, which is the policy's; set `table` to the first of 33 free ones",
            rule.table
        ));
    }
    if priority < place.first && priority > 0 {
        conflicts.push(format!(
            "rule {priority} ({rule}) comes before the policy's and decides first; packets that it routes to a device \
             other than the entry's are refused"
        ));
    }
    conflicts
}

/// A mask of consecutive bits outside the given mask.
fn free_mask(mask: u32) -> u32 {
    let others = mask | MWAN3_MASK | PBR_MASK;
    let masks = [
        0xff00_0000,
        0xf000_0000,
        0x0f00_0000,
        0x0000_f000,
        0x0000_00f0_u32,
    ];
    masks
        .into_iter()
        .find(|it| it & others == 0)
        .unwrap_or(0xf000_0000)
}

fn notes(kind: Kind, resolved: &Resolved, facts: &Facts, is_crowded: bool) -> Vec<String> {
    let policy = &resolved.policy;
    let mut notes = Vec::new();
    let around = policy.entries.iter().any(|it| it.way == Way::Around);
    match kind {
        Kind::Mwan3 if around => notes.push(
            "packets that entries route around tunnels use the uplink that mwan3 chooses"
                .to_owned(),
        ),
        Kind::Tailscale => {
            let wide = policy
                .entries
                .iter()
                .find(|it| it.to.is_empty() && matches!(it.way, Way::Through { .. }));
            if let Some(entry) = wide {
                notes.push(format!(
                    "entry {} also matches Tailscale's networks; to exclude them, put an entry before it: `to = \
                     [\"100.64.0.0/10\", \"fd7a:115c:a1e0::/48\"]`, `way = \"around\"`",
                    entry.name
                ));
            }
            if is_crowded {
                notes.push(
                    "Tailscale's marks lie within pbr's 0x00ff0000; configure different marks for Tailscale or pbr"
                        .to_owned(),
                );
            }
        }
        Kind::WgQuick if around && !routes::is_around(resolved, facts) => {
            notes.push("packets that entries route around tunnels are left to mwan3".to_owned());
        }
        _ => {}
    }
    notes
}

/// The policy's LAN devices that the guard holds: their packets never go around a tunnel.
pub(super) fn guarded_devices(policy: &Policy, facts: &Facts) -> Vec<String> {
    let held: Vec<String> = facts
        .rules()
        .filter(|it| it.priority == Some(guarded::NOWHERE) && it.priority < Some(AROUND))
        .filter_map(|it| it.iif.map(|name| name.to_string()))
        .collect();
    let lan = policy.lan.iter();
    lan.filter(|name| held.contains(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{facts, of, resolved};
    use netio::netlink::{DeviceName, Family};

    fn rule(priority: u32, mark: Option<(u32, u32)>, table: u32) -> Rule {
        Rule {
            priority: Some(priority),
            fwmark: mark.map(|it| it.0),
            mask: mark.map(|it| it.1).filter(|it| *it != u32::MAX),
            ..Rule::new(Family::V4, table)
        }
    }

    fn with(rules: &[Rule]) -> Facts {
        let mut facts = facts();
        facts.rules[0].as_mut().unwrap().extend(rules);
        facts
    }

    /// Rules as wg-quick, mwan3, pbr and Tailscale make them.
    fn all() -> Vec<Rule> {
        vec![
            Rule {
                priority: Some(32765),
                ..Rule::not_marked(Family::V4, 51820, 51820)
            },
            Rule {
                priority: Some(32764),
                ..Rule::main_without_default(Family::V4)
            },
            Rule {
                iif: DeviceName::new("wan"),
                ..rule(1001, None, 1)
            },
            rule(2001, Some((0x100, 0x3f00)), 1),
            rule(2061, Some((0x3d00, 0x3f00)), 254),
            rule(30000, Some((0x1_0000, PBR_MASK)), 256),
            rule(29999, Some((0x2_0000, PBR_MASK)), 257),
            rule(5210, Some((0x8_0000, PBR_MASK)), TABLE_MAIN),
            rule(5230, Some((0x8_0000, PBR_MASK)), 253),
            rule(5270, None, 52),
        ]
    }

    #[test]
    fn the_four_are_known_and_nothing_of_them_overlaps() {
        let found = others(&resolved(), &with(&all()));
        let names: Vec<&str> = found.iter().map(|it| it.name).collect();
        assert_eq!(
            names,
            [
                "wg-quick or a full tunnel of Millrace",
                "mwan3",
                "pbr",
                "Tailscale"
            ]
        );
        assert!(found.iter().all(|it| it.conflicts.is_empty()), "{found:?}");
        assert_eq!(
            found[1].what,
            "rules 2001 to 2061; marks 0x100/0x3f00, 0x3d00/0x3f00; tables 1, 254"
        );
        assert!(found[3].notes[0].contains("entry television also matches"));
        assert!(found[3].notes[1].contains("within pbr's"));
        assert!(others(&resolved(), &facts()).is_empty());
    }

    #[test]
    fn what_overlaps_is_told_with_what_to_do() {
        let conflicts = |text: &str, rules: &[Rule]| {
            let resolved = of(&format!("{text}\n{}", crate::fixture::TEXT));
            let found = others(&resolved, &with(rules));
            found
                .into_iter()
                .flat_map(|it| it.conflicts)
                .collect::<Vec<_>>()
        };
        let told = conflicts("mask = 0x00ff0000", &all());
        assert!(
            told[0].contains("share the bits 0xff0000") && told[0].contains("0xff000000"),
            "{told:?}"
        );
        let told = conflicts("mask = 0xff00", &all());
        assert!(
            told.iter().any(|it| it.contains("0xca6c has bits")),
            "{told:?}"
        );
        assert!(
            told.iter().any(|it| it.contains("share the bits 0x3f00")),
            "{told:?}"
        );
        let told = conflicts("table = 256", &all());
        assert!(
            told.iter().any(|it| it.contains("uses table 257")),
            "{told:?}"
        );
        let told = conflicts("", &[rule(950, None, 99), rule(100, None, 98)]);
        assert!(told.iter().any(|it| it.contains("rule 100")), "{told:?}");
    }
}
