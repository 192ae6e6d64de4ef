//! A public key infrastructure for tests: an authority, servers, clients and revocation lists.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Directory;
use crate::{LabError, tools};

/// Kinds of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA of 2048 bits.
    Rsa,
    /// ECDSA on P-256.
    Ecdsa,
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Rsa, Self::Ecdsa, Self::Ed25519];

    /// The argument of `openssl req -newkey`.
    fn newkey(self) -> &'static [&'static str] {
        match self {
            Self::Rsa => &["rsa:2048"],
            Self::Ecdsa => &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            Self::Ed25519 => &["ed25519"],
        }
    }
}

/// The purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `extendedKeyUsage = serverAuth`.
    Server,
    /// `extendedKeyUsage = clientAuth`.
    Client,
    /// A common name without any extension, as in certificates of old authorities.
    Bare,
}

impl Role {
    fn extensions(self) -> &'static str {
        match self {
            Self::Server => {
                "basicConstraints=CA:FALSE\nkeyUsage=digitalSignature,keyEncipherment\n\
                 extendedKeyUsage=serverAuth\n"
            }
            Self::Client => {
                "basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\n\
                 extendedKeyUsage=clientAuth\n"
            }
            Self::Bare => "",
        }
    }
}

/// An authority, with a server and a client that it has signed.
pub struct Pki {
    kind: KeyKind,
    serial: AtomicU32,
    ca: String,
    ca_key: String,
    server: Identity,
    client: Identity,
}

impl fmt::Debug for Pki {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pki")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// A certificate and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// Common name of the certificate.
    pub name: String,
    /// The certificate, PEM.
    pub certificate: String,
    /// The private key, PKCS#8 in PEM.
    pub key: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// OpenSSL configuration that replaces the machine's own.
const CONFIGURATION: &str = "\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[ca]
default_ca = lab
[lab]
database = index.txt
crlnumber = crlnumber
default_md = default
default_crl_days = 30
";

impl Pki {
    /// Makes an authority, a server named `server` and a client named `client`, all with keys of one kind. Their
    /// serial numbers are 1, 2 and 3.
    ///
    /// # Errors
    /// [`LabError::Missing`] without `openssl`, [`LabError::Failed`].
    pub fn new(kind: KeyKind) -> Result<Self, LabError> {
        let workspace = Workspace::empty()?;
        let mut words = vec![
            "req",
            "-config",
            "openssl.cnf",
            "-x509",
            "-nodes",
            "-newkey",
        ];
        words.extend(kind.newkey());
        words.extend([
            "-subj",
            "/CN=Lab CA",
            "-set_serial",
            "1",
            "-days",
            "30",
            "-extensions",
            "authority",
        ]);
        words.extend(["-keyout", "ca.key", "-out", "ca.crt"]);
        workspace.openssl(&words)?;
        let unset = || Identity {
            name: String::new(),
            certificate: String::new(),
            key: String::new(),
        };
        let mut pki = Self {
            kind,
            serial: AtomicU32::new(2),
            ca: workspace.read("ca.crt")?,
            ca_key: workspace.read("ca.key")?,
            server: unset(),
            client: unset(),
        };
        pki.server = pki.issue("server", Role::Server)?;
        pki.client = pki.issue("client", Role::Client)?;
        Ok(pki)
    }

    /// The authority's certificate, PEM.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// The server's certificate and key.
    pub fn server(&self) -> &Identity {
        &self.server
    }

    /// The client's certificate and key.
    pub fn client(&self) -> &Identity {
        &self.client
    }

    /// Signs another certificate with this common name.
    ///
    /// # Errors
    /// [`LabError::Failed`].
    pub fn issue(&self, name: &str, role: Role) -> Result<Identity, LabError> {
        let workspace = self.workspace()?;
        let serial = self.serial.fetch_add(1, Ordering::Relaxed).to_string();
        let subject = format!("/CN={name}");
        let mut words = vec!["req", "-config", "openssl.cnf", "-new", "-nodes", "-newkey"];
        words.extend(self.kind.newkey());
        words.extend(["-subj", &subject, "-keyout", "own.key", "-out", "own.csr"]);
        workspace.openssl(&words)?;
        workspace.file("own.ext", role.extensions())?;
        let mut words = vec!["x509", "-req", "-in", "own.csr", "-CA", "ca.crt"];
        words.extend(["-CAkey", "ca.key", "-set_serial", &serial, "-days", "30"]);
        words.extend(["-extfile", "own.ext", "-out", "own.crt"]);
        workspace.openssl(&words)?;
        Ok(Identity {
            name: name.to_owned(),
            certificate: workspace.read("own.crt")?,
            key: workspace.read("own.key")?,
        })
    }

    /// Makes a revocation list (CRL) for these certificates, PEM.
    ///
    /// # Errors
    /// [`LabError::Failed`].
    pub fn revoke(&self, identities: &[&Identity]) -> Result<String, LabError> {
        let workspace = self.workspace()?;
        let ca = [
            "ca",
            "-config",
            "openssl.cnf",
            "-keyfile",
            "ca.key",
            "-cert",
            "ca.crt",
        ];
        for identity in identities {
            workspace.file("own.crt", &identity.certificate)?;
            workspace.openssl(&[&ca[..], &["-revoke", "own.crt"]].concat())?;
        }
        workspace.openssl(&[&ca[..], &["-gencrl", "-out", "crl.pem"]].concat())?;
        workspace.read("crl.pem")
    }

    /// Encrypts the private key of `identity` with a password, PEM.
    ///
    /// # Errors
    /// [`LabError::Failed`].
    pub fn encrypted_key(&self, identity: &Identity, password: &str) -> Result<String, LabError> {
        let workspace = self.workspace()?;
        workspace.file("own.key", &identity.key)?;
        let password = format!("pass:{password}");
        let words = ["pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in", "own.key"];
        let more = ["-passout", &password, "-out", "encrypted.key"];
        workspace.openssl(&[&words[..], &more].concat())?;
        workspace.read("encrypted.key")
    }

    /// Makes a PKCS#12 file with `identity` and the authority's certificate.
    ///
    /// # Errors
    /// [`LabError::Failed`].
    pub fn pkcs12(&self, identity: &Identity, password: &str) -> Result<Vec<u8>, LabError> {
        let workspace = self.workspace()?;
        workspace.file("own.key", &identity.key)?;
        workspace.file("own.crt", &identity.certificate)?;
        let password = format!("pass:{password}");
        let words = ["pkcs12", "-export", "-inkey", "own.key", "-in", "own.crt"];
        let more = [
            "-certfile",
            "ca.crt",
            "-passout",
            &password,
            "-out",
            "own.p12",
        ];
        workspace.openssl(&[&words[..], &more].concat())?;
        let path = workspace.0.join("own.p12");
        fs::read(&path).map_err(LabError::load(format!("read {}", path.display())))
    }

    /// Returns a certificate's SHA-256 fingerprint, in the form of `peer-fingerprint`.
    ///
    /// # Errors
    /// [`LabError::Failed`].
    pub fn fingerprint(&self, identity: &Identity) -> Result<String, LabError> {
        let workspace = Workspace::empty()?;
        workspace.file("own.crt", &identity.certificate)?;
        let words = [
            "x509",
            "-in",
            "own.crt",
            "-noout",
            "-fingerprint",
            "-sha256",
        ];
        let text = workspace.openssl(&words)?;
        let fingerprint = text.trim().rsplit('=').next().unwrap_or_default();
        Ok(fingerprint.to_owned())
    }

    fn workspace(&self) -> Result<Workspace, LabError> {
        let workspace = Workspace::empty()?;
        workspace.file("ca.crt", &self.ca)?;
        workspace.file("ca.key", &self.ca_key)?;
        Ok(workspace)
    }
}

/// A temporary directory for one task of `openssl`.
struct Workspace(Directory);

impl Workspace {
    fn empty() -> Result<Self, LabError> {
        let workspace = Self(Directory::new()?);
        workspace.file("openssl.cnf", CONFIGURATION)?;
        workspace.file("index.txt", "")?;
        workspace.file("crlnumber", "01\n")?;
        Ok(workspace)
    }

    fn file(&self, name: &str, text: &str) -> Result<(), LabError> {
        self.0.file(name, text).map(drop)
    }

    fn read(&self, name: &str) -> Result<String, LabError> {
        let path = self.0.join(name);
        fs::read_to_string(&path).map_err(LabError::load(format!("read {}", path.display())))
    }

    fn openssl(&self, words: &[&str]) -> Result<String, LabError> {
        run_in(&tools::find("openssl")?, words, self.0.path())
    }
}

/// Runs a program outside any host and returns its output.
pub(super) fn run<S: AsRef<str>>(program: &Path, words: &[S]) -> Result<String, LabError> {
    run_in(program, words, Path::new("/"))
}

fn run_in<S: AsRef<str>>(
    program: &Path,
    words: &[S],
    directory: &Path,
) -> Result<String, LabError> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let label = format!("{} {}", program.display(), words.join(" "));
    let output = Command::new(program)
        .args(&words)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(LabError::load(format!("run {label}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(LabError::Failed {
        program: label,
        host: "(none)".to_owned(),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_of_every_kind_are_what_they_say() {
        let Some(openssl) = crate::require(tools::find("openssl")) else {
            return;
        };
        for kind in KeyKind::ALL {
            let pki = Pki::new(kind).unwrap();
            let directory = Directory::new().unwrap();
            let ca = directory.file("ca", pki.ca()).unwrap();
            for (identity, purpose) in [(pki.server(), "sslserver"), (pki.client(), "sslclient")] {
                let file = directory.file("crt", &identity.certificate).unwrap();
                let [ca, file] = [&ca, &file].map(|path| path.display().to_string());
                let words = ["verify", "-CAfile", &ca, "-purpose", purpose, &file];
                assert!(run(&openssl, &words).unwrap().contains("OK"), "{kind:?}");
            }
            let spare = pki.issue("spare", Role::Bare).unwrap();
            assert!(pki.revoke(&[&spare]).unwrap().contains("X509 CRL"));
            let key = pki.encrypted_key(pki.client(), "secret").unwrap();
            assert!(key.contains("ENCRYPTED"), "{kind:?}");
            assert!(!pki.pkcs12(pki.client(), "secret").unwrap().is_empty());
            assert_eq!(pki.fingerprint(pki.server()).unwrap().len(), 32 * 3 - 1);
        }
    }
}
