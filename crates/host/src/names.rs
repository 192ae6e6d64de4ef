//! Asks name servers for the addresses of a name. Needed if the host's own resolver is behind the tunnel whose server
//! has that name.
//!
//! * [`Lookup`]: asks one server after another for IPv4 and IPv6 addresses until one knows the name: datagrams and the
//!   time in, datagrams and addresses out.
//! * [`message`]: a query, and the addresses in its answer (RFC 1035, RFC 3596).
//! * [`kept`]: the last good addresses, as a text.
//!
//! Nothing here has I/O or a clock.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use thiserror::Error;

use self::message::{Answer, Kind, Verdict, answer, has_letters_of, mixed, plain, question};

pub mod kept;
pub mod message;

/// Time limit for one server.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Pause after which an unanswered query is sent once more.
const AGAIN: Duration = Duration::from_millis(700);

const KINDS: [Kind; 2] = [Kind::A, Kind::Aaaa];

/// Why a look-up found no address.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum LookupError {
    /// The host is not a valid name.
    #[error("it is not a host name")]
    NotAName,
    /// A server says that the name does not exist or has no address.
    #[error("the name has no address")]
    NoAddress,
    /// No server gives an answer.
    #[error("no name server answers")]
    NoAnswer,
}

/// What the caller has to do next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Send this message to the server at this index.
    Send(usize, Vec<u8>),
    /// Wait for a message, until this time at the latest.
    Wait(Instant),
    /// The look-up has ended.
    Done(Result<Vec<IpAddr>, LookupError>),
}

/// Random bits of one query, which nobody but its server sees.
#[derive(Clone, Copy, Debug)]
pub struct Secret {
    /// The number of the query.
    pub number: u16,
    /// One bit for each letter of the name: upper or lower case.
    pub letters: u64,
    /// The number of the lower-case query that follows if a server changes the case.
    pub plain: u16,
}

/// A look-up in progress.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// For each kind, the query in mixed case, and the one in lower case with a number of its own.
    queries: [[Vec<u8>; 2]; 2],
    /// For each kind, whether the current server changes the case, so that it gets the lower-case query.
    plain: [bool; 2],
    servers: usize,
    /// Index of the current server.
    at: usize,
    found: [Option<Answer>; 2],
    /// Queries to send.
    due: [bool; 2],
    again: Option<Instant>,
    until: Instant,
    /// A server has said that the name does not exist.
    none: bool,
}

impl Lookup {
    /// Looks a name up at `servers` servers. An answer counts only if it repeats the secret of its query.
    ///
    /// # Errors
    /// [`LookupError::NotAName`].
    pub fn new(
        host: &str,
        servers: usize,
        secrets: [Secret; 2],
        now: Instant,
    ) -> Result<Self, LookupError> {
        let query = |place: usize| {
            let secret = secrets[place];
            let ask = |number| question(number, host, KINDS[place]);
            let mixed = mixed(ask(secret.number)?, secret.letters);
            Some([mixed, plain(&ask(secret.plain)?)])
        };
        let (Some(first), Some(second)) = (query(0), query(1)) else {
            return Err(LookupError::NotAName);
        };
        let mut lookup = Self {
            queries: [first, second],
            plain: [false; 2],
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
        self.plain = [false; 2];
        self.due = [true; 2];
        self.again = Some(now + AGAIN);
        self.until = now + PATIENCE;
    }

    /// Returns what the caller has to do now.
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
                return Step::Send(self.at, self.query(place).to_vec());
            }
            return Step::Wait(self.again.unwrap_or(self.until));
        }
    }

    /// Takes a message from a server.
    pub fn heard(&mut self, server: usize, message: &[u8]) {
        for (place, kind) in KINDS.into_iter().enumerate() {
            let is_awaited = server == self.at && self.found[place].is_none();
            if is_awaited && let Some(found) = answer(message, self.query(place), kind) {
                // A few servers change the case. A forger who pretends to be one must guess the number and the port
                // first, and then the number of the lower-case query.
                if !self.plain[place] && !has_letters_of(message, self.query(place)) {
                    self.plain[place] = true;
                    self.due[place] = true;
                } else {
                    self.found[place] = Some(found);
                }
                return;
            }
        }
    }

    /// Takes the news that a server cannot be reached.
    pub fn unreachable(&mut self, server: usize, now: Instant) {
        if server == self.at {
            self.until = now;
        }
    }

    fn query(&self, place: usize) -> &[u8] {
        &self.queries[place][usize::from(self.plain[place])]
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

    const SECRETS: [Secret; 2] = [
        Secret {
            number: 11,
            letters: 0x5555_5555_5555_5555,
            plain: 33,
        },
        Secret {
            number: 22,
            letters: 0x0f0f_0f0f_0f0f_0f0f,
            plain: 44,
        },
    ];

    /// A server's answer to a query.
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
        let mut lookup = Lookup::new("vpn.example", 2, SECRETS, now).unwrap();
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
    fn an_answer_in_other_letters_does_not_count_until_the_query_is_plain() {
        let now = Instant::now();
        let mut lookup = Lookup::new("vpn.example", 1, SECRETS, now).unwrap();
        let queries = sent(&mut lookup, now);
        for (_, query) in &queries {
            let name = &query[12..query.len() - 4];
            assert!(name.iter().any(u8::is_ascii_uppercase), "{name:?}");
            assert!(name.iter().any(u8::is_ascii_lowercase), "{name:?}");
        }
        // A forger knows the number, but not the case.
        let forged = plain(&queries[0].1);
        lookup.heard(0, &reply(&forged, 0, Some(&[203, 0, 113, 66])));
        // The server may be one that changes the case: it gets the lower-case query, once.
        let plain = sent(&mut lookup, now);
        assert_eq!(plain.len(), 1);
        assert_eq!(plain[0].1[2..], forged[2..]);
        assert_ne!(plain[0].1, forged);
        lookup.heard(0, &reply(&queries[1].1, 3, None));
        // The same forgery again has no further effect.
        lookup.heard(0, &reply(&forged, 0, Some(&[203, 0, 113, 66])));
        lookup.heard(0, &reply(&plain[0].1, 0, Some(&[192, 0, 2, 7])));
        let answer = IpAddr::from([192, 0, 2, 7]);
        assert_eq!(lookup.next(now), Step::Done(Ok(vec![answer])));
    }

    #[test]
    fn a_silent_server_is_asked_twice_and_then_the_next() {
        let begin = Instant::now();
        let mut lookup = Lookup::new("vpn.example", 2, SECRETS, begin).unwrap();
        assert_eq!(sent(&mut lookup, begin).len(), 2);
        assert_eq!(sent(&mut lookup, begin + AGAIN).len(), 2);
        let later = begin + PATIENCE;
        assert_eq!(lookup.next(begin + AGAIN), Step::Wait(later));
        let queries = sent(&mut lookup, later);
        assert_eq!(queries.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 1]);
        // The first server's answer is too late now.
        lookup.heard(0, &reply(&queries[0].1, 0, Some(&[192, 0, 2, 7])));
        assert_eq!(
            lookup.next(later + PATIENCE),
            Step::Done(Err(LookupError::NoAnswer))
        );
    }

    #[test]
    fn half_an_answer_is_better_than_none() {
        let now = Instant::now();
        let mut lookup = Lookup::new("vpn.example", 1, SECRETS, now).unwrap();
        let queries = sent(&mut lookup, now);
        lookup.heard(0, &reply(&queries[0].1, 0, Some(&[192, 0, 2, 7])));
        assert!(matches!(lookup.next(now), Step::Wait(_)));
        assert!(matches!(lookup.next(now + PATIENCE), Step::Done(Ok(_))));
    }

    #[test]
    fn servers_that_refuse_or_cannot_be_reached_are_passed_over_at_once() {
        let now = Instant::now();
        let mut lookup = Lookup::new("vpn.example", 3, SECRETS, now).unwrap();
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
        let none = Lookup::new("a..b", 1, SECRETS, now);
        assert_eq!(none.unwrap_err(), LookupError::NotAName);
    }

    proptest! {
        /// For any answers, however late, a look-up ends, and sends at most six messages to each server.
        #[test]
        fn it_ends(events in prop::collection::vec((0usize..4, 0u8..8, 0u64..1500, any::<bool>()), 0..60), servers in 0usize..4) {
            let mut now = Instant::now();
            let mut lookup = Lookup::new("vpn.example", servers, SECRETS, now).unwrap();
            let mut all = Vec::new();
            for (server, code, pause, other_letters) in events {
                all.extend(sent(&mut lookup, now));
                if let Some((_, query)) = all.last() {
                    let query = if other_letters { plain(query) } else { query.clone() };
                    lookup.heard(server, &reply(&query, code, None));
                }
                now += Duration::from_millis(pause);
            }
            for _ in 0..2 * servers + 2 {
                all.extend(sent(&mut lookup, now));
                now += PATIENCE;
            }
            prop_assert!(matches!(lookup.next(now), Step::Done(_)));
            prop_assert!(all.len() <= 6 * servers);
        }
    }
}
