//! `millrace migrate --openwrt`: converts interfaces and instances in UCI's files; it shows the changes before it
//! applies them.

use crate::check::{self, Arguments};
use crate::netifd::notes_of;
use ::openwrt::take_over::{Judged, TakeOverError, TakenOver, take_over};
use ::openwrt::uci::FILE_MAX;
use config::kind::Kind;
use config::permissions::Permissions;
use config::report::Verdict;
use host::written_file;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use thiserror::Error;
use zeroize::Zeroizing;

/// The directory of changes that `uci` has not committed.
const PENDING: &str = "/tmp/.uci";

/// Mode of a file if its own is unknown: it contains private keys.
const MODE: u32 = 0o600;

/// Why no file was changed.
#[derive(Debug, Error)]
pub(super) enum Error {
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{0}: has changes that are not committed: `uci commit` or `uci revert` them first")]
    Pending(&'static str),
}

/// Parameters of the migration.
pub(super) struct Order<'o> {
    /// The directory of UCI's files.
    pub(super) directory: &'o Path,
    /// The interface or instance; `None` for all.
    pub(super) only: Option<&'o str>,
    /// Whether to apply the changes; otherwise they are only shown.
    pub(super) apply: bool,
    /// The directory for copies of the old files.
    pub(super) copies: &'o Path,
}

/// Shows or applies the changes. Returns the message.
pub(super) fn run(order: &Order<'_>) -> Result<String, Error> {
    for file in ["network", "openvpn"] {
        let waiting = std::fs::metadata(Path::new(PENDING).join(file));
        if order.apply && waiting.is_ok_and(|it| it.len() > 0) {
            return Err(Error::Pending(file));
        }
    }
    let (network, openvpn) = (
        order.directory.join("network"),
        order.directory.join("openvpn"),
    );
    let network_text = read(&network)?;
    let openvpn_text = match read(&openvpn) {
        Err(Error::File { error, .. }) if error.kind() == ErrorKind::NotFound => {
            Zeroizing::default()
        }
        other => other?,
    };
    let taken = take_over(&network_text, &openvpn_text, order.only, &judge)?;
    if taken.changes.is_empty() {
        return Ok(words(&taken, "nothing to take over\n"));
    }
    if !order.apply {
        let end = "this is what would change; write it with --apply\n";
        return Ok(words(&taken, end));
    }
    // The interface is written before the instance is disabled. A power cut between the two leaves both, which `doctor`
    // and the logs show, rather than none.
    for (path, old, new) in [
        (&network, &network_text, taken.network.as_str()),
        (&openvpn, &openvpn_text, taken.openvpn.as_str()),
    ] {
        if old.as_str() != new {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let copy = order.copies.join(format!("{name}.before-millrace"));
            // The first copy has the state before any migration.
            if !copy.exists() {
                write(&copy, old, Some(MODE))?;
            }
            write(path, new, None)?;
        }
    }
    let end = format!(
        "done; what was there is kept in {0}/*.before-millrace. Now: /etc/init.d/openvpn restart (where there is one), and \
         /etc/init.d/network restart or a reboot\n",
        order.copies.display()
    );
    Ok(words(&taken, &end))
}

/// Finds lines of an instance's file that netifd's interface would not honour, or the reason why it would not come up.
fn judge(file: &str) -> Result<Judged, String> {
    let file = Path::new(file);
    let permissions = Permissions::FILES;
    let arguments = Arguments {
        file: file.to_owned(),
        permissions,
        ..Arguments::default()
    };
    let judged = check::judge(&arguments).map_err(|error| error.to_string())?;
    if !judged.usable {
        let refused = judged.report.with(Verdict::Refused);
        let refused: Vec<String> = refused.map(|it| judged.report.describe(it)).collect();
        return Err(refused.join("; "));
    }
    let (_, content) = Kind::read(file).map_err(|error| error.to_string())?;
    let notes = notes_of(&content, file, permissions)?;
    let without = notes_of(&content, file, Permissions::NONE);
    Ok(Judged {
        needs_files: without.as_ref() != Ok(&notes),
        notes,
    })
}

fn words(taken: &TakenOver, end: &str) -> String {
    let mut text = String::new();
    for change in &taken.changes {
        text += &format!("{change}\n");
    }
    for hint in &taken.hints {
        text += &format!("note: {hint}\n");
    }
    text + end
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |error| Error::File { path, error }
}

fn read(path: &Path) -> Result<Zeroizing<String>, Error> {
    config::file::read_text(path, FILE_MAX).map_err(failed(path))
}

/// Writes a file; without `mode` it keeps its own.
fn write(path: &Path, text: &str, mode: Option<u32>) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt as _;
    let own = || std::fs::metadata(path).map_or(MODE, |it| it.permissions().mode() & 0o777);
    let mode = mode.unwrap_or_else(own);
    written_file::replace(path, text.as_bytes(), mode).map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{CA, SERVER};
    use std::fs;

    /// Opening a FIFO would block.
    #[test]
    fn only_regular_files_are_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("openvpn");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = read(&fifo).unwrap_err().to_string();
        assert!(error.contains("is not a regular file"), "{error}");
    }

    #[test]
    fn shown_first_and_changed_then() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
        let before = format!(
            "config interface 'wg0'\n\toption proto 'wireguard'\n\toption private_key '{key}'\n"
        );
        fs::write(at("network"), &before).unwrap();
        fs::create_dir(at("copies")).unwrap();
        let order = |apply, copies| Order {
            directory: directory.path(),
            only: None,
            apply,
            copies,
        };
        let copies = at("copies");
        let shown = run(&order(false, &copies)).unwrap();
        assert!(
            shown.contains("wireguard -> millrace") && shown.contains("--apply"),
            "{shown}"
        );
        assert!(!shown.contains(key));
        assert_eq!(fs::read_to_string(at("network")).unwrap(), before);

        run(&order(true, &copies)).unwrap();
        let after = fs::read_to_string(at("network")).unwrap();
        assert_eq!(after, before.replace("'wireguard'", "'millrace'"));
        let copy = fs::read_to_string(copies.join("network.before-millrace")).unwrap();
        assert_eq!(copy, before);
        let twice = run(&order(true, &copies)).unwrap();
        assert!(twice.contains("nothing to take over"), "{twice}");
        assert!(!at("openvpn").exists());
        // No file changes if the copy cannot be written.
        fs::write(at("network"), &before).unwrap();
        let error = run(&order(true, &at("missing"))).unwrap_err();
        assert!(matches!(error, Error::File { .. }));
        assert_eq!(fs::read_to_string(at("network")).unwrap(), before);
    }

    /// If an instance's file would not come up, the present program keeps running it.
    #[test]
    fn an_instances_file_is_read_before_anything_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("copies")).unwrap();
        fs::write(at("network"), "config interface 'lan'\n").unwrap();
        let ca = format!("{CA}auth-user-pass\n");
        let server = format!("server 10.8.0.0 255.255.255.0\ndev tun\ndh none\n{CA}{SERVER}");
        let client = format!("client\ndev tun\nremote vpn.example\nfast-io\n{ca}");
        for (name, text) in [
            ("good", client.as_str()),
            (
                "lacks",
                "client\ndev tun\nremote vpn.example\nca missing.crt\nauth-user-pass\n",
            ),
            ("tap", &client.replace("dev tun", "dev tap")),
            ("server", server.as_str()),
            ("lacks_keys", "server 10.8.0.0 255.255.255.0\ndev tun\n"),
            (
                "guarded",
                &format!("{server}auth-user-pass-verify /bin/false via-file\n"),
            ),
        ] {
            fs::write(at(&format!("{name}.ovpn")), text).unwrap();
        }
        let names = [
            "good",
            "server",
            "lacks",
            "tap",
            "lacks_keys",
            "guarded",
            "none",
        ];
        // A build without servers leaves servers unchanged.
        let good = if cfg!(feature = "server") { 2 } else { 1 };
        let instance = |name: &&str| {
            let file = at(&format!("{name}.ovpn"));
            format!(
                "config openvpn '{name}'\n\toption enabled '1'\n\toption config '{}'\n",
                file.display()
            )
        };
        let before: String = names.iter().map(instance).collect();
        fs::write(at("openvpn"), &before).unwrap();
        let copies = at("copies");
        let order = |apply| Order {
            directory: directory.path(),
            only: None,
            apply,
            copies: &copies,
        };
        let shown = run(&order(false)).unwrap();
        for name in &names[good..] {
            assert!(
                shown.contains(&format!("{name} stays as it is: ")),
                "{name}: {shown}"
            );
        }
        assert!(
            shown.contains("new interface good") && shown.contains("fast-io"),
            "{shown}"
        );
        assert!(shown.contains("missing.crt"), "{shown}");
        run(&order(true)).unwrap();
        let network = fs::read_to_string(at("network")).unwrap();
        assert_eq!(network.matches("config_file").count(), good, "{network}");
        let after = fs::read_to_string(at("openvpn")).unwrap();
        assert_eq!(after, before.replacen("enabled '1'", "enabled '0'", good));
    }
}
