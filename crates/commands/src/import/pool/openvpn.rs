//! OpenVPN files of one account, joined: one file with the `remote` lines of all.

use super::{Member, PoolError};
use config::openvpn::is_directive;
use config::pool::Choose;
use zeroize::Zeroizing;

/// A file's servers, and its other lines.
struct Parts<'t> {
    /// `HOST PORT PROTOCOL`.
    remotes: Vec<String>,
    /// Lines without comments, sorted.
    others: Vec<Line<'t>>,
}

/// A line of a file.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Line<'t> {
    /// The name of the inline block to which the line belongs, its tags included.
    block: Option<&'t str>,
    text: &'t str,
}

/// The first file's text with the servers of all.
pub(super) fn joined(members: &[&Member], choose: Choose) -> Result<Zeroizing<String>, PoolError> {
    if choose == Choose::Fastest {
        return Err(PoolError::Fastest);
    }
    let Some((first, rest)) = members.split_first() else {
        return Ok(Zeroizing::default());
    };
    let Parts {
        mut remotes,
        others,
    } = parts(first)?;
    for member in rest {
        let its = parts(member)?;
        if let Some(line) = difference(&others, &its.others) {
            return Err(PoolError::Differ {
                first: first.file.clone(),
                second: member.file.clone(),
                what: shown(line),
            });
        }
        remotes.extend(its.remotes);
    }
    let mut own: Vec<String> = remotes.iter().map(|it| format!("remote {it}")).collect();
    let has = |names: &[&str]| {
        let mut plain = others.iter().filter(|it| it.block.is_none());
        plain.any(|it| words(it.text).next().is_some_and(|it| names.contains(&it)))
    };
    if choose == Choose::Random && !has(&["remote-random"]) {
        own.push("remote-random".to_owned());
    }
    // Otherwise a dead server costs a minute before the next one is called.
    if remotes.len() > 1 && !has(&["server-poll-timeout", "connect-timeout"]) {
        own.push("server-poll-timeout 10".to_owned());
    }
    let mut servers = Some(own.join("\n"));
    let size = first.text.len() + servers.as_ref().map_or(0, String::len) + 2;
    let mut text = Zeroizing::new(String::with_capacity(size));
    for line in lines(&first.text) {
        let servers = match line.is_of_server() {
            true => servers.take(),
            false => Some(line.text.to_owned()),
        };
        for part in servers.iter().flat_map(|it| [it.as_str(), "\n"]) {
            text.push_str(part);
        }
    }
    Ok(text)
}

/// The words of a line without its comment.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split_whitespace();
    words.take_while(|it| !it.starts_with(['#', ';']))
}

/// The lines of a file. Those of an inline block may be passwords that look like directives.
fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut block = None;
    text.lines().map(move |text| {
        let line = text.trim();
        let tag = line.strip_prefix('<').and_then(|it| it.split('>').next());
        let end = tag.and_then(|it| it.strip_prefix('/'));
        let is_end = block.is_some() && end == block;
        let start = tag.filter(|_| end.is_none());
        block = block.or(start);
        let line = Line { block, text };
        if is_end {
            block = None;
        }
        line
    })
}

impl Line<'_> {
    /// Whether the line says where the server is: such lines go into the lines `remote`.
    fn is_of_server(&self) -> bool {
        self.block.is_none()
            && matches!(
                words(self.text).next(),
                Some("remote" | "proto" | "port" | "rport")
            )
    }
}

fn parts(member: &Member) -> Result<Parts<'_>, PoolError> {
    let unfit = |why: &str| PoolError::Unfit {
        file: member.file.clone(),
        why: why.to_owned(),
    };
    let all = || {
        lines(&member.text).map(|it| Line {
            text: it.text.trim(),
            ..it
        })
    };
    let plain = || all().filter(|it| it.block.is_none()).map(|it| it.text);
    let value = |names: &[&str]| {
        let values = plain().filter_map(|line| {
            let mut words = words(line);
            let name = words.next()?;
            names.contains(&name).then(|| words.next()).flatten()
        });
        values.last()
    };
    let is_connection = |it: Line<'_>| it.text.eq_ignore_ascii_case("<connection>");
    if all().any(is_connection) {
        return Err(unfit("has <connection> blocks; import it alone"));
    }
    let port = value(&["port", "rport"]).unwrap_or("1194");
    let protocol = value(&["proto"]).unwrap_or("udp");
    let remotes = plain().filter_map(|line| {
        let mut words = words(line);
        let host = (words.next()? == "remote")
            .then(|| words.next())
            .flatten()?;
        let port = words.next().unwrap_or(port);
        let protocol = words.next().unwrap_or(protocol);
        Some(format!("{host} {port} {protocol}"))
    });
    let remotes: Vec<String> = remotes.collect();
    if remotes.is_empty() {
        return Err(unfit("has no line `remote`"));
    }
    let is_empty = |it: &Line<'_>| it.block.is_none() && words(it.text).next().is_none();
    let others = all().filter(|it| !is_empty(it) && !it.is_of_server());
    let mut others: Vec<Line<'_>> = others.collect();
    others.sort_unstable();
    Ok(Parts { remotes, others })
}

/// The first line that only one of two sorted lists has.
fn difference<'t>(one: &[Line<'t>], other: &[Line<'t>]) -> Option<Line<'t>> {
    let at = one.iter().zip(other).position(|(a, b)| a != b);
    let at = at.unwrap_or_else(|| one.len().min(other.len()));
    // The lesser of two differing lines is missing in the other list.
    one.get(at).into_iter().chain(other.get(at)).min().copied()
}

/// A line in words: its directive or its block. Words of the file that are no names may be secrets.
fn shown(line: Line<'_>) -> String {
    let word = words(line.text).next().unwrap_or_default();
    let word = word.trim_start_matches("--");
    match line.block {
        Some(tag) if is_directive(tag) => format!("<{tag}>"),
        None if is_directive(word) => format!("`{word}`"),
        _ => "a line that is no known directive".to_owned(),
    }
}
