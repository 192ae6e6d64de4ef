//! Reads addresses in sets of the packet filter. Programs such as `dnsmasq` put them there.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_ACK;

use super::nftables::{
    ChainsWatch, HEADER_SIZE, NFNL_SUBSYS_NFTABLES, NFPROTO_INET, NFTA_LIST_ELEM, NFTA_TABLE,
    is_named,
};
use super::request::Body;
use super::{Netfilter, NetlinkError, News, attributes, decode_ip, decode_str, messages};

// Message types of linux/netfilter/nf_tables.h.
const NFT_MSG_GETTABLE: u16 = 1;
const NFT_MSG_NEWSETELEM: u16 = 12;
const NFT_MSG_GETSETELEM: u16 = 13;
const NFT_MSG_DELSETELEM: u16 = 14;

// Attribute numbers.
const NFTA_TABLE_HANDLE: u16 = 4;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_DATA_VALUE: u16 = 1;

impl Netfilter {
    /// The handle of the table `inet table`; `None` if there is no such table. A table that was deleted and made anew
    /// has another handle. Always 0 before Linux 4.16.
    ///
    /// # Errors
    /// [`NetlinkError::is_permission`], or EINVAL from a kernel without nftables.
    pub fn table_handle(&mut self, table: &str) -> Result<Option<u64>, NetlinkError> {
        let mut body = Body::new(&[NFPROTO_INET, 0, 0, 0]);
        body.push_text(NFTA_TABLE, table);
        let mut handle = 0;
        let mut hear = |body: &[u8]| handle = parse_handle(body).unwrap_or(handle);
        let object = format_args!("inet {table}");
        let kind = NFNL_SUBSYS_NFTABLES | NFT_MSG_GETTABLE;
        match self
            .0
            .exchange(kind, &body, NLM_F_ACK, "read table", object, &mut hear)
        {
            Err(error) if error.is_not_found() => Ok(None),
            other => other.map(|_| Some(handle)),
        }
    }

    /// The addresses in the set `set` of the table `inet table`; empty without such a set.
    ///
    /// # Errors
    /// [`NetlinkError::is_permission`], or EINVAL from a kernel without nftables.
    pub fn addresses(&mut self, table: &str, set: &str) -> Result<Vec<IpAddr>, NetlinkError> {
        self.elements(table, set, |key| decode_ip(&key))
    }

    /// The elements of the set `set` of the table `inet table` that are a hardware address and an IP address; empty
    /// without such a set.
    ///
    /// # Errors
    /// The errors of [`Netfilter::addresses`].
    pub fn senders(
        &mut self,
        table: &str,
        set: &str,
    ) -> Result<Vec<([u8; 6], IpAddr)>, NetlinkError> {
        self.elements(table, set, |key| sender(&key))
    }

    fn elements<T>(
        &mut self,
        table: &str,
        set: &str,
        read: impl Fn(Vec<u8>) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut body = Body::new(&[NFPROTO_INET, 0, 0, 0]);
        body.push_text(NFTA_TABLE, table);
        body.push_text(NFTA_SET_ELEM_LIST_SET, set);
        let kind = NFNL_SUBSYS_NFTABLES | NFT_MSG_GETSETELEM;
        let found = self
            .0
            .dump(kind, &body, "list the elements of a set", |body| {
                Some(parse_elements(body)?.1)
            });
        match found {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            other => Ok(other?.into_iter().flatten().filter_map(read).collect()),
        }
    }
}

impl ChainsWatch {
    /// Takes all news of the table, and appends the addresses that were put into its sets, each with the name of the
    /// set. Returns whether that tells all changes of its sets: not if the socket has lost messages, or elements were
    /// deleted.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`] if the socket fails.
    pub fn added(&mut self, added: &mut Vec<(String, IpAddr)>) -> Result<bool, NetlinkError> {
        let mut is_all = true;
        loop {
            let bytes = match self.follower.receive()? {
                News::Messages(bytes) => bytes,
                News::None => return Ok(is_all),
                News::Lost => {
                    is_all = false;
                    continue;
                }
            };
            for message in messages(bytes).flatten() {
                let (kind, body) = (message.message_type(), message.payload());
                let about = |wanted: u16| {
                    kind == NFNL_SUBSYS_NFTABLES | wanted && is_about_elements(&self.table, body)
                };
                is_all &= !about(NFT_MSG_DELSETELEM);
                if about(NFT_MSG_NEWSETELEM)
                    && let Some((set, addresses)) = parse_elements(body)
                {
                    let addresses = addresses.iter().filter_map(|it| decode_ip(it));
                    added.extend(addresses.map(|it| (set.clone(), it)));
                }
            }
        }
    }
}

fn is_about_elements(table: &str, body: &[u8]) -> bool {
    // The table's attribute has the same number as in messages about chains.
    body.first() == Some(&NFPROTO_INET)
        && attributes(body.get(HEADER_SIZE..).unwrap_or_default())
            .any(|(kind, value)| kind == NFTA_TABLE && is_named(table, &decode_str(value)))
}

fn parse_handle(body: &[u8]) -> Option<u64> {
    let (_, value) =
        attributes(body.get(HEADER_SIZE..)?).find(|(kind, _)| *kind == NFTA_TABLE_HANDLE)?;
    Some(u64::from_be_bytes(value.get(..8)?.try_into().ok()?))
}

/// The name of the set, and the keys of its elements.
fn parse_elements(body: &[u8]) -> Option<(String, Vec<Vec<u8>>)> {
    let (mut set, mut found) = (None, Vec::new());
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            NFTA_SET_ELEM_LIST_SET => set = Some(decode_str(value)),
            NFTA_SET_ELEM_LIST_ELEMENTS => found.extend(attributes(value).filter_map(key)),
            _ => {}
        }
    }
    Some((set?, found))
}

fn key((kind, element): (u16, &[u8])) -> Option<Vec<u8>> {
    let part = |of, wanted: u16| attributes(of).find(|(kind, _)| *kind == wanted);
    if kind != NFTA_LIST_ELEM {
        return None;
    }
    let (_, key) = part(element, NFTA_SET_ELEM_KEY)?;
    Some(part(key, NFTA_DATA_VALUE)?.1.to_vec())
}

/// Reads a key of two parts, each of which fills whole words.
fn sender(key: &[u8]) -> Option<([u8; 6], IpAddr)> {
    let (mac, ip) = key.split_at_checked(8)?;
    Some((mac[..6].try_into().ok()?, decode_ip(ip)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(table: &str, keys: &[&[u8]]) -> Vec<u8> {
        let mut list = Body::attributes();
        for key in keys {
            let mut element = Body::attributes();
            let value = Body::attributes().with(NFTA_DATA_VALUE, key);
            element.push_body(NFTA_SET_ELEM_KEY, &value);
            list.push_body(NFTA_LIST_ELEM, &element);
        }
        let mut body = Body::new(&[NFPROTO_INET, 0, 0, 0]);
        body.push_text(NFTA_TABLE, table);
        body.push_text(NFTA_SET_ELEM_LIST_SET, "names_4");
        body.push_body(NFTA_SET_ELEM_LIST_ELEMENTS, &list);
        body.payload().to_vec()
    }

    #[test]
    fn addresses_of_both_families_are_read_and_other_keys_skipped() {
        let body = elements("millrace_policy", &[&[192, 0, 2, 7], &[1; 16], &[1, 2, 3]]);
        let (set, keys) = parse_elements(&body).unwrap();
        assert_eq!(set, "names_4");
        let found: Vec<IpAddr> = keys.iter().filter_map(|it| decode_ip(it)).collect();
        let wanted = [IpAddr::from([192, 0, 2, 7]), IpAddr::from([1; 16])];
        assert_eq!(found, wanted);
        assert!(is_about_elements("millrace_policy", &body));
        assert!(!is_about_elements("millrace", &body));
    }

    #[test]
    fn senders_are_read_from_keys_of_two_parts() {
        let mac = [2, 0, 0x5e, 0x10, 0, 1];
        let of = |ip: &[u8]| sender(&[&mac[..], &[0, 0], ip].concat());
        assert_eq!(of(&[192, 0, 2, 7]), Some((mac, [192, 0, 2, 7].into())));
        assert_eq!(of(&[1; 16]), Some((mac, [1; 16].into())));
        assert_eq!((of(&[1; 5]), sender(&[1; 7])), (None, None));
    }

    #[test]
    fn cut_messages_are_read_without_a_panic() {
        let body = elements("t", &[&[192, 0, 2, 7]]);
        for length in 0..body.len() {
            assert!(parse_elements(&body[..length]).is_none_or(|it| it.1.is_empty()));
            assert_eq!(parse_handle(&body[..length]), None);
        }
    }
}
