//! Tests of the kernel's interfaces, on a machine that has them: `make test-vm` boots one and runs these tests there.
//!
//! `MILLRACE_TEST_ENGINE` names a driver that must be found and compute correctly. `scripts/test-vm` sets it, in a
//! machine that has an accelerator.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

use super::afalg::AfAlg;
use super::costs::{Costs, Crossover};
use super::devcrypto::DevCrypto;
use super::found::{self, Offer};
use super::job::Accelerator;
use super::measure::{Side, Tuner};
use super::task::{Direction, Task};
use crate::primitives::packet_cipher;
use crate::{Backend, Batch, Cipher, Digest, Packet};

/// Sends everything to the accelerator.
const ALWAYS: Crossover = Crossover {
    cpu: Costs {
        batch: 0,
        packet: 1_000_000_000,
        byte: 0,
    },
    accelerator: Costs {
        batch: 0,
        packet: 0,
        byte: 0,
    },
};

/// Compares the kernel's results through an interface, by any driver, with the CPU's, and returns the drivers.
fn tried(accelerator: Box<dyn Accelerator>) -> Vec<Offer> {
    let by = accelerator.name();
    let mut offers = Vec::new();
    let dropped = found::add(&mut offers, accelerator);
    assert!(dropped.is_empty(), "{by} is wrong: {dropped:?}");
    for offer in &offers {
        let tuner = Tuner::with(offer, Some([ALWAYS; 2])).unwrap();
        assert!(tuner.agrees());
        if offer.task.tag_len() > 0 {
            assert!(tuner.rejects_forgeries(), "{}", offer.name);
        }
        for side in [Side::Accelerator, Side::Both] {
            for direction in [Direction::Encrypt, Direction::Decrypt] {
                for (packets, bytes) in [(1, 64), (32, 64), (32, 1408), (64, 1408)] {
                    let enough = std::time::Duration::ZERO;
                    let timing = tuner.time(side, direction, packets, bytes, enough);
                    let what = format!("{} {direction:?} {packets} x {bytes}", offer.name);
                    let timing = timing.unwrap_or_else(|| panic!("{what} failed"));
                    println!("{what}: {} ns by {side:?}", timing.wall);
                }
            }
        }
        assert!(offer.pool.is_alive(), "{} was dropped", offer.name);
    }
    offers
}

#[test]
#[ignore = "needs AF_ALG: make test-vm"]
fn af_alg_with_any_driver_agrees_with_the_cpu() {
    let sockets = AfAlg::software();
    drop(sockets.open(Task::AesCbc, &[0; 32]).unwrap());
    let offers = tried(Box::new(sockets));
    assert!(offers.iter().any(|offer| offer.task == Task::AesCbc));
}

#[test]
#[ignore = "needs /dev/crypto, which no kernel of Debian's has"]
fn dev_crypto_with_any_driver_agrees_with_the_cpu() {
    let offers = tried(Box::new(DevCrypto::open(true).unwrap()));
    assert!(offers.iter().any(|offer| offer.task == Task::AesCbc));
    for offer in offers {
        println!("{}", offer.name);
    }
}

/// Tests the code path of a tunnel.
#[test]
#[ignore = "needs an accelerator: make test-vm"]
fn an_accelerator_of_this_machine_is_found_and_right() {
    let wanted = std::env::var("MILLRACE_TEST_ENGINE").expect("the name of a driver");
    let offers = found::offers();
    let names: Vec<_> = offers.iter().map(|offer| offer.name).collect();
    println!("found: {names:?}");
    let offer = offers
        .iter()
        .find(|offer| offer.driver.contains(&wanted))
        .unwrap_or_else(|| panic!("{wanted} was not found among {names:?}"));
    let tuner = Tuner::with(offer, Some([ALWAYS; 2])).unwrap();
    assert!(tuner.agrees());
    assert!(offer.pool.is_alive());
    if offer.task == Task::AesCbc {
        offer.set_crossovers([ALWAYS; 2]);
        a_tunnel_between(Backend::Accelerator, Backend::Portable, &wanted);
        a_tunnel_between(Backend::Portable, Backend::Accelerator, &wanted);
        assert!(offer.pool.is_alive());
    }
}

/// Sends a tunnel's packets from one kind of code to the other, one of them forged.
fn a_tunnel_between(from: Backend, to: Backend, driver: &str) {
    let mut keys = [[0; 64]; 2];
    crate::random(keys.as_flattened_mut());
    let both = (Cipher::Aes256Cbc, Digest::Sha1);
    let end = |backend| packet_cipher(Some(backend), both, &keys).unwrap();
    let (sender, receiver) = (end(from), end(to));
    assert_eq!(
        sender.backend().contains(driver),
        from == Backend::Accelerator
    );
    assert_eq!(
        receiver.backend().contains(driver),
        to == Backend::Accelerator
    );
    let (mut memory, mut packets, mut at) = (Vec::new(), Vec::new(), 0);
    for number in 0..70 {
        let len = [1408, 1, 700, 64][number % 4];
        let start = at + 4 + sender.head();
        packets.push(Packet {
            start: start as u32,
            len: len as u32,
            counter: number as u64 + 1,
            authentic: false,
        });
        at = start + len + sender.tail(len);
    }
    memory.resize(at, 0x35);
    let memory = &mut memory[..];
    let sent = packets.clone();
    let packets = &mut packets[..];
    sender.seal(&mut Batch { memory, packets });
    for packet in packets.iter_mut() {
        let tail = sender.tail(packet.len as usize) as u32;
        packet.start -= sender.head() as u32;
        packet.len += sender.head() as u32 + tail;
    }
    memory[packets[5].start as usize + 50] ^= 1;
    receiver.open(&mut Batch { memory, packets });
    for (number, (packet, sent)) in packets.iter().zip(&sent).enumerate() {
        assert_eq!(packet.authentic, number != 5);
        let text = &memory[sent.start as usize..][..sent.len as usize];
        if packet.authentic {
            assert_eq!((packet.start, packet.len), (sent.start, sent.len));
            assert!(text.iter().all(|byte| *byte == 0x35));
        }
    }
}
