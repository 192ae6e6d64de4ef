//! OpenVPN's files and command line.
//!
//! A configuration is a list of directives: lines of a file, or `--name value…` arguments, which may name further
//! files. The steps are: bytes -> words ([`split`]) -> directives -> model and [`Report`]. As with `wg-quick` files,
//! the import does not stop at the first fault, because a person who moves a profile to a router wants to see all
//! faults at once. Every directive is honoured, ignored with the reason why that is harmless, or refused with a
//! remedy.

use std::io::{self, Read as _};
use std::path::Path;

use zeroize::Zeroizing;

use crate::file;
use crate::permissions::{Permissions, own_management, own_passwords};
use crate::report::Report;

mod builder;
mod ccd;
mod collector;
mod directive;
mod draft;
mod files;
mod lexer;
mod model;
mod report;
mod table;

use builder::Builder;
use collector::Collector;

use crate::error::ImportError;
pub use ccd::parse_client_settings;
pub use collector::{BYTES_MAX, DEPTH_MAX, DIRECTIVES_MAX, FILE_MAX, FILES_MAX};
pub use lexer::{LINE_MAX, LexError, WORD_MAX, WORDS_MAX, split, split_words};
pub use model::*;
pub use table::{deciding, is_directive};

/// Reads a file that a configuration names with `config`. The caller provides it, so that parsing stays pure.
pub type ReadFile<'a> = dyn FnMut(&Path) -> io::Result<Zeroizing<Vec<u8>>> + 'a;

/// Permissions and assumptions of the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Permits 64-bit block ciphers, DES and `cipher none` (`--allow-insecure-ciphers`).
    pub allow_insecure_ciphers: bool,
    /// Permissions of the configuration: scripts to run as `script-security` says, and files to write (`log`,
    /// `status`, `writepid`, …), send (`auth-user-pass FILE`) or read as more configuration (`config FILE`).
    pub permissions: Permissions,
}

/// The result of reading a configuration, faults included.
#[derive(Clone, Debug)]
pub struct Import {
    model: Option<OpenVpn>,
    /// The verdict on every directive.
    pub report: Report,
    /// Warnings that stock also prints, one sentence each.
    pub warnings: Vec<String>,
    /// The action that was requested instead of a tunnel; there is no model then.
    pub action: Option<Action>,
    /// Whether the file itself holds a key or a password.
    holds_secrets: bool,
    /// Faults that prevent a model, with file and line, and their number.
    faults: (Vec<String>, usize),
}

impl Import {
    /// Returns the model, and the report to show beside it.
    ///
    /// # Errors
    /// [`ImportError::Lines`] when lines are wrong, refused or missing.
    pub fn into_model(self) -> Result<(OpenVpn, Report), ImportError> {
        match (self.model, self.faults) {
            (Some(model), (_, 0)) => Ok((model, self.report)),
            (_, (faults, count)) => Err(ImportError::Lines {
                first: faults.into_iter().next().unwrap_or_default(),
                count,
            }),
        }
    }

    /// Why [`Import::into_model`] would fail: at most 1000 sentences, each with file and line.
    #[must_use]
    pub fn faults(&self) -> &[String] {
        &self.faults.0
    }

    /// True when [`Import::into_model`] would succeed.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.faults.1 == 0 && self.model.is_some()
    }
}

/// Reads a file, and the files that it names with `config`. Relative paths in it start at its own directory, as
/// people expect; on the command line they start at the working directory, as in stock.
///
/// # Errors
/// The file cannot be read or is not text; faults in the text are in the [`Import`].
pub fn read(path: &Path, options: Options) -> Result<Import, ImportError> {
    let bytes = read_config(path).map_err(ImportError::read(path))?;
    read_bytes(&bytes, path, options)
}

/// Reads `bytes` as [`read`] reads a file; the file at `path` need not exist yet.
///
/// # Errors
/// The errors of [`read`].
pub fn read_bytes(bytes: &[u8], path: &Path, options: Options) -> Result<Import, ImportError> {
    let mut read = read_config;
    let mut collector = Collector::new(&mut read, options.permissions);
    collector.own_passwords = own_passwords(path);
    collector.own_management = own_management(path);
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    collector.directory = parent.map(Path::to_owned);
    collector.bytes(bytes, path, 1)?;
    let file = path.display().to_string();
    Ok(import(collector, &file, options))
}

/// Parses the bytes of a file; `path` only names it in the report. `read` reads the files that it names.
///
/// # Errors
/// The bytes are not text; faults in the text are in the [`Import`].
pub fn parse_bytes(
    bytes: &[u8],
    path: &Path,
    read: &mut ReadFile<'_>,
    options: Options,
) -> Result<Import, ImportError> {
    let mut collector = Collector::new(read, options.permissions);
    collector.bytes(bytes, path, 1)?;
    let file = path.display().to_string();
    Ok(import(collector, &file, options))
}

/// Parses the arguments of `openvpn`, without the program's name, and the files that they name.
///
/// # Errors
/// A file cannot be read or is not text; faults in words are in the [`Import`].
pub fn parse_arguments(
    arguments: &[String],
    read: &mut ReadFile<'_>,
    options: Options,
) -> Result<Import, ImportError> {
    let mut collector = Collector::new(read, options.permissions);
    collector.arguments(arguments)?;
    // A single file argument gives the report its name; otherwise the command line does.
    let file = match arguments {
        [file] if !file.starts_with("--") => file.as_str(),
        _ => report::COMMAND_LINE,
    };
    Ok(import(collector, file, options))
}

/// Reads a regular file of at most 4 MiB, standard input (`stdin`), or an inherited pipe, for [`parse_arguments`].
///
/// # Errors
/// The kernel's error.
pub fn read_config(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    if path == Path::new("stdin") {
        let mut bytes = Zeroizing::new(Vec::with_capacity(1 << 16));
        io::stdin().lock().take(FILE_MAX).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    file::read_handed_over(path, FILE_MAX)
}

/// Whether a file is OpenVPN's rather than `wg-quick`'s: by its content, as both may have any name, or else by its
/// name.
pub(crate) fn is_openvpn_text(path: &Path, text: &str) -> bool {
    let by_name = || path.extension().is_some_and(|it| it == "ovpn");
    by_content(text).unwrap_or_else(by_name)
}

/// Judges by content; `None` for a text without a `wg-quick` section or a directive.
fn by_content(text: &str) -> Option<bool> {
    let mut directive = false;
    for word in text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
    {
        let is = |head: &str| word.eq_ignore_ascii_case(head);
        if is("[interface]") || is("[peer]") {
            return Some(false);
        }
        let word = word.strip_prefix("--").unwrap_or(word);
        let tag = word.strip_prefix('<').and_then(|it| it.strip_suffix('>'));
        directive |= table::find(tag.unwrap_or(word)).is_some();
    }
    directive.then_some(true)
}

fn import(collector: Collector<'_, '_>, file: &str, options: Options) -> Import {
    let mut builder = Builder::new(options);
    builder.draft.own_passwords = collector.own_passwords;
    builder.draft.own_management = collector.own_management;
    builder.draft.directory = collector.directory;
    let secret = |directive: &directive::Directive| {
        let here = directive.origin.file.as_deref() == Some(file);
        here && directive.inline.is_some()
            && table::find(&directive.name).is_some_and(|it| it.has(table::SECRET))
    };
    let holds_secrets = collector.directives.iter().any(secret);
    for misread in collector.misread {
        builder.refuse(&misread.origin, &misread.name, misread.reason);
    }
    for directive in &collector.directives {
        builder.hear(directive);
    }
    let model = builder.finish();
    report::conceal(&mut builder.judged);
    let faults = (report::faults(&builder.judged, file), builder.faults());
    Import {
        model,
        report: report::report(&builder.judged, file),
        warnings: builder.warnings,
        action: builder.draft.action,
        holds_secrets,
        faults,
    }
}
