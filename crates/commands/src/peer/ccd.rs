//! Networks behind the clients of an OpenVPN server: `iroute` in a client's file of `client-config-dir`, `route` and
//! `push` in the server's file.
//!
//! The lines in the server's file follow from the clients' files. Each ends with the comment `# behind NAME`, with the
//! name in a client's certificate; all others are left alone.

use crate::peer::secret;
use crate::server::{netmask, quoted};
use config::openvpn::{ClientSettings, parse_client_settings};
use config::types::AllowedIp;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use zeroize::Zeroizing;

/// The mark of our lines in the server's file.
const MARK: &str = " # behind ";

/// The server's directive for a network, which is also what clients are pushed.
pub(super) fn route(network: AllowedIp) -> String {
    match network.addr() {
        IpAddr::V4(addr) => format!("route {addr} {}", netmask(network.prefix())),
        IpAddr::V6(_) => format!("route-ipv6 {network}"),
    }
}

/// The networks behind a client, by the text of its file.
pub(super) fn networks(text: &str) -> Vec<AllowedIp> {
    let (settings, _) = parse_client_settings(text, "", true);
    let ClientSettings {
        iroutes,
        iroutes_v6,
        ..
    } = settings;
    let v4 = iroutes.into_iter().map(|(addr, bits)| (addr.into(), bits));
    let v6 = iroutes_v6
        .into_iter()
        .map(|(addr, bits)| (addr.into(), bits));
    let all = v4.chain(v6);
    all.filter_map(|(addr, bits)| AllowedIp::new(addr, bits).ok())
        .collect()
}

/// A client's file with these networks behind it instead of others. It gets no route to them itself.
pub(super) fn of_client(text: &str, behind: &[AllowedIp]) -> String {
    let own = |network: &AllowedIp| format!("push-remove \"{}\"", route(*network));
    let before: Vec<String> = networks(text).iter().map(own).collect();
    let is_ours = |line: &&str| {
        let word = line.split_whitespace().next().unwrap_or_default();
        word.starts_with("iroute") || before.iter().any(|it| it == line.trim())
    };
    let mut out: String = text
        .split_inclusive('\n')
        .filter(|it| !is_ours(it))
        .collect();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    for network in behind {
        let _ = writeln!(out, "i{}\n{}", route(*network), own(network));
    }
    out
}

/// The server's file with routes to these networks, each with the name in its client's certificate, instead of the
/// lines of the clients in `names`. `directory` is put in as `client-config-dir`.
pub(super) fn of_server(
    text: &str,
    directory: Option<&Path>,
    names: &[&str],
    behind: &[(&str, AllowedIp)],
) -> Zeroizing<String> {
    let is_ours = |line: &str| {
        let (front, name) = line.trim_end().rsplit_once(MARK).unwrap_or_default();
        names.contains(&name) && (front.starts_with("route") || front.starts_with("push "))
    };
    // A line of an inline block would take ours into the block.
    let is_here = |line: &str| is_ours(line) || line.trim_start().starts_with('<');
    let lines = || text.split_inclusive('\n');
    let before = lines().take_while(|line| !is_here(line)).map(str::len);
    let (before, after) = text.split_at(before.sum());
    let mut new = String::new();
    if !before.is_empty() && !before.ends_with('\n') {
        new.push('\n');
    }
    if let Some(directory) = directory {
        let directory = directory.display().to_string();
        let _ = writeln!(new, "client-config-dir \"{}\"", quoted(&directory));
    }
    for (name, network) in behind {
        let route = route(*network);
        let _ = writeln!(new, "{route}{MARK}{name}\npush \"{route}\"{MARK}{name}");
    }
    let mut parts = vec![before, &new];
    parts.extend(after.split_inclusive('\n').filter(|line| !is_ours(line)));
    secret(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(text: &str) -> AllowedIp {
        text.parse().unwrap()
    }

    #[test]
    fn a_clients_file_keeps_what_is_not_ours() {
        let both = [range("192.168.7.0/24"), range("fd00:7::/64")];
        let own = "ifconfig-push 10.8.0.9 255.255.255.0\npush-remove \"route 10.0.0.0 255.0.0.0\"";
        let text = of_client(own, &both);
        assert_eq!(
            text,
            format!(
                "{own}\niroute 192.168.7.0 255.255.255.0\npush-remove \"route 192.168.7.0 255.255.255.0\"\n\
                 iroute-ipv6 fd00:7::/64\npush-remove \"route-ipv6 fd00:7::/64\"\n"
            )
        );
        assert_eq!(networks(&text), both);
        let one = of_client(&text, &both[1..]);
        assert_eq!(networks(&one), both[1..]);
        assert_eq!(of_client(&one, &[]), format!("{own}\n"));
        let by_hand = "iroute 192.168.8.0 255.255.255.0 # mine\n";
        assert_eq!(networks(by_hand), [range("192.168.8.0/24")]);
        assert_eq!(of_client(by_hand, &[]), "");
    }

    const SERVER: &str = "dev home\r\nroute 10.9.0.0 255.255.255.0 # behind nat\n# note # behind store-7\n\
        crl-verify \"/a b/revoked\" dir\n<ca>\nMII=\n</ca>\nverb 3";

    #[test]
    fn a_servers_file_has_the_networks_of_all_clients() {
        let one = ("store-7", range("192.168.7.0/24"));
        let two = ("store-8", range("fd00:8::/64"));
        let names = ["store-7", "store-8"];
        let text = of_server(SERVER, Some(Path::new("/a \"b/ccd")), &names, &[one, two]);
        let ours = "route 192.168.7.0 255.255.255.0 # behind store-7\n\
            push \"route 192.168.7.0 255.255.255.0\" # behind store-7\n\
            route-ipv6 fd00:8::/64 # behind store-8\npush \"route-ipv6 fd00:8::/64\" # behind store-8\n";
        let directory = "client-config-dir \"/a \\\"b/ccd\"\n";
        let block = SERVER.find("<ca>").unwrap();
        let (before, after) = SERVER.split_at(block);
        assert_eq!(*text, format!("{before}{directory}{ours}{after}"));
        assert_eq!(*of_server(&text, None, &names, &[one, two]), *text);
        let without = format!("{before}{directory}{after}");
        assert_eq!(*of_server(&text, None, &names, &[]), without);
        let bare = of_server("dev home", None, &names, &[one]);
        assert!(
            bare.starts_with("dev home\nroute 192.168.7.0 "),
            "{}",
            *bare
        );
    }

    proptest! {
        #[test]
        fn routes_come_and_go_and_every_other_line_stays(
            lines in proptest::collection::vec(prop_oneof![
                Just("dev home"), Just("# note"), Just("<ca>"), Just("MII="), Just("</ca>"), Just(""),
                Just("route 10.1.0.0 255.255.0.0"), Just("push \"route 10.1.0.0 255.255.0.0\"  # mine"),
            ], 0..12),
            numbers in proptest::collection::btree_set(any::<u8>(), 0..4),
        ) {
            let text: String = lines.iter().map(|it| format!("{it}\n")).collect();
            let networks: Vec<AllowedIp> =
                numbers.iter().map(|it| range(&format!("192.168.{it}.0/24"))).collect();
            let named: Vec<_> = networks.iter().map(|it| ("store", *it)).collect();
            let with = of_server(&text, None, &["store"], &named);
            prop_assert_eq!(with.matches("# behind store").count(), 2 * named.len());
            prop_assert_eq!(&*of_server(&with, None, &["store"], &named), &*with);
            prop_assert_eq!(&*of_server(&with, None, &["store"], &[]), &*text);
            let text = text.replace('<', "#<");
            let client = of_client(&text, &networks);
            prop_assert!(client.starts_with(&text));
            prop_assert_eq!(of_client(&client, &[]), text);
        }
    }
}
