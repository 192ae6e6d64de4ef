//! Holding packets back in front of lines that are the bottleneck, so that they wait here, where their flows are known.

use crate::ip::{IpPacket, set_ecn};
use crate::shared::{Shared, tun_is_gone};
use lines::inner::Reader;
use lines::queue::{Queue, Settings};
use netio::tun::{VNET_HDR_LEN, VnetHdr};
use netio::udp::{Ecn, TRAIN_ROOM};
use plane::Wire;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// What a datagram costs a line beyond its own bytes: Ethernet's, IP's and UDP's headers.
const OUTER: [usize; 2] = [14 + 20 + 8, 14 + 40 + 8];

/// What may be sent at once after nothing could be: the worker may have had packets of the other direction to open.
const BURST: Duration = Duration::from_millis(10);

/// A packet that waits, with the kernel's header of it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) hdr: VnetHdr,
    pub(crate) packet: Box<[u8]>,
}

/// The queue of the worker that reads the TUN. It is there only while lines have a rate.
pub(crate) struct Shaper {
    queue: Queue<Held>,
    reader: Reader,
    /// Where packets are read to.
    buffer: Box<[u8]>,
    /// Of the packets that were dropped, those that were told.
    told: u64,
}

impl Shaper {
    /// An empty queue for lines that carry `rate` bits a second together, headers included.
    pub(crate) fn new<W: Wire>(rate: u64) -> Self {
        let settings = Settings {
            rate: Some(rate),
            // For whose turn it is. What a packet has cost is known when it is laid out.
            overhead: W::HEAD_MAX + W::TAIL_MAX + OUTER[0],
            burst: BURST,
            ..Settings::default()
        };
        Self {
            queue: Queue::new(settings),
            reader: Reader::new(RandomState::new().hash_one(0_u8)),
            buffer: vec![0; VNET_HDR_LEN + TRAIN_ROOM].into_boxed_slice(),
            told: 0,
        }
    }

    /// The lines have another rate. `None`: what waits goes at once.
    pub(crate) fn follow(&mut self, rate: Option<u64>) {
        if self.rate() != rate {
            self.queue.set_rate(rate);
        }
    }

    /// Bits a second that it holds packets back to.
    pub(crate) const fn rate(&self) -> Option<u64> {
        self.queue.rate()
    }

    /// Whether packets have to pass through it.
    pub(crate) const fn engaged(&self) -> bool {
        self.queue.engaged()
    }

    /// When the next packet may go.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        self.queue.next_deadline(now)
    }

    /// Reads one packet of the TUN into the queue. Returns whether another may be there.
    ///
    /// # Errors
    /// The interface was deleted.
    pub(crate) fn read<W: Wire>(&mut self, shared: &Shared<W>, now: Instant) -> Result<bool, Gone> {
        let vnet = if shared.tun.vnet_hdr() {
            VNET_HDR_LEN
        } else {
            0
        };
        let len = match shared.tun.read(&mut self.buffer) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) if tun_is_gone(&error) => return Err(Gone),
            // Nothing waits, or the interface is down.
            Err(_) => return Ok(false),
        };
        let (hdr, packet) = self.buffer[..len].split_at(vnet.min(len));
        let hdr = match <&[u8; VNET_HDR_LEN]>::try_from(hdr) {
            Ok(hdr) => VnetHdr::parse(hdr),
            Err(_) if vnet == 0 => Some(VnetHdr::NONE),
            Err(_) => None,
        };
        // A header that is not there whole must not be marked either.
        let inner = IpPacket::parse(packet).and_then(|_| self.reader.read(packet));
        match (hdr, inner) {
            (Some(hdr), Some(inner)) => {
                let packet = packet.into();
                self.queue.push(Held { hdr, packet }, &inner, now);
            }
            _ => shared.drops.tun_malformed.add(1),
        }
        Ok(true)
    }

    /// The next packet, if one may go.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Held> {
        let popped = self.queue.pop(now)?;
        let mut held = popped.packet;
        if popped.mark {
            set_ecn(&mut held.packet, Ecn::Ce);
        }
        Some(held)
    }

    /// What was taken out last has become so many datagrams of so many bytes together; none if it goes nowhere.
    pub(crate) fn settle(&mut self, datagrams: usize, bytes: usize, v6: bool) {
        self.queue
            .settle(datagrams * OUTER[usize::from(v6)] + bytes);
    }

    /// How many packets were dropped since this was last asked.
    pub(crate) fn dropped(&mut self) -> u64 {
        let counters = self.queue.counters();
        let all = counters.dropped + counters.overflowed;
        all - std::mem::replace(&mut self.told, all)
    }
}

/// The interface is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::UDP;
    use crate::ip::tests::ipv4;
    use crate::key::tests::{Deaf, PlainWire};
    use netio::tun::Tun;
    use std::os::unix::net::UnixDatagram;
    use std::sync::Arc;

    const MEGABIT: u64 = 1_000_000;

    /// An interface, its other side, and a queue for a line of a megabit.
    struct World {
        shared: Shared<PlainWire>,
        host: UnixDatagram,
        shaper: Shaper,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            let (tun, host) = Tun::simulated().unwrap();
            Self {
                shared: Shared::new(tun, PlainWire, Arc::new(Deaf), 1500, 64, false),
                host,
                shaper: Shaper::new::<PlainWire>(MEGABIT),
                now: Instant::now(),
            }
        }

        /// The host sends a packet from this port, of so many bytes behind the headers.
        fn sends(&mut self, port: u8, bytes: usize, ecn: Ecn) {
            let mut payload = vec![0; 8 + bytes];
            payload[1] = port;
            let mut packet = ipv4([10, 0, 0, 1], [10, 0, 0, 2], UDP, &payload);
            set_ecn(&mut packet, ecn);
            let packet = [&VnetHdr::NONE.emit()[..], &packet].concat();
            self.host.send(&packet).unwrap();
            assert_eq!(self.shaper.read(&self.shared, self.now), Ok(true));
        }

        /// The port and ECN field of the next packet, when it may go.
        fn leaves(&mut self) -> Option<(u8, Ecn)> {
            loop {
                self.now = self.shaper.deadline(self.now)?;
                if let Some(held) = self.shaper.pop(self.now) {
                    let ecn = IpPacket::parse(&held.packet).unwrap().ecn;
                    return Some((held.packet[21], ecn));
                }
            }
        }
    }

    #[test]
    fn a_call_does_not_wait_for_a_download() {
        let mut world = World::new();
        for _ in 0..100 {
            world.sends(1, 1400, Ecn::NotEct);
        }
        assert_eq!(world.leaves().unwrap().0, 1);
        world.sends(2, 160, Ecn::NotEct);
        assert_eq!(world.leaves().unwrap().0, 2);
        assert_eq!(world.leaves().unwrap().0, 1);
    }

    #[test]
    fn packets_leave_as_fast_as_the_line_takes_them() {
        let mut world = World::new();
        for _ in 0..50 {
            // What stands for too long is marked and not dropped.
            world.sends(1, 1000, Ecn::Ect0);
        }
        let start = world.now;
        assert_eq!(std::iter::from_fn(|| world.leaves()).count(), 50);
        // The last one leaves when the line has sent those before it.
        let bytes = 49 * (1000 + 28 + OUTER[0]) as u64;
        let wanted = Duration::from_micros(bytes * 8);
        let found = world.now - start;
        assert!(found <= wanted && found + BURST >= wanted);

        // A worker that comes late makes up for it, up to a bound.
        for _ in 0..50 {
            world.sends(1, 1000, Ecn::Ect0);
        }
        world.leaves();
        world.now += Duration::from_millis(500);
        let now = world.now;
        let at_once = std::iter::from_fn(|| world.shaper.pop(now)).count();
        assert_eq!(
            at_once, 2,
            "ten milliseconds' worth, and the one that begins now"
        );
    }

    #[test]
    fn a_packet_costs_what_it_has_become() {
        let mut world = World::new();
        for _ in 0..3 {
            world.sends(1, 1000, Ecn::NotEct);
        }
        let start = world.now;
        world.leaves();
        world.shaper.settle(1, 1158, true);
        let wait = world.shaper.deadline(start).unwrap() - start;
        assert_eq!(wait, Duration::from_micros((1158 + 62) * 8));
        world.leaves();
        let second = world.now;
        world.shaper.settle(0, 0, false);
        assert_eq!(
            world.shaper.deadline(second),
            Some(second),
            "it went nowhere"
        );
    }

    #[test]
    fn a_standing_queue_is_told_by_marks_and_by_drops_which_are_counted() {
        let mut world = World::new();
        for _ in 0..200 {
            world.sends(1, 1400, Ecn::Ect0);
        }
        let all: Vec<_> = std::iter::from_fn(|| world.leaves()).collect();
        assert_eq!((all.len(), world.shaper.dropped()), (200, 0));
        assert!(all.contains(&(1, Ecn::Ce)));
        for _ in 0..200 {
            world.sends(1, 1400, Ecn::NotEct);
        }
        let all = std::iter::from_fn(|| world.leaves()).count() as u64;
        let dropped = world.shaper.dropped();
        assert!(dropped > 0);
        assert_eq!(all + dropped, 200);
        assert_eq!(world.shaper.dropped(), 0, "they were told");
    }

    #[test]
    fn what_waits_goes_at_once_where_the_rate_is_no_more() {
        let mut world = World::new();
        for _ in 0..20 {
            world.sends(1, 1400, Ecn::NotEct);
        }
        world.leaves();
        world.shaper.follow(None);
        assert!(world.shaper.engaged());
        let now = world.now;
        assert_eq!(std::iter::from_fn(|| world.shaper.pop(now)).count(), 19);
        assert!(!world.shaper.engaged());
    }

    #[test]
    fn what_is_no_packet_is_dropped_and_counted() {
        let mut world = World::new();
        let mut short = [0x4f; VNET_HDR_LEN + 30];
        short[..VNET_HDR_LEN].fill(0);
        for bytes in [&[][..], &[0; 3], &[0; VNET_HDR_LEN], &short] {
            world.host.send(bytes).unwrap();
            assert_eq!(world.shaper.read(&world.shared, world.now), Ok(true));
        }
        assert_eq!(world.shared.drops.tun_malformed.value(), 4);
        assert_eq!(world.shaper.deadline(world.now), None);
        assert_eq!(world.shaper.read(&world.shared, world.now), Ok(false));
    }
}
