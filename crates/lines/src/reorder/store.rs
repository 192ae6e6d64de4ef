//! The waiting packets: a ring of places by number, and a queue of packets that are due.

use super::WINDOW;
use std::collections::VecDeque;

const NONE: u16 = u16::MAX;

#[derive(Clone, Debug)]
struct Held<T> {
    packet: T,
    bytes: usize,
}

/// Packets that wait for one in front of them, by number, and packets that are due.
///
/// Memory is taken as needed and kept: once a window has seen its greatest backlog it allocates no more.
#[derive(Clone, Debug)]
pub(super) struct Store<T> {
    /// At `n % WINDOW` the index in `packets` of the packet with number `n`.
    places: Vec<u16>,
    /// At `n % WINDOW` the time of [`Self::since`].
    since: Vec<u64>,
    packets: Vec<Option<Held<T>>>,
    free: Vec<u16>,
    due: VecDeque<u16>,
    waiting: usize,
    waiting_bytes: usize,
}

impl<T> Store<T> {
    pub(super) const fn new() -> Self {
        Self {
            places: Vec::new(),
            since: Vec::new(),
            packets: Vec::new(),
            free: Vec::new(),
            due: VecDeque::new(),
            waiting: 0,
            waiting_bytes: 0,
        }
    }

    /// Packets that wait, without those that are due.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Bytes of the packets that wait.
    pub(super) const fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Packets that are due but not fetched.
    pub(super) fn due(&self) -> usize {
        self.due.len()
    }

    /// Keeps a packet until its turn comes.
    pub(super) fn hold(&mut self, number: u64, bytes: usize, packet: T) {
        self.reserve();
        let index = self.insert(bytes, packet);
        self.places[place_of(number)] = index;
        self.waiting += 1;
        self.waiting_bytes += bytes;
    }

    /// Puts a packet behind those that are due.
    pub(super) fn push_due(&mut self, bytes: usize, packet: T) {
        let index = self.insert(bytes, packet);
        self.due.push_back(index);
    }

    /// Makes the packet of this number due, if it waits.
    pub(super) fn turn(&mut self, number: u64) {
        let Some(place) = self.places.get_mut(place_of(number)) else {
            return;
        };
        let index = std::mem::replace(place, NONE);
        if let Some(Some(held)) = self.packets.get(usize::from(index)) {
            self.waiting -= 1;
            self.waiting_bytes -= held.bytes;
            self.due.push_back(index);
        }
    }

    /// The next packet that is due.
    pub(super) fn pop_due(&mut self) -> Option<T> {
        let index = self.due.pop_front()?;
        self.free.push(index);
        let held = self.packets[usize::from(index)].take();
        held.map(|held| held.packet)
    }

    /// When the first packet with this number or a greater one came; known for numbers behind a gap.
    pub(super) fn since(&self, number: u64) -> Option<u64> {
        self.since.get(place_of(number)).copied()
    }

    pub(super) fn set_since(&mut self, number: u64, at: u64) {
        self.reserve();
        self.since[place_of(number)] = at;
    }

    fn reserve(&mut self) {
        if self.places.is_empty() {
            self.places = vec![NONE; WINDOW as usize];
            self.since = vec![0; WINDOW as usize];
        }
    }

    fn insert(&mut self, bytes: usize, packet: T) -> u16 {
        let held = Some(Held { packet, bytes });
        if let Some(index) = self.free.pop() {
            self.packets[usize::from(index)] = held;
            return index;
        }
        self.packets.push(held);
        // The window refuses packets long before the index exceeds 16 bits.
        (self.packets.len() - 1) as u16
    }
}

const fn place_of(number: u64) -> usize {
    (number % WINDOW) as usize
}
