//! `millrace-reports`: checks the reports that owners of routers send in, and makes the page of their figures.

#![forbid(unsafe_code)]

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::PathBuf;
use std::process::ExitCode;
use tools::reports::{files, page, read_file, schema};

fn cli() -> Command {
    let paths = Arg::new("PATH")
        .required(true)
        .action(ArgAction::Append)
        .value_parser(value_parser!(PathBuf))
        .help("A report, or a directory with reports (*.json)");
    Command::new("millrace-reports")
        .about("Checks reports of `millrace doctor --report`, and makes their page")
        .subcommand_required(true)
        .subcommand(
            Command::new("check")
                .about("Check reports: fields, size, digest")
                .arg(paths.clone()),
        )
        .subcommand(Command::new("schema").about("Print the JSON Schema of reports"))
        .subcommand(
            Command::new("table")
                .about("Print the page of figures from real routers")
                .arg(paths),
        )
}

type Reports = Vec<(String, report::Report)>;

fn main() -> ExitCode {
    let matches = cli().get_matches();
    let outcome = match matches.subcommand() {
        Some(("check", matches)) => reports(matches).map(|it| {
            for (name, _) in it {
                host::terminal::line(format_args!("{name}: whole"));
            }
        }),
        Some(("table", matches)) => reports(matches).map(|it| host::terminal::text(page(&it))),
        _ => {
            host::terminal::text(schema());
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            host::terminal::note(format_args!("millrace-reports: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Reads all reports; each has its file's name without the suffix.
fn reports(matches: &ArgMatches) -> Result<Reports, String> {
    let mut reports = Vec::new();
    for path in matches.get_many::<PathBuf>("PATH").into_iter().flatten() {
        let files = files(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for file in files {
            let report = read_file(&file);
            let report = report.map_err(|error| format!("{}: {error}", file.display()))?;
            let name = file.file_stem().unwrap_or_default();
            reports.push((name.to_string_lossy().into_owned(), report));
        }
    }
    Ok(reports)
}
