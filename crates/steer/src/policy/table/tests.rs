use super::*;
use crate::policy::fixture::{names, policy, surroundings};
use crate::policy::resolved::resolved;
use netio::netlink::ChainRule;

fn wanted() -> WantedTable {
    let policy = policy();
    WantedTable::new(
        &Ways::new(&policy),
        &resolved(&policy, &names()),
        &surroundings(),
    )
}

/// The chains as the kernel would list them.
fn made(wanted: &WantedTable) -> Vec<Option<Chain>> {
    let chain = |it: &WantedChain| {
        let rule = |place| ChainRule {
            comment: wanted.comment(place),
            packets: None,
        };
        Some(Chain {
            hook: it.hook.map(|(_, _, hook, priority)| (hook, priority)),
            rules: (0..it.rules.len()).map(rule).collect(),
        })
    };
    wanted.chains.iter().map(chain).collect()
}

#[test]
fn the_text_writes_marks_only_under_the_mask() {
    let text = wanted().script(Refusal::Reject, &[], &[]);
    for line in text.lines().filter(|line| line.contains(" mark set ")) {
        for of in line.split(" mark set ").skip(1) {
            let words: Vec<&str> = of.split(' ').collect();
            assert_eq!(
                (words[1], words[2], words[3]),
                ("mark", "and", "0x00ffffff"),
                "{line}"
            );
            let mark = u32::from_str_radix(words[5].trim_start_matches("0x"), 16).unwrap();
            assert_eq!(mark & 0x00ff_ffff, 0, "{line}");
        }
    }
    assert!(text.contains("ether saddr { 02:00:5e:10:00:01, 02:00:5e:10:00:02 } jump to_1"));
    assert!(text.contains("to_1 ip daddr { 192.168.1.0/24, 192.168.2.0/24 } return"));
    // An entry that blocks a network of the LAN has no exception for that network.
    assert!(!text.contains("to_4 ip daddr { 192.168.1.0/24, 192.168.2.0/24 } return"));
    assert!(text.contains("prerouting iifname != { \"br-lan\", \"br-guest\" } return"));
}

#[test]
fn names_of_a_device_are_led_to_the_servers_of_its_entry_and_refused_without() {
    let told = |servers: &str| {
        let text = crate::policy::fixture::TEXT.replacen(
            "through = \"mr-us\"",
            &format!("through = \"mr-us\"\n{servers}"),
            1,
        );
        let policy = config::policy::Policy::from_toml(&text, "policy.toml".as_ref()).unwrap();
        let around = Surroundings {
            masquerade: true,
            ..surroundings()
        };
        let entries = resolved(&policy, &names());
        WantedTable::new(&Ways::new(&policy), &entries, &around).script(Refusal::Drop, &[], &[])
    };
    let who = "ether saddr { 02:00:5e:10:00:01, 02:00:5e:10:00:02 }";
    let query = "meta l4proto { tcp, udp } th dport 53";
    let from = "iifname { \"br-lan\", \"br-guest\" }";
    let text = told("dns = [\"10.8.0.1\"]");
    // Queries are marked before packets to the router itself are skipped.
    let mark = text.find(&format!("prerouting {who} {query} goto way_1000000"));
    assert!(mark.unwrap() < text.find("fib daddr").unwrap(), "{text}");
    assert!(text.contains(&format!(
        "names {from} {who} meta nfproto ipv4 {query} dnat ip to 10.8.0.1"
    )));
    assert!(!text.contains("dnat ip6"));
    assert!(text.contains(&format!("input {from} {who} {query} counter drop")));
    assert!(text.contains(&format!(
        "source {from} oifname {{ \"mr-us\", \"mr-nl\" }} masquerade"
    )));
    assert!(told("dns = [\"10.8.0.1\", \"fd08::1\"]").contains("dnat ip6 to fd08::1"));
    let text = wanted().script(Refusal::Drop, &[], &[]);
    assert!(!text.contains("dport 53") && !text.contains("masquerade"));
}

#[test]
fn chains_that_are_not_wanted_go_and_sets_that_are_stay() {
    let wanted = wanted();
    let own = wanted.sets[0].0.clone();
    let all =
        "table inet millrace_policy {\n\tset d1_4 {\n\t}\n\tchain to_99 {\n\t\tjump x\n\t}\n}\n";
    let (chains, mut sets) = listed(all);
    assert_eq!(
        (chains.as_slice(), sets.as_slice()),
        (&["to_99".to_owned()][..], &["d1_4".to_owned()][..])
    );
    sets.push(own.clone());
    let text = wanted.script(Refusal::Drop, &chains, &sets);
    assert!(text.contains("flush chain inet millrace_policy to_99\n"));
    assert!(text.ends_with(
        "delete chain inet millrace_policy to_99\ndelete set inet millrace_policy d1_4\n"
    ));
    assert!(!text.contains(&format!("delete set inet millrace_policy {own}")));
    assert!(!text.contains("delete table") && !text.contains(REFUSE) && !text.contains("reject"));
}

#[test]
fn the_table_is_known_again_and_what_was_changed_is_noticed() {
    let wanted = wanted();
    let chains = made(&wanted);
    assert!(wanted.is(&chains));
    for place in 0..chains.len() {
        let mut without = chains.clone();
        without[place] = None;
        assert!(!wanted.is(&without));
        let mut more = chains.clone();
        more[place]
            .as_mut()
            .unwrap()
            .rules
            .push(ChainRule::default());
        assert!(!wanted.is(&more));
    }
    let mut elsewhere = surroundings();
    elsewhere.networks.pop();
    let policy = policy();
    let other = WantedTable::new(
        &Ways::new(&policy),
        &resolved(&policy, &names()),
        &elsewhere,
    );
    assert!(!other.is(&chains));
}

#[test]
fn who_is_not_known_yet_is_not_everybody() {
    let policy = policy();
    let entries = resolved(&policy, &Default::default());
    let text = WantedTable::new(&Ways::new(&policy), &entries, &surroundings()).script(
        Refusal::Reject,
        &[],
        &[],
    );
    assert!(!text.contains("jump to_2"), "{text}");
}

#[test]
fn a_whole_device_is_held_under_other_names_and_calls_no_server() {
    let around = Surroundings {
        devices: vec!["br-guest".to_owned()],
        ports: vec!["lan2".to_owned()],
        indices: vec![4, 9],
        servers: vec![1194, 51820],
        ..surroundings()
    };
    let policy = policy();
    let entries = resolved(&policy, &names());
    let table = WantedTable::new(&Ways::new(&policy), &entries, &around);
    let text = table.script(Refusal::Reject, &[], &[]);
    let foreign = "fib saddr . iif oif missing drop";
    for wanted in [
        format!("foreign iifname {{ \"br-guest\", \"lan2\" }} meta nfproto ipv4 {foreign}"),
        format!("foreign iif {{ 4, 9 }} meta nfproto ipv4 {foreign}"),
        "foreign iifname != \"lo\" iifname { \"br-guest\", \"lan2\" } fib daddr type local meta l4proto { tcp, udp } th dport \
         { 1194, 51820 } drop"
            .to_owned(),
        "iifname { \"lan2\" } oifname != { \"br-lan\", \"br-guest\" } counter drop".to_owned(),
        "iif { 4, 9 } oifname != { \"br-lan\", \"br-guest\" } counter drop".to_owned(),
    ] {
        assert!(text.contains(&wanted), "{wanted} is not in {text}");
    }
    let text = wanted().script(Refusal::Reject, &[], &[]);
    assert!(
        !text.contains(" iif {") && !text.contains("fib daddr type local meta"),
        "{text}"
    );
}
