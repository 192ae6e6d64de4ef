//! Numbering of a batch's packets.

use super::*;
use crate::clock::Epoch;
use crate::key::SendKey;
use crate::key::tests::Plain;
use plane::{KeyLimits, LineId};
use std::net::Ipv4Addr;
use std::time::Duration;

fn key(messages_max: u64) -> Arc<SendKey> {
    let limits = KeyLimits {
        expires: Instant::now() + Duration::from_secs(60),
        messages_max,
        refresh_at: None,
        refresh_messages: u64::MAX,
    };
    Arc::new(SendKey::new((0, 0), Arc::new(Plain), limits))
}

/// A batch of packets for these keys, in order.
fn batch(keys: &[&Arc<SendKey>]) -> OutboundSlot {
    let endpoint = Endpoint::new((Ipv4Addr::LOCALHOST, 1).into());
    let mut slot = OutboundSlot::new();
    for key in keys {
        let same = |run: &OutboundRun| Arc::ptr_eq(&run.key, key);
        if !slot.runs.last().is_some_and(same) {
            slot.runs.push(OutboundRun {
                peer: Arc::new(Peer::new(plane::PeerId(0), Epoch::new(), Arc::default())),
                key: Arc::clone(key),
                endpoint,
                line: LineId::FIRST,
                stream: None,
                first: slot.packets.len(),
                copies: 0..0,
                count: 0,
                first_train: slot.trains.len(),
                bytes: 0,
            });
        }
        let at = slot.used;
        slot.push(at, 0, 10, 10, 0, Ecn::NotEct);
        if let Some(run) = slot.runs.last_mut() {
            run.count += 1;
        }
    }
    slot
}

#[test]
fn packets_of_a_key_leave_in_the_order_of_their_numbers() {
    let (a, b) = (key(1000), key(1000));
    let order = [&a, &a, &b, &a, &b, &b, &a];
    let mut slot = batch(&order);
    slot.number(|_| panic!("no key is used up"));
    let numbers = |key: &Arc<SendKey>| -> Vec<u64> {
        let of = |(k, _): &(&&Arc<SendKey>, &Packet)| Arc::ptr_eq(k, key);
        let packets = order.iter().zip(&slot.packets).filter(of);
        packets.map(|(_, packet)| packet.counter).collect()
    };
    assert_eq!(numbers(&a), [0, 1, 2, 3]);
    assert_eq!(numbers(&b), [0, 1, 2]);
}

#[test]
fn nothing_is_sent_with_a_key_that_is_used_up() {
    let (a, b) = (key(1), key(1000));
    let mut slot = batch(&[&a, &b, &a]);
    let mut dropped = 0;
    slot.number(|run| dropped += run.count);
    assert_eq!(dropped, 1);
    let lens: Vec<u32> = slot.trains.iter().map(|train| train.len).collect();
    assert_eq!(lens, [10, 10, 0]);
}
