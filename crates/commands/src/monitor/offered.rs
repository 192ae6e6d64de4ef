//! Files and rules that the page's user submits.

use crate::check::{self, Judged};
#[cfg(feature = "policy")]
use crate::entries::commands;
use crate::entries::{has_systemd, is_openwrt};
use crate::import::{self, ImportingError};
#[cfg(feature = "policy")]
use crate::policy::rules::{self, Wanted};
use crate::profile::DIRECTORY;
#[cfg(feature = "policy")]
use config::kind::Kind;
use config::permissions::Permissions;
use config::policy::DEFAULT_PATH;
#[cfg(feature = "policy")]
use config::policy::Mac;
use config::report::Verdict;
#[cfg(feature = "policy")]
use config::types::is_ifname;
#[cfg(feature = "policy")]
use config::{openvpn, wgquick};
use openwrt::uci::{self, Package};
use serde::Deserialize;
use serde_json::{Value, json};
#[cfg(feature = "policy")]
use service::running;
use std::fs;
use std::io::ErrorKind;
#[cfg(feature = "policy")]
use std::net::IpAddr;
use std::path::Path;
use zeroize::Zeroizing;

/// The UCI file of interfaces.
const NETWORK: &str = "/etc/config/network";

/// Longest text of a wrong hardware address in a message, in characters.
#[cfg(feature = "policy")]
const SHOWN_MAX: usize = 32;

/// The arguments of all methods.
#[derive(Clone, Default, Deserialize)]
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
    /// The device's IPv4 address, if it has a lease.
    address: String,
    /// The router's device through which the packets come in.
    lan: String,
    /// The tunnel for them; empty to block them.
    through: String,
    /// Name servers behind that tunnel, separated by spaces or commas; empty for those of the tunnel's file.
    dns: String,
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
        let network = is_openwrt().then_some(Path::new(NETWORK));
        match self {
            Self::Check => take(given, Path::new(DIRECTORY), network, false),
            Self::Import => take(given, Path::new(DIRECTORY), network, true),
            Self::Plan => rule(given, Path::new(DEFAULT_PATH), false),
            Self::Add => rule(given, Path::new(DEFAULT_PATH), true),
        }
    }
}

/// Judges a file, and keeps it if `keeps`. `network` is the UCI file of the interfaces, on OpenWrt.
fn take(given: &Given, to: &Path, network: Option<&Path>, keeps: bool) -> Result<Value, String> {
    // The page has a field for the name.
    let words = |error: ImportingError| error.to_string().replace(" with --name", "");
    let Given {
        name, file, text, ..
    } = given;
    import::available(name, to).map_err(words)?;
    if let Some(network) = network {
        check_section(name, network, to)?;
    }
    let linked = import::unlinked(text).map_err(words)?;
    let (file, text) = match &linked {
        Some(text) => (import::LINK, text.as_str()),
        None => (file.as_str(), text.as_str()),
    };
    let kept = import::place(to, name, Path::new(file), text);
    import::may_keep(&kept, Permissions::default()).map_err(words)?;
    let judge = |text: &str| import::judge_alone(&kept, text, network.is_some());
    let mut judged = judge(text).map_err(|error| words(error.into()))?;
    if keeps {
        if !judged.usable {
            return Err(words(ImportingError::Unusable(judged.faults)));
        }
        let text = import::keep(&kept, text, &judged.report, judge).map_err(words)?;
        let mut said = format!("Kept as {}.", kept.display());
        if import::is_asking(&kept, &text) {
            said += " It asks for a user name and a password: put them on two lines into this file, between \
                     <auth-user-pass> and </auth-user-pass>.";
        }
        return Ok(json!({"said": said, "start": start(name, &kept)}));
    }
    judged.report.file = match file {
        "" => "the text".to_owned(),
        file => file.to_owned(),
    };
    let refused = judged.report.with(Verdict::Refused);
    let refused: Vec<String> = refused.map(|it| judged.report.describe(it)).collect();
    Ok(json!({"said": verdict(&judged), "usable": judged.usable, "refused": refused}))
}

/// The section of UCI's `network` for a tunnel: its name may have no other characters.
fn section(name: &str) -> String {
    name.replace(|it: char| !it.is_ascii_alphanumeric(), "_")
}

/// Checks that the commands which start a tunnel would change no other section of `network`.
fn check_section(name: &str, network: &Path, to: &Path) -> Result<(), String> {
    let own = section(name);
    let failed = |why: &str| format!("{}: {why}; mend it first", network.display());
    let text = match uci::read(network) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => Zeroizing::default(),
        Err(error) => return Err(failed(&error.to_string())),
    };
    let parsed = Package::parse_for(&String::from_utf8_lossy(&text), |_| false);
    let (package, _) = parsed.map_err(|_| failed("its sections cannot be read"))?;
    if package.section(&own).is_some() {
        return Err(format!(
            "{} has a section {own} already; choose another name",
            network.display()
        ));
    }
    let files = fs::read_dir(to).into_iter().flatten().flatten();
    let mut files = files.map(|it| it.path()).filter(|it| {
        let stem = it.file_stem().unwrap_or_default().to_string_lossy();
        crate::profile::is_profile(it) && section(&stem) == own
    });
    match files.next() {
        None => Ok(()),
        Some(other) => Err(format!(
            "{} would have the same section {own} of {}; choose another name",
            other.display(),
            network.display()
        )),
    }
}

/// The verdict on a file, in a sentence.
fn verdict(judged: &Judged) -> String {
    let [honoured, ignored, refused] = check::counts(&judged.report);
    if !judged.usable {
        return "No tunnel can be made from this file.".to_owned();
    }
    let lines = if honoured == 1 { "line" } else { "lines" };
    let mut words = format!("A tunnel can be made from this file: {honoured} {lines} honoured");
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

/// The commands that start a tunnel, at each boot too.
fn start(name: &str, kept: &Path) -> String {
    if is_openwrt() {
        let section = section(name);
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
#[cfg(feature = "policy")]
fn rule(given: &Given, path: &Path, writes: bool) -> Result<Value, String> {
    let Given {
        mac, lan, through, ..
    } = given;
    if !is_ifname(lan) {
        return Err("choose a device of the LAN".to_owned());
    }
    if !mac.is_empty() && Mac::new(mac).is_none() {
        let mac: String = mac.chars().take(SHOWN_MAX).collect();
        return Err(format!(
            "{mac} is not a hardware address; write one such as 02:00:5e:10:00:01"
        ));
    }
    if !through.is_empty() && !is_ifname(through) {
        return Err("choose a tunnel".to_owned());
    }
    let dns = name_servers(given)?;
    let wanted = Wanted {
        name: given.name.clone(),
        who: vec![if mac.is_empty() { lan } else { mac }.clone()],
        through: through.clone(),
        way: if through.is_empty() { "block" } else { "" },
        lan: Some(lan.clone()),
        address: given.address.parse().ok(),
        dns: dns.iter().map(ToString::to_string).collect(),
        ..Wanted::default()
    };
    if !writes {
        let planned = rules::plan(&wanted, path).map_err(|error| error.to_string())?;
        let note = match dns.is_empty() && !given.through.is_empty() {
            true => {
                "Names will be looked up outside the tunnel: its name servers are unknown. Enter one behind it."
            }
            false => "",
        };
        return Ok(json!({"said": planned.shown, "note": note}));
    }
    rules::add(&wanted, path).map_err(|error| error.to_string())?;
    if path == Path::new(DEFAULT_PATH) && crate::policy::follow(path) {
        let said = format!("Written to {}, and applied.", path.display());
        return Ok(json!({"said": said, "start": ""}));
    }
    // The service may run already.
    let commands = ["start", "restart"].map(|verb| commands("policy", verb));
    let commands: Option<Vec<String>> = commands.into_iter().collect();
    let start = commands.map_or_else(|| "millrace policy on".to_owned(), |it| it.join("\n"));
    Ok(json!({"said": format!("Written to {}.", path.display()), "start": start}))
}

/// The name servers of a rule through a tunnel: those that the user has entered, or that the tunnel's file names. The
/// policy takes one of each family.
#[cfg(feature = "policy")]
fn name_servers(given: &Given) -> Result<Vec<IpAddr>, String> {
    let mut servers = Vec::new();
    for word in given.dns.split([' ', ',']).filter(|it| !it.is_empty()) {
        let server = word.parse::<IpAddr>();
        servers.push(server.map_err(|_| {
            let word: String = word.chars().take(SHOWN_MAX).collect();
            format!("{word} is not an address of a name server; write one such as 10.8.0.1")
        })?);
    }
    if given.through.is_empty() || !servers.is_empty() {
        return Ok(servers);
    }
    let mut running = running::all().unwrap_or_default().into_iter();
    // OpenWrt, and our pages, put "mr-" before a tunnel's name.
    let is_it = |name: &str| [name, &format!("mr-{name}")].contains(&given.through.as_str());
    let all = running
        .find(|it| is_it(&it.name))
        .map(|it| named_by(&it.path));
    let all = all.unwrap_or_default();
    let first = |v6| all.iter().find(|it| it.is_ipv6() == v6).copied();
    Ok([first(false), first(true)].into_iter().flatten().collect())
}

/// The name servers that a tunnel's file names.
#[cfg(feature = "policy")]
fn named_by(path: &Path) -> Vec<IpAddr> {
    let permissions = Permissions::default();
    let wireguard = || {
        Some(
            wgquick::read(path, permissions)
                .ok()?
                .into_tunnel()
                .ok()?
                .0
                .interface
                .dns,
        )
    };
    let openvpn = || {
        let options = openvpn::Options {
            allow_insecure_ciphers: true,
            permissions,
        };
        let (model, _) = openvpn::read(path, options).ok()?.into_model().ok()?;
        Some(model.network.dhcp.dns)
    };
    let dns = match Kind::at(path) {
        Kind::WireGuard => wireguard(),
        Kind::OpenVpn => openvpn(),
        Kind::Pptp | Kind::Relay => None,
    };
    dns.unwrap_or_default()
}

/// This build has no policy.
#[cfg(not(feature = "policy"))]
fn rule(_: &Given, _: &Path, _: bool) -> Result<Value, String> {
    Err("this build of Millrace has no `policy`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::CA;
    #[cfg(feature = "policy")]
    use config::policy::Policy;

    const WIREGUARD: &str =
        "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";

    const RELAY: &str = "[Relay]\nListen = 51821\nTarget = 192.0.2.1:51820\n[Client]\nName = branch\n\
        Key = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";

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
        let take = |given: &Given, keeps| take(given, place.path(), None, keeps);
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
        let refused = told["refused"][0].as_str().unwrap();
        assert!(
            refused.starts_with("provider.ovpn:") && refused.contains("up"),
            "{told}"
        );
        let pasted = Given {
            file: String::new(),
            ..given.clone()
        };
        let told = take(&pasted, false).unwrap();
        let refused = told["refused"][0].as_str().unwrap();
        assert!(refused.starts_with("the text:"), "{told}");
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

    #[cfg(feature = "amnezia")]
    #[test]
    fn a_link_is_judged_and_kept_as_a_file() {
        use config::amnezia::link;
        let place = tempfile::tempdir().unwrap();
        let text = format!("{WIREGUARD}PostUp = /x\n[Peer]\nEndpoint = 192.0.2.1:7\nPublicKey = ")
            + "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nAllowedIPs = 10.0.0.0/8\n";
        let link = link::write(&text, "phone").unwrap();
        let codes = link::series(&link).unwrap();
        let codes: Vec<&str> = codes.iter().map(|it| it.as_str()).collect();
        for (name, of, text) in [("a", "a.ovpn", link.as_str()), ("b", "", &codes.join("\n"))] {
            let take = |text: &str, keeps| take(&file(name, of, text), place.path(), None, keeps);
            let told = take(text, false).unwrap();
            let refused = told["refused"][0].as_str().unwrap();
            assert!(
                refused.starts_with("link:3:") && refused.contains("PostUp"),
                "{told}"
            );
            take(text, true).unwrap();
            let kept = fs::read_to_string(place.path().join(format!("{name}.conf"))).unwrap();
            assert!(
                kept.contains("192.0.2.1:7") && !kept.contains("/x"),
                "{kept}"
            );
        }
        let cut = file("c", "", &link[..link.len() - 9]);
        let error = take(&cut, place.path(), None, true).unwrap_err();
        assert!(error.contains("copy it again"), "{error}");
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
            ("relay", "a.conf", RELAY),
        ] {
            assert!(
                take(&file(name, of, text), place.path(), None, true).is_err(),
                "{name}"
            );
        }
        assert!(fs::read_dir(place.path()).unwrap().next().is_none());
    }

    #[test]
    fn name_servers_come_from_the_tunnels_file() {
        let place = tempfile::tempdir().unwrap();
        let named = |file: &str, text: &str| {
            let path = place.path().join(file);
            fs::write(&path, text).unwrap();
            let servers: Vec<String> = named_by(&path).iter().map(ToString::to_string).collect();
            servers.join(" ")
        };
        let text = format!("{WIREGUARD}DNS = 10.2.0.1, fd00::1\n");
        assert_eq!(named("a.conf", &text), "10.2.0.1 fd00::1");
        let text = format!(
            "client\ndev tun\nremote 192.0.2.1\nauth-user-pass\ndhcp-option DNS 10.8.0.1\n{CA}"
        );
        assert_eq!(named("a.ovpn", &text), "10.8.0.1");
        assert_eq!(named("b.conf", "[Interface]\n"), "");
    }

    /// The commands for OpenWrt set the section that a tunnel's name gives.
    #[test]
    fn no_tunnel_takes_a_section_that_exists() {
        let place = tempfile::tempdir().unwrap();
        let network = place.path().join("network");
        let to = place.path().join("millrace");
        fs::write(
            &network,
            "config interface 'wan'\n\toption proto 'dhcp'\nconfig device a_b\nconfig route\n",
        )
        .unwrap();
        let take =
            |name: &str, keeps| take(&file(name, "x.conf", WIREGUARD), &to, Some(&network), keeps);
        for (name, is) in [
            ("wan", false),
            ("a-b", false),
            ("wan2", true),
            ("c-d", true),
        ] {
            let taken = take(name, true);
            assert_eq!(taken.is_ok(), is, "{name}: {taken:?}");
            assert!(is || taken.unwrap_err().contains("has a section"));
        }
        // The kept file of c-d would have the same section.
        assert!(take("c_d", false).unwrap_err().contains("c-d.conf"));
        fs::write(&network, "config interface 'wan\n").unwrap();
        assert!(take("other", false).unwrap_err().contains("cannot be read"));
    }

    /// The first entry that matches decides, so a rule stands before a wider one.
    #[cfg(feature = "policy")]
    #[test]
    fn a_rule_stands_before_entries_that_would_decide_first() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("policy.toml");
        let given = Given {
            name: "TV".to_owned(),
            mac: "02:00:5e:10:00:01".to_owned(),
            lan: "br-lan".to_owned(),
            address: "192.168.1.7".to_owned(),
            ..Given::default()
        };
        let whole = Given {
            mac: String::new(),
            address: String::new(),
            name: String::new(),
            ..given.clone()
        };
        let entry = |name: &str, rest: &str| {
            format!("# About {name}.\n[[entry]]\nname = \"{name}\"\n{rest}\nway = \"around\"\n\n")
        };
        let bank = entry("bank", "to = \"203.0.113.0/24\"");
        let pc = entry("pc", "who = \"02:00:5e:10:00:02\"");
        for (who, given, wanted) in [
            ("who = \"br-lan\"", &given, Ok(["bank", "pc", "TV", "x"])),
            (
                "who = \"192.168.1.0/24\"",
                &given,
                Ok(["bank", "pc", "TV", "x"]),
            ),
            ("who = \"laptop\"", &given, Ok(["bank", "pc", "TV", "x"])),
            ("who = \"br-guest\"", &given, Ok(["bank", "pc", "x", "TV"])),
            ("who = \"tv\"", &given, Err("entry x of")),
            ("who = \"192.168.1.7\"", &given, Err("entry x of")),
            ("who = \"02:00:5e:10:00:01\"", &given, Err("entry x of")),
            ("who = \"br-lan\"", &whole, Err("entry x of")),
            (
                "who = \"laptop\"",
                &whole,
                Ok(["bank", "pc", "x", "br-lan"]),
            ),
        ] {
            let text = format!(
                "lan = [\"br-lan\", \"br-guest\"]\n\n{bank}{pc}{}",
                entry("x", who)
            );
            fs::write(&path, &text).unwrap();
            let shown = rule(given, &path, false);
            match (rule(given, &path, true), wanted) {
                (Ok(_), Ok(wanted)) => {
                    let text = fs::read_to_string(&path).unwrap();
                    let policy = Policy::from_toml(&text, &path).unwrap();
                    let names: Vec<&str> =
                        policy.entries.iter().map(|it| it.name.as_str()).collect();
                    assert_eq!(names, wanted, "{who}");
                    assert!(
                        text.contains("# About x.\n[[entry]]\nname = \"x\""),
                        "{text}"
                    );
                    let is_before = shown.unwrap()["said"]
                        .to_string()
                        .contains("comes before entry x,");
                    assert_eq!(is_before, wanted[3] == "x", "{who}");
                }
                (Err(error), Err(wanted)) => {
                    assert!(error.starts_with(wanted), "{who}: {error}");
                    assert_eq!(fs::read_to_string(&path).unwrap(), text);
                }
                (told, _) => panic!("{who}: {told:?}"),
            }
        }
        // The page changes no table that is written another way.
        let text =
            "lan = [\"br-lan\"]\nentry = [{ name = \"x\", who = \"br-lan\", way = \"block\" }]\n";
        fs::write(&path, text).unwrap();
        assert!(rule(&given, &path, true).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
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
        let text = "lan = [\"br-lan\"]\nmasquerade = true\n\n[[entry]]\nname = \"TVx\"\n\
                    who = \"02:00:5e:10:00:01\"\nthrough = \"mr-us\"\n";
        assert_eq!(shown["said"], text);
        assert!(
            shown["note"]
                .as_str()
                .unwrap()
                .contains("outside the tunnel"),
            "{shown}"
        );
        assert!(!path.exists());
        let asked = |dns: &str| Given {
            dns: dns.to_owned(),
            ..television.clone()
        };
        let shown = rule(&asked("10.8.0.1, fd08::1"), &path, false).unwrap();
        assert_eq!(
            shown["said"],
            format!("{text}dns = [\"10.8.0.1\", \"fd08::1\"]\n")
        );
        assert_eq!(shown["note"], "");
        for (dns, why) in [
            ("dns.example", "is not an address of a name server"),
            ("10.8.0.1 10.8.0.2", "one of IPv4"),
            ("\"]", "is not an address of a name server"),
        ] {
            let error = rule(&asked(dns), &path, false).unwrap_err();
            assert!(error.contains(why), "{dns}: {error}");
        }
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
                "02:00:5e is not a hardware address",
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
