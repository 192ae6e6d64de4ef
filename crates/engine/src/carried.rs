//! Counts each line's traffic as its provider does: all bytes through its sockets and connections, both directions, all
//! peers.

use crate::stats::Counter;
use netio::udp::Family;
use plane::{LINES_MAX, LineId};

/// Bytes of the UDP header, and of IP headers without options.
const UDP: u64 = 8;
const IPV4: u64 = 20;
const IPV6: u64 = 40;

/// One byte in so many of a stream is added for TCP and IP headers and acknowledgements: 60 of 1,400.
const STREAM_SHARE: u64 = 24;

/// Bytes carried by each line, by line number.
#[derive(Debug, Default)]
pub(crate) struct Carried([Counter; LINES_MAX]);

impl Carried {
    /// Counts `count` datagrams of `bytes` bytes together, UDP and IP headers not included.
    pub(crate) fn datagrams(&self, line: LineId, family: Family, count: u64, bytes: u64) {
        let headers = match family {
            Family::V4 => IPV4 + UDP,
            Family::V6 => IPV6 + UDP,
        };
        self.add(line, count * headers + bytes);
    }

    /// Counts `bytes` bytes of a TCP connection.
    pub(crate) fn stream(&self, line: LineId, bytes: u64) {
        self.add(line, bytes + bytes / STREAM_SHARE);
    }

    fn add(&self, line: LineId, bytes: u64) {
        if let Some(counter) = self.0.get(line.index()) {
            counter.add(bytes);
        }
    }

    /// The sums so far.
    pub(crate) fn sums(&self) -> [u64; LINES_MAX] {
        std::array::from_fn(|at| self.0[at].value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_counted_as_each_family_has_them() {
        let carried = Carried::default();
        carried.datagrams(LineId(0), Family::V4, 2, 100);
        carried.datagrams(LineId(1), Family::V6, 1, 50);
        carried.stream(LineId(1), 2400);
        carried.datagrams(LineId(LINES_MAX as u8), Family::V4, 1, 1);
        let sums = carried.sums();
        assert_eq!((sums[0], sums[1]), (156, 98 + 2500));
        assert_eq!(sums.iter().sum::<u64>(), 156 + 98 + 2500);
    }
}
