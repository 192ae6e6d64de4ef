//! The pre-shared keys of the control channel.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::Directory;
use super::pki::run;
use crate::{LabError, tools};

/// A key of 2048 bits for `tls-auth` or `tls-crypt`, as text.
#[derive(Clone, PartialEq, Eq)]
pub struct StaticKey(String);

impl StaticKey {
    /// Generates a random key.
    ///
    /// # Errors
    /// [`LabError::Load`] if there are no random numbers.
    pub fn generate() -> Result<Self, LabError> {
        let mut bytes = [0; 256];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(LabError::load("read random numbers"))?;
        Ok(Self::of(&bytes))
    }

    /// Makes the key from these bytes.
    pub fn of(bytes: &[u8; 256]) -> Self {
        let mut text = String::from("-----BEGIN OpenVPN Static key V1-----\n");
        for line in bytes.chunks(16) {
            text.extend(line.iter().map(|byte| format!("{byte:02x}")));
            text.push('\n');
        }
        Self(text + "-----END OpenVPN Static key V1-----\n")
    }

    /// The text of the key file.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for StaticKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StaticKey(..)")
    }
}

/// The keys of `tls-crypt-v2`: the server's, and one client's that the server wrapped.
#[derive(Clone, PartialEq, Eq)]
pub struct V2Keys {
    /// Key file of the server.
    pub server: String,
    /// Key file of the client.
    pub client: String,
}

impl V2Keys {
    /// Has the stock OpenVPN program generate the keys.
    ///
    /// # Errors
    /// [`LabError::Missing`] without that program, [`LabError::Failed`].
    pub fn generate() -> Result<Self, LabError> {
        let openvpn = tools::find("openvpn")?;
        let directory = Directory::new()?;
        let server = directory.join("server.key");
        generate_key(&openvpn, None, "tls-crypt-v2-server", &server)?;
        let client = directory.join("client.key");
        generate_key(&openvpn, Some(&server), "tls-crypt-v2-client", &client)?;
        let read = |path: PathBuf| {
            fs::read_to_string(&path).map_err(LabError::load(format!("read {}", path.display())))
        };
        Ok(Self {
            server: read(server)?,
            client: read(client)?,
        })
    }
}

impl std::fmt::Debug for V2Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("V2Keys(..)")
    }
}

fn generate_key(
    openvpn: &Path,
    server: Option<&Path>,
    kind: &str,
    file: &Path,
) -> Result<(), LabError> {
    let mut words = Vec::new();
    if let Some(server) = server {
        words.extend(["--tls-crypt-v2".to_owned(), server.display().to_string()]);
    }
    words.extend(["--genkey", kind].map(str::to_owned));
    words.push(file.display().to_string());
    run(openvpn, &words).map(drop)
}
