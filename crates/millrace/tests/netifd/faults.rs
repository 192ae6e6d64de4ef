//! Faults in netifd's list: when they come, and when they leave it.

use super::*;

/// A called peer that does not answer is a fault, which is gone when it answers. Peers without an endpoint may sleep.
#[test]
fn a_peer_that_does_not_answer_is_a_fault_until_it_does() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let a = &office.site.net.a;
    let sleeping = format!(
        "config millrace_{OFFICE}\n\toption public_key '{}'\n",
        Keys::generate(a).unwrap().public
    );
    let alive = "\toption persistent_keepalive '1'\n";
    office.write(
        &Office::addresses(),
        &(office.b(alive) + &office.c("") + &sleeping),
    );
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_has(&ADDRESSES, &ROUTES);
    let fault = netifd.until_fault("NO_ANSWER");
    let b = format!("{}:{PORT_B}: ", office.site.net.link.b4());
    assert!(fault.starts_with(&format!("no answer from {b}")), "{fault}");
    let _peers = office.peers();
    reaches(a, B4);
    netifd.until_faults(&[]);
    netifd.until_has(&ADDRESSES, &ROUTES);
    reaches(a, B4);
    reaches(a, C4);
    assert_eq!((netifd.taken(), netifd.starts), (2, 1));
    assert_eq!(netifd.complaints(), Vec::<String>::new());
}

/// After a reload that leaves no peer to call, none is expected to answer.
#[test]
fn a_reload_without_endpoints_ends_the_fault_of_silent_peers() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let called = office.b("\toption persistent_keepalive '1'\n");
    office.write(&Office::addresses(), &called);
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_fault("NO_ANSWER");
    let lines = called.lines().filter(|it| !it.contains("endpoint"));
    let uncalled: String = lines.map(|it| format!("{it}\n")).collect();
    office.write(&Office::addresses(), &uncalled);
    netifd.renew();
    netifd.until_faults(&[]);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
}

/// netifd forgets its errors when an interface comes up, so errors known before are reported after that. Each is listed
/// once, whatever restarts.
#[test]
fn faults_known_before_it_came_up_are_listed_once_when_it_is_up() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let _peers = office.peers();
    let lines = Office::addresses()
        + "\toption mode 'xx'\n\tlist ip6prefix 'fd00::1'\n\tlist uplink 'eth0'\n\tlist uplink 'lte'\n";
    office.write(&lines, &(office.b("") + &office.c("")));
    let faults = ["office.mode", "office.ip6prefix", "uplink lte"];
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_has(&ADDRESSES, &ROUTES);
    netifd.until_faults(&faults);
    netifd.restart_bus();
    netifd.renew();
    netifd.until_said("the configuration was read again");
    netifd.until_faults(&faults);
    netifd.crash();
    netifd.until_has(&ADDRESSES, &ROUTES);
    netifd.until_faults(&faults);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
}

/// Two faults are listed both; of a mended one nothing stays.
#[test]
fn a_mended_fault_leaves_the_list_and_no_packet_leaves_in_clear() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let _peers = office.peers();
    let a = &office.site.net.a;
    let gateway = office.site.net.link.b4().to_string();
    a.output("ip", ["route", "add", "default", "via", &gateway])
        .unwrap();
    let write = |lines: &str| {
        let lines = Office::addresses() + lines;
        office.write(&lines, &(office.b("") + &office.c("")));
    };
    let [mode, prefix] = ["\toption mode 'xx'\n", "\tlist ip6prefix 'fd00::1'\n"];
    // Before the interface is up, a new process begins with an empty list.
    write("\toption fwmark 'x'\n");
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_faults(&["office.fwmark"]);
    write("\toption fwmark 'y'\n\tlist addresses '10.0.0.1/40'\n");
    netifd.renew();
    netifd.until_faults(&["office.fwmark", "office.addresses"]);
    write("\tlist addresses '10.0.0.1/40'\n");
    netifd.renew();
    netifd.until_faults(&["office.addresses"]);
    write(&(mode.to_owned() + prefix));
    netifd.renew();
    netifd.until_has(&ADDRESSES, &ROUTES);
    netifd.until_faults(&["office.mode", "office.ip6prefix"]);
    let (taken, starts) = (netifd.taken(), netifd.starts);
    assert_eq!(taken, 1);

    // Under traffic the tunnel is not disturbed: the entry stays until nothing arrives for a while.
    let clear = Clear::watch(a);
    let (senders, over) = clear.send(a);
    write(mode);
    netifd.renew();
    netifd.until_faults(&["office.mode"]);
    assert_eq!((netifd.taken(), netifd.starts), (taken + 1, starts));
    netifd.until_has(&ADDRESSES, &ROUTES);
    over.store(true, Ordering::Relaxed);
    let sent: u64 = senders.into_iter().map(|it| it.join().unwrap()).sum();
    lab::met(&format!(
        "{sent} packets sent while netifd took the link down"
    ));
    assert_eq!(clear.count(a), 0, "of {sent} packets");
    reaches(a, B4);
    reaches(a, C4);
    // The shield is gone.
    let links = a.output("ip", ["-br", "link"]).unwrap();
    assert_eq!(links.lines().count(), 3, "{links}");
    let routes = a.output("ip", ["-4", "route"]).unwrap();
    assert!(!routes.contains("metric 4294967294"), "{routes}");
    assert_eq!(netifd.complaints(), Vec::<String>::new());
}
