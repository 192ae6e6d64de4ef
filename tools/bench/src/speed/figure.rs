//! One measured figure, and its JSON form.

use std::io::{self, Write};

use crypto::Backend;
use crypto::primitives::{Algorithm, Operation};
use serde::Serialize;

/// The owner of the measured code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Millrace(Backend),
    OpenSsl,
}

impl By {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Millrace(backend) => backend.name(),
            Self::OpenSsl => "openssl",
        }
    }
}

/// A measurement and its result.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub algorithm: Algorithm,
    pub operation: Operation,
    pub by: By,
    /// Packets at a time.
    pub batch: usize,
    /// Bytes of each packet; 0 for public keys.
    pub bytes: usize,
    /// Bytes or operations per second.
    pub rate: f64,
    /// Number of threads, and their total rate in bytes per second.
    pub all: Option<(usize, f64)>,
    /// The back end's name and CPU instructions.
    pub implementation: String,
}

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    algorithm: String,
    operation: &'static str,
    backend: &'static str,
    batch: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kilobytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operations_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kilobytes_per_second_all: Option<f64>,
    implementation: &'a str,
}

impl Figure {
    /// Writes the figure as a line of JSON.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let operations = self.algorithm.is_public_key();
        let kilobytes = |rate: f64| hundredths(rate / 1000.0);
        let line = Line {
            algorithm: self.algorithm.to_string(),
            operation: self.operation.name(),
            backend: self.by.name(),
            batch: self.batch,
            bytes: (!operations).then_some(self.bytes),
            kilobytes_per_second: (!operations).then(|| kilobytes(self.rate)),
            operations_per_second: operations.then(|| hundredths(self.rate)),
            threads: self.all.map(|(threads, _)| threads),
            kilobytes_per_second_all: self.all.map(|(_, rate)| kilobytes(rate)),
            implementation: &self.implementation,
        };
        serde_json::to_writer(&mut *out, &line)?;
        writeln!(out)
    }
}

/// Rounds to two decimals, as `openssl speed` does.
fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(figure: &Figure) -> String {
        let mut text = Vec::new();
        figure.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_line_says_what_it_is_of() {
        let seal = Figure {
            algorithm: Algorithm::from_name("aes-256-cbc+hmac-sha1").unwrap(),
            operation: Operation::Seal,
            by: By::Millrace(Backend::Simd),
            batch: 32,
            bytes: 1408,
            rate: 1_234_567_891.0,
            all: None,
            implementation: "own".to_owned(),
        };
        assert_eq!(
            written(&seal),
            "{\"algorithm\":\"aes-256-cbc+hmac-sha1\",\"operation\":\"seal\",\"backend\":\"simd\",\"batch\":32,\
             \"bytes\":1408,\"kilobytes_per_second\":1234567.89,\"implementation\":\"own\"}\n"
        );
        let all = Figure {
            all: Some((4, 4e9)),
            ..seal.clone()
        };
        assert!(
            written(&all).contains(",\"threads\":4,\"kilobytes_per_second_all\":4000000.0,"),
            "{}",
            written(&all)
        );
        // Programs are written by this page.
        let page = include_str!("../../../../docs/json.md");
        for name in written(&all).split('"').filter(|it| it.contains('_')) {
            assert!(page.contains(&format!("- `{name}`: ")), "{name}");
        }
        let sign = Figure {
            algorithm: Algorithm::Rsa2048,
            operation: Operation::Sign,
            by: By::OpenSsl,
            batch: 1,
            bytes: 0,
            rate: 27.4,
            ..seal
        };
        assert_eq!(
            written(&sign),
            "{\"algorithm\":\"rsa-2048\",\"operation\":\"sign\",\"backend\":\"openssl\",\"batch\":1,\
             \"operations_per_second\":27.4,\"implementation\":\"own\"}\n"
        );
    }
}
