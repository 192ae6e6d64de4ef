//! Counters of the data plane. All 64 bits on every machine, all relaxed: they are read for people.

use plane::AtomicU64;
use std::sync::atomic::Ordering;

/// A monotonic counter.
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

    /// The sum so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The value that was measured last.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Replaces it.
    #[inline]
    pub fn store(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The last value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The work of one direction.
#[derive(Debug, Default)]
pub struct PipelineStats {
    /// Batches drained.
    pub batches: Counter,
    /// Inner packets in them.
    pub packets: Counter,
    /// Inner bytes.
    pub bytes: Counter,
    /// Super-packets read from or written to the TUN.
    pub super_packets: Counter,
    /// Inner packets that the peer had compressed. Ours never are.
    pub unpacked: Counter,
    /// Reads, writes, sends and receives.
    pub syscalls: Counter,
    /// Batches that went through the ring, where several workers may share them.
    pub parallel_batches: Counter,
    /// How long packets have waited in the sockets lately, on average by bytes, in microseconds; 0 where that is not known.
    pub waited: Gauge,
}

macro_rules! drops {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Packets dropped, by reason.
        #[derive(Debug, Default)]
        pub struct Drops {
            $($(#[doc = $doc])+ pub $name: Counter,)+
        }

        impl Drops {
            /// Every reason with its count, in the order of a packet's way.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name.value()),)+].into_iter()
            }
        }
    };
}

drops! {
    /// The TUN gave something that is not an IP packet or contradicts its own header.
    tun_malformed,
    /// The fair queue in front of the lines was full, or packets of a flow had stood in it for too long (RFC 8290).
    queue,
    /// No peer owns the destination.
    no_route,
    /// The peer's address is not known.
    no_endpoint,
    /// Pushed out of a peer's full queue, or purged, before there was a session.
    staged,
    /// The tunnel's own datagram came back into it: its endpoint is routed into the tunnel.
    looped,
    /// Sealed, it would be longer than a record of a TCP connection can be (65,535 bytes).
    too_long,
    /// The kernel refused a datagram, or had no room for it.
    send_failed,
    /// The peer at the other end of a TCP connection reads too slowly.
    stream_full,
    /// A datagram was longer than the receive buffer.
    truncated,
    /// Not a message of the protocol.
    not_ours,
    /// A handshake message that came faster than handshakes can be answered.
    handshake_queue_full,
    /// No session of that name (any more).
    no_session,
    /// The session is past its end.
    expired,
    /// The tag was wrong.
    not_authentic,
    /// Authentic, but its number was received before: the network or a second line delivered it twice, or it was
    /// recorded and sent again. Of a peer with several lines also what is older than the replay window reaches.
    duplicate,
    /// Authentic, but its number is older than the replay window reaches: very late, or recorded and sent again.
    replayed,
    /// Authentic, but from an address that the peer may not move to.
    wrong_address,
    /// Authentic, but compressed where that is not allowed, or into what does not unpack to a packet.
    compressed,
    /// Authentic, but not an IP packet.
    inner_malformed,
    /// Authentic, but its source address belongs to another peer.
    wrong_source,
    /// Congestion was marked on a packet whose transport does not know the mark (RFC 6040).
    congestion,
    /// A TCP segment that told its sender to send slower, because packets waited in the sockets for too long (RFC 7567).
    aqm,
    /// The TUN did not take a packet.
    tun_write,
}
