//! The peers of an interface, found by an inner address.

use super::interface::Device;
use config::types::AllowedIp;
use std::collections::HashMap;
use std::net::IpAddr;

/// Ranges of all peers, with the place of their peer in the list.
#[derive(Debug, Default)]
pub(super) struct Table {
    owners: HashMap<AllowedIp, usize>,
    /// Prefix lengths in use, the longest first.
    lengths: Vec<u8>,
}

impl Table {
    pub(super) fn new(device: &Device) -> Self {
        let peers = device.peers.iter().enumerate();
        let owners: HashMap<AllowedIp, usize> = peers
            .flat_map(|(at, peer)| peer.allowed_ips.iter().map(move |range| (*range, at)))
            .collect();
        let mut lengths: Vec<u8> = owners.keys().map(AllowedIp::prefix).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        Self { owners, lengths }
    }

    /// The place of the peer that may send from this address.
    pub(super) fn owner(&self, source: IpAddr) -> Option<usize> {
        let ranges = self.lengths.iter();
        ranges
            .filter_map(|length| AllowedIp::new(source, *length).ok())
            .find_map(|range| self.owners.get(&range).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::companion::interface::Peer;

    #[test]
    fn the_longest_range_counts() {
        let peer = |ranges: &[&str]| Peer {
            allowed_ips: ranges.iter().map(|it| it.parse().unwrap()).collect(),
            ..Peer::default()
        };
        let device = Device {
            peers: vec![
                peer(&["10.0.0.2/32", "fd00::2/128"]),
                peer(&["10.0.0.0/8", "0.0.0.0/0"]),
                peer(&[]),
            ],
            ..Device::default()
        };
        let table = Table::new(&device);
        let owner = |source: &str| table.owner(source.parse().unwrap());
        assert_eq!(owner("10.0.0.2"), Some(0));
        assert_eq!(owner("10.0.0.3"), Some(1));
        assert_eq!(owner("192.0.2.1"), Some(1));
        assert_eq!(owner("fd00::2"), Some(0));
        assert_eq!(owner("fd00::3"), None);
        assert_eq!(Table::default().owner([10, 0, 0, 2].into()), None);
    }
}
