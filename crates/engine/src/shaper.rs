//! Holding packets back in front of lines that are the bottleneck, so that they wait here, where their flows are known.

mod lane;
#[cfg(test)]
mod tests;

use crate::ip::{IpPacket, set_ecn};
use crate::rates::Rates;
use crate::shared::{Shared, tun_is_gone};
use lane::Lane;
use lines::inner::Reader;
use lines::queue::{Popped, Queue, Settings};
use netio::tun::{VNET_HDR_LEN, VnetHdr};
use netio::udp::{Ecn, TRAIN_ROOM};
use plane::{LINES_MAX, LineId, Wire};
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// The cost of a datagram for a line beyond its own bytes: Ethernet's, IP's and UDP's headers.
const OUTER: [usize; 2] = [14 + 20 + 8, 14 + 40 + 8];

/// The time of packets that may be sent at once after a pause: the worker may have had packets of the other direction
/// to open.
const BURST: Duration = Duration::from_millis(10);

/// A packet that waits, with the kernel's header of it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) hdr: VnetHdr,
    pub(crate) packet: Box<[u8]>,
}

/// The queues of the worker that reads the TUN. They are there only while lines have rates.
pub(crate) struct Shaper {
    /// Packets that may go by any line; where each has a rate of its own, packets for one only wait there.
    queue: Queue<Held>,
    /// Lines that have rates of their own.
    lanes: Vec<Lane>,
    settings: Settings,
    reader: Reader,
    /// Where packets are read to.
    buffer: Box<[u8]>,
    /// The number of the rates that are followed.
    word: u64,
    /// Packets that were dropped in queues that are no more.
    dropped: u64,
    /// Of the packets that were dropped, those that were told.
    told: u64,
}

impl Shaper {
    /// Empty queues, which follow no rates yet.
    pub(crate) fn new<W: Wire>() -> Self {
        let settings = Settings {
            // For whose turn it is. What a packet has cost is known when it is laid out.
            overhead: W::HEAD_MAX + W::TAIL_MAX + OUTER[0],
            burst: BURST,
            ..Settings::default()
        };
        Self {
            queue: Queue::new(settings),
            lanes: Vec::new(),
            settings,
            reader: Reader::new(RandomState::new().hash_one(0_u8)),
            buffer: vec![0; VNET_HDR_LEN + TRAIN_ROOM].into_boxed_slice(),
            word: 0,
            dropped: 0,
            told: 0,
        }
    }

    /// The lines have these rates, headers included. Without any, what waits goes at once.
    pub(crate) fn follow(&mut self, (rates, word): (Rates, u64)) {
        self.word = word;
        let (each, together) = match rates {
            Rates::None => ([0; LINES_MAX], None),
            Rates::Together(rate) => ([0; LINES_MAX], Some(rate)),
            Rates::Each(each) => (each, None),
        };
        if self.queue.rate() != together {
            self.queue.set_rate(together);
        }
        let numbered = (0..).map(LineId).zip(each);
        let wanted: Vec<(LineId, u64)> = numbered.filter(|(_, rate)| *rate > 0).collect();
        let rate_of = |line| wanted.iter().find(|it| it.0 == line).map(|it| it.1);
        // Packets that wait for a line that is not used any more go by another.
        let (stay, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.lanes)
            .into_iter()
            .partition(|lane| rate_of(lane.line).is_some());
        self.lanes = stay;
        for lane in gone {
            self.take_back(lane);
        }
        for lane in &mut self.lanes {
            let rate = rate_of(lane.line);
            if lane.pacer.rate() != rate {
                lane.pacer.set_rate(rate);
                lane.queue.set_carries(rate);
            }
        }
        // Together, and beside the common queue, they hold no more than one would.
        let shares = wanted.len() + 1;
        let settings = Settings {
            packets_max: self.settings.packets_max / shares,
            bytes_max: self.settings.bytes_max / shares,
            ..self.settings
        };
        for (line, rate) in wanted {
            if self.lanes.iter().all(|lane| lane.line != line) {
                self.lanes.push(Lane::new(line, rate, settings));
            }
        }
        let sum = self.lanes.iter().filter_map(|lane| lane.pacer.rate());
        let sum = sum.fold(0, u64::saturating_add);
        self.queue.set_carries(Some(sum).filter(|sum| *sum > 0));
    }

    /// Packets of a line that is not used any more wait for any. They begin to wait anew.
    fn take_back(&mut self, mut lane: Lane) {
        let now = Instant::now();
        while let Some(popped) = lane.queue.pop(now) {
            let held = marked(popped);
            if let Some(inner) = self.reader.read(&held.packet) {
                self.queue.push(held, &inner, now);
            }
        }
        self.dropped += dropped(&lane.queue);
    }

    /// The number of the rates that are followed; 0 for none.
    pub(crate) const fn word(&self) -> u64 {
        self.word
    }

    /// Whether packets have to pass through it.
    pub(crate) fn engaged(&self) -> bool {
        self.queue.engaged() || !self.lanes.is_empty()
    }

    /// When the next packet may go.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.lanes.is_empty() {
            return self.queue.next_deadline(now);
        }
        let any = self.queue.waiting().0 > 0;
        let lanes = self.lanes.iter();
        let waits = lanes.filter(|lane| any || lane.queue.waiting().0 > 0);
        waits.map(|lane| lane.free_at(now)).min()
    }

    /// Reads one packet of the TUN into a queue; `line_of` says by which line it goes, if by one only. Returns whether
    /// another may be there.
    ///
    /// # Errors
    /// The interface was deleted.
    pub(crate) fn read<W: Wire>(
        &mut self,
        shared: &Shared<W>,
        now: Instant,
        line_of: impl FnOnce(&[u8]) -> Option<LineId>,
    ) -> Result<bool, Gone> {
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
                let line = match self.lanes.is_empty() {
                    true => None,
                    false => line_of(packet),
                };
                let mut lanes = self.lanes.iter_mut();
                let lane = line.and_then(|line| lanes.find(|lane| lane.line == line));
                let queue = lane.map_or(&mut self.queue, |lane| &mut lane.queue);
                let packet = packet.into();
                queue.push(Held { hdr, packet }, &inner, now);
            }
            _ => shared.drops.tun_malformed.add(1),
        }
        Ok(true)
    }

    /// The next packet, if one may go, and the line whose turn it is, if lines have turns.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Held, Option<LineId>)> {
        if self.lanes.is_empty() {
            return Some((marked(self.queue.pop(now)?), None));
        }
        let Self { lanes, queue, .. } = self;
        lanes.sort_unstable_by_key(Lane::idle_since);
        for lane in lanes.iter_mut().filter(|lane| lane.pacer.is_idle(now)) {
            // Packets that can go by this line only come first: calls, where packets are shared out.
            let popped = lane.queue.pop(now).or_else(|| queue.pop(now));
            if let Some(popped) = popped {
                return Some((marked(popped), Some(lane.line)));
            }
        }
        None
    }

    /// Charges the last packet as so many datagrams of so many bytes together, by this line and IP version 6 or 4; none
    /// if it goes nowhere.
    pub(crate) fn settle(
        &mut self,
        (line, v6): (LineId, bool),
        datagrams: usize,
        bytes: usize,
        now: Instant,
    ) {
        let bytes = datagrams * OUTER[usize::from(v6)] + if datagrams > 0 { bytes } else { 0 };
        if self.lanes.is_empty() {
            self.queue.settle(bytes);
        } else if datagrams > 0
            && let Some(lane) = self.lanes.iter_mut().find(|lane| lane.line == line)
        {
            lane.pacer.occupy(bytes, now);
        }
    }

    /// How many packets were dropped since this was last asked.
    pub(crate) fn dropped(&mut self) -> u64 {
        let lanes = self.lanes.iter().map(|lane| dropped(&lane.queue));
        let all = self.dropped + dropped(&self.queue) + lanes.sum::<u64>();
        all - std::mem::replace(&mut self.told, all)
    }
}

fn dropped(queue: &Queue<Held>) -> u64 {
    let counters = queue.counters();
    counters.dropped + counters.overflowed
}

/// A packet that was taken out, marked if it is to be.
fn marked(popped: Popped<Held>) -> Held {
    let mut held = popped.packet;
    if popped.mark {
        set_ecn(&mut held.packet, Ecn::Ce);
    }
    held
}

/// The interface is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;
