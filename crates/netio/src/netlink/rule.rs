//! Rules: they decide which routing table is used for which packets.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use super::request::Body;
use super::{
    Family, Netlink, NetlinkError, TABLE_MAIN, attributes, decode_ip, decode_str, decode_u32,
};

/// Bytes of `struct fib_rule_hdr`.
const HEADER_SIZE: usize = 12;

// Message types of linux/rtnetlink.h.
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;

// Actions and a flag of linux/fib_rules.h.
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_GOTO: u8 = 2;
const FR_ACT_BLACKHOLE: u8 = 6;
const FR_ACT_UNREACHABLE: u8 = 7;
const FIB_RULE_INVERT: u32 = 2;

// Attribute numbers of linux/fib_rules.h.
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
// These do not narrow a rule down: padding, and the rule's origin.
const FRA_PAD: u16 = 18;
const FRA_PROTOCOL: u16 = 21;

/// Name of an interface, which may not exist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceName {
    /// The name, padded with zeroes.
    bytes: [u8; libc::IFNAMSIZ],
}

impl DeviceName {
    /// Takes a name of 1 to 15 bytes; `None` for other lengths.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; libc::IFNAMSIZ];
        if name.is_empty() || name.len() >= bytes.len() || name.contains('\0') {
            return None;
        }
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Self { bytes })
    }

    fn text(&self) -> String {
        decode_str(&self.bytes)
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}

/// Room for attributes in [`Further`], in bytes. All that kernels know take 96, and no rule has all.
const FURTHER_MAX: usize = 96;

/// Conditions of a rule that this program never uses: type of service, outgoing interface, protocol, ports, users. A
/// rule with any of them differs from one without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Further {
    tos: u8,
    /// Attributes in the kernel's format, each with its header, so that a request to delete matches exactly this rule.
    bytes: [u8; FURTHER_MAX],
    len: usize,
    /// The rule has more attributes than fit.
    more: bool,
}

impl Default for Further {
    fn default() -> Self {
        Self {
            tos: 0,
            bytes: [0; FURTHER_MAX],
            len: 0,
            more: false,
        }
    }
}

impl Further {
    /// Whether the rule has no further conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Keeps an attribute: length and kind, two bytes each, then the value.
    fn push(&mut self, kind: u16, value: &[u8]) {
        let end = self.len + 4 + value.len();
        let (Ok(length), true) = (u16::try_from(value.len()), end <= FURTHER_MAX) else {
            self.more = true;
            return;
        };
        self.bytes[self.len..self.len + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes[self.len + 2..self.len + 4].copy_from_slice(&kind.to_ne_bytes());
        self.bytes[self.len + 4..end].copy_from_slice(value);
        self.len = end;
    }

    /// The attributes that were kept.
    fn attributes(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let mut rest = &self.bytes[..self.len];
        std::iter::from_fn(move || {
            let (&[a, b, c, d], value) = rest.split_first_chunk::<4>()?;
            let (value, behind) =
                value.split_at_checked(usize::from(u16::from_ne_bytes([a, b])))?;
            rest = behind;
            Some((u16::from_ne_bytes([c, d]), value))
        })
    }
}

impl fmt::Debug for Further {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tos {}, ", self.tos)?;
        f.debug_map().entries(self.attributes()).finish()
    }
}

/// The action of a rule on matching packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuleAction {
    /// The rule's table decides; if it has no route for a packet, the next rule does.
    #[default]
    Lookup,
    /// The kernel answers with "unreachable", and asks no further rule.
    Unreachable,
    /// The kernel drops the packets without an answer, and asks no further rule.
    Blackhole,
    /// Evaluation continues at the rule with this priority. If no rule has exactly this priority, the next rule
    /// decides.
    Goto(u32),
}

/// A rule to add, to delete, or as read from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Family of the packets that the rule matches.
    pub family: Family,
    /// Packets with this firewall mark; `None` is any.
    pub fwmark: Option<u32>,
    /// The bits of the mark that count; `None` is all.
    pub mask: Option<u32>,
    /// Inverts the rule: it applies to packets that do *not* match the conditions.
    pub invert: bool,
    /// Packets from this network: address and length of the prefix.
    pub from: Option<(IpAddr, u8)>,
    /// Packets to this network.
    pub to: Option<(IpAddr, u8)>,
    /// Packets that came in on this interface; the host's own packets never do.
    pub iif: Option<DeviceName>,
    /// Action on a packet that matches.
    pub action: RuleAction,
    /// The routing table of [`RuleAction::Lookup`], 0 for other actions.
    pub table: u32,
    /// The rule ignores routes with a prefix of this length or less, so 0 ignores default routes. Kernels since 3.12.
    pub suppress_prefixlength: Option<u32>,
    /// The kernel asks rules in rising order; `None` makes it put this rule before the others.
    pub priority: Option<u32>,
    /// Further conditions of a rule that was read.
    pub further: Further,
}

impl Rule {
    /// Whether this rule makes the main table decide before `next` where it has longer prefixes: the two rules of a
    /// tunnel that takes all packets.
    /// takes all packets.
    #[must_use]
    pub fn goes_before(&self, next: &Self) -> bool {
        let follows = self.priority.zip(next.priority);
        self.family == next.family
            && self.table == TABLE_MAIN
            && self.suppress_prefixlength.is_some()
            && follows.is_some_and(|(own, next)| own + 1 == next)
    }

    /// A rule for all packets of a family.
    pub fn new(family: Family, table: u32) -> Self {
        Self {
            family,
            fwmark: None,
            mask: None,
            invert: false,
            from: None,
            to: None,
            iif: None,
            action: RuleAction::Lookup,
            table,
            suppress_prefixlength: None,
            priority: None,
            further: Further::default(),
        }
    }

    /// The rule of wg-quick's default routes: "Packets that the tunnel did not send itself use `table`".
    pub fn not_marked(family: Family, fwmark: u32, table: u32) -> Self {
        Self {
            fwmark: Some(fwmark),
            invert: true,
            ..Self::new(family, table)
        }
    }

    /// The rule "Use the main table, but not its default route", which keeps local networks reachable.
    pub fn main_without_default(family: Family) -> Self {
        Self {
            suppress_prefixlength: Some(0),
            ..Self::new(family, TABLE_MAIN)
        }
    }

    /// The rule "Packets that came in on `iif` are unreachable".
    pub fn unreachable(family: Family, iif: DeviceName) -> Self {
        Self {
            iif: Some(iif),
            action: RuleAction::Unreachable,
            ..Self::new(family, 0)
        }
    }

    fn message(&self) -> Body {
        // An attribute holds a table number that is too large for the header's byte.
        let table = u8::try_from(self.table);
        let mut header = [0; HEADER_SIZE];
        header[0] = self.family.wire();
        header[1] = self.to.map_or(0, |(_, prefix)| prefix);
        header[2] = self.from.map_or(0, |(_, prefix)| prefix);
        header[3] = self.further.tos;
        header[4] = table.unwrap_or(0);
        header[7] = match self.action {
            RuleAction::Lookup => FR_ACT_TO_TBL,
            RuleAction::Unreachable => FR_ACT_UNREACHABLE,
            RuleAction::Blackhole => FR_ACT_BLACKHOLE,
            RuleAction::Goto(_) => FR_ACT_GOTO,
        };
        let flags = if self.invert { FIB_RULE_INVERT } else { 0 };
        header[8..].copy_from_slice(&flags.to_ne_bytes());
        let mut body = Body::new(&header);
        body.push_number(FRA_TABLE, table.err().map(|_| self.table));
        body.push_ip(FRA_SRC, self.from.map(|(ip, _)| ip));
        body.push_ip(FRA_DST, self.to.map(|(ip, _)| ip));
        if let Some(iif) = self.iif {
            body.push_text(FRA_IIFNAME, &iif.text());
        }
        if let RuleAction::Goto(priority) = self.action {
            body.push_number(FRA_GOTO, Some(priority));
        }
        body.push_number(FRA_FWMARK, self.fwmark);
        body.push_number(FRA_FWMASK, self.mask);
        body.push_number(FRA_PRIORITY, self.priority);
        body.push_number(FRA_SUPPRESS_PREFIXLEN, self.suppress_prefixlength);
        for (kind, value) in self.further.attributes() {
            body.push(kind, value);
        }
        body
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.invert { "not" } else { "for" })?;
        match self.from {
            Some((ip, prefix)) => write!(f, " from {ip}/{prefix}")?,
            None => f.write_str(" from all")?,
        }
        if let Some((ip, prefix)) = self.to {
            write!(f, " to {ip}/{prefix}")?;
        }
        if let Some(iif) = self.iif {
            write!(f, " by {iif}")?;
        }
        if let Some(fwmark) = self.fwmark {
            write!(f, " with mark {fwmark:#x}")?;
        }
        if !self.further.is_empty() {
            f.write_str(" and more")?;
        }
        match self.action {
            RuleAction::Lookup => write!(f, " to table {}", self.table),
            RuleAction::Unreachable => f.write_str(" unreachable"),
            RuleAction::Blackhole => f.write_str(" blackhole"),
            RuleAction::Goto(priority) => write!(f, " goto {priority}"),
        }
    }
}

impl Netlink {
    /// Adds a rule.
    ///
    /// # Errors
    /// [`NetlinkError::is_exists`] if an equal rule exists (kernels before 4.11 add it twice),
    /// [`NetlinkError::is_unsupported`] if the kernel has no policy routing.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<(), NetlinkError> {
        let add = |this: &mut Self, flags| {
            let message = rule.message();
            this.change(
                RTM_NEWRULE,
                &message,
                flags,
                "add rule",
                format_args!("{rule}"),
            )
        };
        match add(self, NLM_F_CREATE | NLM_F_EXCL) {
            // The kernel compares only the conditions that the new rule has: "from A" is for it a copy of "from A to B".
            Err(error)
                if error.is_exists()
                    && rule.priority.is_some()
                    && !self.rules(rule.family)?.contains(rule) =>
            {
                add(self, NLM_F_CREATE)
            }
            result => result,
        }
    }

    /// Deletes the first rule that matches every value given in `rule`.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if there is none.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<(), NetlinkError> {
        self.change(
            RTM_DELRULE,
            &rule.message(),
            0,
            "delete rule",
            format_args!("{rule}"),
        )
    }

    /// The rules of a family whose action is a [`RuleAction`], in the order in which the kernel asks them.
    ///
    /// # Errors
    /// [`NetlinkError::is_unsupported`] if the kernel has no policy routing.
    pub fn rules(&mut self, family: Family) -> Result<Vec<Rule>, NetlinkError> {
        let mut header = [0; HEADER_SIZE];
        header[0] = family.wire();
        self.dump(RTM_GETRULE, &Body::new(&header), "list the rules", |body| {
            // A kernel without rules for this family returns those of all families.
            parse(body).filter(|rule| rule.family == family)
        })
    }
}

fn parse(body: &[u8]) -> Option<Rule> {
    let &[family, dst_len, src_len, tos, table, _, _, action, ..] = body else {
        return None;
    };
    let action = match action {
        FR_ACT_TO_TBL => RuleAction::Lookup,
        FR_ACT_UNREACHABLE => RuleAction::Unreachable,
        FR_ACT_BLACKHOLE => RuleAction::Blackhole,
        FR_ACT_GOTO => RuleAction::Goto(0),
        _ => return None,
    };
    let mut rule = Rule::new(Family::from_wire(family)?, u32::from(table));
    rule.action = action;
    rule.further.tos = tos;
    let flags = decode_u32(body.get(8..)?)?;
    rule.invert = flags & FIB_RULE_INVERT != 0;
    // The first rule, with priority 0, comes without this attribute.
    rule.priority = Some(0);
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            FRA_DST => rule.to = decode_ip(value).map(|ip| (ip, dst_len)),
            FRA_SRC => rule.from = decode_ip(value).map(|ip| (ip, src_len)),
            FRA_IIFNAME => rule.iif = DeviceName::new(&decode_str(value)),
            FRA_GOTO => rule.action = RuleAction::Goto(decode_u32(value)?),
            FRA_PRIORITY => rule.priority = decode_u32(value),
            FRA_FWMARK => rule.fwmark = decode_u32(value),
            FRA_FWMASK => rule.mask = decode_u32(value),
            FRA_TABLE => rule.table = decode_u32(value)?,
            FRA_SUPPRESS_PREFIXLEN => {
                // The kernel uses all ones for "off".
                rule.suppress_prefixlength = decode_u32(value).filter(|&v| v != u32::MAX);
            }
            FRA_PAD | FRA_PROTOCOL => {}
            // Every other attribute, also of a later kernel, makes this a different rule.
            _ => rule.further.push(kind, value),
        }
    }
    Some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_namespace_has_the_three_rules() {
        let mut netlink = Netlink::open().unwrap();
        let rules = netlink.rules(Family::V4).unwrap();
        assert!(rules.iter().any(|rule| rule.table == TABLE_MAIN));
    }

    #[test]
    fn what_is_written_is_read() {
        let br_lan = DeviceName::new("br-lan").unwrap();
        let network = (IpAddr::from([192, 168, 1, 0]), 24);
        let rules = [
            Rule {
                to: Some(network),
                iif: Some(br_lan),
                priority: Some(900),
                ..Rule::new(Family::V4, TABLE_MAIN)
            },
            Rule {
                priority: Some(902),
                ..Rule::unreachable(Family::V6, br_lan)
            },
            Rule {
                priority: Some(901),
                iif: Some(br_lan),
                ..Rule::new(Family::V6, 51_820)
            },
            Rule {
                priority: Some(903),
                iif: DeviceName::new("lo"),
                action: RuleAction::Goto(980),
                ..Rule::new(Family::V4, 0)
            },
            Rule {
                priority: Some(904),
                from: Some(network),
                action: RuleAction::Blackhole,
                ..Rule::new(Family::V4, 0)
            },
        ];
        for rule in rules {
            let request = rule.message().request(RTM_NEWRULE, 0, 1);
            assert_eq!(parse(&request[16..]), Some(rule));
        }
    }

    #[test]
    fn a_rule_that_asks_for_more_is_another_one() {
        let plain = Rule {
            priority: Some(902),
            ..Rule::unreachable(Family::V4, DeviceName::new("br-lan").unwrap())
        };
        let read = |body: &Body| parse(&body.request(RTM_NEWRULE, 0, 1)[16..]).unwrap();
        // The rule's origin does not count.
        let mut made = plain.message();
        made.push(FRA_PROTOCOL, &[3]);
        assert_eq!(read(&made), plain);
        // oif, tun_id, l3mdev, uidrange, ip_proto, sport, dport, and one that does not exist yet.
        for (kind, value) in [
            (17, &b"wan\0"[..]),
            (12, &[0, 0, 0, 0, 0, 0, 0, 7]),
            (19, &[1]),
            (20, &[0; 8]),
            (22, &[6]),
            (23, &[80, 0, 80, 0]),
            (24, &[80, 0, 80, 0]),
            (99, &[1; 200]),
        ] {
            let mut body = plain.message();
            body.push(kind, value);
            let rule = read(&body);
            assert_ne!(rule, plain, "{kind}");
            assert!(!rule.further.is_empty() && rule.to_string().contains("and more"));
            // A request to delete repeats all attributes, so that it matches this rule and not the plain one.
            if !rule.further.more {
                assert_eq!(read(&rule.message()), rule);
            }
        }
        let mut tos = plain;
        tos.further.tos = 16;
        assert_eq!(read(&tos.message()), tos);
    }

    #[test]
    fn names_of_devices_have_1_to_15_bytes() {
        for name in ["", "sixteen-letters-", "a\0b"] {
            assert_eq!(DeviceName::new(name), None);
        }
        let name = DeviceName::new("fifteen-letters").unwrap();
        assert_eq!(name.to_string(), "fifteen-letters");
    }

    #[test]
    fn short_bodies_are_refused() {
        for length in 0..12 {
            assert!(parse(&vec![2; length]).is_none());
        }
    }
}
