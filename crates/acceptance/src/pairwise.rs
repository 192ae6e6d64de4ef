//! Sets of cases in which every pair of choices occurs.

use std::collections::BTreeSet;

/// A choice of one thing, by numbers: which thing, and which of its values.
pub type Choice = (usize, usize);

/// Cases, one value of each thing in each, so that any two values of two things occur together in one of
/// them. `sizes` are the numbers of values; pairs for which `forbidden` is true (the first thing
/// having the smaller number) never occur. Always the same for the same arguments.
///
/// Every value must be possible with each forbidden-free partial case; otherwise this panics.
pub fn pairwise(sizes: &[usize], forbidden: impl Fn(Choice, Choice) -> bool) -> Vec<Vec<usize>> {
    let clash = |a: Choice, b: Choice| forbidden(a.min(b), a.max(b));
    let mut open: BTreeSet<(Choice, Choice)> = BTreeSet::new();
    for (one, &values) in sizes.iter().enumerate() {
        for (two, &others) in sizes.iter().enumerate().skip(one + 1) {
            for pair in (0..values).flat_map(|v| (0..others).map(move |w| ((one, v), (two, w)))) {
                if !clash(pair.0, pair.1) {
                    open.insert(pair);
                }
            }
        }
    }
    let mut cases = Vec::new();
    while let Some(&(first, second)) = open.first() {
        let mut case = vec![first, second];
        while case.len() < sizes.len() {
            // The choice that covers most of what is open. Equals are mixed, or else things that have the
            // same number of values would take turns in step.
            let best = (0..sizes.len())
                .filter(|thing| case.iter().all(|(chosen, _)| chosen != thing))
                .flat_map(|thing| (0..sizes[thing]).map(move |value| (thing, value)))
                .filter(|choice| case.iter().all(|other| !clash(*choice, *other)))
                .max_by_key(|choice| {
                    let new = |other: &&Choice| {
                        open.contains(&((*choice).min(**other), (*choice).max(**other)))
                    };
                    let covered = case.iter().filter(new).count();
                    (covered, mixed([cases.len(), choice.0, choice.1]))
                });
            case.push(best.expect("a value that is possible"));
        }
        case.sort_unstable();
        for (place, one) in case.iter().enumerate() {
            for two in &case[place + 1..] {
                open.remove(&(*one, *two));
            }
        }
        cases.push(case.into_iter().map(|(_, value)| value).collect());
    }
    cases
}

/// A number that seems to have nothing to do with those that it is made of (FNV-1a, and a last shake).
fn mixed(numbers: [usize; 3]) -> u64 {
    let step = |hash: u64, number: usize| (hash ^ number as u64).wrapping_mul(0x0100_0000_01b3);
    let hash = numbers.into_iter().fold(0xcbf2_9ce4_8422_2325, step);
    (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}
