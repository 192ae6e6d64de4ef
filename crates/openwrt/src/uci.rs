//! Parses UCI files: text in, sections with options and lists out, or faults with their lines.
//!
//! The grammar is libuci's: `config TYPE [NAME]`, `option NAME VALUE`, `list NAME VALUE`, `package NAME`, each also
//! by its first letter. Words are quoted as in a shell. `'…'` has no escapes; in `"…"` and outside quotes a backslash
//! escapes the next character. Adjacent pieces form one word, and quotes may span lines. `#` begins a comment, `;` ends
//! a statement.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Largest accepted file, in bytes.
pub const FILE_MAX: u64 = 1 << 20;

/// Maximum number of faults reported for one file.
pub const FAULTS_MAX: usize = 100;

/// A parsed UCI file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// The file's sections, in order. Their names are unique.
    pub sections: Vec<Section>,
}

/// A section of a UCI file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Type of the section.
    pub kind: String,
    /// The section's name; `None` if it is anonymous.
    pub name: Option<String>,
    /// The line on which the section begins, counted from 1.
    pub line: usize,
    /// The section's settings. Their names are unique.
    pub settings: Vec<Setting>,
}

/// An option or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The setting's name.
    pub name: String,
    /// The setting's value.
    pub value: Value,
    /// The line of the setting's last word, counted from 1.
    pub line: usize,
}

/// A value, which may be a secret: it is overwritten when dropped, and `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// The value of an `option`.
    Text(Zeroizing<String>),
    /// The values of a `list`, in order.
    List(Vec<Zeroizing<String>>),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "({} bytes)", text.len()),
            Self::List(list) => write!(f, "({} values)", list.len()),
        }
    }
}

/// A fault in a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {words}")]
pub struct Fault {
    /// The line, counted from 1.
    pub line: usize,
    /// Fault in one sentence.
    pub words: String,
    /// Index of the section with the fault; `None` if it is in no known section.
    pub section: Option<usize>,
}

/// Reads a file in UCI's directory, which may hold secrets.
///
/// # Errors
/// The file cannot be read, is larger than [`FILE_MAX`], or is not a regular file: a pipe or device could block the
/// reader.
pub fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    config::file::read(path, FILE_MAX)
}

impl Package {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// All faults, up to [`FAULTS_MAX`].
    pub fn parse(text: &str) -> Result<Self, Vec<Fault>> {
        Self::read(text, &|_| false).map(|it| it.0)
    }

    /// Parses a file for the sections that are `ours`. Wrong statements in other sections are skipped, as netifd
    /// does, and returned as faults.
    ///
    /// # Errors
    /// All faults, up to [`FAULTS_MAX`]: if one is in a section of ours or is an unclosed quote, or if that limit is
    /// reached.
    pub fn parse_for(
        text: &str,
        ours: impl Fn(&Section) -> bool,
    ) -> Result<(Self, Vec<Fault>), Vec<Fault>> {
        Self::read(text, &|section| !section.is_some_and(&ours))
    }

    fn read(
        text: &str,
        harmless: &dyn Fn(Option<&Section>) -> bool,
    ) -> Result<(Self, Vec<Fault>), Vec<Fault>> {
        let mut reader = Reader::default();
        let mut words = Words::new(text);
        let mut grave = false;
        while let Some(statement) = words.statement() {
            let fault = match statement {
                Ok((line, statement)) => match reader.statement(line, statement) {
                    Ok(()) => continue,
                    Err(words) => {
                        let at = reader.at;
                        let section = at.and_then(|at| reader.package.sections.get(at));
                        grave |= !harmless(section);
                        Fault {
                            line,
                            words,
                            section: at,
                        }
                    }
                },
                // The section's content is unknown.
                Err(fault) => {
                    grave = true;
                    fault
                }
            };
            reader.faults.push(fault);
            if reader.faults.len() == FAULTS_MAX {
                grave = true;
                break;
            }
        }
        match grave {
            true => Err(reader.faults),
            false => Ok((reader.package, reader.faults)),
        }
    }

    /// The section that a word means: a name, or `@TYPE[N]`, where N counts that type's sections from 0, and -1 is
    /// the last.
    #[must_use]
    pub fn section(&self, word: &str) -> Option<&Section> {
        let Some(rest) = word.strip_prefix('@') else {
            let mut all = self.sections.iter();
            return all.find(|it| it.name.as_deref() == Some(word));
        };
        let (kind, index) = rest.strip_suffix(']')?.split_once('[')?;
        let index: i64 = index.parse().ok()?;
        let all: Vec<&Section> = self.of_kind(kind).collect();
        let index = match index < 0 {
            true => i64::try_from(all.len()).ok()?.checked_add(index)?,
            false => index,
        };
        all.get(usize::try_from(index).ok()?).copied()
    }

    /// All sections of a type, named or anonymous.
    pub fn of_kind<'a>(&'a self, kind: &str) -> impl Iterator<Item = &'a Section> + use<'a> {
        let kind = kind.to_owned();
        self.sections.iter().filter(move |it| it.kind == kind)
    }
}

impl Section {
    /// The setting with this name.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|it| it.name == name)
    }

    /// The value of an option.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match &self.setting(name)?.value {
            Value::Text(text) => Some(text.as_str()),
            Value::List(_) => None,
        }
    }
}

impl Setting {
    /// The values of a list, or the words of an option: OpenWrt programs accept both.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        let (text, list) = match &self.value {
            Value::Text(text) => (Some(text), None),
            Value::List(list) => (None, Some(list)),
        };
        let words = text.into_iter().flat_map(|it| it.split_ascii_whitespace());
        let list = list.into_iter().flatten().map(|it| it.as_str());
        words.chain(list)
    }
}

/// The words of a statement and the line of its first one.
type Statement = (usize, Vec<Zeroizing<String>>);

/// Splits a text into statements.
struct Words<'t> {
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    line: usize,
    len: usize,
}

impl<'t> Words<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            rest: text.chars().peekable(),
            line: 1,
            len: text.len(),
        }
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn comment(&mut self) {
        while self.rest.peek().is_some_and(|&it| it != '\n') {
            self.next();
        }
    }

    /// Returns the next statement with at least one word.
    fn statement(&mut self) -> Option<Result<Statement, Fault>> {
        let mut words = Vec::new();
        let mut line = self.line;
        loop {
            match self.rest.peek().copied() {
                None if words.is_empty() => return None,
                None => return Some(Ok((line, words))),
                Some('\n' | ';') => {
                    self.next();
                    if !words.is_empty() {
                        return Some(Ok((line, words)));
                    }
                }
                Some('#') => self.comment(),
                Some(space) if space.is_ascii_whitespace() => {
                    self.next();
                }
                Some(_) => {
                    if words.is_empty() {
                        line = self.line;
                    }
                    match self.word() {
                        Ok(Some(word)) => words.push(word),
                        Ok(None) => {}
                        Err(fault) => return Some(Err(fault)),
                    }
                }
            }
        }
    }

    /// Reads a word; `None` for a backslash that only continues the line.
    fn word(&mut self) -> Result<Option<Zeroizing<String>>, Fault> {
        // Reserve the size first: a string that grows leaves copies of a key behind. Keys are short.
        let mut word = Zeroizing::new(String::with_capacity(self.len.min(128)));
        let mut any = false;
        while let Some(&next) = self.rest.peek() {
            match next {
                '#' | ';' => break,
                it if it.is_ascii_whitespace() => break,
                '\'' | '"' => {
                    any = true;
                    self.quoted(&mut word)?;
                }
                '\\' => {
                    self.next();
                    match self.next() {
                        // The statement continues on the next line.
                        None | Some('\n') => {}
                        Some(it) => {
                            any = true;
                            word.push(it);
                        }
                    }
                }
                it => {
                    any = true;
                    self.next();
                    word.push(it);
                }
            }
        }
        Ok(any.then_some(word))
    }

    fn quoted(&mut self, word: &mut String) -> Result<(), Fault> {
        let line = self.line;
        let quote = self.next();
        loop {
            match self.next() {
                None => {
                    let words = "a quote that does not end".to_owned();
                    let section = None;
                    return Err(Fault {
                        line,
                        words,
                        section,
                    });
                }
                next if next == quote => return Ok(()),
                Some('\\') if quote == Some('"') => match self.next() {
                    None | Some('\n') => {}
                    Some(it) => word.push(it),
                },
                Some(it) => word.push(it),
            }
        }
    }
}

#[derive(Default)]
struct Reader {
    package: Package,
    /// Index of the current section.
    at: Option<usize>,
    /// Index of each named section.
    named: HashMap<String, usize>,
    faults: Vec<Fault>,
}

impl Reader {
    fn statement(&mut self, line: usize, words: Vec<Zeroizing<String>>) -> Result<(), String> {
        let mut words = words.into_iter();
        let command = words.next().unwrap_or_default();
        let (first, second, third) = (words.next(), words.next(), words.next());
        match (command.as_str(), first, second, third) {
            ("package" | "p", Some(_), None, None) => Ok(()),
            ("config" | "c", Some(kind), name, None) => self.section(line, &kind, name.as_deref()),
            ("option" | "o", Some(name), Some(value), None) => self.set(line, &name, value, false),
            ("list" | "l", Some(name), Some(value), None) => self.set(line, &name, value, true),
            // libuci treats a missing value as an empty one.
            ("option" | "o", Some(name), None, None) => {
                self.set(line, &name, Zeroizing::default(), false)
            }
            ("list" | "l", Some(name), None, None) => {
                self.set(line, &name, Zeroizing::default(), true)
            }
            ("package" | "p" | "config" | "c", ..) => {
                // The lines below an unknown section do not belong to the section before.
                self.at = None;
                Err(format!("`{}` needs a word or two behind it", *command))
            }
            ("option" | "o" | "list" | "l", ..) => Err(format!(
                "`{}` needs a name and one value; a value with spaces needs quotes",
                *command
            )),
            // The error quotes nothing of the line, which may be part of a secret.
            _ => Err("must begin with `config`, `option`, `list` or `package`".to_owned()),
        }
    }

    fn section(&mut self, line: usize, kind: &str, name: Option<&String>) -> Result<(), String> {
        self.at = None;
        if kind.is_empty() || !kind.bytes().all(|it| it.is_ascii_graphic()) {
            return Err("a section's type must be letters, digits or signs".to_owned());
        }
        let sections = &mut self.package.sections;
        // libuci treats an empty name as no name.
        let name = name.filter(|name| !name.is_empty());
        if let Some(name) = name {
            if !is_name(name) {
                return Err("a section's name must be letters, digits and `_`".to_owned());
            }
            if let Some(&at) = self.named.get(name) {
                if sections[at].kind != kind {
                    let words = "there is a section of this name and another type";
                    return Err(words.to_owned());
                }
                self.at = Some(at);
                return Ok(());
            }
        }
        self.at = Some(sections.len());
        if let Some(name) = name {
            self.named.insert(name.clone(), sections.len());
        }
        sections.push(Section {
            kind: kind.to_owned(),
            name: name.cloned(),
            line,
            settings: Vec::new(),
        });
        Ok(())
    }

    fn set(
        &mut self,
        line: usize,
        name: &str,
        value: Zeroizing<String>,
        list: bool,
    ) -> Result<(), String> {
        let section = self.at.and_then(|at| self.package.sections.get_mut(at));
        let section = section.ok_or("stands in no section")?;
        if !is_name(name) {
            return Err("an option's name must be letters, digits and `_`".to_owned());
        }
        let at = section.settings.iter().position(|it| it.name == name);
        // libuci treats an option without a value as missing, and drops its earlier value.
        if value.is_empty() && !list {
            if let Some(at) = at {
                section.settings.remove(at);
            }
            return Ok(());
        }
        let Some(at) = at else {
            section.settings.push(Setting {
                name: name.to_owned(),
                value: match list {
                    true => Value::List(vec![value]),
                    false => Value::Text(value),
                },
                line,
            });
            return Ok(());
        };
        let setting = &mut section.settings[at];
        setting.line = line;
        match (&mut setting.value, list) {
            (Value::List(values), true) => values.push(value),
            (Value::Text(text), true) => {
                let first = std::mem::take(text);
                setting.value = Value::List(vec![first, value]);
            }
            (_, false) => setting.value = Value::Text(value),
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let fits = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    !name.is_empty() && name.bytes().all(fits)
}

/// The directory from which `dnsmasq` will read further files, by the first section of `/etc/config/dhcp`: its option
/// `confdir`, or the default, named after the section. The init script creates it. `None` without the file or the
/// section.
#[must_use]
pub fn dnsmasq_directory(configuration: &Path) -> Option<PathBuf> {
    let text = config::file::read_text(&configuration.join("dhcp"), FILE_MAX).ok()?;
    directory(&Package::parse(&text).ok()?)
}

fn directory(package: &Package) -> Option<PathBuf> {
    let mut all = package.sections.iter().enumerate();
    let (place, section) = all.find(|(_, it)| it.kind == "dnsmasq")?;
    let directory = match section.text("confdir") {
        Some(text) => text.split(',').next().unwrap_or_default().to_owned(),
        None => format!("/tmp/dnsmasq.{}.d", name_of(section, place)),
    };
    directory.starts_with('/').then(|| directory.into())
}

/// The name that libuci gives an anonymous section: its position among all sections, from 1, and a digest of its
/// type.
fn name_of(section: &Section, place: usize) -> String {
    match &section.name {
        Some(name) => name.clone(),
        None => {
            let digest = section.kind.bytes().fold(5381_u32, |sum, byte| {
                sum.wrapping_mul(33).wrapping_add(u32::from(byte))
            });
            format!("cfg{:02x}{:04x}", place + 1, digest & 0xffff)
        }
    }
}

#[cfg(test)]
mod tests;
