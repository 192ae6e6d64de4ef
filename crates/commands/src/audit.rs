//! `millrace audit`: shows how a firmware leaves a chip's abilities unused.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use audit::report::{self, TextOptions};
use audit::soc::{Soc, Table};
use audit::unpack::Limits;
use audit::verdict::Verdict;
use audit::{Audit, AuditError, Chosen};
use clap::{Arg, ArgGroup, ArgMatches, Command, value_parser};
use thiserror::Error;

use host::terminal::Progress;

use crate::arguments::{self, flag, option};
use crate::{Outcome, code};

/// Why there is no report.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("unknown chip {name}{}; `millrace audit --list-socs` lists the known ones", listed_near(.near))]
    NoSoc { name: String, near: Vec<String> },
    #[error("{0} is a router, not a chip: give --router {0}")]
    RouterForSoc(String),
    #[error("unknown router {name}{}; `millrace audit --list-socs` lists the known ones", listed_near(.near))]
    NoRouter { name: String, near: Vec<String> },
    #[error("cannot read this machine's own hardware data: {0}")]
    Live(io::Error),
    #[error("{0}")]
    Write(String),
}

fn listed_near(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!(" (there are {})", names.join(", ")),
    }
}

/// The format of the report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text { all: bool },
    Json,
    Sarif,
}

/// The command-line definition of `audit`.
#[must_use]
pub(crate) fn command() -> Command {
    let path = Arg::new("PATH").value_parser(value_parser!(PathBuf));
    let fail = option(
        "fail-on",
        "VERDICTS",
        "Verdicts that make the exit code 1, separated by commas, or \"none\" [default: all verdicts that can be \
         fixed]",
    );
    Command::new("audit")
        .about("Find features of the chip that a firmware leaves unused")
        .arg(path.help("An ELF file, a root file system's directory, or a firmware image"))
        .arg(option(
            "soc",
            "NAME",
            "Chip to audit for, such as ipq8065 [default: found in the firmware]",
        ))
        .arg(option(
            "router",
            "MODEL",
            "Router model to audit for, such as R7800",
        ))
        .group(ArgGroup::new("chip").args(["soc", "router"]))
        .arg(flag(
            "live",
            "Audit this machine: its kernel, ciphers and accelerators",
        ))
        .arg(flag(
            "list-socs",
            "List the known chips and routers, with the right build settings for each",
        ))
        .group(
            ArgGroup::new("what")
                .args(["PATH", "live", "list-socs"])
                .required(true),
        )
        .arg(flag(
            "json",
            "Print one JSON object per file, each on its own line",
        ))
        .arg(flag("sarif", "Print one SARIF document"))
        .group(ArgGroup::new("format").args(["json", "sarif"]))
        .arg(flag(
            "all",
            "Report every file separately, including those without a fault",
        ))
        .arg(fail.value_delimiter(',').value_parser(fail_on))
        .after_help(format!(
            "Verdicts:\n{}",
            Verdict::ALL
                .map(|v| format!("  {:<16} {}\n", v.word(), v.meaning()))
                .concat()
        ))
}

fn fail_on(word: &str) -> Result<Option<Verdict>, String> {
    if word == "none" {
        return Ok(None);
    }
    word.parse()
        .map(Some)
        .map_err(|error: audit::verdict::NoVerdict| error.to_string())
}

/// Runs the command: 2 if there is no report.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    Ok(report(matches).unwrap_or_else(|error| {
        log::error!("{error}");
        ExitCode::from(2)
    }))
}

fn report(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let table = Table::builtin();
    let format = match (matches.get_flag("json"), matches.get_flag("sarif")) {
        (true, _) => Format::Json,
        (_, true) => Format::Sarif,
        _ => Format::Text {
            all: matches.get_flag("all"),
        },
    };
    if matches.get_flag("list-socs") {
        write(&list(table, format))?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = chosen(matches, table)?;
    let audit = match arguments::file(matches, "PATH") {
        Some(path) => {
            let mut progress = Progress::new(0, !matches!(format, Format::Text { .. }));
            let mut watch = |files| progress.tell(&format!("{files} files"));
            audit::audit(path, &Limits::default(), table, chosen, &mut watch)?
        }
        None => {
            let live = audit::live(Path::new("/"), table, chosen).map_err(Failure::Live)?;
            if matches!(format, Format::Text { .. }) {
                write(&format!("{}\n\n", live.facts.join("\n")))?;
            }
            if format == Format::Json {
                let soc = live
                    .audit
                    .as_ref()
                    .ok()
                    .map(|audit| audit.chip.soc.id.as_str());
                write(&box_line(&live.facts, soc, live.audit.as_ref().err()))?;
            }
            match live.audit {
                // A box that is not a router is not a failure.
                Err(
                    error @ (AuditError::NoChip(_) | AuditError::X86(_) | AuditError::Nothing(..)),
                ) => {
                    if format == Format::Sarif {
                        write(&format!(
                            "{:#}\n",
                            report::sarif_of_nothing(&error.to_string())
                        ))?;
                    }
                    host::terminal::note(format_args!("millrace: cannot audit: {error}"));
                    return Ok(ExitCode::SUCCESS);
                }
                audit => audit?,
            }
        }
    };
    write(&shown(&audit, format))?;
    let verdicts: Option<Vec<Option<Verdict>>> = matches
        .get_many("fail-on")
        .map(|many| many.copied().collect());
    let fails = |verdict: &Verdict| match &verdicts {
        Some(chosen) => chosen.contains(&Some(*verdict)),
        None => verdict.is_worth_fixing(),
    };
    // A skipped part has no verdict either.
    let failed = (!audit.skipped.is_empty() && fails(&Verdict::CannotTell))
        || audit
            .findings
            .iter()
            .any(|finding| finding.verdicts.iter().any(fails));
    Ok(code(!failed))
}

fn chosen<'t>(matches: &ArgMatches, table: &'t Table) -> Result<Option<Chosen<'t>>, Failure> {
    let owned = |near: Vec<&str>| near.into_iter().map(str::to_owned).collect();
    let (soc, because) = if let Some(name) = arguments::text(matches, "soc") {
        let soc = table.soc(name).ok_or_else(|| match table.router(name) {
            Ok(_) => Failure::RouterForSoc(name.to_owned()),
            Err(_) => Failure::NoSoc {
                name: name.to_owned(),
                near: owned(table.near_socs(name)),
            },
        })?;
        (soc, format!("--soc {name}"))
    } else if let Some(name) = arguments::text(matches, "router") {
        let soc = table.router(name).map_err(|near| Failure::NoRouter {
            name: name.to_owned(),
            near: owned(near),
        })?;
        (soc, format!("--router {name}"))
    } else {
        return Ok(None);
    };
    Ok(Some(Chosen { soc, because }))
}

fn shown(audit: &Audit<'_>, format: Format) -> String {
    match format {
        Format::Text { all } => report::text(audit, TextOptions { all }),
        // Text and numbers always become JSON.
        Format::Json => report::json(audit).unwrap_or_default(),
        Format::Sarif => format!("{:#}\n", report::sarif(audit)),
    }
}

/// The report's line for the box itself: the facts, and the reason if it is not judged.
fn box_line(facts: &[String], soc: Option<&str>, error: Option<&AuditError>) -> String {
    let mut evidence = facts.to_vec();
    evidence.extend(error.map(|error| format!("cannot audit: {error}")));
    let verdict = match error {
        Some(_) => Verdict::CannotTell,
        None => Verdict::Fine,
    };
    let line = serde_json::json!({
        "path": "/", "soc": soc, "role": "box", "verdicts": [verdict.word()], "evidence": evidence,
        "flags": "", "gain": null, "steps": [],
    });
    format!("{line}\n")
}

fn list(table: &Table, format: Format) -> String {
    let mut out = String::new();
    for soc in table.socs() {
        match format {
            Format::Text { .. } => out += &listed(soc),
            Format::Json | Format::Sarif => {
                let line = serde_json::json!({
                    "soc": soc.id, "name": soc.name, "aliases": soc.aliases, "routers": soc.routers,
                    "core": soc.core.name, "cores": soc.cores, "neon": soc.core.neon, "divide": soc.core.divide,
                    "aes": soc.core.aes, "flags": soc.core.gcc, "rust": soc.core.rust, "accelerator": soc.accelerator,
                    "unsure": soc.unsure, "sources": soc.sources,
                });
                out += &format!("{line}\n");
            }
        }
    }
    out
}

fn listed(soc: &Soc) -> String {
    let mut out = format!("{:<10} {}\n", soc.id, report::describe(soc));
    let mut part = |name: &str, text: &str| {
        if !text.is_empty() {
            out += &format!("{:10} {name:<12} {text}\n", "");
        }
    };
    part("also:", &soc.aliases.join(", "));
    part("routers:", &soc.routers.join(", "));
    part("options:", &soc.core.gcc);
    part("accelerator:", soc.accelerator.as_deref().unwrap_or(""));
    part("unsure:", &soc.unsure.join(", "));
    out
}

fn write(text: &str) -> Result<(), Failure> {
    // If the reader has closed the pipe, the verdict stays the same.
    host::terminal::print(text).map_err(Failure::Write)
}
