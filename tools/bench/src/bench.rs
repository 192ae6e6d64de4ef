//! `millrace bench`: tunnels side by side.

/// Defines an enum whose values have names on the command line and in documents.
macro_rules! named {
    ($(#[$meta:meta])* $Name:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $Name {
            $($(#[$doc])* $variant,)*
        }

        impl $Name {
            /// All values, in order.
            pub(crate) const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The value's name on the command line and in documents.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the value with this name.
            pub(crate) fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}

mod clients;
pub(super) mod contender;
mod handshakes;
mod lines;
pub(super) mod openvpn;
mod options;
mod plot;
mod records;
mod report;
mod rig;
pub(super) mod table;
mod targets;
mod test;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use lab::{LabError, Offloads, tools};

use crate::bench::table::number;
use contender::Contender;
use host::machine::Machine;
use host::terminal::Progress;
use options::Options;
use records::{Failure, Record, Records};
use report::Run;
use rig::{Effort, Ground, Rig, RigError};
use test::{Metric, Test};

/// Builds the command's `clap` definition.
pub fn command() -> Command {
    options::command()
}

/// Runs the command; returns 0 unless a measurement failed to run.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let options = Options::from(matches);
    match bench(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            host::terminal::note(format_args!("millrace: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Measures and reports; returns true if nothing failed.
fn bench(options: &Options) -> Result<bool, RigError> {
    if !options.lines.is_empty() {
        return lines(options);
    }
    if let Some(clients) = options.clients {
        return scale(options, clients);
    }
    if options.contenders.is_empty() {
        return Err(contender::nothing_to_compare().into());
    }
    let mut needed = vec!["ping", "iperf3"];
    for contender in &options.contenders {
        needed.push(match contender {
            Contender::OpenVpn(..) => "openssl",
            _ => "wg",
        });
    }
    prepare(&needed)?;
    tools::tun()?;
    let mut run = plan(options);
    let offloads = if options.segmentation {
        Offloads::On
    } else {
        Offloads::NoSegmentation
    };
    let grounds = run
        .contenders
        .iter()
        .map(|contender| Ok((*contender, Ground::new(offloads)?)))
        .collect::<Result<Vec<_>, LabError>>()?;
    let mut records = Records::default();
    let mut rigs = Vec::new();
    for (contender, ground) in &grounds {
        match Rig::new(*contender, ground, options.against.as_deref()) {
            Ok(rig) => rigs.push(rig),
            Err(error) => {
                let test = Test::Setup;
                records.fail(0, test, *contender, &error);
            }
        }
    }
    run.contenders = rigs.iter().map(|rig| rig.contender).collect();
    measure(options, &rigs, &mut records);
    drop(rigs);
    drop(grounds);

    let text = report::markdown(&run, &records);
    let mut good = publish(options, &text) && records.failures.is_empty();
    if let Some(path) = &options.plot {
        for (path, svg) in plot::files(path, &run, &records) {
            good &= write(&path, &svg);
        }
    }
    if let Some(path) = &options.json {
        match report::json(&run, &records) {
            Ok(text) => good &= write(path, &text),
            Err(error) => {
                host::terminal::note(format_args!("millrace: cannot write JSON: {error}"));
                good = false;
            }
        }
    }
    Ok(good)
}

/// Measures many clients of one server, for each implementation.
fn scale(options: &Options, clients: u32) -> Result<bool, RigError> {
    let openvpn = |one: &Contender| matches!(one, Contender::OpenVpn(..));
    let needed: &[&str] = match (
        options.contenders.iter().any(openvpn),
        options.contenders.iter().all(openvpn),
    ) {
        (true, true) => &["openssl", "iperf3"],
        (true, false) => &["openssl", "iperf3", "wg", "ip"],
        (false, _) => &["wg", "ip"],
    };
    prepare(needed)?;
    tools::tun()?;
    let (mut outcomes, mut handshakes) = (Vec::new(), Vec::new());
    for contender in &options.contenders {
        match *contender {
            Contender::OpenVpn(ends, suite) => {
                outcomes.push(clients::measure(ends, suite, clients, options.seconds)?);
            }
            one => handshakes.push(handshakes::measure(one, clients)?),
        }
    }
    let mut text = String::new();
    if !outcomes.is_empty() {
        text += &clients::markdown(&outcomes);
    }
    if !handshakes.is_empty() {
        text += &handshakes::markdown(&handshakes);
    }
    Ok(publish(options, &text))
}

/// Measures streams over one line with jitter, over two lines, and over a full line.
fn lines(options: &Options) -> Result<bool, RigError> {
    prepare(&["wg", "iperf3"])?;
    let text = lines::measure(&options.lines, options.repetitions, options.seconds)?;
    Ok(publish(options, &text))
}

/// Shows the report, and writes it where the options say; returns whether that worked.
fn publish(options: &Options, text: &str) -> bool {
    host::terminal::say(text);
    options
        .markdown
        .as_ref()
        .is_none_or(|path| write(path, text))
}

/// Checks that all programs and devices are there before networks are built.
pub(super) fn prepare(needed: &[&str]) -> Result<(), LabError> {
    lab::enter()?;
    // `wg` configures tunnels, which need TUN interfaces.
    if needed.contains(&"wg") {
        tools::tun()?;
    }
    for tool in needed {
        tools::find(tool)?;
    }
    let last = || {
        host::terminal::note(format_args!(
            "\nmillrace: interrupted; hosts and programs are removed"
        ));
    };
    if let Err(error) = lab::cleanup_on_signal_then(last) {
        log::warn!("cannot handle Ctrl-C, which may leave processes behind: {error}");
    }
    Ok(())
}

/// Plans the measurements, and collects the facts for the report's head.
fn plan(options: &Options) -> Run {
    let mut run = Run {
        machine: Machine::this(),
        repetitions: options.repetitions,
        seconds: options.seconds,
        segmentation: options.segmentation,
        reference: options.reference,
        against: options.against.is_some(),
        contenders: Vec::new(),
        missing: Vec::new(),
        versions: vec![("millrace".to_owned(), env!("CARGO_PKG_VERSION").to_owned())],
    };
    for contender in &options.contenders {
        match contender.carrier_beside(options.against.as_deref()) {
            Ok(_) => run.contenders.push(*contender),
            Err(error) => {
                host::terminal::note(format_args!("bench: without {}: {error}", contender.name()));
                run.missing.push((*contender, error.to_string()));
            }
        }
    }
    if let Some(other) = &options.against {
        let version = tools::version(other).unwrap_or_default();
        let version = format!("{version} ({})", other.display());
        run.versions
            .push((Contender::Other.name().to_owned(), version));
    }
    for contender in [
        Contender::WireguardGo,
        Contender::WireguardGoPackaged,
        Contender::BoringTun,
        Contender::GotaTun,
    ] {
        if run.contenders.contains(&contender) {
            let version = (contender.name().to_owned(), contender.version());
            run.versions.push(version);
        }
    }
    let stock = Contender::openvpn().find(|one| run.contenders.contains(one));
    if let Some(stock) = stock {
        run.versions.push(("openvpn".to_owned(), stock.version()));
    }
    if let Some(version) = tools::find("iperf3").ok().and_then(|p| tools::version(&p)) {
        run.versions.push(("iperf3".to_owned(), version));
    }
    let of_one = |test: &Test| test.duration(options.seconds);
    let once: f64 = options.tests.iter().map(of_one).sum();
    let all = once * f64::from(options.repetitions) * run.contenders.len() as f64;
    host::terminal::note(format_args!("bench: {}", run.machine.show()));
    host::terminal::note(format_args!(
        "bench: {} implementations, {} tests, {} repetitions: about {:.0} min",
        run.contenders.len(),
        options.tests.len(),
        options.repetitions,
        (all / 60.0).ceil()
    ));
    let references = run.contenders.iter().map(|one| run.reference_of(*one));
    let missing: BTreeSet<&str> = references
        .filter(|one| !run.contenders.contains(one))
        .map(Contender::name)
        .collect();
    for name in missing {
        host::terminal::note(format_args!(
            "bench: no ratios to {name}, which is not measured; choose another with --reference"
        ));
    }
    run
}

/// Runs the tests interleaved: every implementation does a test before the next test begins.
fn measure(options: &Options, rigs: &[Rig<'_>], records: &mut Records) {
    let effort = Effort {
        seconds: options.seconds,
        requests: options.requests,
    };
    let steps = options.repetitions as usize * options.tests.len() * rigs.len();
    let mut progress = Progress::new(steps, false);
    for repetition in 0..options.repetitions {
        for test in &options.tests {
            for rig in rigs {
                let place = format!("{} {}", test.name(), rig.contender.name());
                progress.begin(&place);
                let result = rig.measure(*test, effort);
                progress.clear();
                match result {
                    // This test makes no sense without a tunnel.
                    Ok(values) if values.is_empty() => {}
                    Ok(values) => {
                        if io::stderr().is_terminal() {
                            host::terminal::note(format_args!("bench: {place}: {}", show(&values)));
                        }
                        records.records.push(Record {
                            repetition,
                            test: *test,
                            contender: rig.contender,
                            values,
                        });
                    }
                    Err(error) => records.fail(repetition, *test, rig.contender, &error),
                }
            }
        }
    }
}

impl Records {
    fn fail(&mut self, repetition: u32, test: Test, contender: Contender, error: &RigError) {
        host::terminal::note(format_args!(
            "bench: {} {} FAILED: {error}",
            test.name(),
            contender.name()
        ));
        self.failures.push(Failure {
            repetition,
            test,
            contender,
            error: error.to_string(),
        });
    }
}

fn show(values: &[(Metric, f64)]) -> String {
    let shown = values
        .iter()
        .map(|(metric, value)| format!("{} {}", metric.key(), number(*value)));
    shown.collect::<Vec<_>>().join(", ")
}

fn write(path: &Path, text: &str) -> bool {
    match fs::write(path, text) {
        Ok(()) => true,
        Err(error) => {
            host::terminal::note(format_args!(
                "millrace: cannot write {}: {error}",
                path.display()
            ));
            false
        }
    }
}
