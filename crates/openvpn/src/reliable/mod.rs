//! The reliability layer: TLS needs its bytes in order and all of them, and datagrams promise neither.
//!
//! Each direction of each key numbers its messages from 0, without gaps. [`SendWindow`] keeps what was sent until it is
//! acknowledged and says when to send it again. [`ReceiveWindow`] puts what comes in order and [`Acks`] says what to
//! acknowledge. All three are of fixed size; a peer cannot make them grow.

mod acks;
mod receive;
mod send;

pub use acks::Acks;
pub use receive::{Message, Receipt, ReceiveWindow};
pub use send::{Outgoing, SendWindow, WindowFull};

/// Messages in flight at most, as with stock: what every peer has room for.
pub const SEND_WINDOW: usize = 6;
/// Messages that wait for one before them at most, as with stock.
pub const RECEIVE_WINDOW: usize = 12;

/// How far `id` is after `base`. Ids before `base` are very far: numbers wrap, though no session lives to see it.
const fn distance(id: u32, base: u32) -> u32 {
    id.wrapping_sub(base)
}

/// Whether `id` is before `base`.
const fn is_before(id: u32, base: u32) -> bool {
    distance(id, base) >= 1 << 31
}
