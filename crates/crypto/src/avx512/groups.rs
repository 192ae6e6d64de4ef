//! Divides batches into groups: runs of packets of one length are processed together, the others one by one.

use super::{Avx512, Group};
use crate::implementations::{AeadImplementation, AwsLcAead, Place};
use crate::packet_aead::AeadAlgorithm;

/// Minimum packets of one length that are worth a group, whatever the length. Empty lanes cost as much as full ones.
/// With four packets of 1420 bytes a group is a little faster than the library; fewer were not tried.
const GROUP_MIN: usize = 4;

/// ChaCha20-Poly1305 of batches.
pub(crate) struct Groups {
    avx512: Avx512,
    library: AwsLcAead,
}

impl Groups {
    /// `None` for another algorithm or on a machine that lacks the instructions.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        if algorithm != AeadAlgorithm::ChaCha20Poly1305 {
            return None;
        }
        Some(Self {
            avx512: Avx512::new(key.try_into().ok()?)?,
            library: AwsLcAead::new(algorithm, key),
        })
    }
}

/// Makes a group of the first packets, if there are enough of one length.
fn group(places: &[Place]) -> Option<Group> {
    let first = places.first()?;
    // Nearly always the second packet already shows whether there is a run.
    let alike = places
        .iter()
        .take_while(|place| place.text.len() == first.text.len());
    if alike.take(GROUP_MIN).count() < GROUP_MIN {
        return None;
    }
    let mut group = Group::new(first)?;
    for place in &places[1..] {
        if !group.push(place) {
            break;
        }
    }
    (group.filled() >= GROUP_MIN).then_some(group)
}

impl AeadImplementation for Groups {
    fn seal(&self, memory: &mut [u8], places: &[Place]) {
        let mut rest = places;
        while let Some((place, others)) = rest.split_first() {
            let Some(first) = group(rest) else {
                self.library.seal_one(memory, place);
                rest = others;
                continue;
            };
            rest = &rest[first.filled()..];
            match first.wants_company().then(|| group(rest)).flatten() {
                Some(second) if first.is_like(&second) => {
                    self.avx512.seal_two(memory, [&first, &second]);
                    rest = &rest[second.filled()..];
                }
                _ => self.avx512.seal(memory, &first),
            }
        }
    }

    fn open(&self, memory: &mut [u8], places: &[Place], authentic: &mut [bool]) {
        let mut at = 0;
        while at < places.len() {
            let Some(first) = group(&places[at..]) else {
                authentic[at] = self.library.open_one(memory, &places[at]);
                at += 1;
                continue;
            };
            let end = at + first.filled();
            match first
                .wants_company()
                .then(|| group(&places[end..]))
                .flatten()
            {
                Some(second) if first.is_like(&second) => {
                    let both = [&first, &second];
                    self.avx512.open_two(memory, both, &mut authentic[at..]);
                    at = end + second.filled();
                }
                _ => {
                    self.avx512.open(memory, &first, &mut authentic[at..]);
                    at = end;
                }
            }
        }
    }

    fn describe(&self) -> &'static str {
        "own (avx512-ifma) for runs of equal length, aws-lc (avx2) for the rest"
    }
}
