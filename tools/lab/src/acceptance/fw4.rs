//! A double of OpenWrt's firewall, fw4: its table `inet fw4` in a host, from UCI's file `firewall`.
//!
//! It has the chains of the real one that packets to the router pass, and masquerades. Answers of GRE are not "established" there:
//! conntrack without the PPTP helper takes each direction of a call for a connection of its own.

use crate::Host;
use crate::acceptance::Directory;
use openwrt::uci::{Package, Section};
use std::fs;

/// OpenWrt's default file, without most of its rules for IPv6.
const DEFAULT: &str = "\
config defaults
	option syn_flood 1
	option input REJECT
	option output ACCEPT
	option forward REJECT

config zone
	option name lan
	list network 'lan'
	option input ACCEPT
	option output ACCEPT
	option forward ACCEPT

config zone
	option name wan
	list network 'wan'
	list network 'wan6'
	option input REJECT
	option output ACCEPT
	option forward REJECT
	option masq 1
	option mtu_fix 1

config rule
	option name Allow-DHCP-Renew
	option src wan
	option proto udp
	option dest_port 68
	option target ACCEPT
	option family ipv4

config rule
	option name Allow-Ping
	option src wan
	option proto icmp
	option family ipv4
	option target ACCEPT

config rule
	option name Allow-IGMP
	option src wan
	option proto igmp
	option family ipv4
	option target ACCEPT

config rule
	option name Allow-ICMPv6-Input
	option src wan
	option proto icmp
	option family ipv6
	option target ACCEPT
";

/// The firewall of one host, with the devices of its zone `wan`. Other zones accept input. `wan` and the tunnels' zone
/// masquerade.
pub struct Fw4<'h> {
    host: &'h Host,
    directory: &'h Directory,
    wan: &'h [&'h str],
    /// The file that `uci commit` writes.
    text: String,
}

impl<'h> Fw4<'h> {
    /// Starts the firewall with OpenWrt's default file, which it writes into UCI's directory.
    pub fn start(host: &'h Host, wan: &'h [&'h str], directory: &'h Directory) -> Self {
        let text = DEFAULT.to_owned();
        let mut firewall = Self {
            host,
            directory,
            wan,
            text,
        };
        firewall.uci(&["uci commit firewall", "service firewall reload"]);
        firewall
    }

    /// Executes commands that make a named section, as a user types them.
    pub fn uci(&mut self, commands: &[&str]) {
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            match words[..] {
                ["uci", "set", setting] => self.set(setting),
                ["uci", "commit", "firewall"] => self.directory.replace("firewall", &self.text),
                ["service", "firewall", "reload"] => self.reload(),
                _ => panic!("{command}: no such command"),
            }
        }
    }

    fn set(&mut self, setting: &str) {
        let (name, value) = setting.split_once('=').unwrap();
        match name.split('.').collect::<Vec<_>>()[..] {
            ["firewall", section] => self.text += &format!("\nconfig {value} '{section}'\n"),
            ["firewall", section, option] => {
                let last = self.text.rsplit("\nconfig ").next().unwrap();
                assert!(last.contains(&format!("'{section}'")), "{setting}: {last}");
                self.text += &format!("\toption {option} {value}\n");
            }
            _ => panic!("{setting}: no such setting"),
        }
    }

    /// Deletes the tables of every program, as `service firewall stop` does.
    pub fn stop(&self) {
        self.host.output("nft", ["flush", "ruleset"]).unwrap();
    }

    /// Renders the file, as `fw4 reload` does.
    pub fn reload(&self) {
        let text = fs::read_to_string(self.directory.path().join("firewall")).unwrap();
        let package = Package::parse(&text).unwrap();
        let accepts = |section: &Section, name| section.text(name) == Some("ACCEPT");
        let rules: String = package
            .of_kind("rule")
            .filter(|it| it.text("src") == Some("wan") && accepts(it, "target"))
            .map(accepted)
            .collect();
        let wan = self.wan.join("\", \"");
        let table = format!(
            "table inet fw4\nflush table inet fw4\ntable inet fw4 {{\n\
             chain input {{\ntype filter hook input priority filter; policy drop;\n\
             iif \"lo\" accept\nct state established,related accept\n\
             iifname {{ \"{wan}\" }} jump input_wan\naccept\n}}\n\
             chain input_wan {{\n{rules}jump reject_from_wan\n}}\n\
             chain reject_from_wan {{\niifname {{ \"{wan}\" }} counter jump handle_reject\n}}\n\
             chain srcnat {{\ntype nat hook postrouting priority srcnat;\n\
             oifname {{ \"{wan}\", \"mr-*\" }} fib saddr type != local masquerade\n}}\n\
             chain handle_reject {{\nmeta l4proto tcp reject with tcp reset\nreject with icmpx port-unreachable\n}}\n}}\n"
        );
        let file = self.directory.file("fw4.nft", &table);
        let file = file.display().to_string();
        self.host.output("nft", ["-f", &file]).unwrap();
    }
}

/// A rule that accepts packets, in nft's words.
fn accepted(rule: &Section) -> String {
    let protocols = rule.setting("proto").unwrap().values();
    let port = rule.text("dest_port");
    let line = |protocol: &str| match port {
        Some(port) => format!("{protocol} dport {port} counter accept\n"),
        // Numbers: a host without /etc/protocols does not know the names.
        None if rule.text("family") == Some("ipv6") => "meta l4proto 58 accept\n".to_owned(),
        None if protocol == "gre" => "meta l4proto 47 counter accept\n".to_owned(),
        None => format!("meta l4proto {protocol} counter accept\n"),
    };
    protocols.map(line).collect()
}
