use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Result<Guard, SettingsError> {
    Guard::from_toml(text, Path::new("guard.toml"))
}

#[test]
fn everything_may_be_said() {
    let text = "lan = [\"br-lan\", \"br-guest\"]\nreach = [\"br-iot\"]\n\
        tunnels = [\"mr-*\", \"tun0\"]\ntable = 1077\nlead = false\n";
    let guard = read(text).unwrap();
    assert_eq!(guard.lan, ["br-lan", "br-guest"]);
    assert_eq!(guard.reach, ["br-iot"]);
    assert_eq!((guard.table, guard.lead), (1077, false));
    assert_eq!(guard.rank("tun0"), Some(1));
    assert_eq!(guard.rank("mr-office"), Some(0));
    assert_eq!(guard.rank("tun01"), None);
    assert_eq!(guard.to_toml(), text);
    assert_eq!(guard.fault(), None);
    let least = read("lan = [\"br-lan\"]").unwrap();
    assert_eq!((least.table, least.lead), (77, true));
    assert!(least.rank("mr-office").is_some() && least.rank("wan").is_none());
}

#[test]
fn what_is_said_of_dns_is_read_and_written() {
    let text = "lan = [\"br-lan\"]\ndns = [\"10.8.0.1\", \"fd08::1\"]\ndns_names = [\"Corp.example.\"]\n\
        dns_redirect = true\ndns_block_tls = true\n";
    let guard = read(text).unwrap();
    assert_eq!(guard.dns.len(), 2);
    assert_eq!(guard.dns_names, ["corp.example"]);
    assert!(guard.dns_redirect && guard.dns_block_tls && guard.fault().is_none());
    assert_eq!(read(&guard.to_toml()).unwrap(), guard);
}

#[test]
fn what_is_said_of_servers_and_of_the_router_is_read_and_written() {
    let text = "lan = [\"br-lan\"]\nreach = [\"mr-home\"]\nmasquerade = false\nservers = false\n\
        router = true\nrouter_allow = [\"203.0.113.5\", \"2001:db8::/32\"]\n";
    let guard = read(text).unwrap();
    assert!(!guard.masquerade && !guard.servers && guard.router);
    assert_eq!(guard.router_allow.len(), 2);
    assert_eq!(read(&guard.to_toml()).unwrap(), guard);
    // A server's device that the LAN may reach is not a tunnel, even if its name matches the pattern.
    assert_eq!(guard.fault(), None);
    assert!(!guard.names_tunnel("mr-home"));
    let least = read("lan = [\"br-lan\"]\ntunnels = [\"mr-home\"]").unwrap();
    assert!(least.masquerade && least.servers && !least.router && least.names_tunnel("mr-home"));
}

#[test]
fn a_name_counts_once() {
    let text = "lan = [\"a\", \"b\", \"a\"]\nreach = [\"c\", \"b\", \"c\"]\n\
        tunnels = [\"mr-*\", \"tun0\", \"mr-*\", \"mr-\"]\n";
    let guard = read(text).unwrap();
    assert_eq!(guard.lan, ["a", "b"]);
    assert_eq!(guard.reach, ["c"]);
    let tunnels: Vec<String> = guard.tunnels.iter().map(Pattern::to_string).collect();
    assert_eq!(tunnels, ["mr-*", "tun0", "mr-"]);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    for (text, told) in [
        (
            "\nlan = \"br-lan\"",
            "guard.toml:2: lan cannot be \"br-lan\"",
        ),
        ("lan = [\"a b\"]", "lan cannot be [\"a b\"]"),
        ("tunnels = [\"*\"]", "tunnels cannot be"),
        ("tunnels = [\"m*r\"]", "tunnels cannot be"),
        ("table = 254", "table cannot be 254"),
        ("table = 0x4d", "table cannot be"),
        ("lead = 1", "true or false"),
        ("dns = [\"127.0.0.1\"]", "dns cannot be [\"127.0.0.1\"]"),
        ("dns = [\"10.8.0.1@x\"]", "dns cannot be"),
        ("dns_names = [\"a b.example\"]", "dns_names cannot be"),
        ("dns_names = [\"a/b\"]", "dns_names cannot be"),
        ("dns_redirect = 1", "true or false"),
        ("router_allow = [\"0.0.0.0/0\"]", "router_allow cannot be"),
        ("servers = 1", "true or false"),
        ("lans = []", "unknown setting `lans`"),
        ("lan = [", "not valid TOML"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn what_guards_nothing_or_too_much_is_a_fault() {
    for (text, told) in [
        ("", "no LAN device"),
        (
            "lan = [\"a\"]\ntunnels = []",
            "no device is named as a tunnel",
        ),
        ("lan = [\"lo\"]", "host itself"),
        (
            "lan = [\"a\"]\ndns_names = [\"b.example\"]",
            "no name server for them",
        ),
        ("lan = [\"mr-lan\"]", "mr-lan is listed as a LAN device"),
    ] {
        let fault = read(text).unwrap().fault().unwrap();
        assert!(fault.contains(told), "{text}: {fault}");
    }
}

proptest! {
    /// No accepted name has a character with a meaning in nft, a shell or TOML.
    #[test]
    fn names_that_are_taken_are_plain(text in "[ -~]{0,17}", any in any::<String>()) {
        for text in [text, any] {
            if let Some(pattern) = Pattern::new(&text) {
                let written = pattern.to_string();
                prop_assert_eq!(&written, &text);
                let start = written.strip_suffix('*').unwrap_or(&written);
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "_=+.-".contains(c);
                prop_assert!((1..=15).contains(&start.len()) && start.chars().all(is_plain));
            }
        }
    }

    /// Settings that are written out are read back unchanged.
    #[test]
    fn settings_survive_being_written(
        lan in prop::collection::vec("[a-z0-9=+._-]{2,15}", 0..4),
        tunnels in prop::collection::vec("[a-z][a-z0-9]{0,10}[*]?", 0..4),
        table in 256..u32::MAX,
        lead: bool,
    ) {
        prop_assume!(lan.iter().all(|name| is_ifname(name)));
        let tunnels = tunnels.iter().filter_map(|it| Pattern::new(it)).collect();
        let mut guard = Guard { lan, tunnels, table, lead, ..Guard::default() };
        guard.merge_doubles();
        prop_assert_eq!(read(&guard.to_toml()).unwrap(), guard);
    }
}

#[test]
fn a_file_without_a_byte_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("guard.toml");
    std::fs::write(&path, "").unwrap();
    let error = Guard::read(&path).unwrap_err();
    assert!(error.to_string().contains("is empty"), "{error}");
    std::fs::write(&path, "# nothing\n").unwrap();
    assert!(Guard::read(&path).unwrap().is_empty());
    assert!(Guard::read(Path::new("/dev/null")).unwrap().is_empty());
}
