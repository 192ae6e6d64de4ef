//! Lines, which stand in comments that begin with `#!`, so that the same file works with programs that know nothing of them.

use super::Builder;
use crate::lines::{Found, Lines, Sections};
use crate::openvpn::Connection;
use crate::openvpn::directive::{Directive, Origin};
use crate::report::Verdict;

/// What comments have said of lines so far. Comments of different files are told apart by a number that counts them.
#[derive(Default)]
pub(crate) struct LinesDraft {
    sections: Sections,
    /// Where each comment stands, and the place of its verdict in `judged`, if it has one.
    places: Vec<(Origin, Option<usize>)>,
}

impl LinesDraft {
    /// A directive, which belongs to no line; nor do comments behind it, up to the next head.
    pub(super) fn end(&mut self) {
        self.sections.end();
    }
}

impl Builder {
    /// Hears a comment that may speak of lines.
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

    /// The lines, once all is heard.
    pub(super) fn settle_lines(&mut self, server: bool, connections: &[Connection]) -> Lines {
        let LinesDraft { sections, places } = std::mem::take(&mut self.lines);
        // What goes past the tunnel does so by routes to the server, and not by a mark.
        let whole = sections.finish(false, usize::from(!server));
        let lines = whole.lines;
        for (number, reason) in whole.faults {
            if let Some((origin, _)) = places.get(number) {
                self.refuse(origin, "", reason);
            }
        }
        for (number, reason) in whole.idle {
            let judged = places.get(number).and_then(|(_, at)| *at);
            if let Some(judged) = judged.and_then(|at| self.judged.get_mut(at)) {
                judged.verdict = Verdict::Ignored;
                reason.clone_into(&mut judged.reason);
            }
        }
        let first = places.first().map(|(origin, _)| origin.clone());
        if let Some(origin) = first.filter(|_| !lines.lines.is_empty())
            && let Some(reason) = self.conflict_with_lines(server, &lines, connections)
        {
            self.refuse(&origin, "", reason);
        }
        self.data.reorder |= lines.reorder;
        lines
    }

    /// Why a `[Line]` does not go with the rest, if it does not.
    fn conflict_with_lines(
        &self,
        server: bool,
        lines: &Lines,
        connections: &[Connection],
    ) -> Option<&'static str> {
        let tcp = |it: &Connection| it.protocol.transport.is_tcp() || it.proxy.is_some();
        if server {
            Some(
                "a server has no [Line]; it answers clients by the lines that they call by: leave only [Lines], with a \
                 Mode",
            )
        } else if lines.lines.iter().any(|line| line.relay.is_some()) {
            Some(
                "lines by a relay are for WireGuard, not yet for OpenVPN; remove each Relay and RelayKey",
            )
        } else if connections.iter().any(tcp) {
            Some("lines are for UDP without a proxy; remove each [Line], or what is not")
        } else if self.sockets.device.is_some()
            || connections.iter().any(|it| it.local.host.is_some())
        {
            Some(
                "`local` and `bind-dev` are for one line; say it in each [Line], by Source and Interface",
            )
        } else if lines.shape && self.sockets.shaper.is_some() {
            Some("`shaper` and `Shape = yes` say the same; keep one of them")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::lines::LineMode;
    use crate::openvpn::{Import, Options, parse_bytes};
    use crate::report::Verdict;
    use std::path::Path;

    const CLIENT: &str = "client\ndev tun\nremote 192.0.2.1\nca ca\ncert cert\nkey key\n";

    fn import(text: &str) -> Import {
        let mut none = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        let path = Path::new("office.ovpn");
        parse_bytes(text.as_bytes(), path, &mut none, Options::default()).unwrap()
    }

    const TWO: &str = "#! [Lines]\n#! Mode = duplicate\n#! Hold = 5\n#! Reorder = yes\n\
        #! [Line]\n#! Name = dsl\n#! Interface = eth1\n\
        #! [Line]\n#! Name = lte\n#! Interface = wwan0\n#! Metered = yes\n";

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
            assert_eq!(idle("Hold"), [Verdict::Ignored], "one metered line");
            let (config, _) = import.into_model().unwrap();
            assert_eq!(config.lines.mode, LineMode::Duplicate);
            let names: Vec<_> = config.lines.lines.iter().map(|it| &*it.name).collect();
            assert_eq!(names, ["dsl", "lte"]);
            assert!(config.data.reorder, "as the line of that name");
        }
    }

    #[test]
    fn a_directive_ends_a_section() {
        let text = format!("#! [Line]\n#! Name = dsl\n#! Interface = eth1\n{CLIENT}#! Rate = 5M\n");
        let (config, _) = import(&text).into_model().unwrap();
        assert_eq!(config.lines.lines[0].rate, None);
        // Other comments are nothing to us.
        let text = format!("#!/usr/sbin/openvpn 'x\n; #! [Line]\n# #! [Line]\n{CLIENT}");
        let (config, report) = import(&text).into_model().unwrap();
        assert!(config.lines.is_default());
        assert_eq!(report.entries.len(), 6);
    }

    #[test]
    fn a_server_has_no_lines_of_its_own_but_a_mode() {
        let server = "server 10.8.0.0 255.255.255.0\ndev tun\nca ca\ncert cert\nkey key\ndh none\n";
        let (config, _) = import(&format!("{server}#! [Lines]\n#! Mode = duplicate\n"))
            .into_model()
            .unwrap();
        assert_eq!(config.lines.mode, LineMode::Duplicate);
        assert!(!import(&format!("{server}{TWO}")).is_usable());
    }

    #[test]
    fn what_does_not_go_with_lines_is_refused() {
        for (more, words) in [
            ("proto tcp\n", "UDP without a proxy"),
            ("socks-proxy 192.0.2.2\n", "UDP without a proxy"),
            ("local 192.0.2.3\n", "Source"),
            ("bind-dev eth0\n", "Interface"),
        ] {
            let import = import(&format!("{TWO}{CLIENT}{more}"));
            let found = import.faults().iter().any(|it| it.contains(words));
            assert!(found, "{more}: {:?}", import.faults());
        }
        let import = import(&format!("{CLIENT}#! [Line]\n#! Nam = dsl\n"));
        let found = import
            .faults()
            .iter()
            .any(|it| it.contains("office.ovpn:8"));
        assert!(found, "{:?}", import.faults());
    }
}
