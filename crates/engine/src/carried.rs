//! Counts each line's traffic as its provider does: everything that went through its sockets and connections, in both
//! directions, of all peers.

use crate::stats::Counter;
use netio::udp::Family;
use plane::{LINES_MAX, LineId};

/// Bytes of UDP's header, and of IP's without options.
const UDP: u64 = 8;
const IPV4: u64 = 20;
const IPV6: u64 = 40;

/// Of so many bytes of a stream, TCP's and IP's headers, and the acknowledgements of the other direction, cost about one
/// more: 60 of 1,400.
const STREAM_SHARE: u64 = 24;

/// Bytes that lines have carried, by number.
#[derive(Debug, Default)]
pub(crate) struct Carried([Counter; LINES_MAX]);

impl Carried {
    /// So many datagrams of so many bytes together, without the headers of UDP and IP.
    pub(crate) fn datagrams(&self, line: LineId, family: Family, count: u64, bytes: u64) {
        let headers = match family {
            Family::V4 => IPV4 + UDP,
            Family::V6 => IPV6 + UDP,
        };
        self.add(line, count * headers + bytes);
    }

    /// So many bytes of a connection.
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
