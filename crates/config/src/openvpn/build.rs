//! Builds the model from directives.
//!
//! For each directive, the builder looks it up in the table, counts its values, and lets the group that knows it
//! change the draft. After the last one, `finish` fills in defaults, expands helper directives and checks the
//! configuration as a whole.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use super::directive::{COMMENT, Directive, Misread, Origin};
use super::lexer::shown;
use super::report::CONCEALED;
use super::table::{self, Entry, Support};
use super::{
    Action, Client, DataChannel, Device, Network, Options, Scripts, Server, Service, Sockets,
    Timers, Tls, resolve,
};
use crate::report::Verdict;
use crate::secrecy;
use connection::{Draft, RemoteLine};
use foreign::Restriction;
pub use scripts::DECIDING;
use scripts::WITHOUT;
use value::{Outcome, Remark};

mod actions;
mod checks;
mod ciphers;
pub(crate) mod connection;
mod connections;
mod data;
mod device;
mod finish;
mod foreign;
mod lines;
mod network;
mod proxy;
mod role;
mod scripts;
pub(crate) mod server;
mod service;
mod sizes;
pub(crate) mod timers;
mod tls;
pub(crate) mod value;

/// The error for Ethernet tunnels.
pub(crate) const TAP: &str = "Ethernet (tap) tunnels are not built; use `dev tun` and routes";

/// Stock's message for an unknown directive.
pub(crate) const UNRECOGNIZED: &str = "Unrecognized option or missing or extra parameter(s)";

/// Most faults that a report lists; a file with more is probably not a configuration.
const FAULTS_MAX: usize = 1000;

/// Most faults that get a suggested name.
const SUGGESTIONS_MAX: usize = 20;

/// Refused directives that decide who is let in: `setenv opt` does not make them optional.
const JUDGES: [&str; 2] = ["plugin", "management-client-auth"];

/// Options that weaken security. Hints never name them; a user who wants one must know its name.
const WEAKENING: [&str; 7] = [
    "allow-compression",
    "allow-insecure-ciphers",
    "auth-user-pass-optional",
    "client-cert-not-required",
    "duplicate-cn",
    "ncp-disable",
    "script-security",
];

/// A verdict on a directive, with its full place.
pub(crate) struct Judged {
    pub origin: Origin,
    pub name: String,
    pub verdict: Verdict,
    pub reason: String,
    /// Whether the refusal leaves no usable tunnel.
    pub fatal: bool,
}

/// `server NETWORK NETMASK [nopool]`, before it is expanded.
#[derive(Clone, Copy)]
pub(crate) struct ServerHelper {
    pub network: Ipv4Addr,
    pub netmask: Ipv4Addr,
    pub bits: u8,
    pub pool: bool,
}

/// Names of ciphers, before the permitted ones are selected.
#[derive(Default)]
pub(crate) struct CipherNames {
    pub list: Option<String>,
    pub fallback: Option<String>,
    pub cipher: Option<String>,
    /// `compat-mode` as `MAJOR * 10000 + MINOR * 100 + PATCH`.
    pub compat: Option<u32>,
    pub keysize: Option<u32>,
}

/// The state after the directives so far.
#[derive(Default)]
pub(crate) struct Builder {
    pub options: Options,
    pub judged: Vec<Judged>,
    pub warnings: Vec<String>,
    pub action: Option<Action>,
    /// Place of the last directive of each name, and its index in `judged`.
    seen: HashMap<&'static str, (Origin, usize)>,
    /// Password files whose names show that they belong to this configuration.
    pub own_passwords: Vec<PathBuf>,
    /// The profile's own password file for its management port.
    pub own_management: Option<PathBuf>,
    /// Where relative paths start.
    pub directory: Option<PathBuf>,
    ignore_unknown: Vec<String>,
    forward_compatible: bool,
    faults: usize,

    pub client_helper: bool,
    pub tls_client: bool,
    pub tls_server: bool,
    pub pull: bool,
    pub mode_server: bool,
    pub server_helper: Option<ServerHelper>,
    pub server_v6_helper: Option<(Ipv6Addr, u8)>,
    pub keepalive: Option<(u32, u32)>,
    pub dev: Option<String>,
    pub dev_type: Option<String>,

    pub draft: Draft,
    pub remotes: Vec<RemoteLine>,
    pub blocks: Vec<Draft>,
    pub proto_tcp_forced: Option<bool>,
    pub http_user_pass: Option<super::Prompted>,
    pub http_override: Option<super::HttpProxy>,

    pub device: Device,
    pub sockets: Sockets,
    pub tls: Tls,
    pub data: DataChannel,
    pub ciphers: CipherNames,
    pub timers: Timers,
    pub network: Network,
    pub scripts: Scripts,
    pub service: Service,
    pub client: Client,
    pub server: Server,
    pub management: service::ManagementDraft,
    pub lines: lines::LinesDraft,
}

/// The groups, in the order in which they are tried.
const GROUPS: [fn(&mut Builder, &Directive) -> Option<Outcome>; 11] = [
    role::apply,
    connection::apply,
    device::apply,
    network::apply,
    tls::apply,
    data::apply,
    timers::apply,
    scripts::apply,
    service::apply,
    server::apply,
    actions::apply,
];

/// Removes an included file's words from the verdicts: it may be any file of the machine.
pub(super) fn conceal(judged: &mut [Judged]) {
    for judged in judged.iter_mut().filter(|it| it.origin.included) {
        if table::find(&judged.name).is_none() {
            judged.name.clear();
        }
        if !judged.reason.is_empty() {
            CONCEALED.clone_into(&mut judged.reason);
        }
    }
}

impl Builder {
    pub(crate) fn new(options: Options) -> Self {
        let mut builder = Self {
            options,
            ..Self::default()
        };
        builder.data.allow_insecure = options.allow_insecure_ciphers;
        builder
    }

    /// Records a fault of the reader.
    pub(crate) fn misread(&mut self, misread: Misread) {
        self.refuse(&misread.origin, &misread.name, misread.reason);
    }

    /// Conceals words of included files. Call it last.
    pub(crate) fn conceal(&mut self) {
        conceal(&mut self.judged);
    }

    /// Takes one directive of the top level.
    pub(crate) fn hear(&mut self, directive: &Directive) {
        if directive.name == COMMENT {
            return self.hear_comment(directive);
        }
        self.lines.end();
        match directive.name.as_str() {
            "ignore-unknown-option" => {
                let names = directive.values.iter();
                let names = names.map(|name| name.strip_prefix("--").unwrap_or(name).to_owned());
                self.ignore_unknown.extend(names);
            }
            "setenv"
                if directive.get(0) == Some("FORWARD_COMPATIBLE")
                    && directive.get(1) == Some("1") =>
            {
                self.forward_compatible = true;
            }
            _ => {}
        }
        let Some(entry) = self.placed(directive) else {
            return;
        };
        let Some((directive, denied)) = self.rule(directive) else {
            return;
        };
        let outcome = GROUPS.iter().find_map(|apply| apply(self, &directive));
        // Every honoured directive belongs to a group; a test checks that.
        let outcome = outcome.unwrap_or_else(|| Err(UNRECOGNIZED.to_owned()));
        self.judge(entry, &directive, outcome.map(|it| denied.unwrap_or(it)));
    }

    /// The directive to apply instead of this one, and a remark if it is another; `None` if there is none to apply.
    fn rule<'d>(
        &mut self,
        directive: &'d Directive,
    ) -> Option<(Cow<'d, Directive>, Option<Remark>)> {
        let path = |named: &str| resolve(self.directory.as_deref(), Path::new(named));
        let is_own = |named: &str| match directive.name.as_str() {
            "management" => self.own_management.as_ref() == Some(&path(named)),
            _ => self.own_passwords.contains(&path(named)),
        };
        let is_known = |named: &str| secrecy::warning(&path(named)).is_some();
        let permitted = self.options.permissions.files();
        let restriction =
            foreign::restriction(directive, &is_own, &is_known).filter(|_| !permitted);
        match restriction {
            None => return Some((Cow::Borrowed(directive), None)),
            Some(Restriction::Instead(instead, reason)) => {
                let remark = Remark::Denied(reason.to_owned());
                return Some((Cow::Owned(instead), Some(remark)));
            }
            Some(Restriction::PassedOver(reason)) => self.push(directive, Verdict::Ignored, reason),
            Some(Restriction::Denied(reason)) => self.push(directive, Verdict::Refused, reason),
            Some(Restriction::Needed(reason)) => {
                self.refuse(&directive.origin, &directive.name, reason);
            }
        }
        None
    }

    /// Takes one directive of a `<connection>`.
    pub(crate) fn hear_in(&mut self, draft: &mut Draft, directive: &Directive) {
        if directive.name == COMMENT {
            return;
        }
        let Some(entry) = self.placed(directive) else {
            return;
        };
        if !entry.connection {
            let reason = "does not belong in <connection>; move it out of the block";
            return self.refuse(&directive.origin, &directive.name, reason);
        }
        let Some((directive, denied)) = self.rule(directive) else {
            return;
        };
        let outcome = connection::apply_to(draft, &directive, true)
            .unwrap_or_else(|| Err(UNRECOGNIZED.to_owned()));
        match outcome {
            Ok(remark) => self.remark(&directive, denied.unwrap_or(remark)),
            Err(reason) => self.refuse(&directive.origin, &directive.name, reason),
        }
    }

    /// The table entry of a directive that can be applied; otherwise records the verdict here.
    fn placed(&mut self, directive: &Directive) -> Option<&'static Entry> {
        let Some(entry) = table::find(&directive.name) else {
            self.unknown(directive);
            return None;
        };
        if directive.inline.is_some() && !entry.inline {
            let reason = "may not be an inline block; name a file";
            self.refuse(&directive.origin, entry.name, reason);
            return None;
        }
        match entry.support {
            Support::Ignored(reason) => self.push(directive, Verdict::Ignored, reason),
            Support::Refused(reason) if directive.optional && !JUDGES.contains(&entry.name) => {
                let reason = format!("optional, and not done: {reason}");
                self.push(directive, Verdict::Ignored, reason);
            }
            Support::Refused(reason) => self.refuse(&directive.origin, entry.name, reason),
            _ if directive.count() < entry.min || directive.count() > entry.max => {
                let reason = format!("{UNRECOGNIZED}; {}", wanted(entry));
                self.refuse(&directive.origin, entry.name, reason);
            }
            Support::Honoured | Support::Action => return Some(entry),
        }
        None
    }

    fn unknown(&mut self, directive: &Directive) {
        let name = &directive.name;
        let reason = if self.ignore_unknown.contains(name) {
            "unknown, and `ignore-unknown-option` allows that"
        } else if directive.optional {
            "unknown, and `setenv opt` allows that"
        } else if self.forward_compatible {
            "unknown, and `setenv FORWARD_COMPATIBLE 1` allows that"
        } else if self.faults > FAULTS_MAX {
            self.faults += 1;
            return;
        } else {
            // A list of hundreds of names does not help: suggest only a near name, and only if there are few
            // mistakes.
            let near = (self.faults < SUGGESTIONS_MAX).then(|| table::near(name));
            let near = near
                .flatten()
                .filter(|near| !WEAKENING.contains(near))
                .map(|near| format!("; did you mean `{near}`?"));
            return self.refuse(
                &directive.origin,
                &table::nameable(name),
                format!("{UNRECOGNIZED}{}", near.unwrap_or_default()),
            );
        };
        self.push(directive, Verdict::Ignored, reason);
    }

    fn judge(&mut self, entry: &'static Entry, directive: &Directive, outcome: Outcome) {
        let remark = match outcome {
            Ok(remark) => remark,
            Err(reason) => return self.refuse(&directive.origin, entry.name, reason),
        };
        let honoured = matches!(remark, Remark::Plain | Remark::Note(_));
        let place = self.judged.len();
        self.remark(directive, remark);
        let earlier = self
            .seen
            .insert(entry.name, (directive.origin.clone(), place));
        if let Some((_, earlier)) = earlier
            && honoured
            && !entry.list
            && let Some(judged) = self.judged.get_mut(earlier)
            && judged.verdict == Verdict::Honoured
        {
            judged.verdict = Verdict::Ignored;
            judged.reason = format!("set again at {}, which holds", directive.origin.describe());
        }
    }

    fn remark(&mut self, directive: &Directive, remark: Remark) {
        match remark {
            Remark::Plain => self.push(directive, Verdict::Honoured, ""),
            Remark::Note(note) => self.push(directive, Verdict::Honoured, note),
            Remark::Ignored(reason) => self.push(directive, Verdict::Ignored, reason),
            Remark::Denied(reason) if DECIDING.contains(&directive.name.as_str()) => {
                self.push(directive, Verdict::Refused, format!("{WITHOUT}: {reason}"));
                if let Some(judged) = self.judged.last_mut() {
                    judged.fatal = true;
                }
                self.faults += 1;
            }
            Remark::Denied(reason) => self.push(directive, Verdict::Refused, reason),
        }
    }

    fn push(&mut self, directive: &Directive, verdict: Verdict, reason: impl Into<String>) {
        self.judged.push(Judged {
            origin: directive.origin.clone(),
            name: shown(&directive.name),
            verdict,
            reason: reason.into(),
            fatal: false,
        });
    }

    /// Refuses a line, and with it the whole tunnel.
    pub(crate) fn refuse(&mut self, origin: &Origin, name: &str, reason: impl Into<String>) {
        self.faults += 1;
        if self.faults > FAULTS_MAX {
            return;
        }
        self.judged.push(Judged {
            origin: origin.clone(),
            name: name.to_owned(),
            verdict: Verdict::Refused,
            reason: reason.into(),
            fatal: true,
        });
    }

    /// Refuses a directive that contradicts other lines; at its own line, if it has one.
    pub(crate) fn conflict(&mut self, name: &'static str, reason: impl Into<String>) {
        let origin = Origin::of_argument(0);
        match self.seen.get(name).cloned() {
            Some((origin, place)) => {
                if let Some(judged) = self.judged.get_mut(place)
                    && judged.verdict != Verdict::Refused
                {
                    judged.verdict = Verdict::Refused;
                    judged.reason = reason.into();
                    judged.fatal = true;
                    self.faults += 1;
                } else {
                    self.refuse(&origin, name, reason);
                }
            }
            None => self.refuse(&origin, name, reason),
        }
    }

    /// Records a conflict as [`Builder::conflict`] does, unless this directive is refused already.
    pub(crate) fn conflict_once(&mut self, name: &'static str, reason: &str) {
        if !self.was_refused(name) {
            self.conflict(name, reason);
        }
    }

    /// True when a directive of this name was refused.
    pub(crate) fn was_refused(&self, name: &str) -> bool {
        let refused = |judged: &Judged| judged.verdict == Verdict::Refused && judged.name == name;
        self.judged.iter().any(refused)
    }

    /// Marks the directive as without effect.
    pub(crate) fn ignored(&mut self, name: &'static str, reason: impl Into<String>) {
        if let Some((_, place)) = self.seen.get(name)
            && let Some(judged) = self.judged.get_mut(*place)
            && judged.verdict == Verdict::Honoured
        {
            judged.verdict = Verdict::Ignored;
            judged.reason = reason.into();
        }
    }

    /// Adds a note to the directive.
    pub(crate) fn note(&mut self, name: &'static str, note: impl Into<String>) {
        if let Some((_, place)) = self.seen.get(name)
            && let Some(judged) = self.judged.get_mut(*place)
            && judged.verdict == Verdict::Honoured
            && judged.reason.is_empty()
        {
            judged.reason = note.into();
        }
    }

    /// True when a directive of this name was understood.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.seen.contains_key(name)
    }

    /// True when nothing was refused that a tunnel needs.
    pub(crate) const fn is_sound(&self) -> bool {
        self.faults == 0
    }

    /// Number of faults so far.
    pub(crate) const fn faults(&self) -> usize {
        self.faults
    }
}

fn wanted(entry: &Entry) -> String {
    let (min, max) = (entry.min, entry.max);
    match (min, max) {
        (0, 0) => "it takes no value".to_owned(),
        (1, 1) => "it takes one value; put quotation marks around one with spaces".to_owned(),
        _ if min == max => format!("it takes {min} values"),
        _ if max == usize::MAX => format!("it takes at least {min} values"),
        _ => format!("it takes {min} to {max} values"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directive(entry: &Entry) -> Directive {
        let count = entry.min.max(usize::from(entry.max > 0)).min(entry.max);
        Directive {
            origin: Origin::of_argument(1),
            name: entry.name.to_owned(),
            values: vec!["1".to_owned(); count],
            inline: None,
            block: Vec::new(),
            optional: false,
        }
    }

    #[test]
    fn every_honoured_directive_belongs_to_a_group() {
        for entry in table::all() {
            if !matches!(entry.support, Support::Honoured | Support::Action) {
                continue;
            }
            let mut builder = Builder::default();
            let directive = directive(entry);
            let known = GROUPS
                .iter()
                .any(|apply| apply(&mut builder, &directive).is_some());
            assert!(known, "{} is in the table and in no group", entry.name);
            if entry.connection {
                let mut draft = Draft::default();
                let known = connection::apply_to(&mut draft, &directive, true).is_some();
                assert!(known, "{} is not known in <connection>", entry.name);
            }
        }
    }
}
