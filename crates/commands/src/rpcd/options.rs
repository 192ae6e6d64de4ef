//! Converts a `wg-quick` file to UCI options, which `docs/openwrt.md` lists.

use crate::peer::secret;
use config::clients;
use config::permissions::Permissions;
use config::tunnel::{Peer, Table, Tunnel};
use config::types::Host;
use config::wgquick;
use serde_json::{Map, Value, json};
use zeroize::{Zeroize as _, Zeroizing};

/// The options of the interface and its peers; `None` if options cannot express the whole file.
pub(super) fn of(text: &str) -> Option<Value> {
    let import = wgquick::parse(text, "", Permissions::NONE);
    let (tunnel, _) = import.into_tunnel().ok()?;
    // Options cannot express the file's own lines, or a server at home.
    if !tunnel.lines.is_default() || tunnel.home.is_some() {
        return None;
    }
    #[cfg(feature = "postquantum")]
    if tunnel.peers.iter().any(|it| it.requires_post_quantum()) {
        return None;
    }
    let named = clients::sections(text);
    let name = |peer: &Peer| {
        let key = peer.public_key.to_base64();
        let section = named.iter().find(|it| it.public_key == *key)?;
        section.name.clone()
    };
    let peers: Vec<Value> = tunnel
        .peers
        .iter()
        .map(|peer| of_peer(peer, name(peer), tunnel.interface.table != Table::Off))
        .collect();
    Some(json!({"interface": of_interface(&tunnel), "peers": peers}))
}

/// Options of an interface that name another file, or are lists, to which the commands would add.
const OLD_OPTIONS: [&str; 4] = ["config_file", "addresses", "dns", "dns_search"];

/// Maximum number of peers that the commands remove: an interface with a client's file has one.
const OLD_PEERS: usize = 4;

/// Commands for `uci batch` that set these options of the interface `name`, which may exist; `None` as for [`of`].
pub(crate) fn batch(text: &str, name: &str) -> Option<Zeroizing<String>> {
    let Value::Object(mut options) = of(text)? else {
        return None;
    };
    let mut begin = format!("set network.{name}=interface\nset network.{name}.proto=millrace\n");
    // An empty value removes an option or a section, if there is one.
    for option in OLD_OPTIONS {
        begin += &format!("set network.{name}.{option}=\n");
    }
    #[cfg(feature = "amnezia")]
    for (option, _) in config::amnezia::OPTIONS.iter() {
        begin += &format!("set network.{name}.{option}=\n");
    }
    begin += &format!("set network.@millrace_{name}[0]=\n").repeat(OLD_PEERS);
    let mut lines = vec![Zeroizing::new(begin)];
    if let Some(interface) = options.remove("interface") {
        add_options(&mut lines, &format!("network.{name}"), interface);
    }
    if let Some(Value::Array(peers)) = options.remove("peers") {
        for (number, peer) in (1..).zip(peers) {
            let number = if number == 1 {
                String::new()
            } else {
                number.to_string()
            };
            let section = format!("network.{name}_server{number}");
            lines.push(Zeroizing::new(format!("set {section}=millrace_{name}\n")));
            add_options(&mut lines, &section, peer);
        }
    }
    lines.push(Zeroizing::new("commit network\n".to_owned()));
    let lines: Vec<&str> = lines.iter().map(|it| it.as_str()).collect();
    Some(secret(&lines))
}

/// Adds commands for the options of a section. Overwrites the values, which may be keys.
fn add_options(lines: &mut Vec<Zeroizing<String>>, section: &str, options: Value) {
    let Value::Object(options) = options else {
        return;
    };
    for (name, value) in options {
        let (verb, values) = match value {
            Value::Array(values) => ("add_list ", values),
            value => ("set ", vec![value]),
        };
        for value in values {
            if let Value::String(mut text) = value {
                let mut quoted = text.replace('\'', r"'\''");
                lines.push(secret(&[verb, section, ".", &name, "='", &quoted, "'\n"]));
                text.zeroize();
                quoted.zeroize();
            }
        }
    }
}

fn of_interface(tunnel: &Tunnel) -> Map<String, Value> {
    let interface = &tunnel.interface;
    let mut out = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(name.to_owned(), value);
        }
    };
    let key = interface.private_key.as_ref().map(|it| it.to_base64());
    set("private_key", key.map(|it| json!(it.as_str())));
    set("listen_port", interface.listen_port.map(|it| word(&it)));
    set("addresses", list(&interface.addresses));
    set("mtu", interface.mtu.map(|it| word(&it)));
    set(
        "fwmark",
        interface.fwmark.map(|it| json!(format!("{it:#x}"))),
    );
    set("dns", list(&interface.dns));
    set("dns_search", list(&interface.dns_search));
    if let Table::Id(number) = interface.table {
        set("ip4table", Some(word(&number)));
        set("ip6table", Some(word(&number)));
    }
    #[cfg(feature = "amnezia")]
    for (option, value) in config::amnezia::options(&interface.amnezia) {
        set(option, Some(json!(value.as_str())));
    }
    out
}

fn of_peer(peer: &Peer, name: Option<String>, routed: bool) -> Value {
    let mut out = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(name.to_owned(), value);
        }
    };
    set("description", name.map(Value::from));
    set(
        "public_key",
        Some(json!(peer.public_key.to_base64().as_str())),
    );
    let shared = peer.preshared_key.as_ref().map(|it| it.to_base64());
    set("preshared_key", shared.map(|it| json!(it.as_str())));
    set("allowed_ips", list(&peer.allowed_ips));
    set("route_allowed_ips", Some(word(&u8::from(routed))));
    if let Some(endpoint) = &peer.endpoint {
        let host = match &endpoint.host {
            Host::Ip(addr) => addr.to_string(),
            Host::Scoped(addr, zone) => format!("{addr}%{zone}"),
            Host::Name(name) => name.clone(),
        };
        set("endpoint_host", Some(json!(host)));
        set("endpoint_port", Some(word(&endpoint.port)));
    }
    set(
        "persistent_keepalive",
        peer.persistent_keepalive.map(|it| word(&it)),
    );
    Value::Object(out)
}

/// A value as text, as UCI has no other type.
fn word<T: ToString>(value: &T) -> Value {
    json!(value.to_string())
}

fn list<T: ToString>(items: &[T]) -> Option<Value> {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    (!items.is_empty()).then(|| json!(items))
}

#[cfg(test)]
mod tests {
    use super::*;
    use openwrt::network::{Network, Source};
    use openwrt::uci::Package;

    const FILE: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
        ListenPort = 51821\nFwMark = 0x10\nMTU = 1380\nAddress = 10.8.0.2/32, fd00::2/128\nDNS = 10.8.0.1, corp.example\n\n\
        [Peer]\n#! Name = head-office\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
        PresharedKey = FpCyhws9cxwWoV4xELtfJvjJN+zQVRPISllRWgeopVE=\nAllowedIPs = 0.0.0.0/0, ::/0\n\
        Endpoint = vpn.example.org:51820\nPersistentKeepalive = 25\n\n\
        [Peer]\nPublicKey = TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=\nEndpoint = [fe80::1%eth0]:5\nAllowedIPs = 10.9.0.0/16\n";

    /// Writes UCI's options as a page would.
    fn written(value: &Value, out: &mut String) {
        for (name, value) in value.as_object().unwrap() {
            match value {
                Value::Array(items) => {
                    for item in items {
                        *out += &format!("\tlist {name} '{}'\n", item.as_str().unwrap());
                    }
                }
                value => *out += &format!("\toption {name} '{}'\n", value.as_str().unwrap()),
            }
        }
    }

    #[test]
    fn options_say_what_the_file_says() {
        let options = of(FILE).unwrap();
        assert_eq!(options["peers"][0]["description"], "head-office");
        assert_eq!(options["interface"]["dns_search"], json!(["corp.example"]));
        let mut text = "config interface 'office'\n\toption proto 'millrace'\n".to_owned();
        written(&options["interface"], &mut text);
        for peer in options["peers"].as_array().unwrap() {
            text += "config millrace_office\n";
            written(peer, &mut text);
        }
        let package = Package::parse(&text).unwrap();
        let network = Network::read(&package, "office").unwrap();
        assert_eq!(network.warnings, []);
        let Source::Options { tunnel, unrouted } = network.source else {
            panic!("no options");
        };
        let (mut wanted, _) = wgquick::parse(FILE, "", Permissions::NONE)
            .into_tunnel()
            .unwrap();
        assert_eq!(tunnel.peers, wanted.peers);
        assert!(unrouted.is_empty());
        assert_eq!(network.mtu, wanted.interface.mtu.take());
        // netifd sets the name servers.
        wanted.interface.dns.clear();
        wanted.interface.dns_search.clear();
        assert_eq!(tunnel.interface, wanted.interface);
    }

    /// A section of a configuration: its name, its type, and its options and lists with all values.
    struct Section {
        name: Option<String>,
        kind: String,
        values: Vec<(&'static str, String, String)>,
    }

    /// Carries out commands as `uci batch` would.
    fn carry_out(batch: &str, sections: &mut Vec<Section>) {
        for line in batch.lines().filter(|it| *it != "commit network") {
            let (verb, rest) = line.split_once(' ').unwrap();
            let (path, value) = rest.split_once('=').unwrap();
            let mut words = path.strip_prefix("network.").unwrap().split('.');
            let (word, option) = (words.next().unwrap(), words.next());
            let first_of = word.strip_prefix('@').and_then(|it| it.strip_suffix("[0]"));
            let found = sections.iter().position(|it| match first_of {
                Some(kind) => it.kind == kind,
                None => it.name.as_deref() == Some(word),
            });
            match (option, found) {
                (None, Some(at)) if value.is_empty() => drop(sections.remove(at)),
                (None, None) if !value.is_empty() => sections.push(Section {
                    name: Some(word.to_owned()),
                    kind: value.to_owned(),
                    values: Vec::new(),
                }),
                (None, Some(at)) => sections[at].kind = value.to_owned(),
                (None, None) => {}
                (Some(option), at) => {
                    let values = &mut sections[at.unwrap()].values;
                    let kind = if verb == "set" { "option" } else { "list" };
                    if kind == "option" {
                        values.retain(|(_, name, _)| name != option);
                    }
                    if !value.is_empty() {
                        values.push((kind, option.to_owned(), value.to_owned()));
                    }
                }
            }
        }
    }

    /// The sections as `uci` writes them.
    fn text_of(sections: &[Section]) -> String {
        let mut out = String::new();
        for Section { name, kind, values } in sections {
            let name = name.as_deref().map(|it| format!(" '{it}'"));
            out += &format!("config {kind}{}\n", name.unwrap_or_default());
            for (kind, option, value) in values {
                out += &format!("\t{kind} {option} {value}\n");
            }
        }
        out
    }

    #[test]
    fn commands_for_uci_say_what_the_file_says_whatever_was_there() {
        let old_peer = Section {
            name: None,
            kind: "millrace_home".to_owned(),
            values: vec![("option", "description".to_owned(), "'old'".to_owned())],
        };
        let option = |name: &str, value: &str| ("option", name.to_owned(), format!("'{value}'"));
        let file = Section {
            name: Some("home".to_owned()),
            kind: "interface".to_owned(),
            values: vec![
                option("config_file", "/etc/millrace/store-7.conf"),
                option("metric", "7"),
            ],
        };
        let mut sections = vec![file, old_peer];
        let moved = FILE
            .replace("vpn.example.org", "new.example.org")
            .replace("FpCyhws9", "GpCyhws9")
            .replace("yAnz5TF", "yBnz5TF");
        let short = FILE.split("\n[Peer]\nPublicKey").next().unwrap();
        let short = short.replace("DNS = 10.8.0.1, corp.example\n", "");
        for file in [FILE, &moved, &short, FILE] {
            carry_out(&batch(file, "home").unwrap(), &mut sections);
            let text = text_of(&sections);
            let package = Package::parse(&text).unwrap();
            let network = Network::read(&package, "home").unwrap();
            assert_eq!(network.warnings, []);
            let Source::Options { tunnel, .. } = network.source else {
                panic!("no options");
            };
            let (wanted, _) = wgquick::parse(file, "", Permissions::NONE)
                .into_tunnel()
                .unwrap();
            assert_eq!(tunnel.peers, wanted.peers, "{text}");
            let key = |it: &Tunnel| it.interface.private_key.clone();
            assert_eq!(key(&tunnel), key(&wanted));
            assert_eq!(tunnel.interface.addresses, wanted.interface.addresses);
            let has_dns = text.contains("list dns '10.8.0.1'");
            assert_eq!(has_dns, file.contains("DNS"), "{text}");
            assert_eq!(text.matches("'10.8.0.2/32'").count(), 1, "{text}");
            assert!(text.contains("option metric '7'"), "{text}");
        }
    }

    /// A file, UCI and the configuration protocol carry every setting of AmneziaWG to each other.
    #[test]
    #[cfg(feature = "amnezia")]
    fn amneziawg_loses_nothing_between_file_uci_and_protocol() {
        use config::amnezia::OPTIONS;
        use config::uapi::{DeviceState, Request, Requests, write_get};
        const SETTINGS: &str = "Jc = 4\nJmin = 40\nJmax = 70\nS1 = 30\nS2 = 40\nS3 = 25\nS4 = 16\n\
            H1 = 100-200\nH2 = 300\nH3 = 400\nH4 = 500-600\nI1 = <b 0xc0ffee><t><r 16>\nI2 = <c>\nI3 = it's <r 7>\n\
            I4 = <rc 8>\nI5 = <rd 9>\nJ1 = <c>\nJ2 = <r 2>\nJ3 = <r 3>\nItime = 60\n\
            HeaderProtectionKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
            ContentPaddingAddition = 10-100\nRekeyAfterTime = 100-120\nRekeyTimeout = 3-7\n\
            RejectAfterTime = 150-180\nKeepaliveTimeout = 5-15\nMaxHandshakeAttempts = 15-20\n\
            RandomTrailers = on\nDisableCookies = on\n";
        assert_eq!(SETTINGS.lines().count(), OPTIONS.len());
        let (head, peers) = FILE.split_once("\n\n").unwrap();
        let file = format!("{head}\n{SETTINGS}\n{peers}");
        let (wanted, _) = wgquick::parse(&file, "", Permissions::NONE)
            .into_tunnel()
            .unwrap();
        let wanted = wanted.interface.amnezia;

        let mut sections = Vec::new();
        carry_out(&batch(&file, "home").unwrap(), &mut sections);
        let text = text_of(&sections);
        let network = Network::read(&Package::parse(&text).unwrap(), "home").unwrap();
        assert_eq!(network.warnings, []);
        let Source::Options { tunnel, .. } = network.source else {
            panic!("no options");
        };
        assert_eq!(tunnel.interface.amnezia, wanted, "{text}");
        assert!(tunnel.to_conf().contains(SETTINGS));

        let device = DeviceState {
            amnezia: tunnel.interface.amnezia,
            ..DeviceState::default()
        };
        let mut answer = Vec::new();
        write_get(&mut answer, &device, []).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let set = format!("set=1\n{}", answer.replace("errno=0\n", ""));
        let Ok(Some(Ok(Request::Set(set)))) = Requests::new(set.as_bytes()).next_request() else {
            panic!("{set}");
        };
        assert_eq!(
            set.amnezia.apply(&DeviceState::default().amnezia),
            Ok(wanted)
        );

        // A plain file in place of this one leaves no setting.
        carry_out(&batch(FILE, "home").unwrap(), &mut sections);
        assert!(!text_of(&sections).contains("awg_"));
    }

    #[test]
    fn what_has_no_options_stays_a_file() {
        let head = FILE.split("[Peer]").next().unwrap();
        assert!(
            of(&format!(
                "#! [Uplink]\n#! Name = a\n#! Interface = eth1\n{FILE}"
            ))
            .is_none()
        );
        assert!(of(&format!("{head}#! [Server]\n#! Masquerade = yes\n")).is_none());
        let off = of(&FILE.replace("MTU = 1380", "Table = off")).unwrap();
        assert_eq!(off["peers"][0]["route_allowed_ips"], "0");
        let table = of(&FILE.replace("MTU = 1380", "Table = 77")).unwrap();
        assert_eq!(table["interface"]["ip6table"], "77");
    }
}
