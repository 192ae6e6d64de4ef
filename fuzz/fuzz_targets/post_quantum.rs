//! Passes datagrams of a peer to an exchange of post-quantum keys: any bytes, and messages with a right beginning. Nothing
//! that the exchange sends is longer than a packet carries.
#![no_main]

use std::time::{Duration, Instant};

use crypto::Key;
use libfuzzer_sys::fuzz_target;
use postquantum::{Effect, Exchange, Session, Settings};

/// Bytes of a datagram before its exchange: magic, version, kind, suite, flags.
const FRONT: usize = 8;

fuzz_target!(|data: &[u8]| {
    let Some((&[room, options], mut bytes)) = data.split_first_chunk() else {
        return;
    };
    let room = 400 + usize::from(room) * 4;
    let mut exchange = Exchange::new(Settings {
        own: [1; 32],
        peer: [2; 32],
        base: Key::ZERO,
        single_slot: options & 1 != 0,
        room,
        pad: options & 2 != 0,
    });
    let (mut now, mut out) = (Instant::now(), Vec::new());
    let session = Session {
        initiator: options & 4 != 0,
        under: exchange.base(),
        began: now,
    };
    exchange.session(session, now, &mut out);
    while let Some((&[len, kind, flags, seconds], rest)) = bytes.split_first_chunk() {
        let (datagram, rest) = rest.split_at(rest.len().min(usize::from(len) * 5));
        bytes = rest;
        let mut datagram = datagram.to_vec();
        if kind < 8 && datagram.len() >= FRONT {
            datagram[..FRONT].copy_from_slice(&[b'M', b'R', b'P', b'Q', 1, kind, 1, flags]);
        }
        now += Duration::from_secs(u64::from(seconds));
        exchange.received(&datagram, now, &mut out);
        exchange.expired(now, &mut out);
        for effect in std::mem::take(&mut out) {
            match effect {
                Effect::Send(sent) => assert!(sent.len() <= room),
                Effect::Compute(job) => exchange.computed(job.run(), now, &mut out),
                Effect::Use(_) | Effect::Handshake => {}
            }
        }
        let _ = exchange.answer();
    }
});
