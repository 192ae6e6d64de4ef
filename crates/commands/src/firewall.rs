//! OpenWrt's firewall, as far as PPTP depends on it.

use config::kind::Kind;
use config::pptp::GRE_RULE;
use openwrt::uci::{Package, Section};
#[cfg(feature = "openwrt")]
use serde_json::{Value, json};
use std::fs;
#[cfg(feature = "openwrt")]
use std::path::Path;

/// The firewall's settings on OpenWrt.
pub(crate) const SETTINGS: &str = "/etc/config/firewall";

/// Whether this host has OpenWrt's firewall, and it rejects GRE from the Internet.
pub(crate) fn rejects_gre() -> bool {
    fs::read_to_string(SETTINGS).is_ok_and(|text| rejects(&text))
}

/// The rule that a tunnel's file of this kind needs, in a sentence; `rejects` is [`rejects_gre`].
pub(crate) fn missing_rule(kind: Kind, rejects: impl FnOnce() -> bool) -> Option<String> {
    (kind == Kind::Pptp && rejects()).then(|| {
        format!("PPTP needs GRE (IP protocol 47), which this router's firewall rejects; allow it with: {GRE_RULE}")
    })
}

/// The rule for LuCI to add, as its section's name and options, if the settings in this directory of UCI files reject GRE.
#[cfg(feature = "openwrt")]
pub(crate) fn offered_rule(uci: &Path) -> Option<Value> {
    let text = fs::read_to_string(uci.join("firewall")).ok()?;
    if !rejects(&text) {
        return None;
    }
    let sets = GRE_RULE.split("; ");
    let sets = sets.filter_map(|it| it.strip_prefix("uci set firewall.")?.split_once('='));
    let mut rule = json!({});
    for (path, value) in sets {
        match path.split_once('.') {
            Some((_, option)) => rule["options"][option] = value.into(),
            None => rule["section"] = path.into(),
        }
    }
    Some(rule)
}

/// Whether settings with a zone `wan` reject GRE from there.
fn rejects(text: &str) -> bool {
    let Ok(package) = Package::parse(text) else {
        return false;
    };
    let is_accepted =
        |value: Option<&str>| value.is_some_and(|it| it.eq_ignore_ascii_case("accept"));
    let mut zones = package.of_kind("zone");
    let Some(wan) = zones.find(|zone| zone.text("name") == Some("wan")) else {
        return false;
    };
    let mut defaults = package.of_kind("defaults");
    let input = wan.text("input").or_else(|| defaults.next()?.text("input"));
    let accepts = |rule: &Section| {
        let all = |name, words: &[&str]| {
            let mut values = rule.setting(name).into_iter().flat_map(|it| it.values());
            values.any(|it| words.contains(&it.to_ascii_lowercase().as_str()))
        };
        !all("enabled", &["0", "off", "false", "no", "disabled"])
            && all("src", &["wan", "*"])
            && rule.setting("dest").is_none()
            && all("proto", &["gre", "47", "all", "any", "*"])
            && !all("family", &["ipv6"])
            && is_accepted(rule.text("target"))
    };
    !is_accepted(input) && !package.of_kind("rule").any(accepts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OpenWrt's zones, and a rule for another protocol.
    const DEFAULT: &str = "config defaults\n option input REJECT\nconfig zone\n option name lan\n option input ACCEPT\n\
        config zone\n option name wan\n list network wan\n option input REJECT\n option masq 1\n\
        config rule\n option src wan\n option proto icmp\n option target ACCEPT\n";

    #[test]
    fn the_default_firewall_rejects_gre_until_a_rule_accepts_it() {
        assert!(rejects(DEFAULT));
        let rule = |lines: &str| rejects(&format!("{DEFAULT}config rule\n{lines}"));
        let gre = " option src wan\n option target ACCEPT\n option proto gre\n";
        for enough in [
            gre,
            " option src '*'\n option target accept\n list proto tcp\n list proto GRE\n",
            " option src wan\n option target ACCEPT\n option proto 'udp 47'\n option family ipv4\n",
            " option src wan\n option target ACCEPT\n option proto all\n option src_ip 192.0.2.1\n",
        ] {
            assert!(!rule(enough), "{enough}");
        }
        for more in [
            " option enabled 0\n",
            " option enabled Off\n",
            " option dest lan\n",
            " option family ipv6\n",
        ] {
            assert!(rule(&format!("{gre}{more}")), "{more}");
        }
        let other = [gre.replace("wan", "lan"), gre.replace("ACCEPT", "DROP")];
        assert!(other.iter().all(|lines| rule(lines)));
        assert!(!rejects(&DEFAULT.replace("input REJECT", "input ACCEPT")));
        assert!(rejects(
            &DEFAULT.replace(" list network wan\n option input REJECT\n", "")
        ));
        for none in ["", "config zone\n option name lan\n", "config 'zone\n"] {
            assert!(!rejects(none), "{none}");
        }
    }

    #[test]
    fn the_offered_commands_make_such_a_rule() {
        let words = missing_rule(Kind::Pptp, || true).unwrap();
        let commands = words.split_once("with: ").unwrap().1.split("; ");
        let mut rule = String::new();
        for set in commands.filter_map(|it| it.strip_prefix("uci set firewall.millrace_pptp_gre")) {
            rule += &match set.split_once('=').unwrap() {
                ("", kind) => format!("config {kind} pptp\n"),
                (option, value) => format!(" option {} {value}\n", option.trim_start_matches('.')),
            };
        }
        assert!(!rejects(&format!("{DEFAULT}{rule}")), "{rule}");
        assert_eq!(missing_rule(Kind::Pptp, || false), None);
        assert_eq!(missing_rule(Kind::OpenVpn, || true), None);
    }

    #[test]
    #[cfg(feature = "openwrt")]
    fn luci_gets_the_rule_until_it_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let offered = |text: &str| {
            fs::write(directory.path().join("firewall"), text).unwrap();
            offered_rule(directory.path())
        };
        let rule = offered(DEFAULT).unwrap();
        let mut same = format!("config rule {}\n", rule["section"].as_str().unwrap());
        for (option, value) in rule["options"].as_object().unwrap() {
            same += &format!(" option {option} {}\n", value.as_str().unwrap());
        }
        assert_eq!(offered(&format!("{DEFAULT}{same}")), None, "{same}");
        assert_eq!(offered_rule(Path::new("/nonexistent")), None);
    }
}
