//! Trial classification of rejected datagrams: names the value in which the other end's settings differ.
//!
//! Nothing is negotiated, so one value that differs means silence. A datagram of the other end still shows that value:
//! behind the bytes in front lies one of our indices, or a mac1 that is right. A stranger can show neither.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use plane::PeerId;

use super::profile::Message;
use super::{Kind, Mismatch, PREFIX_MAX, Profile, Settings};
use crate::data::DATA_MIN_LEN;
use crate::device::{Device, slot_of};
use crate::message::{CookieReply, INITIATION_LEN, Initiation, TYPE_COOKIE_REPLY, TYPE_INITIATION};
use crate::receive::authenticate;

/// Number of datagrams that may be tried at once: other packets precede an initiation, usually fewer than this.
pub const TRIALS_MAX: u32 = 192;

/// Number of further trials for each second that passes.
const TRIALS_PER_SECOND: u32 = 16;

/// Bytes of the longest datagram that is tried: a data packet behind the longest prefix.
pub(crate) const TRIED_LEN_MAX: usize = PREFIX_MAX as usize + 500;

/// Maximum number of MACs computed for one datagram.
const MACS_MAX: usize = 64;

/// Inexplicable datagrams from one source before they count as the other end's, and the time between the first and the
/// last of them. Random packets before an initiation come all at once.
const STRANGE: u8 = 3;
const STRANGE_FOR: Duration = Duration::from_secs(10);

/// Time after which an inexplicable datagram is forgotten.
const STRANGE_UNTIL: Duration = Duration::from_secs(60);

/// A mismatch, and the peer that has the other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The peer; `None` if datagrams from an address that is no peer's fit nothing.
    pub peer: Option<PeerId>,
    /// The difference.
    pub mismatch: Mismatch,
}

/// The sender of a datagram, if it is a peer, and how its settings differ, if they do.
type Explained = (Option<PeerId>, Option<Mismatch>);

/// Trials that are left, and inexplicable datagrams of the only source that is counted.
#[derive(Debug)]
pub(crate) struct Trials {
    left: u32,
    since: Option<Instant>,
    strange: Option<Strange>,
}

#[derive(Debug)]
struct Strange {
    source: IpAddr,
    first: Instant,
    last: Instant,
    count: u8,
}

impl Default for Trials {
    fn default() -> Self {
        Self {
            left: TRIALS_MAX,
            since: None,
            strange: None,
        }
    }
}

impl Trials {
    fn left(&mut self, now: Instant) -> u32 {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since).as_secs();
        if passed > 0 {
            let more = u32::try_from(passed).unwrap_or(u32::MAX);
            let more = more.saturating_mul(TRIALS_PER_SECOND);
            self.left = self.left.saturating_add(more).min(TRIALS_MAX);
            self.since = Some(now);
        }
        self.left
    }

    /// Forgets inexplicable datagrams of a source that has sent one that is understood.
    pub(crate) fn understood(&mut self, source: IpAddr) {
        self.strange.take_if(|it| it.source == source);
    }

    /// Counts an inexplicable datagram. Returns whether there have been enough, and then counts anew.
    fn count(&mut self, source: IpAddr, now: Instant) -> bool {
        let passed = |since| now.saturating_duration_since(since);
        let strange = match &mut self.strange {
            Some(it) if passed(it.last) >= STRANGE_UNTIL => None,
            Some(it) if it.source != source => return false,
            it => it.as_mut(),
        };
        let Some(strange) = strange else {
            self.strange = Some(Strange {
                source,
                first: now,
                last: now,
                count: 1,
            });
            return false;
        };
        strange.last = now;
        strange.count = strange.count.saturating_add(1);
        let enough = strange.count >= STRANGE && passed(strange.first) >= STRANGE_FOR;
        if enough {
            self.strange = None;
        }
        enough
    }
}

/// A place where a message may begin in a datagram.
#[derive(Clone, Copy)]
struct Guess {
    start: usize,
    /// The message is hidden by our header protection key.
    hidden: bool,
}

/// A rejected datagram and our settings.
struct Trial<'a> {
    settings: &'a Settings,
    datagram: &'a [u8],
    /// The keystream of our header protection key.
    mask: Option<[u8; INITIATION_LEN]>,
    /// Our datagrams look as WireGuard's do.
    is_plain: bool,
}

impl<'a> Trial<'a> {
    fn new(profile: Option<&Profile>, settings: &'a Settings, datagram: &'a [u8]) -> Self {
        Self {
            settings,
            datagram,
            mask: profile.and_then(|it| it.keystream(datagram)),
            is_plain: settings.same_wire(&Settings::default()),
        }
    }

    fn prefix(&self, kind: Kind) -> usize {
        self.settings.prefix[kind as usize].into()
    }

    /// A little-endian word of the message that begins at the guess.
    fn word(&self, guess: Guess, at: usize) -> Option<u32> {
        let word = |bytes: &[u8]| Some(u32::from_le_bytes(*bytes.first_chunk()?));
        let plain = word(self.datagram.get(guess.start + at..)?)?;
        match &self.mask {
            Some(mask) if guess.hidden => Some(plain ^ word(mask.get(at..)?)?),
            _ => Some(plain),
        }
    }

    fn message(&self, kind: Kind, guess: Guess) -> Option<Message> {
        let mask = self.mask.as_ref().filter(|_| guess.hidden);
        Message::cut(kind, self.datagram, guess.start, mask)
    }

    /// Places where a message of this kind may begin, likely ones first: our own, the one from which the message
    /// reaches to the end, and further ones if the end is not known.
    fn guesses(&self, kind: Kind) -> impl Iterator<Item = Guess> {
        let hidden = self.mask.is_some();
        let last = self.datagram.len().checked_sub(kind.len());
        let likely = [
            Some((self.prefix(kind), hidden)),
            last.map(|start| (start, hidden)),
            Some((self.prefix(kind), false)).filter(|_| hidden),
            last.map(|start| (start, false)).filter(|_| hidden),
            Some((0, false)).filter(|_| kind == Kind::Data),
        ];
        let open_end = kind == Kind::Data || self.is_plain || self.settings.trailers;
        let scan = 0..last
            .map_or(0, |last| last.min(PREFIX_MAX.into()) + 1)
            .min(if open_end { usize::MAX } else { 0 });
        let types = self.settings.types[kind as usize];
        let scan = scan
            .map(move |start| Guess { start, hidden })
            .filter(move |guess| {
                kind == Kind::Data
                    || self.is_plain
                    || self.word(*guess, 0).is_some_and(|it| types.contains(it))
            });
        let likely = likely.into_iter().flatten();
        likely
            .filter(move |(start, _)| last.is_some_and(|last| *start <= last))
            .map(|(start, hidden)| Guess { start, hidden })
            .chain(scan)
    }

    /// How a message that is there differs from what our settings say.
    fn judge(&self, kind: Kind, guess: Guess) -> Option<Mismatch> {
        let number = self.word(guess, 0)?;
        let start = u16::try_from(guess.start).ok()?;
        let here = self.settings.prefix[kind as usize];
        let types = self.settings.types[kind as usize];
        let ends = kind == Kind::Data || self.datagram.len() == guess.start + kind.len();
        let looks_plain = start == 0 && number == kind as u32 + 1 && ends;
        if self.is_plain {
            return (!looks_plain).then_some(Mismatch::ThisIsPlain {
                kind,
                prefix: start,
                number,
            });
        }
        let (prefix, fits) = (start != here, types.contains(number));
        let bare = self.mask.is_some() && !guess.hidden;
        if looks_plain && (prefix || !fits || bare) {
            return Some(Mismatch::OtherIsPlain);
        }
        if bare {
            return Some(Mismatch::NoKey);
        }
        if prefix || !fits {
            return Some(Mismatch::Form {
                kind,
                prefix: prefix.then_some([start, here]),
                number: (!fits).then_some((number, types)),
            });
        }
        (!ends && !self.settings.trailers).then_some(Mismatch::Trailers { there: true })
    }

    /// Whether the datagram is as long as an initiation or a response.
    fn is_long_enough(&self) -> bool {
        let longer_fits = self.settings.trailers || self.is_plain;
        [Kind::Initiation, Kind::Response].into_iter().any(|kind| {
            let least = self.prefix(kind) + kind.len();
            let len = self.datagram.len();
            len == least || (longer_fits && len > least)
        })
    }
}

impl Device {
    /// Number of rejected datagrams that [`Device::diagnose`] may try at `now`.
    pub fn trials_left(&mut self, now: Instant) -> u32 {
        self.trials.left(now)
    }

    /// Finds out how the settings of the sender of a datagram differ from ours: a datagram that [`Device::receive`] or
    /// the data plane has rejected. Does nothing once the [trials](Device::trials_left) are used up.
    pub fn diagnose(&mut self, datagram: &[u8], from: SocketAddr, now: Instant) -> Option<Finding> {
        let is_tried = (DATA_MIN_LEN..=TRIED_LEN_MAX).contains(&datagram.len());
        if !is_tried || self.trials.left(now) == 0 {
            return None;
        }
        self.trials.left -= 1;
        let profile = self.disguise.profile().cloned();
        let plain = Settings::default();
        let settings = profile.as_ref().map_or(&plain, |it| it.settings());
        let trial = Trial::new(profile.as_deref(), settings, datagram);
        if self.is_own_form(&trial) {
            return None;
        }
        let explained = self.by_index(&trial, from).or_else(|| self.by_mac1(&trial));
        let Some((peer, mismatch)) = explained else {
            return self.strange(&trial, from, now);
        };
        self.trials.understood(from.ip());
        mismatch.map(|mismatch| Finding { peer, mismatch })
    }

    /// Whether a datagram is a handshake message of our form that comes late, or was recorded. One of our indices in it
    /// would look as if it was a data packet of another form.
    fn is_own_form(&self, trial: &Trial<'_>) -> bool {
        let hidden = trial.mask.is_some();
        [Kind::Initiation, Kind::Response, Kind::Cookie]
            .into_iter()
            .any(|kind| {
                let start = trial.prefix(kind);
                let guess = Guess { start, hidden };
                let Some(message) = trial.message(kind, guess) else {
                    return false;
                };
                let checker = self.checker.as_ref();
                let is_for_us = match kind {
                    Kind::Cookie => trial
                        .word(guess, 4)
                        .and_then(|it| self.indices.owner(it))
                        .is_some(),
                    _ => checker.is_some_and(|it| it.mac1_valid(message.as_bytes())),
                };
                is_for_us && trial.judge(kind, guess).is_none()
            })
    }

    /// Explains a datagram by one of our indices in it.
    fn by_index(&self, trial: &Trial<'_>, from: SocketAddr) -> Option<Explained> {
        for (kind, at) in [(Kind::Response, 8), (Kind::Cookie, 4), (Kind::Data, 4)] {
            for guess in trial.guesses(kind) {
                let owner = trial.word(guess, at).and_then(|index| {
                    let id = self.indices.owner(index)?;
                    Some((index, id, self.peers.get(slot_of(id))?.as_ref()?))
                });
                let Some((index, id, peer)) = owner else {
                    continue;
                };
                let pending = peer.pending.as_ref();
                let awaited = pending.is_some_and(|it| it.local_index == index);
                let message = || trial.message(kind, guess).filter(|_| awaited);
                let is_it = match kind {
                    Kind::Data => !awaited && peer.endpoint.is_some_and(|it| it.ip() == from.ip()),
                    Kind::Cookie => message()
                        .map(|it| it.with_type(TYPE_COOKIE_REPLY))
                        .and_then(|it| CookieReply::parse(it.as_bytes()))
                        .is_some_and(|it| peer.jar.cookie_in(&it).is_some()),
                    _ => message().is_some_and(|it| {
                        let checker = self.checker.as_ref();
                        checker.is_some_and(|checker| checker.mac1_valid(it.as_bytes()))
                    }),
                };
                if is_it {
                    return Some((Some(id), trial.judge(kind, guess)));
                }
            }
        }
        None
    }

    /// Explains a datagram by a mac1 for our public key, as an initiation of the peer that has signed it.
    fn by_mac1(&mut self, trial: &Trial<'_>) -> Option<Explained> {
        let Self {
            checker,
            private,
            by_key,
            peers,
            ..
        } = self;
        let (checker, own) = (checker.as_ref()?, private.as_ref()?);
        let guesses = trial.guesses(Kind::Initiation).take(MACS_MAX);
        let mut valid = guesses.filter_map(|guess| {
            let message = trial.message(Kind::Initiation, guess)?;
            let valid = checker.mac1_valid(message.as_bytes());
            valid.then_some((guess, message))
        });
        let (guess, message) = valid.next()?;
        let initiation = Initiation::parse(message.with_type(TYPE_INITIATION).as_bytes())?;
        let Ok(known) = authenticate(&initiation, own, by_key, peers) else {
            return Some((None, None));
        };
        // A replay tells of settings that were.
        let is_new = known.timestamp > known.peer.latest_timestamp;
        let mismatch = trial.judge(Kind::Initiation, guess);
        Some((Some(known.id), mismatch.filter(|_| is_new)))
    }

    /// Counts a datagram that nothing explains.
    fn strange(&mut self, trial: &Trial<'_>, from: SocketAddr, now: Instant) -> Option<Finding> {
        if !trial.is_long_enough() || !self.trials.count(from.ip(), now) {
            return None;
        }
        let is_there =
            |peer: &crate::peer::Peer| peer.endpoint.is_some_and(|it| it.ip() == from.ip());
        let mut peers = self.peers.iter().zip(0..);
        let peer = peers.find(|(peer, _)| peer.as_deref().is_some_and(is_there));
        let peer = peer.map(|(_, slot)| PeerId(slot));
        // Scanners send anything to a server, and a plain one tells nothing of it.
        (peer.is_some() || !trial.is_plain).then_some(Finding {
            peer,
            mismatch: Mismatch::Unreadable {
                key: trial.mask.is_some(),
            },
        })
    }

    /// Counts whether initiations of a peer have trailers. `exact` says that this one had none.
    pub(crate) fn note_trailer(&mut self, id: PeerId, exact: bool) {
        if let Some(peer) = self.peer_mut(id) {
            peer.exact = match exact {
                true => peer.exact.saturating_add(1),
                false => 0,
            };
        }
    }

    /// Whether a peer has sent several initiations without a trailer while `RandomTrailers` is on here: it is off
    /// there. One in hundreds has none by chance.
    #[must_use]
    pub fn lacks_trailers(&self, id: PeerId) -> bool {
        let peer = self.peers.get(slot_of(id)).and_then(Option::as_ref);
        peer.is_some_and(|it| it.exact >= 2) && self.disguise.has_trailers()
    }

    /// The peer whose session or handshake has this index of ours.
    #[must_use]
    pub fn peer_by_index(&self, index: u32) -> Option<PeerId> {
        self.indices.owner(index)
    }

    /// Whether datagrams look different from WireGuard's.
    #[must_use]
    pub fn is_disguised(&self) -> bool {
        let profile = self.disguise.profile();
        profile.is_some_and(|it| !it.settings().same_wire(&Settings::default()))
    }
}
