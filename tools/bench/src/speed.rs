//! `millrace speed`: measures this machine's ciphers, hashes and signatures.

mod figure;
mod layout;
mod measure;
mod openssl;
mod options;
mod system;

use std::collections::TryReserveError;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

use clap::{ArgMatches, Command};
use crypto::primitives::{self, Algorithm, Operation};
use crypto::select;
use thiserror::Error;

use figure::{By, Figure};
use host::machine::Machine;
use host::terminal::Progress;
use measure::Subject;
use openssl::{Measured, OpenSsl, OpenSslError};
use options::Options;

/// Factor by which public keys are measured longer, because their operations are slow.
const PUBLIC_KEY_TIMES: f64 = 3.0;

/// Packet size, in bytes, of the table of tunnels; the nearest measured size counts.
const TUNNEL_BYTES: usize = 1408;

/// Builds the command's `clap` definition.
pub fn command() -> Command {
    options::command()
}

/// Why the measurements did not complete.
#[derive(Debug, Error)]
enum SpeedError {
    #[error(transparent)]
    OpenSsl(#[from] OpenSslError),
    /// Standard output was closed.
    #[error("cannot print the results: {0}")]
    Output(#[from] io::Error),
    #[error("no requested algorithm runs on the requested back ends of this machine ({asked})")]
    Nothing { asked: String },
    #[error("cannot allocate memory for the memory test: {0}")]
    Memory(#[from] TryReserveError),
}

/// Runs the command: returns 0 if everything was measured, 1 otherwise.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let options = Options::from(matches);
    let done = match options.system {
        true => system::run(&options),
        false => Speed::new(&options).and_then(Speed::all),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(SpeedError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            host::terminal::note(format_args!("millrace: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// A run of the command.
struct Speed<'a> {
    options: &'a Options,
    openssl: Option<OpenSsl>,
    /// OpenSSL's figures that were measured already.
    measured: Measured,
    subjects: Vec<Subject>,
    threads: usize,
    figures: Vec<Figure>,
    progress: Progress,
    /// Whether no result was wrong so far.
    good: bool,
}

impl<'a> Speed<'a> {
    fn new(options: &'a Options) -> Result<Self, SpeedError> {
        let openssl = options.compare.then(OpenSsl::find).transpose()?;
        let subjects = subjects(options);
        if subjects.is_empty() {
            let asked: Vec<&str> = options.backends.iter().map(|one| one.name()).collect();
            return Err(SpeedError::Nothing {
                asked: asked.join(", "),
            });
        }
        let compared = openssl.as_ref().map_or(0, |_| compared(options));
        let progress = Progress::new(subjects.len() + compared, options.json);
        Ok(Self {
            options,
            openssl,
            measured: Measured::default(),
            subjects,
            threads: thread::available_parallelism().map_or(1, usize::from),
            figures: Vec::new(),
            progress,
            good: true,
        })
    }

    /// Measures and prints; returns true if no result was wrong.
    fn all(mut self) -> Result<bool, SpeedError> {
        if !self.options.json {
            self.progress.clear();
            writeln!(io::stdout(), "{}\n", Machine::this().show())?;
        }
        let subjects = std::mem::take(&mut self.subjects);
        // OpenSSL runs right after the code that is compared with it, so that both meet the same conditions.
        let mut rest = subjects.as_slice();
        while let Some(first) = rest.first() {
            let what = (first.algorithm, first.operation);
            let same = rest
                .iter()
                .take_while(|one| (one.algorithm, one.operation) == what)
                .count();
            let (ours, others) = rest.split_at(same);
            for subject in ours {
                self.ours(*subject)?;
            }
            self.theirs(what.0, what.1)?;
            rest = others;
        }
        self.progress.clear();
        if !self.options.json {
            let mut out = io::stdout().lock();
            if self.options.first_look {
                write!(out, "{}", layout::first_look(&self.figures))?;
                return Ok(self.good);
            }
            write!(out, "{}", layout::tables(&self.figures))?;
            if self.options.algorithms.iter().any(|one| one.is_tunnel()) {
                write!(out, "{}", layout::choices(&select::measure()))?;
            }
            out.flush()?;
        }
        Ok(self.good)
    }

    fn ours(&mut self, subject: Subject) -> Result<(), SpeedError> {
        let Subject {
            algorithm,
            operation,
            backend,
            batch,
            bytes,
        } = subject;
        let seconds = match algorithm.is_public_key() {
            true => self.options.seconds * PUBLIC_KEY_TIMES,
            false => self.options.seconds,
        };
        self.progress.begin(&match algorithm.is_public_key() {
            true => format!("{algorithm} {operation} for {seconds}s"),
            false => format!(
                "{algorithm} {operation} for {seconds}s on {batch} x {bytes} bytes, {backend}"
            ),
        });
        let Some(mut task) = subject.task() else {
            return Ok(());
        };
        let rate = subject.rate(&mut *task, seconds);
        let is_tunnel_packet = algorithm.is_tunnel()
            && self.options.batches.last() == Some(&batch)
            && nearest(&self.options.bytes, TUNNEL_BYTES) == Some(bytes);
        let all = match is_tunnel_packet {
            true => Some(subject.rate_on(self.threads, seconds)).transpose(),
            false => Ok(None),
        };
        let (Ok(rate), Ok(all)) = (rate, all) else {
            self.progress.clear();
            host::terminal::note(format_args!(
                "millrace: {algorithm} {operation}: the back end {backend} gives wrong results with {batch} x {bytes} bytes"
            ));
            self.good = false;
            return Ok(());
        };
        self.add(Figure {
            algorithm,
            operation,
            by: By::Millrace(backend),
            batch,
            bytes,
            rate,
            all: all.map(|all| (self.threads, all)),
            implementation: task.implementation().to_owned(),
        })
    }

    fn theirs(&mut self, algorithm: Algorithm, operation: Operation) -> Result<(), SpeedError> {
        let Some(openssl) = &self.openssl else {
            return Ok(());
        };
        let (seconds, mut found) = (self.options.seconds, Vec::new());
        if algorithm.is_public_key() {
            // One run measures all operations of a key.
            if algorithm.operations().first() != Some(&operation) {
                return Ok(());
            }
            self.progress
                .begin(&format!("{algorithm} on {}", openssl.version));
            let rates = openssl.public_key(algorithm, seconds)?;
            for (&operation, rate) in algorithm.operations().iter().zip(rates) {
                found.extend(rate.map(|rate| (operation, 0, rate)));
            }
        } else {
            for &bytes in &self.options.bytes {
                self.progress.begin(&format!(
                    "{algorithm} {operation} on {bytes} bytes on {}",
                    openssl.version
                ));
                let what = (algorithm, operation);
                let rate = openssl.rate(what, bytes, seconds, &mut self.measured)?;
                found.extend(rate.map(|rate| (operation, bytes, rate)));
            }
        }
        let implementation = openssl.version.clone();
        for (operation, bytes, rate) in found {
            self.add(Figure {
                algorithm,
                operation,
                by: By::OpenSsl,
                batch: 1,
                bytes,
                rate,
                all: None,
                implementation: implementation.clone(),
            })?;
        }
        Ok(())
    }

    fn add(&mut self, figure: Figure) -> Result<(), SpeedError> {
        if self.options.json {
            let mut out = io::stdout().lock();
            self.progress.clear();
            figure.write(&mut out)?;
            out.flush()?;
        }
        self.figures.push(figure);
        Ok(())
    }
}

/// All requested subjects that this machine supports, in the order of the tables.
fn subjects(options: &Options) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for &algorithm in &options.algorithms {
        for &operation in algorithm.operations() {
            for &backend in &options.backends {
                if !primitives::is_present(algorithm, backend) {
                    continue;
                }
                let (batches, sizes) = match algorithm.is_public_key() {
                    // Public keys have neither batches nor sizes.
                    true => (&[1][..], &[0][..]),
                    false => (&options.batches[..], &options.bytes[..]),
                };
                for &batch in batches {
                    subjects.extend(sizes.iter().map(|&bytes| Subject {
                        algorithm,
                        operation,
                        backend,
                        batch,
                        bytes,
                    }));
                }
            }
        }
    }
    subjects
}

/// The number of OpenSSL runs.
fn compared(options: &Options) -> usize {
    let runs = |algorithm: &Algorithm| match algorithm.is_public_key() {
        true => 1,
        false => algorithm.operations().len() * options.bytes.len(),
    };
    options.algorithms.iter().map(runs).sum()
}

/// The entry of `sizes` that is nearest to `wanted`.
fn nearest(sizes: &[usize], wanted: usize) -> Option<usize> {
    sizes
        .iter()
        .copied()
        .min_by_key(|size| size.abs_diff(wanted))
}
