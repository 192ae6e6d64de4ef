//! The management interface and the status files, as graphical clients and exporters read them.

use lab::acceptance::openvpn::{Ends, Pair, credentials, ready};
use lab::acceptance::{Net, pings, reaches, until, until_some};
use lab::openvpn::{KeyKind, Management, Setup};

/// Both ends with a management socket and status files.
fn managed() -> Setup {
    let mut setup = Setup::default();
    for end in [&mut setup.server, &mut setup.client] {
        end.line(Management::DIRECTIVE).line("status status 1");
    }
    setup
}

/// A client reports the states of its connection attempt in stock's order, for graphical clients to show.
#[test]
fn a_client_tells_how_far_it_is() {
    if !ready() {
        return;
    }
    for pair in Pair::ALL {
        let net = Net::new();
        let ends = Ends::new(&net, &managed(), pair.programs(false));
        let mut management = ends.client.management().unwrap();
        let told = management.command("state all").unwrap();
        let mut states = told.iter().filter_map(|line| line.split(',').nth(1));
        for wanted in ["CONNECTING", "WAIT", "AUTH", "ASSIGN_IP", "CONNECTED"] {
            assert!(
                states.any(|state| state == wanted),
                "{pair:?}: no {wanted} in {told:?}"
            );
        }
    }
}

#[test]
fn server_lists_and_kills_its_clients() {
    if !ready() {
        return;
    }
    for pair in [Pair::Server, Pair::Both] {
        let net = Net::new();
        let mut setup = managed();
        setup.server.line("status-version 2");
        let ends = Ends::new(&net, &setup, pair.programs(false));
        pings(&net.a, &ends.server4, 3);
        let mut management = ends.server.management().unwrap();
        assert!(management.command("pid").unwrap()[0].contains("pid="));
        let stats = management.command("load-stats").unwrap();
        assert!(
            stats[0].starts_with("SUCCESS: nclients=1,bytesin="),
            "{stats:?}"
        );
        for (version, comma) in [("2", ","), ("3", "\t")] {
            let lines = management.command(&format!("status {version}")).unwrap();
            let fields = |name: &str| -> Vec<String> {
                let start = format!("{name}{comma}");
                let line = lines.iter().find(|line| line.starts_with(&start));
                let line = line.unwrap_or_else(|| panic!("{name}: {lines:?}"));
                line.split(comma).map(str::to_owned).collect()
            };
            assert!(lines[0].starts_with("TITLE"), "{lines:?}");
            let header = fields("HEADER");
            let client = fields("CLIENT_LIST");
            assert_eq!(header.len(), client.len() + 1, "{lines:?}");
            assert_eq!(client[1], "client");
            assert_eq!(client[3], "10.8.0.2");
            assert!(client[2].starts_with("192.168.1.1:"), "{client:?}");
            let route = fields("ROUTING_TABLE");
            assert_eq!(route[2], "client", "{route:?}");
            fields("GLOBAL_STATS");
        }
        let lines = management.command("status 1").unwrap();
        assert_eq!(lines[0], "OpenVPN CLIENT LIST", "{lines:?}");
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("client,192.168.1.1:"))
        );
        until("the client in the status file", || {
            ends.server.file("status").contains("CLIENT_LIST,client,")
        });
        assert!(ends.server.file("status").trim_end().ends_with("END"));
        assert!(management.command("no such command").is_err());
        assert!(management.command("kill nobody").is_err());
        management.command("kill client").unwrap();
        until("a server without clients", || {
            management.command("load-stats").unwrap()[0].contains("nclients=0")
        });
    }
}

#[test]
fn client_tells_its_state_and_its_bytes() {
    if !ready() {
        return;
    }
    for pair in [Pair::Client, Pair::Both] {
        let net = Net::new();
        let mut ends = Ends::new(&net, &managed(), pair.programs(false));
        let mut management = ends.client.management().unwrap();
        let state = management.command("state").unwrap();
        assert!(
            state[0].contains(",CONNECTED,SUCCESS,10.8.0.2,"),
            "{state:?}"
        );
        management.command("bytecount 1").unwrap();
        pings(&net.a, &ends.server4, 3);
        management.wait_for(">BYTECOUNT:").unwrap();
        let status = management.command("status").unwrap();
        assert_eq!(status[0], "OpenVPN STATISTICS", "{status:?}");
        let count = |name: &str| -> u64 {
            let line = status.iter().find_map(|line| line.strip_prefix(name));
            line.unwrap().parse().unwrap()
        };
        assert!(count("TUN/TAP read bytes,") >= 3 * 84);
        assert!(count("TCP/UDP write bytes,") >= 3 * 84);
        until("the status file", || {
            ends.client.file("status").starts_with("OpenVPN STATISTICS")
        });
        management.command("state on").unwrap();
        management.command("signal SIGUSR1").unwrap();
        management.wait_for(">STATE:").unwrap();
        ends.client.wait_until_ready(2).unwrap();
        reaches(&net.a, &ends.server4);
        management.command("signal SIGTERM").unwrap();
        let exit = until_some("the end of the client", || {
            ends.client.process.try_wait().unwrap()
        });
        assert!(exit.success(), "{exit:?}");
    }
}

/// A client waits for `hold release`, and asks for user name and password.
#[test]
fn client_holds_and_asks() {
    if !ready() {
        return;
    }
    let check = "#!/bin/sh\n[ \"$(cat \"$1\")\" = \"$(printf 'user\\nse cret')\" ]\n";
    for pair in [Pair::Client, Pair::Both] {
        let net = Net::new();
        let keys = credentials(KeyKind::Ecdsa);
        let mut setup = managed();
        setup.server.file("check", check).line("script-security 2");
        setup
            .server
            .words("auth-user-pass-verify", ["/bin/sh check", "via-file"]);
        setup.client.line("management-hold").line("auth-user-pass");
        setup.client.line("management-query-passwords");
        let programs = pair.programs(false);
        let at = net.link.b4();
        let file = setup.server_file(programs[0].as_ref(), keys, at).unwrap();
        let _server = programs[0].start(&net.b, &file).unwrap();
        let file = setup.client_file(programs[1].as_ref(), keys, at).unwrap();
        let mut client = programs[1].launch(&net.a, &file).unwrap();
        let mut opened = None;
        until("a management socket", || {
            opened = client.management().ok();
            opened.is_some()
        });
        let mut management = opened.unwrap();
        management.wait_for(">HOLD:").unwrap();
        assert!(!net.a.has_interface("ovpn0").unwrap());
        // A command after it in the same write counts, too.
        management.command("hold release\nverb 4").unwrap();
        management
            .wait_for(">PASSWORD:Need 'Auth' username/password")
            .unwrap();
        management.command("username \"Auth\" user").unwrap();
        management.command("password \"Auth\" \"se cret\"").unwrap();
        client.wait_until_ready(1).unwrap();
        assert!(client.said(" us=") > 0, "times of verb 4 have microseconds");
        pings(&net.a, "10.8.0.1", 3);
    }
}

/// Monitoring programs parse these lines, which must be alike at both ends, one of them the stock program.
#[test]
fn monitors_read_versions_and_states_as_from_stock() {
    if !ready() {
        return;
    }
    for pair in [Pair::Server, Pair::Client] {
        let net = Net::new();
        let ends = Ends::new(&net, &managed(), pair.programs(false));
        for end in [&ends.server, &ends.client] {
            let mut management = end.management().unwrap();
            let lines = management.command("version").unwrap();
            let version = lines[0].strip_prefix("OpenVPN Version: ").unwrap();
            let words: Vec<&str> = version.split(' ').collect();
            assert_eq!(words[0], "OpenVPN", "{version}");
            let numbers: Vec<u32> = words[1].split('.').map(|n| n.parse().unwrap()).collect();
            assert_eq!(numbers.len(), 3, "{version}");
            assert!(words[2].starts_with(std::env::consts::ARCH), "{version}");
            assert!(words[3].starts_with('['), "{version}");
            assert!(end.said(version) > 0, "the log begins with it");
        }
        let states = [&ends.server, &ends.client].map(|end| {
            let lines = end.management().unwrap().command("state").unwrap();
            let fields: Vec<String> = lines[0].split(',').map(str::to_owned).collect();
            fields
        });
        let client6 = ends.client.inner6().unwrap().to_string();
        for (state, own) in states.iter().zip([&ends.server6, &client6]) {
            assert_eq!(state.len(), 9, "{state:?}");
            assert_eq!(state[1..3], ["CONNECTED", "SUCCESS"], "{state:?}");
            assert_eq!(&state[8], own, "{state:?}");
        }
    }
}

/// The byte counts include handshakes: stock counts them, and exporters add the counts up.
#[test]
fn byte_counts_have_the_control_channel_in_them() {
    if !ready() {
        return;
    }
    for pair in [Pair::Server, Pair::Client] {
        let net = Net::new();
        let ends = Ends::new(&net, &managed(), pair.programs(false));
        let status = ends.client.management().unwrap().command("status").unwrap();
        let count = |name: &str| -> u64 {
            let line = status.iter().find_map(|line| line.strip_prefix(name));
            line.unwrap().parse().unwrap()
        };
        let of_client = [count("TCP/UDP write bytes,"), count("TCP/UDP read bytes,")];
        let lines = ends
            .server
            .management()
            .unwrap()
            .command("status 2")
            .unwrap();
        let row = lines.iter().find(|line| line.starts_with("CLIENT_LIST"));
        let row: Vec<&str> = row.unwrap().split(',').collect();
        let of_server = [row[5], row[6]].map(|n| n.parse::<u64>().unwrap());
        // A server keeps no counts for the first packets, and the last ones may be in transit.
        for (client, server) in of_client.into_iter().zip(of_server) {
            assert!(client > 1200 && server > 1200, "{client} {server}");
            assert!(client.abs_diff(server) < 400, "{client} {server}");
        }
    }
}

/// A route's "last used" time is that of its last packet, not that of the query.
#[test]
fn routes_keep_the_time_of_their_last_packet() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let ends = Ends::new(&net, &managed(), Pair::Server.programs(false));
    pings(&net.a, &ends.server4, 1);
    let mut management = ends.server.management().unwrap();
    until("a route whose last packet is seconds ago", || {
        let lines = management.command("status 2").unwrap();
        let last = |start: &str| -> u64 {
            let line = lines.iter().find(|line| line.starts_with(start)).unwrap();
            line.rsplit(',').next().unwrap().parse().unwrap()
        };
        last("TIME,") >= last("ROUTING_TABLE,") + 2
    });
}
