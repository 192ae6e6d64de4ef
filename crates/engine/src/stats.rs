//! Counters of the data plane. All are 64 bits wide on every machine and use relaxed ordering, because only people read
//! them.
//! [`LineCounters`] are those of one line of a peer; [`Carried`] counts each line's traffic as its provider does: all
//! bytes through its sockets and connections, both directions, all peers.

use std::sync::atomic::Ordering;

use netio::udp::Family;
use plane::{AtomicU64, LINES_MAX, LineCounts, LineId, OrderCounts, PipelineCounts};

/// A counter, or a value that was measured last.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        if n != 0 {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Replaces the value.
    #[inline]
    pub fn store(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The sum so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($(#[$about:meta])+ $vis:vis struct $name:ident => $counts:ident {
        $($(#[$doc:meta])* $field:ident,)+
    }) => {
        $(#[$about])+
        #[derive(Debug, Default)]
        $vis struct $name {
            $($(#[$doc])* $vis $field: Counter,)+
        }

        impl $name {
            /// The sums so far.
            pub(crate) fn counts(&self) -> $counts {
                $counts { $($field: self.$field.value(),)+ }
            }
        }
    };
}

macro_rules! pipeline_stats {
    ($($(#[$doc:meta])+ $name:ident, metric $metric:literal;)+) => {
        counters! {
            /// Counters of one direction.
            pub struct PipelineStats => PipelineCounts {
                $($(#[$doc])+ $name,)+
            }
        }
    };
}

plane::pipeline_counters!(pipeline_stats);

counters! {
    /// The counters of one line of a peer.
    pub(crate) struct LineCounters => LineCounts {
        sent,
        sent_bytes,
        received_bytes,
        accepted,
        late,
        buffered,
        duplicated,
        ancient,
    }
}

counters! {
    /// The counters of a peer's reordering, over all lines and sessions.
    pub(crate) struct OrderCounters => OrderCounts {
        given_up,
        decided,
        waiting,
        accepted,
        late,
        received,
        asked,
        repaired,
    }
}

macro_rules! drops {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Packets dropped, by reason.
        #[derive(Debug, Default)]
        pub struct Drops {
            $($(#[doc = $doc])+ pub $name: Counter,)+
        }

        impl Drops {
            /// Every reason with its count, in the order in which a packet meets them.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name.value()),)+].into_iter()
            }
        }
    };
}

drops! {
    /// The TUN gave data that is not an IP packet, contradicts its own header, or has more segments than fit a batch.
    tun_malformed,
    /// The fair queue in front of the lines was full, or packets of a flow had waited in it too long (RFC 8290).
    queue,
    /// No peer owns the destination.
    no_route,
    /// The peer's address is not known.
    no_endpoint,
    /// Pushed out of a peer's full staging queue, or purged, before there was a session.
    staged,
    /// The tunnel's own datagram came back into it: its endpoint is routed into the tunnel.
    looped,
    /// The sealed packet would exceed the longest record of a TCP connection (65,535 bytes).
    too_long,
    /// The kernel refused a datagram, or had no room for it.
    send_failed,
    /// The peer at the other end of a TCP connection reads too slowly.
    stream_full,
    /// A datagram was longer than the receive buffer.
    truncated,
    /// Not a message of the protocol.
    not_ours,
    /// Handshake messages arrived faster than they can be answered.
    handshake_queue_full,
    /// No session has this name, or no longer.
    no_session,
    /// The session is past its end.
    expired,
    /// The tag was wrong.
    not_authentic,
    /// Authentic, but its number was received before: delivered twice through the network or a second line, or recorded
    /// and replayed. With several lines, this includes packets older than the replay window.
    duplicate,
    /// Authentic, but its number is older than the replay window: very late, or recorded and replayed.
    replayed,
    /// Authentic, but from an address that the peer may not move to.
    wrong_address,
    /// Authentic, but compressed where compression is not allowed, or its contents do not decompress to a packet.
    compressed,
    /// Authentic, but not an IP packet.
    inner_malformed,
    /// Authentic, but its source address belongs to another peer.
    wrong_source,
    /// Congestion was marked on a packet whose transport does not know the mark (RFC 6040).
    congestion,
    /// A TCP segment dropped to make its sender slow down, because packets waited in the sockets too long (RFC 7567).
    aqm,
    /// The TUN refused a packet.
    tun_write,
}

/// Bytes of the UDP header, and of IP headers without options.
const UDP: u64 = 8;
const IPV4: u64 = 20;
const IPV6: u64 = 40;

/// Bytes of a stream for which one byte is added for TCP and IP headers and acknowledgements: 60 for 1,400.
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

impl LineCounters {
    /// Counts sent packets.
    pub(crate) fn note_sent(&self, packets: u64, bytes: u64) {
        self.sent.add(packets);
        self.sent_bytes.add(bytes);
    }

    /// Counts received packets: adds the receive fields of `counts`.
    pub(crate) fn note_received(&self, counts: &LineCounts) {
        self.received_bytes.add(counts.received_bytes);
        self.accepted.add(counts.accepted);
        self.late.add(counts.late);
        self.buffered.add(counts.buffered);
        self.duplicated.add(counts.duplicated);
        self.ancient.add(counts.ancient);
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
