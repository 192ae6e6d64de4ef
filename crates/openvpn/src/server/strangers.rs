//! Strangers: clients that have shown neither a good certificate nor a good login. Anybody who has an address is one,
//! so the memory of their sessions is bounded.
//!
//! Clients that come at once, as after a restart, are strangers too. So where memory is short nobody is turned away for
//! good: a client that begins waits until those before it are in, and takes the place of a session whose client has let
//! the server wait for long. Sources that have many sessions lose theirs first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use plane::SourceNetwork;

use super::drops::Refused;
use super::listener::{Listener, ServerOutput};
use super::table::{ClientId, Entry};
use crate::session::CloseReason;

/// Bytes of strangers' sessions beyond which clients that begin have to wait.
const ROOM: u64 = 5 << 19;

/// Maximum number of bytes of strangers' sessions: clients that have begun send more.
const MOST: u64 = ROOM + ROOM / 2;

/// Minimum number of sessions that may be not yet up, where `max-clients` is smaller.
const HALF_OPEN_MIN: usize = 64;

/// Interval of the checks whether a session gives way.
const AGAIN: Duration = Duration::from_millis(100);

impl Listener {
    /// The session that gives way to one that begins; `None` while there is room. It is the oldest that may give way,
    /// of the source that has the most sessions.
    ///
    /// Sessions that are not up do not count against `max-clients`, as any sender can open them. They have a limit of
    /// their own: as many, but at least `HALF_OPEN_MIN`.
    ///
    /// # Errors
    /// No session gives way yet.
    pub(super) fn giving_way(&self, now: Instant) -> Result<Option<ClientId>, Refused> {
        let most = self.max_clients().max(HALF_OPEN_MIN);
        let full = self.table.stranger_bytes() >= ROOM;
        if !full && self.table.half_open_len() < most {
            return Ok(None);
        }
        let late = |(_, entry): &(ClientId, &Entry)| {
            let helps = !full || entry.bytes > 0;
            helps && entry.session.gives_way_at() <= now
        };
        let mut late = self.table.half_open().filter(late).peekable();
        late.peek().ok_or(Refused::Crowded)?;
        let sources = self.half_open();
        let greed = |(_, entry): &(ClientId, &Entry)| {
            let count = sources.get(&entry.remote.address.into()).copied();
            (count, Reverse(entry.begun))
        };
        Ok(late.max_by_key(greed).map(|(id, _)| id))
    }

    /// Makes room for a session that begins.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn make_room(
        &mut self,
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) -> Result<(), Refused> {
        match self.giving_way(now) {
            Ok(Some(id)) => self.crowd_out(id, out),
            // The client's reset was answered when there was room, so let it in.
            Err(why) if self.table.stranger_bytes() >= MOST => return Err(why),
            _ => {}
        }
        Ok(())
    }

    /// Ends the largest sessions of strangers while all of them together use too much memory.
    pub(super) fn bound_strangers(&mut self, out: &mut Vec<ServerOutput>) {
        while self.table.stranger_bytes() > MOST {
            let largest = self.table.half_open().max_by_key(|(_, entry)| entry.bytes);
            let Some((id, _)) = largest else { return };
            self.crowd_out(id, out);
        }
    }

    fn crowd_out(&mut self, id: ClientId, out: &mut Vec<ServerOutput>) {
        self.with(id, out, |session, out| {
            session.close(CloseReason::Crowded, out);
        });
    }

    /// Bytes of memory that strangers' sessions use.
    #[must_use]
    pub const fn stranger_bytes(&self) -> u64 {
        self.table.stranger_bytes()
    }

    /// How many sessions that are not up each source has.
    #[must_use]
    pub fn half_open(&self) -> HashMap<SourceNetwork, usize> {
        let mut sources = HashMap::new();
        for (_, entry) in self.table.half_open() {
            *sources.entry(entry.remote.address.into()).or_default() += 1;
        }
        sources
    }

    /// Whether a reset would be neither [`Refused::Limited`] nor [`Refused::Crowded`] now.
    #[must_use]
    pub fn answers_resets(&self, now: Instant) -> bool {
        self.limiter.is_open(now) && self.giving_way(now).is_ok()
    }

    /// When to call [`answers_resets`](Self::answers_resets) again after it returned `false`.
    #[must_use]
    pub fn answers_resets_at(&self, now: Instant) -> Option<Instant> {
        match self.limiter.is_open(now) {
            true => Some(now + AGAIN),
            false => self.limiter.ends(),
        }
    }
}
