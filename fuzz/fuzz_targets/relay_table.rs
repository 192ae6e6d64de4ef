//! Moves a relay's clients: they join, roam, send, fall silent and are replaced. An address belongs to one
//! client, and answers go to the address of its hello.
#![no_main]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lines::relay::{Client, Key, Rates, Table};
use plane::Endpoint;
use plane::tai64n::Tai64n;

const CLIENTS: usize = 3;

fn key(number: usize) -> Key {
    Key::new(&[number as u8 + 1; 32])
}

fn client(number: usize) -> Client {
    Client {
        name: format!("client{number}"),
        key: key(number),
        rates: Rates::of(1_000_000, 1_000),
    }
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number & 3], 1))
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut now = Instant::now();
    let mut table = Table::new((0..CLIENTS).map(client).collect(), now);
    let mut stamp = 0_u64;
    for step in data.chunks_exact(2).take(200) {
        let (operation, argument) = (step[0] & 7, step[0] >> 3);
        let number = usize::from(step[1]) % CLIENTS;
        let from = address(argument);
        match operation {
            0..=2 => {
                stamp += 1;
                let mut bytes = [0; 12];
                bytes[..8].copy_from_slice(&(1_u64 << 62 | stamp).to_be_bytes());
                let mut hello = key(number).hello(Tai64n(bytes));
                let damaged = operation == 2;
                if damaged {
                    let at = usize::from(step[1]) % hello.len();
                    hello[at] ^= 1;
                }
                let taken = table.hello(&hello, Endpoint::new(from), now);
                assert!(taken.is_ok() || damaged, "{taken:?}");
                if let Ok((which, _)) = taken {
                    assert_eq!(table.of(which).and_then(|it| it.0), Some(from));
                }
            }
            3 => {
                if let Some((which, taken)) = table.outbound(from, 4, 1000, now) {
                    assert!(taken <= 4);
                    assert_eq!(table.of(which).and_then(|it| it.0), Some(from));
                }
            }
            4 => {
                if let Some((endpoint, taken)) = table.back(number, 4, 1000, now) {
                    assert!(taken <= 4);
                    assert_eq!(table.of(number).and_then(|it| it.0), Some(endpoint.addr));
                }
            }
            5 => {
                now += Duration::from_secs(u64::from(step[1]));
                table.expire(now, |_, _| {});
            }
            6 => table.forget_source(number),
            _ => drop(table.replace((0..CLIENTS).map(client).collect(), now)),
        }
        let places: Vec<_> = (0..table.len()).filter_map(|it| table.of(it)?.0).collect();
        let others = |at: usize| places[at + 1..].contains(&places[at]);
        assert!(!(0..places.len()).any(others), "two clients at one address");
    }
});
