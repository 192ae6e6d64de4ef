//! Chooses the candidate that runs, once for each process.
//!
//! The fastest code depends on the core more than on its instructions: bit-sliced NEON gains 1.4x on a Cortex-A15 and
//! nothing on a Cortex-A7, whose vector unit is half as wide. So the candidates of an algorithm are measured, for a
//! millisecond or so of processor time, when the first key is made, or all at once by [`measure`]. Two are kept for
//! each algorithm: the fastest for batches and the fastest for few packets.
//!
//! - [`set`] narrows an algorithm's candidates to one kind (`--crypto-backend`);
//! - [`Choice`]s go into a profile ([`chosen`]) and come back ([`import`]), so that nothing is measured at the next
//!   start.
//!
//! [`Backend::Accelerator`] is used only on request, by [`set`] or by a profile. Whether an accelerator is worth the
//! path through the kernel depends on the batch, and that measurement takes too long for a start.

mod measuring;

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::Digest;
pub use crate::algorithm::Algorithm;
use crate::implementations::{AEADS, Backend, CBCS, Candidate, Hmac, MACS, MakeAead, MakeMac};
use crate::packet_aead::AeadAlgorithm;
use measuring::Among;
pub use measuring::Measured;
pub(crate) use measuring::Picked;

impl Algorithm {
    /// The candidates of the algorithm: kind, name, and whether the machine has what it needs.
    fn candidates(self) -> Vec<(Backend, &'static str, bool)> {
        self.candidates_of(|_| true)
    }

    /// The same as [`candidates`](Self::candidates), but candidates of other kinds are not looked for and count as
    /// absent.
    fn candidates_of(self, kinds: impl Fn(Backend) -> bool) -> Vec<(Backend, &'static str, bool)> {
        let key = [0; 32];
        let digest = match self {
            Self::HmacSha1 => Digest::Sha1,
            Self::HmacSha256 => Digest::Sha256,
            _ => Digest::Sha512,
        };
        let aead = |algorithm| {
            let is_there = |make: &MakeAead| make(algorithm, &key).is_some();
            self.listed(AEADS, &kinds, is_there)
        };
        match self {
            Self::AesGcm => aead(AeadAlgorithm::Aes256Gcm),
            Self::ChaCha20Poly1305 => aead(AeadAlgorithm::ChaCha20Poly1305),
            Self::AesCbcEncrypt | Self::AesCbcDecrypt => {
                self.listed(CBCS, kinds, |make| make(&key).is_some())
            }
            Self::HmacSha1 | Self::HmacSha256 | Self::HmacSha512 => {
                let key = Hmac::new(digest, &key);
                let is_there = |make: &MakeMac| key.as_ref().and_then(make).is_some();
                self.listed(MACS, kinds, is_there)
            }
        }
    }

    /// The candidates of a table; `is_there` says whether one can be made.
    fn listed<Make>(
        self,
        table: &[Candidate<Make>],
        kinds: impl Fn(Backend) -> bool,
        is_there: impl Fn(&Make) -> bool,
    ) -> Vec<(Backend, &'static str, bool)> {
        let candidate = |of: &Candidate<Make>| {
            let kind = (of.backend)();
            let present = match kind {
                _ if !kinds(kind) => false,
                // Making a key would use one of the accelerator's few sessions.
                #[cfg(feature = "accelerators")]
                Backend::Accelerator => crate::accelerator::does(self),
                _ => is_there(&of.make),
            };
            (kind, of.name, present)
        };
        table.iter().map(candidate).collect()
    }
}

/// The code that runs for an algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Algorithm this choice is for.
    pub algorithm: Algorithm,
    /// The kind of the candidate for batches.
    pub backend: Backend,
    /// The candidate for batches, by its name.
    pub many: &'static str,
    /// The candidate for few packets, by its name.
    pub few: &'static str,
}

/// The picks for each algorithm: by a profile, of each kind, and among those that run on the CPU. 0 means no pick yet.
static PICKED: [[AtomicU32; 5]; 7] = [const { [const { AtomicU32::new(0) }; 5] }; 7];

/// The column of candidates that run on the CPU: all except accelerators.
const CPU: usize = 4;

/// The pick for a kind that this machine lacks.
const NONE: u32 = u32::MAX;

/// The kind to which [`set`] has narrowed each algorithm, as a column of [`PICKED`]; 0 for all.
static WANTED: [AtomicU8; 7] = [const { AtomicU8::new(0) }; 7];

/// The measurements of this process.
static MEASURED: Mutex<Vec<(Algorithm, Measured)>> = Mutex::new(Vec::new());

/// Lets only one thread measure, so that two do not disturb each other.
static MEASURING: Mutex<()> = Mutex::new(());

const fn column(backend: Option<Backend>) -> usize {
    match backend {
        None => 0,
        Some(Backend::Portable) => 1,
        Some(Backend::Simd) => 2,
        Some(Backend::Accelerator) => 3,
    }
}

/// Narrows an algorithm to candidates of one kind; `None` means the fastest of all. Applies to keys that are made from
/// now on. Returns `false`, and changes nothing, if this machine has no such candidate.
pub fn set(algorithm: Algorithm, backend: Option<Backend>) -> bool {
    let there = backend.is_none_or(|backend| {
        algorithm
            .candidates()
            .iter()
            .any(|&(kind, _, present)| present && kind == backend)
    });
    if there {
        WANTED[algorithm as usize].store(column(backend) as u8, Ordering::Relaxed);
    }
    there
}

/// Makes the choice for every algorithm now, which takes some milliseconds, and returns the choices.
pub fn measure() -> Vec<Choice> {
    Algorithm::ALL.into_iter().map(chosen).collect()
}

/// The code that runs for an algorithm. Measures it first if that has not been done.
#[must_use]
pub fn chosen(algorithm: Algorithm) -> Choice {
    let candidates = algorithm.candidates();
    let picked = pick(algorithm, None).unwrap_or_else(|| pick_on_cpu(algorithm));
    choice(algorithm, &candidates, picked)
}

fn choice(
    algorithm: Algorithm,
    candidates: &[(Backend, &'static str, bool)],
    picked: Picked,
) -> Choice {
    let (backend, many, _) = candidates[picked.many];
    Choice {
        algorithm,
        backend,
        many,
        few: candidates[picked.few].1,
    }
}

/// Takes the fastest code from a profile. Returns `false`, and changes nothing, if this machine or this program lacks
/// these candidates.
///
/// An accelerator works beside the CPU: import the CPU's code by a second call.
pub fn import(algorithm: Algorithm, many: &str, few: &str) -> bool {
    let candidates = algorithm.candidates();
    let place = |name| {
        candidates
            .iter()
            .position(|&(_, of, present)| present && of == name)
    };
    let (Some(many), Some(few)) = (place(many), place(few)) else {
        return false;
    };
    let on_cpu = |place: usize| candidates[place].0 != Backend::Accelerator;
    let column = if on_cpu(many) && on_cpu(few) { CPU } else { 0 };
    PICKED[algorithm as usize][column].store(Picked { many, few }.packed(), Ordering::Relaxed);
    true
}

/// The code that runs on the CPU for an algorithm, with or without an accelerator beside it. Measures it first if that
/// has not been done.
#[must_use]
pub fn chosen_on_cpu(algorithm: Algorithm) -> Choice {
    let candidates = algorithm.candidates_of(|_| false);
    let picked = pick_column(algorithm, CPU).unwrap_or(Picked::FIRST);
    choice(algorithm, &candidates, picked)
}

/// The measurements behind the choice for this algorithm: empty if a profile made it, there was one candidate, or no
/// choice was made yet.
#[must_use]
pub fn measured(algorithm: Algorithm) -> Vec<Measured> {
    let all = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let of = all.iter().filter(|(of, _)| *of == algorithm);
    of.map(|(_, measured)| measured.clone()).collect()
}

/// The candidates of this machine: kind and name of each.
#[must_use]
pub fn candidates(algorithm: Algorithm) -> Vec<(Backend, &'static str)> {
    let all = algorithm.candidates().into_iter();
    all.filter(|&(.., present)| present)
        .map(|(backend, name, _)| (backend, name))
        .collect()
}

/// The names of the candidates that run on this machine's CPU, among which [`chosen_on_cpu`] chooses. Does not look for
/// accelerators.
#[must_use]
pub fn candidates_on_cpu(algorithm: Algorithm) -> Vec<&'static str> {
    let all = algorithm.candidates_of(|kind| kind != Backend::Accelerator);
    all.into_iter()
        .filter(|&(.., present)| present)
        .map(|(_, name, _)| name)
        .collect()
}

/// The candidates for a key: of this kind, or as [`set`] for this process. `None` if there is none.
pub(crate) fn pick(algorithm: Algorithm, backend: Option<Backend>) -> Option<Picked> {
    let column = wanted(algorithm, backend);
    match PICKED[algorithm as usize][0].load(Ordering::Relaxed) {
        // No profile has chosen an accelerator.
        0 if column == 0 => pick_column(algorithm, CPU),
        _ => pick_column(algorithm, column),
    }
}

/// Like [`pick`], but on the CPU instead of an accelerator. `None` if no code of this kind exists.
pub(crate) fn pick_sparing(algorithm: Algorithm, backend: Option<Backend>) -> Option<Picked> {
    let column = wanted(algorithm, backend);
    let may_be_accelerator = column == 0 || column == self::column(Some(Backend::Accelerator));
    pick_column(algorithm, if may_be_accelerator { CPU } else { column })
}

/// The column of this kind, or of the kind [`set`] for this process.
fn wanted(algorithm: Algorithm, backend: Option<Backend>) -> usize {
    match backend {
        None => usize::from(WANTED[algorithm as usize].load(Ordering::Relaxed)),
        wanted => column(wanted),
    }
}

/// The candidates for a key that are to run on the CPU.
pub(crate) fn pick_on_cpu(algorithm: Algorithm) -> Picked {
    pick_column(algorithm, CPU).unwrap_or(Picked::FIRST)
}

fn pick_column(algorithm: Algorithm, column: usize) -> Option<Picked> {
    let place = &PICKED[algorithm as usize][column];
    let known = |bits| (bits != NONE).then(|| Picked::unpacked(bits));
    match place.load(Ordering::Relaxed) {
        0 => {}
        bits => return known(bits),
    }
    let is_among = |kind| match column {
        CPU => kind != Backend::Accelerator,
        _ => self::column(Some(kind)) == column,
    };
    // Looking for accelerators asks for the CPU's code, which takes the lock below.
    let candidates = algorithm.candidates_of(is_among);
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    match place.load(Ordering::Relaxed) {
        0 => {}
        bits => return known(bits),
    }
    let among = Among::present(&candidates);
    let picked = match &among[..] {
        [] => None,
        [only] => Some(Picked {
            many: only.index,
            few: only.index,
        }),
        _ => {
            let (picked, measured) = measuring::fastest(algorithm, &among);
            let mut all = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|(of, old)| {
                *of != algorithm || measured.iter().all(|new| new.name != old.name)
            });
            all.extend(measured.into_iter().map(|new| (algorithm, new)));
            Some(picked)
        }
    };
    // A failed accelerator may work later, so this is not stored.
    if picked.is_some() || column != self::column(Some(Backend::Accelerator)) {
        place.store(picked.map_or(NONE, Picked::packed), Ordering::Relaxed);
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_a_choice_that_a_profile_can_keep() {
        for choice in measure() {
            let names = candidates(choice.algorithm);
            assert!(names.contains(&(choice.backend, choice.many)));
            assert!(names.iter().any(|&(_, name)| name == choice.few));
            let on_cpu = candidates_on_cpu(choice.algorithm);
            for (backend, name) in names {
                assert_eq!(on_cpu.contains(&name), backend != Backend::Accelerator);
            }
            assert!(import(choice.algorithm, choice.many, choice.few));
            assert!(!import(choice.algorithm, "no such code", choice.few));
            assert_eq!(
                Algorithm::from_name(choice.algorithm.name()),
                Some(choice.algorithm)
            );
        }
    }

    #[test]
    fn a_kind_picks_among_its_own() {
        for algorithm in Algorithm::ALL {
            for backend in Backend::ALL {
                let all = algorithm.candidates();
                let some = all
                    .iter()
                    .any(|&(kind, _, present)| present && kind == backend);
                let picked = pick(algorithm, Some(backend));
                assert_eq!(picked.is_some(), some, "{algorithm:?} {backend}");
                if let Some(Picked { many, few }) = picked {
                    assert_eq!((all[many].0, all[few].0), (backend, backend));
                }
            }
        }
    }

    #[test]
    fn what_was_picked_is_what_was_stored() {
        for picked in [
            Picked::FIRST,
            Picked { many: 3, few: 0 },
            Picked { many: 0, few: 7 },
        ] {
            assert_eq!(Picked::unpacked(picked.packed()), picked);
        }
    }
}
