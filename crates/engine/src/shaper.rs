//! Holds packets back in front of lines that are the bottleneck, so that they wait here, where their flows are known.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use lines::inner::Reader;
use lines::queue::{Pacer, Popped, Queue, Settings};
use netio::tun::{VNET_HDR_LEN, VnetHdr};
use netio::udp::{Ecn, TRAIN_ROOM};
use plane::{LINES_MAX, LineId, Wire};

use crate::ip::{IpPacket, set_ecn};
use crate::line::Rates;
use crate::shared::{Shared, tun_is_gone};

#[cfg(test)]
mod tests;

/// Bytes of Ethernet, IP and UDP headers that a line carries per datagram, for IPv4 and IPv6.
const OUTER: [usize; 2] = [14 + 20 + 8, 14 + 40 + 8];

/// Packets worth this much time may be sent at once after a pause; the worker may have been busy opening packets.
const BURST: Duration = Duration::from_millis(10);

/// A waiting packet with its `virtio_net_hdr`.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) hdr: VnetHdr,
    pub(crate) packet: Box<[u8]>,
}

/// The queues of the worker that reads the TUN; present only while lines have rates.
pub(crate) struct Shaper {
    /// Packets that may take any line. If each line has its own rate, packets bound to one line wait in its lane.
    queue: Queue<Held>,
    /// Lines that have rates of their own.
    lanes: Vec<Lane>,
    settings: Settings,
    reader: Reader,
    /// Buffer that packets are read into.
    buffer: Box<[u8]>,
    /// Number of the rates in use.
    word: u64,
    /// Packets dropped in queues that no longer exist.
    dropped: u64,
    /// Dropped packets already reported.
    told: u64,
}

impl Shaper {
    /// Empty queues that follow no rates yet.
    pub(crate) fn new<W: Wire>(wire: &W) -> Self {
        let settings = Settings {
            // An estimate to choose whose turn it is; the real cost is known once a packet is laid out.
            overhead: wire.prefix() + W::HEAD_MAX + W::TAIL_MAX + OUTER[0],
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

    /// Takes over these rates, headers included. Without rates, waiting packets leave at once.
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
        // Packets that wait for a line no longer in use take another.
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
        // All lanes and the common queue together hold no more than a single queue would.
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

    /// Moves packets of a line no longer in use to the common queue. Their waiting time starts again.
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

    /// Number of the rates in use; 0 for none.
    pub(crate) const fn word(&self) -> u64 {
        self.word
    }

    /// Whether packets have to pass through the queues.
    pub(crate) fn engaged(&self) -> bool {
        self.queue.engaged() || !self.lanes.is_empty()
    }

    /// When the next packet may leave.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.lanes.is_empty() {
            return self.queue.next_deadline(now);
        }
        let any = self.queue.waiting().0 > 0;
        let lanes = self.lanes.iter();
        let waits = lanes.filter(|lane| any || lane.queue.waiting().0 > 0);
        waits.map(|lane| lane.free_at(now)).min()
    }

    /// Reads one packet of the TUN into a queue; `line_of` returns its line if it may take only one. Returns whether
    /// more packets may wait.
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
            // No packet waits, or the interface is down.
            Err(_) => return Ok(false),
        };
        let (hdr, packet) = self.buffer[..len].split_at(vnet.min(len));
        let hdr = match <&[u8; VNET_HDR_LEN]>::try_from(hdr) {
            Ok(hdr) => VnetHdr::parse(hdr),
            Err(_) if vnet == 0 => Some(VnetHdr::NONE),
            Err(_) => None,
        };
        // An incomplete IP header must not be marked either.
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

    /// The next packet that may leave, and the line whose turn it is, if lines have turns.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Held, Option<LineId>)> {
        if self.lanes.is_empty() {
            return Some((marked(self.queue.pop(now)?), None));
        }
        let Self { lanes, queue, .. } = self;
        lanes.sort_unstable_by_key(Lane::idle_since);
        for lane in lanes.iter_mut().filter(|lane| lane.pacer.is_idle(now)) {
            // Packets bound to this line come first: when packets are shared out, these are critical ones such as those
            // of a voice call.
            let popped = lane.queue.pop(now).or_else(|| queue.pop(now));
            if let Some(popped) = popped {
                return Some((marked(popped), Some(lane.line)));
            }
        }
        None
    }

    /// Charges the last packet as `datagrams` datagrams of `bytes` bytes together, for this line and IP version; zero
    /// datagrams if it was dropped.
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

    /// Packets dropped since the last call.
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

/// A packet taken from a queue, ECN-marked if the queue requests it.
fn marked(popped: Popped<Held>) -> Held {
    let mut held = popped.packet;
    if popped.mark {
        set_ecn(&mut held.packet, Ecn::Ce);
    }
    held
}

/// The interface was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// A line with its own rate, and the packets that may take only this line.
struct Lane {
    line: LineId,
    pacer: Pacer,
    queue: Queue<Held>,
}

impl Lane {
    /// `settings` are those of a queue without a rate.
    fn new(line: LineId, rate: u64, settings: Settings) -> Self {
        let settings = Settings {
            carries: Some(rate),
            ..settings
        };
        Self {
            line,
            pacer: Pacer::new(Some(rate), settings.burst),
            queue: Queue::new(settings),
        }
    }

    /// When the line can take another packet.
    fn free_at(&self, now: Instant) -> Instant {
        self.pacer.idle_at().map_or(now, |at| at.max(now))
    }

    /// Since when the line has been idle. The next packet takes the line that was idle longest.
    fn idle_since(&self) -> Option<Instant> {
        self.pacer.idle_at()
    }
}
