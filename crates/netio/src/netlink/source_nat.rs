//! Rules of nftables that give packets another source address when they leave: `masquerade`, `snat`, and those that
//! `iptables-nft` makes.
//!
//! A rule's conditions are worked out as far as they depend on devices, families and the source address. Every other
//! condition counts as met. A chain without a hook is reached only if a jump to it may apply.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::nftables::{
    HEADER_SIZE, HOOK_POSTROUTING, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETCHAIN, NFT_MSG_GETRULE,
    NFTA_CHAIN_NAME, NFTA_EXPR_DATA, NFTA_EXPR_NAME, NFTA_LIST_ELEM, NFTA_RULE_CHAIN,
    NFTA_RULE_EXPRESSIONS, NFTA_TABLE, parse_hook,
};
use super::request::Body;
use super::{Netfilter, NetlinkError, attributes, decode_str};

/// Families of tables that see forwarded IPv4 packets: `inet` and `ip`.
const FAMILIES: [u8; 2] = [1, 2];

/// Keys of the expression `meta`: index and name of the device, and the packet's family.
const META_IIF: u32 = 4;
const META_OIF: u32 = 5;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFPROTO: u32 = 15;
/// `NFPROTO_IPV4`
const IPV4: u8 = 2;
/// `IFNAMSIZ`
const NAME_SIZE: usize = 16;

// Attributes of expressions and sets, linux/netfilter/nf_tables.h.
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NFTA_BITWISE_SREG: u16 = 1;
const NFTA_BITWISE_DREG: u16 = 2;
const NFTA_BITWISE_MASK: u16 = 4;
const NFTA_BITWISE_XOR: u16 = 5;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFTA_LOOKUP_SET: u16 = 1;
const NFTA_LOOKUP_SREG: u16 = 2;
const NFTA_LOOKUP_DREG: u16 = 3;
const NFTA_LOOKUP_FLAGS: u16 = 5;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CHAIN: u16 = 2;
const NFTA_NAT_TYPE: u16 = 1;
const NFTA_TARGET_NAME: u16 = 1;
const NFT_MSG_GETSETELEM: u16 = 13;
const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_FLAGS: u16 = 3;

/// `NFT_PAYLOAD_NETWORK_HEADER`, in which the IPv4 source address begins at byte 12.
const NETWORK_HEADER: u32 = 1;
const SOURCE_OFFSET: u32 = 12;
/// `NFT_CMP_EQ` and `NFT_CMP_NEQ`
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
/// `NFT_LOOKUP_F_INV`
const INVERTED: u32 = 1;
/// `NFT_NAT_SNAT`
const SNAT: u32 = 0;
/// Targets of iptables that give packets another source address.
const TARGETS: [&str; 4] = ["MASQUERADE", "SNAT", "NETMAP", "FULLCONENAT"];

/// An IPv4 packet that is forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded<'a> {
    /// Index and name of the device through which the packet comes in.
    pub from: (u32, &'a str),
    /// Index and name of the device through which the packet leaves.
    pub to: (u32, &'a str),
    /// The sender's address.
    pub source: Ipv4Addr,
}

/// A chain: its family, table and name.
type Chain = (u8, String, String);

/// The rules that give IPv4 packets another source address, and the jumps that lead to them.
#[derive(Clone, Debug, Default)]
pub struct SourceNat {
    rules: BTreeMap<Chain, Vec<Rule>>,
    /// Chains that see packets when they leave.
    hooked: Vec<Chain>,
    /// Whether a set, by family, table and name, has a value; `None` if that cannot be told.
    known: BTreeMap<(u8, String, String, Vec<u8>), Option<bool>>,
}

#[derive(Clone, Debug)]
struct Rule {
    effect: Effect,
    expressions: Vec<u8>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Effect {
    /// The packet gets another source address.
    Translates,
    /// The chain of this name decides.
    Jumps(String),
    /// A map decides: any chain of the table may be next.
    JumpsAnywhere,
}

impl Netfilter {
    /// All rules that give IPv4 packets another source address.
    ///
    /// # Errors
    /// [`NetlinkError::is_permission`], or EINVAL from a kernel without nftables.
    pub fn source_nat(&mut self) -> Result<SourceNat, NetlinkError> {
        let body = Body::new(&[0; HEADER_SIZE]);
        let chains = NFNL_SUBSYS_NFTABLES | NFT_MSG_GETCHAIN;
        let hooked = self.0.dump(chains, &body, "list the chains", parse_chain)?;
        let rules = NFNL_SUBSYS_NFTABLES | NFT_MSG_GETRULE;
        let rules = self.0.dump(rules, &body, "list the rules", parse_rule)?;
        let mut found = SourceNat {
            hooked,
            ..SourceNat::default()
        };
        for (chain, rule) in rules {
            found.rules.entry(chain).or_default().push(rule);
        }
        Ok(found)
    }

    /// Whether a rule gives this packet another source address, as far as the rules' conditions can be worked out.
    ///
    /// # Errors
    /// If the kernel does not list a set of a rule.
    pub fn translates(
        &mut self,
        found: &mut SourceNat,
        packet: &Forwarded<'_>,
    ) -> Result<bool, NetlinkError> {
        let SourceNat {
            rules,
            hooked,
            known,
        } = found;
        let mut visited: BTreeSet<Chain> = hooked.iter().cloned().collect();
        let mut next: Vec<Chain> = hooked.clone();
        while let Some(chain) = next.pop() {
            let (family, table) = (chain.0, &chain.1);
            for rule in rules.get(&chain).into_iter().flatten() {
                let applies = may_apply(&rule.expressions, packet, &mut |set, value| {
                    let key = (family, table.clone(), set.to_owned(), value.to_vec());
                    if let Some(&known) = known.get(&key) {
                        return Ok(known);
                    }
                    let has = self.contains(family, table, set, value)?;
                    known.insert(key, has);
                    Ok(has)
                })?;
                if !applies {
                    continue;
                }
                let targets: Vec<Chain> = match &rule.effect {
                    Effect::Translates => return Ok(true),
                    Effect::Jumps(name) => vec![(family, table.clone(), name.clone())],
                    Effect::JumpsAnywhere => {
                        let all = rules.keys().filter(|to| to.0 == family && to.1 == *table);
                        all.cloned().collect()
                    }
                };
                for to in targets {
                    if visited.insert(to.clone()) {
                        next.push(to);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Whether a set has an element; `None` if that cannot be told, as with ranges.
    fn contains(
        &mut self,
        family: u8,
        table: &str,
        set: &str,
        wanted: &[u8],
    ) -> Result<Option<bool>, NetlinkError> {
        let mut body = Body::new(&[family, 0, 0, 0]);
        body.push_text(NFTA_SET_ELEM_LIST_TABLE, table);
        body.push_text(NFTA_SET_ELEM_LIST_SET, set);
        let kind = NFNL_SUBSYS_NFTABLES | NFT_MSG_GETSETELEM;
        let parts = self
            .0
            .dump(kind, &body, "list a set", |it| is_among(it, wanted))?;
        Ok(match parts.contains(&Some(true)) {
            true => Some(true),
            false if parts.contains(&None) => None,
            false => Some(false),
        })
    }
}

/// Whether a message with elements of a set has this one; the inner `None` if that cannot be told.
fn is_among(body: &[u8], wanted: &[u8]) -> Option<Option<bool>> {
    let elements = attribute(body.get(HEADER_SIZE..)?, NFTA_SET_ELEM_LIST_ELEMENTS)?;
    let mut found = Some(false);
    for element in elements_of(elements) {
        let is_end = attribute(element, NFTA_SET_ELEM_FLAGS).is_some();
        match constant(element, NFTA_SET_ELEM_KEY) {
            Some(key) if !is_end && key == wanted => return Some(Some(true)),
            Some(key) if !is_end && key.len() == wanted.len() => {}
            _ => found = None,
        }
    }
    Some(found)
}

/// Looks whether the set of a name has a value; `None` if that is unknown.
type Contains<'a> = dyn FnMut(&str, &[u8]) -> Result<Option<bool>, NetlinkError> + 'a;

/// Whether a rule applies to a packet. `contains` looks into sets by their name.
fn may_apply(
    rule: &[u8],
    packet: &Forwarded<'_>,
    contains: &mut Contains<'_>,
) -> Result<bool, NetlinkError> {
    // The registers' known values, by number.
    let mut known: Vec<(u32, Vec<u8>)> = Vec::new();
    for (name, data) in expressions(rule) {
        let value = |number: u32| known.iter().find(|it| it.0 == number).map(|it| &it.1[..]);
        match &*name {
            "meta" => {
                let register = number(data, NFTA_META_DREG);
                known.retain(|it| it.0 != register);
                let value = packet.meta(number(data, NFTA_META_KEY));
                known.extend(value.map(|it| (register, it)));
            }
            "payload" => {
                let register = number(data, NFTA_PAYLOAD_DREG);
                known.retain(|it| it.0 != register);
                let base = number(data, NFTA_PAYLOAD_BASE);
                let offset = number(data, NFTA_PAYLOAD_OFFSET);
                let length = number(data, NFTA_PAYLOAD_LEN) as usize;
                let source = packet.source.octets();
                if let Some(part) = source.get(..length)
                    && (base, offset) == (NETWORK_HEADER, SOURCE_OFFSET)
                {
                    known.push((register, part.to_vec()));
                }
            }
            "bitwise" => {
                let to = number(data, NFTA_BITWISE_DREG);
                let flips = constant(data, NFTA_BITWISE_XOR).unwrap_or_default();
                let masked = value(number(data, NFTA_BITWISE_SREG))
                    .zip(constant(data, NFTA_BITWISE_MASK))
                    .filter(|_| flips.iter().all(|it| *it == 0))
                    .map(|(value, mask)| value.iter().zip(mask).map(|(a, b)| a & b).collect());
                known.retain(|it| it.0 != to);
                known.extend(masked.map(|it| (to, it)));
            }
            "cmp" => {
                let wanted = constant(data, NFTA_CMP_DATA).unwrap_or_default();
                if let Some(value) = value(number(data, NFTA_CMP_SREG)) {
                    // A pattern such as "wg*" is compared without its end.
                    let is = value.starts_with(wanted);
                    let refuses = match number(data, NFTA_CMP_OP) {
                        EQUAL => !is,
                        NOT_EQUAL => is,
                        _ => false,
                    };
                    if refuses {
                        return Ok(false);
                    }
                }
            }
            "lookup" => {
                let set = attribute(data, NFTA_LOOKUP_SET).map(decode_str);
                if let Some(value) = value(number(data, NFTA_LOOKUP_SREG)) {
                    let is_in = contains(&set.unwrap_or_default(), value)?;
                    let is_inverted = number(data, NFTA_LOOKUP_FLAGS) & INVERTED != 0;
                    if is_in == Some(is_inverted) {
                        return Ok(false);
                    }
                }
                if attribute(data, NFTA_LOOKUP_DREG).is_some() {
                    let to = number(data, NFTA_LOOKUP_DREG);
                    known.retain(|it| it.0 != to);
                }
            }
            "counter" | "limit" | "log" | "match" => {}
            _ => known.clear(),
        }
    }
    Ok(true)
}

impl Forwarded<'_> {
    /// The value of a `meta` expression, as nftables keeps it.
    fn meta(&self, key: u32) -> Option<Vec<u8>> {
        let name = |name: &str| {
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(NAME_SIZE, 0);
            bytes
        };
        Some(match key {
            META_IIF => self.from.0.to_ne_bytes().to_vec(),
            META_OIF => self.to.0.to_ne_bytes().to_vec(),
            META_IIFNAME => name(self.from.1),
            META_OIFNAME => name(self.to.1),
            META_NFPROTO => vec![IPV4],
            _ => return None,
        })
    }
}

/// The chain, if it sees IPv4 packets when they leave.
fn parse_chain(body: &[u8]) -> Option<Chain> {
    let (hook, _) = parse_hook(body)?;
    let chain = chain_of(body, NFTA_CHAIN_NAME)?;
    (hook == HOOK_POSTROUTING).then_some(chain)
}

/// The rule and its chain, if it gives packets another source address or sends them to another chain.
fn parse_rule(body: &[u8]) -> Option<(Chain, Rule)> {
    let chain = chain_of(body, NFTA_RULE_CHAIN)?;
    let list = attribute(body.get(HEADER_SIZE..)?, NFTA_RULE_EXPRESSIONS)?;
    let effect = expressions(list).find_map(|(name, data)| effect(&name, data))?;
    let expressions = list.to_vec();
    Some((
        chain,
        Rule {
            effect,
            expressions,
        },
    ))
}

/// The chain that a message is about, with the attribute `name`; `None` if it sees no IPv4 packets.
fn chain_of(body: &[u8], name: u16) -> Option<Chain> {
    let (family, rest) = (*body.first()?, body.get(HEADER_SIZE..)?);
    let text = |wanted: u16| attribute(rest, wanted).map(decode_str);
    let chain = (family, text(NFTA_TABLE)?, text(name)?);
    FAMILIES.contains(&family).then_some(chain)
}

fn effect(name: &str, data: &[u8]) -> Option<Effect> {
    let is_translation = match name {
        "masq" | "fullcone" => true,
        "nat" => number(data, NFTA_NAT_TYPE) == SNAT,
        "target" => {
            let target = attribute(data, NFTA_TARGET_NAME).map(decode_str);
            target.is_some_and(|it| TARGETS.contains(&&*it))
        }
        "immediate" => {
            let verdict = attribute(attribute(data, NFTA_IMMEDIATE_DATA)?, NFTA_DATA_VERDICT)?;
            let chain = decode_str(attribute(verdict, NFTA_VERDICT_CHAIN)?);
            return Some(Effect::Jumps(chain));
        }
        // Register 0 is for verdicts.
        "lookup" if attribute(data, NFTA_LOOKUP_DREG).is_some() => {
            let is_verdict = number(data, NFTA_LOOKUP_DREG) == 0;
            return is_verdict.then_some(Effect::JumpsAnywhere);
        }
        _ => false,
    };
    is_translation.then_some(Effect::Translates)
}

/// The names and data of a rule's expressions.
fn expressions(list: &[u8]) -> impl Iterator<Item = (String, &[u8])> {
    elements_of(list).filter_map(|it| {
        let name = decode_str(attribute(it, NFTA_EXPR_NAME)?);
        Some((name, attribute(it, NFTA_EXPR_DATA).unwrap_or_default()))
    })
}

fn elements_of(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let elements = attributes(list).filter(|it| it.0 == NFTA_LIST_ELEM);
    elements.map(|it| it.1)
}

fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|it| it.0 == wanted).map(|it| it.1)
}

/// A number of an expression; 0 if it has none.
fn number(data: &[u8], wanted: u16) -> u32 {
    let bytes = attribute(data, wanted).and_then(|it| it.get(..4)?.try_into().ok());
    bytes.map_or(0, u32::from_be_bytes)
}

/// The bytes of a constant.
fn constant(data: &[u8], wanted: u16) -> Option<&[u8]> {
    attribute(attribute(data, wanted)?, NFTA_DATA_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes with these numbers and contents.
    fn nested(parts: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, content) in parts {
            bytes.extend((content.len() as u16 + 4).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(*content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    fn expression(name: &str, parts: &[(u16, &[u8])]) -> Vec<u8> {
        let data = nested(parts);
        nested(&[(NFTA_EXPR_NAME, name.as_bytes()), (NFTA_EXPR_DATA, &data)])
    }

    fn list(all: &[Vec<u8>]) -> Vec<u8> {
        let all: Vec<(u16, &[u8])> = all.iter().map(|it| (NFTA_LIST_ELEM, &it[..])).collect();
        nested(&all)
    }

    const PACKET: Forwarded<'_> = Forwarded {
        from: (7, "br-lan"),
        to: (9, "wg0"),
        source: Ipv4Addr::new(192, 168, 1, 1),
    };

    fn applies(rule: &[Vec<u8>]) -> bool {
        may_apply(&list(rule), &PACKET, &mut |_, _| Ok(Some(true))).unwrap()
    }

    fn value(bytes: &[u8]) -> Vec<u8> {
        nested(&[(NFTA_DATA_VALUE, bytes)])
    }

    /// Conditions that `nft` writes seldom, or not at all.
    #[test]
    fn registers_whose_value_is_not_known_are_not_compared() {
        let one = 1u32.to_be_bytes();
        let load = expression(
            "meta",
            &[
                (NFTA_META_DREG, &one),
                (NFTA_META_KEY, &META_OIF.to_be_bytes()),
            ],
        );
        let other = value(&8u32.to_ne_bytes());
        let compare = expression("cmp", &[(NFTA_CMP_SREG, &one), (NFTA_CMP_DATA, &other)]);
        assert!(!applies(&[load.clone(), compare.clone()]));
        let (mask, same) = (value(&[0xff; 4]), value(&[0; 4]));
        for (flips, is_known) in [(&same, true), (&other, false)] {
            let flip = expression(
                "bitwise",
                &[
                    (NFTA_BITWISE_SREG, &one),
                    (NFTA_BITWISE_DREG, &one),
                    (NFTA_BITWISE_MASK, &mask),
                    (NFTA_BITWISE_XOR, flips),
                ],
            );
            assert_eq!(applies(&[load.clone(), flip, compare.clone()]), !is_known);
        }
        for (to, is_known) in [(&[][..], true), (&[(NFTA_LOOKUP_DREG, &one[..])], false)] {
            let parts = [&[(NFTA_LOOKUP_SREG, &one[..])], to].concat();
            let map = expression("lookup", &parts);
            assert_eq!(applies(&[load.clone(), map, compare.clone()]), !is_known);
        }
    }

    #[test]
    fn effects_are_told_by_the_expression() {
        let target = |name: &str| effect("target", &nested(&[(NFTA_TARGET_NAME, name.as_bytes())]));
        for (found, is_translation) in [
            (target("MASQUERADE"), true),
            (target("NETMAP"), true),
            (target("FULLCONENAT"), true),
            (target("DNAT"), false),
            (effect("fullcone", &[]), true),
            (effect("masq", &[]), true),
            (effect("accept", &[]), false),
        ] {
            assert_eq!(found.is_some(), is_translation, "{found:?}");
        }
    }

    #[test]
    fn short_and_wild_messages_are_no_rules() {
        let verdict = nested(&[(NFTA_VERDICT_CHAIN, b"d\0")]);
        let verdict = nested(&[(NFTA_DATA_VERDICT, &verdict)]);
        let rule = list(&[expression("immediate", &[(NFTA_IMMEDIATE_DATA, &verdict)])]);
        let names: [(u16, &[u8]); 2] = [(NFTA_TABLE, b"x\0"), (NFTA_RULE_CHAIN, b"c\0")];
        let parts = [&names[..], &[(NFTA_RULE_EXPRESSIONS, &rule)]].concat();
        let whole = [vec![2, 0, 0, 0], nested(&parts)].concat();
        let (_, found) = parse_rule(&whole).unwrap();
        assert_eq!(found.effect, Effect::Jumps("d".to_owned()));
        for length in 0..whole.len() {
            assert!(parse_rule(&whole[..length]).is_none(), "{length}");
            let mut wild = whole.clone();
            wild[length..].fill(0xff);
            assert!(parse_rule(&wild).is_none_or(|it| it.1.expressions.len() <= wild.len()));
            let _ = (parse_chain(&wild), is_among(&wild, &[0xff; 4]));
            assert!(applies(&[wild[length..].to_vec()]));
            assert!(applies(&[expression(
                "lookup",
                &[(NFTA_LOOKUP_SREG, &wild)]
            )]));
        }
    }
}
