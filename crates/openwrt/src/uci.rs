//! UCI files: text in, sections with options and lists out, or faults with their lines.
//!
//! The grammar is that of libuci: `config TYPE [NAME]`, `option NAME VALUE`, `list NAME VALUE`, `package NAME`, each
//! also by its first letter. Words are quoted as in a shell: `'…'` has no escapes, in `"…"` and outside of quotes a
//! backslash takes the next character as it is, pieces that touch are one word, quotes may span lines. `#` begins a
//! comment, `;` ends a statement.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;

use zeroize::Zeroizing;

/// Largest file that is read, in bytes.
pub const FILE_MAX: u64 = 1 << 20;

/// Most faults that are told of one file.
pub const FAULTS_MAX: usize = 100;

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Its sections, in order. No two have one name.
    pub sections: Vec<Section>,
}

/// A section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Its type.
    pub kind: String,
    /// Its name; anonymous sections have none.
    pub name: Option<String>,
    /// The line that begins it, from 1.
    pub line: usize,
    /// Its settings. No two have one name.
    pub settings: Vec<Setting>,
}

/// An option or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// The line of its last word, from 1.
    pub line: usize,
}

/// A value, which may be a secret: it is overwritten when dropped, and not shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Of `option`.
    Text(Zeroizing<String>),
    /// Of `list`, in order.
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

/// A fault of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {words}")]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The fault.
    pub words: String,
    /// The place of its section among the file's; `None` where it is in none that is known.
    pub section: Option<usize>,
}

/// Reads a file of UCI's directory, which may hold secrets.
///
/// # Errors
/// It cannot be read, is larger than [`FILE_MAX`], or no file: a pipe or a device could keep the reader for ever.
pub fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    config::file::read(path, FILE_MAX)
}

impl Package {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// All faults, at most [`FAULTS_MAX`].
    pub fn parse(text: &str) -> Result<Self, Vec<Fault>> {
        Self::read(text, &|_| false).map(|it| it.0)
    }

    /// Reads the text of a file for those sections that are `ours`. Statements of others that are wrong are left out, as
    /// netifd does, and returned beside it.
    ///
    /// # Errors
    /// All faults, at most [`FAULTS_MAX`], if one is in a section of ours, is a quote that does not end, or there are so
    /// many.
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
                // Its content is not known.
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

    /// The section that a word means: a name, or `@TYPE[N]`, where N counts the sections of that type from 0, and -1 is
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

    /// The sections of a type, named or not.
    pub fn of_kind<'a>(&'a self, kind: &str) -> impl Iterator<Item = &'a Section> + use<'a> {
        let kind = kind.to_owned();
        self.sections.iter().filter(move |it| it.kind == kind)
    }
}

impl Section {
    /// The setting of this name.
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
    /// The values of a list, or the words of an option: programs of OpenWrt take both.
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

/// Cuts a text into statements.
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

    /// The next statement that has words.
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

    /// A word; `None` for a line that only goes on.
    fn word(&mut self) -> Result<Option<Zeroizing<String>>, Fault> {
        // Reserved beforehand: a string that grows leaves copies of a key behind. Keys are short.
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
                        // The statement goes on in the next line.
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
    /// Which section goes on.
    at: Option<usize>,
    /// The place of each name.
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
            // libuci takes a missing value as an empty one.
            ("option" | "o", Some(name), None, None) => {
                self.set(line, &name, Zeroizing::default(), false)
            }
            ("list" | "l", Some(name), None, None) => {
                self.set(line, &name, Zeroizing::default(), true)
            }
            ("package" | "p" | "config" | "c", ..) => {
                // The lines behind an unknown section do not belong to the one before.
                self.at = None;
                Err(format!("`{}` needs a word or two behind it", *command))
            }
            ("option" | "o" | "list" | "l", ..) => Err(format!(
                "`{}` needs a name and one value; a value with spaces needs quotes",
                *command
            )),
            // Nothing of the line is repeated: it may be a part of a secret.
            _ => Err("must begin with `config`, `option`, `list` or `package`".to_owned()),
        }
    }

    fn section(&mut self, line: usize, kind: &str, name: Option<&String>) -> Result<(), String> {
        self.at = None;
        if kind.is_empty() || !kind.bytes().all(|it| it.is_ascii_graphic()) {
            return Err("a section's type must be letters, digits or signs".to_owned());
        }
        let sections = &mut self.package.sections;
        // libuci takes an empty name as none.
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
        // libuci takes an option without a value as none, and drops its earlier value.
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

#[cfg(test)]
mod tests;
