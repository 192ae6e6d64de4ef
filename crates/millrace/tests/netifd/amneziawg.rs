//! AmneziaWG's settings as options: a start, changes in place, wrong values, and the secret key.

use super::*;
use lab::acceptance::{WG, uapi, uapi_at};

/// The header protection key, as options and as the configuration protocol write it.
const KEYS: [&str; 2] = [
    "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=",
    "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f",
];

/// Settings of the interface; S4 is left out.
fn settings(more: &str) -> String {
    let lines = [
        ("jc", "3"),
        ("jmin", "50"),
        ("jmax", "100"),
        ("s1", "30"),
        ("s2", "40"),
        ("s3", "25"),
        ("h1", "100000-200000"),
        ("i1", "<b 0xc0ffee><t><r 16>"),
        ("header_protection_key", KEYS[0]),
        ("content_padding_addition", "10-100"),
        ("rekey_timeout", "3-7"),
        ("random_trailers", "1"),
        ("disable_cookies", "1"),
    ];
    let line = |(name, value): &(&str, &str)| format!("\toption awg_{name} '{value}'\n");
    lines.iter().map(line).collect::<String>() + more
}

#[test]
fn amneziawg_comes_up_and_changes_in_place() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let (b, c) = office.peers();
    let a = &office.site.net.a;
    let of_peers = |lines: &str| {
        for name in [WG, WG_C] {
            let answer = uapi(b.host(), name, &format!("set=1\n{lines}\n"));
            assert_eq!(answer, "errno=0\n\n");
        }
    };
    of_peers(&format!(
        "s1=30\ns2=40\ns3=25\ns4=16\nh1=100000-200000\nheader_protection_key={}\nrandom_trailers=1\n",
        KEYS[1]
    ));
    let write = |more: &str| {
        let lines = Office::addresses() + &settings(more);
        office.write(&lines, &(office.b("") + &office.c("")));
    };
    write("\toption awg_s4 '16'\n");
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_has(&ADDRESSES, &ROUTES);
    reaches(a, B4);
    reaches(a, C4);
    assert_eq!(netifd.faults(), Vec::<String>::new());
    let device = netifd.device();
    assert_eq!(status_of(a, &device)["amnezia"], "3.1");
    let get = || uapi_at(a, "/var/run/amneziawg", &device, "get=1\n\n");
    assert!(get().contains("\njc=3\njmin=50\n"), "{}", get());

    // A change of this end's own settings leaves the sessions alone.
    let shaken = (office.shaken(&b), office.shaken(&c));
    write("\toption awg_s4 '16'\n\toption awg_i2 '<r 7>'\n");
    netifd.renew();
    until("the new packet", || get().contains("\ni2=<r 7>\n"));
    pings(a, B4, 3);
    pings(a, C4, 3);
    assert_eq!((office.shaken(&b), office.shaken(&c)), shaken);
    // A change of shared settings begins new ones.
    of_peers("s4=20\n");
    write("\toption awg_s4 '20'\n");
    netifd.renew();
    until("the new S4", || get().contains("\ns4=20\n"));
    reaches(a, B4);
    reaches(a, C4);

    // A wrong value changes nothing, and netifd's list has the remedy. A misspelled name is left out.
    write("\toption awg_s4 '9'\n");
    netifd.renew();
    let fault = netifd.until_fault("CONFIG_FAULT");
    let words = "office.awg_s4: S4 is below the 12 bytes that HeaderProtectionKey needs; raise it at both ends";
    assert!(fault.ends_with(words), "{fault}");
    pings(a, B4, 3);
    write("\toption awg_s4 '20'\n\toption awg_keepalive_timout '9'\n");
    netifd.renew();
    netifd.until_faults(&["did you mean `awg_keepalive_timeout`?"]);
    pings(a, C4, 3);
    assert_eq!(netifd.starts, 1);
    assert_eq!(netifd.complaints(), Vec::<String>::new());

    // Only the configuration protocol, which root alone may ask, tells the key.
    assert!(get().contains(KEYS[1]));
    let shown = ["--json", "-v"].map(|it| a.output(PROGRAM, ["status", &device, it]).unwrap());
    assert!(shown[1].contains("amneziawg: 3.1"), "{}", shown[1]);
    for text in shown.iter().chain([&netifd.said()]) {
        assert!(KEYS.iter().all(|it| !text.contains(it)), "{text}");
    }
}

/// The error about a peer that does not answer names the value in which it differs, until both ends have the same.
#[test]
fn another_value_at_a_peer_is_named_in_the_fault() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let (b, _c) = office.peers();
    let at_b = |lines: &str| {
        let answer = uapi(b.host(), WG, &format!("set=1\n{lines}\n"));
        assert_eq!(answer, "errno=0\n\n");
    };
    at_b(&format!(
        "s1=30\ns2=44\ns3=25\ns4=16\nh1=100000-200000\nheader_protection_key={}\nrandom_trailers=1\n",
        KEYS[1]
    ));
    let lines = Office::addresses() + &settings("\toption awg_s4 '16'\n");
    office.write(&lines, &office.b("\toption persistent_keepalive '1'\n"));
    let mut netifd = office.netifd();
    netifd.if_up();
    let fault = format!(
        "no answer from {}:{PORT_B}: S2 is 44 at the other end, 40 here; give both ends the same values; still trying",
        office.site.net.link.b4()
    );
    netifd.until_faults(&[&fault]);
    at_b("s2=40\n");
    reaches(&office.site.net.a, B4);
    netifd.until_faults(&[]);
    assert_eq!(netifd.starts, 1);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
}
