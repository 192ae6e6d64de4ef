//! Neighbours: hosts on a link, with their IP and hardware addresses.

use std::net::IpAddr;
use std::time::Duration;

use super::request::Body;
use super::{Netlink, NetlinkError, attributes, decode_ip, decode_u32};

/// Bytes of `struct ndmsg`, linux/neighbour.h.
const HEADER_SIZE: usize = 12;

const RTM_GETNEIGH: u16 = 30;

// Attribute numbers of linux/neighbour.h.
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// `struct nda_cacheinfo`, whose first field tells when the neighbour was last confirmed.
const NDA_CACHEINFO: u16 = 3;

/// Ticks of the kernel's USER_HZ clock per second, the same for all programs.
const TICKS: u64 = 100;

/// A host on a link of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Index of the interface that the neighbour is on.
    pub index: u32,
    /// Its IP address.
    pub ip: IpAddr,
    /// Its hardware address.
    pub mac: Vec<u8>,
    /// Time since the kernel last confirmed it.
    pub idle: Duration,
}

impl Netlink {
    /// The neighbours whose hardware addresses are or were known.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`], or the kernel's error.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, NetlinkError> {
        let body = Body::new(&[0; HEADER_SIZE]);
        self.dump(RTM_GETNEIGH, &body, "list the neighbours", parse)
    }
}

fn parse(body: &[u8]) -> Option<Neighbour> {
    let index = decode_u32(body.get(4..)?)?;
    let (mut ip, mut mac, mut idle) = (None, Vec::new(), Duration::ZERO);
    for (kind, value) in attributes(body.get(HEADER_SIZE..)?) {
        match kind {
            NDA_DST => ip = decode_ip(value),
            NDA_LLADDR => mac = value.to_vec(),
            NDA_CACHEINFO => {
                idle = Duration::from_millis(u64::from(decode_u32(value)?) * 1000 / TICKS);
            }
            _ => {}
        }
    }
    let ip = ip.filter(|_| !mac.is_empty())?;
    Some(Neighbour {
        index,
        ip,
        mac,
        idle,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_has_both_addresses() {
        let mut header = [0; HEADER_SIZE];
        header[4..8].copy_from_slice(&7u32.to_ne_bytes());
        let body = Body::new(&header).with(NDA_DST, &[192, 168, 1, 9]);
        // The neighbour has not answered yet.
        assert_eq!(parse(&body.request(0, 0, 0)[16..]), None);
        let body = body.with(NDA_LLADDR, &[2, 0, 0, 0, 0, 9]);
        let body = body.with(NDA_CACHEINFO, &[250u32.to_ne_bytes(), [0; 4]].concat());
        let wanted = Neighbour {
            index: 7,
            ip: IpAddr::from([192, 168, 1, 9]),
            mac: vec![2, 0, 0, 0, 0, 9],
            idle: Duration::from_millis(2500),
        };
        assert_eq!(parse(&body.request(0, 0, 0)[16..]), Some(wanted));
        for length in 0..32 {
            assert_eq!(parse(&vec![0xff; length]), None);
        }
    }

    #[test]
    fn the_kernel_lists_them() {
        Netlink::open().unwrap().neighbours().unwrap();
    }
}
