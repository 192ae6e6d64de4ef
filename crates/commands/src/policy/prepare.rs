//! `millrace policy prepare`, and `import --for-policy`: changes a tunnel's file so that `up` gives the router no routes
//! and no name servers through the tunnel. Then only entries of the policy use it.

use crate::Outcome;
use crate::check;
use crate::profile;
use clap::{Arg, ArgMatches, Command};
use config::error::ImportError;
use config::file::read_text;
use config::kind::Kind;
use config::openvpn::{FILE_MAX, Options, read_bytes, split};
use config::permissions::Permissions;
use config::types::is_ifname;
use host::written_file;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;
use zeroize::Zeroizing;

/// Lines that an OpenVPN file gets.
const OPENVPN: [&str; 3] = [
    "route-noexec",
    "pull-filter ignore \"dhcp-option DNS\"",
    "pull-filter ignore dns",
];

/// The line that a WireGuard file gets.
const TABLE: &str = "Table = off";

/// Why the file stays as it is.
#[derive(Debug, Error)]
pub(crate) enum PrepareError {
    #[error(
        "{}: only files of WireGuard and OpenVPN clients can serve the policy alone; on OpenWrt set `option \
         defaultroute 0` and `option peerdns 0` of its interface", .0.display()
    )]
    Kind(PathBuf),
    #[error("{}: no tunnel can be made from it; `millrace check` says why", .0.display())]
    Unusable(PathBuf),
    #[error(
        "{}: its device would be called {name}; rename the file to 1 to 15 letters, digits and _=+.-, but not to tun, \
         null or lo", .path.display()
    )]
    Name { path: PathBuf, name: String },
    #[error("{}: `dev null` has no device; write `dev tun`", .0.display())]
    NoDevice(PathBuf),
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Import(#[from] ImportError),
}

/// A prepared file.
pub(crate) struct Prepared {
    pub(crate) text: Zeroizing<String>,
    /// The tunnel's device.
    pub(crate) device: String,
}

/// The command-line definition of `policy prepare`.
pub(super) fn command() -> Command {
    Command::new("prepare")
        .about("Change a tunnel's file so that only entries use it: no routes, no name servers")
        .arg(
            Arg::new("TUNNEL")
                .required(true)
                .help("The tunnel's name or file"),
        )
}

/// Changes the file of a tunnel.
pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let name = crate::arguments::text(matches, "TUNNEL").unwrap_or_default();
    let path = profile::find(Path::new(name))?;
    let device = prepare(&path)?;
    host::terminal::note(format_args!(
        "{}: `up` sets no routes and no name servers of this tunnel any more; if it is up, run: millrace restart {name}",
        path.display()
    ));
    host::terminal::note(use_of(&device));
    Ok(ExitCode::SUCCESS)
}

/// Says how an entry uses a tunnel's device.
pub(crate) fn use_of(device: &str) -> String {
    format!(
        "its device is {device}: `millrace policy add DEVICE --through {device}` sends a device through it"
    )
}

fn prepare(path: &Path) -> Result<String, PrepareError> {
    let failed = |error| PrepareError::File {
        path: path.to_owned(),
        error,
    };
    let text = read_text(path, FILE_MAX).map_err(failed)?;
    let Prepared { text, device } = prepared(path, &text)?;
    let arguments = check::Arguments {
        file: path.to_owned(),
        permissions: Permissions::ALL,
        allow_insecure_ciphers: true,
        ..check::Arguments::default()
    };
    let kind = Kind::of(path, text.as_bytes());
    if !check::judge_bytes(kind, text.as_bytes(), &arguments)?.usable {
        return Err(PrepareError::Unusable(path.to_owned()));
    }
    written_file::replace(path, text.as_bytes(), 0o600).map_err(failed)?;
    Ok(device)
}

/// The text of the file at `path`, prepared. A text of which no tunnel can be made stays as it is.
pub(crate) fn prepared(path: &Path, text: &str) -> Result<Prepared, PrepareError> {
    let own = path.file_stem().unwrap_or_default().to_string_lossy();
    let has = |word: &str| {
        text.lines()
            .any(|it| it.split_whitespace().next() == Some(word))
    };
    match Kind::of(path, text.as_bytes()) {
        Kind::WireGuard if !text.contains("[Server]") => Ok(Prepared {
            text: wireguard(text),
            device: own.into_owned(),
        }),
        Kind::OpenVpn if !has("server") && !has("server-ipv6") => openvpn(path, text, &own, true),
        _ => Err(PrepareError::Kind(path.to_owned())),
    }
}

/// The text of an OpenVPN client's file in which a device that the kernel would number has the tunnel's name; `None`
/// for other files.
pub(crate) fn named(path: &Path, text: &str) -> Result<Option<Zeroizing<String>>, PrepareError> {
    let own = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_server = |line: &str| line.split_whitespace().next() == Some("server");
    if Kind::of(path, text.as_bytes()) != Kind::OpenVpn || text.lines().any(is_server) {
        return Ok(None);
    }
    let named = openvpn(path, text, &own, false)?.text;
    Ok((*named != text).then_some(named))
}

/// Allocates once: a string that grows leaves copies of keys behind.
fn room(text: &str) -> Zeroizing<String> {
    Zeroizing::new(String::with_capacity(2 * text.len() + 512))
}

fn wireguard(text: &str) -> Zeroizing<String> {
    let mut out = room(text);
    let mut is_inside = false;
    for line in text.split_inclusive('\n') {
        let word = line.split('#').next().unwrap_or_default().trim();
        let key = word.split('=').next().unwrap_or_default().trim();
        let is = |it: &str| is_inside && key.eq_ignore_ascii_case(it);
        if is("Table") {
            continue;
        }
        out.push_str(if is("DNS") { "# " } else { "" });
        out.push_str(line);
        if word.starts_with('[') {
            is_inside = word.eq_ignore_ascii_case("[Interface]");
            if is_inside {
                out.push_str(if line.ends_with('\n') { "" } else { "\n" });
                out.push_str(TABLE);
                out.push('\n');
            }
        }
    }
    out
}

/// Gives a client's file a device with a fixed name; and for `policy`, no routes and no name servers.
fn openvpn(path: &Path, text: &str, own: &str, policy: bool) -> Result<Prepared, PrepareError> {
    // This only reads the file: no script runs, and no cipher is used.
    let options = Options {
        allow_insecure_ciphers: true,
        permissions: match policy {
            true => Permissions::ALL,
            false => Permissions::NONE,
        },
    };
    let mut out = room(text);
    let Ok((model, _)) = read_bytes(text.as_bytes(), path, options)?.into_model() else {
        out.push_str(text);
        let device = own.to_owned();
        return Ok(Prepared { text: out, device });
    };
    if model.device.null && policy {
        return Err(PrepareError::NoDevice(path.to_owned()));
    }
    // The kernel would number the device.
    let is_dynamic = model.device.is_dynamic() && !model.device.null;
    if !is_dynamic && !policy {
        out.push_str(text);
        let device = model.device.name;
        return Ok(Prepared { text: out, device });
    }
    if is_dynamic && (!is_ifname(own) || ["tun", "null", "lo"].contains(&own)) {
        return Err(PrepareError::Name {
            path: path.to_owned(),
            name: config::shown(own),
        });
    }
    let mut block = None;
    for line in text.split_inclusive('\n') {
        if let Some(end) = &block {
            if line.trim_start().starts_with(end) {
                block = None;
            }
            out.push_str(line);
            continue;
        }
        let words = split(line.trim_end()).unwrap_or_default();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match &words[..] {
            [tag] if tag.starts_with('<') => block = Some(tag.replacen('<', "</", 1)),
            _ if policy && OPENVPN.contains(&line.trim()) => continue,
            ["dev" | "--dev" | "dev-type" | "--dev-type", ..] if is_dynamic => continue,
            ["dhcp-option" | "--dhcp-option" | "dns" | "--dns", _, ..] if policy => {
                out.push_str("# ");
            }
            _ => {}
        }
        out.push_str(line);
    }
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    if is_dynamic {
        for part in ["dev ", own, "\ndev-type tun\n"] {
            out.push_str(part);
        }
    }
    for line in OPENVPN.into_iter().filter(|_| policy) {
        out.push_str(line);
        out.push('\n');
    }
    let device = match is_dynamic {
        true => own.to_owned(),
        false => model.device.name,
    };
    Ok(Prepared { text: out, device })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::CA;
    use std::fs;

    const WIREGUARD: &str = "# mine\n[Interface] # a\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
        Address = 10.2.0.2/32\nDNS = 10.2.0.1\n[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
        AllowedIPs = 0.0.0.0/0\nEndpoint = 192.0.2.1:51820\n";

    fn prepare_file(name: &str, text: &str) -> Result<(String, String), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        let device = prepare(&path).map_err(|error| error.to_string());
        let after = fs::read_to_string(&path).unwrap();
        let device = device.inspect_err(|_| assert_eq!(after, text))?;
        // A second time changes nothing.
        assert_eq!(prepare(&path).unwrap(), device);
        assert_eq!(fs::read_to_string(&path).unwrap(), after);
        Ok((after, device))
    }

    #[test]
    fn a_wireguard_file_sets_no_routes_and_no_name_servers() {
        let wanted = WIREGUARD
            .replace("# a\n", "# a\nTable = off\n")
            .replace("DNS", "# DNS");
        let (text, device) = prepare_file("away.conf", WIREGUARD).unwrap();
        assert_eq!((&*text, &*device), (&*wanted, "away"));
        let other = WIREGUARD.replace("DNS", "Table=77\nDNS");
        assert_eq!(prepare_file("away.conf", &other).unwrap().0, wanted);
        let import = config::wgquick::parse(&text, "away.conf", Permissions::default());
        let tunnel = import.into_tunnel().unwrap().0;
        assert_eq!(tunnel.interface.table, config::tunnel::Table::Off);
        assert!(tunnel.interface.dns.is_empty());
    }

    #[test]
    fn an_openvpn_client_has_a_fixed_device_and_no_routes() {
        let file = |dev: &str| {
            format!(
                "client\n{dev}\nremote 192.0.2.1\nredirect-gateway def1\ndhcp-option DNS 10.8.0.1\n{CA}auth-user-pass"
            )
        };
        for (dev, wanted, device) in [
            ("dev tun", "dev away\ndev-type tun\n", "away"),
            ("dev mr-us\ndev-type tun", "", "mr-us"),
            ("dev tun7", "", "tun7"),
            ("--dev \"tun8\" # mine", "", "tun8"),
        ] {
            let (text, found) = prepare_file("away.ovpn", &file(dev)).unwrap();
            let kept = if wanted.is_empty() {
                format!("{dev}\n")
            } else {
                String::new()
            };
            let before = file("X")
                .replace("X\n", &kept)
                .replace("dhcp-option", "# dhcp-option");
            let added = OPENVPN.map(|it| format!("{it}\n")).concat();
            assert_eq!(text, format!("{before}\n{wanted}{added}"));
            assert_eq!(found, device);
        }
    }

    #[test]
    fn a_name_of_the_guard_s_tunnels_becomes_the_device() {
        let file =
            |dev: &str| format!("client\n{dev}\nremote 192.0.2.1\n{CA}up /x\nauth-user-pass\n");
        let of = |name: &str, text: &str| {
            let named = named(Path::new(name), text).unwrap();
            named.map(|it| it.to_string())
        };
        let wanted = file("X").replacen("X\n", "", 1) + "dev mr-nl\ndev-type tun\n";
        assert_eq!(of("mr-nl.ovpn", &file("dev tun")), Some(wanted));
        for (name, text) in [
            ("mr-nl.ovpn", file("dev tun7")),
            ("mr-nl.ovpn", file("dev null")),
            (
                "mr-nl.ovpn",
                "dev tun\nserver 10.8.0.0 255.255.255.0\n".to_owned(),
            ),
            ("mr-nl.ovpn", "client\ndev tun\n".to_owned()),
            ("mr-nl.conf", WIREGUARD.to_owned()),
        ] {
            assert_eq!(of(name, &text), None, "{text}");
        }
    }

    #[test]
    fn blocks_stay_and_a_numbered_device_gets_one_name() {
        let block = "<auth-user-pass>\ndev tun\ndns secret\n</auth-user-pass>\n";
        for dev in ["dev tun\ndev-type tun", "dev \"tun\" # any", "--dev\ttun"] {
            let file = format!("client\n{dev}\nremote 192.0.2.1\n{CA}{block}");
            let (text, device) = prepare_file("away.ovpn", &file).unwrap();
            assert_eq!(device, "away");
            assert!(text.contains(block), "{text}");
            let text = text.replace(block, "");
            let own = text.lines().filter(|it| it.contains("dev"));
            assert_eq!(own.collect::<Vec<_>>(), ["dev away", "dev-type tun"]);
        }
    }

    #[test]
    fn other_files_stay_as_they_are() {
        let client = |dev: &str| format!("client\n{dev}\nremote 192.0.2.1\n{CA}auth-user-pass\n");
        for (name, text, words) in [
            (
                "home.ovpn",
                "dev tun\nserver 10.8.0.0 255.255.255.0\n",
                "only files of",
            ),
            ("home.conf", "#! [Server]\n[Interface]\n", "only files of"),
            ("a.toml", "protocol = \"pptp\"\n", "only files of"),
            (
                "a.conf",
                "[Interface]\nPrivateKey = x\n",
                "no tunnel can be made",
            ),
            ("a.ovpn", "client\ndev tun\n", "no tunnel can be made"),
            (
                "a b.ovpn",
                &client("dev tun"),
                "would be called a b; rename",
            ),
            (
                "sixteen-letters-.ovpn",
                &client("dev tun"),
                "rename the file",
            ),
            ("tun.ovpn", &client("dev tun"), "rename the file"),
            ("a.ovpn", &client("dev tap"), "no tunnel can be made"),
            (
                "a.ovpn",
                &client("dev x\ndev-type tap"),
                "no tunnel can be made",
            ),
            ("a.ovpn", &client("dev null"), "has no device"),
        ] {
            let error = prepare_file(name, text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
