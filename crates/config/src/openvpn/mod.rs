//! OpenVPN's files and command line.
//!
//! A configuration is a list of directives: lines of a file, or `--name value…` arguments, which
//! may name further files. The way is: bytes -> [`lexer`] words -> directives -> model and
//! [`Report`]. As with `wg-quick` files the import does not stop at the first fault, because
//! whoever moves a profile to a router wants to hear everything at once; every directive is
//! honoured, ignored with the reason why that does no harm, or refused with what to do.

use std::io;
use std::path::Path;

use zeroize::Zeroizing;

use crate::report::Report;

mod error;
mod model;

pub use error::OpenVpnError;
pub use model::*;

/// Reads a file that a configuration names with `config`. Given from outside so that parsing
/// stays pure.
pub type ReadFile<'a> = dyn FnMut(&Path) -> io::Result<Zeroizing<Vec<u8>>> + 'a;

/// What the caller permits and assumes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Ciphers with 64-bit blocks, DES and `cipher none` are permitted, as
    /// `--allow-insecure-ciphers` says.
    pub allow_insecure_ciphers: bool,
}

/// A configuration that has been read, whatever was wrong in it.
#[derive(Clone, Debug)]
pub struct Import {
    model: Option<OpenVpn>,
    /// The verdict on every directive.
    pub report: Report,
    /// What stock prints as a warning and goes on, one sentence each.
    pub warnings: Vec<String>,
    fault: Option<(String, usize)>,
}

impl Import {
    /// The model, and the report to show beside it.
    ///
    /// # Errors
    /// [`OpenVpnError::Lines`] when lines are wrong, refused or missing.
    pub fn into_model(self) -> Result<(OpenVpn, Report), OpenVpnError> {
        match (self.model, self.fault) {
            (Some(model), None) => Ok((model, self.report)),
            (_, fault) => {
                let (first, count) = fault.unwrap_or_default();
                Err(OpenVpnError::Lines { first, count })
            }
        }
    }

    /// True when [`Import::into_model`] would succeed.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.fault.is_none() && self.model.is_some()
    }
}

/// Reads a file, and the files that it names with `config`.
///
/// # Errors
/// When there is no text to look at; faults in the text are in the [`Import`].
pub fn read(path: &Path, options: Options) -> Result<Import, OpenVpnError> {
    let _ = (path, options);
    todo!()
}

/// Parses the arguments of `openvpn`, without the program's name, and the files that they name.
///
/// # Errors
/// When a file has no text to look at; faults in words are in the [`Import`].
pub fn parse_arguments(
    arguments: &[String],
    read: &mut ReadFile<'_>,
    options: Options,
) -> Result<Import, OpenVpnError> {
    let _ = (arguments, read, options);
    todo!()
}

/// Parses a file of `client-config-dir`, or what a `client-connect` script wrote; `file` only
/// names it in the report. Lines that are refused are left out of the settings.
#[must_use]
pub fn parse_client_settings(text: &str, file: &str) -> (ClientSettings, Report) {
    let _ = (text, file);
    todo!()
}
