//! Stand-ins for OpenVPN before 2.6, which derived keys by another method.
//!
//! From 2.6 on, data channel keys come from TLS's exporter if both ends announce support, which every 2.6 does and no
//! option prevents. A copy of the installed program with altered announcements falls back to the method of 2.5 and
//! 2.4. The copy is in a temporary directory and vanishes with the value.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{Directory, OpenVpn, StockOpenVpn};
use crate::LabError;

/// The stock client with the announcements of 2.5: DATA_V2, and that it waits for a push.
#[derive(Debug)]
pub struct OldClient(Altered);

/// The stock server, made to ignore client announcements that 2.4 does not know.
#[derive(Debug)]
pub struct OldServer(Altered);

#[derive(Debug)]
struct Altered {
    directory: Directory,
}

/// Texts in the program and their replacements, of equal length, including terminators.
type Changes = [(&'static [u8], &'static [u8])];

impl OldClient {
    /// Makes the altered copy.
    ///
    /// # Errors
    /// [`LabError::Missing`] without the stock program, [`LabError::Unusable`] if the program lacks the text to
    /// alter.
    pub fn new() -> Result<Self, LabError> {
        // IV_PROTO bits 1 and 2.
        Altered::new(&[(b"\0IV_PROTO=%d\n\0", b"\0IV_PROTO=06\n\0")]).map(Self)
    }
}

impl OldServer {
    /// Makes the altered copy.
    ///
    /// # Errors
    /// The errors of [`OldClient::new`].
    pub fn new() -> Result<Self, LabError> {
        // The server reads the 2 of IV_NCP=2 as IV_PROTO: bit 1.
        Altered::new(&[
            (b"\0IV_PROTO=\0", b"\0IV_NCP=\0\0\0"),
            (b"\0IV_PROTO=%d\0", b"\0IV_NCP=%d\0\0\0"),
        ])
        .map(Self)
    }
}

impl Altered {
    fn new(changes: &Changes) -> Result<Self, LabError> {
        let original = StockOpenVpn.available()?;
        let mut program =
            fs::read(&original).map_err(LabError::load(format!("read {}", original.display())))?;
        // A program older than 2.6 needs no alteration.
        let old = StockOpenVpn.release() < (2, 6);
        for (text, becomes) in changes.iter().filter(|_| !old) {
            let mut places = program.windows(text.len()).enumerate();
            let place = places.find(|(_, window)| window == text);
            let (place, _) = place.ok_or_else(|| LabError::Unusable {
                what: original.display().to_string(),
                hint: "it is not the 2.6 that the stand-in for older versions is made of"
                    .to_owned(),
            })?;
            program[place..place + becomes.len()].copy_from_slice(becomes);
        }
        let altered = Self {
            directory: Directory::new()?,
        };
        let path = altered.program();
        let write = || {
            fs::write(&path, &program)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
        };
        write().map_err(LabError::load(format!("write {}", path.display())))?;
        Ok(altered)
    }

    fn program(&self) -> PathBuf {
        self.directory.join("openvpn")
    }
}

impl OpenVpn for OldClient {
    fn name(&self) -> &'static str {
        "openvpn as 2.5"
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        Ok(self.0.program())
    }

    fn release(&self) -> (u16, u16) {
        StockOpenVpn.release()
    }

    fn insecure(&self) -> Option<&'static str> {
        StockOpenVpn.insecure()
    }
}

impl OpenVpn for OldServer {
    fn name(&self) -> &'static str {
        "openvpn as 2.4"
    }

    fn available(&self) -> Result<PathBuf, LabError> {
        Ok(self.0.program())
    }

    fn release(&self) -> (u16, u16) {
        StockOpenVpn.release()
    }

    fn insecure(&self) -> Option<&'static str> {
        StockOpenVpn.insecure()
    }
}
