//! Collects the options of a pppd file and of the files that it names.

use std::path::Path;

use zeroize::Zeroizing;

use super::options::{self, Meaning, Taken};
use super::wanted::{Common, Judged, OfClient, OfServer, refused};
use super::words::{Word, words};
use super::{PEERS, Read};
use crate::pptp::exact_text;
use crate::report::{Report, Verdict};
use crate::text::nearest;

/// Deepest nesting of files.
const DEPTH_MAX: usize = 4;
/// Maximum number of files to read.
const FILES_MAX: usize = 16;
/// Maximum number of options of all files together.
const OPTIONS_MAX: usize = 1000;

/// An option whose value still has to be judged.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// The option's name, in its usual spelling.
    name: &'static str,
    taken: Taken,
    /// The option's value, which may be a secret.
    value: Zeroizing<String>,
    /// The line in the first file.
    line: usize,
    /// The option's place in another file; empty if the option is in the first.
    place: String,
}

impl Given {
    /// Takes the option of a client's file.
    pub(super) fn of_client(&self, common: &mut Common, own: &mut OfClient, report: &mut Report) {
        let judged = match self.taken {
            Taken::Both(set) => set(common, &self.value),
            Taken::Client(set) | Taken::Each(set, _) => set(own, &self.value),
            Taken::Server(_) => refused("it is an option for servers; remove it"),
        };
        self.judge(report, judged);
    }

    /// Takes the option of a server's file.
    pub(super) fn of_server(&self, common: &mut Common, own: &mut OfServer, report: &mut Report) {
        let judged = match self.taken {
            Taken::Both(set) => set(common, &self.value),
            Taken::Server(set) | Taken::Each(_, set) => set(own, &self.value),
            Taken::Client(_) => refused("it is an option for clients; remove it"),
        };
        self.judge(report, judged);
    }

    fn judge(&self, report: &mut Report, (verdict, reason): Judged) {
        push(
            report,
            (self.line, &self.place),
            self.name,
            verdict,
            &reason,
        );
    }
}

fn push(
    report: &mut Report,
    (line, place): (usize, &str),
    name: &str,
    verdict: Verdict,
    reason: &str,
) {
    let parts = [place, reason].into_iter().filter(|part| !part.is_empty());
    let reason: Vec<&str> = parts.collect();
    report.push(line, name, verdict, reason.join(": "));
}

/// The file that words come from.
#[derive(Clone, Copy)]
struct Source<'s> {
    /// The line in the first file, and the name of the file; `None` for the first file itself.
    other: Option<(usize, &'s str)>,
    depth: usize,
}

impl Source<'_> {
    /// Position of the file that the user named.
    const FIRST: Self = Self {
        other: None,
        depth: 0,
    };

    /// Returns the line number in the first file and, for an included file, its name and line as text.
    fn at(&self, line: usize) -> (usize, String) {
        match self.other {
            None => (line, String::new()),
            Some((first, name)) => (first, format!("in {name}, line {line}")),
        }
    }
}

/// The state of the collection.
struct Collector<'c> {
    read: &'c Read<'c>,
    report: &'c mut Report,
    given: Vec<Given>,
    /// Number of files read.
    files: usize,
}

/// Collects the options of a text.
pub(super) fn collect(text: &str, read: &Read<'_>, report: &mut Report) -> Vec<Given> {
    let mut collector = Collector::new(read, report);
    collector.of_text(text, Source::FIRST);
    collector.given
}

/// Collects the options of a file that line `line` of the first file names.
pub(super) fn collect_file(
    path: &str,
    line: usize,
    read: &Read<'_>,
    report: &mut Report,
) -> Vec<Given> {
    let mut collector = Collector::new(read, report);
    collector.of_file(path, (line, ""), "option", Source::FIRST);
    collector.given
}

impl<'c> Collector<'c> {
    fn new(read: &'c Read<'c>, report: &'c mut Report) -> Self {
        Self {
            read,
            report,
            given: Vec::new(),
            files: 0,
        }
    }

    fn push(&mut self, place: (usize, &str), name: &str, verdict: Verdict, reason: &str) {
        push(self.report, place, name, verdict, reason);
    }

    fn of_text(&mut self, text: &str, source: Source<'_>) {
        let words = match words(text) {
            Ok(words) => words,
            Err(fault) => {
                let (line, reason) = fault.describe();
                let (line, place) = source.at(line);
                return self.push((line, &place), "", Verdict::Refused, reason);
            }
        };
        let mut words = words.into_iter();
        // Words behind an unknown one on its line may be its values.
        let mut skips = false;
        while let Some(Word { text, line, first }) = words.next() {
            skips &= !first;
            let (line, place) = source.at(line);
            let place = (line, place.as_str());
            if self.given.len() >= OPTIONS_MAX {
                let reason = "more than 1000 options";
                return self.push(place, "", Verdict::Refused, reason);
            }
            let Some(&(name, count, meaning)) = options::find(&text) else {
                if !std::mem::replace(&mut skips, true) {
                    unknown(&text, place, self.report);
                }
                continue;
            };
            skips = false;
            let values: Vec<Word> = words.by_ref().take(count).collect();
            if values.len() < count {
                self.push(place, name, Verdict::Refused, "needs a value behind it");
                continue;
            }
            let value = values
                .into_iter()
                .next()
                .map(|it| it.text)
                .unwrap_or_default();
            match meaning {
                Meaning::File => self.of_file(&value, place, name, source),
                // pppd accepts only a name here, not a path.
                Meaning::Call
                    if value.starts_with('/') || value.split('/').any(|part| part == "..") =>
                {
                    let reason = "write the name of a file in /etc/ppp/peers";
                    self.push(place, name, Verdict::Refused, reason);
                }
                Meaning::Call => {
                    let path = format!("{PEERS}/{}", value.as_str());
                    self.of_file(&path, place, name, source);
                }
                Meaning::Nothing(reason) => self.push(place, name, Verdict::Ignored, reason),
                Meaning::Refused(reason) => self.push(place, name, Verdict::Refused, reason),
                Meaning::Taken(taken) => self.given.push(Given {
                    name,
                    taken,
                    value,
                    line,
                    place: place.1.to_owned(),
                }),
            }
        }
    }

    /// Collects the options of a file that another one names.
    fn of_file(&mut self, path: &str, place: (usize, &str), name: &str, source: Source<'_>) {
        self.files += 1;
        if source.depth >= DEPTH_MAX || self.files > FILES_MAX {
            let reason = "too many nested files";
            return self.push(place, name, Verdict::Refused, reason);
        }
        let bytes = match (self.read)(Path::new(path)) {
            Ok(bytes) => bytes,
            Err(error) => {
                let reason = format!("{path}: {error}");
                return self.push(place, name, Verdict::Refused, &reason);
            }
        };
        let Ok(text) = exact_text(&bytes) else {
            let reason = format!("{path}: not UTF-8");
            return self.push(place, name, Verdict::Refused, &reason);
        };
        self.push(place, name, Verdict::Honoured, "");
        let inner = Source {
            other: Some((place.0, path)),
            depth: source.depth + 1,
        };
        self.of_text(&text, inner);
    }
}

/// Records a word that is not an option, and may be a secret.
fn unknown(word: &str, place: (usize, &str), report: &mut Report) {
    let is_option = !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_+".contains(&byte));
    let address = |part: &str| part.is_empty() || part.parse::<std::net::Ipv4Addr>().is_ok();
    let pair = word
        .split_once(':')
        .is_some_and(|(here, there)| address(here) && address(there));
    let (key, reason) = if pair {
        let reason = "the server assigns the addresses; remove them".to_owned();
        ("addresses", reason)
    } else if word.starts_with("/dev/") || word.bytes().all(|byte| byte.is_ascii_digit()) {
        (
            "",
            "PPTP uses no serial line; remove its device and speed".to_owned(),
        )
    } else if is_option && word.len() <= 32 {
        let reason = "unknown option of pppd";
        // A word unlike any option may be part of a password without quotation marks. Words of another file are not
        // quoted.
        match nearest(word, &options::names()).filter(|_| place.1.is_empty()) {
            Some(near) => (word, format!("{reason}; did you mean `{near}`?")),
            None => ("", reason.to_owned()),
        }
    } else {
        ("", "is not an option".to_owned())
    };
    push(report, place, key, Verdict::Refused, &reason);
}
