//! Determines the kind of a tunnel file: one answer for every command and page.

use std::path::Path;

use zeroize::Zeroizing;

use crate::error::ImportError;
use crate::text::Text;
use crate::{file, openvpn, pptp, relay};

/// Largest file of a tunnel, in bytes.
pub const FILE_MAX: u64 = 4 << 20;

/// The kind of a tunnel's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A PPTP file, of Millrace's own or of pppd or pptpd.
    Pptp,
    /// An OpenVPN configuration.
    OpenVpn,
    /// A relay's configuration file.
    Relay,
    /// A `wg-quick` file, or any other text.
    WireGuard,
}

impl Kind {
    /// The kind of a file by its name and content. PPTP is tested first, as its keys are also OpenVPN directives.
    #[must_use]
    pub fn of(path: &Path, bytes: &[u8]) -> Self {
        let text = Text::new(bytes).ok();
        let text = text.as_deref().unwrap_or_default();
        match () {
            () if pptp::is_pptp_text(path, text) => Self::Pptp,
            () if openvpn::is_openvpn_text(path, text) => Self::OpenVpn,
            () if relay::is_relay_text(text) => Self::Relay,
            () => Self::WireGuard,
        }
    }

    /// The kind of the file at `path`. An unreadable file is judged by its name; its next reader reports the error.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self::of(path, &file::read(path, FILE_MAX).unwrap_or_default())
    }

    /// Reads a file and tells its kind.
    ///
    /// # Errors
    /// [`ImportError::Read`].
    pub fn read(path: &Path) -> Result<(Self, Zeroizing<Vec<u8>>), ImportError> {
        let bytes = file::read(path, FILE_MAX).map_err(ImportError::read(path))?;
        Ok((Self::of(path, &bytes), bytes))
    }

    /// The name that programs and pages use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pptp => "pptp",
            Self::OpenVpn => "openvpn",
            Self::Relay => "relay",
            Self::WireGuard => "wireguard",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_content_or_its_ending() {
        let pptp = "protocol = \"pptp\"\nserver = \"192.0.2.1\"\nauth = \"pap\"\n";
        for (name, text, kind) in [
            ("a.toml", pptp, Kind::Pptp),
            ("a", "pty \"pptp a\"\nauth\n", Kind::Pptp),
            ("a.conf", "client\nremote a\n", Kind::OpenVpn),
            ("a.ovpn", "", Kind::OpenVpn),
            ("a.conf", "[Relay]\n", Kind::Relay),
            ("a.ovpn", "[Interface]\n", Kind::WireGuard),
            ("a.conf", "\u{0}", Kind::WireGuard),
        ] {
            assert_eq!(Kind::of(Path::new(name), text.as_bytes()), kind, "{text}");
        }
    }
}
