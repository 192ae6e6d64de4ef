//! Checks a file that a page uploads for damage, judges it as `millrace check` does, and stores it.

use super::{Given, options};
use crate::check::Judged;
use crate::import;
use crate::profile::{self, DIRECTORY};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::kind::Kind;
use config::permissions::for_uci;
use config::types::is_ifname;
use host::written_file;
use serde_json::{Value, json};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Largest file, in bytes: its base64 must fit into a request of 64 KiB.
const SIZE_MAX: usize = 45_000;

/// UTF-16 byte order marks.
const UTF_16: [[u8; 2]; 2] = [[0xff, 0xfe], [0xfe, 0xff]];

/// An uploaded file, and the interface that it is for.
pub(super) struct Offered {
    interface: String,
    /// The file's original name; empty for pasted text.
    name: PathBuf,
    bytes: Zeroizing<Vec<u8>>,
}

/// Damage to a file in transit.
struct Damage {
    words: Vec<&'static str>,
    /// The repaired content, if it can be recovered.
    mended: Option<Zeroizing<String>>,
}

impl Offered {
    pub(super) fn new(given: &Given) -> Result<Self, String> {
        if !is_ifname(&given.interface) || given.interface.contains('.') {
            return Err("the interface's name cannot be a file name".to_owned());
        }
        let bytes = STANDARD.decode(given.data.trim().as_bytes());
        let bytes = Zeroizing::new(bytes.map_err(|_| "the data is not valid base64")?);
        if bytes.len() > SIZE_MAX {
            return Err(format!(
                "the file has {} bytes, but the web server accepts at most {SIZE_MAX}; run `millrace import FILE` on \
                 the router's shell",
                bytes.len()
            ));
        }
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let linked = import::unlinked(text).map_err(|error| error.to_string())?;
        let name = linked.as_ref().map_or(&*given.name, |_| import::LINK);
        Ok(Self {
            interface: given.interface.clone(),
            // Only the name's ending matters; people read the rest.
            name: Path::new(name).file_name().unwrap_or_default().into(),
            bytes: linked.map_or(bytes, |it| Zeroizing::new(it.as_bytes().to_vec())),
        })
    }

    /// Reports on the file before it is stored. Does not judge the lines of a damaged file.
    pub(super) fn check(&self) -> Result<Value, String> {
        let text = match self.text() {
            Ok(text) => text,
            Err(damage) => {
                let mended = damage.mended.map(|it| STANDARD.encode(it.as_bytes()));
                return Ok(json!({"damage": damage.words, "mended": mended}));
            }
        };
        // The path for storing it; no file is written yet.
        let path = self.place(Path::new(DIRECTORY), text);
        let (kind, judged) = judge(&path, text)?;
        let ending = path
            .extension()
            .and_then(|it| it.to_str())
            .unwrap_or_default();
        let mut report = serde_json::to_value(judged.document()).unwrap_or_default();
        report["file"] = json!(self.name);
        let wireguard = (kind == Kind::WireGuard && judged.usable).then(|| options::of(text));
        // Refused lines are left out.
        report["usable"] = json!(judged.usable);
        Ok(json!({
            "kind": kind.as_str(),
            "ending": ending,
            "report": report,
            "options": wireguard.flatten(),
        }))
    }

    /// Stores the file for an interface, without its refused lines, if it still gives a tunnel.
    pub(super) fn keep(&self, directory: &Path, replace: bool) -> Result<Value, String> {
        let text = self.text().map_err(|damage| damage.words.join("; "))?;
        let failed = |error: io::Error| format!("{}: {error}", directory.display());
        let unusable = || "not kept: no tunnel can be made from this file".to_owned();
        let kept = self.place(directory, text);
        let judged = judge(&kept, text)?.1;
        if !judged.usable {
            return Err(unusable());
        }
        if !profile::is_profile(&kept) {
            return Err(format!(
                "{}: this file name is reserved for Millrace's own settings",
                kept.display()
            ));
        }
        let judge = |text: &str| judge(&kept, text).map(|it| it.1);
        let cleaned = import::cleaned(text, &judged.report, judge)?;
        let (text, left_out) = cleaned.ok_or_else(unusable)?;
        let mut builder = DirBuilder::new();
        builder
            .mode(0o700)
            .recursive(true)
            .create(directory)
            .map_err(failed)?;
        if fs::symlink_metadata(&kept).is_ok() {
            if !replace {
                return Ok(json!({"taken": kept}));
            }
            let mut old = kept.clone().into_os_string();
            old.push(".old");
            if fs::symlink_metadata(&old).is_ok() {
                let old = Path::new(&old).display();
                return Err(format!("{old} exists, too; remove it first"));
            }
            fs::rename(&kept, old).map_err(failed)?;
        }
        written_file::write_new(&kept, text.as_bytes()).map_err(failed)?;
        Ok(json!({"path": kept, "left_out": left_out}))
    }

    /// The path for the file, by its name or content.
    fn place(&self, directory: &Path, text: &str) -> PathBuf {
        import::place(directory, &self.interface, &self.name, text)
    }

    /// The text of an undamaged file.
    fn text(&self) -> Result<&str, Damage> {
        let bytes = self.bytes.as_slice();
        match (damage(bytes), std::str::from_utf8(bytes)) {
            (None, Ok(text)) => Ok(text),
            (Some(damage), _) => Err(damage),
            // Unreachable: invalid UTF-8 counts as damage.
            (None, Err(_)) => Err(hopeless("it is not a text file")),
        }
    }
}

/// Judges a file, and says which options give permissions.
fn judge(path: &Path, text: &str) -> Result<(Kind, Judged), String> {
    let kind = Kind::of(path, text.as_bytes());
    let judged = import::judge_alone(path, text, true);
    let mut judged = judged.map_err(|error| error.to_string())?;
    for entry in &mut judged.report.entries {
        entry.reason = for_uci(&entry.reason);
    }
    Ok((kind, judged))
}

fn hopeless(words: &'static str) -> Damage {
    Damage {
        words: vec![words],
        mended: None,
    }
}

/// Finds damage by programs that sent, saved or copied the file.
fn damage(bytes: &[u8]) -> Option<Damage> {
    if bytes.trim_ascii().is_empty() {
        return Some(hopeless("it is empty"));
    }
    let mut words = Vec::new();
    let decoded = match UTF_16.iter().position(|mark| bytes.starts_with(mark)) {
        Some(order) => {
            words.push("it is UTF-16");
            from_utf_16(&bytes[2..], order == 1)
        }
        None => String::from_utf8(bytes.to_vec()).ok().or_else(|| {
            words.push("it is not valid UTF-8");
            // The file comes from an editor without Unicode: it has names in comments.
            let is_text = |it: &u8| *it >= b' ' || it.is_ascii_whitespace();
            bytes
                .iter()
                .all(is_text)
                .then(|| bytes.iter().copied().map(char::from).collect())
        }),
    };
    let Some(decoded) = decoded.map(Zeroizing::new) else {
        return Some(hopeless(
            "it is not a text file, but an archive, a picture, or incomplete",
        ));
    };
    let control = |it: char| it.is_control() && !it.is_whitespace();
    if decoded.contains(control) {
        return Some(hopeless(
            "it is not a text file, but an archive, a picture, or incomplete",
        ));
    }
    let text = decoded.strip_prefix('\u{feff}');
    if text.is_some() && words.is_empty() {
        words.push("it begins with a byte order mark");
    }
    let text = text.unwrap_or(&decoded);
    if is_page(text) {
        return Some(hopeless(
            "it is a web page: the server sent an error or login page in place of the file",
        ));
    }
    if text.contains('\r') {
        words.push("it has Windows line ends (CRLF)");
    }
    if words.is_empty() {
        return None;
    }
    let mended = text.replace("\r\n", "\n").replace('\r', "\n");
    Some(Damage {
        words,
        mended: Some(Zeroizing::new(mended)),
    })
}

fn from_utf_16(bytes: &[u8], big: bool) -> Option<String> {
    let pairs = bytes.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    let unit = |pair: &[u8]| match big {
        true => u16::from_be_bytes([pair[0], pair[1]]),
        false => u16::from_le_bytes([pair[0], pair[1]]),
    };
    let units: Vec<u16> = pairs.map(unit).collect();
    String::from_utf16(&units).ok()
}

fn is_page(text: &str) -> bool {
    let head = text
        .trim_start()
        .get(..9)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let heads = ["<!doctype", "<html", "<head", "<?xml"];
    heads.iter().any(|it| head.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{CA, SERVER};

    const FILE: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\nAddress = \
                        10.8.0.2/32\n";

    fn offered(name: &str, bytes: &[u8]) -> Offered {
        let data = Zeroizing::new(STANDARD.encode(bytes));
        let given = Given {
            interface: "office".to_owned(),
            name: name.to_owned(),
            data,
            ..Given::default()
        };
        Offered::new(&given).unwrap()
    }

    fn mended(bytes: &[u8]) -> Option<String> {
        damage(bytes).unwrap().mended.map(|it| it.to_string())
    }

    #[test]
    fn what_programs_do_to_files_is_told_and_undone() {
        assert!(damage(FILE.as_bytes()).is_none());
        let windows = FILE.replace('\n', "\r\n");
        let wide = |big: bool| -> Vec<u8> {
            let units = format!("\u{feff}{windows}");
            let bytes = |it: u16| {
                if big {
                    it.to_be_bytes()
                } else {
                    it.to_le_bytes()
                }
            };
            units.encode_utf16().flat_map(bytes).collect()
        };
        for damaged in [
            windows.clone().into_bytes(),
            format!("\u{feff}{FILE}").into_bytes(),
            format!("\u{feff}{windows}").into_bytes(),
            wide(false),
            wide(true),
        ] {
            assert_eq!(mended(&damaged).as_deref(), Some(FILE));
        }
        let latin = [b"# caf\xe9\n", FILE.as_bytes()].concat();
        assert!(mended(&latin).unwrap().starts_with("# caf\u{e9}\n"));
    }

    #[test]
    fn what_is_no_file_of_a_tunnel_cannot_be_mended() {
        for (bytes, words) in [
            (&b"\r\n<!DOCTYPE html><title>Log in</title>"[..], "web page"),
            (b"<HTML><body>404", "web page"),
            (b"PK\x03\x04\x00\x00\xff\xff", "archive"),
            (b" \n", "empty"),
            (b"\xff\xfea", "archive"),
        ] {
            let damage = damage(bytes).unwrap();
            assert!(damage.mended.is_none());
            assert!(damage.words.iter().any(|it| it.contains(words)), "{words}");
        }
    }

    #[test]
    fn a_file_is_judged_and_kept_once() {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("kept");
        let profile = format!("client\ndev tun\nremote 192.0.2.1\n{CA}auth-user-pass\n");
        let file = offered("provider.txt", profile.as_bytes());
        let report = file.check().unwrap();
        assert_eq!(
            (&report["kind"], &report["ending"]),
            (&json!("openvpn"), &json!("ovpn"))
        );
        assert_eq!(report["report"]["usable"], true);
        assert_eq!(report["options"], Value::Null);
        let kept = to.join("office.ovpn");
        assert_eq!(
            file.keep(&to, false).unwrap(),
            json!({"path": kept, "left_out": 0})
        );
        assert_eq!(fs::read_to_string(&kept).unwrap(), profile);
        assert_eq!(file.keep(&to, false).unwrap(), json!({"taken": kept}));
        assert_eq!(
            file.keep(&to, true).unwrap(),
            json!({"path": kept, "left_out": 0})
        );
        assert!(to.join("office.ovpn.old").is_file());
        assert_eq!(fs::read_dir(&to).unwrap().count(), 2);
    }

    #[cfg(feature = "amnezia")]
    #[test]
    fn a_link_becomes_options_or_a_file() {
        let text = format!(
            "{FILE}Jc = 4\nPostUp = /x\n\n[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
             Endpoint = 192.0.2.1:7\n"
        );
        let link = config::amnezia::link::write(&text, "phone").unwrap();
        let file = offered("office.ovpn", link.as_bytes());
        let report = file.check().unwrap();
        assert_eq!(report["report"]["refused"], 1, "{report}");
        assert_eq!(report["options"]["interface"]["awg_jc"], "4", "{report}");
        let directory = tempfile::tempdir().unwrap();
        file.keep(directory.path(), false).unwrap();
        let kept = fs::read_to_string(directory.path().join("office.conf")).unwrap();
        assert!(
            !kept.contains("/x") && kept.contains("\nJc = 4\n"),
            "{kept}"
        );
        let given = Given {
            interface: "office".to_owned(),
            data: Zeroizing::new(STANDARD.encode(&link[..link.len() - 9])),
            ..Given::default()
        };
        let error = Offered::new(&given).err().unwrap();
        assert!(error.contains("copy it again"), "{error}");
    }

    /// Lines that would touch the router's files are reported, and not stored.
    #[test]
    fn lines_that_are_refused_are_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let profile = format!(
            "client\ndev tun\nremote 192.0.2.1\n{CA}auth-user-pass /etc/shadow\nup /bin/x\n\
            management 0.0.0.0 7506\n"
        );
        let file = offered("provider.ovpn", profile.as_bytes());
        let report = file.check().unwrap();
        assert_eq!(report["report"]["refused"], 3, "{report}");
        assert!(report.to_string().contains("allow_files"), "{report}");
        let kept = file.keep(directory.path(), false).unwrap();
        assert_eq!(kept["left_out"], 3);
        let written = fs::read_to_string(directory.path().join("office.ovpn")).unwrap();
        for word in ["/etc/shadow", "/bin/x", "7506"] {
            assert!(!written.contains(word), "{written}");
        }
    }

    /// The answer does not reveal whether a file of the router exists.
    #[test]
    fn files_of_the_router_are_not_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("there");
        fs::write(&there, "").unwrap();
        let reasons = [there, directory.path().join("none")].map(|path| {
            let text = format!(
                "client\ndev tun\nremote a.example\nca {}\nauth-user-pass\n",
                path.display()
            );
            let report = offered("x.ovpn", text.as_bytes()).check().unwrap();
            assert_eq!(report["report"]["usable"], false, "{report}");
            report["report"]["lines"].to_string()
        });
        assert_eq!(reasons[0], reasons[1]);
    }

    #[test]
    #[cfg(feature = "pptp")]
    fn files_of_pptp_are_judged_as_such_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let toml = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"192.0.2.1\"\nusername = \"a\"\n\
            password = \"b\"\nauth = \"mschapv2\"\n";
        let options = "#! allow-insecure = pptp\npty \"pptp 192.0.2.1 --nolaunchpppd\"\nname a\npassword b\n\
            require-mppe-128\n";
        for (name, text, ending) in [
            ("office.toml", toml, "toml"),
            ("provider.txt", toml, "toml"),
            ("office", options, "conf"),
        ] {
            let file = offered(name, text.as_bytes());
            let report = file.check().unwrap();
            let said = (
                &report["kind"],
                &report["ending"],
                &report["report"]["usable"],
            );
            assert_eq!(
                said,
                (&json!("pptp"), &json!(ending), &json!(true)),
                "{report}"
            );
            let kept = directory.path().join(format!("office.{ending}"));
            let expected = json!({"path": kept, "left_out": 0});
            assert_eq!(file.keep(directory.path(), false).unwrap(), expected);
            assert_eq!(fs::read_to_string(&kept).unwrap(), text);
            fs::remove_file(kept).unwrap();
        }
        for text in [
            toml.replace("password = \"b\"", "password-file = \"/etc/shadow\""),
            toml.replace("password = \"b\"", "password-file = \"office.password\""),
            options.replace("password b", "remotename office"),
            options.replace("password b", "password b\nfile /etc/shadow"),
        ] {
            let file = offered("office", text.as_bytes());
            let report = file.check().unwrap();
            assert_eq!(report["report"]["usable"], false, "{report}");
            assert!(file.keep(directory.path(), false).is_err());
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_damaged_or_gives_no_tunnel_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let windows = FILE.replace('\n', "\r\n");
        for bytes in [
            windows.as_bytes(),
            b"[Interface]\nPrivateKey = short\n",
            b"<html>",
        ] {
            let file = offered("office.conf", bytes);
            assert!(file.keep(directory.path(), true).is_err());
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let report = offered(
            "x.ovpn",
            b"client\ndev tun\nremote a.example\nca ca.crt\nauth-user-pass\n",
        );
        let report = report.check().unwrap();
        assert_eq!(report["report"]["usable"], false);
        assert!(!report.to_string().contains("/.millrace-"), "{report}");
    }

    /// A server that checks certificates becomes an interface. One whose script decides about clients would let
    /// everyone in.
    #[test]
    fn servers_are_kept_but_for_those_that_scripts_guard() {
        let directory = tempfile::tempdir().unwrap();
        let server = format!("server 10.8.0.0 255.255.255.0\ndev tun\ndh none\n{CA}{SERVER}");
        let guarded =
            format!("{server}script-security 2\nauth-user-pass-verify /bin/false via-file\n");
        for (text, usable) in [(&server, true), (&guarded, false)] {
            let file = offered("server.ovpn", text.as_bytes());
            let report = file.check().unwrap();
            assert_eq!(report["report"]["usable"], usable, "{report}");
            let said = report
                .to_string()
                .contains("decides which clients may log in");
            assert_eq!(said, !usable, "{report}");
            assert_eq!(file.keep(directory.path(), true).is_ok(), usable);
        }
    }

    #[test]
    fn names_and_sizes_are_bounded() {
        let given = |interface: &str, data: String| Given {
            interface: interface.to_owned(),
            data: Zeroizing::new(data),
            ..Given::default()
        };
        let large = STANDARD.encode(vec![b'#'; SIZE_MAX + 1]);
        for wrong in [
            given("../x", String::new()),
            given("", String::new()),
            given("a.b", String::new()),
            given("office", "%".to_owned()),
            given("office", large),
        ] {
            assert!(Offered::new(&wrong).is_err());
        }
        let named = offered("../../etc/passwd.toml", b"x");
        assert_eq!(named.name, Path::new("passwd.toml"));
    }
}
