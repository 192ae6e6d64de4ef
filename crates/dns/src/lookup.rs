//! A look-up: both kinds of addresses of a name, of one server after the other until one knows.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::message::{Answer, Kind, Verdict, answer, question};

/// How long one server may take.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// A query that is not answered is sent once more after this.
const AGAIN: Duration = Duration::from_millis(700);

const KINDS: [Kind; 2] = [Kind::A, Kind::Aaaa];

/// Why there is no address.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum LookupError {
    /// It is no name.
    #[error("it is not a name")]
    NotAName,
    /// A server says that there is no such name, or that it has no address.
    #[error("the name has no address")]
    NoAddress,
    /// None says anything.
    #[error("no name server answers")]
    NoAnswer,
}

/// What is to be done next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// A message goes to a server, which is named by its place.
    Send(usize, Vec<u8>),
    /// A message, or this moment, is waited for.
    Wait(Instant),
    /// That was it.
    Done(Result<Vec<IpAddr>, LookupError>),
}

/// A look-up.
#[derive(Clone, Debug)]
pub struct Lookup {
    queries: [Vec<u8>; 2],
    servers: usize,
    /// The server that is asked.
    at: usize,
    found: [Option<Answer>; 2],
    /// Queries that are to be sent.
    due: [bool; 2],
    again: Option<Instant>,
    until: Instant,
    /// A server has said that there is none.
    none: bool,
}

impl Lookup {
    /// Of a name at so many servers. The numbers are ones that others cannot guess.
    ///
    /// # Errors
    /// [`LookupError::NotAName`].
    pub fn new(
        host: &str,
        servers: usize,
        numbers: [u16; 2],
        now: Instant,
    ) -> Result<Self, LookupError> {
        let query = |place: usize| question(numbers[place], host, KINDS[place]);
        let (Some(first), Some(second)) = (query(0), query(1)) else {
            return Err(LookupError::NotAName);
        };
        let mut lookup = Self {
            queries: [first, second],
            servers,
            at: 0,
            found: [None, None],
            due: [true; 2],
            again: None,
            until: now,
            none: false,
        };
        lookup.begin(0, now);
        Ok(lookup)
    }

    fn begin(&mut self, at: usize, now: Instant) {
        self.at = at;
        self.found = [None, None];
        self.due = [true; 2];
        self.again = Some(now + AGAIN);
        self.until = now + PATIENCE;
    }

    /// What is to be done at this moment.
    pub fn next(&mut self, now: Instant) -> Step {
        loop {
            if self.at >= self.servers {
                return Step::Done(Err(match self.none {
                    true => LookupError::NoAddress,
                    false => LookupError::NoAnswer,
                }));
            }
            let refused =
                |it: &Option<Answer>| it.as_ref().is_some_and(|it| it.verdict == Verdict::Refused);
            let is_over = now >= self.until
                || self.found.iter().all(Option::is_some)
                || self.found.iter().all(refused);
            if is_over {
                let addresses = self.addresses();
                if !addresses.is_empty() {
                    return Step::Done(Ok(addresses));
                }
                let says_none = |it: &Answer| it.verdict != Verdict::Refused;
                self.none |= self.found.iter().flatten().any(says_none);
                self.begin(self.at + 1, now);
                continue;
            }
            if self.again.is_some_and(|again| now >= again) {
                self.again = None;
                self.due = [0, 1].map(|place: usize| self.found[place].is_none());
            }
            if let Some(place) = self.due.iter().position(|due| *due) {
                self.due[place] = false;
                return Step::Send(self.at, self.queries[place].clone());
            }
            return Step::Wait(self.again.unwrap_or(self.until));
        }
    }

    /// A message has come from a server.
    pub fn heard(&mut self, server: usize, message: &[u8]) {
        for (place, kind) in KINDS.into_iter().enumerate() {
            let is_awaited = server == self.at && self.found[place].is_none();
            if is_awaited && let Some(found) = answer(message, &self.queries[place], kind) {
                self.found[place] = Some(found);
                return;
            }
        }
    }

    /// Nothing can be sent to a server, or nothing comes from it.
    pub fn unreachable(&mut self, server: usize, now: Instant) {
        if server == self.at {
            self.until = now;
        }
    }

    fn addresses(&self) -> Vec<IpAddr> {
        let found = self.found.iter().flatten();
        found.flat_map(|it| it.addresses.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NUMBERS: [u16; 2] = [11, 22];

    /// What a server answers to a query.
    fn reply(query: &[u8], code: u8, address: Option<&[u8]>) -> Vec<u8> {
        let mut message = query.to_vec();
        message[2..4].copy_from_slice(&[0x81, 0x80 | code]);
        if let Some(address) = address {
            message[7] = 1;
            message.extend([0xc0, 12, 0, query[query.len() - 3], 0, 1, 0, 0, 0, 9, 0]);
            message.push(u8::try_from(address.len()).unwrap());
            message.extend(address);
        }
        message
    }

    fn sent(lookup: &mut Lookup, now: Instant) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        while let Step::Send(server, query) = lookup.next(now) {
            all.push((server, query));
        }
        all
    }

    #[test]
    fn both_kinds_are_asked_for_at_once() {
        let now = Instant::now();
        let mut lookup = Lookup::new("vpn.example", 2, NUMBERS, now).unwrap();
        let queries = sent(&mut lookup, now);
        assert_eq!(queries.len(), 2);
        assert_eq!(lookup.next(now), Step::Wait(now + AGAIN));
        lookup.heard(0, &reply(&queries[1].1, 0, Some(&[0xfd; 16])));
        lookup.heard(0, &reply(&queries[0].1, 0, Some(&[192, 0, 2, 7])));
        let Step::Done(Ok(found)) = lookup.next(now) else {
            panic!("not done");
        };
        assert_eq!(found[0], IpAddr::from([192, 0, 2, 7]));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_silent_server_is_asked_twice_and_then_the_next() {
        let begin = Instant::now();
        let mut lookup = Lookup::new("vpn.example", 2, NUMBERS, begin).unwrap();
        assert_eq!(sent(&mut lookup, begin).len(), 2);
        assert_eq!(sent(&mut lookup, begin + AGAIN).len(), 2);
        let later = begin + PATIENCE;
        assert_eq!(lookup.next(begin + AGAIN), Step::Wait(later));
        let queries = sent(&mut lookup, later);
        assert_eq!(queries.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 1]);
        // What the first one says now is late.
        lookup.heard(0, &reply(&queries[0].1, 0, Some(&[192, 0, 2, 7])));
        assert_eq!(
            lookup.next(later + PATIENCE),
            Step::Done(Err(LookupError::NoAnswer))
        );
    }

    #[test]
    fn half_an_answer_is_better_than_none() {
        let now = Instant::now();
        let mut lookup = Lookup::new("vpn.example", 1, NUMBERS, now).unwrap();
        let queries = sent(&mut lookup, now);
        lookup.heard(0, &reply(&queries[0].1, 0, Some(&[192, 0, 2, 7])));
        assert!(matches!(lookup.next(now), Step::Wait(_)));
        assert!(matches!(lookup.next(now + PATIENCE), Step::Done(Ok(_))));
    }

    #[test]
    fn servers_that_refuse_or_cannot_be_reached_are_passed_over_at_once() {
        let now = Instant::now();
        let mut lookup = Lookup::new("vpn.example", 3, NUMBERS, now).unwrap();
        for query in sent(&mut lookup, now) {
            lookup.heard(0, &reply(&query.1, 5, None));
        }
        assert_eq!(sent(&mut lookup, now)[0].0, 1);
        lookup.unreachable(1, now);
        let queries = sent(&mut lookup, now);
        assert_eq!(queries[0].0, 2);
        for query in queries {
            lookup.heard(2, &reply(&query.1, 3, None));
        }
        assert_eq!(lookup.next(now), Step::Done(Err(LookupError::NoAddress)));
        let none = Lookup::new("a..b", 1, NUMBERS, now);
        assert_eq!(none.unwrap_err(), LookupError::NotAName);
    }

    proptest! {
        /// Whatever servers say and however late, a look-up ends, and sends at most four messages to each.
        #[test]
        fn it_ends(events in prop::collection::vec((0usize..4, 0u8..8, 0u64..1500), 0..60), servers in 0usize..4) {
            let mut now = Instant::now();
            let mut lookup = Lookup::new("vpn.example", servers, NUMBERS, now).unwrap();
            let mut all = Vec::new();
            for (server, code, pause) in events {
                all.extend(sent(&mut lookup, now));
                if let Some((_, query)) = all.last() {
                    lookup.heard(server, &reply(query, code, None));
                }
                now += Duration::from_millis(pause);
            }
            for _ in 0..2 * servers + 2 {
                all.extend(sent(&mut lookup, now));
                now += PATIENCE;
            }
            prop_assert!(matches!(lookup.next(now), Step::Done(_)));
            prop_assert!(all.len() <= 4 * servers);
        }
    }
}
