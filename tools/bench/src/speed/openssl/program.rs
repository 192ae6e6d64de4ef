//! The installed `openssl` program: its options, and running it.

use std::io;
use std::process::{Command, Output, Stdio};

use crypto::Cipher;
use crypto::primitives::Algorithm;
use thiserror::Error;

use super::{Direction, Measure, output};

/// Why a comparison with OpenSSL is impossible.
#[derive(Debug, Error)]
pub(crate) enum OpenSslError {
    #[error(
        "no openssl in PATH to compare with: install the package openssl, or leave out --compare"
    )]
    Missing,
    #[error("cannot run openssl: {0}")]
    Run(io::Error),
    #[error(
        "{version} does not understand `speed {option}`: OpenSSL 1.1.1 or later is needed for --compare"
    )]
    TooOld {
        version: String,
        option: &'static str,
    },
}

/// The installed OpenSSL program.
#[derive(Debug)]
pub(crate) struct OpenSsl {
    /// The version that it prints: `OpenSSL 3.0.19 27 Jan 2026`.
    pub version: String,
    options: Options,
}

/// The newer options of `speed` that this release has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Options {
    aead: bool,
    hmac: bool,
    provider: bool,
}

impl Options {
    /// Options that every measurement needs. All came with 1.1.1; LibreSSL has none of them.
    const NEEDED: [&str; 3] = ["-bytes", "-seconds", "-mr"];

    /// Parses the output of `openssl speed -help`; fails with the needed option that is missing.
    fn of(help: &str) -> Result<Self, &'static str> {
        let has = |option: &str| {
            help.lines()
                .any(|line| line.split_whitespace().next() == Some(option))
        };
        if let Some(missing) = Self::NEEDED.into_iter().find(|option| !has(option)) {
            return Err(missing);
        }
        Ok(Self {
            aead: has("-aead"),
            hmac: has("-hmac"),
            provider: has("-provider"),
        })
    }

    /// The arguments after `openssl speed`; `None` if this release cannot measure it.
    fn arguments(self, measure: Measure, bytes: usize, seconds: f64) -> Option<Vec<String>> {
        let mut words = vec!["-mr".to_owned()];
        let mut add = |new: &[&str]| words.extend(new.iter().map(|&word| word.to_owned()));
        add(&["-seconds", &whole(seconds), "-bytes", &bytes.to_string()]);
        if measure.is_legacy() && self.provider {
            // Naming one provider disables the default one, so name both.
            add(&["-provider", "legacy", "-provider", "default"]);
        }
        let cipher = |cipher: Cipher| cipher.name().to_ascii_lowercase();
        match measure {
            Measure::Hash(digest) => add(&["-evp", &digest.name().to_ascii_lowercase()]),
            Measure::Hmac(digest) if self.hmac => {
                add(&["-hmac", &digest.name().to_ascii_lowercase()]);
            }
            Measure::Rc4 => add(&["-evp", "rc4"]),
            Measure::Cbc(which, _) => add(&["-evp", &cipher(which)]),
            Measure::Aead(which, _) if self.aead => add(&["-aead", "-evp", &cipher(which)]),
            Measure::Hmac(_) | Measure::Aead(..) => return None,
        }
        if let Measure::Cbc(_, Direction::Decrypt) | Measure::Aead(_, Direction::Decrypt) = measure
        {
            add(&["-decrypt"]);
        }
        Some(words)
    }
}

impl OpenSsl {
    /// Finds the program in PATH.
    pub(crate) fn find() -> Result<Self, OpenSslError> {
        let version = Self::run(&["version"])?.stdout;
        let version = String::from_utf8_lossy(&version);
        let version = match version.split(" (Library").next().map(str::trim) {
            Some(version) if !version.is_empty() => version.to_owned(),
            _ => "this openssl".to_owned(),
        };
        // The help goes to standard error up to 1.1.1, to standard output since.
        let help = Self::run(&["speed", "-help"])?;
        let help = [help.stdout, help.stderr].concat();
        match Options::of(&String::from_utf8_lossy(&help)) {
            Ok(options) => Ok(Self { version, options }),
            Err(option) => Err(OpenSslError::TooOld { version, option }),
        }
    }

    /// Bytes per second; `None` if this OpenSSL cannot measure it.
    pub(super) fn symmetric(
        &self,
        measure: Measure,
        bytes: usize,
        seconds: f64,
    ) -> Result<Option<f64>, OpenSslError> {
        let Some(arguments) = self.options.arguments(measure, bytes, seconds) else {
            return Ok(None);
        };
        let text = self.speed(&arguments)?;
        Ok(output::bytes_per_second(&text, bytes))
    }

    /// Operations per second, in the order of the algorithm's operations.
    pub(crate) fn public_key(
        &self,
        algorithm: Algorithm,
        seconds: f64,
    ) -> Result<[Option<f64>; 2], OpenSslError> {
        let (name, prefix, bits) = match algorithm {
            Algorithm::Rsa2048 => ("rsa2048", "+F2:", 2048),
            Algorithm::Dsa2048 => ("dsa2048", "+F3:", 2048),
            Algorithm::EcdsaP256 => ("ecdsap256", "+F4:", 256),
            Algorithm::X25519 => ("ecdhx25519", "+F5:", 253),
            _ => return Ok([None; 2]),
        };
        let text = self.speed(&["-mr", "-seconds", &whole(seconds), name])?;
        Ok(output::per_second(&text, prefix, bits).unwrap_or_default())
    }

    fn speed<S: AsRef<str>>(&self, arguments: &[S]) -> Result<String, OpenSslError> {
        let arguments = arguments.iter().map(S::as_ref);
        let words: Vec<&str> = std::iter::once("speed").chain(arguments).collect();
        let output = Self::run(&words)?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            let first = complaint.lines().next().unwrap_or_default();
            log::info!("openssl {}: {} {first}", words.join(" "), output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn run(arguments: &[&str]) -> Result<Output, OpenSslError> {
        Command::new("openssl")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => OpenSslError::Missing,
                _ => OpenSslError::Run(error),
            })
    }
}

/// Rounds to whole seconds, at least one, as `openssl speed` needs.
fn whole(seconds: f64) -> String {
    format!("{:.0}", seconds.round().max(1.0))
}

#[cfg(test)]
mod tests {
    use crypto::Digest;

    use super::*;

    const HELP_1_1_1: &str = "\
Usage: speed [options] ciphers...
Valid options are:
 -help          Display this summary
 -evp val       Use EVP-named cipher or digest
 -decrypt       Time decryption instead of encryption (only EVP)
 -aead          Benchmark EVP-named AEAD cipher in TLS-like sequence
 -mr            Produce machine readable output
 -seconds +int  Run benchmarks for specified amount of seconds
 -bytes +int    Run [non-PKI] benchmarks on custom-sized buffer
";

    const HELP_3_0: &str = "\
Selection options:
 -evp val            Use EVP-named cipher or digest
 -hmac val           HMAC using EVP-named digest
 -decrypt            Time decryption instead of encryption (only EVP)
 -aead               Benchmark EVP-named AEAD cipher in TLS-like sequence
 -mr                 Produce machine readable output
 -seconds +int       Run benchmarks for specified amount of seconds
 -bytes +int         Run [non-PKI] benchmarks on custom-sized buffer
 -provider-path val  Provider load path (must be before 'provider' argument if required)
 -provider val       Provider to load (can be specified multiple times)
";

    fn line(options: Options, measure: Measure) -> Option<String> {
        let words = options.arguments(measure, 1408, 0.1)?;
        Some(words.join(" "))
    }

    #[test]
    fn only_options_that_the_release_has_are_used() {
        let old = Options::of(HELP_1_1_1).unwrap();
        let new = Options::of(HELP_3_0).unwrap();
        let common = "-mr -seconds 1 -bytes 1408";
        let des = Measure::Cbc(Cipher::DesCbc, Direction::Decrypt);
        assert_eq!(
            line(old, des),
            Some(format!("{common} -evp des-cbc -decrypt"))
        );
        assert_eq!(
            line(new, des),
            Some(format!(
                "{common} -provider legacy -provider default -evp des-cbc -decrypt"
            ))
        );
        let hmac = Measure::Hmac(Digest::Sha256);
        assert_eq!(line(old, hmac), None);
        assert_eq!(line(new, hmac), Some(format!("{common} -hmac sha256")));
        let aead = Measure::Aead(Cipher::ChaCha20Poly1305, Direction::Encrypt);
        let expected = Some(format!("{common} -aead -evp chacha20-poly1305"));
        assert_eq!(line(old, aead), expected);
        assert_eq!(line(new, aead), expected);
    }

    #[test]
    fn a_release_without_the_needed_options_is_refused() {
        let older = "Available options:\n-elapsed    measure time in real time\n-mr         machine readable\n";
        assert_eq!(Options::of(older), Err("-bytes"));
    }

    #[test]
    fn seconds_are_whole() {
        assert_eq!([0.02, 1.4, 2.6].map(whole), ["1", "1", "3"]);
    }
}
