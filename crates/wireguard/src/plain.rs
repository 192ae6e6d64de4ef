//! Plain WireGuard in the places where AmneziaWG differs, for a program without the feature `amnezia`. Everything here
//! compiles to nothing.

use std::time::{Duration, Instant, SystemTime};

use plane::Class;

use crate::cookie::Jar;
use crate::message::{
    KEEPALIVE_TIMEOUT, REJECT_AFTER_TIME, REKEY_AFTER_TIME, REKEY_ATTEMPT_TIME, REKEY_TIMEOUT,
};
use crate::output::Datagram;

/// WireGuard's times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timings;

impl Timings {
    pub(crate) const fn rekey_after(self) -> Duration {
        REKEY_AFTER_TIME
    }

    pub(crate) fn last_moment(self) -> Duration {
        REJECT_AFTER_TIME - KEEPALIVE_TIMEOUT - REKEY_TIMEOUT
    }

    pub(crate) const fn reject_after(self) -> Duration {
        REJECT_AFTER_TIME
    }

    pub(crate) const fn spacing(self) -> Duration {
        REKEY_TIMEOUT
    }

    pub(crate) const fn rekey_timeout(self) -> Duration {
        REKEY_TIMEOUT
    }

    pub(crate) const fn poll(self) -> Duration {
        KEEPALIVE_TIMEOUT
    }
}

/// Nothing is drawn for a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Draws;

impl Draws {
    pub(crate) const fn begin_attempt(&mut self, _: bool, _: &Timings) {}

    pub(crate) const fn initiated(&mut self) {}

    pub(crate) fn is_over(&self, since: Instant, now: Instant) -> bool {
        now >= since + REKEY_ATTEMPT_TIME
    }

    pub(crate) fn attempt_end(&self, since: Instant) -> Option<Instant> {
        Some(since + REKEY_ATTEMPT_TIME)
    }

    pub(crate) fn keepalive(&mut self, since: Instant, _: &Timings) -> Instant {
        since + KEEPALIVE_TIMEOUT
    }

    pub(crate) fn silence(&mut self, since: Instant, _: &Timings) -> Instant {
        since + KEEPALIVE_TIMEOUT + REKEY_TIMEOUT
    }
}

/// The form of a device's datagrams.
#[derive(Debug, Default)]
pub(crate) struct Disguise {
    pub(crate) timings: Timings,
}

/// No packets go out before an initiation.
#[derive(Debug, Default)]
pub(crate) struct Junk {}

impl Disguise {
    pub(crate) const fn sends_cookies(&self) -> bool {
        true
    }

    pub(crate) fn signed<const N: usize>(
        &self,
        mut message: [u8; N],
        jar: &mut Jar,
        now: Instant,
    ) -> Datagram {
        jar.sign(&mut message, now);
        message.into()
    }

    pub(crate) fn unsigned<const N: usize>(&self, message: [u8; N]) -> Datagram {
        message.into()
    }

    pub(crate) const fn precede(
        &self,
        datagram: Datagram,
        _: &mut Junk,
        _: Instant,
        _: SystemTime,
    ) -> Datagram {
        datagram
    }
}

/// The form of data packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Form;

impl Form {
    pub(crate) const fn prefix(&self) -> usize {
        0
    }

    pub(crate) const fn is_plain(&self) -> bool {
        true
    }

    pub(crate) const fn write_heads(&self, _: &mut [u8], _: u32, _: &[plane::Packet]) {}

    pub(crate) const fn padded(&self, _: usize, _: usize) -> Option<usize> {
        None
    }

    pub(crate) const fn is_data_for(&self, _: &[u8], _: u32) -> Option<bool> {
        None
    }
}

/// The form of an interface's datagrams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forms;

/// Nothing is shared. The protocol is then as large as OpenVPN's, and most of the engine's code for both is the same
/// bytes, which the linker keeps once: 3 kB on 32-bit ARM.
pub(crate) type SharedForms = Forms;

impl Forms {
    pub(crate) const fn current(&self) -> Form {
        Form
    }

    pub(crate) const fn prefix(&self) -> usize {
        0
    }

    pub(crate) const fn were_set(&self) -> bool {
        false
    }

    pub(crate) const fn rejected(&self, _: &[u8]) -> Class {
        Class::Malformed
    }
}

/// A worker's copy of the form.
#[derive(Debug, Default)]
pub struct Reader {}

impl Reader {
    pub(crate) const fn read(&mut self, _: &Forms) {}

    pub(crate) fn look_ahead<'a>(&mut self, _: impl Iterator<Item = &'a [u8]>) {}

    pub(crate) const fn classify(&self, _: &Forms, _: &[u8]) -> Option<Class> {
        None
    }
}
