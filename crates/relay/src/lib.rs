//! A relay's knowledge of its clients, without I/O. It takes datagrams and the time, and returns who sent them and
//! how many may be forwarded.
//!
//! A relay forwards a tunnel's datagrams unchanged to one fixed target, and the target's answers back. A client
//! announces its address by a [`Hello`], which only a holder of its key can make. The relay never answers it: without
//! a key nothing comes out of a relay.
//!
//! [`Table`] is the relay's end, [`Key::hello`] the client's; [`pieces()`] separates hellos from datagrams to
//! forward.
//!
//! ```
//! use std::time::{Instant, SystemTime};
//! use plane::Endpoint;
//! use relay::{Client, Clock, Key, Rates, Table};
//!
//! let now = Instant::now();
//! let client = Client { name: "branch".to_owned(), key: Key::new(&[7; 32]), rates: Rates::of(50_000_000, 6_000) };
//! let mut table = Table::new(vec![client], now);
//!
//! let from = Endpoint::new("192.0.2.1:51820".parse()?);
//! assert_eq!(table.outbound(from.addr, 1, 100, now), None, "a stranger");
//! let hello = Key::new(&[7; 32]).hello(Clock::default().stamp(SystemTime::now()));
//! table.hello(&hello, from, now)?;
//! assert_eq!(table.outbound(from.addr, 1, 100, now), Some((0, 1)));
//! assert!(table.hello(&hello, from, now).is_err(), "a replay");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod bucket;
mod hello;
mod pieces;
mod table;

pub use wireguard::tai64n::{Clock, Tai64n};

pub use bucket::Rates;
pub use hello::{HELLO_LEN, Hello, Key, KeyId, Malformed};
pub use pieces::{Piece, pieces};
pub use table::{
    Change, Client, Counters, Dropped, HEARD_FOR, HELLO_EVERY, Refused, Table, Traffic,
};
