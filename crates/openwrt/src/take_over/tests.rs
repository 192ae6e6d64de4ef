use super::*;
use crate::network::Source;
use proptest::prelude::*;

const KEY: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";

fn good(file: &str) -> Result<Judged, String> {
    Ok(Judged {
        notes: vec![format!("{file}: a note")],
        needs_files: false,
    })
}

fn file() -> String {
    format!(
        "# mine\nconfig interface 'lan'\n\toption proto 'static'\n\nconfig interface 'wg0' # wireguard\n\toption proto 'wireguard'\n\
         \toption private_key '{KEY}'\n\tlist addresses '10.0.0.2/24'\n\toption nohostroute '1'\n\nconfig wireguard_wg0 'home'\n\
         \toption description 'wireguard_wg0'\n\toption public_key 'xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg='\n\
         \tlist allowed_ips '10.0.0.0/24'\n\nconfig wireguard_wg1\n\toption public_key 'x'\n"
    )
}

#[test]
fn an_interface_of_wireguard_becomes_ours_and_nothing_else_changes() {
    let taken = take_over(&file(), "", None, &good).unwrap();
    let after = Package::parse(&taken.network).unwrap();
    let network = Network::read(&after, "wg0").unwrap();
    let Source::Options { tunnel, .. } = network.source else {
        panic!("no options");
    };
    assert_eq!(tunnel.peers.len(), 1);
    let changed = |(before, after): &(&str, &str)| before != after;
    let text = file();
    let differing: Vec<_> = text
        .lines()
        .zip(taken.network.lines())
        .filter(changed)
        .collect();
    assert_eq!(
        differing,
        [
            ("\toption proto 'wireguard'", "\toption proto 'millrace'"),
            ("config wireguard_wg0 'home'", "config millrace_wg0 'home'"),
        ]
    );
    assert_eq!(taken.changes.len(), 2);
    assert!(taken.hints.iter().any(|it| it.contains("nohostroute")));
    assert!(taken.hints.iter().any(|it| it.contains("mr-wg0")));
    // A second run finds nothing to do.
    let twice = take_over(&taken.network, "", None, &good).unwrap();
    assert!(twice.changes.is_empty() && twice.network == taken.network);
}

/// An interface and its peers lose nothing: the new sections have every line of the old ones.
#[test]
#[cfg(feature = "amnezia")]
fn an_interface_of_amneziawg_keeps_all_its_settings() {
    use config::amnezia::OPTIONS;
    let of = |option: &str| match option {
        "awg_header_protection_key" => KEY.to_owned(),
        "awg_reject_after_time" => "150-180".to_owned(),
        "awg_random_trailers" | "awg_disable_cookies" => "1".to_owned(),
        _ if option.len() == 6 && option.contains(['i', 'j']) && option != "awg_jc" => {
            "<r 9>".to_owned()
        }
        _ => match option.strip_prefix("awg_h") {
            Some(number) => format!("{number}00-{number}99"),
            None => "20".to_owned(),
        },
    };
    let settings: String = OPTIONS
        .iter()
        .map(|(option, _)| format!("\toption {option} '{}'\n", of(option)))
        .collect();
    let more = format!(
        "{settings}\toption tunlink 'wan'\n\tlist ip6prefix '2001:db8:7::/48'\n\toption mtu '1380'\n"
    );
    let theirs = file().replace("wireguard", "amneziawg");
    let theirs = theirs.replace(
        "\toption nohostroute",
        &format!("{more}\toption nohostroute"),
    );
    let taken = take_over(&theirs, "", Some("wg0"), &good).unwrap();
    let wanted = theirs
        .replace("proto 'amneziawg'", "proto 'millrace'")
        .replace("config amneziawg_wg0", "config millrace_wg0");
    assert_eq!(*taken.network, wanted);
    assert_eq!(
        taken.changes[0],
        "network:6: wg0.proto: amneziawg -> millrace"
    );
    let network = Network::read(&Package::parse(&wanted).unwrap(), "wg0").unwrap();
    let Source::Options { tunnel, .. } = network.source else {
        panic!("no options");
    };
    for (option, key) in OPTIONS.iter() {
        assert!(tunnel.interface.amnezia.show(key).is_some(), "{option}");
    }
    assert_eq!((tunnel.peers.len(), network.prefixes.len()), (1, 1));
    let hints = taken.hints.join("\n");
    for words in ["hostroute 0 does", "tunlink is not supported; uplink"] {
        assert!(hints.contains(words), "{hints}");
    }
    // A setting that no two ends could use stops the conversion.
    let wrong = theirs.replace("awg_s1 '20'", "awg_s1 '2'");
    let error = take_over(&wrong, "", None, &good).unwrap_err();
    assert!(
        error.to_string().contains("wg0.awg_s1: S1 is below"),
        "{error}"
    );
}

#[test]
fn an_instance_of_openvpn_becomes_an_interface_and_is_off() {
    let openvpn = "config openvpn 'office'\n\toption enabled '1'\n\toption config '/etc/openvpn/office.ovpn'\n\n\
                   config openvpn 'off'\n\toption config '/x.ovpn'\n\nconfig openvpn 'inline'\n\toption enabled 1\n\toption dev tun\n\n\
                   config openvpn 'lan'\n\toption enabled 1\n\toption config '/y.ovpn'\n";
    let taken = take_over(&file(), openvpn, None, &good).unwrap();
    let after = Package::parse(&taken.network).unwrap();
    let network = Network::read(&after, "office").unwrap();
    assert_eq!(
        network.source,
        Source::File("/etc/openvpn/office.ovpn".into())
    );
    let others = Package::parse(&taken.openvpn).unwrap();
    assert_eq!(others.section("office").unwrap().text("enabled"), Some("0"));
    assert_eq!(others.section("inline").unwrap().text("enabled"), Some("1"));
    let hints = taken.hints.join("\n");
    // An instance whose file would not work stays as it is, and ignored lines of a file are reported.
    let bad = |file: &str| match file {
        "/etc/openvpn/office.ovpn" => Err(format!("{file}: no remote")),
        _ => Ok(Judged::default()),
    };
    let left = take_over(&file(), openvpn, Some("office"), &bad).unwrap();
    assert!(left.changes.is_empty() && left.openvpn == openvpn);
    let told = "office is not taken over: /etc/openvpn/office.ovpn: no remote";
    assert!(left.hints[0].ends_with(told), "{:?}", left.hints);
    for words in [
        "/etc/openvpn/office.ovpn: a note",
        "will be called mr-office",
        "off is not taken over",
        "inline is not taken over",
        "lan is not taken over",
    ] {
        assert!(hints.contains(words), "{hints}");
    }
}

/// The OpenVPN service obeyed every line of the file. The interface gets the permission only if the file needs it.
#[test]
fn a_file_that_names_others_keeps_the_permission_that_it_had() {
    let openvpn = "config openvpn 'office'\n\toption enabled '1'\n\toption config '/etc/openvpn/office.ovpn'\n";
    for needs_files in [false, true] {
        let judge = |_: &str| {
            Ok(Judged {
                needs_files,
                ..Judged::default()
            })
        };
        let taken = take_over("", openvpn, None, &judge).unwrap();
        let after = Package::parse(&taken.network).unwrap();
        let network = Network::read(&after, "office").unwrap();
        assert_eq!(network.permissions().files(), needs_files);
        assert!(!network.permissions().scripts());
        assert_eq!(taken.changes[0].contains("allow_files"), needs_files);
        assert!(network.warnings.is_empty());
    }
}

#[test]
fn only_what_is_asked_for_is_taken_over() {
    let taken = take_over(&file(), "", Some("wg0"), &good).unwrap();
    assert_eq!(taken.changes.len(), 2);
    let error = take_over(&file(), "", Some("wg9"), &good).unwrap_err();
    assert_eq!(error, TakeOverError::Unknown("wg9".to_owned()));
}

#[test]
fn what_is_written_in_an_unusual_way_is_refused() {
    let text = file().replace("option proto 'wireguard'", "option proto 'wire''guard'");
    let error = take_over(&text, "", None, &good).unwrap_err();
    assert_eq!(error, TakeOverError::Unusual("network"));
    // The word occurs in the line before the value as well.
    let text = file().replace(
        "config interface 'wg0' # wireguard\n\toption proto 'wireguard'",
        "config interface 'wg0'; option wireguard 1; option proto 'wireguard'",
    );
    let error = take_over(&text, "", None, &good).unwrap_err();
    assert_eq!(error, TakeOverError::Unusual("network"));
}

#[test]
fn an_interface_that_would_not_work_is_refused() {
    let text = file().replace(KEY, "short");
    let error = take_over(&text, "", None, &good).unwrap_err();
    assert!(matches!(error, TakeOverError::Refused(_)), "{error}");
}

proptest! {
    /// For any files, only the named instances change, or nothing is written.
    #[test]
    fn any_text_is_taken_over_or_refused(
        network in "(config (interface|wireguard_a) ?(a|'a'|)\n|\toption (proto|private_key|x) ('wireguard'|wireguard|static)\n|#.{0,5}\n|;){0,12}",
        openvpn in "(config openvpn (a|b)\n|\toption (enabled|config) ('1'|1|/x)\n){0,6}",
    ) {
        if let Ok(taken) = take_over(&network, &openvpn, None, &good) {
            prop_assert_eq!(taken.changes.is_empty(), *taken.network == network && taken.openvpn == openvpn);
        }
    }
}
