//! An exchange that has not ended, and when its messages are repeated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::mlkem::{DecapsulationKey, ENCAPSULATION_KEY_LEN};

use crate::derivation::Tag;
use crate::keys::{Agreed, Named};
use crate::message::Header;

/// Seconds between repetitions of an Offer or a Confirm; then the sender waits for a reason to begin again.
const STEPS: [u64; 4] = [1, 2, 4, 8];

/// Lifetime of an exchange that does not end.
pub(crate) const PENDING_TIME: Duration = Duration::from_secs(30);

/// Answers whose tag is wrong, after which an exchange ends.
const FORGED_MAX: u8 = 3;

/// When a message is sent again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repetition {
    step: usize,
    pub(crate) at: Option<Instant>,
}

impl Repetition {
    /// Begins, or begins anew, as the message is sent.
    pub(crate) fn begin(now: Instant) -> Self {
        let mut new = Self::default();
        new.sent(now);
        new
    }

    fn sent(&mut self, now: Instant) {
        let step = STEPS.get(self.step);
        self.at = step.map(|seconds| now + Duration::from_secs(*seconds));
        self.step += 1;
    }

    /// Whether the message is to be sent now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.at.is_some_and(|at| at <= now);
        if due {
            self.sent(now);
        }
        due
    }
}

/// An exchange whose Answer has not come, or whose Confirm.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The Offer's header.
    pub(crate) header: Header,
    /// The key that the new one also depends on.
    pub(crate) previous: Named,
    pub(crate) since: Instant,
    pub(crate) role: Role,
}

#[derive(Debug)]
pub(crate) enum Role {
    /// The key pair is being made.
    Generating,
    /// The Offer was sent.
    Offering {
        private: Arc<DecapsulationKey>,
        public: Box<[u8; ENCAPSULATION_KEY_LEN]>,
        repetition: Repetition,
        /// An Answer that is being opened: its ciphertext and tag, and whether its sender has a single slot.
        opening: Option<(Box<[u8]>, bool)>,
        forged: u8,
    },
    /// The secret is being made.
    Encapsulating {
        public: Box<[u8; ENCAPSULATION_KEY_LEN]>,
    },
    /// The Answer was sent; its payload is kept for repetitions.
    Answered { payload: Box<[u8]> },
}

impl Pending {
    /// Whether this end offered.
    pub(crate) const fn is_own(&self) -> bool {
        matches!(self.role, Role::Generating | Role::Offering { .. })
    }

    pub(crate) fn next_deadline(&self) -> Instant {
        let end = self.since + PENDING_TIME;
        match &self.role {
            Role::Offering { repetition, .. } => repetition.at.map_or(end, |at| at.min(end)),
            _ => end,
        }
    }

    /// Counts an Answer whose tag was wrong. Returns whether that was one too many.
    pub(crate) fn forged(&mut self) -> bool {
        let Role::Offering {
            opening, forged, ..
        } = &mut self.role
        else {
            return false;
        };
        *opening = None;
        *forged += 1;
        *forged >= FORGED_MAX
    }
}

/// The key of an exchange that both ends have derived, until a session uses it.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) agreed: Agreed,
    /// The key that it also depends on was the base key.
    pub(crate) from_base: bool,
    /// This end offered.
    pub(crate) is_own: bool,
    /// The other end is known to have the key: Confirm or Done has come.
    pub(crate) is_sure: bool,
    /// A session under the base key began since: the other end may have lost the key.
    pub(crate) is_doubtful: bool,
    /// When Answer, Confirm or Done came last.
    pub(crate) heard: Instant,
    /// Repeats the Confirm.
    pub(crate) repetition: Repetition,
}

impl Next {
    pub(crate) const fn tag(&self) -> Tag {
        self.agreed.tag
    }

    /// Whether this end must still learn that the other end has the key.
    pub(crate) const fn is_unsettled(&self) -> bool {
        self.is_own && !self.is_sure
    }
}
