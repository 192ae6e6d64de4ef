//! Stand-ins for OpenVPN before 2.6, which derived keys another way.
//!
//! From 2.6 on, the key material of the data channel comes out of TLS's exporter if both ends say that they
//! can do that, and every 2.6 says so: there is no option against it. A copy of the installed program
//! in which the words of this announcement are others falls back to what 2.5 and 2.4 do. It is made in a
//! temporary directory and goes with the value.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{Directory, OpenVpn, StockOpenVpn};
use crate::LabError;

/// The stock client, announcing what 2.5 announces: DATA_V2 and that it waits for a push, no more.
#[derive(Debug)]
pub struct OldClient(Altered);

/// The stock server, hearing no more of its client than what 2.4 listens for.
#[derive(Debug)]
pub struct OldServer(Altered);

#[derive(Debug)]
struct Altered {
    directory: Directory,
}

/// Texts of the program and what they become, equally long, ends included.
type Changes = [(&'static [u8], &'static [u8])];

impl OldClient {
    /// Makes the copy.
    ///
    /// # Errors
    /// [`LabError::Missing`] without the stock program, [`LabError::Unusable`] if it is one that has no
    /// such text.
    pub fn new() -> Result<Self, LabError> {
        // Bits 1 and 2.
        Altered::new(&[(b"\0IV_PROTO=%d\n\0", b"\0IV_PROTO=06\n\0")]).map(Self)
    }
}

impl OldServer {
    /// Makes the copy.
    ///
    /// # Errors
    /// The errors of [`OldClient::new`].
    pub fn new() -> Result<Self, LabError> {
        // The 2 of IV_NCP=2 is taken for IV_PROTO: bit 1.
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
        // A program from before 2.6 is what the stand-in is for.
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
