//! OpenVPN files of one account, joined: one file with the `remote` lines of all.

use super::{Member, PoolError};
use config::pool::Choose;
use zeroize::Zeroizing;

/// A file's servers, and its other lines.
struct Parts<'t> {
    /// `HOST PORT PROTOCOL`.
    remotes: Vec<String>,
    /// Lines without comments, sorted.
    others: Vec<&'t str>,
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
    let mut lines: Vec<String> = remotes.iter().map(|it| format!("remote {it}")).collect();
    if choose == Choose::Random && !others.contains(&"remote-random") {
        lines.push("remote-random".to_owned());
    }
    let mut servers = Some(lines.join("\n"));
    let size = first.text.len() + servers.as_ref().map_or(0, String::len) + 2;
    let mut text = Zeroizing::new(String::with_capacity(size));
    for line in first.text.lines() {
        let servers = match is_of_server(line) {
            true => servers.take(),
            false => Some(line.to_owned()),
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

/// Whether the line says where the server is: such lines go into the lines `remote`.
fn is_of_server(line: &str) -> bool {
    matches!(
        words(line).next(),
        Some("remote" | "proto" | "port" | "rport")
    )
}

fn parts(member: &Member) -> Result<Parts<'_>, PoolError> {
    let unfit = |why: &str| PoolError::Unfit {
        file: member.file.clone(),
        why: why.to_owned(),
    };
    let lines = || member.text.lines().map(str::trim);
    let value = |names: &[&str]| {
        let mut values = lines().filter_map(|line| {
            let mut words = words(line);
            let name = words.next()?;
            names.contains(&name).then(|| words.next()).flatten()
        });
        values.next_back()
    };
    if lines().any(|line| line.eq_ignore_ascii_case("<connection>")) {
        return Err(unfit("has <connection> blocks; import it alone"));
    }
    let port = value(&["port", "rport"]).unwrap_or("1194");
    let protocol = value(&["proto"]).unwrap_or("udp");
    let remotes = lines().filter_map(|line| {
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
    let others = lines().filter(|line| words(line).next().is_some() && !is_of_server(line));
    let mut others: Vec<&str> = others.collect();
    others.sort_unstable();
    Ok(Parts { remotes, others })
}

/// The first line that only one of two sorted lists has.
fn difference<'t>(one: &[&'t str], other: &[&'t str]) -> Option<&'t str> {
    let at = one.iter().zip(other).position(|(a, b)| a != b);
    let at = at.unwrap_or_else(|| one.len().min(other.len()));
    // The lesser of two differing lines is missing in the other list.
    one.get(at).into_iter().chain(other.get(at)).min().copied()
}

/// A line in words: its directive. Other lines may be part of a key.
fn shown(line: &str) -> String {
    let word = line.split_whitespace().next().unwrap_or_default();
    let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    let begins = word.starts_with(|c: char| c.is_ascii_lowercase());
    match begins && word.len() <= 30 && word.bytes().all(is_plain) {
        true => format!("`{word}`"),
        false => "a key or certificate".to_owned(),
    }
}
