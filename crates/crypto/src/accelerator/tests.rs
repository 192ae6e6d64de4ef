//! Properties that hold with any accelerator: no packet is lost, and none is changed.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::ciphers::{AcceleratorAead, AcceleratorCbc, Route};
use super::costs::{Costs, Crossover};
use super::fault::{Faulty, Injected};
use super::found;
use super::offload::Offload;
use super::pool::Pool;
use super::task::Task;
use crate::implementations::{
    AeadImplementation, AwsLcAead, AwsLcAes, Backend, CHUNK, CbcImplementation, Chain, Pair, Place,
};
use crate::packet_aead::{self, AeadAlgorithm, AeadLayout};
use crate::select::{self, Algorithm};
use crate::{Batch, Cipher, Packet, TAG_LEN};

/// Long enough for any machine. Tests with a stalled device wait only [`SHORT`].
const LONG: Duration = Duration::from_secs(600);

/// Time limit for a device that never answers.
const SHORT: Duration = Duration::from_millis(2);

const KEY: [u8; 32] = [0x42; 32];

/// Costs under which all packets go to the accelerator, or half of them, or none.
fn crossover(share: usize) -> Crossover {
    let slow = |packet| Costs {
        batch: 0,
        packet,
        byte: 0,
    };
    let (cpu, accelerator) = match share {
        0 => (slow(1_000), slow(1_000_000)),
        1 => (slow(1_000_000), slow(1_000_000)),
        _ => (slow(1_000_000), slow(1)),
    };
    Crossover { cpu, accelerator }
}

fn route(faulty: &Faulty, task: Task, share: usize, patience: Duration) -> Route {
    let pool = Pool::with(Box::new(faulty.clone()), patience).unwrap();
    Route {
        offload: Offload::new(&pool, task, &KEY).unwrap(),
        name: "faulty",
        crossovers: [crossover(share); 2],
    }
}

fn aead(
    faulty: &Faulty,
    algorithm: AeadAlgorithm,
    share: usize,
    patience: Duration,
) -> AcceleratorAead {
    let task = match algorithm {
        AeadAlgorithm::ChaCha20Poly1305 => Task::ChaCha20Poly1305,
        _ => Task::AesGcm,
    };
    let cpu = Box::new(AwsLcAead::new(algorithm, &KEY));
    AcceleratorAead {
        route: route(faulty, task, share, patience),
        cpu: Pair::only(cpu),
    }
}

fn cbc(faulty: &Faulty, share: usize, patience: Duration) -> AcceleratorCbc {
    let cpu = || Pair::<dyn CbcImplementation>::only(Box::new(AwsLcAes::new(&KEY)));
    AcceleratorCbc {
        route: route(faulty, Task::AesCbc, share, patience),
        cpu: [cpu(), cpu()],
    }
}

/// Packets of these lengths, with gaps. Tags are in front and behind in turn, as in OpenVPN and WireGuard.
fn places(lens: &[usize]) -> (Vec<u8>, Vec<Place>) {
    let mut at = 3;
    let places: Vec<_> = lens
        .iter()
        .enumerate()
        .map(|(number, &len)| {
            let aad = at..at + number % 9;
            let (tag, text) = if number % 2 == 0 {
                (aad.end, aad.end + TAG_LEN)
            } else {
                (aad.end + len, aad.end)
            };
            at = aad.end + len + TAG_LEN + number % 5;
            Place {
                aad,
                text: text..text + len,
                tag,
                nonce: [number as u8; 12],
            }
        })
        .collect();
    let memory = (0..at + 7).map(|at| ((at * 13) >> 2) as u8).collect();
    (memory, places)
}

/// Seals and opens through both and compares every byte of the memory.
fn aead_agrees(
    cipher: &dyn AeadImplementation,
    algorithm: AeadAlgorithm,
    lens: &[usize],
    forged: usize,
) {
    let cpu = AwsLcAead::new(algorithm, &KEY);
    let (mut theirs, places) = places(lens);
    let mut ours = theirs.clone();
    cipher.seal(&mut theirs, &places);
    cpu.seal(&mut ours, &places);
    assert!(theirs == ours, "sealed {lens:?}");
    if let Some(place) = places.get(forged) {
        theirs[place.tag + forged % TAG_LEN] ^= 1;
        ours[place.tag + forged % TAG_LEN] ^= 1;
    }
    let (mut they_say, mut we_say) = ([true; CHUNK], [false; CHUNK]);
    cipher.open(&mut theirs, &places, &mut they_say[..places.len()]);
    cpu.open(&mut ours, &places, &mut we_say[..places.len()]);
    assert!(theirs == ours, "opened {lens:?}");
    assert_eq!(they_say[..places.len()], we_say[..places.len()]);
    for (number, said) in they_say[..places.len()].iter().enumerate() {
        assert_eq!(*said, number != forged, "{number} of {lens:?}");
    }
}

fn cbc_agrees(cipher: &dyn CbcImplementation, lens: &[usize]) {
    let cpu = AwsLcAes::new(&KEY);
    let mut at = 5;
    let chains: Vec<_> = lens
        .iter()
        .map(|len| {
            let text = at + 16..at + 16 + len / 16 * 16;
            at = text.end + len % 7;
            Chain::new(&text, 16)
        })
        .collect();
    let mut theirs: Vec<u8> = (0..at + 9).map(|at| ((at * 7) >> 1) as u8).collect();
    let (plain, mut ours) = (theirs.clone(), theirs.clone());
    cipher.encrypt(&mut theirs, &chains);
    cpu.encrypt(&mut ours, &chains);
    assert!(theirs == ours, "encrypted {lens:?}");
    cipher.decrypt(&mut theirs, &chains);
    assert!(theirs == plain, "decrypted {lens:?}");
}

/// Faults that show in the outcome alone, without waiting.
fn fault() -> impl Strategy<Value = Injected> {
    prop_oneof![
        20 => Just(Injected::Nothing),
        1 => Just(Injected::Error),
        1 => Just(Injected::Derail),
        1 => Just(Injected::Short),
        1 => Just(Injected::Vanish),
        1 => Just(Injected::Silence),
    ]
}

fn lens() -> impl Strategy<Value = Vec<usize>> {
    let len = prop_oneof![1 => Just(0), 4 => 0..300_usize, 4 => Just(1408_usize), 1 => 0..9000_usize, 1 => Just(16_400)];
    prop::collection::vec(len, 0..=CHUNK)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Runs batch after batch through every fault, with all lengths and shares.
    #[test]
    fn no_packet_of_an_aead_is_lost(
        faults in prop::collection::vec(fault(), 0..200),
        batches in prop::collection::vec((lens(), 0..80_usize), 1..4),
        share in 0..3_usize,
        algorithm in prop::sample::select(vec![AeadAlgorithm::Aes256Gcm, AeadAlgorithm::ChaCha20Poly1305]),
    ) {
        let faulty = Faulty::new(&faults);
        let cipher = aead(&faulty, algorithm, share, LONG);
        for (lens, forged) in batches {
            aead_agrees(&cipher, algorithm, &lens, forged);
        }
    }

    #[test]
    fn no_packet_of_cbc_is_lost(
        faults in prop::collection::vec(fault(), 0..200),
        batches in prop::collection::vec(lens(), 1..4),
        share in 0..3_usize,
    ) {
        let faulty = Faulty::new(&faults);
        let cipher = cbc(&faulty, share, LONG);
        for lens in batches {
            cbc_agrees(&cipher, &lens);
        }
    }
}

#[test]
fn an_accelerator_that_works_is_used_and_stays() {
    for (share, expected) in [(0, 0), (1, 2 * 16), (2, 2 * 32)] {
        let faulty = Faulty::new(&[]);
        let cipher = aead(&faulty, AeadAlgorithm::Aes256Gcm, share, LONG);
        assert_eq!(cipher.describe(), "faulty");
        aead_agrees(&cipher, AeadAlgorithm::Aes256Gcm, &[1408; 32], usize::MAX);
        assert_eq!(faulty.done(), expected);
        assert_eq!(cipher.describe(), "faulty");

        let faulty = Faulty::new(&[]);
        cbc_agrees(&cbc(&faulty, share, LONG), &[1408; 32]);
        assert_eq!(faulty.done(), expected);
    }
}

#[test]
fn of_a_mixed_batch_the_longest_go() {
    let faulty = Faulty::new(&[]);
    let cipher = aead(&faulty, AeadAlgorithm::Aes256Gcm, 1, LONG);
    // Twelve packets of 1408 bytes, eleven of 64, and eleven that cannot go. Half of the 23 go.
    let lens: Vec<_> = (0..34)
        .map(|number| match number {
            _ if number % 3 == 1 => 0,
            _ if number % 2 == 0 => 1408,
            _ => 64,
        })
        .collect();
    aead_agrees(&cipher, AeadAlgorithm::Aes256Gcm, &lens, usize::MAX);
    assert_eq!(faulty.done(), 2 * 11);
    assert_eq!(faulty.bytes(), 2 * 11 * 1408);
}

/// Each fault, at the first job and in the middle: the batch is right, and the accelerator is no longer used.
#[test]
fn one_that_fails_is_dropped_and_the_cpu_does_what_it_did_not() {
    let faults = [
        Injected::Error,
        Injected::Derail,
        Injected::Short,
        Injected::Vanish,
        Injected::Silence,
        Injected::Stall,
    ];
    for fault in faults {
        for at in [0, 17, 63] {
            let mut script = vec![Injected::Nothing; at];
            script.push(fault);
            let faulty = Faulty::new(&script);
            let patience = if fault == Injected::Stall {
                SHORT
            } else {
                LONG
            };
            let cipher = aead(&faulty, AeadAlgorithm::ChaCha20Poly1305, 2, patience);
            // Both sealing and opening, so that faults hit either; 128 jobs in all without a fault.
            aead_agrees(&cipher, AeadAlgorithm::ChaCha20Poly1305, &[1408; 64], 3);
            assert_ne!(cipher.describe(), "faulty", "{fault:?} at {at}");
            let before = faulty.done();
            aead_agrees(&cipher, AeadAlgorithm::ChaCha20Poly1305, &[1408; 64], 3);
            // After so short a time limit, abandoned driver threads may still be running.
            if fault != Injected::Stall {
                assert_eq!(faulty.done(), before);
            }
            assert_ne!(cipher.describe(), "faulty", "{fault:?} at {at}");
            faulty.end();

            let faulty = Faulty::new(&script);
            let cipher = cbc(&faulty, 2, patience);
            cbc_agrees(&cipher, &[1408; 64]);
            assert_ne!(cipher.describe(), "faulty", "{fault:?} at {at}");
            faulty.end();
        }
    }
}

#[test]
fn every_lane_may_stall_at_once() {
    let faulty = Faulty::new(&[Injected::Stall; 64]);
    let cipher = aead(&faulty, AeadAlgorithm::Aes256Gcm, 2, SHORT);
    aead_agrees(&cipher, AeadAlgorithm::Aes256Gcm, &[1408; 64], 1);
    assert_ne!(cipher.describe(), "faulty");
    // A running job ends when its key is dropped, and writes only to its own memory.
    drop(cipher);
    faulty.end();
}

/// A renewed key closes its sessions; the tunnel must not hang with them.
#[test]
fn a_device_that_is_gone_is_not_waited_for_when_a_key_ends() {
    let faulty = Faulty::new(&[Injected::Stall; 64]);
    let cipher = aead(&faulty, AeadAlgorithm::Aes256Gcm, 2, SHORT);
    aead_agrees(&cipher, AeadAlgorithm::Aes256Gcm, &[1408; 64], 1);
    faulty.hang_on();
    let (say, hear) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(cipher);
        say.send(())
    });
    let heard = hear.recv_timeout(Duration::from_secs(30));
    faulty.end();
    assert_eq!(heard, Ok(()));
}

#[test]
fn a_forged_packet_does_not_cost_the_accelerator_and_a_genuine_one_that_it_rejects_does() {
    let faulty = Faulty::new(&[]);
    let cipher = aead(&faulty, AeadAlgorithm::Aes256Gcm, 2, LONG);
    for forged in 0..8 {
        aead_agrees(&cipher, AeadAlgorithm::Aes256Gcm, &[1408; 8], forged);
    }
    assert_eq!(cipher.describe(), "faulty");

    let mut script = vec![Injected::Nothing; 8 + 3];
    script.push(Injected::Reject);
    let faulty = Faulty::new(&script);
    let cipher = aead(&faulty, AeadAlgorithm::Aes256Gcm, 2, LONG);
    aead_agrees(&cipher, AeadAlgorithm::Aes256Gcm, &[1408; 8], usize::MAX);
    assert_ne!(cipher.describe(), "faulty");
}

/// The verdict that a packet is genuine is final, so a device that was not seen to reject one is not used.
#[test]
fn one_that_takes_forged_packets_for_genuine_is_refused() {
    let mut offers = Vec::new();
    assert!(found::add(&mut offers, Box::new(Faulty::new(&[]))).is_empty());
    assert_eq!(offers.len(), Task::ALL.len());

    // More jobs than all attempts together need.
    let accepting = Faulty::new(&[Injected::Accept; 4096]);
    let mut offers = Vec::new();
    let refused = found::add(&mut offers, Box::new(accepting));
    assert_eq!(refused.len(), 2, "{refused:?}");
    let left: Vec<_> = offers.iter().map(|offer| offer.task).collect();
    assert_eq!(left, [Task::AesCbc]);
}

/// Choices and findings are kept for a process, so the test below runs in its own process.
#[test]
fn with_an_accelerator_that_is_gone_every_key_is_made() {
    let this = std::env::current_exe().unwrap();
    // A program for another machine needs a runner to start.
    let runner = std::env::var("MILLRACE_TEST_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    let mut command = match words.next() {
        Some(emulator) => std::process::Command::new(emulator),
        None => std::process::Command::new(&this),
    };
    if !runner.is_empty() {
        command.args(words).arg(&this);
    }
    let output = command
        .args(["--ignored", "--exact", "--nocapture", "--test-threads=1"])
        .arg("accelerator::tests::keys_after_the_accelerator")
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "runs in a process of its own, by another test"]
fn keys_after_the_accelerator() {
    let mut offers = Vec::new();
    assert!(found::add(&mut offers, Box::new(Faulty::new(&[]))).is_empty());
    for offer in &offers {
        offer.set_crossovers([crossover(2); 2]);
    }
    let pool = Arc::clone(&offers[0].pool);
    assert!(found::install(offers));
    // No accelerator computes hashes.
    let hashes = Algorithm::ALL
        .into_iter()
        .filter(|&algorithm| !select::set(algorithm, Some(Backend::Accelerator)));
    assert_eq!(hashes.count(), 3);

    let gcm = Pair::aead(None, AeadAlgorithm::Aes256Gcm, &KEY).unwrap();
    assert_eq!(gcm.many().describe(), "faulty by a faulty accelerator");
    sparing_keys_with_one_session_left(&pool);
    pool.give_up("faulty", format_args!("the test says so"));

    let algorithm = AeadAlgorithm::ChaCha20Poly1305;
    assert!(Pair::aead(Some(Backend::Accelerator), algorithm, &KEY).is_none());
    let on_cpu = select::chosen_on_cpu(Algorithm::ChaCha20Poly1305);
    for _ in 0..2 {
        let key = Pair::aead(None, algorithm, &KEY).unwrap();
        aead_agrees(key.many(), algorithm, &[1408; 8], 3);
        let (encrypting, _) = Pair::cbc(None, &KEY).unwrap();
        cbc_agrees(encrypting.many(), &[1408; 8]);
    }
    // Reports name the code that runs.
    assert_eq!(select::chosen(Algorithm::ChaCha20Poly1305), on_cpu);
    let cipher = Cipher::ChaCha20Poly1305;
    let wireguard = packet_aead::new(None, cipher, &KEY, AeadLayout::NoNumber).unwrap();
    assert!(!wireguard.backend().contains("faulty"));
}

/// A normal key opens a session; sparing keys, most of which are never used, open none.
fn sparing_keys_with_one_session_left(pool: &Arc<Pool>) {
    // One of the sixteen keys is the caller's.
    let others: Vec<_> = (0..14)
        .map(|_| Offload::new(pool, Task::AesGcm, &KEY).unwrap())
        .collect();
    let layout = AeadLayout::Number64 {
        header: 4,
        iv: [8; 12],
    };
    let cipher = Cipher::Aes256Gcm;
    let accelerator = Some(Backend::Accelerator);
    let used = packet_aead::new(accelerator, cipher, &[0; 32], layout).unwrap();
    assert!(Offload::new(pool, Task::AesGcm, &KEY).is_err());
    assert!(used.backend().contains("faulty"));
    for number in 0..9 {
        let key = [number; 32];
        let sender = match number {
            0 => Arc::clone(&used),
            _ => packet_aead::sparing(accelerator, cipher, &key, layout).unwrap(),
        };
        let receiver = packet_aead::new(Some(Backend::Portable), cipher, &key, layout).unwrap();
        let (head, len) = (4 + sender.head(), 64);
        let mut memory = vec![0x35; head + len + sender.tail(len)];
        let mut packets = [Packet {
            start: head as u32,
            len: len as u32,
            counter: 1,
            authentic: false,
        }];
        let (memory, packets) = (&mut memory[..], &mut packets[..]);
        sender.seal(&mut Batch { memory, packets });
        packets[0].start = 4;
        packets[0].len = (memory.len() - 4) as u32;
        receiver.open(&mut Batch { memory, packets });
        assert!(packets[0].authentic, "key {number}");
        assert_eq!(memory[head..][..len], [0x35; 64]);
    }
    drop(others);
}

#[test]
fn more_keys_than_there_are_sessions_for_are_the_cpus() {
    let pool = Pool::new(Box::new(Faulty::new(&[]))).unwrap();
    let open = || Offload::new(&pool, Task::AesGcm, &KEY);
    let keys: Vec<_> = (0..16).map(|_| open().unwrap()).collect();
    assert!(open().is_err());
    drop(keys);
    assert!(open().is_ok());
    assert_eq!(Arc::strong_count(&pool), 1);
}

/// Several workers with one key: a worker that finds no free driver thread encrypts on the CPU.
#[test]
fn workers_do_not_wait_for_each_other() {
    let faulty = Faulty::new(&[]);
    let cipher = aead(&faulty, AeadAlgorithm::Aes256Gcm, 2, LONG);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for forged in 0..50 {
                    aead_agrees(&cipher, AeadAlgorithm::Aes256Gcm, &[700; 16], forged);
                }
            });
        }
    });
    assert_eq!(cipher.describe(), "faulty");
    assert!(faulty.done() > 0);
}
