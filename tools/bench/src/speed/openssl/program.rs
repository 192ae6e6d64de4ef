//! The installed `openssl` program: its options, running it, and reading the output of `openssl speed -mr`.
//!
//! ```text
//! +H:1408                                  sizes of messages
//! +F:25:AES-256-CBC:1407520738.46          number, name, bytes a second at each size
//! +F2:2:2048:3806.0:70579.2                RSA: number, bits, signatures and verifications a second;
//!                                          from 3.2 on encryptions and decryptions behind them
//! +F3:… +F4:…                              DSA, ECDSA: the same
//! +F5:22:253:38193.7:0.000026              ECDH: number, bits, operations a second, seconds of each
//! ```
//!
//! The leading numbers differ between releases. A measurement that failed has the figure 0.

use std::io;
use std::process::{Command, Output, Stdio};

use crypto::Cipher;
use crypto::primitives::Algorithm;
use thiserror::Error;

use crate::speed::openssl::{Direction, Measure};

/// Why a comparison with OpenSSL is impossible.
#[derive(Debug, Error)]
pub(crate) enum OpenSslError {
    #[error(
        "openssl, to compare with, is not in PATH; install the package openssl, or leave out --compare"
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
    /// The version that the program prints: `OpenSSL 3.0.19 27 Jan 2026`.
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
    /// Options that every measurement needs. All came with 1.1.1; LibreSSL has none of these options.
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
        Ok(bytes_per_second(&text, bytes))
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
        Ok(per_second(&text, prefix, bits).unwrap_or_default())
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

/// Bytes per second in the output for a single size.
fn bytes_per_second(text: &str, bytes: usize) -> Option<f64> {
    let size = text.lines().find_map(|line| line.strip_prefix("+H:"))?;
    if size.trim().parse() != Ok(bytes) {
        return None;
    }
    let mut fields = text
        .lines()
        .find_map(|line| line.strip_prefix("+F:"))?
        .split(':');
    // The name may be missing; the figure is always last.
    figure(fields.next_back()?)
}

/// The first two figures of the line that begins with `prefix`, such as `+F2:`, for keys of `bits` bits.
fn per_second(text: &str, prefix: &str, bits: u32) -> Option<[Option<f64>; 2]> {
    text.lines().find_map(|line| {
        let mut fields = line.strip_prefix(prefix)?.split(':');
        let _number = fields.next()?;
        if fields.next()?.trim().parse() != Ok(bits) {
            return None;
        }
        Some([
            fields.next().and_then(figure),
            fields.next().and_then(figure),
        ])
    })
}

/// Parses a figure; `None` if it is 0.
fn figure(text: &str) -> Option<f64> {
    let value: f64 = text.trim().parse().ok()?;
    (value.is_finite() && value > 0.0).then_some(value)
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

    /// `openssl speed -mr -seconds 1 -bytes 1408 -evp aes-256-cbc` of 3.0.19 with `2>&1`.
    const CBC_3_0: &str = "\
+DT:AES-256-CBC:1:1408
+R:999659:AES-256-CBC:1.000000
+H:1408
+F:25:AES-256-CBC:1407520738.46
";

    /// Output in the form of 1.1.1, which numbers ciphers differently and uses the older long names.
    const CBC_1_1_1: &str = "\
+H:1408
+F:22:aes-256-cbc:58935301.12
";

    /// Output in the form of 3.5, which lists more algorithms before this one.
    const GCM_3_5: &str = "\
+H:64
+F:28:AES-256-GCM:4537225537.25
";

    #[test]
    fn bytes_a_second_of_every_release() {
        assert_eq!(bytes_per_second(CBC_3_0, 1408), Some(1_407_520_738.46));
        assert_eq!(bytes_per_second(CBC_1_1_1, 1408), Some(58_935_301.12));
        assert_eq!(bytes_per_second(GCM_3_5, 64), Some(4_537_225_537.25));
    }

    #[test]
    fn names_may_have_parentheses_and_nothing_is_no_figure() {
        let hmac = "+H:1408\n+F:9:hmac(sha1):1715045376.00\n";
        assert_eq!(bytes_per_second(hmac, 1408), Some(1_715_045_376.0));
        // OpenSSL 3.0 without its legacy provider.
        let none = "+H:64\n+F:12:rc4:0.00\n";
        assert_eq!(bytes_per_second(none, 64), None);
        assert_eq!(bytes_per_second(hmac, 64), None);
        for text in [
            "",
            "+H:64\n",
            "+F:1:x:5\n",
            "+H:64\n+F:1:x:nan\n",
            "Error\n",
        ] {
            assert_eq!(bytes_per_second(text, 64), None, "{text:?}");
        }
    }

    /// `openssl speed -mr -seconds 1 rsa2048 ecdsap256 ecdhx25519 dsa2048` of 3.0.19.
    const KEYS_3_0: &str = "\
+H:16:64:256:1024:8192:16384
+F2:2:2048:3806.000000:70579.245283
+F3:2:2048:5055.223881:5733.823529
+F4:3:256:55510.144928:17627.536232
+F5:22:253:38193.750000:0.000026
";

    #[test]
    fn operations_a_second() {
        let two = |prefix, bits| per_second(KEYS_3_0, prefix, bits);
        assert_eq!(
            two("+F2:", 2048),
            Some([Some(3806.0), Some(70_579.245_283)])
        );
        assert_eq!(
            two("+F3:", 2048),
            Some([Some(5_055.223_881), Some(5_733.823_529)])
        );
        assert_eq!(
            two("+F4:", 256),
            Some([Some(55_510.144_928), Some(17_627.536_232)])
        );
        let x25519 = two("+F5:", 253).and_then(|[rate, _]| rate);
        assert_eq!(x25519, Some(38193.75));
        assert_eq!(two("+F2:", 4096), None);
        assert_eq!(two("+F6:", 253), None);
    }

    #[test]
    fn later_releases_have_more_figures_behind() {
        // From 3.2 on, RSA has four figures.
        let text = "+F2:2:2048:1900.100000:37407.500000:36000.000000:1850.000000\n";
        assert_eq!(
            per_second(text, "+F2:", 2048),
            Some([Some(1900.1), Some(37407.5)])
        );
        // A measurement that failed.
        let text = "+F3:2:2048:0.000000:82.500000\n";
        assert_eq!(per_second(text, "+F3:", 2048), Some([None, Some(82.5)]));
    }
}
