//! OpenVPN's files and command line.
//!
//! A configuration is a list of directives: lines of a file, or `--name value…` arguments, which
//! may name further files. The way is: bytes -> words ([`split`]) -> directives -> model and
//! [`Report`]. As with `wg-quick` files the import does not stop at the first fault, because
//! a person who moves a profile to a router wants to hear everything at once; every directive is
//! honoured, ignored with the reason why that does no harm, or refused with what to do.

use std::io::{self, Read as _};
use std::path::Path;

use zeroize::Zeroizing;

use crate::file;
use crate::permissions::{Permissions, own_management, own_passwords};
use crate::report::Report;

mod argv;
mod build;
mod ccd;
mod directive;
mod files;
mod lexer;
mod model;
mod report;
mod table;

use build::Builder;
pub use build::DECIDING;
use directive::Collector;

use crate::error::ImportError;
pub use ccd::parse_client_settings;
pub use directive::{BYTES_MAX, DEPTH_MAX, DIRECTIVES_MAX, FILE_MAX, FILES_MAX};
pub use lexer::{LINE_MAX, LexError, WORD_MAX, WORDS_MAX, split};
pub use model::*;

/// Reads a file that a configuration names with `config`. Given from outside so that parsing
/// stays pure.
pub type ReadFile<'a> = dyn FnMut(&Path) -> io::Result<Zeroizing<Vec<u8>>> + 'a;

/// Permissions and assumptions of the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Ciphers with 64-bit blocks, DES and `cipher none` are permitted, as
    /// `--allow-insecure-ciphers` says.
    pub allow_insecure_ciphers: bool,
    /// Permissions of the configuration beside its tunnel: scripts that run as `script-security` says, files to be
    /// written (`log`, `status`, `writepid`, …), sent (`auth-user-pass FILE`) or read as more configuration (`config
    /// FILE`).
    pub permissions: Permissions,
}

/// A configuration that has been read, whatever was wrong in it.
#[derive(Clone, Debug)]
pub struct Import {
    model: Option<OpenVpn>,
    /// The verdict on every directive.
    pub report: Report,
    /// Warnings that stock prints before it goes on, one sentence each.
    pub warnings: Vec<String>,
    /// An action that was asked for instead of a tunnel; there is no model then.
    pub action: Option<Action>,
    /// A key or a password stands in the file itself.
    holds_secrets: bool,
    /// Faults that leave no model, with file and line, and how many there are.
    faults: (Vec<String>, usize),
}

impl Import {
    /// The model, and the report to show beside it.
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

    /// Why [`Import::into_model`] would fail, one sentence each with file and line: at most 1000.
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

/// Reads a file, and the files that it names with `config`. Relative paths in it are meant from
/// where it lies, as people expect; on the command line they are meant from where the process
/// stands, as in stock.
///
/// # Errors
/// When there is no text to look at; faults in the text are in the [`Import`].
pub fn read(path: &Path, options: Options) -> Result<Import, ImportError> {
    let bytes = read_config(path).map_err(ImportError::read(path))?;
    read_bytes(&bytes, path, options)
}

/// Reads a file with this content, which need not be at its place yet, as [`read`] does.
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

/// Parses the bytes of a file, whose `path` only names it in the report; files that it names are
/// read with `read`.
///
/// # Errors
/// When a text is none; faults in it are in the [`Import`].
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
/// When a file has no text to look at; faults in words are in the [`Import`].
pub fn parse_arguments(
    arguments: &[String],
    read: &mut ReadFile<'_>,
    options: Options,
) -> Result<Import, ImportError> {
    let mut collector = Collector::new(read, options.permissions);
    argv::collect(arguments, &mut collector)?;
    // If there is only a file, everything is about it; otherwise the command line is.
    let file = match arguments {
        [file] if !file.starts_with("--") => file.as_str(),
        _ => report::COMMAND_LINE,
    };
    Ok(import(collector, file, options))
}

/// Reads a regular file of at most 4 MiB, standard input by the name `stdin`, or a pipe that the shell made, for
/// [`parse_arguments`].
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

/// True for a file that is OpenVPN's and not `wg-quick`'s: by its content, for both may have any name, and by its name
/// where the text says nothing.
pub(crate) fn is_openvpn_text(path: &Path, text: &str) -> bool {
    let by_name = || path.extension().is_some_and(|it| it == "ovpn");
    by_content(text).unwrap_or_else(by_name)
}

/// `None` for a text that has neither a section of a `wg-quick` file nor a directive.
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
    builder.own_passwords = collector.own_passwords;
    builder.own_management = collector.own_management;
    builder.directory.clone_from(&collector.directory);
    let secret = |directive: &directive::Directive| {
        let here = directive.origin.file.as_deref() == Some(file);
        let secret = files::SECRETS.contains(&directive.name.as_str());
        here && secret && directive.inline.is_some()
    };
    let holds_secrets = collector.directives.iter().any(secret);
    for misread in collector.misread {
        builder.misread(misread);
    }
    for directive in &collector.directives {
        builder.hear(directive);
    }
    let model = builder.finish(collector.directory);
    builder.conceal();
    let faults = (report::faults(&builder.judged, file), builder.faults());
    Import {
        model,
        report: report::report(&builder.judged, file),
        warnings: builder.warnings,
        action: builder.action,
        holds_secrets,
        faults,
    }
}
