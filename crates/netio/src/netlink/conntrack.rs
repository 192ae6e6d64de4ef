//! The kernel's connection table: lists connections, and deletes some.
//!
//! The kernel translates all packets of a connection as it did the first one. To move a connection to another uplink,
//! its entry must be deleted, or it keeps the old uplink's address.

use std::fmt;
use std::net::IpAddr;

use super::nftables::HEADER_SIZE;
use super::request::Body;
use super::{Family, Netfilter, NetlinkError, attributes, decode_ip, decode_u32};

/// Number of the subsystem, linux/netfilter/nfnetlink.h, in the upper byte of a message's type.
const NFNL_SUBSYS_CTNETLINK: u16 = 1 << 8;

// Message types of linux/netfilter/nfnetlink_conntrack.h.
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;

/// Flag in the number of an attribute that contains attributes.
const NLA_F_NESTED: u16 = 1 << 15;

// Attribute numbers.
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_MARK: u16 = 8;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_TUPLE_IP: u16 = 1;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;

/// A connection in the kernel's table, in the direction of its first packet.
#[derive(Clone, PartialEq, Eq)]
pub struct Flow {
    /// The address that started the connection.
    pub src: IpAddr,
    /// The destination of the first packet, before any translation.
    pub dst: IpAddr,
    /// Source and destination of the answers, after all translation.
    pub reply: Option<(IpAddr, IpAddr)>,
    /// Mark of the connection, 0 without one.
    pub mark: u32,
    /// Addresses and ports in the kernel's format. Never empty, because a request without them would delete all
    /// connections.
    tuple: Vec<u8>,
    id: Option<[u8; 4]>,
    zone: Option<[u8; 2]>,
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.src, self.dst)
    }
}

impl Netfilter {
    /// The connections for which `wanted` is true, at most `most` of them.
    ///
    /// # Errors
    /// EINVAL or [`NetlinkError::is_unsupported`] if the kernel does not track connections or does not list them,
    /// [`NetlinkError::is_permission`].
    pub fn flows(
        &mut self,
        most: usize,
        wanted: impl Fn(&Flow) -> bool,
    ) -> Result<Vec<Flow>, NetlinkError> {
        let kind = NFNL_SUBSYS_CTNETLINK | IPCTNL_MSG_CT_GET;
        // Family 0 means all families.
        let body = Body::new(&[0; HEADER_SIZE]);
        let room = std::cell::Cell::new(most);
        let mut found = self.0.dump(kind, &body, "list the connections", |body| {
            let flow = parse(body).filter(|flow| room.get() > 0 && wanted(flow))?;
            room.set(room.get() - 1);
            Some(flow)
        })?;
        found.truncate(most);
        Ok(found)
    }

    /// Deletes a connection's entry: its next packet starts a new connection.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if the connection has ended meanwhile.
    pub fn forget_flow(&mut self, flow: &Flow) -> Result<(), NetlinkError> {
        let family = Family::of(flow.src).wire();
        let mut body = Body::new(&[family, 0, 0, 0]);
        body.push(CTA_TUPLE_ORIG | NLA_F_NESTED, &flow.tuple);
        if let Some(id) = flow.id {
            body.push(CTA_ID, &id);
        }
        if let Some(zone) = flow.zone {
            body.push(CTA_ZONE, &zone);
        }
        self.0.change(
            NFNL_SUBSYS_CTNETLINK | IPCTNL_MSG_CT_DELETE,
            &body,
            0,
            "forget connection",
            format_args!("{flow:?}"),
        )
    }
}

fn parse(body: &[u8]) -> Option<Flow> {
    let (mut tuple, mut reply, mut mark, mut id, mut zone) = (None, None, None, None, None);
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            CTA_TUPLE_ORIG => tuple = Some(value),
            CTA_TUPLE_REPLY => reply = Some(value),
            CTA_MARK => mark = decode_u32(value).map(u32::from_be),
            CTA_ID => id = value.try_into().ok(),
            CTA_ZONE => zone = value.try_into().ok(),
            _ => {}
        }
    }
    let tuple = tuple?;
    let (src, dst) = addresses(tuple)?;
    Some(Flow {
        src,
        dst,
        reply: reply.and_then(addresses),
        mark: mark.unwrap_or(0),
        tuple: tuple.to_vec(),
        id,
        zone,
    })
}

/// Source and destination address of a tuple.
fn addresses(tuple: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let (_, addresses) = attributes(tuple).find(|(kind, _)| *kind == CTA_TUPLE_IP)?;
    let address = |wanted: [u16; 2]| {
        let (_, value) = attributes(addresses).find(|(kind, _)| wanted.contains(kind))?;
        decode_ip(value)
    };
    Some((
        address([CTA_IP_V4_SRC, CTA_IP_V6_SRC])?,
        address([CTA_IP_V4_DST, CTA_IP_V6_DST])?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_told_by_its_first_packet() {
        let tuple = |src: [u8; 4], dst: [u8; 4]| {
            let addresses = Body::attributes()
                .with(CTA_IP_V4_SRC, &src)
                .with(CTA_IP_V4_DST, &dst);
            let mut tuple = Body::attributes();
            tuple.push_body(CTA_TUPLE_IP | NLA_F_NESTED, &addresses);
            tuple
        };
        let mut body = Body::new(&[2, 0, 0, 0]);
        let first = tuple([192, 168, 1, 2], [203, 0, 113, 9]);
        body.push_body(CTA_TUPLE_ORIG | NLA_F_NESTED, &first);
        let answer = tuple([203, 0, 113, 9], [198, 51, 100, 7]);
        body.push_body(CTA_TUPLE_REPLY | NLA_F_NESTED, &answer);
        body.push(CTA_ID, &[1, 2, 3, 4]);
        body.push(CTA_MARK, &[1, 0, 0, 7]);
        let flow = parse(&body.request(0, 0, 0)[16..]).unwrap();
        assert_eq!(format!("{flow:?}"), "192.168.1.2 to 203.0.113.9");
        assert_eq!((flow.id, flow.mark), (Some([1, 2, 3, 4]), 0x0100_0007));
        let answers = ([203, 0, 113, 9].into(), [198, 51, 100, 7].into());
        assert_eq!(flow.reply, Some(answers));
        assert!(!flow.tuple.is_empty());
    }

    #[test]
    fn what_has_no_addresses_is_no_flow() {
        assert_eq!(parse(&[2, 0, 0, 0]), None);
        let empty = Body::new(&[2, 0, 0, 0]).with(CTA_TUPLE_ORIG, &[]);
        assert_eq!(parse(&empty.request(0, 0, 0)[16..]), None);
        for length in 0..40 {
            assert_eq!(parse(&vec![0xff; length]), None);
        }
    }
}
