//! Masquerading, by an nftables table of this program's own: `inet NAME` with one chain.
//!
//! One transaction makes the whole table or nothing, and replaces a table of the same name; deleting a table deletes
//! its content. Other tables stay untouched. Rules match addresses, not the incoming interface, which the kernel only
//! reports after routing since 5.7. Chains that translate both families need 5.2.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

use super::request::Body;
use super::{BUFFER_SIZE, NetlinkError, decode_u32, hint, messages, receive, retry};
use crate::udp::socket::set_buffers;

// linux/netfilter/nfnetlink.h
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `NFNL_SUBSYS_NFTABLES`
const SUBSYSTEM: u16 = 10;

// linux/netfilter/nf_tables.h: messages
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const DELETE_TABLE: u16 = SUBSYSTEM << 8 | 2;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;

/// `NFPROTO_INET`: both families.
const INET: u8 = 1;
/// `NFPROTO_IPV4` and `NFPROTO_IPV6`, as a rule sees the family of a packet.
const PROTOCOLS: [u8; 2] = [2, 10];
/// `NF_INET_POST_ROUTING`
const POST_ROUTING: u32 = 4;
/// `NF_IP_PRI_NAT_SRC`
const SOURCE_NAT: u32 = 100;
/// `NFT_REG_1`: 16 bytes.
const REGISTER: u32 = 1;
/// `NFT_META_OIFNAME` and `NFT_META_NFPROTO`
const META_OUT_NAME: u32 = 7;
const META_PROTOCOL: u32 = 15;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
/// `NFT_RETURN`
const RETURN: i32 = -5;
/// `IFNAMSIZ`
const NAME_SIZE: usize = 16;
/// Flag of an attribute that contains attributes.
const NESTED: u16 = 0x8000;

/// Name of the single chain in a [`Masquerade`] table.
pub const CHAIN: &str = "postrouting";

/// Packets from some networks leave with the host's own address.
#[derive(Clone, Copy, Debug)]
pub struct Masquerade<'a> {
    /// Name of the nftables table.
    pub table: &'a str,
    /// The interface that leads to those networks: packets that leave through it keep their source address.
    pub interface: &'a str,
    /// The networks, each with the bits of its prefix.
    pub sources: &'a [(IpAddr, u8)],
    /// Destinations for which packets keep their source address.
    pub except: &'a [(IpAddr, u8)],
}

/// Makes the table, and replaces an existing one of that name.
///
/// # Errors
/// [`NetlinkError::Open`] for a kernel without nftables, [`NetlinkError::Refused`] for one without NAT, or without
/// CAP_NET_ADMIN.
pub fn set(wanted: &Masquerade<'_>) -> Result<(), NetlinkError> {
    let table = || text(1, wanted.table);
    let mut chain = text(1, wanted.table);
    chain.push_text(3, CHAIN);
    let mut hook = Body::attributes();
    hook.push(1, &POST_ROUTING.to_be_bytes());
    hook.push(2, &SOURCE_NAT.to_be_bytes());
    chain.push_body(4 | NESTED, &hook);
    chain.push_text(7, "nat");
    let mut requests = vec![
        // Ensures that there is a table to delete.
        (NEW_TABLE, NLM_F_CREATE, table()),
        (DELETE_TABLE, 0, table()),
        (NEW_TABLE, NLM_F_CREATE, table()),
        (NEW_CHAIN, NLM_F_CREATE, chain),
    ];
    for except in wanted.except {
        let mut rule = Expressions::of_family(except.0);
        rule.address_in(Side::Destination, *except);
        rule.verdict(RETURN);
        requests.push(rule.request(wanted.table));
    }
    for source in wanted.sources {
        let mut rule = Expressions::of_family(source.0);
        rule.address_in(Side::Source, *source);
        rule.meta(META_OUT_NAME);
        let mut name = [0; NAME_SIZE];
        let length = wanted.interface.len().min(NAME_SIZE - 1);
        name[..length].copy_from_slice(&wanted.interface.as_bytes()[..length]);
        rule.compare(NOT_EQUAL, &name);
        rule.push("masq", &Body::attributes());
        requests.push(rule.request(wanted.table));
    }
    transaction(requests, "make the table", format_args!("{}", wanted.table))
}

/// Deletes a table of the family `inet` with its content.
///
/// # Errors
/// [`NetlinkError::is_not_found`] if there is none.
pub fn unset(name: &str) -> Result<(), NetlinkError> {
    let requests = vec![(DELETE_TABLE, 0, text(1, name))];
    transaction(requests, "delete the table", format_args!("{name}"))
}

/// A message body: the header `struct nfgenmsg`, and one text.
fn text(kind: u16, text: &str) -> Body {
    let mut body = Body::new(&[INET, 0, 0, 0]);
    body.push_text(kind, text);
    body
}

/// Sends requests that the kernel does all together or not at all, and waits for the answer.
fn transaction(
    requests: Vec<(u16, u16, Body)>,
    operation: &'static str,
    object: fmt::Arguments<'_>,
) -> Result<(), NetlinkError> {
    let mut socket = Socket::new(NETLINK_NETFILTER).map_err(NetlinkError::Open)?;
    socket.bind_auto().map_err(NetlinkError::Open)?;
    let kernel = SocketAddr::new(0, 0);
    socket.connect(&kernel).map_err(NetlinkError::Open)?;
    let _ = socket.set_ext_ack(true);
    let _ = socket.set_cap_ack(true);
    let [high, low] = SUBSYSTEM.to_be_bytes();
    let edge = Body::new(&[0, 0, high, low]);
    let mut bytes = edge.request(BATCH_BEGIN, 0, 0);
    let last = requests.len() as u32;
    for (sequence, (kind, flags, body)) in (1..).zip(requests) {
        // The kernel reports errors unasked. It acknowledges only the last request, once all are done.
        let ack = if sequence == last { NLM_F_ACK } else { 0 };
        bytes.extend_from_slice(&body.request(kind, flags | ack, sequence));
    }
    bytes.extend_from_slice(&edge.request(BATCH_END, 0, last + 1));
    let socket_error = |error| NetlinkError::Socket {
        operation,
        object: object.to_string(),
        error,
    };
    // The kernel takes no message longer than the buffer: an office with 500 networks behind branches needs more.
    set_buffers(&socket, bytes.len().max(1 << 18));
    retry(|| socket.send(&bytes, 0)).map_err(socket_error)?;
    let mut buffer = vec![0; BUFFER_SIZE];
    loop {
        let length = receive(&socket, &mut buffer).map_err(socket_error)?;
        for message in messages(&buffer[..length]) {
            let message = message.map_err(|reason| NetlinkError::Answer {
                operation,
                object: object.to_string(),
                reason,
            })?;
            if message.message_type() != netlink_packet_core::NLMSG_ERROR {
                continue;
            }
            let body = message.payload();
            let code = decode_u32(body).map_or(0, u32::cast_signed);
            if code != 0 {
                return Err(NetlinkError::Refused {
                    operation,
                    object: object.to_string(),
                    error: std::io::Error::from_raw_os_error(code.saturating_abs()),
                    hint: hint(message.flags(), body).unwrap_or_default(),
                });
            }
            if message.sequence_number() == last {
                return Ok(());
            }
        }
    }
}

/// Selects the source or destination address of a packet.
#[derive(Clone, Copy)]
enum Side {
    Source,
    Destination,
}

/// The expressions of a rule, in order: each loads or compares the register, or ends the rule.
struct Expressions(Body);

impl Expressions {
    /// Starts a rule for packets of the address's family.
    fn of_family(addr: IpAddr) -> Self {
        let mut rule = Self(Body::attributes());
        rule.meta(META_PROTOCOL);
        rule.compare(EQUAL, &[PROTOCOLS[usize::from(addr.is_ipv6())]]);
        rule
    }

    fn push(&mut self, name: &str, data: &Body) {
        let mut expression = Body::attributes();
        expression.push_text(1, name);
        expression.push_body(2 | NESTED, data);
        self.0.push_body(1 | NESTED, &expression);
    }

    fn meta(&mut self, key: u32) {
        let mut data = Body::attributes();
        data.push(1, &REGISTER.to_be_bytes());
        data.push(2, &key.to_be_bytes());
        self.push("meta", &data);
    }

    fn compare(&mut self, operation: u32, value: &[u8]) {
        let mut data = Body::attributes();
        data.push(1, &REGISTER.to_be_bytes());
        data.push(2, &operation.to_be_bytes());
        data.push_body(3 | NESTED, &Body::attributes().with(1, value));
        self.push("cmp", &data);
    }

    fn address_in(&mut self, side: Side, (addr, prefix): (IpAddr, u8)) {
        let (octets, [source, destination]) = match addr {
            IpAddr::V4(addr) => (addr.octets().to_vec(), [12_u32, 16]),
            IpAddr::V6(addr) => (addr.octets().to_vec(), [8, 24]),
        };
        let offset = match side {
            Side::Source => source,
            Side::Destination => destination,
        };
        let length = octets.len() as u32;
        let mask: Vec<u8> = (0..octets.len())
            .map(|at| {
                let bits = usize::from(prefix).saturating_sub(at * 8).min(8);
                !(0xff_u16 >> bits) as u8
            })
            .collect();
        let mut load = Body::attributes();
        load.push(1, &REGISTER.to_be_bytes());
        // Offset from the network header (`NFT_PAYLOAD_NETWORK_HEADER`).
        load.push(2, &1_u32.to_be_bytes());
        load.push(3, &offset.to_be_bytes());
        load.push(4, &length.to_be_bytes());
        self.push("payload", &load);
        let mut bits = Body::attributes();
        bits.push(1, &REGISTER.to_be_bytes());
        bits.push(2, &REGISTER.to_be_bytes());
        bits.push(3, &length.to_be_bytes());
        bits.push_body(4 | NESTED, &Body::attributes().with(1, &mask));
        let zero = vec![0; octets.len()];
        bits.push_body(5 | NESTED, &Body::attributes().with(1, &zero));
        self.push("bitwise", &bits);
        let network: Vec<u8> = octets.iter().zip(&mask).map(|(a, m)| a & m).collect();
        self.compare(EQUAL, &network);
    }

    fn verdict(&mut self, code: i32) {
        let verdict = Body::attributes().with(1, &code.to_be_bytes());
        let mut value = Body::attributes();
        value.push_body(2 | NESTED, &verdict);
        let mut data = Body::attributes();
        // The verdict register.
        data.push(1, &0_u32.to_be_bytes());
        data.push_body(2 | NESTED, &value);
        self.push("immediate", &data);
    }

    fn request(self, table: &str) -> (u16, u16, Body) {
        let mut body = text(1, table);
        body.push_text(2, CHAIN);
        body.push_body(4 | NESTED, &self.0);
        (NEW_RULE, NLM_F_CREATE | NLM_F_APPEND, body)
    }
}
