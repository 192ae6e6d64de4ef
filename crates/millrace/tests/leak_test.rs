//! `millrace leak-test` with and without leaks: its verdicts match the counters at the far end.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io;

use lab::acceptance::dns::query;
use lab::acceptance::guarded::FAR;
use lab::acceptance::named::{INNER, Named, ROUTER};
use lab::acceptance::{Directory, PATIENCE, PROGRAM, ip, until};
use lab::load::{PingOptions, ping};
use lab::{Host, tools};
use nix::unistd::Uid;
use serde_json::Value;

fn ready() -> bool {
    let root = match Uid::current().is_root() {
        true => Ok(()),
        false => Err(io::Error::other("overlays need root")),
    };
    let found = ["nft", "dnsmasq"].map(tools::find);
    lab::acceptance::ready()
        && lab::require(root).is_some()
        && found.into_iter().all(|it| lab::require(it).is_some())
}

const WORDS: [&str; 8] = [
    "leak-test",
    "--json",
    "--domain",
    "secret.example",
    "--lan",
    "br-lan",
    "--tunnel",
    "mr-*",
];

/// Returns the test's verdict on the router's packets, and the exit code.
fn test(named: &Named, more: &[&str]) -> (Value, Option<i32>) {
    let command = named.world.router.command(PROGRAM);
    let exit = command.args(WORDS).args(more).exit().unwrap();
    (
        serde_json::from_str(&exit.stdout).unwrap(),
        exit.status.code(),
    )
}

/// Returns results and devices of all probes of one kind.
fn of<'v>(document: &'v Value, from: &str, what: &str) -> Vec<(&'v str, String)> {
    let all = document["probes"].as_array().unwrap().iter();
    let its = all.filter(|it| it["from"] == from && it["what"] == what);
    its.map(|it| (it["result"].as_str().unwrap(), it["devices"].to_string()))
        .collect()
}

/// A host without network devices sends nothing, which says nothing about its tunnels.
#[test]
fn a_host_with_only_a_loopback_cannot_be_tested() {
    if !lab::acceptance::ready() {
        return;
    }
    let host = Host::private("alone").unwrap();
    let test = |more: &[&str]| {
        let command = host.command(PROGRAM).args(["leak-test", "--no-packets"]);
        command.args(more).exit().unwrap()
    };
    let exit = test(&[]);
    assert_eq!(exit.status.code(), Some(2), "{exit:?}");
    assert!(exit.stdout.ends_with("no test was possible\n"), "{exit:?}");
    let document: Value = serde_json::from_str(&test(&["--json"]).stdout).unwrap();
    assert_eq!(document["result"], "unknown", "{document}");
}

/// The router's queries go to the provider, then, with the guard, nowhere, and then through the tunnel. Its other
/// packets always use the WAN, which the guard does not cover.
#[test]
fn what_the_router_asks_is_followed_to_its_device() {
    if !ready() {
        return;
    }
    let named = Named::new();
    let world = &named.world;
    let (document, code) = test(&named, &[]);
    assert_eq!(
        (code, &document["result"]),
        (Some(1), &"leak".into()),
        "{document}"
    );
    let by_wan = || ("leak", "[\"wan\"]".to_owned());
    assert_eq!(of(&document, "router", "query"), [by_wan()]);
    assert_eq!(of(&document, "router", "packet"), [by_wan(), by_wan()]);
    assert!(named.clear().0 > 0);

    let guard = |words: &[&str]| {
        let command = world.router.command(PROGRAM).arg("guard");
        command.args(words).output().unwrap()
    };
    guard(&[
        "on",
        "--lan",
        "br-lan",
        "--dns",
        INNER[0],
        "--dns-name",
        "secret.example",
    ]);
    let before = named.clear().0;
    let names = ["--no-packets"];
    let (document, code) = test(&named, &names);
    assert_eq!(
        (code, &document["result"]),
        (Some(0), &"none".into()),
        "{document}"
    );
    assert_eq!(
        of(&document, "router", "query"),
        [("held", "[]".to_owned())]
    );

    let directory = Directory::new();
    let _far = world.far_end(&directory);
    let _inner = named.inner();
    let tunnel = world.tunnel(&directory, "mr-real");
    guard(&["refresh"]);
    until("an answer by the tunnel", || {
        query(&world.pc, ip(ROUTER[0]), "abcdefgh.secret.example", false) == Some((0, 1))
    });
    let (document, code) = test(&named, &names);
    assert_eq!(code, Some(0), "{document}");
    assert_eq!(
        of(&document, "router", "query"),
        [("tunnel", "[\"mr-real\"]".to_owned())]
    );
    assert_eq!(named.clear().0, before);
    // A server that answers locally, or asks by a route the test cannot see, proves nothing.
    named.own_file("own.conf", "local=/secret.example/\n");
    guard(&["off"]);
    let (document, code) = test(&named, &names);
    assert_eq!(code, Some(2), "{document}");
    assert!(
        document["probes"][0]["why"]
            .to_string()
            .contains("answered"),
        "{document}"
    );
    assert!(tunnel.stop().unwrap().status.success());
}

/// A LAN device sends as instructed; without its packets the test gives no verdict.
#[test]
fn what_a_device_of_the_lan_sends_is_followed_too() {
    if !ready() {
        return;
    }
    let named = Named::new();
    let world = &named.world;
    for (guarded, wanted) in [(false, "leak"), (true, "held")] {
        if guarded {
            let words = [
                "guard",
                "on",
                "--lan",
                "br-lan",
                "--dns",
                INNER[0],
                "--dns-redirect",
            ];
            world.router.output(PROGRAM, words).unwrap();
        }
        let command = world.router.command(PROGRAM).args(WORDS);
        let mut process = command.args(["--from-lan", "30"]).spawn().unwrap();
        let mut told = |words: &str| {
            let line = process.wait_for_line(words, PATIENCE, |line| line.contains(words));
            line.unwrap().trim().split(' ').nth(1).unwrap().to_owned()
        };
        let name = told("nslookup ");
        let to = [told("ping 203."), told("ping 2001:")];
        // A server on the Internet, or the router's own.
        let server = if guarded { FAR[0] } else { ROUTER[0] };
        query(&world.pc, ip(server), &name, false);
        for to in to {
            let _ = ping(&world.pc, ip(&to), &PingOptions::count(1));
        }
        let exit = process.wait_at_most(PATIENCE).unwrap();
        let document: Value = serde_json::from_str(&exit.stdout).unwrap();
        let results = |what| {
            let all = of(&document, "lan", what);
            all.into_iter().map(|it| it.0).collect::<Vec<_>>()
        };
        assert_eq!(results("query"), [wanted], "{document}");
        assert_eq!(results("packet"), [wanted, wanted], "{document}");
    }
    let (document, code) = test(&named, &["--from-lan", "1", "--no-packets"]);
    assert_eq!(code, Some(2), "{document}");
    assert_eq!(
        of(&document, "lan", "query"),
        [("unknown", "[]".to_owned())]
    );
}
