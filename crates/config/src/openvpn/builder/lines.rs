//! Lines (uplinks), described in comments that begin with `#!`, which other programs skip.

use super::Builder;
use crate::home;
use crate::lines::{Found, Lines, Sections, SharedLines};
use crate::openvpn::directive::{Directive, Origin};
use crate::openvpn::{Connection, HttpProxy, OpenVpn, Proxy, Sockets};
use crate::report::Verdict;
use std::net::IpAddr;

/// Comments about lines that were read so far. Their numbers keep comments of different files apart.
#[derive(Default)]
pub(crate) struct LinesDraft {
    sections: Sections,
    /// Place of each comment, and the index of its verdict in `judged`, if it has one.
    places: Vec<(Origin, Option<usize>)>,
}

impl LinesDraft {
    /// Ends the section at a directive: later comments belong to no line, up to the next head.
    pub(super) fn end(&mut self) {
        self.sections.end();
    }
}

impl Builder {
    /// Takes a comment that may describe lines.
    pub(super) fn hear_comment(&mut self, directive: &Directive) {
        let text = directive.get(0).unwrap_or_default();
        let number = self.lines.places.len();
        let found = self.lines.sections.comment(number, text);
        let place = self.judged.len();
        let judged = match found {
            Found::Nothing => None,
            Found::Key(key) => {
                let named = Directive {
                    name: key.to_owned(),
                    ..directive.clone()
                };
                self.push(&named, Verdict::Honoured, "");
                Some(place)
            }
            Found::Fault(key, reason) => {
                self.refuse(&directive.origin, &key, reason);
                None
            }
        };
        self.lines.places.push((directive.origin.clone(), judged));
    }

    /// The lines, after the last directive.
    pub(super) fn settle_lines(&mut self, server: bool, connections: &[Connection]) -> Lines {
        let LinesDraft {
            mut sections,
            places,
        } = std::mem::take(&mut self.lines);
        if let Some((head, _)) = sections.take_pool()
            && let Some((origin, _)) = places.get(head)
        {
            let reason =
                "a [Pool] is for WireGuard; name several servers by several lines `remote`";
            self.refuse(origin, "", reason.to_owned());
        }
        // Routes send traffic to the server past the tunnel, so that no mark is needed.
        let whole = sections.finish(false, usize::from(!server));
        let lines = whole.lines;
        // Only a server forwards packets of other hosts.
        self.draft.network.home = whole.home.filter(|_| server);
        if self.draft.network.home.is_some() {
            self.warnings.push(format!("[Server]: {}", home::ROUTES));
        }
        let idle = whole.home_lines.iter().filter(|_| !server);
        let idle = idle.map(|number| (*number, "is for servers only; remove the section"));
        let idle: Vec<_> = idle.chain(whole.idle).collect();
        for (number, reason) in whole.faults {
            if let Some((origin, _)) = places.get(number) {
                self.refuse(origin, "", reason);
            }
        }
        for (number, reason) in idle {
            let judged = places.get(number).and_then(|(_, at)| *at);
            if let Some(judged) = judged.and_then(|at| self.judged.get_mut(at)) {
                judged.verdict = Verdict::Ignored;
                reason.clone_into(&mut judged.reason);
            }
        }
        let first = places.first().map(|(origin, _)| origin.clone());
        if let Some(origin) = first.filter(|_| !lines.lines.is_empty())
            && let Some(reason) = conflict(server, &lines, connections, &self.draft.sockets)
        {
            self.refuse(&origin, "", reason);
        }
        self.draft.data.reorder |= lines.reorder;
        lines
    }
}

impl OpenVpn {
    /// Takes the settings file's lines if the profile has none. Returns the origin of the lines, and a warning for
    /// each setting that does not fit.
    pub fn take_lines(&mut self, shared: &SharedLines) -> (Option<String>, Vec<String>) {
        if !self.lines.is_default() {
            return (None, Vec::new());
        }
        let given = match self.server() {
            Some(_) => shared.fit_server(),
            None => {
                let stream = self.connections.iter().any(is_tcp);
                let given = shared.fit_client(stream, self.connections.len());
                match conflict(false, &given.lines, &self.connections, &self.sockets) {
                    Some(why) if !given.lines.lines.is_empty() => shared.refuse(why),
                    _ => given,
                }
            }
        };
        self.data.reorder |= given.lines.reorder;
        self.lines = given.lines;
        (given.origin, given.warnings)
    }
}

const fn is_tcp(connection: &Connection) -> bool {
    connection.protocol.transport.is_tcp()
}

/// Whether a proxy runs on this machine.
fn is_here(proxy: &Proxy) -> bool {
    let (Proxy::Http(HttpProxy { host, .. }) | Proxy::Socks { host, .. }) = proxy;
    let host = host.trim_matches(['[', ']']);
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
}

/// Why an `[Uplink]` contradicts the other settings; `None` if it does not.
fn conflict(
    server: bool,
    lines: &Lines,
    connections: &[Connection],
    sockets: &Sockets,
) -> Option<&'static str> {
    let tcp = connections.iter().any(is_tcp);
    let relayed = lines.lines.iter().any(|line| line.relay.is_some());
    let near = |it: &Connection| it.proxy.as_ref().is_some_and(is_here);
    if server {
        Some(
            "a server has no [Uplink], as it answers clients on the paths that they use; keep only [Uplinks], with a \
             Mode",
        )
    } else if relayed && (tcp || connections.len() > 1) {
        Some(
            "a relay forwards datagrams to only one server; with a Relay, give exactly one `remote`, over UDP",
        )
    } else if tcp && (lines.mode.spreads() || lines.shape) {
        Some(
            "TCP uses one connection over one uplink at a time; with a TCP remote write `Mode = failover` or `Mode = \
             single`, and no Shape",
        )
    } else if tcp && lines.lines.iter().any(|line| line.cap.is_some()) {
        Some("a Cap counts only UDP datagrams, but a remote uses TCP; remove each Cap and CapDay")
    } else if connections
        .iter()
        .any(|it| it.proxy.is_some() && !is_tcp(it))
    {
        Some("uplinks work with a proxy over TCP only; remove each [Uplink], or the proxy")
    } else if connections.iter().any(near) {
        Some(
            "a proxy on this machine is not reached through an uplink; remove each [Uplink], or the proxy",
        )
    } else if sockets.device.is_some() || connections.iter().any(|it| it.local.host.is_some()) {
        Some(
            "`local` and `bind-dev` are for one uplink; use Source and Interface in each [Uplink] instead",
        )
    } else if lines.shape && sockets.shaper.is_some() {
        Some("`shaper` and `Shape = yes` both limit the rate; keep one of them")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::lines::LineMode;
    use crate::openvpn::{Import, Options, parse_bytes};
    use crate::report::Verdict;
    use crate::settings::Settings;
    use std::path::Path;

    const CLIENT: &str = "client\ndev tun\nremote 192.0.2.1\nca ca\ncert cert\nkey key\n";

    fn import(text: &str) -> Import {
        let mut none = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        let path = Path::new("office.ovpn");
        parse_bytes(text.as_bytes(), path, &mut none, Options::default()).unwrap()
    }

    const TWO: &str = "#! [Uplinks]\n#! Mode = duplicate\n#! Hold = 5\n#! Reorder = yes\n\
        #! [Uplink]\n#! Name = dsl\n#! Interface = eth1\n\
        #! [Uplink]\n#! Name = lte\n#! Interface = wwan0\n#! Metered = yes\n";

    #[test]
    fn lines_stand_in_comments_wherever_they_are() {
        for text in [format!("{TWO}{CLIENT}"), format!("{CLIENT}{TWO}# the end")] {
            let import = import(&text);
            assert_eq!(import.faults(), [""; 0]);
            let idle = |key| {
                let entries = import.report.entries.iter();
                let verdicts = entries.filter(|it| it.key == key).map(|it| it.verdict);
                verdicts.collect::<Vec<_>>()
            };
            assert_eq!(idle("Mode"), [Verdict::Honoured]);
            assert_eq!(idle("Hold"), [Verdict::Honoured]);
            let (config, _) = import.into_model().unwrap();
            assert_eq!(config.lines.mode, LineMode::Duplicate);
            let names: Vec<_> = config.lines.lines.iter().map(|it| &*it.name).collect();
            assert_eq!(names, ["dsl", "lte"]);
            assert!(config.data.reorder, "as the line of that name");
        }
    }

    #[test]
    fn a_directive_ends_a_section() {
        let text =
            format!("#! [Uplink]\n#! Name = dsl\n#! Interface = eth1\n{CLIENT}#! Rate = 5M\n");
        let (config, _) = import(&text).into_model().unwrap();
        assert_eq!(config.lines.lines[0].rate, None);
        // Other comments are ignored.
        let text = format!("#!/usr/sbin/openvpn 'x\n; #! [Uplink]\n# #! [Uplink]\n{CLIENT}");
        let (config, report) = import(&text).into_model().unwrap();
        assert!(config.lines.is_default());
        assert_eq!(report.entries.len(), 6);
    }

    #[test]
    fn a_server_has_no_lines_of_its_own_but_a_mode() {
        let server = "server 10.8.0.0 255.255.255.0\ndev tun\nca ca\ncert cert\nkey key\ndh none\n";
        let (config, _) = import(&format!("{server}#! [Uplinks]\n#! Mode = duplicate\n"))
            .into_model()
            .unwrap();
        assert_eq!(config.lines.mode, LineMode::Duplicate);
        assert!(!import(&format!("{server}{TWO}")).is_usable());
    }

    #[test]
    fn only_a_servers_file_has_a_server_section() {
        let section = "#! [Server]\n#! Masquerade = yes\n";
        let server = "server 10.8.0.0 255.255.255.0\ndev tun\nca ca\ncert cert\nkey key\ndh none\n";
        for (file, verdict) in [(CLIENT, Verdict::Ignored), (server, Verdict::Honoured)] {
            let import = import(&format!("{section}{file}"));
            let entries = import.report.entries.iter().take(2);
            let verdicts: Vec<_> = entries.map(|it| (it.key.as_str(), it.verdict)).collect();
            assert_eq!(verdicts, [("[Server]", verdict), ("Masquerade", verdict)]);
            let told = import.warnings.iter().any(|it| it.contains("forwards"));
            assert_eq!(told, verdict == Verdict::Honoured, "{:?}", import.warnings);
            let (config, _) = import.into_model().unwrap();
            let is_server = verdict == Verdict::Honoured;
            assert_eq!(config.network.home.is_some(), is_server);
        }
    }

    #[test]
    fn a_file_without_lines_takes_those_of_the_settings() {
        let settings = "[uplinks]\nmode = 'duplicate'\nreorder = true\n[[uplink]]\nname = 'a'\ninterface = 'eth1'\n";
        let settings = Settings::from_toml(settings, Path::new("m.toml")).unwrap();
        let taken = |text: &str| {
            let (mut config, _) = import(text).into_model().unwrap();
            let (origin, warnings) = config.take_lines(settings.lines.as_ref().unwrap());
            (config, origin, warnings)
        };
        let (config, origin, warnings) = taken(CLIENT);
        assert_eq!(origin.as_deref(), Some("duplicate on a, from m.toml"));
        assert_eq!((config.lines.lines.len(), warnings.len()), (1, 0));
        assert!(config.data.reorder);
        let (config, origin, _) = taken(&format!("{TWO}{CLIENT}"));
        assert_eq!((config.lines.lines.len(), origin), (2, None), "its own");
        let (config, origin, warnings) = taken(&format!("{CLIENT}bind-dev eth0\n"));
        assert!(config.lines.is_default() && origin.is_none());
        assert!(
            warnings[0].contains("use source and interface"),
            "{warnings:?}"
        );
        let (config, origin, warnings) = taken(&format!("{CLIENT}proto tcp\n"));
        assert_eq!(config.lines.mode, LineMode::Failover);
        assert_eq!(origin.as_deref(), Some("failover on a, from m.toml"));
        assert!(
            warnings[0].contains("`duplicate` is treated as `failover`"),
            "{warnings:?}"
        );
        let text = "[[uplink]]\nname = 'a'\ninterface = 'eth1'\n[[uplink]]\nname = 'r'\nrelay = '192.0.2.9:5'\n\
            relay-key = 'YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE='\n";
        let relayed = Settings::from_toml(text, Path::new("m.toml")).unwrap();
        for (more, count) in [("", 2), ("proto tcp\n", 1), ("remote 192.0.2.2\n", 1)] {
            let (mut config, _) = import(&format!("{CLIENT}{more}")).into_model().unwrap();
            let (_, warnings) = config.take_lines(relayed.lines.as_ref().unwrap());
            assert_eq!(config.lines.lines.len(), count, "{more}: {warnings:?}");
            let told = warnings
                .iter()
                .any(|it| it.contains("uplinks through a relay are skipped"));
            assert_eq!(told, count == 1, "{more}: {warnings:?}");
        }
        let server = "server 10.8.0.0 255.255.255.0\ndev tun\nca ca\ncert cert\nkey key\ndh none\n";
        let (config, _, warnings) = taken(server);
        assert_eq!(config.lines.mode, LineMode::Duplicate);
        assert!(config.lines.lines.is_empty() && config.data.reorder);
        assert!(
            warnings[0].contains("a server does not use [[uplink]]"),
            "{warnings:?}"
        );
    }

    #[test]
    fn what_does_not_go_with_lines_is_refused() {
        for (more, words) in [
            ("proto tcp\n", "one uplink at a time"),
            ("remote 192.0.2.2 1194 tcp\n", "one uplink at a time"),
            ("socks-proxy 192.0.2.2\n", "over TCP only"),
            ("local 192.0.2.3\n", "Source"),
            ("bind-dev eth0\n", "Interface"),
        ] {
            let import = import(&format!("{TWO}{CLIENT}{more}"));
            let found = import.faults().iter().any(|it| it.contains(words));
            assert!(found, "{more}: {:?}", import.faults());
        }
        let relay = "#! [Uplink]\n#! Name = r\n#! Relay = 192.0.2.9:5\n\
            #! RelayKey = YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=\n";
        let relayed = import(&format!("{relay}{CLIENT}"));
        assert_eq!(relayed.faults(), [""; 0]);
        for more in ["proto tcp\n", "remote 192.0.2.2\n"] {
            let import = import(&format!("{relay}{CLIENT}{more}"));
            let found = import.faults().iter().any(|it| it.contains("one `remote`"));
            assert!(found, "{more}: {:?}", import.faults());
        }
        let failover = TWO.replace("duplicate", "failover");
        let near = "proto tcp\nhttp-proxy 127.0.0.1 3128\n";
        let near = import(&format!("{failover}{CLIENT}{near}"));
        let found = near.faults().iter().any(|it| it.contains("this machine"));
        assert!(found, "{:?}", near.faults());
        for more in [
            "proto tcp\n",
            "proto tcp\nsocks-proxy 192.0.2.2\n",
            "remote 192.0.2.2 443 tcp\n",
        ] {
            let import = import(&format!("{failover}{CLIENT}{more}"));
            assert_eq!(import.faults(), [""; 0], "{more}");
        }
        let import = import(&format!("{CLIENT}#! [Uplink]\n#! Nam = dsl\n"));
        let found = import
            .faults()
            .iter()
            .any(|it| it.contains("office.ovpn:8"));
        assert!(found, "{:?}", import.faults());
    }
}
