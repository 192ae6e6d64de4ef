//! `millrace import`: stores a tunnel's file, from a provider or another program, where `millrace up NAME` finds it.

#[cfg(feature = "server")]
mod pool;

use crate::Outcome;
use crate::arguments::{self, option, path, path_of};
use crate::check::{self, Judged};
#[cfg(feature = "pptp")]
use crate::firewall;
use crate::profile::{self, DIRECTORY};
use clap::{Arg, ArgMatches, Command, value_parser};
use config::error::ImportError;
use config::file;
use config::kind::Kind;
use config::permissions::{Permissions, passwords_beside};
use config::report::{Report, Verdict};
use config::types::is_ifname;
use host::written_file;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
#[cfg(feature = "policy")]
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;
use zeroize::Zeroizing;

/// Largest accepted file, in bytes: an OpenVPN profile with its keys has ten kilobytes.
const SIZE_MAX: u64 = 1 << 20;

/// Maximum number of reasons in an error.
const FAULTS_SHOWN: usize = 3;

/// Where archives are unpacked: in memory.
#[cfg(feature = "server")]
const SCRATCH: &str = "/run/millrace";

/// The argument for standard input.
const STANDARD_INPUT: &str = "-";

/// The name of a link in messages.
pub(crate) const LINK: &str = "link";

/// File name endings of tunnels.
const ENDINGS: [&str; 3] = ["conf", "ovpn", "toml"];

/// Why a file is not imported.
#[derive(Debug, Error)]
pub(crate) enum ImportingError {
    #[error("the tunnel needs a name; give --name NAME")]
    NoName,
    #[error(
        "{0}: a tunnel's name has at most 15 letters, digits and _=+-; choose another with --name"
    )]
    Name(String),
    #[error("{}: this file name is reserved for Millrace's own settings; choose another name with \
             --name", .0.display())]
    Settings(PathBuf),
    #[error(
        "{name}: a tunnel of this name exists: {}; choose another name with --name; to replace that tunnel, remove its \
         file first",
        .at.display()
    )]
    Taken { name: String, at: PathBuf },
    #[error(
        "{}: the new tunnel would use this password file, and could send the password to any server; move the file \
         away, or choose another name with --name; if you made it for this tunnel, move it back after the import",
        .0.display()
    )]
    Password(PathBuf),
    #[error("{}: larger than a mebibyte, so not a tunnel's file", .0.display())]
    Large(PathBuf),
    #[error("{}: {error} (run as root)", .path.display())]
    Directory { path: PathBuf, error: io::Error },
    #[error("{}: {error}{}", .path.display(), by_root(.error))]
    File { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Import(#[from] ImportError),
    #[cfg(feature = "server")]
    #[error(transparent)]
    Pool(#[from] pool::PoolError),
    #[cfg(feature = "policy")]
    #[error(transparent)]
    Prepare(#[from] crate::policy::prepare::PrepareError),
    #[cfg(feature = "amnezia")]
    #[error("not kept: {0}")]
    Link(#[from] config::amnezia::link::LinkError),
    /// The file gives no tunnel, for these reasons; if they are unknown, the report has them.
    #[error("not kept: no tunnel can be made from this file{}", because(.0))]
    Unusable(Vec<String>),
    #[error(
        "not kept: the file names files in its own directory; put their content into it (<ca>…</ca>), or name them \
         with absolute paths"
    )]
    Beside,
}

/// The remedy if a user may not read or write a file.
fn by_root(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "; run this as root",
        _ => "",
    }
}

/// Up to [`FAULTS_SHOWN`] reasons, as the end of a sentence.
fn because(faults: &[String]) -> String {
    let mut words = String::new();
    for (number, fault) in faults.iter().take(FAULTS_SHOWN).enumerate() {
        words += if number == 0 { ": " } else { "; " };
        words += fault;
    }
    match faults.len().saturating_sub(FAULTS_SHOWN) {
        0 => words,
        more => format!("{words}; and {more} more"),
    }
}

/// The command-line definition of `import`.
pub(crate) fn command() -> Command {
    let command = Command::new("import")
        .about("Check a tunnel's file, and keep it for `millrace up NAME`")
        .arg(
            Arg::new("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help(match (cfg!(feature = "server"), cfg!(feature = "amnezia")) {
                    (true, true) => {
                        "A wg-quick, OpenVPN or PPTP file; - for standard input; a vpn:// link of the app AmneziaVPN, or \
                         a file with it or with the texts of its QR codes; or a directory or archive with the files \
                         of several servers"
                    }
                    (true, false) => {
                        "A wg-quick, OpenVPN or PPTP file; - for standard input; or a directory or archive with the \
                         files of several servers"
                    }
                    _ => "A wg-quick, OpenVPN or PPTP file; - for standard input",
                }),
        )
        .arg(option(
            "name",
            "NAME",
            "The tunnel's name [default: its file's name]",
        ))
        .arg(path("to", "DIRECTORY", "Directory for the file").default_value(DIRECTORY));
    #[cfg(feature = "server")]
    let command = pool::arguments(command);
    #[cfg(feature = "policy")]
    let command = command.arg(arguments::flag(
        "for-policy",
        "Keep the tunnel's routes and name servers from this host, so that only entries of `millrace policy` use it",
    ));
    check::permissions(command)
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let name = arguments::text(matches, "name");
    let (kept, counts, servers) = import(
        path_of(matches, "FILE"),
        name,
        path_of(matches, "to"),
        matches,
    )?;
    // A name alone is enough only in the directories that `up` searches.
    let stem = kept.file_stem().unwrap_or_default();
    let by_name = profile::files_of(&stem.to_string_lossy()).contains(&kept);
    let called = if by_name { Path::new(stem) } else { &kept };
    let permitted = [
        "allow-files",
        "allow-scripts",
        "allow-forwarding",
        "allow-insecure-ciphers",
    ];
    let permitted = permitted.into_iter().filter(|it| matches.get_flag(it));
    let permitted: String = permitted.map(|it| format!("--{it} ")).collect();
    let called = format!("{permitted}{}", called.display());
    let kept = kept.display().to_string();
    host::terminal::note(end(&kept, &called, counts, servers.as_deref()));
    Ok(ExitCode::SUCCESS)
}

/// The last message, about a stored file with these numbers of honoured, ignored and refused lines. `servers` are those
/// of its pool, in words.
fn end(
    kept: &str,
    called: &str,
    [honoured, ignored, refused]: [usize; 3],
    servers: Option<&str>,
) -> String {
    let lines = |number: usize, what: &str| match number {
        0 => String::new(),
        1 => format!(", 1 line {what}"),
        _ => format!(", {number} lines {what}"),
    };
    let ignored = lines(ignored, "without effect (`millrace check` says why)");
    let refused = lines(refused, "refused and left out (above)");
    let what = servers.map_or_else(|| format!("{honoured} lines honoured"), str::to_owned);
    format!("kept as {kept}: {what}{ignored}{refused}; `millrace up {called}` brings it up")
}

/// A stored file: the path, the numbers of honoured, ignored and refused lines, and the servers of a pool in
/// words.
type Stored = (PathBuf, [usize; 3], Option<String>);

fn import(
    source: &Path,
    name: Option<&str>,
    to: &Path,
    matches: &ArgMatches,
) -> Result<Stored, ImportingError> {
    let piped = source == Path::new(STANDARD_INPUT);
    let link = link_of(source);
    let stem = |it: &Path| {
        let stem = it.file_stem()?.to_string_lossy();
        Some(stem.strip_suffix(".tar").unwrap_or(&stem).to_owned())
    };
    // A directory such as `.` has its name elsewhere.
    let of_source = || stem(source).or_else(|| stem(&fs::canonicalize(source).ok()?));
    let name = match name {
        Some(name) => Some(name.to_owned()),
        None if piped || link.is_some() => None,
        None => of_source(),
    };
    let name = name.ok_or(ImportingError::NoName)?;
    available(&name, to)?;
    // No message may quote a link, which has keys.
    let source = if link.is_some() {
        Path::new(LINK)
    } else {
        source
    };
    let (text, servers) = match link {
        Some(link) => (Zeroizing::new(link.to_owned()), None),
        None => match gather(source, piped, matches)? {
            Some((text, servers)) => (text, Some(servers)),
            None => (read(source, piped)?, None),
        },
    };
    let (text, form) = match unlinked(&text)? {
        Some(text) => (text, Path::new(LINK)),
        None => (text, source),
    };
    let kept = place(to, &name, form, &text);
    may_keep(&kept, check::Arguments::of(&kept, matches).permissions)?;
    #[cfg(feature = "policy")]
    let (prepared, device) = match matches.get_flag("for-policy") {
        true => {
            let prepared = crate::policy::prepare::prepared(&kept, &text)?;
            (Some(prepared.text), Some(prepared.device))
        }
        false => (None, None),
    };
    #[cfg(not(feature = "policy"))]
    let prepared: Option<Zeroizing<String>> = None;
    // The text is judged before it is written, as it contains keys.
    let judge = |file: &Path, text: &str| {
        let kind = Kind::of(file, text.as_bytes());
        check::judge_bytes(kind, text.as_bytes(), &check::Arguments::of(file, matches))
    };
    // The user knows the lines of this file, which may not be kept.
    let mut told: Judged = judge(&kept, &text)?;
    told.report.file = match piped {
        true => "standard input".to_owned(),
        false => source.display().to_string(),
    };
    let (text, judged) = match prepared {
        Some(it) => {
            let judged = judge(&kept, &it)?;
            (it, Some(judged))
        }
        None => (text, None),
    };
    let decided = judged.as_ref().unwrap_or(&told);
    let verbose = matches.try_get_one::<u8>("verbose").ok().flatten();
    if verbose.is_some_and(|it| *it > 0) || !decided.usable {
        // A failure to print the report does not stop the import.
        let _ = io::stdout().lock().write_all(told.text().as_bytes());
    } else {
        let refused = told.report.with(Verdict::Refused);
        refused.for_each(|it| host::terminal::note(told.report.describe(it)));
    }
    if !decided.usable {
        let usable_there = judge(source, &text).is_ok_and(|judged| judged.usable);
        return Err(match usable_there {
            true => ImportingError::Beside,
            false => ImportingError::Unusable(told.faults),
        });
    }
    let written = keep(&kept, &text, &decided.report, |text| judge(&kept, text))?;
    if is_asking(&kept, &written) {
        host::terminal::note(format_args!(
            "the tunnel asks for a user name and a password; to start it without a terminal, put them on two lines \
             into {}, between <auth-user-pass> and </auth-user-pass>",
            kept.display()
        ));
    }
    #[cfg(feature = "policy")]
    if device.is_none()
        && let line = format!("dev {name}")
        && has_line(&written, &line)
        && !has_line(&text, &line)
    {
        host::terminal::note(format_args!(
            "its device is {name} now: the guard and the policy know tunnels by their devices"
        ));
    }
    #[cfg(feature = "policy")]
    if let Some(device) = device {
        host::terminal::note(crate::policy::prepare::use_of(&device));
        let servers = left_out(&text);
        if !servers.is_empty() {
            host::terminal::note(format_args!(
                "the provider's name servers, for `millrace policy add … --dns ADDRESS`: {servers}"
            ));
        }
    }
    #[cfg(feature = "pptp")]
    {
        let kind = Kind::of(&kept, text.as_bytes());
        let rule = firewall::missing_rule(kind, firewall::rejects_gre);
        rule.into_iter().for_each(host::terminal::note);
    }
    Ok((kept, check::counts(&decided.report), servers))
}

/// The link that the command line has in place of a file.
#[cfg(feature = "amnezia")]
fn link_of(source: &Path) -> Option<&str> {
    source
        .to_str()
        .filter(|it| config::amnezia::link::is_link(it))
}

/// This build reads no links.
#[cfg(not(feature = "amnezia"))]
const fn link_of(_: &Path) -> Option<&str> {
    None
}

/// The file in a link or in a series of QR codes; `None` for any other text.
#[cfg(feature = "amnezia")]
pub(crate) fn unlinked(text: &str) -> Result<Option<Zeroizing<String>>, ImportingError> {
    use config::amnezia::link;
    let linked = link::is_link(text).then(|| link::read(text));
    Ok(linked.transpose()?)
}

/// This build reads no links.
#[cfg(not(feature = "amnezia"))]
pub(crate) const fn unlinked(_: &str) -> Result<Option<Zeroizing<String>>, ImportingError> {
    Ok(None)
}

/// The name servers in lines of a file that are comments now, separated by commas; empty without any.
#[cfg(feature = "policy")]
fn left_out(text: &str) -> String {
    let lines = text.lines().filter_map(|it| it.strip_prefix("# "));
    let servers = lines.flat_map(|line| {
        let words = line.split([' ', '\t', ',', '=']);
        let words: Vec<&str> = words.filter(|it| !it.is_empty()).collect();
        match words[..] {
            [
                "dhcp-option" | "--dhcp-option",
                "DNS" | "DNS6",
                ref servers @ ..,
            ]
            | ["dns" | "--dns", "server", _, "address", ref servers @ ..] => servers.to_vec(),
            [key, ref servers @ ..] if key.eq_ignore_ascii_case("DNS") => servers.to_vec(),
            _ => Vec::new(),
        }
    });
    let servers: Vec<&str> = servers.filter(|it| it.parse::<IpAddr>().is_ok()).collect();
    servers.join(", ")
}

/// The text for the files in a directory or an archive, and their servers in words; `None` if `source` is one file.
#[cfg(feature = "server")]
fn gather(
    source: &Path,
    piped: bool,
    matches: &ArgMatches,
) -> Result<Option<(Zeroizing<String>, String)>, ImportingError> {
    let choice = pool::Choice::from(matches);
    let gathered = match piped {
        true => None,
        false => pool::gather(source, &choice, Path::new(SCRATCH))?,
    };
    Ok(gathered.map(|it| (it.text, it.summary)))
}

/// This small build imports single files.
#[cfg(not(feature = "server"))]
const fn gather(
    _: &Path,
    _: bool,
    _: &ArgMatches,
) -> Result<Option<(Zeroizing<String>, String)>, ImportingError> {
    Ok(None)
}

/// Checks that a tunnel may have this name.
pub(crate) fn available(name: &str, to: &Path) -> Result<(), ImportingError> {
    // The text after a dot would be taken for the file's ending.
    if !is_ifname(name) || name.contains('.') {
        return Err(ImportingError::Name(name.to_owned()));
    }
    let own = ENDINGS.map(|ending| to.join(format!("{name}.{ending}")));
    let own = own.into_iter().filter(|it| it.exists());
    match own.chain(profile::files_of(name)).next() {
        None => Ok(()),
        Some(at) => Err(ImportingError::Taken {
            name: name.to_owned(),
            at,
        }),
    }
}

/// Checks that a tunnel's file may be kept at this path.
pub(crate) fn may_keep(kept: &Path, permissions: Permissions) -> Result<(), ImportingError> {
    if !profile::is_profile(&kept.to_owned()) {
        return Err(ImportingError::Settings(kept.to_owned()));
    }
    match passwords_beside(kept).pop() {
        Some(password) if !permissions.files() => Err(ImportingError::Password(password)),
        _ => Ok(()),
    }
}

/// Judges a page's file on its own, as the page's user must not see the router's files. `is_interface` if netifd is to
/// run the tunnel.
#[cfg(any(feature = "monitor", feature = "openwrt"))]
pub(crate) fn judge_alone(
    kept: &Path,
    text: &str,
    is_interface: bool,
) -> Result<Judged, ImportError> {
    let kind = Kind::of(kept, text.as_bytes());
    let arguments = check::Arguments {
        file: kept.to_owned(),
        alone: true,
        ..check::Arguments::default()
    };
    let mut judged = check::judge_bytes(kind, text.as_bytes(), &arguments)?;
    // A relay's file gives no tunnel.
    judged.usable &= kind != Kind::Relay;
    // Interfaces run no scripts, so a server that depends on them cannot work.
    #[cfg(feature = "openwrt")]
    if judged.usable
        && is_interface
        && kind == Kind::OpenVpn
        && let Err(reason) = crate::netifd::notes_of(text.as_bytes(), kept, arguments.permissions)
    {
        judged.usable = false;
        judged.report.refuse(&reason);
    }
    #[cfg(not(feature = "openwrt"))]
    let _ = is_interface;
    Ok(judged)
}

/// Writes the file without the lines that the report refuses, if it still gives a tunnel. An OpenVPN tunnel whose name is
/// one of the guard's usual tunnels also gets a device of that name. Returns the text that was written.
pub(crate) fn keep(
    kept: &Path,
    text: &str,
    report: &Report,
    judge: impl FnOnce(&str) -> Result<Judged, ImportError>,
) -> Result<Zeroizing<String>, ImportingError> {
    let cleaned = cleaned(text, report, judge)?;
    let (text, _) = cleaned.ok_or_else(|| ImportingError::Unusable(Vec::new()))?;
    #[cfg(feature = "policy")]
    let text = {
        let name = kept.file_stem().unwrap_or_default().to_string_lossy();
        let usual = config::guard::Pattern::new(config::guard::TUNNELS);
        let named = match usual.is_some_and(|it| it.matches(&name)) {
            true => crate::policy::prepare::named(kept, &text)?,
            false => None,
        };
        named.unwrap_or(text)
    };
    let to = kept.parent().unwrap_or_else(|| Path::new("/"));
    let mut builder = fs::DirBuilder::new();
    let made = builder.mode(0o700).recursive(true).create(to);
    made.map_err(|error| ImportingError::Directory {
        path: to.to_owned(),
        error,
    })?;
    written_file::write_new(kept, text.as_bytes()).map_err(|error| ImportingError::File {
        path: kept.to_owned(),
        error,
    })?;
    Ok(text)
}

fn read(source: &Path, piped: bool) -> Result<Zeroizing<String>, ImportingError> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::FileTooLarge => ImportingError::Large(source.to_owned()),
        _ => ImportingError::File {
            path: source.to_owned(),
            error,
        },
    };
    if piped {
        let mut text = Zeroizing::new(String::new());
        let mut bounded = io::stdin().lock().take(SIZE_MAX + 1);
        bounded.read_to_string(&mut text).map_err(failed)?;
        return match text.len() as u64 > SIZE_MAX {
            true => Err(ImportingError::Large(source.to_owned())),
            false => Ok(text),
        };
    }
    let bytes = file::read_handed_over(source, SIZE_MAX).map_err(failed)?;
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| failed(ErrorKind::InvalidData.into()))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// The path for a tunnel's file, with the ending of `source`, or else of its kind.
pub(crate) fn place(directory: &Path, name: &str, source: &Path, text: &str) -> PathBuf {
    let known = source.extension().and_then(|it| it.to_str());
    let known = ENDINGS.into_iter().find(|ending| known == Some(ending));
    // The content decides. Files of pppd have no ending, and are recognised by their options.
    let is_toml = || {
        text.lines().any(|line| {
            let (key, value) = line.split_once('=').unwrap_or_default();
            key.trim() == "protocol" && value.contains("pptp")
        })
    };
    let ending = known.unwrap_or_else(|| match Kind::of(Path::new(name), text.as_bytes()) {
        _ if is_toml() => "toml",
        Kind::OpenVpn => "ovpn",
        _ => "conf",
    });
    directory.join(format!("{name}.{ending}"))
}

/// The text without the lines that the report refuses, and their number. `None` if `judge` finds no usable tunnel
/// without these lines.
pub(crate) fn cleaned<E>(
    text: &str,
    report: &Report,
    judge: impl FnOnce(&str) -> Result<Judged, E>,
) -> Result<Option<(Zeroizing<String>, usize)>, E> {
    let [_, _, left_out] = check::counts(report);
    let text = without_refused(text, report);
    let is_good = left_out == 0 || {
        let again = judge(&text)?;
        again.usable && again.report.is_clean()
    };
    Ok(is_good.then_some((text, left_out)))
}

/// A tunnel's file without the lines that the report refuses. A comment replaces each, so that line numbers stay. A
/// directive such as a proxy, which the tunnel needs, stays without the file that it named.
fn without_refused(text: &str, report: &Report) -> Zeroizing<String> {
    // Reserved beforehand: a growing string would leave copies of keys in memory.
    let refused: BTreeMap<usize, &str> = report
        .with(Verdict::Refused)
        .map(|it| (it.line, it.key.as_str()))
        .collect();
    let mut kept = Zeroizing::new(String::with_capacity(text.len() + 64 * refused.len()));
    let mut end: Option<String> = None;
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let word = line.trim();
        if let Some(tag) = &end {
            // Comments replace all lines of the block.
            if word.starts_with(tag.as_str()) {
                end = None;
            }
            kept.push_str("#\n");
            continue;
        }
        let Some(key) = refused.get(&number) else {
            kept.push_str(line);
            continue;
        };
        let tag = word.strip_prefix('<').and_then(|it| it.strip_suffix('>'));
        end = tag.map(|it| format!("</{it}>"));
        let words: Vec<&str> = word.split_whitespace().collect();
        match (*key, &words[..]) {
            ("auth-user-pass", _) => kept.push_str("auth-user-pass"),
            ("http-proxy" | "socks-proxy", [name, host, port, _, rest @ ..]) => {
                kept.push_str(&format!("{name} {host} {port} stdin {}", rest.join(" ")));
            }
            _ => kept.push_str(&format!("# removed because it was refused: {key}")),
        }
        kept.push('\n');
    }
    kept
}

/// Whether an OpenVPN profile asks for name and password at a terminal.
pub(crate) fn is_asking(path: &Path, text: &str) -> bool {
    path.extension().is_some_and(|it| it == "ovpn")
        && has_line(text, "auth-user-pass")
        && !has_line(text, "<auth-user-pass>")
}

fn has_line(text: &str, line: &str) -> bool {
    text.lines().any(|it| it.trim() == line)
}

#[cfg(test)]
mod tests;
