//! PPTP behind OpenWrt's default firewall, which rejects the server's GRE.

use lab::acceptance::fw4::Fw4;
use lab::acceptance::netifd::Netifd;
use lab::acceptance::{Directory, Net, PATIENCE, PROGRAM, reaches};
use lab::tools;

const OFFICE: &str = "office";
const COMMON: &str = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\n";

/// The log gives the commands; the connection comes up with them.
#[test]
fn a_client_names_the_rule_that_it_lacks_and_comes_up_with_it() {
    if !lab::acceptance::ready() || lab::require(tools::find("nft")).is_none() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let text = format!(
        "{COMMON}listen = \"0.0.0.0\"\naddress = \"10.9.0.1/24\"\ninterface = \"pptp0\"\n\n\
         [users]\nalice = \"correct horse\"\n"
    );
    let file = directory.file("server.toml", &text);
    let mut server = net.b.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
    let is_up = |line: &str| line.contains("is up");
    server.wait_for_line("the server", PATIENCE, is_up).unwrap();
    let text = format!(
        "{COMMON}server = \"{}\"\nusername = \"alice\"\npassword = \"correct horse\"\n",
        net.link.b4()
    );
    directory.file("office.toml", &text);
    directory.interface(OFFICE, "office.toml", "");
    let mut firewall = Fw4::start(&net.a, "eth0", &directory);
    let mut netifd = Netifd::start(&net.a, OFFICE, directory.path());
    netifd.if_up();
    netifd.until_said("answers, but no GRE (IP protocol 47) arrives");
    let said = netifd.said();
    let rule = &said[said.find("uci set").unwrap()..];
    let rule: Vec<&str> = rule.lines().next().unwrap().split("; ").collect();
    assert!(!net.a.output("ip", ["address"]).unwrap().contains("10.9.0."));
    firewall.uci(&rule);
    netifd.until_has(&["10.9.0.2/32"], &[]);
    reaches(&net.a, "10.9.0.1");
    netifd.if_down();
}
