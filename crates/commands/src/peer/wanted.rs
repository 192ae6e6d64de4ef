//! A new client, as the command line or a page wants it, and the output for it.

use super::issue::{Issued, Recipient, Terms};
use super::{PeerError, place, qr};
use crate::arguments::flag;
use clap::Arg;
use config::kind::Kind;
use config::types::AllowedIp;
use serde::Serialize;
use std::cell::RefCell;
use std::fs;
use std::path::Path;
use zeroize::Zeroizing;

/// The option for a link, in builds with AmneziaWG.
pub(super) fn options() -> Option<Arg> {
    let link = || {
        flag(
            "link",
            "Print a vpn:// link for the app AmneziaVPN; with --qr, its QR codes",
        )
        .conflicts_with_all(["json", "from"])
    };
    cfg!(feature = "amnezia").then(link)
}

/// The parameters of a new client.
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) terms: Terms,
    /// The path for the client's file.
    pub(crate) file: Option<&'a Path>,
    pub(crate) qr: bool,
    /// Whether the output is a link for the app AmneziaVPN, and its QR codes.
    #[cfg(feature = "amnezia")]
    pub(crate) link: bool,
    /// The networks behind the client.
    pub(crate) behind: Vec<AllowedIp>,
    /// A note about the client.
    pub(crate) note: Option<String>,
    /// Seconds between packets of the server to an idle client (WireGuard).
    pub(crate) keepalive: Option<u16>,
    /// Receives the output: the QR code, or the file's text if it is not written to a file.
    pub(crate) shown: &'a RefCell<Zeroizing<String>>,
}

impl Recipient for Wanted<'_> {
    fn check(&self, server: Kind, _: &mut dyn Iterator<Item = &str>) -> Result<(), PeerError> {
        match server {
            #[cfg(feature = "amnezia")]
            Kind::OpenVpn if self.link => Err(PeerError::OpenVpnLink),
            Kind::OpenVpn if self.qr => Err(PeerError::OpenVpnCode),
            _ => Ok(()),
        }
    }

    fn take(&self, files: &[Issued]) -> Result<(), PeerError> {
        for file in files {
            let text = file.text.clone();
            #[cfg(feature = "amnezia")]
            let text = if self.link { file.link()? } else { text };
            let code = || qr::codes(&text, host::terminal::escapes(&std::io::stdout()));
            let code = match self.qr.then(code).transpose() {
                Err(PeerError::TooLong(bytes)) if self.file.is_some() => {
                    host::terminal::note(format_args!(
                        "no QR code: the file has {bytes} bytes, too many for a camera"
                    ));
                    None
                }
                code => code?,
            };
            if let Some(file) = self.file {
                place::write_new(file, &text)?;
            }
            *self.shown.borrow_mut() = match code {
                Some(code) => code,
                None if self.file.is_none() => text,
                None => Zeroizing::default(),
            };
        }
        Ok(())
    }

    fn give_back(&self) {
        if let Some(file) = self.file {
            let _ = fs::remove_file(file);
        }
    }
}

/// The JSON document about a new client.
#[derive(Serialize)]
struct Added<'a> {
    name: &'a str,
    file: &'a str,
    /// The QR code, a line of `0` and `1` (dark) for each row; `None` if the file is too long for a camera.
    qr: Option<&'a [String]>,
}

/// The JSON document about a new client.
pub(crate) fn added(name: &str, file: &str) -> Zeroizing<String> {
    let qr = qr::rows(file);
    let added = Added {
        name,
        file,
        qr: qr.as_deref().map(Vec::as_slice),
    };
    Zeroizing::new(serde_json::to_string(&added).unwrap_or_default())
}
