//! Settings of an interface: its section in UCI, and the file that the section names.

use super::anew::Program;
use super::telling::{Orders, Telling, source};
use super::{code, held, others};
use crate::arguments;
#[cfg(feature = "server")]
use crate::{arguments::path_of, down::words_of};
use clap::ArgMatches;
use config::error::ImportError;
use config::lines::{Lines, SharedLines};
use config::permissions::Permissions;
use config::report::Verdict;
use config::settings::{DataplaneSettings, Kind as DataplaneKind};
use config::tunnel::Tunnel;
use config::types::Key32;
use config::{file, kind, pptp, wgquick};
use openwrt::blob::Value;
#[cfg(feature = "server")]
use openwrt::device_name;
use openwrt::network::{Network, PROTO, Source, device_of};
use openwrt::socket;
use openwrt::teller::Fault;
use openwrt::uci::{self, Package, Section};
#[cfg(feature = "server")]
use service::running::Running;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// How long ubus may take to tell an interface's device.
const PATIENCE: Duration = Duration::from_secs(2);

/// The note on a `[Server]` section.
pub(super) const NOT_FORWARDED: &str = "[Server]: Masquerade has no effect under netifd; set forwarding and \
                                        masquerading in the firewall's zones";

/// Paths, and the interface's name.
#[derive(Clone, Debug)]
pub(super) struct At {
    /// The interface's name.
    pub(super) interface: String,
    /// The directory of UCI's files.
    pub(super) uci: PathBuf,
    /// The path of ubus's socket, if not the default.
    pub(super) ubus: Option<PathBuf>,
    /// The program that this process runs.
    pub(super) program: Program,
    /// The command line, which names the settings file.
    pub(super) matches: ArgMatches,
}

/// The kind of tunnel.
#[derive(Debug)]
pub(super) enum Kind {
    /// WireGuard, by options or a `wg-quick` file.
    WireGuard(Box<WireGuard>),
    /// OpenVPN client or server, by this file.
    OpenVpn(PathBuf),
    /// PPTP client or server, by this file.
    #[cfg(feature = "pptp")]
    Pptp(PathBuf),
}

/// A WireGuard tunnel.
#[derive(Debug, Default)]
pub(super) struct WireGuard {
    /// The tunnel's model.
    pub(super) tunnel: Tunnel,
    /// Peers whose ranges get no routes.
    pub(super) unrouted: Vec<Key32>,
}

/// All settings of an interface.
#[derive(Debug)]
pub(super) struct Given {
    /// UCI section of the interface.
    pub(super) network: Network,
    /// Protocol of the tunnel, with its model.
    pub(super) kind: Kind,
    /// The digest for comparing two configurations.
    pub(super) digest: [u8; 32],
    /// Whether the file is that of an OpenVPN or PPTP server.
    pub(super) server: bool,
    /// Whether the file's own lines are bound to devices.
    bound: bool,
    /// Notes on the file, such as unused lines.
    notes: Vec<String>,
    /// The section's lines and their devices, as far as UCI names them.
    devices: Vec<(String, Option<String>)>,
}

impl Given {
    /// Reads the section and its file.
    ///
    /// # Errors
    /// Why the tunnel cannot be made.
    pub(super) fn read(at: &At) -> Result<Self, Vec<Fault>> {
        let path = at.uci.join("network");
        let bytes = uci::read(&path).map_err(|error| {
            let words = format!("{}: {error}", path.display());
            fault(code::NO_CONFIG, words)
        })?;
        let text = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
        let words = |it: &uci::Fault| format!("{}: {it}", path.display());
        let peers = format!("{PROTO}_{}", at.interface);
        let ours = |it: &Section| it.name.as_ref() == Some(&at.interface) || it.kind == peers;
        let (package, odd) = Package::parse_for(&text, ours)
            .map_err(|faults| all(code::CONFIG_FAULT, faults.iter().map(words)))?;
        let mut network = Network::read(&package, &at.interface).map_err(|faults| {
            let known = package.section(&at.interface).is_some();
            let code = if known {
                code::CONFIG_FAULT
            } else {
                code::NO_CONFIG
            };
            all(code, faults.iter().map(ToString::to_string))
        })?;
        let settings = arguments::settings(&at.matches)
            .map_err(|error| fault(code::CONFIG_FAULT, error.to_string()))?;
        let dataplane = network.dataplane.unwrap_or(settings.dataplane.kind);
        let source = std::mem::replace(&mut network.source, Source::File(PathBuf::new()));
        let odd = odd.iter();
        let mut notes: Vec<String> = odd.map(|it| words(it) + "; it is ignored").collect();
        let (kind, lines, server, content) = match source {
            Source::Options { tunnel, unrouted } => {
                let tunnel = *tunnel;
                let kind = Kind::WireGuard(Box::new(WireGuard { tunnel, unrouted }));
                (kind, Lines::default(), false, Zeroizing::default())
            }
            Source::File(file) => {
                notes.extend(file::exposed(&file));
                let (kind, content) = kind::Kind::read(&file).map_err(|it| import_fault(&it))?;
                let OfFile {
                    kind,
                    lines,
                    server,
                } = of_file((kind, &content), &file, (&network, dataplane), &mut notes)?;
                if server && !network.lines.is_empty() {
                    let words = format!(
                        "network: {}.uplink: a server has no uplinks, as it answers clients on the paths that they \
                         use (set `mode`); remove it, and set the listen address in the file",
                        at.interface
                    );
                    return Err(fault(code::CONFIG_FAULT, words));
                }
                if dataplane == DataplaneKind::Kernel
                    && matches!(kind, Kind::OpenVpn(_))
                    && !network.lines.is_empty()
                {
                    let words = format!(
                        "network: {}.uplink: the kernel's data plane uses only one uplink; remove the uplinks, or set \
                         `option dataplane` to `user`",
                        at.interface
                    );
                    return Err(fault(code::CONFIG_FAULT, words));
                }
                (kind, lines, server, content)
            }
        };
        let about = (
            &network.lines,
            network.mode,
            network.dataplane,
            network.mtu,
            network.routes,
            &network.prefixes,
            network.host_route,
            network.allow_files,
        );
        let about = format!("{about:?}");
        let digest = crypto::blake2s::hash(&[
            &content,
            &passwords(&kind, network.permissions()),
            about.as_bytes(),
        ]);
        let own = &lines.lines;
        let bound = !own.is_empty() && own.iter().all(|line| line.interface.is_some());
        let devices = network
            .lines
            .iter()
            .map(|name| (name.clone(), device_of(&package, name)));
        Ok(Self {
            devices: devices.collect(),
            network,
            kind,
            digest,
            server,
            bound,
            notes,
        })
    }

    /// Reports settings that are not used.
    pub(super) fn tell(&self, interface: &str, orders: &Orders) {
        for note in &self.notes {
            log::warn!("{interface}: {note}");
        }
        let warnings = self.network.warnings.iter().flat_map(|warning| {
            log::warn!("{warning}");
            let code = match warning.section == interface {
                true => code::CONFIG_FAULT,
                false => code::PEER_FAULT,
            };
            fault(code, warning.to_string())
        });
        orders.faults(source::CONFIG, warnings.collect());
        held::look(&self.network, orders);
    }

    /// Whether endpoints need routes past the tunnel. Sockets bound to devices do not.
    pub(super) fn keeps_endpoints(&self) -> bool {
        self.network.host_route && self.network.lines.is_empty() && !self.bound
    }

    /// The section's lines, with the devices that netifd has for them now; and the names of lines without a device.
    fn lines_now(&self, at: &At) -> (Option<SharedLines>, Vec<String>) {
        let device = |name: &str| {
            let running = running_device(at, name);
            let mut written = self.devices.iter().filter(|it| it.0 == name);
            let written = || written.find_map(|it| it.1.clone());
            // A name that netifd does not know may be a device.
            let there = || {
                let path = Path::new("/sys/class/net").join(name);
                path.exists().then(|| name.to_owned())
            };
            running.or_else(written).or_else(there)
        };
        self.network.lines_by(device)
    }

    /// Why the tunnel is not made yet: it has lines, and none of them is usable. Without a line, its packets would
    /// leave through any uplink of the host.
    pub(super) fn held(&self, at: &At) -> Option<Fault> {
        if self.network.lines.is_empty() {
            return None;
        }
        held_by(&self.lines_now(at))
    }

    /// Refuses a tunnel that cannot use any of its section's lines, as unsuitable ones are left out.
    pub(super) fn must_use(&self, bound: bool) -> Result<(), String> {
        match bound || self.network.lines.is_empty() {
            true => Ok(()),
            false => Err("uplink: the tunnel cannot use its uplinks; the log says why".to_owned()),
        }
    }

    /// The section's lines, with the devices that netifd has for them now. If the section has none, those of the
    /// settings file.
    ///
    /// # Errors
    /// The section has lines, and none of them is usable.
    pub(super) fn lines(
        &self,
        at: &At,
        settings: Option<SharedLines>,
        telling: &Telling,
    ) -> Result<Option<SharedLines>, String> {
        if self.network.lines.is_empty() && self.network.mode.is_none() {
            telling.faults(source::UPLINKS, Vec::new());
            return Ok(settings);
        }
        let now = self.lines_now(at);
        if !self.network.lines.is_empty()
            && let Some(fault) = held_by(&now)
        {
            return Err(fault.words);
        }
        let unknown = now.1.iter().map(|name| {
            let words = format!(
                "uplink {name}: its device is unknown, so it is not used until the next `ifup`"
            );
            log::warn!("{}: {words}", at.interface);
            words
        });
        telling.faults(source::UPLINKS, all(code::LINE_UNKNOWN, unknown));
        Ok(now.0)
    }
}

/// Why no line is usable, from the result of [`Given::lines_now`].
fn held_by((lines, unknown): &(Option<SharedLines>, Vec<String>)) -> Option<Fault> {
    let usable = lines
        .as_ref()
        .is_some_and(|it| !it.fit(false, 1).lines.lines.is_empty());
    let words = match (usable, unknown.is_empty()) {
        (true, _) => return None,
        (false, true) => "uplink: no uplink can be used; the log says why".to_owned(),
        (false, false) => {
            let names = unknown.join(", ");
            format!("uplink {names}: no device is known yet; the tunnel waits for one")
        }
    };
    let code = code::LINE_UNKNOWN.to_owned();
    Some(Fault { code, words })
}

/// The device that netifd has for an interface.
fn running_device(at: &At, interface: &str) -> Option<String> {
    let object = format!("network.interface.{interface}");
    let ubus = at.ubus.as_deref();
    let status = socket::call(ubus, &object, "status", Vec::new(), PATIENCE);
    let status = status.inspect_err(|error| log::debug!("{interface}: {error}"));
    let status = status.ok()?;
    let field = |name| status.field(name).and_then(Value::as_text);
    field("l3_device")
        .or_else(|| field("device"))
        .map(str::to_owned)
}

/// The file of a netifd interface, if `claimed` is the name that its process has claimed, and the interface has a file.
pub(crate) fn file_of(claimed: &Path) -> Option<PathBuf> {
    let interface = claimed.strip_prefix(super::NETWORK).ok()?.to_str()?;
    file_in(Path::new(super::NETWORK), interface)
}

/// The device of the netifd interface that a process runs, if the interface's section names this file. The process may
/// have been started with another directory of UCI's files.
#[cfg(feature = "server")]
pub(crate) fn device_with(file: &Path, running: &Running) -> Option<String> {
    let interface = running.path.strip_prefix(super::NETWORK).ok()?.to_str()?;
    let process = Path::new("/proc").join(running.pid.to_string());
    let matches = crate::cli().try_get_matches_from(words_of(&process).ok()?);
    let matches = matches.ok()?;
    let uci = path_of(matches.subcommand_matches("netifd")?, "uci");
    let its = file_in(&uci.join("network"), interface)?;
    (its == file).then(|| device_name(interface))
}

fn file_in(path: &Path, interface: &str) -> Option<PathBuf> {
    let bytes = file::read(path, uci::FILE_MAX).ok()?;
    let text = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
    let ours = |it: &Section| it.name.as_deref() == Some(interface);
    let (package, _) = Package::parse_for(&text, ours).ok()?;
    let file = package.section(interface)?.text("config_file")?;
    std::fs::canonicalize(file).ok()
}

/// The content of a file.
struct OfFile {
    kind: Kind,
    /// The file's own lines.
    lines: Lines,
    /// Whether the file is a server's, which connects to nobody.
    server: bool,
}

fn of_file(
    (kind, content): (kind::Kind, &[u8]),
    file: &Path,
    (network, dataplane): (&Network, DataplaneKind),
    notes: &mut Vec<String>,
) -> Result<OfFile, Vec<Fault>> {
    let permissions = network.permissions();
    let refuse = |what: &str| {
        let words = format!("{}: {what}", file.display());
        Err(fault(code::CONFIG_FAULT, words))
    };
    if kind == kind::Kind::Pptp {
        #[cfg(feature = "pptp")]
        return match others::read_pptp(file, permissions) {
            Ok(model) => Ok(OfFile {
                kind: Kind::Pptp(file.to_owned()),
                server: matches!(model.role, pptp::Role::Server(_)),
                lines: model.lines,
            }),
            Err(words) => refuse(&words),
        };
        #[cfg(not(feature = "pptp"))]
        return refuse(pptp::NOT_BUILT);
    }
    if kind == kind::Kind::OpenVpn {
        let model = others::judge_openvpn(content, file, permissions, notes);
        let model = model.and_then(|model| {
            let settings = DataplaneSettings {
                kind: dataplane,
                ..DataplaneSettings::default()
            };
            service::openvpn::rehearse_alone(&model, &settings)?;
            Ok(model)
        });
        return match model {
            Ok(model) => Ok(OfFile {
                kind: Kind::OpenVpn(file.to_owned()),
                server: model.server().is_some(),
                lines: model.lines,
            }),
            Err(words) => refuse(&words),
        };
    }
    if kind == kind::Kind::Relay {
        return refuse("this file belongs to a relay; run it with `millrace relay`");
    }
    // netifd does what these scripts would do, and hotplug runs others.
    let import = wgquick::parse_bytes(content, file, permissions);
    let import = import.and_then(wgquick::Import::into_tunnel);
    let (tunnel, report) = import.map_err(|error| import_fault(&error))?;
    let refused = report.entries.iter();
    let refused = refused.filter(|it| it.verdict != Verdict::Honoured);
    notes.extend(refused.map(|it| report.describe(it)));
    let lines = tunnel.lines.clone();
    if tunnel.home.is_some() {
        notes.push(NOT_FORWARDED.to_owned());
    }
    let unrouted = Vec::new();
    Ok(OfFile {
        kind: Kind::WireGuard(Box::new(WireGuard { tunnel, unrouted })),
        lines,
        server: false,
    })
}

/// Digests of the password files that a pppd file names.
#[cfg(feature = "pptp")]
fn passwords(kind: &Kind, permissions: Permissions) -> Vec<u8> {
    let Kind::Pptp(file) = kind else {
        return Vec::new();
    };
    let others = pptp::secrets_of(file, permissions)
        .into_iter()
        .filter(|it| it != file);
    let others = others.filter_map(|it| file::read(&it, wgquick::FILE_MAX).ok());
    let digests = others.map(|it| crypto::blake2s::hash(&[&it]));
    digests.flatten().collect()
}

#[cfg(not(feature = "pptp"))]
fn passwords(_: &Kind, _: Permissions) -> Vec<u8> {
    Vec::new()
}

fn import_fault(error: &ImportError) -> Vec<Fault> {
    let code = match error {
        ImportError::Read { .. } => code::NO_CONFIG,
        _ => code::CONFIG_FAULT,
    };
    fault(code, error.to_string())
}

/// One fault, as a list.
pub(super) fn fault(code: &str, words: String) -> Vec<Fault> {
    all(code, std::iter::once(words))
}

fn all(code: &str, words: impl Iterator<Item = String>) -> Vec<Fault> {
    let fault = |words| Fault {
        code: code.to_owned(),
        words,
    };
    words.map(fault).collect()
}

#[cfg(test)]
pub(super) mod tests;
