//! Rules of nftables that give packets another source address when they leave: `masquerade`, `snat`, and those that
//! `iptables-nft` makes.
//!
//! A rule's conditions are worked out as far as they depend on devices, families and the source address. Every other
//! condition, and every jump to a rule's chain, counts as met.

use std::net::Ipv4Addr;

use super::nftables::{
    NFNL_SUBSYS_NFTABLES, NFT_MSG_GETRULE, NFTA_EXPR_DATA, NFTA_EXPR_NAME, NFTA_LIST_ELEM,
    NFTA_RULE_EXPRESSIONS, NFTA_TABLE,
};
use super::request::Body;
use super::{Netfilter, NetlinkError, attributes, decode_str};

const NFT_MSG_GETSETELEM: u16 = 13;
/// Families of tables that see forwarded IPv4 packets: `inet` and `ip`.
const FAMILIES: [u8; 2] = [1, 2];

/// Keys of the expression `meta`: index and name of the device, and the packet's family.
const META_IIF: u32 = 4;
const META_OIF: u32 = 5;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFPROTO: u32 = 15;
/// `IFNAMSIZ`
const NAME_SIZE: usize = 16;

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

/// A rule that gives packets another source address.
#[derive(Clone, Debug)]
pub struct SourceNat {
    family: u8,
    table: String,
    expressions: Vec<u8>,
}

impl Netfilter {
    /// All rules that give IPv4 packets another source address.
    ///
    /// # Errors
    /// [`NetlinkError::is_permission`], or EINVAL from a kernel without nftables.
    pub fn source_nat(&mut self) -> Result<Vec<SourceNat>, NetlinkError> {
        let kind = NFNL_SUBSYS_NFTABLES | NFT_MSG_GETRULE;
        let body = Body::new(&[0; 4]);
        self.0.dump(kind, &body, "list the rules", parse)
    }

    /// Whether a rule applies to a packet, as far as its conditions can be worked out.
    ///
    /// # Errors
    /// If the kernel does not list a set of the rule.
    pub fn may_apply(
        &mut self,
        rule: &SourceNat,
        packet: &Forwarded<'_>,
    ) -> Result<bool, NetlinkError> {
        // The registers' known values, by number.
        let mut known: Vec<(u32, Vec<u8>)> = Vec::new();
        for (name, data) in expressions(&rule.expressions) {
            let value = |number: u32| known.iter().find(|it| it.0 == number).map(|it| &it.1[..]);
            match &*name {
                "meta" => {
                    let register = number(data, 1);
                    known.retain(|it| it.0 != register);
                    known.extend(packet.meta(number(data, 2)).map(|it| (register, it)));
                }
                "payload" => {
                    let register = number(data, 1);
                    known.retain(|it| it.0 != register);
                    // The source address begins at byte 12 of the network header.
                    let length = number(data, 4) as usize;
                    if (number(data, 2), number(data, 3)) == (1, 12) && length <= 4 {
                        known.push((register, packet.source.octets()[..length].to_vec()));
                    }
                }
                "bitwise" => {
                    let (from, to) = (number(data, 1), number(data, 2));
                    let masked: Option<Vec<u8>> = value(from)
                        .zip(constant(data, 4))
                        .map(|(value, mask)| value.iter().zip(mask).map(|(a, b)| a & b).collect());
                    known.retain(|it| it.0 != to);
                    known.extend(masked.map(|it| (to, it)));
                }
                "cmp" => {
                    let wanted = constant(data, 3).unwrap_or_default();
                    if let Some(value) = value(number(data, 1)) {
                        // A pattern such as "wg*" is compared without its end.
                        let is = value.starts_with(wanted);
                        let refuses = match number(data, 2) {
                            0 => !is,
                            1 => is,
                            _ => false,
                        };
                        if refuses {
                            return Ok(false);
                        }
                    }
                }
                "lookup" => {
                    let set = attribute(data, 1).map(decode_str).unwrap_or_default();
                    if let Some(value) = value(number(data, 2)) {
                        let value = value.to_vec();
                        let is_in = self.contains(rule, &set, &value)?;
                        if is_in == Some(number(data, 5) & 1 == 1) {
                            return Ok(false);
                        }
                    }
                }
                "counter" | "limit" | "log" | "match" => {}
                _ => known.clear(),
            }
        }
        Ok(true)
    }

    /// Whether a set has an element; `None` if that cannot be told, as with ranges.
    fn contains(
        &mut self,
        rule: &SourceNat,
        set: &str,
        wanted: &[u8],
    ) -> Result<Option<bool>, NetlinkError> {
        let mut body = Body::new(&[rule.family, 0, 0, 0]);
        body.push_text(1, &rule.table);
        body.push_text(2, set);
        let kind = NFNL_SUBSYS_NFTABLES | NFT_MSG_GETSETELEM;
        let found = self.0.dump(kind, &body, "list a set", |body| {
            let elements = attribute(body.get(4..)?, 3)?;
            let elements = elements_of(elements).map(|element| {
                let is_end = attribute(element, 3).is_some();
                match constant(element, 1) {
                    Some(key) if !is_end && key == wanted => Some(true),
                    Some(key) if !is_end && key.len() == wanted.len() => Some(false),
                    _ => None,
                }
            });
            Some(elements.collect::<Vec<_>>())
        })?;
        let all = found.concat();
        Ok(match all.contains(&Some(true)) {
            true => Some(true),
            false if all.contains(&None) => None,
            false => Some(false),
        })
    }
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
            META_NFPROTO => vec![2],
            _ => return None,
        })
    }
}

/// The rule, if it gives packets another source address.
fn parse(body: &[u8]) -> Option<SourceNat> {
    let (family, rest) = (*body.first()?, body.get(4..)?);
    let list = attribute(rest, NFTA_RULE_EXPRESSIONS)?;
    let is_source_nat = expressions(list).any(|(name, data)| match &*name {
        "masq" => true,
        "nat" => number(data, 1) == 0,
        "target" => {
            let target = attribute(data, 1).map(decode_str).unwrap_or_default();
            matches!(&*target, "MASQUERADE" | "SNAT")
        }
        _ => false,
    });
    (FAMILIES.contains(&family) && is_source_nat).then(|| SourceNat {
        family,
        table: attribute(rest, NFTA_TABLE)
            .map(decode_str)
            .unwrap_or_default(),
        expressions: list.to_vec(),
    })
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

/// The bytes of a constant, `NFTA_DATA_VALUE`.
fn constant(data: &[u8], wanted: u16) -> Option<&[u8]> {
    attribute(attribute(data, wanted)?, 1)
}
