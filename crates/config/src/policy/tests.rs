use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Result<Policy, SettingsError> {
    Policy::from_toml(text, Path::new("policy.toml"))
}

#[test]
fn everything_may_be_said() {
    let text = r#"
        lan = ["br-lan", "br-guest", "br-lan"]
        tunnels = ["mr-*", "tun0"]
        mask = 0x00f00000
        table = 9000
        leases = "/tmp/dhcp.leases"
        dnsmasq = "/etc/dnsmasq.d"
        restart = ["systemctl", "restart", "dnsmasq"]
        [[entry]]
        name = "television"
        who = ["02-00-5E-10-00-01", "television", "192.168.1.7", "2001:db8:1:1::/64", "br-guest"]
        to = ["*.Example.org.", "203.0.113.7/24", "example.org"]
        through = "mr-us"
        down = "around"
        [[entry]]
        who = "192.168.1.8"
        way = "block"
    "#;
    let policy = read(text).unwrap();
    assert_eq!(policy.lan, ["br-lan", "br-guest"]);
    assert_eq!((policy.mask, policy.table), (0x00f0_0000, 9000));
    let entry = &policy.entries[0];
    let who: Vec<String> = entry.who.iter().map(Who::to_string).collect();
    assert_eq!(who[0], "02:00:5e:10:00:01");
    assert_eq!(entry.who[1], Who::Lease("television".to_owned()));
    assert_eq!(entry.who[4], Who::Device("br-guest".to_owned()));
    let to: Vec<String> = entry.to.iter().map(Target::to_string).collect();
    assert_eq!(to, ["example.org", "203.0.113.0/24"]);
    assert!(matches!(&entry.way, Way::Through { device, down: Down::Around } if device == "mr-us"));
    assert_eq!(
        (policy.entries[1].name.as_str(), &policy.entries[1].way),
        ("2", &Way::Block)
    );
    assert_eq!(policy.fault(), None);
    assert!(policy.is_tunnel("mr-x") && policy.is_tunnel("tun0") && !policy.is_tunnel("wan"));
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let entry = |keys: &str| format!("lan = [\"br-lan\"]\n[[entry]]\nwho = \"a\"\n{keys}\n");
    for (text, told) in [
        (
            "\nlan = \"br lan\"".to_owned(),
            "policy.toml:2: lan cannot be",
        ),
        ("mask = 0x1010".to_owned(), "mask cannot be"),
        ("mask = 7".to_owned(), "four consecutive bits"),
        ("table = 250".to_owned(), "table cannot be"),
        ("dnsmasq = \"dnsmasq.d\"".to_owned(), "path of a directory"),
        ("entry = 1".to_owned(), "[[entry]]"),
        ("entrys = 1".to_owned(), "unknown setting `entrys`"),
        (
            entry("through = \"mr us\""),
            "policy.toml:4: through cannot be \"mr us\"",
        ),
        (
            entry("to = [\"exa mple.org\"]"),
            "policy.toml:4: to cannot be",
        ),
        (entry("to = [\"a/4#inet#x\"]"), "to cannot be"),
        (entry("to = [\"192.168.1.300\"]"), "to cannot be"),
        (entry("way = \"out\""), "\"around\" or \"block\""),
        (entry("thru = \"a\""), "unknown setting `thru`"),
        (entry(""), "policy.toml:2: entry 1 does not say which way"),
        (
            entry("way = \"block\"\nthrough = \"a\""),
            "both `through` and `way`",
        ),
        (
            entry("way = \"block\"\ndown = \"hold\""),
            "`down` works only",
        ),
        ("masquerade = 1".to_owned(), "true or false"),
        (
            entry("dns = [\"10.8.0.1\", \"10.8.0.2\"]"),
            "one of IPv4 and one of IPv6",
        ),
        (entry("dns = \"127.0.0.1\""), "dns cannot be"),
        (
            entry("way = \"around\"\ndns = \"10.8.0.1\""),
            "`dns` is only for",
        ),
        (
            entry("through = \"a\"\ndown = \"around\"\ndns = \"10.8.0.1\""),
            "`dns` is only for",
        ),
        (
            entry("through = \"a\"\nto = \"b.example\"\ndns = \"10.8.0.1\""),
            "`dns` is only for",
        ),
        ("[[entry]]\nway = \"around\"".to_owned(), "neither `who`"),
    ] {
        let error = read(&text).unwrap_err().to_string();
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn what_decides_nothing_or_too_much_is_a_fault() {
    let entries = |count: usize| {
        let one = |place| format!("[[entry]]\nwho = \"a\"\nthrough = \"t{place}\"\n");
        (0..count).map(one).collect::<String>()
    };
    for (text, told) in [
        (String::new(), "no LAN device"),
        ("lan = [\"a\"]".to_owned(), "no entry"),
        (
            format!("lan = [\"t0\"]\n{}", entries(1)),
            "t0 is listed as a LAN device",
        ),
        (
            format!("lan = [\"a\"]\nmask = 0xf0\n{}", entries(1)),
            "the bit 0x80 of `mask` is the guard's",
        ),
        (
            format!("lan = [\"a\"]\nmask = 0xf00\n{}", entries(7)),
            "at most 6 are possible with this mask",
        ),
        (format!("lan = [\"a\"]\n{}", entries(33)), "at most 32"),
        (
            "lan = [\"a\"]\n[[entry]]\nto = \"0.0.0.0/0\"\nway = \"block\"\n".to_owned(),
            "would block all",
        ),
    ] {
        let fault = read(&text).unwrap().fault().unwrap();
        assert!(fault.contains(told), "{text}: {fault}");
    }
    assert_eq!(
        read(&format!("lan = [\"a\"]\n{}", entries(32)))
            .unwrap()
            .fault(),
        None
    );
}

/// A domain may begin with `*.`; a sender is one host, whose lease has a whole name.
#[test]
fn a_pattern_is_no_sender() {
    let with = |who: &str, to: &str| {
        read(&format!(
            "[[entry]]\nwho = {who:?}\nto = {to:?}\nway = \"around\"\n"
        ))
    };
    assert!(with("tv.home", "*.example.org").is_ok());
    for word in ["*.a", "*.example.org"] {
        assert!(with(word, "*.example.org").is_err(), "{word}");
    }
}

proptest! {
    /// No accepted word has a character with a meaning in nft or dnsmasq.
    #[test]
    fn words_that_are_taken_are_plain(word in "[ -~]{0,40}", any in any::<String>()) {
        for word in [word, any] {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_=+.:/-".contains(c);
            let text = format!("[[entry]]\nwho = {word:?}\nto = {word:?}\nway = \"around\"\n");
            if let Ok(policy) = read(&text) {
                let entry = &policy.entries[0];
                let all = entry.who.iter().map(Who::to_string).chain(entry.to.iter().map(Target::to_string));
                for shown in all {
                    prop_assert!(!shown.is_empty() && shown.chars().all(is_plain), "{}", shown);
                }
            }
            if let Some(domain) = Domain::new(&word) {
                prop_assert_eq!(Domain::new(domain.as_str()), Some(domain.clone()));
                prop_assert!(!domain.as_str().contains('/') && domain.is_within(&domain));
            }
        }
    }
}
