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
        let whole = sections.finish(false, !server);
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

    /// Why a [Line] does not go with the rest, if it does not.
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
