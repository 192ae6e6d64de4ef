//! Sections in a file's `#!` comments: `[Uplinks]`, `[Uplink]`, `[Server]` and `[Pool]`.

use super::{LINE_KEYS, LINES_KEYS, LINES_MAX, Line, LineMode, Lines};
use crate::home::{self, HomeServer};
use crate::keys;
use crate::pool::{self, Pool};
use crate::text::suggest;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Section {
    /// Outside any section: `#!` is an ordinary comment.
    #[default]
    None,
    Lines,
    Line,
    Server,
    Pool,
    /// Lines below a section head that was refused.
    Refused,
}

/// Names that reports use for the heads of these sections.
const SERVER: &str = "[Server]";
const POOL: &str = "[Pool]";

/// Meaning of a comment.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Found {
    /// An ordinary comment, or the head of a section of lines.
    Nothing,
    /// An honoured key, or the head of `[Server]` or `[Pool]`, which has a meaning of its own.
    Key(&'static str),
    /// A fault: the key (empty if there is none), and the reason.
    Fault(String, String),
}

/// Sections of a file that have been read so far.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sections {
    lines: Lines,
    home: Option<HomeServer>,
    /// The `[Pool]` section, and the line number of its head.
    pool: Option<(usize, Pool)>,
    section: Section,
    /// Line number of the first `[Uplinks]`, and of the head of each `[Uplink]`.
    lines_head: Option<usize>,
    heads: Vec<usize>,
    /// Keys that the current section already has.
    seen: Vec<&'static str>,
    /// All accepted keys, with their line numbers in the file.
    keys: Vec<(usize, &'static str)>,
    /// Line numbers of the head of `[Server]` and of its keys.
    home_lines: Vec<usize>,
}

/// All lines and sections of a file that was read to its end.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) lines: Lines,
    /// The `[Server]` section, which stands in comments as lines do.
    pub(crate) home: Option<HomeServer>,
    /// Line numbers of `[Server]`, its head first.
    pub(crate) home_lines: Vec<usize>,
    /// Faults, with their line numbers in the file.
    pub(crate) faults: Vec<(usize, String)>,
    /// Keys without effect: line number and reason.
    pub(crate) idle: Vec<(usize, &'static str)>,
}

impl Sections {
    /// Ends the current section at a head outside comments, such as `[Peer]`.
    pub(crate) fn end(&mut self) {
        self.section = Section::None;
    }

    /// Whether the next comment is outside these sections, unless it begins one.
    pub(crate) fn is_outside(&self) -> bool {
        self.section == Section::None
    }

    /// Takes the text behind a `#!` on line `number` of the file.
    pub(crate) fn comment(&mut self, number: usize, text: &str) -> Found {
        let text = text.trim();
        if text.starts_with('[') {
            return self.head(number, text);
        }
        if text.is_empty() || matches!(self.section, Section::None | Section::Refused) {
            return Found::Nothing;
        }
        let Some((key, value)) = text.split_once('=') else {
            let reason = "the line is not of the form `#! Key = Value`";
            return Found::Fault(String::new(), reason.to_owned());
        };
        self.key(number, key.trim(), value.trim())
    }

    /// Takes a key of the current section.
    pub(super) fn key(&mut self, number: usize, key: &str, value: &str) -> Found {
        let fault = |key: &str, reason: &str| Found::Fault(key.to_owned(), reason.to_owned());
        let outcome = match (self.section, self.lines.lines.last_mut()) {
            (Section::Line, Some(line)) => keys::set(LINE_KEYS, line, key, value),
            (Section::Server, _) => {
                keys::set(home::KEYS, self.home.get_or_insert_default(), key, value)
            }
            (Section::Pool, _) => {
                let (_, pool) = self.pool.get_or_insert_default();
                keys::set(pool::KEYS, pool, key, value)
            }
            _ => keys::set(LINES_KEYS, &mut self.lines, key, value),
        };
        match outcome {
            Err(reason) => fault(&keys::shown(key), &reason),
            Ok((name, _)) if self.seen.contains(&name) && name != pool::SERVER => {
                fault(name, "is set twice; remove one")
            }
            Ok((name, _)) => {
                self.seen.push(name);
                self.keys.push((number, name));
                if self.section == Section::Server {
                    self.home_lines.push(number);
                }
                Found::Key(name)
            }
        }
    }

    /// Takes the head of a section.
    pub(super) fn head(&mut self, number: usize, text: &str) -> Found {
        self.seen.clear();
        let mut refused = None;
        self.section = if text.eq_ignore_ascii_case("[Uplink]") {
            if self.lines.lines.len() == LINES_MAX {
                refused = Some(format!("more than {LINES_MAX} uplinks"));
            }
            self.lines.lines.push(Line::default());
            self.heads.push(number);
            Section::Line
        } else if text.eq_ignore_ascii_case("[Uplinks]") {
            if let Some(first) = self.lines_head {
                refused = Some(format!(
                    "a second [Uplinks], after that of line {first}; join them"
                ));
            }
            self.lines_head.get_or_insert(number);
            Section::Lines
        } else if text.eq_ignore_ascii_case(SERVER) {
            if self.home.is_some() {
                refused = Some("a second [Server]; join them".to_owned());
            }
            self.home.get_or_insert_default();
            Section::Server
        } else if text.eq_ignore_ascii_case(POOL) {
            if self.pool.is_some() {
                refused = Some("a second [Pool]; join them".to_owned());
            }
            self.pool.get_or_insert_with(|| (number, Pool::default()));
            Section::Pool
        } else {
            let known = suggest(text, &["[Uplinks]", "[Uplink]", SERVER, POOL]);
            refused = Some(format!("unknown section in a `#!` comment; {known}"));
            Section::Refused
        };
        match refused {
            None if self.section == Section::Server => {
                self.home_lines.push(number);
                Found::Key(SERVER)
            }
            None if self.section == Section::Pool => Found::Key(POOL),
            None => Found::Nothing,
            Some(reason) => {
                if self.section == Section::Line {
                    self.lines.lines.pop();
                    self.heads.pop();
                }
                self.section = Section::Refused;
                Found::Fault(String::new(), reason)
            }
        }
    }

    /// Takes the `[Pool]` section, with the line number of its head.
    pub(crate) const fn take_pool(&mut self) -> Option<(usize, Pool)> {
        self.pool.take()
    }

    /// Whether packets wait in a fair queue (`Shape`).
    pub(super) const fn shapes(&self) -> bool {
        self.lines.shape
    }

    /// Removes the lines that use a relay. Returns whether there were any.
    pub(super) fn forget_relays(&mut self) -> bool {
        let lines = self.heads.iter().zip(&self.lines.lines);
        let relayed = lines.filter(|(_, line)| line.relay.is_some());
        let relayed: Vec<usize> = relayed.map(|(head, _)| *head).collect();
        relayed.iter().for_each(|head| drop(self.forget(*head)));
        !relayed.is_empty()
    }

    /// Makes the mode use one line at a time, without a queue. Returns the previous mode, if it differs.
    pub(super) fn go_singly(&mut self) -> Option<LineMode> {
        let mode = self.lines.mode;
        let other = mode.spreads() || self.lines.shape;
        self.lines.shape = false;
        if mode.spreads() {
            self.lines.mode = LineMode::Failover;
        }
        other.then_some(mode)
    }

    /// Removes the line whose head is at `head`. Returns its name.
    pub(super) fn forget(&mut self, head: usize) -> Option<String> {
        let at = self.heads.iter().position(|it| *it == head)?;
        self.heads.remove(at);
        Some(self.lines.lines.remove(at).name)
    }

    /// Removes all lines, and the settings that need lines. Returns whether there were any lines.
    pub(super) fn forget_all(&mut self) -> bool {
        self.heads.clear();
        self.lines.shape = false;
        !std::mem::take(&mut self.lines.lines).is_empty()
    }

    /// Ends the file. `full` says that the tunnel takes all packets of the host; `called` is the number of peers that
    /// it connects to.
    pub(crate) fn finish(self, full: bool, called: usize) -> Whole {
        let lines = &self.lines.lines;
        let mut faults = Vec::new();
        let unused = lines.is_empty() && !self.lines.mode.spreads() && !self.lines.reorder;
        if let Some(head) = self.lines_head.filter(|_| unused) {
            let why = "[Uplinks] without an [Uplink] answers peers that use several paths; set a Mode that uses all \
                       paths (`duplicate`, `critical`, `balance`, `balance-packets`) or `Reorder = yes`";
            faults.push((head, why.to_owned()));
        }
        if let Some(head) = self.lines_head.filter(|_| self.lines.shape)
            && (lines.is_empty() || lines.iter().any(|line| line.rate.is_none()))
        {
            let why = "`Shape = yes` needs an [Uplink], and a Rate for each";
            faults.push((head, why.to_owned()));
        }
        for (at, (line, head)) in lines.iter().zip(&self.heads).enumerate() {
            let mut fault = |reason: &str| faults.push((*head, reason.to_owned()));
            let earlier = lines.get(..at).unwrap_or_default();
            for what in line.faults() {
                fault(&format!("this [Uplink] has {what}"));
            }
            if !line.name.is_empty() && earlier.iter().any(|it| it.name == line.name) {
                fault("another [Uplink] has the same Name; change one");
            }
            if line.relay.is_some() && line.relay_key.is_some() && called != 1 {
                fault(
                    "a relay forwards to only one peer, so with a Relay exactly one [Peer] must have an Endpoint",
                );
            }
            let ends = |line: &'_ Line| (line.interface.clone(), line.source, line.relay.clone());
            if line.has_end() && earlier.iter().any(|it| ends(it) == ends(line)) {
                fault("another [Uplink] has the same Interface, Source and Relay; change one");
            } else if line.relay_key.is_some()
                && earlier.iter().any(|it| it.relay_key == line.relay_key)
            {
                fault(
                    "another [Uplink] has the same RelayKey, so the relay cannot tell the two from one that roams; \
                     give each its own key",
                );
            } else if full && line.mark.is_some() && line.interface.is_none() {
                fault(
                    "without Interface, this Mark routes the uplink's datagrams into the tunnel, whose AllowedIPs \
                     contain the peer's address; name the Interface",
                );
            }
        }
        let idle = |(number, key): &(usize, &str)| {
            Some((*number, self.lines.does_nothing(key, called > 0)?))
        };
        Whole {
            idle: self.keys.iter().filter_map(idle).collect(),
            lines: self.lines,
            home: self.home,
            home_lines: self.home_lines,
            faults,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Key32;
    use std::time::Duration;

    fn read(text: &str) -> (Lines, Vec<(usize, String)>) {
        let mut sections = Sections::default();
        let mut faults = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if let Found::Fault(_, reason) = sections.comment(number, line) {
                faults.push((number, reason));
            }
        }
        let whole = sections.finish(true, 1);
        faults.extend(whole.faults);
        (whole.lines, faults)
    }

    #[test]
    fn keys_that_do_nothing_are_named() {
        let idle = |text: &str, calls| {
            let mut sections = Sections::default();
            for (number, line) in (1..).zip(text.lines()) {
                assert!(!matches!(sections.comment(number, line), Found::Fault(..)));
            }
            let whole = sections.finish(false, usize::from(calls));
            whole.idle.iter().map(|idle| idle.0).collect::<Vec<_>>()
        };
        let line = "[Uplink]\nName = a\nInterface = e\nRate = 5M";
        let with = |mode: &str| format!("[Uplinks]\nMode = {mode}\nHold = 5\n{line}");
        assert_eq!(idle(&with("failover"), true), [7]);
        assert_eq!(idle(&with("failover"), false), [2, 3, 7]);
        assert_eq!(idle(&with("critical"), true), [7]);
        assert_eq!(idle(&with("balance"), true), [0; 0]);
        assert_eq!(idle(&with("balance-packets"), true), [0; 0]);
        assert_eq!(idle(&with("duplicate"), true), [7]);
        assert_eq!(idle(&with("single"), true), [3, 7]);
        let shaped =
            "[Uplinks]\nMode = single\nShape = yes\n[Uplink]\nName = a\nInterface = e\nRate = 5M";
        assert_eq!(idle(shaped, true), [0; 0]);
        assert_eq!(
            idle(shaped, false),
            [2],
            "a rate also applies to peers that connect"
        );
        assert_eq!(idle("[Uplinks]\nHold = 5\nReorder = yes", false), [2]);
        assert_eq!(idle("[Uplinks]\nMode = balance", false), [0; 0]);
    }

    #[test]
    fn lines_are_read_and_written_again() {
        let text = "a comment\n[Uplinks]\nmode = single\nHold = 5\nShape = yes\n[Uplink]\nName = fibre\nInterface = eth1\nRate = 5M\n\
            [Uplink]\nName = lte\nInterface = wwan0\nSource = 192.0.2.1\nMark = 0x10\nPriority = 20\nMetered = yes\nRate = 50M\nCap = 20G\nCapDay = 14\n\
            [Uplink]\nName = relayed\nRate = 5M\nRelay = relay.example.com:51821\nRelayKey = YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=";
        let (lines, faults) = read(text);
        assert_eq!(faults, []);
        assert_eq!(
            (lines.mode, lines.hold, lines.lines.len()),
            (LineMode::Single, Duration::from_secs(5), 3)
        );
        assert_eq!((lines.lines[0].priority, lines.shape), (10, true));
        let lte = &lines.lines[1];
        assert_eq!((lte.mark, lte.priority, lte.metered), (Some(16), 20, true));
        assert_eq!(lte.rate, Some(50_000_000));
        assert_eq!((lte.cap, lte.cap_day), (Some(20_000_000_000), 14));
        assert_eq!((lines.lines[0].cap, lines.lines[0].cap_day), (None, 1));
        assert_eq!(lines.lines[2].relay_key, Some(Key32::new([b'a'; 32])));
        assert!(!format!("{lines:?}").contains("97, 97"), "{lines:?}");
        let written = lines.to_comments().replace("#! ", "");
        assert_eq!(read(&written), (lines, Vec::new()));
        assert_eq!(*Lines::default().to_comments(), "");
    }

    #[test]
    fn peers_may_have_lines_where_there_are_none_here() {
        for mode in LineMode::ALL.map(LineMode::as_str) {
            let (lines, faults) = read(&format!("[Uplinks]\nMode = {mode}\nReorder = yes"));
            assert_eq!(faults, []);
            assert_eq!((lines.mode.as_str(), lines.reorder), (mode, true));
            let written = lines.to_comments().replace("#! ", "");
            assert_eq!(read(&written), (lines, Vec::new()));
        }
    }

    #[test]
    fn faults_have_their_lines() {
        for (text, line, words) in [
            ("[Uplinks]\nMode = fast", 2, "`duplicate`"),
            ("[Uplinks]\nMode = failover", 1, "without an [Uplink]"),
            ("[Uplinks]\nReorder = 1", 2, "`yes` or `no`"),
            (
                "[Uplinks]\nShape = yes\nReorder = yes",
                1,
                "a Rate for each",
            ),
            (
                "[Uplinks]\nShape = yes\n[Uplink]\nName = a\nInterface = e",
                1,
                "a Rate for each",
            ),
            ("[Uplink]\nRate = 5T", 2, "bits per second"),
            (
                "[Uplink]\nRate = 99999999999999999999G",
                2,
                "bits per second",
            ),
            ("[Uplink]\nRate = 0", 2, "bits per second"),
            ("[Uplinks]\nHold = -1", 2, "seconds"),
            ("[Uplinks]\nHold = 1\nHold = 2", 3, "twice"),
            ("[Uplinks]", 1, "without an [Uplink]"),
            ("[Uplink]\nName = a", 1, "no Interface"),
            ("[Uplink]\nInterface = a", 1, "no Name"),
            ("[Uplink]\nName = a b", 2, "letters"),
            ("[Uplink]\nName = a\nInterface = a/b", 3, "interface"),
            ("[Uplink]\nCap = 100", 2, "bytes per month"),
            ("[Uplink]\nCap = 20T", 2, "bytes per month"),
            ("[Uplink]\nCap = 20000000000000000G", 2, "bytes per month"),
            ("[Uplink]\nCap = 20G\nCapDay = 29", 3, "1 to 28"),
            ("[Uplink]\nCap = 20G\nCapDay = 0", 3, "1 to 28"),
            ("[Uplink]\nName = a\nCapDay = 2", 1, "no Cap"),
            (
                "[Uplink]\nInterfaces = eth0",
                2,
                "did you mean `Interface`?",
            ),
            ("[Uplink]\nwords", 2, "Key = Value"),
            ("[Linux]\nwords", 1, "[Uplink]"),
            (
                "[Uplink]\nName = a\nSource = 192.0.2.1\nMark = 1",
                1,
                "into the tunnel",
            ),
            (
                "[Uplink]\nName = a\nInterface = e\n[Uplink]\nName = b\nInterface = e",
                4,
                "another",
            ),
        ] {
            let (_, faults) = read(text);
            let found = faults
                .iter()
                .any(|(at, why)| *at == line && why.contains(words));
            assert!(found, "{text}: {faults:?}");
        }
    }

    #[test]
    fn a_relay_leads_to_one_peer_and_has_a_key_of_its_own() {
        let key = "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=";
        let line = |name: &str, rest: &str| format!("[Uplink]\nName = {name}\n{rest}\n");
        let relay = format!("Relay = 192.0.2.1:5\nRelayKey = {key}");
        let faults = |text: &str, called| {
            let mut sections = Sections::default();
            let lines = (1..).zip(text.lines());
            let wrong = lines.filter_map(|(number, line)| match sections.comment(number, line) {
                Found::Fault(_, reason) => Some(reason),
                _ => None,
            });
            let mut all: Vec<String> = wrong.collect();
            let whole = sections.finish(false, called);
            all.extend(whole.faults.into_iter().map(|it| it.1));
            all.join("; ")
        };
        assert_eq!(faults(&line("a", &relay), 1), "");
        assert_eq!(
            faults(&line("a", &format!("Interface = e\n{relay}")), 1),
            ""
        );
        for (text, called, words) in [
            (line("a", &relay), 0, "exactly one [Peer]"),
            (line("a", &relay), 2, "exactly one [Peer]"),
            (line("a", "Relay = 192.0.2.1:5"), 1, "no RelayKey"),
            (line("a", &format!("RelayKey = {key}")), 1, "no Relay"),
            (line("a", "Relay = 192.0.2.1"), 1, "HOST:PORT"),
            (line("a", "RelayKey = abc"), 1, "44 characters"),
            (
                line("a", &relay) + &line("b", &relay),
                1,
                "Interface, Source and Relay",
            ),
            (
                line("a", &relay) + &line("b", &format!("Source = 192.0.2.7\n{relay}")),
                1,
                "the same RelayKey",
            ),
            (
                line("a", &format!("RelayKey = {}=", "A".repeat(43))),
                1,
                "all-zero",
            ),
        ] {
            let faults = faults(&text, called);
            assert!(
                faults.contains(words) && !faults.contains("YWFh"),
                "{text}: {faults}"
            );
        }
    }

    #[test]
    fn there_are_no_more_lines_than_numbers() {
        let (lines, faults) = read(&"[Uplink]\n".repeat(100));
        assert_eq!(lines.lines.len(), LINES_MAX);
        assert!(faults.len() >= 100 - LINES_MAX);
    }
}
