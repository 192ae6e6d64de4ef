//! Queues of flows in one piece of memory.

use super::codel::CoDel;
use plane::Ecn;
use std::collections::VecDeque;
use std::time::Instant;

const NONE: u32 = u32::MAX;

/// A packet that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting<T> {
    pub(super) packet: T,
    /// The size as the line counts it.
    pub(super) bytes: usize,
    pub(super) ecn: Ecn,
    pub(super) since: Instant,
}

#[derive(Clone, Debug)]
struct Node<T> {
    waiting: Option<Waiting<T>>,
    next: u32,
}

/// The list of RFC 8290 section 4.2 that a flow is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Listed {
    #[default]
    No,
    New,
    Old,
}

#[derive(Clone, Debug)]
struct Flow {
    head: u32,
    tail: u32,
    bytes: usize,
    /// Bytes that the flow may still send before others have their turn.
    deficit: isize,
    listed: Listed,
    codel: CoDel,
}

/// The flows, their packets, and the order of turns: deficit round robin with new flows first.
#[derive(Clone, Debug)]
pub(super) struct Flows<T> {
    flows: Vec<Flow>,
    nodes: Vec<Node<T>>,
    free: u32,
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    packets: usize,
    bytes: usize,
}

impl<T> Flows<T> {
    /// Makes `count` flows without packets.
    pub(super) fn new(count: u16) -> Self {
        let flow = Flow {
            head: NONE,
            tail: NONE,
            bytes: 0,
            deficit: 0,
            listed: Listed::No,
            codel: CoDel::default(),
        };
        let count = usize::from(count.max(1));
        Self {
            flows: vec![flow; count],
            nodes: Vec::new(),
            free: NONE,
            new: VecDeque::with_capacity(count),
            old: VecDeque::with_capacity(count),
            packets: 0,
            bytes: 0,
        }
    }

    pub(super) const fn packets(&self) -> usize {
        self.packets
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn place_of(&self, flow: u32) -> u16 {
        let spread = u64::from(flow.wrapping_mul(0x9e37_79b1));
        ((spread * self.flows.len() as u64) >> 32) as u16
    }

    /// Puts a packet at the end of its flow.
    pub(super) fn push(&mut self, place: u16, waiting: Waiting<T>, quantum: usize) {
        let bytes = waiting.bytes;
        let node = self.insert(waiting);
        let flow = &mut self.flows[usize::from(place)];
        if flow.tail == NONE {
            flow.head = node;
        } else {
            self.nodes[flow.tail as usize].next = node;
        }
        flow.tail = node;
        flow.bytes += bytes;
        self.packets += 1;
        self.bytes += bytes;
        if flow.listed == Listed::No {
            flow.listed = Listed::New;
            flow.deficit = quantum as isize;
            self.new.push_back(place);
        }
    }

    /// The flow whose turn it is. It has packets, or has just become empty; see [`Self::turn_ends`].
    pub(super) fn turn(&mut self, quantum: usize) -> Option<u16> {
        loop {
            let list = if self.new.is_empty() {
                &mut self.old
            } else {
                &mut self.new
            };
            let place = *list.front()?;
            let flow = &mut self.flows[usize::from(place)];
            if flow.deficit > 0 {
                return Some(place);
            }
            flow.deficit += quantum as isize;
            flow.listed = Listed::Old;
            list.pop_front();
            self.old.push_back(place);
        }
    }

    /// Ends the turn of a flow without packets. A new flow must wait for the old ones once, so that it cannot stay new
    /// by sending one packet at a time.
    pub(super) fn turn_ends(&mut self, place: u16) {
        let flow = &mut self.flows[usize::from(place)];
        flow.codel.empty();
        if flow.listed == Listed::New {
            self.new.pop_front();
            if self.old.is_empty() {
                flow.listed = Listed::No;
            } else {
                flow.listed = Listed::Old;
                self.old.push_back(place);
            }
        } else {
            self.old.pop_front();
            flow.listed = Listed::No;
        }
    }

    /// Takes the first packet of a flow, without charging the flow for it yet.
    pub(super) fn pop(&mut self, place: u16) -> Option<Waiting<T>> {
        let flow = &mut self.flows[usize::from(place)];
        let index = flow.head;
        let node = self.nodes.get_mut(index as usize)?;
        let waiting = node.waiting.take()?;
        flow.head = node.next;
        if flow.head == NONE {
            flow.tail = NONE;
        }
        node.next = self.free;
        self.free = index;
        flow.bytes -= waiting.bytes;
        self.packets -= 1;
        self.bytes -= waiting.bytes;
        Some(waiting)
    }

    /// Charges a flow for bytes that it has sent.
    pub(super) fn charge(&mut self, place: u16, bytes: usize) {
        self.flows[usize::from(place)].deficit -= bytes as isize;
    }

    /// The flow's CoDel, and the bytes that wait in it.
    pub(super) fn codel(&mut self, place: u16) -> (&mut CoDel, usize) {
        let flow = &mut self.flows[usize::from(place)];
        (&mut flow.codel, flow.bytes)
    }

    /// The flow with the most waiting bytes.
    pub(super) fn fattest(&self) -> u16 {
        let flows = self.flows.iter().enumerate();
        let fattest = flows.max_by_key(|(_, flow)| flow.bytes);
        fattest.map_or(0, |(place, _)| place as u16)
    }

    pub(super) fn bytes_of(&self, place: u16) -> usize {
        self.flows[usize::from(place)].bytes
    }

    fn insert(&mut self, waiting: Waiting<T>) -> u32 {
        let node = Node {
            waiting: Some(waiting),
            next: NONE,
        };
        if self.free == NONE {
            self.nodes.push(node);
            return (self.nodes.len() - 1) as u32;
        }
        let index = self.free;
        self.free = self.nodes[index as usize].next;
        self.nodes[index as usize] = node;
        index
    }
}

#[cfg(test)]
impl<T> Flows<T> {
    pub(super) fn for_each(&self, mut each: impl FnMut(&T)) {
        let waiting = self.nodes.iter().filter_map(|node| node.waiting.as_ref());
        waiting.for_each(|waiting| each(&waiting.packet));
    }
}
