//! A table of new clients: `name,networks,note`, a line each.
//!
//! The networks stand in one field, separated by spaces or semicolons. A first line of these words sets another order; it
//! may also name the column `keepalive`.
//! Fields may be quoted (RFC 4180), on one line. Empty lines and lines that begin with `#` are skipped.

use super::change::{SECONDS, seconds};
use super::issue::New;
use super::{PeerError, behind, checked};
use config::types::AllowedIp;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Largest table, in bytes.
const SIZE_MAX: u64 = 1 << 20;

/// Maximum number of clients in a table. Each file of a `--lan-only` client names the networks behind all others, so that
/// all files of 2,000 clients have 120 MB.
const CLIENTS_MAX: usize = 2000;

/// Longest note, in bytes.
pub(super) const NOTE_MAX: usize = 200;

/// Maximum number of faults that a message lists.
const FAULTS_MAX: usize = 20;

/// All columns. A table without a first line of names has the first three.
const COLUMNS: [&str; 4] = ["name", "networks", "note", "keepalive"];

/// A line of the table.
struct Row {
    /// The line's number, from 1.
    line: usize,
    name: String,
    networks: Vec<AllowedIp>,
    note: Option<String>,
    /// Seconds between packets of the server to the idle client (WireGuard).
    keepalive: Option<u16>,
}

/// A table of new clients.
pub(super) struct Table {
    /// The table's name in messages.
    file: String,
    rows: Vec<Row>,
    /// The faults of other lines.
    faults: Vec<(usize, PeerError)>,
}

impl Table {
    /// Reads a file; `-` stands for the standard input.
    pub(super) fn read(path: &Path) -> Result<Self, PeerError> {
        let failed = |error| PeerError::Table(format!("{}: {error}", path.display()));
        let source: Box<dyn Read> = match path == Path::new("-") {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(path).map_err(failed)?),
        };
        let mut text = Vec::new();
        let mut source = source.take(SIZE_MAX + 1);
        source.read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > SIZE_MAX {
            let error = io::Error::other("a table has at most 1 MB; split it");
            return Err(failed(error));
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self::parse(&text, &name.to_string_lossy())
    }

    fn parse(text: &[u8], file: &str) -> Result<Self, PeerError> {
        if text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff]) {
            let why =
                "the table is UTF-16; save it as UTF-8, or convert it: iconv -f UTF-16 -t UTF-8";
            return Err(PeerError::Table(format!("{file}: {why}")));
        }
        let text = std::str::from_utf8(text).map_err(|error| {
            let good = &text[..error.valid_up_to()];
            let line = 1 + good.iter().filter(|it| **it == b'\n').count();
            PeerError::Table(format!(
                "{file}:{line}: this line is not UTF-8; save the table as UTF-8, or convert it: iconv -f LATIN1 -t UTF-8"
            ))
        })?;
        let mut table = Self {
            file: file.to_owned(),
            rows: Vec::new(),
            faults: Vec::new(),
        };
        let mut columns: Vec<&str> = COLUMNS[..3].to_vec();
        let lines = text.trim_start_matches('\u{feff}').lines();
        let lines = (1..).zip(lines.map(str::trim));
        let mut lines = lines
            .filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
            .peekable();
        let head = lines.next_if(|(_, text)| header(text).is_some());
        if let Some(head) = head.and_then(|(_, text)| header(text)) {
            columns = head;
        }
        let first = lines.peek().map(|(line, _)| *line);
        for (line, text) in lines {
            match row(line, text, &columns) {
                Ok(row) => table.rows.push(row),
                // They are in every line: one fault is enough.
                Err(_) if Some(line) == first && separated_by(text).is_some() => {
                    let others = separated_by(text).unwrap_or_default();
                    let why = format!(
                        "fields are separated by commas, not by {others}; save the table with commas"
                    );
                    return Err(table.error(vec![(line, PeerError::Table(why))]));
                }
                Err(error) if Some(line) == first && is_like_header(text) => {
                    let why = format!(
                        "{error}; a line that names the columns has only the words {}",
                        COLUMNS.join(", ")
                    );
                    table.faults.push((line, PeerError::Table(why)));
                }
                Err(error) => table.faults.push((line, error)),
            }
        }
        match table.rows.len() {
            0 if table.faults.is_empty() => {
                Err(PeerError::Table(format!("{file}: it names no client")))
            }
            count if count > CLIENTS_MAX => {
                let why = format!("{file}: {count} clients; give at most {CLIENTS_MAX} at once");
                Err(PeerError::Table(why))
            }
            _ => Ok(table),
        }
    }

    /// The table, if no line has a fault. Otherwise `others` finds faults of the clients on the other lines, by number.
    pub(super) fn sound(
        mut self,
        others: impl FnOnce(&[New<'_>]) -> Result<Vec<(usize, PeerError)>, PeerError>,
    ) -> Result<Self, PeerError> {
        if self.faults.is_empty() {
            return Ok(self);
        }
        let mut faults = std::mem::take(&mut self.faults);
        // If the server's file cannot be read, only the faults of lines are told.
        let others = others(&self.clients(None)).unwrap_or_default().into_iter();
        faults.extend(others.map(|(number, it)| (self.line(number), it)));
        faults.sort_by_key(|it| it.0);
        Err(self.error(faults))
    }

    /// The line of a client, by its number.
    fn line(&self, number: usize) -> usize {
        self.rows.get(number).map_or(0, |row| row.line)
    }

    /// The clients of the table, with these keepalive seconds unless their lines say others.
    pub(super) fn clients(&self, keepalive: Option<u16>) -> Vec<New<'_>> {
        let rows = self.rows.iter();
        rows.map(|row| New {
            name: &row.name,
            behind: &row.networks,
            note: row.note.as_deref(),
            keepalive: row.keepalive.or(keepalive),
        })
        .collect()
    }

    /// The error of a command on these clients. Faults of single clients get their lines.
    pub(super) fn explain(&self, error: PeerError) -> PeerError {
        let PeerError::Several(faults) = error else {
            return error;
        };
        let faults = faults.into_iter();
        self.error(faults.map(|(number, it)| (self.line(number), it)).collect())
    }

    /// Faults of lines.
    fn error(&self, faults: Vec<(usize, PeerError)>) -> PeerError {
        let count = faults.len();
        let told = faults.into_iter().take(FAULTS_MAX);
        let mut lines: Vec<String> = told
            .map(|(line, error)| {
                let words = error.to_string();
                let mut options = ["--behind ", "--note: "].into_iter();
                let words = options
                    .find_map(|it| words.strip_prefix(it))
                    .unwrap_or(&words);
                format!("{}:{line}: {words}", self.file)
            })
            .collect();
        if count > FAULTS_MAX {
            lines.push(format!("and {} more lines", count - FAULTS_MAX));
        }
        lines.push("nothing was changed".to_owned());
        PeerError::Table(lines.join("\n"))
    }
}

/// The columns that a first line names; `None` if it is a client's line.
fn header(text: &str) -> Option<Vec<&'static str>> {
    let column = |field: String| {
        let mut columns = COLUMNS.into_iter();
        columns.find(|it| it.eq_ignore_ascii_case(&field))
    };
    let columns: Vec<&str> = fields(text)
        .ok()?
        .into_iter()
        .map(column)
        .collect::<Option<_>>()?;
    columns.contains(&"name").then_some(columns)
}

/// Finds semicolons or tabs in place of commas between a line's fields; no name contains them.
fn separated_by(text: &str) -> Option<&'static str> {
    let name = text.split(',').next()?;
    let others = [(';', "semicolons"), ('\t', "tabs")].into_iter();
    let mut found = others.filter(|(it, _)| name.contains(*it));
    found.next().map(|(_, words)| words)
}

/// Whether a faulty first line may name the columns in other words.
fn is_like_header(text: &str) -> bool {
    text.contains(',') && !text.contains(|it: char| it.is_ascii_digit())
}

fn row(line: usize, text: &str, columns: &[&str]) -> Result<Row, PeerError> {
    let fields = fields(text).map_err(|why| PeerError::Table(why.to_owned()))?;
    if fields.len() > columns.len() {
        let why = format!(
            "{} fields instead of {}; quote a field with a comma, and separate networks by spaces",
            fields.len(),
            columns.join(",")
        );
        return Err(PeerError::Table(why));
    }
    let field = |name: &str| {
        let mut named = columns.iter().zip(&fields);
        let found = named.find(|(column, _)| **column == name);
        found.map_or("", |(_, text)| text.trim())
    };
    let networks = field("networks").split([' ', ';']);
    let networks: Vec<String> = networks
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect();
    Ok(Row {
        line,
        name: checked(field("name"))?.to_owned(),
        networks: behind::read(&networks)?,
        note: note(field("note"))?,
        keepalive: match field("keepalive") {
            "" => None,
            text => {
                let wrong = || PeerError::Table(format!("keepalive {text}: {SECONDS}"));
                Some(seconds(text).ok_or_else(wrong)?)
            }
        },
    })
}

/// A note about a client; `None` for an empty one.
pub(super) fn note(text: &str) -> Result<Option<String>, PeerError> {
    let text = text.trim();
    if text.len() > NOTE_MAX || text.chars().any(char::is_control) {
        return Err(PeerError::Note);
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// The fields of a line.
fn fields(text: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest {
        let text = text.trim_start();
        let Some(mut quoted) = text.strip_prefix('"') else {
            let (field, after) = match text.split_once(',') {
                Some((field, after)) => (field, Some(after)),
                None => (text, None),
            };
            fields.push(field.trim().to_owned());
            rest = after;
            continue;
        };
        let mut field = String::new();
        loop {
            let (part, after) = quoted.split_once('"').ok_or("a quote is not closed")?;
            field.push_str(part);
            // Two quotes stand for one.
            match after.strip_prefix('"') {
                Some(more) => {
                    field.push('"');
                    quoted = more;
                }
                None => {
                    quoted = after.trim_start();
                    break;
                }
            }
        }
        fields.push(field);
        rest = match quoted.strip_prefix(',') {
            None if quoted.is_empty() => None,
            None => return Err("text after a closing quote; quote the whole field"),
            after => after,
        };
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Result<Vec<String>, String> {
        let table = Table::parse(text.as_bytes(), "branches.csv");
        let table = table.and_then(|it| it.sound(|_| Ok(Vec::new())));
        let table = table.map_err(|it| it.to_string())?;
        let row = |it: New<'_>| {
            let behind: Vec<String> = it.behind.iter().map(ToString::to_string).collect();
            format!(
                "{}|{}|{}",
                it.name,
                behind.join(" "),
                it.note.unwrap_or("-")
            )
        };
        Ok(table.clients(None).into_iter().map(row).collect())
    }

    #[test]
    fn a_table_is_read_whatever_its_columns_and_quotes() {
        let seven = "store-7|192.168.7.0/24 fd00:7::/64|Ms Long, \"key\" account";
        for text in [
            "store-7,192.168.7.0/24 fd00:7::/64,\"Ms Long, \"\"key\"\" account\"",
            "\u{feff}Name,Networks,Note\r\n\r\n store-7 , 192.168.7.0/24;fd00:7::/64 , \"Ms Long, \"\"key\"\" account\" \r\n",
            "# ours\nnote,name,networks\n\"Ms Long, \"\"key\"\" account\",\"store-7\",\"192.168.7.0/24  fd00:7::/64\"\n",
        ] {
            assert_eq!(rows(text).unwrap(), [seven], "{text}");
        }
        assert_eq!(rows("a\nb,\nc,,\n").unwrap(), ["a||-", "b||-", "c||-"]);
        assert_eq!(rows("name\na\n").unwrap(), ["a||-"]);
        // A client may be called so.
        assert_eq!(rows("note\nname\n").unwrap()[0], "note||-");
    }

    #[test]
    fn a_line_s_keepalive_goes_before_that_of_all() {
        let text = "keepalive,name\n25,a\n,b\nnone,c\n";
        let table = Table::parse(text.as_bytes(), "branches.csv").unwrap();
        let keepalive = |of_all| -> Vec<Option<u16>> {
            let clients = table.clients(of_all).into_iter();
            clients.map(|it| it.keepalive).collect()
        };
        assert_eq!(keepalive(None), [Some(25), None, Some(0)]);
        assert_eq!(keepalive(Some(7)), [Some(25), Some(7), Some(0)]);
    }

    #[test]
    fn faults_are_told_with_their_lines_and_not_all_of_many() {
        for (text, words) in [
            ("", "it names no client"),
            ("name,networks\n", "it names no client"),
            ("a\n\nb c,\n", "branches.csv:3: \"b c\" is not a valid name"),
            ("a,192.168.7.0/33", "branches.csv:1: 192.168.7.0/33: "),
            ("a,0.0.0.0/0", "branches.csv:1: 0.0.0.0/0: all addresses"),
            (
                "a,,x,y",
                "branches.csv:1: 4 fields instead of name,networks,note",
            ),
            ("a,\"192", "branches.csv:1: a quote is not closed"),
            (
                "name,keepalive\na,0\n",
                "branches.csv:2: keepalive 0: write a number",
            ),
            (
                "a,\"\" x",
                "text after a closing quote; quote the whole field",
            ),
            ("a,,\"x\u{1b}[1m\"", "branches.csv:1: a note has"),
            ("a\n../b\n", "nothing was changed"),
            (
                "a\t192.168.7.0/24\tx\n",
                "branches.csv:1: fields are separated by commas, not by tabs",
            ),
            (
                "name;networks;note\na;192.168.7.0/24;x\n",
                "branches.csv:1: fields are separated by commas, not",
            ),
            (
                "a;192.168.7.0/24,x\n",
                "branches.csv:1: fields are separated by commas, not",
            ),
            (
                "Name,Network,Remark\na,,\n",
                "the columns has only the words name, networks, note, keepalive",
            ),
        ] {
            let error = rows(text).unwrap_err();
            assert!(error.contains(words), "{text:?}: {error}");
        }
        let latin = Table::parse(b"a,,x\nb,,B\xfcro\n", "branches.csv")
            .err()
            .unwrap();
        assert!(
            latin
                .to_string()
                .contains("branches.csv:2: this line is not UTF-8; save")
        );
        // Faults of the networks beside those of lines, in the order of the lines.
        let text = "a,192.168.7.0/24\nb c,\nd,192.168.7.0/25\n";
        let error = Table::parse(text.as_bytes(), "branches.csv").and_then(|it| {
            it.sound(|new| {
                let names: Vec<&str> = new.iter().map(|it| it.name).collect();
                assert_eq!(names, ["a", "d"]);
                Ok(vec![(1, PeerError::Table("overlaps".to_owned()))])
            })
        });
        let error = error.err().unwrap().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert!(
            matches!(lines[..], [one, other, _] if one.starts_with("branches.csv:2: ")
                && other == "branches.csv:3: overlaps"),
            "{error}"
        );
        let wide = Table::parse(b"\xff\xfea\0,\0", "branches.csv")
            .err()
            .unwrap();
        assert!(wide.to_string().contains("-f UTF-16 -t UTF-8"), "{wide}");
        let many = "-\n".repeat(50);
        let error = rows(&many).unwrap_err();
        assert_eq!(error.lines().count(), FAULTS_MAX + 2, "{error}");
        assert!(error.contains("\nand 30 more lines\n"), "{error}");
        assert!(rows(&"a\n".repeat(CLIENTS_MAX + 1)).is_err());
    }
}
