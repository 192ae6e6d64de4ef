//! Feeds a relay's socket with packet trains that contain hellos. Only a packet with a known key's MAC
//! changes where clients are.
#![no_main]

use std::time::Instant;

use lines::relay::{Client, Key, Piece, Rates, Table, pieces};
use plane::Endpoint;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&segment, bytes)) = data.split_first() else {
        return;
    };
    let now = Instant::now();
    let client = Client {
        name: "fuzz".to_owned(),
        key: Key::new(&[7; 32]),
        rates: Rates::of(1_000_000, 1_000),
    };
    let mut table = Table::new(vec![client], now);
    let from = Endpoint::new(([192, 0, 2, 1], 1).into());
    let mut accepted = 0;
    let mut next = 0;
    for piece in pieces(bytes, usize::from(segment)) {
        let (Piece::Forward(range) | Piece::Hello(range)) = &piece;
        assert!(range.start == next && range.end > next, "a gap");
        next = range.end;
        match piece {
            Piece::Hello(range) => {
                accepted += u64::from(table.hello(&bytes[range], from, now).is_ok());
            }
            Piece::Forward(_) => {
                let passed = table.outbound(from.addr, 1, 1, now);
                assert_eq!(passed.is_some(), accepted > 0, "without a hello");
            }
        }
    }
    assert_eq!(next, bytes.len());
});
