//! Keys or certificates of one client: that of each new file replaces that of the file before.

use std::collections::HashMap;
use std::iter;

/// Unused new files that a client may have: each is another key that the server admits.
const UNUSED_MAX: usize = 4;

/// The number of files that end when a client with this many unused ones gets another.
pub(super) const fn surplus(unused: usize) -> usize {
    (unused + 1).saturating_sub(UNUSED_MAX)
}

/// The keys of clients, by their places in a list.
pub(super) struct Chains {
    /// For each key the place of the key that it replaces. No chain leads back to itself.
    before: Vec<Option<usize>>,
    /// For each key the place of its client's first key.
    first: Vec<usize>,
}

impl Chains {
    /// Reads keys, each with the key that it replaces. People edit the list: a key that replaces an unknown one, or in
    /// the end itself, replaces none.
    pub(super) fn of<'a>(keys: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Self {
        let keys: Vec<_> = keys.collect();
        let mut places = HashMap::new();
        for (at, (key, _)) in keys.iter().enumerate() {
            places.entry(*key).or_insert(at);
        }
        let before = keys
            .iter()
            .map(|(_, replaced)| places.get((*replaced)?).copied());
        let mut before: Vec<Option<usize>> = before.collect();
        let mut first: Vec<Option<usize>> = vec![None; keys.len()];
        let mut is_walked = vec![false; keys.len()];
        for start in 0..keys.len() {
            let (mut at, mut walk) = (start, Vec::new());
            let found = loop {
                if let Some(found) = first[at] {
                    break found;
                }
                is_walked[at] = true;
                walk.push(at);
                match before[at] {
                    Some(next) if first[next].is_none() && is_walked[next] => {
                        // The walk went in a circle.
                        before[at] = None;
                        break at;
                    }
                    Some(next) => at = next,
                    None => break at,
                }
            };
            walk.into_iter().for_each(|it| first[it] = Some(found));
        }
        Self {
            before,
            first: first.into_iter().flatten().collect(),
        }
    }

    /// The places of the keys that the one at `at` replaces, the latest first.
    pub(super) fn before(&self, at: usize) -> impl Iterator<Item = usize> {
        iter::successors(self.before[at], |it| self.before[*it])
    }

    /// The places of each client's keys: the first key, and the others in the order of the list.
    pub(super) fn clients(&self) -> Vec<Vec<usize>> {
        let mut clients: Vec<Vec<usize>> = vec![Vec::new(); self.first.len()];
        for (at, first) in self.first.iter().enumerate() {
            if at == *first {
                clients[at].insert(0, at);
            } else {
                clients[*first].push(at);
            }
        }
        clients.retain(|it| !it.is_empty());
        clients
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_belong_to_the_client_whose_first_key_they_replace() {
        for (list, clients, last) in [
            ("", "", ""),
            ("a b", "a|b", ""),
            ("a b c:a d:c e:d", "acde|b", "dca"),
            // Two for one, and the newer above the older.
            ("c:b a b:a d:a", "acbd", "a"),
            // The replaced key is not there, or is the same.
            ("a b:x c:b d:d", "a|bc|d", ""),
            // Circles.
            ("a b:c c:d d:b e:d", "a|dbce", "d"),
            ("a:b b:a", "ba", ""),
            ("c:a a:b b:a", "bca", ""),
            // A key that stands there twice.
            ("a b:a a", "ab|a", ""),
        ] {
            let keys = list.split_whitespace().map(|it| match it.split_once(':') {
                Some((key, replaced)) => (key, Some(replaced)),
                None => (it, None),
            });
            let names: Vec<&str> = keys.clone().map(|(key, _)| key).collect();
            let chains = Chains::of(keys);
            let text = |places: Vec<usize>| places.into_iter().map(|it| names[it]).collect();
            let found: Vec<String> = chains.clients().into_iter().map(text).collect();
            assert_eq!(found.join("|"), clients, "{list}");
            let before = names.len().checked_sub(1).map(|it| chains.before(it));
            let before = before.into_iter().flatten().collect();
            assert_eq!(text(before), last, "{list}");
        }
    }

    #[test]
    fn a_chain_of_all_keys_is_read_at_once() {
        let names: Vec<String> = (0..20_000).map(|it| it.to_string()).collect();
        let replaced = names.iter().map(|it| Some(it.as_str())).skip(1);
        let keys = names.iter().map(String::as_str);
        let chains = Chains::of(keys.zip(replaced.chain([None])));
        assert_eq!(chains.clients().len(), 1);
    }
}
