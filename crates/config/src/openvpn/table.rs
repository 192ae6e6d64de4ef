//! Table of every directive of OpenVPN 2.4 to 2.7, and its treatment.
//!
//! Sorted by topic. A directive that is missing here is unknown.

mod program;
mod session;
mod tunnel;

use super::lexer;
use program::{OTHERS, SCRIPTS, SERVER, SERVICE};
use session::{DATA, TIMERS, TLS};
use tunnel::{CONNECTION, DEVICE, NETWORK, ROLE};

/// The treatment of a directive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Support {
    /// The directive has its effect; its values may still be refused.
    Honoured,
    /// The directive has no effect, for this reason.
    Ignored(&'static str),
    /// The directive is not supported; the text gives the remedy.
    Refused(&'static str),
    /// The directive asks for an action instead of a tunnel.
    Action,
}

/// One directive of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub name: &'static str,
    /// Fewest values; an inline block counts as one.
    pub min: usize,
    /// Most values.
    pub max: usize,
    pub support: Support,
    /// Whether it may stand in `<connection>`.
    pub connection: bool,
    /// Whether it may stand in a file of `client-config-dir`.
    pub client: bool,
    /// Whether it may be an inline block.
    pub inline: bool,
    /// Whether several lines add up; otherwise the last one counts.
    pub list: bool,
}

impl Entry {
    const fn new(name: &'static str, min: usize, max: usize, support: Support) -> Self {
        Self {
            name,
            min,
            max,
            support,
            connection: false,
            client: false,
            inline: false,
            list: false,
        }
    }

    const fn connection(mut self) -> Self {
        self.connection = true;
        self
    }

    const fn client(mut self) -> Self {
        self.client = true;
        self
    }

    const fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    const fn list(mut self) -> Self {
        self.list = true;
        self
    }
}

const fn yes(name: &'static str, min: usize, max: usize) -> Entry {
    Entry::new(name, min, max, Support::Honoured)
}

const fn skip(name: &'static str, why: &'static str) -> Entry {
    Entry::new(name, 0, usize::MAX, Support::Ignored(why)).list()
}

const fn no(name: &'static str, remedy: &'static str) -> Entry {
    Entry::new(name, 0, usize::MAX, Support::Refused(remedy)).list()
}

const fn action(name: &'static str, max: usize) -> Entry {
    Entry::new(name, 0, max, Support::Action)
}

/// No limit, for directives that take a list of words.
const MANY: usize = usize::MAX;

const WINDOWS: &str = "for Windows only";
const PKCS11: &str = "keys on smart cards are not supported; use `cert` and `key`, or `pkcs12`";
const EXTERNAL: &str =
    "keys held by the management client are not supported; use `cert` and `key`, or `pkcs12`";
const PULLED: &str = "only a server says this, when it pushes options; remove the line";
const OPENSSL: &str = "an OpenSSL setting; Millrace has its own cryptography";
const KERNEL: &str = "a tuning of stock's own input and output, which Millrace does not use";

/// The directive of this name.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    GROUPS
        .iter()
        .flat_map(|group| group.iter())
        .find(|entry| entry.name == name)
}

/// A directive's name, made fit for a report; empty for a word that may be part of a key or a password, in a file
/// that is not a configuration.
pub(crate) fn nameable(word: &str) -> String {
    let name = word.trim_start_matches('<').trim_end_matches('>');
    let letters = |it: &u8| it.is_ascii_lowercase() || b"-_".contains(it);
    let is_like_one = (1..=40).contains(&name.len()) && name.as_bytes().iter().all(letters);
    match is_like_one || find(name).is_some() || near(name).is_some() {
        true => lexer::shown(word),
        false => String::new(),
    }
}

/// The known name that is nearest to `name`, if any is near.
pub(crate) fn near(name: &str) -> Option<&'static str> {
    let known: Vec<&str> = all().map(|entry| entry.name).collect();
    crate::suggest::nearest(name, &known)
}

/// All directives.
pub(crate) fn all() -> impl Iterator<Item = &'static Entry> {
    GROUPS.iter().flat_map(|group| group.iter())
}

const GROUPS: [&[Entry]; 11] = [
    ROLE, CONNECTION, DEVICE, NETWORK, TLS, DATA, TIMERS, SCRIPTS, SERVICE, SERVER, OTHERS,
];

#[cfg(test)]
mod tests;
