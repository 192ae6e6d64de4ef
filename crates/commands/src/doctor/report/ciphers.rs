//! Measures ciphers for the report, with the batch that `millrace tune` judges accelerators by.

use crypto::accelerator::{self, Task, Tuner};
use report::{Cipher, Direction, Measured, Side};
use std::time::Duration;

/// Packets of a batch.
const PACKETS: u16 = 32;

/// Bytes of a full packet in a tunnel.
const BYTES: u16 = 1408;

/// Time for each figure.
const ENOUGH: Duration = Duration::from_millis(50);

const DIRECTIONS: [(Direction, accelerator::Direction); 2] = [
    (Direction::Encrypt, accelerator::Direction::Encrypt),
    (Direction::Decrypt, accelerator::Direction::Decrypt),
];

const SIDES: [(Side, accelerator::Side); 2] = [
    (Side::Cpu, accelerator::Side::Cpu),
    (Side::Accelerator, accelerator::Side::Accelerator),
];

/// Measures each cipher in both directions, on the CPU and on an accelerator that has it.
pub(super) fn measure() -> Vec<Measured> {
    let accelerated: Vec<Task> = accelerator::devices().iter().map(|it| it.task).collect();
    let mut measured = Vec::new();
    for task in Task::ALL {
        let Some(tuner) = Tuner::new(task, None) else {
            continue;
        };
        let cipher = match task {
            Task::AesCbc => Cipher::Aes256Cbc,
            Task::AesGcm => Cipher::Aes256Gcm,
            Task::ChaCha20Poly1305 => Cipher::ChaCha20Poly1305,
        };
        for (side, of_tuner) in SIDES {
            if side == Side::Accelerator && !accelerated.contains(&task) {
                continue;
            }
            for (direction, to) in DIRECTIONS {
                let (packets, bytes) = (PACKETS.into(), BYTES.into());
                let timing = tuner.time(of_tuner, to, packets, bytes, ENOUGH);
                measured.extend(timing.map(|it| Measured {
                    cipher,
                    direction,
                    side,
                    packets: PACKETS,
                    bytes: BYTES,
                    nanoseconds: it.wall,
                    processor_nanoseconds: it.cpu,
                }));
            }
        }
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_is_measured_both_ways() {
        let measured = measure();
        for &cipher in Cipher::ALL {
            for &direction in Direction::ALL {
                let is_it = |it: &&Measured| {
                    (it.cipher, it.direction, it.side) == (cipher, direction, Side::Cpu)
                };
                let found = measured.iter().find(is_it).unwrap();
                assert!(found.nanoseconds > 0, "{found:?}");
            }
        }
    }
}
