use super::*;
use crate::filter::Chains;
use crate::fixture::made;
use crate::fixture::{self, TEXT, facts, resolved};
use crate::report::Part;
use netio::netlink::ChainRule;

fn wanted() -> WantedTable {
    super::wanted(&resolved(), &facts())
}

fn text(table: &WantedTable) -> String {
    let [text, _] = table.scripts("");
    text
}

fn plain(table: &WantedTable) -> String {
    let [_, text] = table.scripts("");
    text
}

#[test]
fn the_text_writes_marks_only_under_the_mask() {
    let text = text(&wanted());
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
        let servers = format!("through = \"mr-us\"\n{servers}");
        let text = TEXT.replacen("through = \"mr-us\"", &servers, 1);
        let resolved = fixture::of(&format!("masquerade = true\n{text}"));
        plain(&super::wanted(&resolved, &facts()))
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
    let text = plain(&wanted());
    assert!(!text.contains("dport 53") && !text.contains("masquerade"));
}

#[test]
fn chains_that_are_not_wanted_go_and_sets_that_are_stay() {
    let wanted = wanted();
    let own = wanted.sets[0].0.clone();
    let all =
        "table inet millrace_policy {\n\tset d1_4 {\n\t}\n\tchain to_99 {\n\t\tjump x\n\t}\n}\n";
    let [_, text] = wanted.scripts(&format!("{all}\tset {own} {{\n"));
    assert!(text.contains("flush chain inet millrace_policy to_99\n"));
    assert!(text.ends_with(
        "delete chain inet millrace_policy to_99\ndelete set inet millrace_policy d1_4\n"
    ));
    assert!(!text.contains(&format!("delete set inet millrace_policy {own}")));
    assert!(!text.contains("delete table") && !text.contains(REFUSE) && !text.contains("reject"));
}

/// The kernel makes room for a declared size at once: a word for each of the buckets, a power of two, of which three
/// quarters may be used.
#[test]
fn the_sets_of_a_name_take_little_memory() {
    for (name, kind) in wanted().sets {
        let size = kind
            .split("size ")
            .nth(1)
            .map_or("0", |it| it.trim_end_matches(';'));
        let buckets = (size.parse::<usize>().unwrap() * 4 / 3).next_power_of_two();
        assert!(buckets * 8 <= 32 << 10, "{name}: {kind}");
    }
}

#[test]
fn the_table_is_known_again_and_what_was_changed_is_noticed() {
    let wanted = wanted();
    let mut chains = Chains::default();
    let mut is_whole = |found| {
        chains.found = found;
        chains.part(&wanted.chains) == Part::Whole
    };
    let found = made(&wanted);
    assert!(is_whole(found.clone()));
    for name in found.keys() {
        let mut without = found.clone();
        without.remove(name);
        assert!(!is_whole(without));
        let mut more = found.clone();
        more.get_mut(name).unwrap().rules.push(ChainRule::default());
        assert!(!is_whole(more));
    }
    let mut elsewhere = facts();
    elsewhere.addresses.pop();
    elsewhere.main.remove(0);
    assert!(!is_whole(made(&super::wanted(&resolved(), &elsewhere))));
}

#[test]
fn who_is_not_known_yet_is_not_everybody() {
    let resolved = Resolved::new(&fixture::policy(), &Default::default(), Vec::new());
    let text = text(&super::wanted(&resolved, &facts()));
    assert!(!text.contains("jump to_2"), "{text}");
}

#[test]
fn a_whole_device_is_held_under_other_names_and_calls_no_server() {
    let resolved = fixture::of(&TEXT.replace("to = \"192.168.1.0/24\"\n", ""));
    let mut facts = facts();
    facts.known.ports = vec!["lan2".to_owned()];
    facts.known.indices = [(4, "br-guest"), (9, "lan2")]
        .map(|(index, name)| (index, name.to_owned()))
        .into();
    facts.links[1].group = host::tunnel_devices::SERVER_GROUP;
    facts.links[1].alias = "serves ports 51820 1194".to_owned();
    let text = text(&super::wanted(&resolved, &facts));
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
    let [text, _] = wanted().scripts("");
    assert!(
        !text.contains(" iif {") && !text.contains("fib daddr type local meta"),
        "{text}"
    );
}
