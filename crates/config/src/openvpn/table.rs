//! Table of every directive of OpenVPN 2.4 to 2.7: its name, values and treatment, and the function that puts it into
//! the draft.
//!
//! Sorted by topic. A directive that is missing here is unknown.

mod connection;
mod data;
mod device;
pub(crate) mod foreign;
mod network;
mod others;
mod role;
mod scripts;
mod server;
mod service;
mod timers;
mod tls;
pub(crate) mod value;

use super::directive::Directive;
use super::draft::{ConnectionDraft, Draft};
use super::{ClientSettings, Command, Scripts, Source, lexer};
use foreign::Restriction;
use std::path::PathBuf;
use value::Outcome;

/// Puts a directive into the draft.
type OfDraft = fn(&mut Draft, &Directive) -> Outcome;

/// Puts the value of a directive into the draft.
type OfValue = fn(&mut Draft, &str) -> Outcome;

/// Puts a directive into the connection that it is about.
type OfConnection = fn(&mut ConnectionDraft, &Directive) -> Outcome;

/// Puts a directive into the settings of one client.
type OfClient = fn(&mut ClientSettings, &Directive) -> Outcome;

/// The place of a script.
type OfScript = fn(&mut Scripts) -> &mut Option<Command>;

/// The treatment of a directive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Support {
    /// The directive has its effect; its values may still be refused.
    Honoured(OfDraft),
    Value(OfValue),
    /// The directive switches this on.
    Flag(fn(&mut Draft) -> &mut bool),
    /// Where the value of the directive is stored.
    Text(fn(&mut Draft) -> &mut Option<String>),
    Path(fn(&mut Draft) -> &mut Option<PathBuf>),
    File(fn(&mut Draft) -> &mut Option<Source>),
    /// The directive has its effect, on one connection or on all.
    Connection(OfConnection),
    /// The directive is a block with the directives of one connection.
    Block,
    /// The directive names a script, and has this note.
    Script(OfScript, &'static str),
    /// The directive has no effect, for this reason.
    Ignored(&'static str),
    /// The directive is not supported; the text gives the remedy.
    Refused(&'static str),
}

/// The end of a tunnel that a directive is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    Both,
    /// A directive for servers; stock refuses it in a client.
    Server,
    /// A directive for servers; without effect in a client.
    IdleInClient,
    /// A directive for clients; stock refuses it in a server. The text gives the remedy.
    Client(&'static str),
    /// A directive for clients; without effect in a server.
    IdleInServer,
}

/// One directive of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub name: &'static str,
    /// Minimum number of values; an inline block counts as one.
    pub min: usize,
    /// Maximum number of values.
    pub max: usize,
    pub support: Support,
    pub end: End,
    /// Effect in `<connection>`, if it is allowed there.
    pub connection: Option<OfConnection>,
    /// Effect in a file of `client-config-dir`, if it is allowed there.
    pub client: Option<OfClient>,
    /// Restricts the files and sockets that a profile without permissions may name.
    pub foreign: Option<fn(&Directive, &Draft) -> Option<Restriction>>,
    /// Flags, such as [`INLINE`].
    flags: u8,
}

/// The directive may be an inline block.
pub(crate) const INLINE: u8 = 1;

/// Several lines add up; otherwise the last one counts.
pub(crate) const LIST: u8 = 1 << 1;

/// The file or block of the directive is a secret.
pub(crate) const SECRET: u8 = 1 << 2;

/// The directive decides who may connect or, at a client, which server is trusted. Without it the tunnel would trust
/// others, so that a file is not used if such a line is refused.
pub(crate) const DECIDING: u8 = 1 << 3;

/// The directive weakens security. Hints never name it; a user who wants it must know its name.
pub(crate) const WEAKENING: u8 = 1 << 4;

impl Entry {
    const fn new(name: &'static str, min: usize, max: usize, support: Support) -> Self {
        Self {
            name,
            min,
            max,
            support,
            end: End::Both,
            connection: None,
            client: None,
            foreign: None,
            flags: 0,
        }
    }

    const fn values(mut self, min: usize, max: usize) -> Self {
        (self.min, self.max) = (min, max);
        self
    }

    const fn noting(mut self, note: &'static str) -> Self {
        if let Support::Script(place, _) = self.support {
            self.support = Support::Script(place, note);
        }
        self
    }

    const fn connection(mut self, apply: OfConnection) -> Self {
        self.connection = Some(apply);
        self
    }

    const fn client(mut self, apply: OfClient) -> Self {
        self.client = Some(apply);
        self
    }

    const fn foreign(mut self, limit: fn(&Directive, &Draft) -> Option<Restriction>) -> Self {
        self.foreign = Some(limit);
        self
    }

    const fn end(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    const fn is(mut self, flags: u8) -> Self {
        self.flags |= flags;
        self
    }

    /// Whether it has this flag.
    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

const fn yes(name: &'static str, min: usize, max: usize, apply: OfDraft) -> Entry {
    Entry::new(name, min, max, Support::Honoured(apply))
}

const fn one(name: &'static str, apply: OfValue) -> Entry {
    Entry::new(name, 1, 1, Support::Value(apply))
}

const fn here(name: &'static str, min: usize, max: usize, apply: OfConnection) -> Entry {
    Entry::new(name, min, max, Support::Connection(apply)).connection(apply)
}

const fn flag(name: &'static str, place: fn(&mut Draft) -> &mut bool) -> Entry {
    Entry::new(name, 0, 0, Support::Flag(place))
}

const fn text(name: &'static str, place: fn(&mut Draft) -> &mut Option<String>) -> Entry {
    Entry::new(name, 1, 1, Support::Text(place))
}

const fn path(name: &'static str, place: fn(&mut Draft) -> &mut Option<PathBuf>) -> Entry {
    Entry::new(name, 1, 1, Support::Path(place))
}

const fn file(name: &'static str, place: fn(&mut Draft) -> &mut Option<Source>) -> Entry {
    Entry::new(name, 1, 1, Support::File(place)).is(INLINE)
}

const fn script(name: &'static str, place: OfScript) -> Entry {
    Entry::new(name, 1, 1, Support::Script(place, ""))
}

const fn skip(name: &'static str, why: &'static str) -> Entry {
    Entry::new(name, 0, MANY, Support::Ignored(why))
}

const fn no(name: &'static str, remedy: &'static str) -> Entry {
    Entry::new(name, 0, MANY, Support::Refused(remedy))
}

/// Refuses a directive in the settings of one client.
fn same_for_all(_: &mut ClientSettings, _: &Directive) -> Outcome {
    Err("is the same for all clients here; set it in the server's own file, or push it".to_owned())
}

/// No limit, for directives that take a list of words.
const MANY: usize = usize::MAX;

/// The error for Ethernet tunnels.
pub(crate) const TAP: &str = "Ethernet (tap) tunnels are not built; use `dev tun` and routes";

const WINDOWS: &str = "used on Windows only";
const PKCS11: &str = "keys on smart cards are not supported; use `cert` and `key`, or `pkcs12`";
const EXTERNAL: &str =
    "keys held by the management client are not supported; use `cert` and `key`, or `pkcs12`";
const PULLED: &str = "only a server may send this, when it pushes options; remove the line";
const OPENSSL: &str = "an OpenSSL setting; Millrace has its own cryptography";
const KERNEL: &str =
    "tunes the input and output of the original OpenVPN, which Millrace does not use";

/// All directives.
pub(crate) fn all() -> impl Iterator<Item = &'static Entry> {
    let topics = [
        role::ROWS,
        connection::ROWS,
        device::ROWS,
        network::ROWS,
        tls::ROWS,
        data::ROWS,
        timers::ROWS,
        scripts::ROWS,
        service::ROWS,
        server::ROWS,
        others::ROWS,
    ];
    topics.into_iter().flatten()
}

/// The directive of this name.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.name == name)
}

/// Whether this is the name of a known directive.
#[must_use]
pub fn is_directive(name: &str) -> bool {
    find(name).is_some()
}

/// Scripts that decide who may connect or, at a client, which server is trusted. `learn-address` is one, as stock
/// refuses a client's address if the script fails.
pub fn deciding() -> impl Iterator<Item = &'static str> {
    let is_script = |entry: &&Entry| matches!(entry.support, Support::Script(..));
    let deciding = all().filter(is_script).filter(|entry| entry.has(DECIDING));
    deciding.map(|entry| entry.name)
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

/// The known directive that is nearest to `name`, if any is near.
pub(crate) fn near(name: &str) -> Option<&'static Entry> {
    let known: Vec<&str> = all().map(|entry| entry.name).collect();
    crate::text::nearest(name, &known).and_then(find)
}

#[cfg(test)]
mod tests;
