//! OpenVPN and PPTP tunnels under netifd.

use super::given::{At, Given, NOT_FORWARDED};
use super::manager::Netifd;
use super::telling::Telling;
use super::{Ended, Outcome};
use config::kind::Kind;
use config::lines::SharedLines;
use config::openvpn::{self, OpenVpn};
use config::permissions::{Permissions, for_uci};
use config::report::{Entry, Verdict};
use config::settings::Settings;
use service::openvpn::{Caught, RunOptions};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs a client or a server of OpenVPN until it ends.
pub(super) fn run_openvpn(
    at: &At,
    given: &Given,
    file: &Path,
    settings: Settings,
    netifd: &Arc<Netifd>,
    telling: &Telling,
    signals: &mut Caught,
) -> Outcome<Ended> {
    let lines = given.lines(at, settings.lines, telling)?;
    if given.network.mtu.is_some() {
        log::warn!(
            "{}: mtu: ignored; set `tun-mtu` in the OpenVPN file",
            at.interface
        );
    }
    let permissions = given.network.permissions();
    let model = make(file, permissions, netifd.device(), lines.as_ref())?;
    given.must_use(!model.lines.lines.is_empty())?;
    let options = RunOptions {
        no_dns: false,
        wait: false,
        wait_at_most: None,
        manager: Some(netifd.shared()),
    };
    let again = {
        let (file, device) = (file.to_owned(), netifd.device().to_owned());
        move || make(&file, permissions, &device, lines.as_ref())
    };
    let name = Some(file.display().to_string());
    let mut dataplane = settings.dataplane;
    dataplane.kind = given.network.dataplane.unwrap_or(dataplane.kind);
    match service::openvpn::run(model, Box::new(again), name, dataplane, options, signals) {
        None => Ok(Ended::Again),
        Some(ExitCode::SUCCESS) => Err("the tunnel has ended".into()),
        Some(_) => {
            let why = netifd.take_failed();
            let why = why.unwrap_or_else(|| "the tunnel has ended; its log says why".to_owned());
            Err(why.into())
        }
    }
}

/// Makes the model of a file, for an interface of netifd.
fn make(
    file: &Path,
    permissions: Permissions,
    device: &str,
    lines: Option<&SharedLines>,
) -> Result<OpenVpn, String> {
    let mut model = read_openvpn(file, permissions)?;
    device.clone_into(&mut model.device.name);
    // netifd owns the process, its log and its interface.
    let service = &mut model.service;
    (service.daemon, service.syslog, service.log) = (false, false, None);
    service.persist_tun = true;
    if service.verb == 1 {
        service.verb = 3;
    }
    if let Some(lines) = lines {
        let (_, warnings) = model.take_lines(lines);
        for warning in warnings {
            log::warn!("{warning}");
        }
    }
    Ok(model)
}

/// Notes on lines of an OpenVPN file that are left out, or the reason why it cannot run.
pub(crate) fn notes_of(
    content: &[u8],
    file: &Path,
    permissions: Permissions,
) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    judge_openvpn(content, file, permissions, &mut notes)?;
    Ok(notes)
}

/// Reads an OpenVPN file.
fn read_openvpn(file: &Path, permissions: Permissions) -> Result<OpenVpn, String> {
    let (_, content) = Kind::read(file).map_err(|error| error.to_string())?;
    judge_openvpn(&content, file, permissions, &mut Vec::new())
}

/// Judges the content of an OpenVPN file, and notes lines that are left out.
pub(super) fn judge_openvpn(
    content: &[u8],
    file: &Path,
    permissions: Permissions,
    notes: &mut Vec<String>,
) -> Result<OpenVpn, String> {
    let options = openvpn::Options {
        permissions,
        ..openvpn::Options::default()
    };
    let mut import =
        openvpn::read_bytes(content, file, options).map_err(|error| error.to_string())?;
    import.check_secrecy();
    notes.append(&mut import.warnings.clone());
    let decides = |it: &&Entry| openvpn::deciding().any(|name| name == it.key);
    let deciding = import.report.with(Verdict::Refused).find(decides);
    if let Some(entry) = deciding {
        return Err(format!(
            "line {}: `{}` decides which clients may log in or which server is trusted, but scripts do not run under \
             netifd: use certificates, `auth-user-pass-file` or `client-config-dir` in a server, `verify-x509-name` \
             or `peer-fingerprint` in a client, or start the tunnel with `millrace up`",
            entry.line, entry.key
        ));
    }
    let model = import.into_model();
    let (mut model, report) = model.map_err(|error| for_uci(&error.to_string()))?;
    // Another user could not read the configuration again.
    let service = &mut model.service;
    let (user, group) = (service.user.take(), service.group.take());
    for (word, name) in [("user", user), ("group", group)] {
        notes.extend(name.map(|it| format!("`{word} {it}` is not used under netifd")));
    }
    let others = report.entries.iter();
    let others = others.filter(|it| it.verdict != Verdict::Honoured);
    if model.server().is_some() && model.network.home.is_some() {
        notes.push(NOT_FORWARDED.to_owned());
    }
    notes.extend(others.map(|it| for_uci(&report.describe(it))));
    match (service::openvpn::lacking(&model), model.device.null) {
        (Some(why), _) => Err(why.to_owned()),
        (_, true) => Err("`dev null` is not an interface".to_owned()),
        _ => Ok(model),
    }
}

/// Reads a PPTP file, and checks that its tunnel can start.
#[cfg(feature = "pptp")]
pub(super) fn read_pptp(
    file: &Path,
    permissions: Permissions,
) -> Result<config::pptp::Pptp, String> {
    let import = config::pptp::read(file, permissions);
    let model = import.and_then(config::pptp::Import::into_model);
    let model = model.map_err(|error| for_uci(&error.to_string()))?;
    service::pptp::rehearse(&model).map_err(|error| error.to_string())?;
    Ok(model)
}

/// Runs a client or a server of PPTP until it ends.
#[cfg(feature = "pptp")]
pub(super) fn run_pptp(
    at: &At,
    given: &Given,
    file: &Path,
    netifd: &Arc<Netifd>,
    telling: &Telling,
) -> Outcome<Ended> {
    let mut model = read_pptp(file, given.network.permissions())?;
    netifd.device().clone_into(&mut model.interface);
    let mtu = given.network.mtu.and_then(|mtu| u16::try_from(mtu).ok());
    model.mtu = mtu.or(model.mtu);
    let mut options = service::pptp::RunOptions {
        manager: Some(netifd.shared()),
        ..service::pptp::RunOptions::default()
    };
    // The lines of the settings file do not apply to PPTP.
    let server = matches!(model.role, config::pptp::Role::Server(_));
    let own = match server {
        true => !model.lines.is_default(),
        false => !model.lines.lines.is_empty(),
    };
    if !own && let Some(shared) = given.lines(at, None, telling)? {
        let lines = match server {
            true => shared.fit_server(),
            false => shared.fit(false, 1),
        };
        for warning in &lines.warnings {
            log::warn!("{}: {warning}", at.interface);
        }
        match &lines.lines.lines[..] {
            // A single uplink only needs a bound device.
            [only] => options.bind_device.clone_from(&only.interface),
            _ => model.lines = lines.lines,
        }
    }
    given.must_use(options.bind_device.is_some() || !model.lines.lines.is_empty())?;
    service::pptp::run(&model, &options)?;
    Ok(Ended::Again)
}
