//! Reads chains of the packet filter, to check that they are unchanged; `nft` makes them.
//!
//! Rules are recognised by their comments and counters. Their conditions are not read: they are written in expressions
//! that `nft` chooses.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::NLM_F_ACK;
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::request::Body;
use super::{
    Follower, Netfilter, NetlinkError, News, attributes, decode_str, decode_u32, messages,
};

/// Bytes of `struct nfgenmsg`, which every message starts with.
pub(super) const HEADER_SIZE: usize = 4;

/// Number of the subsystem, linux/netfilter/nfnetlink.h, in the upper byte of a message's type.
pub(super) const NFNL_SUBSYS_NFTABLES: u16 = 10 << 8;
/// Bit of the multicast group that announces changes, `NFNLGRP_NFTABLES`, 7.
const GROUP: u32 = 1 << 6;

// Message types of linux/netfilter/nf_tables.h: the first nine are for tables, chains and rules.
pub(super) const NFT_MSG_GETCHAIN: u16 = 4;
pub(super) const NFT_MSG_GETRULE: u16 = 7;
const NFT_MSG_DELRULE: u16 = 8;

/// Family of tables that see IPv4 and IPv6, linux/netfilter.h.
pub(super) const NFPROTO_INET: u8 = 1;

/// The hook `prerouting`, for packets that come in.
pub const HOOK_PREROUTING: u32 = 0;

/// The hook `input`, for packets to this host.
pub const HOOK_INPUT: u32 = 1;
/// The hook `forward`, for packets that pass through this host.
pub const HOOK_FORWARD: u32 = 2;
/// The hook `output`, for packets that this host sends.
pub const HOOK_OUTPUT: u32 = 3;
/// The hook `postrouting`, for packets that leave.
pub const HOOK_POSTROUTING: u32 = 4;

// Attribute numbers. The table's is the same for tables, chains and rules.
pub(super) const NFTA_TABLE: u16 = 1;
pub(super) const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
pub(super) const NFTA_RULE_CHAIN: u16 = 2;
pub(super) const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_USERDATA: u16 = 7;
pub(super) const NFTA_LIST_ELEM: u16 = 1;
pub(super) const NFTA_EXPR_NAME: u16 = 1;
pub(super) const NFTA_EXPR_DATA: u16 = 2;
const NFTA_COUNTER_PACKETS: u16 = 2;
/// Type of a rule's comment in the user data that `nft` stores with the rule.
const UDATA_RULE_COMMENT: u8 = 0;

/// A chain of a table of the family `inet`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain {
    /// Number of the hook, and priority (the lowest first); `None` for a chain that only other chains jump to.
    pub hook: Option<(u32, i32)>,
    /// Rules of the chain, in order.
    pub rules: Vec<ChainRule>,
}

/// A rule of a [`Chain`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChainRule {
    /// Comment of the rule, empty without one.
    pub comment: String,
    /// Packets that the rule's counter has seen; `None` without a counter.
    pub packets: Option<u64>,
}

impl Netfilter {
    /// The chain `name` of the table `inet table`; `None` if there is no such chain or table.
    ///
    /// # Errors
    /// [`NetlinkError::is_permission`], or EINVAL from a kernel without nftables.
    pub fn chain(&mut self, table: &str, name: &str) -> Result<Option<Chain>, NetlinkError> {
        let mut body = Body::new(&[NFPROTO_INET, 0, 0, 0]);
        body.push_text(NFTA_TABLE, table);
        let mut chain = body.clone();
        chain.push_text(NFTA_CHAIN_NAME, name);
        let object = format_args!("{name} of table inet {table}");
        let mut hook = None;
        let mut hear = |body: &[u8]| hook = hook.or_else(|| parse_hook(body));
        let kind = NFNL_SUBSYS_NFTABLES | NFT_MSG_GETCHAIN;
        match self
            .0
            .exchange(kind, &chain, NLM_F_ACK, "read chain", object, &mut hear)
        {
            Err(error) if error.is_not_found() => return Ok(None),
            other => other?,
        };
        body.push_text(NFTA_RULE_CHAIN, name);
        let kind = NFNL_SUBSYS_NFTABLES | NFT_MSG_GETRULE;
        let rules = self
            .0
            .dump(kind, &body, "list the rules of a chain", |it| {
                parse_rule(it, table, name)
            })?;
        Ok(Some(Chain { hook, rules }))
    }
}

pub(super) fn parse_hook(body: &[u8]) -> Option<(u32, i32)> {
    let (_, hook) =
        attributes(body.get(HEADER_SIZE..)?).find(|(kind, _)| *kind == NFTA_CHAIN_HOOK)?;
    let number = |wanted: u16| {
        let (_, value) = attributes(hook).find(|(kind, _)| *kind == wanted)?;
        // Network byte order, as for all numbers of nftables.
        decode_u32(value).map(u32::from_be)
    };
    let priority = number(NFTA_HOOK_PRIORITY)?.cast_signed();
    Some((number(NFTA_HOOK_HOOKNUM)?, priority))
}

/// The rule, if it is of this chain: a kernel may list the rules of other chains too.
fn parse_rule(body: &[u8], table: &str, chain: &str) -> Option<ChainRule> {
    let mut rule = ChainRule::default();
    let mut place = (false, false);
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            NFTA_TABLE => place.0 = decode_str(value) == table,
            NFTA_RULE_CHAIN => place.1 = decode_str(value) == chain,
            NFTA_RULE_USERDATA => rule.comment = comment(value).unwrap_or_default(),
            NFTA_RULE_EXPRESSIONS => rule.packets = attributes(value).find_map(counter),
            _ => {}
        }
    }
    (place == (true, true)).then_some(rule)
}

/// The comment in the user data that `nft` stores with a rule: records of type, length and value.
fn comment(mut data: &[u8]) -> Option<String> {
    while let &[kind, length, ref rest @ ..] = data {
        let (value, behind) = rest.split_at_checked(usize::from(length))?;
        if kind == UDATA_RULE_COMMENT {
            return Some(decode_str(value));
        }
        data = behind;
    }
    None
}

/// The packets of a counter expression.
fn counter((kind, expression): (u16, &[u8])) -> Option<u64> {
    let part = |wanted: u16| attributes(expression).find(|(kind, _)| *kind == wanted);
    if kind != NFTA_LIST_ELEM || decode_str(part(NFTA_EXPR_NAME)?.1) != "counter" {
        return None;
    }
    let (_, data) = part(NFTA_EXPR_DATA)?;
    let (_, packets) = attributes(data).find(|(kind, _)| *kind == NFTA_COUNTER_PACKETS)?;
    Some(u64::from_be_bytes(packets.get(..8)?.try_into().ok()?))
}

/// A socket that reports changes to tables, chains or rules of one table, by any program. Changes of sets, which a
/// resolver fills, are reported only by [`ChainsWatch::added`].
#[derive(Debug)]
pub struct ChainsWatch {
    pub(super) follower: Follower,
    pub(super) table: String,
}

impl ChainsWatch {
    /// Listens to changes of the table `inet table`, in the network namespace of the current thread. A trailing
    /// asterisk matches all tables whose names begin so.
    ///
    /// # Errors
    /// [`NetlinkError::Open`], EPERM without CAP_NET_ADMIN.
    pub fn open(table: &str) -> Result<Self, NetlinkError> {
        let subject = "changes of the packet filter";
        Ok(Self {
            follower: Follower::open(NETLINK_NETFILTER, GROUP, subject)?,
            table: table.to_owned(),
        })
    }

    /// Whether anything has changed since the last call; also true if the socket has lost messages.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`] if the socket fails.
    pub fn changed(&mut self) -> Result<bool, NetlinkError> {
        let mut changed = false;
        loop {
            match self.follower.receive()? {
                News::Messages(bytes) => {
                    let mut news = messages(bytes).flatten();
                    changed |=
                        news.any(|it| is_about(&self.table, it.message_type(), it.payload()));
                }
                News::None => return Ok(changed),
                News::Lost => changed = true,
            }
        }
    }
}

/// Whether a message is about a table, chain or rule of the table `inet table`.
fn is_about(table: &str, kind: u16, body: &[u8]) -> bool {
    let is_of_nftables = kind & 0xff00 == NFNL_SUBSYS_NFTABLES;
    if !is_of_nftables || kind & 0xff > NFT_MSG_DELRULE || body.first() != Some(&NFPROTO_INET) {
        return false;
    }
    attributes(body.get(HEADER_SIZE..).unwrap_or_default())
        .any(|(kind, value)| kind == NFTA_TABLE && is_named(table, &decode_str(value)))
}

pub(super) fn is_named(wanted: &str, name: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == wanted,
    }
}

impl AsFd for ChainsWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.follower.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(table: &str, userdata: &[u8], packets: u64) -> Vec<u8> {
        let counts = Body::attributes()
            .with(1, &0u64.to_be_bytes())
            .with(NFTA_COUNTER_PACKETS, &packets.to_be_bytes());
        let mut expression = Body::attributes();
        expression.push_text(NFTA_EXPR_NAME, "counter");
        expression.push_body(NFTA_EXPR_DATA, &counts);
        let mut expressions = Body::attributes();
        expressions.push_body(NFTA_LIST_ELEM, &expression);
        let mut body = Body::new(&[NFPROTO_INET, 0, 0, 0]);
        body.push_text(NFTA_TABLE, table);
        body.push_text(NFTA_RULE_CHAIN, "guard");
        body.push_body(NFTA_RULE_EXPRESSIONS, &expressions);
        body.push(NFTA_RULE_USERDATA, userdata);
        body.request(0, 0, 0)[16..].to_vec()
    }

    #[test]
    fn rules_are_told_by_comment_and_counter() {
        let body = rule("millrace", b"\x07\x02xx\x00\x05mine\0", 7);
        let read = parse_rule(&body, "millrace", "guard").unwrap();
        assert_eq!((read.comment.as_str(), read.packets), ("mine", Some(7)));
        assert_eq!(parse_rule(&body, "other", "guard"), None);
        assert_eq!(parse_rule(&body, "millrace", "other"), None);
        // A length beyond the end of the data.
        let body = rule("millrace", b"\x00\x50mine\0", 0);
        assert_eq!(parse_rule(&body, "millrace", "guard").unwrap().comment, "");
    }

    #[test]
    fn news_is_of_one_table_and_not_of_what_its_sets_hold() {
        let body = rule("millrace", b"", 0);
        let kind = NFNL_SUBSYS_NFTABLES | NFT_MSG_DELRULE;
        assert!(is_about("millrace", kind, &body));
        assert!(!is_about("fw4", kind, &body));
        assert!(!is_about("millrace", kind + 4, &body));
        assert!(!is_about("millrace", NFT_MSG_DELRULE, &body));
    }

    #[test]
    fn short_bodies_are_refused() {
        for length in 0..40 {
            let body = vec![0xff; length];
            assert_eq!(parse_hook(&body), None);
            assert_eq!(parse_rule(&body, "a", "b"), None);
            assert!(!is_about("a", NFNL_SUBSYS_NFTABLES, &body));
        }
    }
}
