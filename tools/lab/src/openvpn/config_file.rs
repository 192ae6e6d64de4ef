//! Builds configuration files in OpenVPN's format.

use std::fmt::{self, Write};

/// A configuration file: directives and inline blocks, in order, and the files that they refer to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigFile {
    lines: Vec<Line>,
    files: Vec<(String, Vec<u8>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Directive(Vec<String>),
    Block { name: String, text: String },
    Verbatim(String),
}

impl ConfigFile {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads directives, one per line, with quoting as in a file. For fixtures.
    pub fn parse(text: &str) -> Self {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Self {
            lines: lines.map(|line| Line::Directive(words(line))).collect(),
            files: Vec::new(),
        }
    }

    /// Adds a directive: its name, then its words, separated by blanks.
    pub fn line(&mut self, directive: &str) -> &mut Self {
        let words = directive.split_whitespace().map(str::to_owned).collect();
        self.lines.push(Line::Directive(words));
        self
    }

    /// Adds a directive whose words may contain blanks and quotes.
    pub fn words<S: fmt::Display>(
        &mut self,
        name: &str,
        words: impl IntoIterator<Item = S>,
    ) -> &mut Self {
        let words = words.into_iter().map(|word| word.to_string());
        let all = std::iter::once(name.to_owned()).chain(words).collect();
        self.lines.push(Line::Directive(all));
        self
    }

    /// Adds the content of a file inline, `<name>` to `</name>`.
    pub fn block(&mut self, name: &str, text: &str) -> &mut Self {
        self.lines.push(Line::Block {
            name: name.to_owned(),
            text: text.trim_end().to_owned(),
        });
        self
    }

    /// Adds lines as they are.
    pub fn verbatim(&mut self, text: &str) -> &mut Self {
        let lines = text.lines().map(|line| Line::Verbatim(line.to_owned()));
        self.lines.extend(lines);
        self
    }

    /// Adds a file to be written beside the configuration, readable only by its owner. Its path is relative to the
    /// program's directory, and at most one directory deep.
    pub fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) -> &mut Self {
        self.files.push((path.to_owned(), content.into()));
        self
    }

    /// The files to be written beside the configuration.
    pub(super) fn files(&self) -> &[(String, Vec<u8>)] {
        &self.files
    }

    /// Removes every directive and block of this name.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        self.lines.retain(|line| line.name() != name);
        self
    }

    /// Returns the words after the first directive of this name.
    pub fn find(&self, name: &str) -> Option<Vec<&str>> {
        let line = self.lines.iter().find(|line| line.name() == name)?;
        match line {
            Line::Directive(words) => Some(words.iter().skip(1).map(String::as_str).collect()),
            Line::Verbatim(text) => Some(text.split_whitespace().skip(1).collect()),
            Line::Block { .. } => None,
        }
    }

    /// Adds all lines of another file.
    pub fn append(&mut self, other: &Self) -> &mut Self {
        self.lines.extend(other.lines.iter().cloned());
        self.files.extend(other.files.iter().cloned());
        self
    }
}

impl Line {
    fn name(&self) -> &str {
        match self {
            Self::Directive(words) => words.first().map_or("", String::as_str),
            Self::Block { name, .. } => name,
            Self::Verbatim(text) => text.split_whitespace().next().unwrap_or_default(),
        }
    }
}

impl fmt::Display for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            match line {
                Line::Directive(words) => {
                    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                    writeln!(f, "{}", words.join(" "))?;
                }
                Line::Verbatim(text) => writeln!(f, "{text}")?,
                Line::Block { name, text } => writeln!(f, "<{name}>\n{text}\n</{name}>")?,
            }
        }
        Ok(())
    }
}

/// Quotes a word if a file would otherwise split it.
fn quoted(word: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !"\"'\\#;".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut text = String::from("\"");
    for c in word.chars() {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        // Writing to a String does not fail.
        let _ = text.write_char(c);
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_they_were_meant() {
        let mut file = ConfigFile::new();
        file.line("proto udp")
            .words("push", ["route 10.0.0.0 255.0.0.0"])
            .words("setenv", ["UV_X", "a\"b\\c"])
            .words("push", [""])
            .block("ca", "PEM\n");
        let expected = "proto udp\npush \"route 10.0.0.0 255.0.0.0\"\n\
                        setenv UV_X \"a\\\"b\\\\c\"\npush \"\"\n<ca>\nPEM\n</ca>\n";
        assert_eq!(file.to_string(), expected);
        assert_eq!(file.find("proto").unwrap(), ["udp"]);
        file.remove("push").remove("ca").remove("setenv");
        assert_eq!(file.to_string(), "proto udp\n");
        assert_eq!(ConfigFile::parse("\n proto  udp\n"), file);
    }
}
