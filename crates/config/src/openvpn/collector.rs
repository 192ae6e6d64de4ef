//! Collects the directives of files and of command lines (`--name value…`, or only the name of a file).

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::directive::{Directive, Misread, Origin};
use super::lexer::{WORDS_MAX, shown, split};
use super::table;
use super::{ReadFile, Secret, resolve};
use crate::error::ImportError;
use crate::permissions::Permissions;
use crate::text::{NOT_UTF8, Text};

/// Deepest nesting of `config`, as in stock.
pub const DEPTH_MAX: usize = 10;

/// Maximum number of files of a configuration.
pub const FILES_MAX: usize = 1000;

/// Largest accepted file, in bytes, which leaves room for certificates.
pub const FILE_MAX: u64 = 4 << 20;

/// Maximum number of bytes of a configuration, all its files together. A file that is named twice counts twice.
pub const BYTES_MAX: usize = 4 << 20;

/// Maximum number of directives of a configuration, its files and arguments together.
pub const DIRECTIVES_MAX: usize = 1 << 16;

/// Maximum number of unreadable lines that are kept; a text with more is probably not a configuration.
const FAULTS_MAX: usize = 1000;

/// Collects directives from arguments and files.
pub(crate) struct Collector<'a, 'b> {
    read: &'a mut ReadFile<'b>,
    permissions: Permissions,
    /// Password files whose names show that they belong to this configuration.
    pub own_passwords: Vec<PathBuf>,
    /// The profile's own password file for its management port.
    pub own_management: Option<PathBuf>,
    pub directives: Vec<Directive>,
    pub misread: Vec<Misread>,
    /// The latest `cd`.
    pub directory: Option<PathBuf>,
    files: usize,
    /// Bytes and files that may still be read.
    budget: Budget,
}

/// How much of a configuration may still be read.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    bytes: usize,
    /// Directives, including those in `<connection>`.
    directives: usize,
    /// Wrong lines.
    faults: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            bytes: BYTES_MAX,
            directives: DIRECTIVES_MAX,
            faults: FAULTS_MAX,
        }
    }
}

impl Budget {
    /// Counts a wrong line, and keeps it within the budget.
    fn fault(&mut self, misread: &mut Vec<Misread>, fault: impl FnOnce() -> Misread) {
        if self.faults > 0 {
            self.faults -= 1;
            misread.push(fault());
        }
    }
}

impl<'a, 'b> Collector<'a, 'b> {
    pub(crate) fn new(read: &'a mut ReadFile<'b>, permissions: Permissions) -> Self {
        Self {
            read,
            permissions,
            own_passwords: Vec::new(),
            own_management: None,
            directives: Vec::new(),
            misread: Vec::new(),
            directory: None,
            files: 0,
            budget: Budget::default(),
        }
    }

    /// Takes the directives of a command line, in order; a file's directives stand in the place of its argument.
    pub(crate) fn arguments(&mut self, arguments: &[String]) -> Result<(), ImportError> {
        if let [file] = arguments
            && !file.starts_with("--")
        {
            let origin = Origin::of_argument(1);
            return self.directive(
                Directive::new(origin, "config".to_owned(), vec![file.clone()]),
                0,
            );
        }
        let mut index = 0;
        while index < arguments.len() {
            let argument = &arguments[index];
            index += 1;
            let origin = Origin::of_argument(index);
            let rest = &arguments[index..];
            let values = rest.iter().take_while(|word| !word.starts_with("--"));
            let count = values.count();
            index += count;
            let (name, reason) = match argument.strip_prefix("--") {
                Some(name) if count < WORDS_MAX => {
                    let values = rest[..count].to_vec();
                    self.directive(Directive::new(origin, name.to_owned(), values), 0)?;
                    continue;
                }
                Some(name) => (name, format!("more than {} values", WORDS_MAX - 1)),
                None => {
                    let shown = shown(argument);
                    let reason = format!("`{shown}` is not an option; options begin with `--`");
                    ("", reason)
                }
            };
            self.misread.push(Misread {
                origin,
                name: name.to_owned(),
                reason,
            });
        }
        Ok(())
    }

    /// Reads a file, and the files that it names.
    fn file(&mut self, path: &Path, depth: usize) -> Result<(), ImportError> {
        let place = resolve(self.directory.as_deref(), path);
        let bytes =
            (self.read)(&place).map_err(|error| ImportError::Read { path: place, error })?;
        self.bytes(&bytes, path, depth)
    }

    /// Reads the bytes of a file, and the files that it names.
    pub(crate) fn bytes(
        &mut self,
        bytes: &[u8],
        path: &Path,
        depth: usize,
    ) -> Result<(), ImportError> {
        let text = Text::new(bytes).map_err(ImportError::not_text(path))?;
        let source = Source {
            file: Rc::from(path.display().to_string()),
            included: depth > 1,
        };
        self.text(&text, &source, depth)
    }

    /// Reads the text of a file, and the files that it names.
    fn text(&mut self, text: &Text<'_>, source: &Source, depth: usize) -> Result<(), ImportError> {
        let Some(bytes) = self.budget.bytes.checked_sub(text.len()) else {
            self.budget.bytes = 0;
            self.misread.push(Misread {
                origin: source.at(1),
                name: String::new(),
                reason: format!(
                    "more than {BYTES_MAX} bytes in all files; does a file include itself?"
                ),
            });
            return Ok(());
        };
        self.budget.bytes = bytes;
        let mut misread = Vec::new();
        for directive in parse_text(text, source, &mut misread, &mut self.budget) {
            match directive.mended(text) {
                Some(at) => self.misread(at.clone(), NOT_UTF8),
                None => self.directive(directive, depth)?,
            }
        }
        self.misread.append(&mut misread);
        Ok(())
    }

    /// Takes a directive; `config` and `cd` take effect at once, as in stock.
    pub(crate) fn directive(
        &mut self,
        mut directive: Directive,
        depth: usize,
    ) -> Result<(), ImportError> {
        while directive.name == "setenv" && directive.get(0) == Some("opt") {
            directive.values.remove(0);
            if directive.values.is_empty() {
                self.misread(directive, "`setenv opt` needs an option behind it");
                return Ok(());
            }
            directive.name = directive.values.remove(0);
            directive.optional = true;
        }
        if self.directives.len() >= DIRECTIVES_MAX {
            if self.directives.len() == DIRECTIVES_MAX {
                let reason = format!("more than {DIRECTIVES_MAX} directives");
                self.directives.push(directive.clone());
                self.misread(directive, &reason);
            }
            return Ok(());
        }
        match (directive.name.as_str(), directive.count()) {
            ("cd", 1) => {
                let path = Path::new(directive.get(0).unwrap_or_default());
                self.directory = Some(resolve(self.directory.as_deref(), path));
                self.directives.push(directive);
            }
            // Without a permission, the report refuses the line.
            ("config", 1) if directive.origin.is_foreign() && !self.permissions.files() => {
                self.directives.push(directive);
            }
            ("config", 1) if directive.inline.is_none() => {
                let path = PathBuf::from(directive.get(0).unwrap_or_default());
                self.files += 1;
                if depth >= DEPTH_MAX || self.files > FILES_MAX || self.budget.bytes == 0 {
                    let reason = format!(
                        "more than {DEPTH_MAX} nested files, {FILES_MAX} files or {BYTES_MAX} bytes in all; does a \
                         file include itself?"
                    );
                    self.misread(directive, &reason);
                    return Ok(());
                }
                let origin = directive.origin.clone();
                self.directives.push(directive);
                match self.file(&path, depth + 1) {
                    // A fault in an included file is reported together with all other faults.
                    Err(error) if origin.file.is_some() => self.misread.push(Misread {
                        origin,
                        name: "config".to_owned(),
                        reason: error.to_string(),
                    }),
                    other => other?,
                }
            }
            _ => self.directives.push(directive),
        }
        Ok(())
    }

    fn misread(&mut self, directive: Directive, reason: &str) {
        if self.misread.len() >= FAULTS_MAX {
            return;
        }
        self.misread.push(Misread {
            origin: directive.origin,
            name: directive.name,
            reason: reason.to_owned(),
        });
    }
}

/// The file that a text comes from.
#[derive(Clone)]
pub(crate) struct Source {
    /// Name of the file, for messages.
    pub file: Rc<str>,
    /// Whether another file names this one.
    pub included: bool,
}

impl Source {
    fn at(&self, line: usize) -> Origin {
        Origin {
            file: Some(Rc::clone(&self.file)),
            line,
            included: self.included,
        }
    }
}

/// Beginning of a comment that may describe lines ([`Lines`](crate::lines::Lines)). It is kept as a directive of this
/// name, with the comment's text as its value.
pub(crate) const COMMENT: &str = "#!";

/// Splits a text into directives, within the budget; faults go to `misread`.
pub(crate) fn parse_text(
    text: &str,
    source: &Source,
    misread: &mut Vec<Misread>,
    budget: &mut Budget,
) -> Vec<Directive> {
    // Windows editors put a byte order mark first.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate();
    let mut directives = Vec::new();
    while let Some((index, line)) = lines.next() {
        let origin = source.at(index + 1);
        let words = match split(line) {
            Ok(words) => words,
            Err(error) => {
                budget.fault(misread, || Misread {
                    origin,
                    name: first_word(line),
                    reason: error.to_string(),
                });
                continue;
            }
        };
        let comment = line.trim_start().strip_prefix(COMMENT);
        let mut words = match comment {
            None => words.into_iter(),
            Some(text) => vec![COMMENT.to_owned(), text.to_owned()].into_iter(),
        };
        let Some(first) = words.next() else { continue };
        let Some(left) = budget.directives.checked_sub(1) else {
            budget.fault(misread, || Misread {
                origin,
                name: table::nameable(&first),
                reason: format!("more than {DIRECTIVES_MAX} directives"),
            });
            break;
        };
        budget.directives = left;
        let name = first.strip_prefix("--").unwrap_or(&first).to_owned();
        let values: Vec<String> = words.collect();
        let mut directive = Directive::new(origin, name, values);
        let tag = directive
            .name
            .strip_prefix('<')
            .and_then(|name| name.strip_suffix('>'))
            .map(str::to_owned);
        if let (Some(tag), true) = (tag, directive.values.is_empty()) {
            directive.name = tag;
            match inline_block(&directive.name, &mut lines) {
                Some((block, end)) => {
                    behind_end(&directive, end, misread, budget);
                    if directive.name == "connection" {
                        directive.block =
                            connection_block(&block, &directive.origin, misread, budget);
                        directive.inline = Some(Secret::default());
                    } else {
                        directive.inline = Some(Secret::new(block));
                    }
                }
                None => {
                    budget.fault(misread, || Misread {
                        reason: format!(
                            "this block has no end; add a line `</{}>`",
                            directive.name
                        ),
                        origin: directive.origin,
                        name: directive.name,
                    });
                    break;
                }
            }
        }
        directives.push(directive);
    }
    directives
}

/// Reads the lines up to `</name>`, each ended by `\n`; also returns the number and the rest of that last line.
/// `None` if `</name>` is missing.
fn inline_block<'t>(
    name: &str,
    lines: &mut impl Iterator<Item = (usize, &'t str)>,
) -> Option<(String, (usize, &'t str))> {
    let end = format!("</{name}>");
    let mut inside: Vec<&str> = Vec::new();
    for (index, line) in lines {
        if let Some(rest) = line.trim_start().strip_prefix(&end) {
            // Allocate once: a string that grows leaves copies of a key behind.
            let mut block = String::with_capacity(inside.iter().map(|line| line.len() + 1).sum());
            for line in inside {
                block.push_str(line);
                block.push('\n');
            }
            return Some((block, (index, rest)));
        }
        inside.push(line);
    }
    None
}

/// Reports text behind the end of a block, on the same line: usually the first line appended to a file that ended
/// without a newline. Stock silently ignores it.
fn behind_end(
    block: &Directive,
    (index, rest): (usize, &str),
    misread: &mut Vec<Misread>,
    budget: &mut Budget,
) {
    let rest = rest.trim();
    if rest.is_empty() || rest.starts_with(['#', ';']) {
        return;
    }
    budget.fault(misread, || Misread {
        origin: Origin {
            line: index + 1,
            ..block.origin.clone()
        },
        name: first_word(rest),
        reason: format!(
            "follows `</{}>` on the same line, where it is not read; put it on its own line, or remove it",
            shown(&block.name)
        ),
    });
}

/// The lines of a `<connection>`, numbered as in the file.
fn connection_block(
    text: &str,
    head: &Origin,
    misread: &mut Vec<Misread>,
    budget: &mut Budget,
) -> Vec<Directive> {
    let mut inner = Vec::new();
    let source = Source {
        file: head.file.clone().unwrap_or_else(|| Rc::from("")),
        included: head.included,
    };
    let mut directives = parse_text(text, &source, &mut inner, budget);
    for directive in &mut directives {
        directive.origin.line += head.line;
    }
    for mut fault in inner {
        fault.origin.line += head.line;
        misread.push(fault);
    }
    directives
}

fn first_word(line: &str) -> String {
    let word = line.split_whitespace().next().unwrap_or_default();
    table::nameable(word.strip_prefix("--").unwrap_or(word))
}

#[cfg(test)]
mod tests;
