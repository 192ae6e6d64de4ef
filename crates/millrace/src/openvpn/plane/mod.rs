//! Between OpenVPN and the engine: what its packets look like, and what workers leave for control.

mod format;
mod inbox;
mod wire;

pub(super) use format::{DataFormat, Fragments, Shape};
pub(super) use inbox::{Arrival, Inbox};
pub(super) use wire::{ClientWire, KEYS_PER_PEER, ServerWire, allow_recursion};
