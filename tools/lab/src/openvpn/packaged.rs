//! OpenVPN from other Debian releases, which `scripts/other-openvpn` fetches.

use std::path::PathBuf;

use super::program::{OpenVpn, release_of};
use crate::{LabError, tools};

/// The stock program of a Debian release, with that release's OpenSSL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackagedOpenVpn {
    /// 2.5.1 with OpenSSL 1.1.1.
    Bullseye,
    /// 2.6.14 with OpenSSL 3.5, which has X25519MLKEM768.
    Trixie,
}

impl OpenVpn for PackagedOpenVpn {
    fn name(&self) -> &'static str {
        match self {
            Self::Bullseye => "openvpn of Debian 11",
            Self::Trixie => "openvpn of Debian 13",
        }
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        let path = match self {
            Self::Bullseye => "openvpn-bullseye/bin/openvpn",
            Self::Trixie => "openvpn-trixie/bin/openvpn",
        };
        tools::fetched(path)
            .filter(|path| path.is_file())
            .ok_or_else(|| LabError::Missing {
                tool: self.name().to_owned(),
                hint: "fetch it with scripts/other-openvpn".to_owned(),
            })
    }

    fn release(&self) -> (u16, u16) {
        let found = self.available().ok().and_then(|path| release_of(&path));
        found.unwrap_or(match self {
            Self::Bullseye => (2, 5),
            Self::Trixie => (2, 6),
        })
    }

    fn insecure(&self) -> Option<&'static str> {
        matches!(self, Self::Trixie).then_some("providers legacy default")
    }
}
