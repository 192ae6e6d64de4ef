//! Compares the environment of scripts with the stock program's: the same variables with the same values.

use std::collections::BTreeMap;
use std::path::Path;

use lab::acceptance::openvpn::{Ends, millrace, ready};
use lab::acceptance::{Net, until};
use lab::openvpn::{OpenVpn, RunningOpenVpn, Setup, StockOpenVpn};

/// Writes its environment and arguments to a file, completely or not at all.
const SCRIPT: &str =
    "#!/bin/sh\n(env; echo \"ARGUMENTS=$*\") > part.$$ && mv part.$$ told.$script_type\n";

/// Variables whose values differ by process, moment or directory; only their presence is compared.
const ANY_VALUE: [&str; 15] = [
    "PWD",
    "auth_control_file",
    "auth_failed_reason_file",
    "auth_pending_file",
    "bytes_received",
    "bytes_sent",
    "client_connect_config_file",
    "client_connect_deferred_file",
    "config",
    "daemon_pid",
    "daemon_start_time",
    "time_ascii",
    "time_unix",
    "trusted_port",
    "untrusted_port",
];

const OF_SERVER: [&str; 6] = [
    "up",
    "route-up",
    "tls-verify",
    "auth-user-pass-verify",
    "client-connect",
    "learn-address",
];
const OF_CLIENT: [&str; 4] = ["tls-verify", "ipchange", "up", "route-up"];

fn environment(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the environment of each script of one end.
fn told(
    end: &RunningOpenVpn<'_>,
    scripts: &[&'static str],
) -> BTreeMap<&'static str, BTreeMap<String, String>> {
    // For one of the scripts, `script_type` is shorter than its directive.
    let file = |script: &str| format!("told.{}", script.trim_start_matches("auth-"));
    let path = |script: &str| end.directory().join(file(script));
    let is_there = |script: &str| Path::new(&path(script)).exists();
    until("every script", || {
        scripts.iter().all(|script| is_there(script))
    });
    let read = |script: &&'static str| (*script, environment(&end.file(&file(script))));
    scripts.iter().map(read).collect()
}

fn compare(
    who: &str,
    stock: &BTreeMap<&'static str, BTreeMap<String, String>>,
    ours: &BTreeMap<&'static str, BTreeMap<String, String>>,
) {
    let mut differences = Vec::new();
    for (script, wanted) in stock {
        for (name, value) in wanted {
            // The stock server sets 0.0.0.0 on a host without a default route.
            if name == "route_net_gateway" && value == "0.0.0.0" {
                continue;
            }
            // The stock program goes on naming the files of a finished login.
            if name.starts_with("auth_") && *script != "auth-user-pass-verify" {
                continue;
            }
            // `client-connect` gets a file name as argument; `learn-address` gets two addresses in any order.
            let any = ANY_VALUE.contains(&&**name)
                || name == "ARGUMENTS" && ["client-connect", "learn-address"].contains(script);
            match ours[script].get(name) {
                None => differences.push(format!("{who}: {script}: {name}={value} is missing")),
                Some(own) if any || own == value => {}
                Some(own) => {
                    differences.push(format!("{who}: {script}: {name}={value}, ours {own}"));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

fn setup(with_dns: bool) -> Setup {
    let mut setup = Setup::default();
    for (file, scripts) in [
        (&mut setup.server, &OF_SERVER[..]),
        (&mut setup.client, &OF_CLIENT[..]),
    ] {
        file.line("script-security 3").file("told.sh", SCRIPT);
        for script in scripts {
            let command = ["/bin/sh told.sh", "via-env"];
            let words = 1 + usize::from(*script == "auth-user-pass-verify");
            file.words(script, &command[..words]);
        }
    }
    setup.client.line("auth-user-pass login");
    setup.client.file("login", "anna\nsecret\n");
    setup.server.line("route 10.99.0.0 255.255.0.0");
    for pushed in [
        "route 10.77.0.0 255.255.0.0",
        "dhcp-option DNS 192.0.2.53",
        "dhcp-option DOMAIN pushed.example",
        "dhcp-option NTP 192.0.2.3",
    ] {
        setup.server.words("push", [pushed]);
    }
    setup
        .client
        .line("dhcp-option DNS 192.0.2.60")
        .line("dhcp-option DOMAIN own.example")
        .line("route 10.66.0.0 255.255.0.0");
    if with_dns {
        setup
            .server
            .words("push", ["dns server 1 address 192.0.2.54"]);
        setup
            .server
            .words("push", ["dns search-domains corp.example"]);
        setup.client.line("dns server 2 address 192.0.2.99");
    }
    setup
}

#[test]
fn scripts_are_told_what_the_stock_program_tells_them() {
    if !ready() {
        return;
    }
    let knows_dns = StockOpenVpn.release() >= (2, 6);
    for with_dns in [false, true] {
        if with_dns && !knows_dns {
            continue;
        }
        let setup = setup(with_dns);
        let run = |programs: [Box<dyn OpenVpn>; 2]| {
            let net = Net::new();
            let ends = Ends::new(&net, &setup, programs);
            (
                told(&ends.server, &OF_SERVER),
                told(&ends.client, &OF_CLIENT),
            )
        };
        let stock = run([Box::new(StockOpenVpn), Box::new(StockOpenVpn)]);
        let server = run([Box::new(millrace()), Box::new(StockOpenVpn)]).0;
        let client = run([Box::new(StockOpenVpn), Box::new(millrace())]).1;
        compare("server", &stock.0, &server);
        compare("client", &stock.1, &client);
        let up = &client["up"];
        let server = if with_dns { "192.0.2.54" } else { "192.0.2.60" };
        assert!(
            up.values()
                .any(|it| *it == format!("dhcp-option DNS {server}")),
            "{up:?}"
        );
    }
}
