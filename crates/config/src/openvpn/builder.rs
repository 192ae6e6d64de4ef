//! Builds the model from directives.
//!
//! For each directive, the builder looks it up in the table, counts its values, and lets the group that knows it
//! change the draft. After the last one, `finish` fills in defaults, expands helper directives and checks the
//! configuration as a whole.

use std::borrow::Cow;
use std::collections::HashMap;

use super::collector::COMMENT;
use super::directive::{Directive, Origin};
use super::draft::{ConnectionDraft, Draft};
use super::lexer::shown;
use super::report::Judged;
use super::table::foreign::{Restriction, restriction};
use super::table::value::{OK, Outcome, Remark, command, on, put, source, word};
use super::table::{self, DECIDING, Entry, INLINE, LIST, Support, WEAKENING};
use super::{Command, Options, PasswordMethod, Scripts};
use crate::report::Verdict;
use lines::LinesDraft;

mod checks;
mod ciphers;
mod connections;
mod finish;
mod lines;

/// Stock's message for an unknown directive.
pub(crate) const UNRECOGNIZED: &str = "Unrecognized option or missing or extra parameter(s)";

/// Maximum number of faults that a report lists; a file with more is probably not a configuration.
const FAULTS_MAX: usize = 1000;

/// Maximum number of faults that get a suggested name.
const SUGGESTIONS_MAX: usize = 20;

/// Maximum number of remotes of one client.
const CONNECTIONS_MAX: usize = 4096;

/// Beginning of the reason why a deciding script is refused.
const WITHOUT: &str =
    "has a say in who is let in or which server is trusted, so the file is not used without it";

/// Judges directives, and builds the model.
#[derive(Default)]
pub(crate) struct Builder {
    pub draft: Draft,
    pub judged: Vec<Judged>,
    pub warnings: Vec<String>,
    /// Place of the last directive of each name, and its index in `judged`.
    seen: HashMap<&'static str, (Origin, usize)>,
    faults: usize,
    lines: LinesDraft,
}

impl Builder {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            draft: Draft::new(options),
            ..Self::default()
        }
    }

    /// Takes one directive of the top level.
    pub(crate) fn hear(&mut self, directive: &Directive) {
        if directive.name == COMMENT {
            return self.hear_comment(directive);
        }
        self.lines.end();
        let Some((entry, directive, denied)) = self.placed(directive, false) else {
            return;
        };
        let outcome = match entry.support {
            Support::Honoured(apply) => apply(&mut self.draft, &directive),
            Support::Value(apply) => apply(&mut self.draft, directive.at(0)),
            Support::Flag(place) => on(place(&mut self.draft)),
            Support::Text(place) => put(place(&mut self.draft), directive.at(0).to_owned()),
            Support::Path(place) => put(place(&mut self.draft), directive.at(0).into()),
            Support::File(place) => put(place(&mut self.draft), source(&directive)),
            Support::Connection(apply) => apply(&mut self.draft.connection, &directive),
            Support::Block => self.block(&directive),
            Support::Script(place, note) => self.script(&directive, place, note),
            Support::Ignored(reason) => Ok(Remark::Ignored(reason.to_owned())),
            Support::Refused(reason) => Err(reason.to_owned()),
        };
        self.judge(entry, &directive, outcome.map(|it| denied.unwrap_or(it)));
    }

    /// Takes one directive of a `<connection>`.
    fn hear_in(&mut self, draft: &mut ConnectionDraft, directive: &Directive) {
        if directive.name == COMMENT {
            return;
        }
        let Some((entry, directive, denied)) = self.placed(directive, true) else {
            return;
        };
        let Some(apply) = entry.connection else {
            return;
        };
        match apply(draft, &directive) {
            Ok(remark) => self.remark(entry, &directive, denied.unwrap_or(remark)),
            Err(reason) => self.refuse(&directive.origin, &directive.name, reason),
        }
    }

    /// Takes a `<connection>`.
    fn block(&mut self, directive: &Directive) -> Outcome {
        if directive.inline.is_none() {
            return Err("is a block: <connection> … </connection>".to_owned());
        }
        // Directives before the block apply inside it; those after it do not. Keys are an exception: a block has its
        // own keys, or else the shared ones.
        let mut draft = ConnectionDraft {
            host: None,
            tls_auth: None,
            tls_crypt: None,
            tls_crypt_v2: None,
            key_direction: None,
            origin: Some(directive.origin.clone()),
            ..self.draft.connection.clone()
        };
        for inner in &directive.block {
            self.hear_in(&mut draft, inner);
        }
        if draft.host.is_none() {
            return Err("each <connection> must contain exactly one `remote`".to_owned());
        }
        if self.draft.blocks.len() == CONNECTIONS_MAX {
            return Err(format!("more than {CONNECTIONS_MAX} connections"));
        }
        self.draft.blocks.push(draft);
        OK
    }

    /// Takes a script, and how it gets passwords.
    fn script(
        &mut self,
        directive: &Directive,
        place: fn(&mut Scripts) -> &mut Option<Command>,
        note: &str,
    ) -> Outcome {
        let command = command(directive.at(0))?;
        let methods = [
            ("via-env", PasswordMethod::Environment),
            ("via-file", PasswordMethod::File),
        ];
        let method = directive.get(1).map(|it| word(it, &methods)).transpose()?;
        if !self.draft.options.permissions.scripts() {
            let reason =
                "scripts are not run unless --allow-scripts is given; look at what it does first";
            return Ok(Remark::Denied(reason.to_owned()));
        }
        let scripts = &mut self.draft.scripts;
        scripts.password_method = method.unwrap_or(scripts.password_method);
        *place(scripts) = Some(command);
        match note {
            "" => OK,
            note => Ok(Remark::Note(note.to_owned())),
        }
    }

    /// The table's entry of a directive that can be applied, the directive to apply, and a remark if it is not the
    /// one that was given. Otherwise records the verdict. `inside` tells whether it stands in a `<connection>`.
    fn placed<'d>(
        &mut self,
        directive: &'d Directive,
        inside: bool,
    ) -> Option<(&'static Entry, Cow<'d, Directive>, Option<Remark>)> {
        let Some(entry) = table::find(&directive.name) else {
            self.unknown(directive);
            return None;
        };
        if directive.inline.is_some() && !entry.has(INLINE) {
            let reason = "may not be an inline block; name a file";
            self.refuse(&directive.origin, entry.name, reason);
            return None;
        }
        match entry.support {
            Support::Ignored(reason) => {
                self.push(directive, Verdict::Ignored, reason);
                return None;
            }
            Support::Refused(reason) if directive.optional && !entry.has(DECIDING) => {
                let reason = format!("optional, and not done: {reason}");
                self.push(directive, Verdict::Ignored, reason);
                return None;
            }
            Support::Refused(reason) => {
                self.refuse(&directive.origin, entry.name, reason);
                return None;
            }
            _ if directive.count() < entry.min || directive.count() > entry.max => {
                let reason = format!("{UNRECOGNIZED}; {}", wanted(entry));
                self.refuse(&directive.origin, entry.name, reason);
                return None;
            }
            _ if inside && entry.connection.is_none() => {
                let reason = "does not belong in <connection>; move it out of the block";
                self.refuse(&directive.origin, entry.name, reason);
                return None;
            }
            _ => {}
        }
        let permitted = self.draft.options.permissions.files();
        match restriction(directive, entry, &self.draft).filter(|_| !permitted) {
            None => return Some((entry, Cow::Borrowed(directive), None)),
            Some(Restriction::Instead(instead, reason)) => {
                let remark = Remark::Denied(reason.to_owned());
                return Some((entry, Cow::Owned(instead), Some(remark)));
            }
            Some(Restriction::PassedOver(reason)) => self.push(directive, Verdict::Ignored, reason),
            Some(Restriction::Denied(reason)) => self.push(directive, Verdict::Refused, reason),
            Some(Restriction::Needed(reason)) => {
                self.refuse(&directive.origin, &directive.name, reason);
            }
        }
        None
    }

    fn unknown(&mut self, directive: &Directive) {
        let name = &directive.name;
        let reason = if self.draft.ignore_unknown.contains(name) {
            "unknown, and `ignore-unknown-option` allows that"
        } else if directive.optional {
            "unknown, and `setenv opt` allows that"
        } else if self.draft.forward_compatible {
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
                .filter(|near| !near.has(WEAKENING))
                .map(|near| format!("; did you mean `{}`?", near.name));
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
        self.remark(entry, directive, remark);
        let earlier = self
            .seen
            .insert(entry.name, (directive.origin.clone(), place));
        if let Some((_, earlier)) = earlier
            && honoured
            && !entry.has(LIST)
            && let Some(judged) = self.judged.get_mut(earlier)
            && judged.verdict == Verdict::Honoured
        {
            judged.verdict = Verdict::Ignored;
            judged.reason = format!("set again at {}, which holds", directive.origin.describe());
        }
    }

    fn remark(&mut self, entry: &Entry, directive: &Directive, remark: Remark) {
        match remark {
            Remark::Plain => self.push(directive, Verdict::Honoured, ""),
            Remark::Note(note) => self.push(directive, Verdict::Honoured, note),
            Remark::Ignored(reason) => self.push(directive, Verdict::Ignored, reason),
            Remark::Denied(reason) if entry.has(DECIDING) => {
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
