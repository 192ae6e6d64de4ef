//! What the page's reader hands over: a tunnel's file, or a rule for a device of the LAN.

use crate::check::{self, Judged};
use crate::import::{self, ImportingError};
use crate::profile::DIRECTORY;
use config::kind::Kind;
use config::permissions::Permissions;
use config::policy::{DEFAULT_PATH, Mac, Policy, Who};
use config::report::Verdict;
use config::settings::SettingsError;
use config::types::is_ifname;
use host::written_file;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::Path;

/// Longest name of an entry, in characters.
const NAME_MAX: usize = 32;

/// The arguments of all methods.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Given {
    /// The tunnel's name, or the device's.
    name: String,
    /// The file's own name: its ending says its kind.
    file: String,
    /// The file's content.
    text: String,
    /// The hardware address of a device; empty for all devices of `lan`.
    mac: String,
    /// The router's device through which the packets come in.
    lan: String,
    /// The tunnel for them; empty to block them.
    through: String,
}

/// A method of the page.
#[derive(Clone, Copy)]
pub(super) enum Method {
    /// Judges a file.
    Check,
    /// Keeps a file.
    Import,
    /// Shows a rule.
    Plan,
    /// Writes a rule.
    Add,
}

impl Method {
    /// The method of this name.
    pub(super) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "import_check" => Self::Check,
            "import" => Self::Import,
            "rule_plan" => Self::Plan,
            "rule_add" => Self::Add,
            _ => return None,
        })
    }

    /// Answers the page.
    pub(super) fn call(self, given: &Given) -> Result<Value, String> {
        // The page has a field for the name.
        let words = |error: ImportingError| error.to_string().replace(" with --name", "");
        match self {
            Self::Check => take(given, Path::new(DIRECTORY), false).map_err(words),
            Self::Import => take(given, Path::new(DIRECTORY), true).map_err(words),
            Self::Plan => rule(given, Path::new(DEFAULT_PATH), false),
            Self::Add => rule(given, Path::new(DEFAULT_PATH), true),
        }
    }
}

/// Judges a file, and keeps it if `keeps`.
fn take(given: &Given, to: &Path, keeps: bool) -> Result<Value, ImportingError> {
    let Given {
        name, file, text, ..
    } = given;
    import::available(name, to)?;
    let kept = import::place(to, name, Path::new(file), text);
    import::may_keep(&kept, Permissions::default())?;
    // The reader may not read the router's files.
    let arguments = check::Arguments {
        file: kept.clone(),
        alone: true,
        ..check::Arguments::default()
    };
    let judge = |text: &str| {
        check::judge_bytes(
            Kind::of(&kept, text.as_bytes()),
            text.as_bytes(),
            &arguments,
        )
    };
    let judged = judge(text)?;
    if keeps {
        if !judged.usable {
            return Err(ImportingError::Unusable);
        }
        import::keep(&kept, text, &judged.report, judge)?;
        let mut said = format!("Kept as {}.", kept.display());
        if import::is_asking(&kept, text) {
            said += " It asks for a user name and a password: put them on two lines into this file, between \
                     <auth-user-pass> and </auth-user-pass>.";
        }
        return Ok(json!({"said": said, "start": start(name, &kept)}));
    }
    let refused = judged.report.with(Verdict::Refused);
    let refused: Vec<String> = refused.map(|it| judged.report.describe(it)).collect();
    Ok(json!({"said": verdict(&judged), "usable": judged.usable, "refused": refused}))
}

/// The verdict on a file, in a sentence.
fn verdict(judged: &Judged) -> String {
    let [honoured, ignored, refused] = check::counts(&judged.report);
    if !judged.usable {
        return "No tunnel can be made from this file.".to_owned();
    }
    let mut words = format!("A tunnel can be made from this file: {honoured} lines are honoured");
    for (count, what) in [
        (ignored, "without effect"),
        (refused, "refused and left out"),
    ] {
        if count > 0 {
            words += &format!(", {count} {what}");
        }
    }
    words + "."
}

/// Whether UCI and procd start services here.
fn is_openwrt() -> bool {
    Path::new("/etc/openwrt_release").exists()
}

/// Whether systemd starts services here.
fn has_systemd() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// The commands that start a tunnel, at each boot too.
fn start(name: &str, kept: &Path) -> String {
    if is_openwrt() {
        // Names of UCI's sections have no other characters.
        let section = name.replace(|it: char| !it.is_ascii_alphanumeric(), "_");
        let file = kept.display();
        return format!(
            "uci set network.{section}=interface\nuci set network.{section}.proto=millrace\n\
             uci set network.{section}.config_file={file}\nuci commit network\nifup {section}"
        );
    }
    match has_systemd() {
        true => format!("systemctl enable --now millrace@{name}"),
        false => format!("millrace up {name} --daemon"),
    }
}

/// Shows a rule for the policy, or writes it.
fn rule(given: &Given, path: &Path, writes: bool) -> Result<Value, String> {
    if !cfg!(feature = "policy") {
        return Err("this build of Millrace has no `policy`".to_owned());
    }
    let before = match Policy::read(path) {
        Ok(read) => Some(read),
        Err(SettingsError::Read { error, .. }) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error.to_string()),
    };
    let entry = entry(given, before.as_ref().map(|it| &it.0))?;
    let text = match &before {
        Some((_, text)) => format!("{}\n\n{entry}", text.trim_end()),
        None => format!("lan = [\"{}\"]\n\n{entry}", given.lan),
    };
    let policy = Policy::from_toml(&text, path).map_err(|error| error.to_string())?;
    if let Some(fault) = policy.fault() {
        return Err(fault);
    }
    if !writes {
        return Ok(json!({"said": match before {
            Some(_) => entry,
            None => text,
        }}));
    }
    written_file::replace(path, text.as_bytes(), 0o600)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let start = match (is_openwrt(), has_systemd()) {
        (true, _) => "service millrace-policy enable\nservice millrace-policy restart",
        (_, true) => "systemctl enable millrace-policy\nsystemctl restart millrace-policy",
        _ => "millrace policy on",
    };
    Ok(json!({"said": format!("Written to {}.", path.display()), "start": start}))
}

/// The rule as an entry of the settings.
fn entry(given: &Given, before: Option<&Policy>) -> Result<String, String> {
    let Given {
        mac, lan, through, ..
    } = given;
    if !is_ifname(lan) {
        return Err("choose a device of the LAN".to_owned());
    }
    let who = match mac.is_empty() {
        true => Who::Device(lan.clone()),
        false => Who::Mac(Mac::new(mac).ok_or("the hardware address is not one")?),
    };
    if let Some(policy) = before {
        if !policy.lan.contains(lan) {
            return Err(format!(
                "{DEFAULT_PATH} does not decide about {lan}; add it to `lan` there"
            ));
        }
        let decides = |it: &&config::policy::Entry| {
            it.to.is_empty() && (it.who.is_empty() || it.who.contains(&who))
        };
        if let Some(entry) = policy.entries.iter().find(decides) {
            return Err(format!(
                "entry {} of {DEFAULT_PATH} decides about {who} already; change it there",
                entry.name
            ));
        }
    }
    let plain = |it: &char| it.is_ascii_alphanumeric() || "_.-".contains(*it);
    let own: String = given
        .name
        .chars()
        .filter(plain)
        .take(NAME_MAX - 4)
        .collect();
    let own = if own.is_empty() { lan.clone() } else { own };
    let is_taken = |name: &str| before.is_some_and(|it| it.entries.iter().any(|e| e.name == name));
    let mut name = own.clone();
    let mut number = 1;
    while is_taken(&name) {
        number += 1;
        name = format!("{own}-{number}");
    }
    let way = match through.is_empty() {
        true => "way = \"block\"".to_owned(),
        false if is_ifname(through) => format!("through = \"{through}\""),
        false => return Err("choose a tunnel".to_owned()),
    };
    Ok(format!(
        "[[entry]]\nname = \"{name}\"\nwho = \"{who}\"\n{way}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::CA;
    use std::fs;

    const WIREGUARD: &str =
        "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";

    fn file(name: &str, file: &str, text: &str) -> Given {
        Given {
            name: name.to_owned(),
            file: file.to_owned(),
            text: text.to_owned(),
            ..Given::default()
        }
    }

    #[test]
    fn a_file_is_judged_then_kept_and_not_twice() {
        let place = tempfile::tempdir().unwrap();
        let take = |given: &Given, keeps| take(given, place.path(), keeps);
        let profile = format!("client\ndev tun\nremote 192.0.2.1\nauth-user-pass\n{CA}up /x\n");
        let given = file("away", "provider.ovpn", &profile);
        let told = take(&given, false).unwrap();
        assert_eq!(told["usable"], true);
        assert!(
            told["said"]
                .as_str()
                .unwrap()
                .contains("1 refused and left out"),
            "{told}"
        );
        assert!(
            told["refused"][0].as_str().unwrap().contains("up"),
            "{told}"
        );
        assert!(fs::read_dir(place.path()).unwrap().next().is_none());
        let kept = take(&given, true).unwrap();
        assert!(
            kept["said"]
                .as_str()
                .unwrap()
                .contains("asks for a user name"),
            "{kept}"
        );
        assert!(kept["start"].as_str().unwrap().contains("away"), "{kept}");
        let text = fs::read_to_string(place.path().join("away.ovpn")).unwrap();
        assert!(!text.contains("up /x") && text.contains("remote 192.0.2.1"));
        assert!(
            take(&given, true)
                .unwrap_err()
                .to_string()
                .contains("exists")
        );
    }

    #[test]
    fn files_that_give_no_tunnel_or_read_others_are_not_kept() {
        let place = tempfile::tempdir().unwrap();
        let beside = "client\ndev tun\nremote a.example\nca /etc/shadow\nauth-user-pass\n";
        for (name, of, text) in [
            ("../x", "a.conf", WIREGUARD),
            ("", "a.conf", WIREGUARD),
            ("millrace", "a.toml", "protocol = \"pptp\"\n"),
            ("broken", "a.conf", "[Interface]\nPrivateKey = short\n"),
            ("beside", "a.ovpn", beside),
        ] {
            assert!(
                take(&file(name, of, text), place.path(), true).is_err(),
                "{name}"
            );
        }
        assert!(fs::read_dir(place.path()).unwrap().next().is_none());
    }

    #[cfg(feature = "policy")]
    #[test]
    fn rules_are_added_behind_others_and_none_decides_twice() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("policy.toml");
        let given = |name: &str, mac: &str, lan: &str, through: &str| Given {
            name: name.to_owned(),
            mac: mac.to_owned(),
            lan: lan.to_owned(),
            through: through.to_owned(),
            ..Given::default()
        };
        let television = given("TV \"x\"\n", "02:00:5e:10:00:01", "br-lan", "mr-us");
        let shown = rule(&television, &path, false).unwrap();
        let text = "lan = [\"br-lan\"]\n\n[[entry]]\nname = \"TVx\"\nwho = \"02:00:5e:10:00:01\"\nthrough = \"mr-us\"\n";
        assert_eq!(shown["said"], text);
        assert!(!path.exists());
        rule(&television, &path, true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::write(&path, format!("# mine\n{text}")).unwrap();
        rule(
            &given("TVx", "02:00:5e:10:00:02", "br-lan", ""),
            &path,
            true,
        )
        .unwrap();
        rule(&given("", "", "br-lan", "mr-nl"), &path, true).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let policy = Policy::from_toml(&text, &path).unwrap();
        let names: Vec<&str> = policy.entries.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["TVx", "TVx-2", "br-lan"]);
        assert!(text.starts_with("# mine\n"));
        for (wrong, why) in [
            (&television, "entry TVx of"),
            (
                &given("a", "02:00:5e:10:00:09", "br-guest", "mr-us"),
                "add it to `lan`",
            ),
            (
                &given("a", "02:00:5e", "br-lan", "mr-us"),
                "hardware address",
            ),
            (
                &given("a", "02:00:5e:10:00:09", "br-lan", "a\"b"),
                "choose a tunnel",
            ),
            (
                &given("a", "02:00:5e:10:00:09", "a\"b", "mr-us"),
                "choose a device",
            ),
            (
                &given("a", "02:00:5e:10:00:09", "br-lan", "br-lan"),
                "as a tunnel",
            ),
        ] {
            let error = rule(wrong, &path, true).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
