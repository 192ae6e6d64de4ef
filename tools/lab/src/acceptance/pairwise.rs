//! Test cases that cover every pair of choices.

use std::collections::BTreeSet;

/// The choice of a value for a parameter: the parameter's number and the value's number.
pub type Choice = (usize, usize);

/// Returns cases with one value for each parameter, so that any two values of two parameters occur together in a
/// case. `sizes` holds each parameter's number of values. Pairs for which `forbidden` is true never occur; the first
/// parameter has the smaller number. The same arguments always give the same cases.
///
/// Panics if a valid partial case cannot be completed.
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
            // Take the choice that covers most open pairs. Ties are broken by a hash; otherwise parameters with equal
            // sizes would change in step.
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

/// Hashes three numbers (FNV-1a with a final mix).
fn mixed(numbers: [usize; 3]) -> u64 {
    let step = |hash: u64, number: usize| (hash ^ number as u64).wrapping_mul(0x0100_0000_01b3);
    let hash = numbers.into_iter().fold(0xcbf2_9ce4_8422_2325, step);
    (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}
