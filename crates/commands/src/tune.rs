//! `millrace tune`: measures ciphers on the CPU and on accelerators, and the kernel's data plane of OpenVPN, and writes the
//! fastest to the profile.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::process::ExitCode;
#[cfg(any(feature = "accelerators", feature = "kernel"))]
use std::time::Duration;

use clap::{ArgMatches, Command};
use crypto::select::Algorithm;
use serde_json::json;

use host::machine::Machine;
use host::terminal::Progress;
#[cfg(feature = "kernel")]
use service::openvpn::Compared;
use service::profile::{self, OnCpu, Profile};

use crate::Outcome;
use crate::arguments::{self, flag};

#[cfg(feature = "accelerators")]
mod tables;

/// Minimum number of steps: each algorithm, each row of the tables, and each cipher of the kernel's data plane.
const STEPS: usize = Algorithm::ALL.len() + ROWS + CIPHERS;
#[cfg(feature = "accelerators")]
const ROWS: usize = tables::ROWS;
#[cfg(not(feature = "accelerators"))]
const ROWS: usize = 0;
#[cfg(feature = "kernel")]
const CIPHERS: usize = service::openvpn::MEASURED.len();
#[cfg(not(feature = "kernel"))]
const CIPHERS: usize = 0;

/// How many times as long as a cipher's batch a data plane is measured.
#[cfg(feature = "kernel")]
const LOADS: u32 = 100;

/// The shortest and longest measurement of a data plane; there are eight.
#[cfg(feature = "kernel")]
const LOAD: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// The command's description; the second part is about the kernel's data plane.
const LONG_ABOUT: [&str; 3] = [
    if cfg!(feature = "accelerators") {
        "Measure ciphers on the CPU and on accelerators behind /dev/crypto or AF_ALG, from 16 bytes to 64 KiB and in \
         batches of 1 to 64 packets, and write to the profile which is fastest for each size. "
    } else {
        "Measure the ciphers' code on the CPU, and write to the profile which is fastest. "
    },
    if cfg!(feature = "kernel") {
        "As root, compare the kernel's data plane of OpenVPN, if there is one, with this program's. "
    } else {
        ""
    },
    "Tunnels that start later use the results. Run nothing else meanwhile.",
];

/// The command-line definition of `tune`.
pub(crate) fn command() -> Command {
    let command = Command::new("tune")
        .about("Measure ciphers on CPU and accelerator, and save the fastest")
        .long_about(LONG_ABOUT.concat())
        .arg(arguments::path(
            "profile",
            "PATH",
            "File to write [default: MILLRACE_PROFILE, or /etc/millrace/profile.json]",
        ))
        .arg(flag("no-profile", "Measure only").conflicts_with("profile"))
        .arg(flag(
            "json",
            "Print one JSON object per line: each figure, then the profile",
        ));
    #[cfg(feature = "accelerators")]
    let command = command.arg(tables::milliseconds());
    command
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let path = match arguments::file(matches, "profile") {
        _ if matches.get_flag("no-profile") => None,
        Some(path) => Some(path.to_owned()),
        None => profile::path(),
    };
    let json = matches.get_flag("json");
    let run = Run {
        json,
        shown: RefCell::new(Ok(())),
        progress: RefCell::new(Progress::new(STEPS, json)),
        #[cfg(feature = "accelerators")]
        enough: tables::enough(matches),
    };
    // Measuring takes minutes, so the path is checked first.
    if let Some(path) = &path {
        Profile::check_path(path).map_err(|why| cannot_write(path, &why))?;
    }
    let profile = run.tune();
    run.show(&json!({ "profile": profile.to_json() }), "");
    if let Some(path) = path {
        profile
            .write(&path)
            .map_err(|why| cannot_write(&path, &why))?;
        run.show(
            &json!({ "written": path }),
            &format!("written to {}", path.display()),
        );
    }
    run.shown.into_inner()?;
    Ok(ExitCode::SUCCESS)
}

fn cannot_write(path: &Path, why: &io::Error) -> String {
    format!(
        "cannot write {}: {why}; name another file with --profile, and give it to tunnels with {}",
        path.display(),
        profile::ENVIRONMENT
    )
}

struct Run {
    json: bool,
    /// Whether the results could be shown; the profile is written all the same.
    shown: RefCell<Result<(), String>>,
    /// The measuring time for each figure of a table.
    #[cfg(feature = "accelerators")]
    enough: Duration,
    progress: RefCell<Progress>,
}

impl Run {
    fn tune(&self) -> Profile {
        let mut profile = Profile::new();
        let machine = Machine::this();
        self.show(&json!({ "machine": machine }), &machine.show());
        for algorithm in Algorithm::ALL {
            self.progress.borrow_mut().begin(algorithm.name());
            let cpu = OnCpu::chosen(algorithm);
            let text = format!(
                "{:<18} {} for batches, {} for few packets",
                cpu.algorithm, cpu.many, cpu.few
            );
            self.show(&json!({ "cpu": cpu.to_json() }), &text);
            profile.cpu.push(cpu);
        }
        #[cfg(feature = "accelerators")]
        {
            profile.engines = self.accelerators();
        }
        #[cfg(not(feature = "accelerators"))]
        self.show(
            &json!({ "accelerators": [], "built": false }),
            "accelerators       none: this build of Millrace does not support them, and measures no further",
        );
        #[cfg(feature = "kernel")]
        {
            profile.dataplanes = self.dataplanes();
        }
        profile
    }

    /// Compares the kernel's data plane of OpenVPN with this program's, as far as that can be done.
    #[cfg(feature = "kernel")]
    fn dataplanes(&self) -> Vec<Compared> {
        #[cfg(feature = "accelerators")]
        let enough = self.enough;
        #[cfg(not(feature = "accelerators"))]
        let enough = Duration::from_millis(20);
        let load = enough.saturating_mul(LOADS).clamp(LOAD[0], LOAD[1]);
        let mut found = Vec::new();
        for cipher in service::openvpn::MEASURED {
            let name = cipher.name();
            self.progress.borrow_mut().begin(name);
            let compared = match Compared::measure(cipher, load) {
                Ok(compared) => compared,
                Err(why) => {
                    let object = json!({ "dataplane": null, "cipher": name, "why_not": why });
                    self.show(
                        &object,
                        &format!("{:<18} not measured: {why}", "data plane"),
                    );
                    break;
                }
            };
            let prefers = compared.prefers_kernel();
            let mover = if prefers {
                "the kernel"
            } else {
                "this program"
            };
            let words = compared.words();
            let object = json!({ "dataplane": compared, "kernel_preferred": prefers });
            let text = format!("{:<18} {mover} for OpenVPN: {words}", "data plane");
            self.show(&object, &text);
            found.push(compared);
        }
        found
    }

    /// Shows a line for people, or an object for programs.
    fn show(&self, object: &serde_json::Value, text: &str) {
        if self.json {
            self.print(object);
        } else if !text.is_empty() {
            self.print(&text);
        }
    }

    fn print(&self, line: &dyn core::fmt::Display) {
        self.progress.borrow_mut().clear();
        let shown = host::terminal::print(format_args!("{line}\n"));
        if shown.is_err() {
            *self.shown.borrow_mut() = shown;
        }
    }
}
