//! `millrace check`: what an imported file would do, line by line.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use config::error::ImportError;
use config::openvpn;
use config::pptp;
use config::relay;
use config::report::{Entry, Import, Report, Verdict};
use config::wgquick::{self, Options};
use serde::Serialize;

use service::openvpn::lacking;

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    /// The file.
    pub file: PathBuf,
    /// JSON instead of text.
    pub json: bool,
    /// Judge as `millrace up --allow-scripts` would.
    pub allow_scripts: bool,
    /// Judge as `millrace up --allow-files` would.
    pub allow_files: bool,
    /// Judge as `millrace openvpn --allow-insecure-ciphers` would.
    pub allow_insecure_ciphers: bool,
}

/// What is said of a file.
struct Judged {
    report: Report,
    /// It gives a tunnel.
    usable: bool,
    /// What holds for no line, and does no harm by itself.
    warnings: Vec<String>,
}

/// The command's own command line.
#[must_use]
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let file = Arg::new("FILE")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("IFNAME.conf, or IFNAME for /etc/wireguard/IFNAME.conf; NAME.ovpn; NAME.toml, or a file of pppd's or pptpd.conf (PPTP); a relay's file");
    Command::new("check")
        .about("Say of every line of a file whether it is honoured, ignored or refused, and why")
        .arg(file)
        .arg(flag("json", "Print one JSON document"))
        .arg(flag(
            "allow-scripts",
            "Judge as if PreUp, PostUp, PreDown, PostDown and OpenVPN's scripts were permitted",
        ))
        .arg(flag(
            "allow-files",
            "Judge as if OpenVPN's files to be written, and to read a password from, were permitted",
        ))
        .arg(flag(
            "allow-insecure-ciphers",
            "Judge as if OpenVPN's insecure ciphers were permitted",
        ))
}

impl From<&ArgMatches> for Arguments {
    fn from(matches: &ArgMatches) -> Self {
        Self {
            file: super::up::find(
                &matches
                    .get_one::<PathBuf>("FILE")
                    .cloned()
                    .unwrap_or_default(),
            ),
            json: matches.get_flag("json"),
            allow_scripts: matches.get_flag("allow-scripts"),
            allow_files: matches.get_flag("allow-files"),
            allow_insecure_ciphers: matches.get_flag("allow-insecure-ciphers"),
        }
    }
}

/// Runs the command: 0 when nothing was refused, 1 otherwise. A wrong command line is the
/// caller's business, and 2.
#[must_use]
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let judged = match judge(arguments) {
        Ok(judged) => judged,
        Err(error) => {
            terminal::note(format_args!("millrace: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let shown = if arguments.json {
        json(&judged).map_err(io::Error::from)
    } else {
        Ok(text(&judged))
    };
    let written = shown.and_then(|shown| io::stdout().lock().write_all(shown.as_bytes()));
    match written {
        // A reader that stops has seen enough; the verdict stays the same.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            terminal::note(format_args!("millrace: cannot write the report: {error}"));
            ExitCode::FAILURE
        }
        _ if judged.report.is_clean() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The report on a file, by what the file is.
fn judge(arguments: &Arguments) -> Result<Judged, ImportError> {
    if pptp::is_pptp(&arguments.file) {
        return judge_pptp(&arguments.file);
    }
    if openvpn::is_openvpn(&arguments.file) {
        return judge_openvpn(arguments);
    }
    if relay::is_relay(&arguments.file) {
        return judge_relay(&arguments.file);
    }
    judge_wg_quick(&arguments.file, arguments.allow_scripts)
}

fn judge_pptp(file: &Path) -> Result<Judged, ImportError> {
    let missing = (!cfg!(feature = "pptp")).then_some(pptp::NOT_BUILT);
    Ok(judge_all(
        pptp::read(file)?,
        missing,
        pptp::secrets_of(file),
    ))
}

fn judge_relay(file: &Path) -> Result<Judged, ImportError> {
    let missing = (!cfg!(feature = "relay")).then_some(relay::NOT_BUILT);
    Ok(judge_all(relay::read(file)?, missing, file))
}

/// Of a file of which nothing is honoured as long as anything is refused. `missing` is why this program can do nothing with
/// such files.
fn judge_all<T>(import: Import<T>, missing: Option<&str>, file: &Path) -> Judged {
    let usable = import.is_usable() && missing.is_none();
    let mut report = import.report;
    report.entries.extend(missing.map(|reason| Entry {
        line: 0,
        key: String::new(),
        verdict: Verdict::Refused,
        reason: reason.to_owned(),
    }));
    Judged {
        report,
        usable,
        warnings: config::secrecy::warning(file).into_iter().collect(),
    }
}

fn judge_openvpn(arguments: &Arguments) -> Result<Judged, ImportError> {
    let options = openvpn::Options {
        allow_insecure_ciphers: arguments.allow_insecure_ciphers,
        allow_scripts: arguments.allow_scripts,
        allow_files: arguments.allow_files,
    };
    let mut import = openvpn::read(&arguments.file, options)?;
    import.check_files();
    import.check_secrecy();
    let mut report = import.report.clone();
    let warnings = std::mem::take(&mut import.warnings);
    let mut usable = import.is_usable();
    let model = import.into_model().ok().map(|(model, _)| model);
    if let Some(reason) = model.as_ref().and_then(lacking) {
        usable = false;
        report.entries.push(Entry {
            line: 0,
            key: String::new(),
            verdict: Verdict::Refused,
            reason: reason.to_owned(),
        });
    }
    Ok(Judged {
        report,
        usable,
        warnings,
    })
}

fn judge_wg_quick(file: &Path, allow_scripts: bool) -> Result<Judged, ImportError> {
    let import = wgquick::read(file, Options { allow_scripts })?;
    let mut usable = import.is_usable();
    let mut report = import.report;
    // The name is as much a part of the configuration as the lines.
    if wgquick::interface_name(file).is_err() {
        usable = false;
        let entry = Entry {
            line: 0,
            key: String::new(),
            verdict: Verdict::Refused,
            reason: "the file's name must be the interface's name and .conf; rename it to, \
                for example, wg0.conf"
                .to_owned(),
        };
        report.entries.insert(0, entry);
    }
    Ok(Judged {
        report,
        usable,
        warnings: config::secrecy::warning(file).into_iter().collect(),
    })
}

/// `FILE:LINE: VERDICT KEY: REASON`, one line each, and the sums.
fn text(judged: &Judged) -> String {
    let report = &judged.report;
    let mut out = String::new();
    for entry in &report.entries {
        out += &report.file;
        if entry.line != 0 {
            out += &format!(":{}", entry.line);
        }
        out += &format!(": {}", entry.verdict);
        let parts = [entry.key.as_str(), entry.reason.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if !parts.is_empty() {
            out += &format!(" {}", parts.join(": "));
        }
        out.push('\n');
    }
    for warning in &judged.warnings {
        out += &format!("{}: warning: {warning}\n", report.file);
    }
    let [honoured, ignored, refused] = counts(report);
    out += &format!("{honoured} honoured, {ignored} ignored, {refused} refused\n");
    out
}

fn counts(report: &Report) -> [usize; 3] {
    [Verdict::Honoured, Verdict::Ignored, Verdict::Refused]
        .map(|verdict| report.with(verdict).count())
}

#[derive(Serialize)]
struct Document<'a> {
    file: &'a str,
    usable: bool,
    honoured: usize,
    ignored: usize,
    refused: usize,
    warnings: &'a [String],
    lines: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    line: usize,
    key: &'a str,
    verdict: &'static str,
    reason: &'a str,
}

fn json(judged: &Judged) -> serde_json::Result<String> {
    let report = &judged.report;
    let [honoured, ignored, refused] = counts(report);
    let lines = report.entries.iter().map(|entry| Line {
        line: entry.line,
        key: &entry.key,
        verdict: entry.verdict.as_str(),
        reason: &entry.reason,
    });
    let document = Document {
        file: &report.file,
        usable: judged.usable,
        honoured,
        ignored,
        refused,
        warnings: &judged.warnings,
        lines: lines.collect(),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
        MTU = 1300\nMTU = 1400\nPostUp = true\n";

    fn judged() -> Judged {
        Judged {
            report: wgquick::parse(FILE, "wg0.conf", Options::default()).report,
            usable: true,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_text_for_people() {
        let expected = "\
wg0.conf:2: honoured PrivateKey
wg0.conf:3: ignored MTU: set again at line 4, which holds
wg0.conf:4: honoured MTU
wg0.conf:5: refused PostUp: shell commands are not run unless --allow-scripts is given; \
look at what it does first
2 honoured, 1 ignored, 1 refused
";
        assert_eq!(text(&judged()), expected);
    }

    #[test]
    fn the_document_for_programs() {
        let document = json(&judged()).unwrap();
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["refused"], 1);
        assert_eq!(document["lines"][1]["line"], 3);
        assert_eq!(document["lines"][1]["verdict"], "ignored");
    }

    #[test]
    fn a_missing_file_is_an_error_with_its_name() {
        for name in ["/nonexistent/wg0.conf", "/nonexistent/a.ovpn"] {
            let arguments = Arguments {
                file: name.into(),
                ..Arguments::default()
            };
            let error = judge(&arguments).map(|judged| judged.usable).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("{name}: ")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_profile_and_the_files_beside_it() {
        let directory = std::env::temp_dir().join(format!("millrace-check-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let lines = "client\ndev tun\nremote a.example\nca ca.crt\nauth-user-pass\nfast-io\n\
            setenv opt new-thing\n";
        // Called `.conf`, it is known by what is in it.
        let file = directory.join("office.conf");
        std::fs::write(&file, lines).unwrap();
        let arguments = Arguments {
            file: file.clone(),
            ..Arguments::default()
        };
        let without = judge(&arguments).unwrap();
        std::fs::write(directory.join("ca.crt"), "").unwrap();
        let with = judge(&arguments).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();

        assert!(!without.usable && !without.report.is_clean());
        let shown = text(&without);
        assert!(shown.contains("office.conf:4: refused ca: "), "{shown}");
        assert!(shown.contains("ca.crt: cannot be read: "), "{shown}");
        assert!(with.usable && with.report.is_clean());
        assert_eq!(counts(&with.report), [5, 2, 0]);
        assert!(text(&with).contains("warning: No server certificate verification"));
    }
}
