//! Options of one section, each checked when it is read.

use super::Fault;
use crate::uci::{Section, Value};
use config::meant;
use std::ops::RangeInclusive;

/// Names that options had in earlier versions, with the present ones.
const OLD: [(&str, &str); 2] = [("line", "uplink"), ("lines", "uplink")];

/// Beginning of AmneziaWG's options.
const AMNEZIA: &str = "awg_";

/// A section, and the faults found in it.
pub(crate) struct Options<'s> {
    section: &'s Section,
    name: String,
    /// Faults that make the section unusable.
    pub(crate) faults: Vec<Fault>,
    /// Faults of options that were left out.
    pub(crate) warnings: Vec<Fault>,
}

impl<'s> Options<'s> {
    pub(crate) fn new(section: &'s Section, name: &str) -> Self {
        Self {
            section,
            name: name.to_owned(),
            faults: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn fault(&self, option: &str, words: &str) -> Fault {
        let line = self.section.setting(option).map(|it| it.line);
        Fault {
            line: line.unwrap_or(self.section.line),
            section: self.name.clone(),
            option: Some(option.to_owned()),
            words: words.to_owned(),
        }
    }

    pub(crate) fn refuse(&mut self, option: &str, words: &str) {
        self.faults.push(self.fault(option, words));
    }

    pub(crate) fn warn(&mut self, option: &str, words: &str) {
        self.warnings.push(self.fault(option, words));
    }

    /// Warns about misspelled options. All others that are not `known` are netifd's or another program's.
    pub(crate) fn warn_of_typos(&mut self, known: &[&'static str], theirs: &[&str]) {
        for setting in &self.section.settings {
            let name = setting.name.as_str();
            if known.contains(&name) || theirs.contains(&name) {
                continue;
            }
            let old = OLD.iter().find(|old| old.0 == name).map(|old| old.1);
            let word = old.or_else(|| meant(name, known));
            match word {
                Some(word) if name.strip_prefix("no") == Some(word) => {
                    self.warn(
                        name,
                        &format!("unknown option; did you mean `{word}` with 0?"),
                    );
                }
                Some(word) => self.warn(name, &format!("unknown option; did you mean `{word}`?")),
                None if !name.starts_with(AMNEZIA) => {
                    log::debug!("{}.{name}: this option is not Millrace's", self.name);
                }
                None if cfg!(feature = "amnezia") => {
                    self.warn(name, "unknown AmneziaWG setting, ignored; correct or remove it");
                }
                None => self.refuse(
                    name,
                    "an AmneziaWG setting, which this program is built without; install the package `millrace`",
                ),
            }
        }
    }

    /// Warns about all options but these.
    pub(crate) fn warn_of_others(&mut self, known: &[&'static str]) {
        for setting in &self.section.settings {
            let name = setting.name.as_str();
            if !known.contains(&name) {
                let hint = meant(name, known).map(|it| format!("; did you mean `{it}`?"));
                let words = format!("unknown option, ignored{}", hint.unwrap_or_default());
                self.warn(name, &words);
            }
        }
    }

    pub(crate) fn text(&self, option: &str) -> Option<&'s str> {
        // A list with one value counts as an option.
        match &self.section.setting(option)?.value {
            Value::Text(text) => Some(text.as_str()),
            Value::List(list) => list.first().map(|it| it.as_str()),
        }
    }

    pub(crate) fn values(&self, option: &str) -> impl Iterator<Item = &'s str> + use<'s> {
        let setting = self.section.setting(option);
        setting.into_iter().flat_map(|it| it.values())
    }

    /// Parses a value. `None` if it is missing, or wrong, which is a fault.
    pub(crate) fn parsed<T>(
        &mut self,
        option: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        match parse(self.text(option)?) {
            Ok(value) => Some(value),
            Err(words) => {
                self.refuse(option, &words);
                None
            }
        }
    }

    /// Reads a number; a wrong value counts as missing.
    pub(crate) fn number(&mut self, option: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let value = self.text(option)?.parse().ok();
        let value = value.filter(|it| range.contains(it));
        if value.is_none() {
            let words = format!("must be a number from {} to {}", range.start(), range.end());
            self.warn(option, &words);
        }
        value
    }

    /// Reads a boolean, in all spellings of UCI.
    pub(crate) fn flag(&mut self, option: &str, usual: bool) -> bool {
        match self.text(option) {
            None => usual,
            Some("1" | "on" | "true" | "yes" | "enabled") => true,
            Some("0" | "off" | "false" | "no" | "disabled") => false,
            Some(_) => {
                self.warn(option, "must be 1 or 0");
                usual
            }
        }
    }
}
