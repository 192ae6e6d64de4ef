//! The lines of the settings file, which are for every tunnel whose own file has none.

use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::Lines;
use super::table::{Tables, in_toml};
use crate::report::{Entry, Verdict};
use crate::secrecy;

/// Lines that are not of one tunnel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharedLines {
    tables: Tables,
    place: PathBuf,
}

/// What a tunnel is given of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Given {
    /// Its lines.
    pub lines: Lines,
    /// Whose they are, in words; `None` where nothing is given.
    pub origin: Option<String>,
    /// What does not fit the tunnel and is left out, a sentence each.
    pub warnings: Vec<String>,
}

impl SharedLines {
    /// Takes `[lines]` and `[[line]]` of a file, as [`Tables::read`] does; `place` is its path.
    ///
    /// # Errors
    /// The first verdict on what fits no tunnel at all.
    pub(crate) fn new(
        text: &str,
        [lines, line]: [Option<(&DeValue<'_>, usize)>; 2],
        place: &Path,
    ) -> Result<Self, Entry> {
        let tables = Tables::read(text, lines, line);
        let (_, entries) = tables.clone().finish(false, 1);
        let refused = entries
            .into_iter()
            .filter(|it| it.verdict == Verdict::Refused);
        // What a table lacks may be what one of its keys was meant for.
        match refused.min_by_key(|it| (it.key.is_empty(), it.line)) {
            Some(entry) => Err(entry),
            None => Ok(Self {
                tables,
                place: place.to_owned(),
            }),
        }
    }

    /// What a tunnel is given that reaches its peers by lines. `full` says that it takes all packets of the host, `called`
    /// how many peers it calls.
    #[must_use]
    pub fn fit(&self, full: bool, called: usize) -> Given {
        let mut sections = self.tables.sections.clone();
        let mut warnings = Vec::new();
        let lines = loop {
            let whole = sections.clone().finish(full, called);
            let mut faults = whole.faults.iter();
            let left_out = faults.find_map(|(head, why)| Some((sections.forget(*head)?, why)));
            match left_out {
                Some((name, why)) => {
                    let (place, why) = (self.place.display(), in_toml(why));
                    warnings.push(format!("{place}: line {name} is left out: {why}"));
                }
                None if whole.faults.is_empty() => break whole.lines,
                // Without its lines the rest is for nothing.
                None => break Lines::default(),
            }
        };
        self.given(lines, warnings)
    }

    /// What a server is given that answers clients by the lines that they call by: how it sends, and no line.
    #[must_use]
    pub fn fit_server(&self) -> Given {
        let mut sections = self.tables.sections.clone();
        let mut warnings = Vec::new();
        let shape = sections.shapes();
        if sections.forget_all() || shape {
            let shape = if shape { ", nor `shape`" } else { "" };
            let place = self.place.display();
            warnings.push(format!(
                "{place}: a server has no [[line]]{shape}; it takes `mode` and `reorder`, for clients that call by several lines"
            ));
        }
        let whole = sections.finish(false, 0);
        let lines = match whole.faults.is_empty() {
            true => whole.lines,
            false => Lines::default(),
        };
        self.given(lines, warnings)
    }

    /// What a tunnel is given where nothing of this fits, and why.
    #[must_use]
    pub fn refuse(&self, why: &str) -> Given {
        let (place, why) = (self.place.display(), in_toml(why));
        Given {
            warnings: vec![format!("{place}: its lines are not used: {why}")],
            ..Given::default()
        }
    }

    fn given(&self, lines: Lines, mut warnings: Vec<String>) -> Given {
        let names: Vec<&str> = lines.lines.iter().map(|line| line.name.as_str()).collect();
        let (mode, place) = (lines.mode.as_str(), self.place.display());
        let origin = match names.as_slice() {
            _ if lines.is_default() => None,
            [] => Some(format!(
                "{mode}, for peers that call by several lines, by {place}"
            )),
            _ => Some(format!("{mode} by {}, of {place}", names.join(", "))),
        };
        if lines.lines.iter().any(|line| line.relay_key.is_some()) {
            warnings.extend(secrecy::warning(&self.place));
        }
        Given {
            lines,
            origin,
            warnings,
        }
    }
}
