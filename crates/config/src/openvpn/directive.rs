//! Directives: lines, inline blocks and arguments, split into words but not yet interpreted.

use std::rc::Rc;

use super::Secret;
use crate::text::Text;

/// Where a directive stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Origin {
    /// The file, or `None` for the command line.
    pub file: Option<Rc<str>>,
    /// Line or argument, counted from 1.
    pub line: usize,
    /// Whether another file names this one. It may then be any file of the machine, so that messages quote none of
    /// its words.
    pub included: bool,
}

impl Origin {
    /// An argument of the command line, counted from 1; 0 for no place.
    pub(crate) const fn of_argument(line: usize) -> Self {
        Self {
            file: None,
            line,
            included: false,
        }
    }

    /// Whether the place is in a file rather than on the caller's command line.
    pub(crate) const fn is_foreign(&self) -> bool {
        self.file.is_some()
    }

    /// `FILE:LINE`, or `argument N`.
    pub(crate) fn describe(&self) -> String {
        match &self.file {
            Some(file) => format!("{file}:{}", self.line),
            None => format!("argument {}", self.line),
        }
    }
}

/// A directive and its values.
#[derive(Clone)]
pub(crate) struct Directive {
    pub origin: Origin,
    /// The name, without leading dashes.
    pub name: String,
    /// The words after the name.
    pub values: Vec<String>,
    /// The text of an inline block.
    pub inline: Option<Secret>,
    /// The lines of a `<connection>` block.
    pub block: Vec<Self>,
    /// Whether the directive was given as `setenv opt`: an error in it is not fatal.
    pub optional: bool,
}

impl Directive {
    /// A directive of one line or argument.
    pub(crate) const fn new(origin: Origin, name: String, values: Vec<String>) -> Self {
        Self {
            origin,
            name,
            values,
            inline: None,
            block: Vec::new(),
            optional: false,
        }
    }

    /// The value at `index`, if there is one.
    pub(crate) fn get(&self, index: usize) -> Option<&str> {
        self.values.get(index).map(String::as_str)
    }

    /// The value at `index`; for one that the table demands.
    pub(crate) fn at(&self, index: usize) -> &str {
        self.get(index).unwrap_or_default()
    }

    /// The directive, or a line in its block, if it contains replaced bytes.
    pub(crate) fn mended(&self, text: &Text<'_>) -> Option<&Self> {
        // Of inline blocks only passwords are checked: text outside the armour of a key or certificate is a note that
        // nothing reads.
        let secret = self.inline.as_ref().filter(|_| self.name.contains("pass"));
        let secret = secret.map(|block| block.expose());
        let mut words = [self.name.as_str()]
            .into_iter()
            .chain(self.values.iter().map(String::as_str))
            .chain(secret);
        if words.any(|word| text.is_mended(word)) {
            return Some(self);
        }
        self.block.iter().find_map(|line| line.mended(text))
    }

    /// Number of values; an inline block counts as one.
    pub(crate) fn count(&self) -> usize {
        self.values.len() + usize::from(self.inline.is_some())
    }
}

/// A fault found while splitting into words.
pub(crate) struct Misread {
    pub origin: Origin,
    /// The directive's name, or empty.
    pub name: String,
    pub reason: String,
}
