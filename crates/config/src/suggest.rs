//! "Did you mean": the known word that is nearest to a misspelled one.

/// A hint about what to write instead of `found`: the nearest of `known` if it is near, or else all of them.
pub(crate) fn suggest(found: &str, known: &[&str]) -> String {
    match nearest(found, known) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("known are: {}", known.join(", ")),
    }
}

/// The nearest of `known`, if it is near.
pub(crate) fn nearest<'k>(found: &str, known: &[&'k str]) -> Option<&'k str> {
    // Long input is not a typing mistake, and the distance takes quadratic time.
    let found = if found.len() <= 64 { found } else { "" };
    known
        .iter()
        // The distance is at least the difference in length.
        .filter(|word| word.len().abs_diff(found.len()) <= word.len().div_ceil(3))
        .map(|word| (distance(&found.to_lowercase(), &word.to_lowercase()), *word))
        .min()
        // At most a third of the word may be wrong.
        .filter(|(steps, word)| *steps <= word.len().div_ceil(3))
        .map(|(_, word)| word)
}

/// Smallest number of bytes to insert, remove, replace or swap with a neighbour to turn `a` into `b` (optimal string
/// alignment). Keeps the whole table, as both words are short.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if i == 0 || j == 0 {
                table[i][j] = i + j;
                continue;
            }
            let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let moved = table[i - 1][j].min(table[i][j - 1]) + 1;
            table[i][j] = replaced.min(moved);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                table[i][j] = table[i][j].min(table[i - 2][j - 2] + 1);
            }
        }
    }
    table[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_named_and_far_ones_listed() {
        assert_eq!(
            suggest("ListenPrt", &["ListenPort", "MTU"]),
            "did you mean `ListenPort`?"
        );
        assert_eq!(suggest("zzzzz", &["a", "b"]), "known are: a, b");
        assert_eq!(suggest(&"x".repeat(100_000), &["abc"]), "known are: abc");
    }

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("gos", "gso"), 1);
        assert_eq!(distance("same", "same"), 0);
    }
}
