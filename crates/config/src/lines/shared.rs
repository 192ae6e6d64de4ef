//! Lines of the settings file, for every tunnel whose own file has none.

use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::Lines;
use super::section::Sections;
use super::table::{Tables, in_toml};
use crate::file;
use crate::report::{Entry, Verdict};

/// Lines that several tunnels share.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharedLines {
    tables: Tables,
    place: PathBuf,
}

/// Lines that one tunnel gets from the shared lines.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Given {
    /// The tunnel's lines.
    pub lines: Lines,
    /// The source of the lines, in words; `None` if the tunnel gets none.
    pub origin: Option<String>,
    /// A sentence for each setting that does not fit the tunnel and was left out.
    pub warnings: Vec<String>,
}

impl SharedLines {
    /// Takes `[uplinks]` and `[[uplink]]` of a file, as [`Tables::read`] does; `place` is its path.
    ///
    /// # Errors
    /// The first verdict on a line or key that fits no tunnel at all.
    pub(crate) fn new(
        text: &str,
        [lines, line]: [Option<(&DeValue<'_>, usize)>; 2],
        place: &Path,
    ) -> Result<Self, Entry> {
        let tables = Tables::read(text, lines, line);
        let (_, entries) = tables.clone().finish(false, 1);
        let refused = entries
            .into_iter()
            .filter(|it| it.verdict == Verdict::Refused);
        // Missing keys sort last, as a misspelled key may be the cause.
        match refused.min_by_key(|it| (it.key.is_empty(), it.line)) {
            Some(entry) => Err(entry),
            None => Ok(Self {
                tables,
                place: place.to_owned(),
            }),
        }
    }

    /// Lines for a tunnel that reaches its peers over lines. `full` says that the tunnel takes all packets of the host;
    /// `called` is the number of peers it connects to.
    #[must_use]
    pub fn fit(&self, full: bool, called: usize) -> Given {
        let sections = self.tables.sections.clone();
        self.fit_sections(sections, full, called, Vec::new())
    }

    /// Lines for an OpenVPN client with `servers` remotes. If `stream` (TCP), the connection uses one line at a time.
    #[must_use]
    pub fn fit_client(&self, stream: bool, servers: usize) -> Given {
        let mut sections = self.tables.sections.clone();
        let mut warnings = Vec::new();
        let place = self.place.display();
        if stream && let Some(mode) = sections.go_singly() {
            let mode = mode.as_str();
            warnings.push(format!(
                "{place}: TCP uses one connection over one uplink at a time; `{mode}` is treated as `failover`"
            ));
        }
        if (stream || servers > 1) && sections.forget_relays() {
            warnings.push(format!(
                "{place}: uplinks through a relay are skipped: a relay forwards datagrams to only one server"
            ));
        }
        // Routes send traffic to the server past the tunnel, so that no mark is needed.
        self.fit_sections(sections, false, 1, warnings)
    }

    fn fit_sections(
        &self,
        mut sections: Sections,
        full: bool,
        called: usize,
        mut warnings: Vec<String>,
    ) -> Given {
        let lines = loop {
            let whole = sections.clone().finish(full, called);
            let mut faults = whole.faults.iter();
            let left_out = faults.find_map(|(head, why)| Some((sections.forget(*head)?, why)));
            match left_out {
                Some((name, why)) => {
                    let (place, why) = (self.place.display(), in_toml(why));
                    warnings.push(format!("{place}: uplink {name} is skipped: {why}"));
                }
                None if whole.faults.is_empty() => break whole.lines,
                // Without an `[[uplink]]` the other settings have no use.
                None => break Lines::default(),
            }
        };
        self.given(lines, warnings)
    }

    /// Settings for a server, which answers each client over the lines on which that client connects: how it sends, but
    /// no line of its own.
    #[must_use]
    pub fn fit_server(&self) -> Given {
        let mut sections = self.tables.sections.clone();
        let mut warnings = Vec::new();
        let shape = sections.shapes();
        if sections.forget_all() || shape {
            let shape = if shape { ", nor `shape`" } else { "" };
            let place = self.place.display();
            warnings.push(format!(
                "{place}: a server does not use [[uplink]]{shape}; only `mode` and `reorder` apply, for clients that \
                 use several paths"
            ));
        }
        let whole = sections.finish(false, 0);
        let lines = match whole.faults.is_empty() {
            true => whole.lines,
            false => Lines::default(),
        };
        self.given(lines, warnings)
    }

    /// No lines, for a tunnel that they do not fit; `why` is the reason.
    #[must_use]
    pub fn refuse(&self, why: &str) -> Given {
        let (place, why) = (self.place.display(), in_toml(why));
        Given {
            warnings: vec![format!("{place}: its uplinks are not used: {why}")],
            ..Given::default()
        }
    }

    fn given(&self, lines: Lines, mut warnings: Vec<String>) -> Given {
        let names: Vec<&str> = lines.lines.iter().map(|line| line.name.as_str()).collect();
        let (mode, place) = (lines.mode.as_str(), self.place.display());
        let origin = match names.as_slice() {
            _ if lines.is_default() => None,
            [] => Some(format!(
                "{mode}, for peers that use several paths, from {place}"
            )),
            _ => Some(format!("{mode} on {}, from {place}", names.join(", "))),
        };
        if lines.lines.iter().any(|line| line.relay_key.is_some()) {
            warnings.extend(file::exposed(&self.place));
        }
        Given {
            lines,
            origin,
            warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::LineMode;
    use crate::settings::Settings;

    fn shared(text: &str) -> SharedLines {
        let settings = Settings::from_toml(text, Path::new("m.toml"));
        settings.unwrap().lines.unwrap()
    }

    const DIRECT: &str = "[[uplink]]\nname = 'dsl'\ninterface = 'eth1'\n";
    const RELAYED: &str = "[[uplink]]\nname = 'relayed'\nrelay = '192.0.2.1:5'\n\
        relay-key = 'YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE='\n";
    const MARKED: &str = "[[uplink]]\nname = 'lte'\nsource = '192.0.2.9'\nmark = 7\n";

    #[test]
    fn a_line_that_does_not_fit_the_tunnel_is_left_out_in_words() {
        let all = shared(&format!("{RELAYED}{DIRECT}{MARKED}"));
        let names = |given: &Given| {
            let lines = given.lines.lines.iter();
            lines.map(|it| it.name.clone()).collect::<Vec<_>>()
        };
        let given = all.fit(false, 1);
        assert_eq!(names(&given), ["relayed", "dsl", "lte"]);
        assert_eq!(given.warnings, [""; 0]);
        let given = all.fit(true, 2);
        assert_eq!(names(&given), ["dsl"]);
        let [relayed, marked] = given.warnings.as_slice() else {
            panic!("{given:?}")
        };
        assert!(
            relayed.starts_with(
                "m.toml: uplink relayed is skipped: a relay forwards to only one peer"
            )
        );
        assert!(marked.contains("uplink lte is skipped: without interface, this mark"));
        // No lines are left, as if the file had none.
        let given = shared(RELAYED).fit(false, 0);
        assert_eq!((given.lines, given.origin), (Lines::default(), None));
        assert_eq!(given.warnings.len(), 1);
    }

    #[test]
    fn a_server_is_given_a_mode_and_no_line() {
        let all = shared(&format!(
            "[uplinks]\nmode = 'duplicate'\nreorder = true\n{DIRECT}"
        ));
        let given = all.fit_server();
        assert_eq!(given.lines.lines, []);
        assert_eq!(given.lines.mode, LineMode::Duplicate);
        assert!(
            given.lines.reorder && given.warnings.len() == 1,
            "{given:?}"
        );
        let given = shared(DIRECT).fit_server();
        assert!(given.lines.is_default() && given.origin.is_none());
        // Without an `[[uplink]]` it fits unchanged.
        let given = shared("[uplinks]\nmode = 'balance'\n").fit_server();
        assert_eq!(
            (given.lines.mode, given.warnings.len()),
            (LineMode::Balance, 0)
        );
    }
}
