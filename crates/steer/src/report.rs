//! Parts of reports that the guard and the policy share.

use std::fs;

use crate::facts::Facts;

/// The state of a part.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Part {
    /// The part is complete.
    Whole,
    /// The part is missing, wholly or partly.
    Missing,
    /// Nothing needs this part.
    NotNeeded,
    /// The part cannot be read, for this reason.
    Unseen(String),
}

impl Part {
    /// The state in words.
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::Whole => "in place",
            Self::Missing => "missing",
            Self::NotNeeded => "not needed",
            Self::Unseen(why) => why,
        }
    }

    /// Whether nothing is missing.
    pub(crate) fn is_well(&self) -> bool {
        matches!(self, Self::Whole | Self::NotNeeded)
    }
}

/// The remedy where no process watches the guard or the policy.
#[must_use]
pub fn to_watch(command: &str) -> String {
    format!(
        "start the service (OpenWrt: `service millrace-{command} start`, Debian: `systemctl enable --now \
         millrace-{command}`) or `millrace {command} watch`"
    )
}

/// Notes on a difference between `asked`, what the user switched on, and `on`, what is in force. `None` if both are
/// off.
pub(crate) fn asked_notes(command: &str, on: bool, asked: bool) -> Option<Vec<String>> {
    Some(match (on, asked) {
        (false, false) => return None,
        (false, true) => vec![format!(
            "it is switched on, but its rules are missing: packets leave unencrypted; run `millrace {command} refresh`"
        )],
        (true, false) => vec![format!(
            "its rules are not restored if another program removes them; run `millrace {command} on`"
        )],
        (true, true) => Vec::new(),
    })
}

/// A sentence for each device of the LAN through which no packet can come in now. Packets of a bridge's port come in by
/// the bridge, not by the port.
pub(crate) fn idle<T: AsRef<str>>(lan: &[T], facts: &Facts) -> Vec<String> {
    let of = |name: &str| {
        let Some(link) = facts.named(name) else {
            return Some(format!(
                "there is no device {name}: packets that come in through another device are not blocked"
            ));
        };
        let master = facts.link(link.master?);
        let master = master.map_or("another device", |it| it.name.as_str());
        Some(format!(
            "{name} is a port of {master}, through which its packets come in: they are not blocked; name \
             {master} instead"
        ))
    };
    lan.iter().filter_map(|it| of(it.as_ref())).collect()
}

/// A sentence for each of these tunnels whose answers the kernel's strict `rp_filter` drops, as the main table has no
/// route into it. The larger of two values counts; 2 is the loose mode.
pub(crate) fn strict<'d>(devices: impl IntoIterator<Item = &'d str>) -> Vec<String> {
    let value = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        text.ok().and_then(|text| text.trim().parse::<u8>().ok())
    };
    let is_strict = |device: &&str| {
        let own = value(device);
        own.is_some() && value("all").max(own) == Some(1)
    };
    let words = |device| {
        format!(
            "answers through {device} are dropped, as net.ipv4.conf.{device}.rp_filter (or all) is 1; set it to 2"
        )
    };
    devices.into_iter().filter(is_strict).map(words).collect()
}

/// Lists the first words, and the number of further ones.
pub(crate) fn few(words: &[String]) -> String {
    match words.len() {
        0..=4 => words.join(", "),
        count => format!("{} and {} more", words[..3].join(", "), count - 3),
    }
}
