//! `millrace check`: judges an imported file line by line.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};
use config::error::ImportError;
use config::kind::Kind;
use config::openvpn;
use config::permissions::Permissions;
use config::pptp;
use config::relay;
use config::report::{Entry, Import, Report, Verdict};
use config::settings::Settings;
use config::tunnel::{Table, Tunnel};
use config::wgquick;
use serde_json::{Value, json};

use crate::arguments::{self, flag};
use crate::{Outcome, code, print_json};

/// The arguments of `check`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    /// Path of the configuration to check.
    pub file: PathBuf,
    /// Permissions for judging the file, as `millrace up` gets with `--allow-scripts` or `--allow-files`.
    pub permissions: Permissions,
    /// Whether the file must contain all keys and certificates itself.
    pub alone: bool,
    /// Judge as `millrace openvpn --allow-insecure-ciphers` would.
    pub allow_insecure_ciphers: bool,
    /// The settings file, if not the default one.
    pub settings: Option<PathBuf>,
}

/// The judgement on a file.
pub(crate) struct Judged {
    pub(crate) report: Report,
    /// Whether the file gives a tunnel.
    pub(crate) usable: bool,
    /// Harmless warnings about the file as a whole.
    warnings: Vec<String>,
    /// Why an OpenVPN file gives no tunnel: sentences, most with file and line. Other lines that are refused can be left
    /// out.
    pub(crate) faults: Vec<String>,
}

/// The command-line definition of `check`.
#[must_use]
pub(crate) fn command() -> Command {
    let command = Command::new("check")
        .about("Show which lines of a file are honoured, ignored or refused")
        .long_about(
            "Show for every line of a file whether it is honoured, ignored or refused, and why. Also checks relay \
             files.",
        )
        .arg(arguments::tunnel_file())
        .arg(flag("json", "Print one JSON document"));
    permissions(command)
}

/// Adds the options that give permissions for judging a file.
pub(crate) fn permissions(command: Command) -> Command {
    command
        .arg(flag(
            "allow-scripts",
            "Check as if PreUp, PostUp, PreDown, PostDown and OpenVPN's scripts were permitted",
        ))
        .arg(flag(
            "allow-files",
            "Check as if the file were permitted to name files to write, to send (passwords) and to read as \
             configuration (implied by --allow-scripts)",
        ))
        .arg(flag(
            "allow-forwarding",
            "Check as if [Server] (forwarding and masquerading) were permitted in a WireGuard file whose peer has an \
             Endpoint (implied by --allow-scripts)",
        ))
        .arg(flag(
            "allow-insecure-ciphers",
            "Check as if OpenVPN's insecure ciphers were permitted",
        ))
        .arg(arguments::settings_file())
}

/// The permissions that the command line gives.
pub(crate) fn permitted(matches: &ArgMatches) -> Permissions {
    let [files, scripts] = ["allow-files", "allow-scripts"].map(|name| matches.get_flag(name));
    Permissions::new(files, scripts).with_forwarding(matches.get_flag("allow-forwarding"))
}

impl Arguments {
    /// Arguments for a file, with the options of [`permissions`].
    pub(crate) fn of(file: &Path, matches: &ArgMatches) -> Self {
        Self {
            file: file.to_owned(),
            permissions: permitted(matches),
            alone: false,
            allow_insecure_ciphers: matches.get_flag("allow-insecure-ciphers"),
            settings: arguments::file(matches, "config").map(Path::to_owned),
        }
    }
}

/// Runs the command: 0 when no line was refused.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let file = crate::profile::find(arguments::path_of(matches, "FILE"))?;
    let judged = judge(&Arguments::of(&file, matches))?;
    match matches.get_flag("json") {
        true => print_json(&judged.document())?,
        false => host::terminal::print(judged.text())?,
    }
    Ok(code(judged.report.is_clean()))
}

/// Judges a file by its kind.
pub(crate) fn judge(arguments: &Arguments) -> Result<Judged, ImportError> {
    let (kind, bytes) = Kind::read(&arguments.file)?;
    judge_bytes(kind, &bytes, arguments)
}

/// Judges this content as [`judge`] would judge the file; the file need not exist yet.
pub(crate) fn judge_bytes(
    kind: Kind,
    bytes: &[u8],
    arguments: &Arguments,
) -> Result<Judged, ImportError> {
    // A tunnel without lines of its own uses those of the settings. With invalid settings no tunnel starts.
    let settings = Settings::load(arguments.settings.as_deref(), None, &[]);
    let fault = settings.as_ref().err().map(ToString::to_string);
    let settings = settings.unwrap_or_default();
    let mut judged = match kind {
        Kind::Pptp => judge_pptp(bytes, arguments),
        Kind::OpenVpn => judge_openvpn(bytes, arguments, &settings),
        Kind::Relay => judge_relay(bytes, &arguments.file),
        Kind::WireGuard => judge_wg_quick(bytes, arguments, &settings),
    }?;
    if let Some(fault) = fault {
        judged.usable = false;
        judged.report.refuse(&fault);
    }
    Ok(judged)
}

/// Reports where a tunnel's lines come from, if not from its file.
fn tell_lines(origin: Option<String>, report: &mut Report) {
    let entry = origin.map(|reason| Entry {
        line: 0,
        key: "uplinks".to_owned(),
        verdict: Verdict::Honoured,
        reason,
    });
    report.entries.extend(entry);
}

#[cfg(feature = "pptp")]
fn judge_pptp(bytes: &[u8], arguments: &Arguments) -> Result<Judged, ImportError> {
    let (file, permissions) = (&arguments.file, arguments.permissions);
    let mut import = pptp::read_bytes(bytes, file, permissions)?;
    if arguments.alone {
        let reason = "put the password into this file, as password = \"...\"";
        import.refuse_where("password-file", reason, pptp::Pptp::has_password_file);
    }
    let rehearsed = import.model().map(service::pptp::rehearse);
    let fault = rehearsed.and_then(|it| Some(it.err()?.to_string()));
    let secrets = pptp::secrets_of(file, permissions);
    Ok(judge_all(import, fault.as_deref(), &secrets))
}

/// Refuses the file without reading its lines: the parser would make this small build one percent larger.
#[cfg(not(feature = "pptp"))]
fn judge_pptp(_: &[u8], arguments: &Arguments) -> Result<Judged, ImportError> {
    Ok(Judged {
        report: Report {
            file: arguments.file.display().to_string(),
            entries: vec![Entry {
                line: 0,
                key: String::new(),
                verdict: Verdict::Refused,
                reason: pptp::NOT_BUILT.to_owned(),
            }],
        },
        usable: false,
        warnings: Vec::new(),
        faults: Vec::new(),
    })
}

fn judge_relay(bytes: &[u8], file: &Path) -> Result<Judged, ImportError> {
    let missing = (!cfg!(feature = "relay")).then_some(relay::NOT_BUILT);
    Ok(judge_all(relay::read_bytes(bytes, file)?, missing, &[file]))
}

/// Judges a file that is all or nothing: while one line is refused, none is honoured. `fault` is why this program
/// cannot start the tunnel; `secrets` are the files that contain secrets.
fn judge_all<T>(import: Import<T>, fault: Option<&str>, secrets: &[impl AsRef<Path>]) -> Judged {
    let usable = import.is_usable() && fault.is_none();
    let mut report = import.report;
    if let Some(fault) = fault {
        report.refuse(fault);
    }
    let warnings = secrets.iter().map(AsRef::as_ref);
    Judged {
        report,
        usable,
        warnings: warnings.filter_map(config::file::exposed).collect(),
        faults: Vec::new(),
    }
}

fn judge_openvpn(
    bytes: &[u8],
    arguments: &Arguments,
    settings: &Settings,
) -> Result<Judged, ImportError> {
    let options = openvpn::Options {
        allow_insecure_ciphers: arguments.allow_insecure_ciphers,
        permissions: arguments.permissions,
    };
    let mut import = openvpn::read_bytes(bytes, &arguments.file, options)?;
    match arguments.alone {
        true => import.refuse_files(),
        false => import.check_files(),
    }
    import.check_secrecy();
    let mut report = import.report.clone();
    let mut warnings = std::mem::take(&mut import.warnings);
    let mut usable = import.is_usable();
    let file = arguments.file.display().to_string();
    let place = |fault: &String| match fault.strip_prefix(&file) {
        Some(rest) if rest.starts_with(": ") => rest.replacen(": ", "", 1),
        Some(rest) => rest.replacen(':', "line ", 1),
        None => fault.clone(),
    };
    let mut faults: Vec<String> = import.faults().iter().map(place).collect();
    let mut model = import.into_model().ok().map(|(model, _)| model);
    if let Some(model) = &mut model {
        if arguments.alone {
            // netifd runs the process as root, so these settings do not apply.
            (model.service.user, model.service.group) = (None, None);
        }
        if let Some(shared) = &settings.lines {
            let (origin, misfits) = model.take_lines(shared);
            warnings.extend(misfits);
            tell_lines(origin, &mut report);
        }
        warnings.extend(default_routes(model));
        if let Err(fault) = service::openvpn::rehearse(model, &settings.dataplane) {
            usable = false;
            report.refuse(&fault);
            faults.push(place(&fault));
        }
    }
    Ok(Judged {
        report,
        usable,
        warnings,
        faults,
    })
}

fn judge_wg_quick(
    bytes: &[u8],
    arguments: &Arguments,
    settings: &Settings,
) -> Result<Judged, ImportError> {
    let (file, permissions) = (&arguments.file, arguments.permissions);
    let import = wgquick::parse_bytes(bytes, file, permissions)?;
    let mut usable = import.is_usable();
    let mut report = import.report.clone();
    // A file of another kind holds no key, and its mode is not this program's business.
    let holds_key = report.entries.iter().any(|it| it.key.ends_with("Key"));
    let exposed = config::file::exposed(file).filter(|_| holds_key);
    let mut warnings: Vec<String> = exposed.into_iter().collect();
    if let Ok((tunnel, _)) = import.into_tunnel() {
        if tunnel.home.is_some() {
            warnings.push(format!("[Server]: {}", config::home::ROUTES));
        }
        let given = tunnel.lines_with(settings.lines.as_ref());
        warnings.extend(given.warnings);
        tell_lines(given.origin, &mut report);
        warnings.extend(endpoints_inside(&tunnel));
        #[cfg(feature = "amnezia")]
        warnings.extend(amnezia(&tunnel));
    }
    // The file's name becomes the interface's name.
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
        warnings,
        faults: Vec::new(),
    })
}

/// Warnings about values of AmneziaWG that have no effect or give the tunnel away.
#[cfg(feature = "amnezia")]
pub(crate) fn amnezia(tunnel: &Tunnel) -> impl Iterator<Item = String> + use<> {
    let interface = &tunnel.interface;
    let hints = interface.amnezia.hints(interface.mtu).into_iter();
    hints.map(|hint| format!("AmneziaWG: {hint}"))
}

/// Warnings about ranges that contain the tunnel's own endpoints.
fn endpoints_inside(tunnel: &Tunnel) -> Vec<String> {
    let table = tunnel.interface.table;
    let ranges = tunnel.ranges_of_endpoints().filter_map(|(range, endpoint)| {
        let effect = match table {
            Table::Off => return None,
            Table::Auto if range.is_default() => return None,
            Table::Auto => "this host's packets to that range use the tunnel, except the tunnel's own packets, which \
                            a mark keeps outside".to_owned(),
            Table::Id(table) => format!(
                "with Table = {table}, add a rule that keeps the tunnel's own packets out of that table: set FwMark, \
                 and run `ip rule add not fwmark MARK table {table}`"
            ),
        };
        Some(format!("AllowedIPs {range} contains the endpoint {endpoint}: {effect}"))
    });
    ranges.collect()
}

/// Warnings about default routes that an OpenVPN file sets by `route` and `route-ipv6`.
fn default_routes(model: &openvpn::OpenVpn) -> Vec<String> {
    let network = &model.network;
    let v4 = network.routes.iter().filter(|it| it.bits == 0);
    let v4 = v4.map(|it| ("route 0.0.0.0 0.0.0.0", it.metric.or(network.route_metric)));
    let v6 = network.routes_v6.iter().filter(|it| it.bits == 0);
    let v6 = v6.map(|it| ("route-ipv6 ::/0", it.metric.or(network.route_metric)));
    let told = v4.chain(v6).map(|(option, metric)| match metric {
        None => format!(
            "{option} routes all packets into the tunnel, with more specific routes like those of redirect-gateway \
             def1, which take precedence over every default route of this host"
        ),
        Some(metric) => format!(
            "{option} has metric {metric}: a default route of this host with a lower metric takes precedence, and \
             packets leave outside the tunnel; remove the metric so that the tunnel takes precedence"
        ),
    });
    told.collect()
}

/// Numbers of honoured, ignored and refused lines.
pub(crate) fn counts(report: &Report) -> [usize; 3] {
    [Verdict::Honoured, Verdict::Ignored, Verdict::Refused]
        .map(|verdict| report.with(verdict).count())
}

impl Judged {
    /// The report for people: `FILE:LINE: VERDICT KEY: REASON`, one line each, and the totals.
    pub(crate) fn text(&self) -> String {
        let report = &self.report;
        let mut out = String::new();
        let mut entries = report.entries.iter().peekable();
        while let Some(entry) = entries.next() {
            out += &report.file;
            if entry.line != 0 {
                out += &format!(":{}", entry.line);
            }
            // In a file of another kind, all lines have one fault.
            let mut last = entry.line;
            let is_like = |it: &Entry| {
                let like = (it.verdict, &it.key, &it.reason);
                like == (entry.verdict, &entry.key, &entry.reason) && it.key.is_empty()
            };
            while let Some(next) = entries.next_if(|it| is_like(it) && it.line > last) {
                last = next.line;
            }
            if last != entry.line {
                out += &format!("-{last}");
            }
            out += &format!(": {}", entry.verdict);
            let parts = [entry.key.as_str(), entry.reason.as_str()];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            if !parts.is_empty() {
                out += &format!(" {}", parts.join(": "));
            }
            out.push('\n');
        }
        for warning in &self.warnings {
            out += &format!("{}: warning: {warning}\n", report.file);
        }
        let [honoured, ignored, refused] = counts(report);
        out += &format!("{honoured} honoured, {ignored} ignored, {refused} refused\n");
        out
    }

    /// The report for programs, as JSON.
    pub(crate) fn document(&self) -> Value {
        let report = &self.report;
        let [honoured, ignored, refused] = counts(report);
        let line = |entry: &Entry| {
            json!({
                "line": entry.line,
                "key": entry.key,
                "verdict": entry.verdict.as_str(),
                "reason": entry.reason,
            })
        };
        json!({
            "file": report.file,
            // `up` accepts refused lines only with `--ignore-refused`, so with such lines the file is not usable.
            "usable": self.usable && report.is_clean(),
            "usable_without_refused": self.usable,
            "honoured": honoured,
            "ignored": ignored,
            "refused": refused,
            "warnings": self.warnings,
            "lines": report.entries.iter().map(line).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
        MTU = 1300\nMTU = 1400\nPostUp = true\n";

    fn judged() -> Judged {
        Judged {
            report: wgquick::parse(FILE, "wg0.conf", Permissions::NONE).report,
            usable: true,
            warnings: Vec::new(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn the_text_for_people() {
        let expected = "\
wg0.conf:2: honoured PrivateKey
wg0.conf:3: ignored MTU: overridden at line 4
wg0.conf:4: honoured MTU
wg0.conf:5: refused PostUp: shell commands run only with --allow-scripts; \
read the command first
2 honoured, 1 ignored, 1 refused
";
        assert_eq!(judged().text(), expected);
    }

    /// Each line of a file of another kind has the same fault, which is told once.
    #[test]
    fn equal_faults_are_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwd");
        std::fs::write(&path, "root:x:0:0\n".repeat(27)).unwrap();
        let arguments = Arguments {
            file: path.clone(),
            ..Arguments::default()
        };
        let shown = judge(&arguments).unwrap().text();
        let path = path.display();
        let line = format!("{path}:1-27: refused the line is not of the form `Key = Value`\n");
        assert!(shown.contains(&line), "{shown}");
        assert!(
            !shown.contains("chmod") && shown.lines().count() == 4,
            "{shown}"
        );
    }

    #[test]
    fn the_document_for_programs() {
        let mut warned = judged();
        warned.warnings.push("a warning".to_owned());
        let document = warned.document();
        crate::tests::assert_documented("check", std::slice::from_ref(&document));
        assert_eq!(document["refused"], 1);
        // `usable` agrees with the exit codes of `check` and `up`.
        assert_eq!(document["usable"], false);
        assert_eq!(document["usable_without_refused"], true);
        let mut clean = judged();
        clean.report.entries.pop();
        let document = clean.document();
        assert_eq!(document["usable"], true);
        assert_eq!(document["lines"][1]["line"], 3);
        assert_eq!(document["lines"][1]["verdict"], "ignored");
    }

    #[test]
    fn lines_of_the_settings_file_are_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let tunnel = FILE.replace("PostUp = true\n", "");
        let lines = "[[uplink]]\nname = 'dsl'\ninterface = 'eth1'\n[[uplink]]\nname = 'relayed'\n\
            relay = '192.0.2.1:5'\nrelay-key = 'YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE='\n";
        let judged = |name: &str, text: &str, lines: &str| {
            let arguments = Arguments {
                file: file(name, text),
                settings: Some(file("millrace.toml", lines)),
                ..Arguments::default()
            };
            judge(&arguments).unwrap()
        };
        let shown = judged("wg0.conf", &tunnel, lines).text();
        assert!(
            shown.contains("wg0.conf: honoured uplinks: failover on dsl, from "),
            "{shown}"
        );
        assert!(
            shown.contains("uplink relayed is skipped: a relay forwards to only one peer"),
            "{shown}"
        );
        let own = format!("#! [Uplink]\n#! Name = a\n#! Interface = e\n{tunnel}");
        let shown = judged("wg0.conf", &own, lines).text();
        assert!(!shown.contains("millrace.toml"), "{shown}");
        let shown = judged("wg0.conf", &tunnel, "[uplinks").text();
        assert!(shown.contains("millrace.toml:1: not valid TOML"), "{shown}");
        // No tunnel starts with such settings, whatever its protocol.
        let pptp = "protocol = \"pptp\"\nserver = \"192.0.2.1\"\nusername = \"a\"\npassword = \"b\"\nallow-insecure = \"pptp\"\n";
        let openvpn = format!(
            "client\ndev tun\nremote 192.0.2.1\n{}auth-user-pass\n",
            crate::blocks::CA
        );
        for (name, file) in [
            ("wg0.conf", &*tunnel),
            ("a.toml", pptp),
            ("a.ovpn", &*openvpn),
        ] {
            let judged = judged(name, file, "[uplinks");
            assert!(!judged.usable && !judged.report.is_clean(), "{name}");
            assert!(judged.text().contains("not valid TOML"), "{name}");
        }
        let profile =
            "client\ndev tun\nremote 192.0.2.1\nbind-dev eth0\n<ca>\n</ca>\nauth-user-pass\n";
        let judged = judged("a.ovpn", profile, lines);
        let shown = judged.text();
        assert!(shown.contains("its uplinks are not used: "), "{shown}");
        assert!(!shown.contains("honoured uplinks"), "{shown}");
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
        // Named `.conf`, it is still recognised by its content.
        let file = directory.join("office.conf");
        std::fs::write(&file, lines).unwrap();
        let arguments = Arguments {
            file: file.clone(),
            ..Arguments::default()
        };
        let without = judge(&arguments).unwrap();
        std::fs::write(directory.join("ca.crt"), "").unwrap();
        let empty = judge(&arguments).unwrap();
        let authority = crate::blocks::CA
            .replace("<ca>\n", "")
            .replace("</ca>\n", "");
        std::fs::write(directory.join("ca.crt"), authority).unwrap();
        let with = judge(&arguments).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();

        assert!(!without.usable && !without.report.is_clean());
        let shown = without.text();
        assert!(shown.contains("office.conf:4: refused ca: "), "{shown}");
        assert!(shown.contains("ca.crt: cannot be read: "), "{shown}");
        let shown = empty.text();
        assert!(
            !empty.usable && shown.contains("office.conf:4: refused ca: the file is empty"),
            "{shown}"
        );
        assert!(with.usable && with.report.is_clean());
        assert_eq!(counts(&with.report), [5, 2, 0]);
        assert!(
            with.text()
                .contains("warning: No server certificate verification")
        );
    }
}
