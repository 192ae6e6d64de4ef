use super::*;
use proptest::prelude::*;

const LAN: &str = "config interface 'lan'\n option device 'br-lan'\n option proto 'static'\n\
    config interface 'guest'\n option device '@lan'\n option proto 'static'\n\
    config interface 'iot'\n option type 'bridge'\n option proto 'static'\n\
    config interface 'wifi'\n option proto 'static'\n\
    config interface 'wan'\n option device 'eth1'\n option proto 'dhcp'\n\
    config interface 'modem'\n option device 'eth1'\n option proto 'static'\n\
    config interface 'arm'\n option device 'br-arm'\n option proto 'static'\n option gateway '192.0.2.1'\n\
    config interface 'loopback'\n option device 'lo'\n option proto 'static'\n\
    config device\n option name 'br-port'\n option type 'bridge'\n";

fn tunnel(name: &str, words: &[&str]) -> String {
    let list = words
        .iter()
        .map(|it| format!(" list only_through '{it}'\n"));
    format!(
        "config interface '{name}'\n option proto 'millrace'\n{}",
        list.collect::<String>()
    )
}

fn read(text: &str) -> Lists {
    Lists::read(text).unwrap()
}

#[test]
fn interfaces_and_devices_are_listed() {
    let text = tunnel("office", &["lan", "guest", "iot", "br-port", "eth7"])
        + &tunnel("home", &[])
        + "config interface 'spare'\n option proto 'millrace'\n option only_through 'iot br-lan'\n"
        + LAN;
    let all = read(&text);
    assert_eq!(all.faults, []);
    let listed: Vec<String> = all
        .lists
        .iter()
        .map(|it| format!("{} {} {}", it.interface, it.device, it.lan.join(",")))
        .collect();
    assert_eq!(
        listed,
        [
            "office mr-office br-lan,br-iot,br-port,eth7",
            "spare mr-spare br-iot,br-lan"
        ]
    );
    // An unknown word is kept, in case a device of that name appears.
    let unknown: Vec<&str> = all.unknown.iter().map(|it| it.1.name.as_str()).collect();
    assert_eq!(unknown, ["eth7"]);
}

#[test]
fn what_cannot_be_held_is_a_fault_with_its_line() {
    for (word, told) in [
        ("wifi", "its device is not in the file"),
        ("wan", "interface wan has protocol dhcp"),
        // Every name of the WAN's device is refused.
        ("eth1", "interface wan has protocol dhcp"),
        ("modem", "interface wan has protocol dhcp"),
        ("br-arm", "interface arm has a gateway"),
        ("office", "it is a tunnel itself"),
        ("mr-office", "it is a tunnel itself"),
        ("loopback", "the router itself"),
        ("no such", "there is no such interface"),
        ("br-lan\" } accept #", "there is no such interface"),
    ] {
        let all = read(&(tunnel("office", &[word, "lan"]) + LAN));
        assert_eq!(all.lists[0].lan, ["br-lan"], "{word}");
        let fault = all.faults[0].to_string();
        let start = format!("network:4: office.only_through: {word}: ");
        assert!(fault.starts_with(&start) && fault.contains(told), "{fault}");
        assert!(fault.ends_with("nothing of it is held back"), "{fault}");
    }
    // A list with only refused words is left out.
    assert!(read(&(tunnel("office", &["wan"]) + LAN)).is_empty());
}

#[test]
fn a_wrong_line_counts_in_a_tunnels_section_only() {
    let odd = "config interface 'x'\n option a-b 'c'\n";
    assert_eq!(
        read(&(odd.to_owned() + &tunnel("office", &["lan"]) + LAN))
            .lists
            .len(),
        1
    );
    let text = tunnel("office", &["lan"]) + " list only_through 'a' 'b'\n" + LAN;
    assert_eq!(Lists::read(&text).unwrap_err().line, 4);
    assert!(Lists::read("config interface 'office").is_err());
}

#[test]
fn a_host_without_the_file_lists_nothing() {
    let directory = Path::new("/nowhere");
    assert_eq!(Lists::of(directory).unwrap(), Lists::default());
    assert!(matches!(
        Lists::of(Path::new("/dev/null")),
        Err(ListsError::Read(_))
    ));
}

proptest! {
    /// For any words in the file, the lists hold only device names, and none that leads out of the router.
    #[test]
    fn only_devices_of_the_lan_are_listed(words in prop::collection::vec("[ -&(-~]{0,17}|lan|wan|modem|eth1|mr-home|br-lan", 0..6)) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Ok(all) = Lists::read(&(tunnel("office", &words) + &tunnel("home", &["guest"]) + LAN)) {
            for list in &all.lists {
                for device in &list.lan {
                    prop_assert!(is_ifname(device));
                    prop_assert!(!["eth1", "br-arm", "lo", "mr-office", "mr-home"].contains(&device.as_str()));
                }
            }
            let lists: usize = all.lists.iter().map(|it| it.lan.len()).sum();
            prop_assert!(lists + all.faults.len() <= words.len() + 1);
        }
    }

    /// Any text is read or refused, without a panic.
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        let _ = Lists::read(&text);
    }
}

/// A section may be opened twice, with other sections in between.
#[test]
fn a_wrong_line_is_put_down_to_the_section_that_is_open() {
    let text = tunnel("office", &["lan"])
        + LAN
        + "config interface 'office'\n list only_through 'iot' 'guest'\n";
    let line = text.lines().count();
    assert_eq!(Lists::read(&text).unwrap_err().line, line);
    // The wrong line is in another's section, which is opened again below a tunnel's.
    let text = LAN.to_owned()
        + &tunnel("office", &["lan"])
        + "config interface 'wan'\n option metric 1 2\n";
    assert_eq!(read(&text).lists.len(), 1);
}

#[test]
fn a_file_that_does_not_end_is_none() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/zero", directory.path().join("network")).unwrap();
    let error = Lists::of(directory.path()).unwrap_err();
    assert!(matches!(error, ListsError::Read(_)), "{error}");
}

#[test]
fn there_may_be_thousands_of_interfaces_and_lists_are_bounded() {
    let all: String = (0..5_000)
        .map(|it| tunnel(&format!("t{it}"), &["lan", "guest", "iot", "br-port"]))
        .collect();
    let lists = read(&(all + LAN));
    assert_eq!(lists.lists.len(), LISTS_MAX);
    assert!(
        lists.faults[0]
            .to_string()
            .contains("at most 64 interfaces"),
        "{:?}",
        lists.faults
    );
}
