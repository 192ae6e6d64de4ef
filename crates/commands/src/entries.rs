//! Adds and removes tables of the lists in settings files, such as `[[forward]]`, for commands.

use crate::guard::write_text;
use config::settings::SettingsError;
use config::settings::tables;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a list stays as it is.
#[derive(Debug, Error)]
pub(crate) enum EntriesError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("{}: begin each entry with a line [[{name}]]; this command cannot change a list in brackets", .path.display())]
    Inline { path: PathBuf, name: &'static str },
    #[error("{}: there is no entry {number}; the list has {count}", .path.display())]
    Absent {
        path: PathBuf,
        number: usize,
        count: usize,
    },
    #[cfg(feature = "policy")]
    #[error("{}: no entry has the name {name}; `millrace policy list` shows the names", .path.display())]
    Unknown { path: PathBuf, name: String },
    #[cfg(feature = "policy")]
    #[error(
        "{name} is the only entry; to end the policy, run `millrace policy off`, disable the service millrace-policy, and \
         remove {}", .path.display()
    )]
    Last { path: PathBuf, name: String },
    #[error("{}: {error}", .path.display())]
    Write { path: PathBuf, error: io::Error },
}

/// A list of a settings file.
pub(crate) struct List<'a, T> {
    /// The settings file.
    pub(crate) path: &'a Path,
    /// The list's key.
    pub(crate) name: &'static str,
    /// Reads the list from a text, which may be empty.
    pub(crate) read: fn(&str, &Path) -> Result<Vec<T>, SettingsError>,
}

impl<T: PartialEq> List<'_, T> {
    /// The entries; none if there is no file.
    pub(crate) fn entries(&self) -> Result<Vec<T>, SettingsError> {
        (self.read)(&tables::text(self.path)?, self.path)
    }

    /// Adds tables behind the others. Returns the number of entries before.
    pub(crate) fn add(&self, new: &[String]) -> Result<usize, EntriesError> {
        let before = tables::text(self.path)?;
        let entries = (self.read)(&before, self.path)?;
        let added = tables::inserted(&before, self.name, entries.len(), &new.join("\n"));
        let added = added.ok_or_else(|| self.inline())?;
        let after = (self.read)(&added, self.path)?;
        match after.starts_with(&entries) {
            true => write(&added, self.path)?,
            false => return Err(self.inline()),
        }
        Ok(entries.len())
    }

    /// Removes the entry of this number, counted from 1. Returns how many are left.
    pub(crate) fn remove(&self, number: usize) -> Result<usize, EntriesError> {
        let before = tables::text(self.path)?;
        let mut entries = (self.read)(&before, self.path)?;
        let place = number.checked_sub(1).filter(|it| *it < entries.len());
        let place = place.ok_or_else(|| EntriesError::Absent {
            path: self.path.to_owned(),
            number,
            count: entries.len(),
        })?;
        let left = tables::removed(&before, self.name, place).ok_or_else(|| self.inline())?;
        entries.remove(place);
        match (self.read)(&left, self.path)? == entries {
            // Units do not start without the file.
            true if left.trim().is_empty() => {
                fs::remove_file(self.path).map_err(failed(self.path))?;
            }
            true => write(&left, self.path)?,
            false => return Err(self.inline()),
        }
        Ok(entries.len())
    }

    fn inline(&self) -> EntriesError {
        EntriesError::Inline {
            path: self.path.to_owned(),
            name: self.name,
        }
    }
}

/// Writes a settings file; a new one is for its owner only.
pub(crate) fn write(text: &str, path: &Path) -> Result<(), EntriesError> {
    write_text(text, path, 0o600).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> EntriesError {
    let path = path.to_owned();
    |error| EntriesError::Write { path, error }
}

/// Whether UCI and procd start services here.
pub(crate) fn is_openwrt() -> bool {
    Path::new("/etc/openwrt_release").exists()
}

/// Whether systemd starts services here.
pub(crate) fn has_systemd() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// Says how the service `name` learns of a change of its list, which had `before` entries and has `after`. `again` is
/// the verb for a running service.
pub(crate) fn tell(path: &Path, name: &str, again: &str, before: usize, after: usize) {
    let verb = match (before, after) {
        (_, 0) => "stop",
        (0, _) => "start",
        _ => again,
    };
    let remedy = match (is_openwrt(), has_systemd(), verb) {
        (true, ..) => format!("run: service millrace-{name} {verb}"),
        (_, true, "start") => format!("run: systemctl enable --now millrace-{name}"),
        (_, true, "stop") => format!("run: systemctl disable --now millrace-{name}"),
        // The service may not run yet.
        (_, true, "reload") => format!("run: systemctl reload-or-restart millrace-{name}"),
        (_, true, verb) => format!("run: systemctl {verb} millrace-{name}"),
        (.., "stop") => format!("end `millrace {name}`"),
        (.., "start") => format!("start `millrace {name}`"),
        _ => format!("start `millrace {name}` again"),
    };
    let what = match after {
        0 => "now without entries",
        _ => "changed",
    };
    host::terminal::note(format_args!(
        "{}: {what}; to apply this, {remedy}",
        path.display()
    ));
}

/// Prints entries with their numbers.
pub(crate) fn print(path: &Path, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = (1..)
        .zip(lines)
        .map(|(number, it)| format!("{number}: {it}\n"))
        .collect();
    if lines.is_empty() {
        host::terminal::note(format_args!("{}: no entries", path.display()));
    }
    host::terminal::text(lines.concat());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(path: &Path) -> List<'_, config::forward::Forward> {
        List {
            path,
            name: "forward",
            read: config::forward::listed,
        }
    }

    fn table(port: u16) -> String {
        format!("[[forward]]\nthrough = \"mr-us\"\nto = \"192.168.1.20\"\nport = {port}\n")
    }

    #[test]
    fn entries_come_and_go_and_comments_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new").join("forward.toml");
        let list = list(&path);
        assert_eq!(list.entries().unwrap(), []);
        assert_eq!(list.add(&[table(1), table(2)]).unwrap(), 0);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{}\n{}", table(1), table(2)));
        fs::write(&path, format!("# mine\n\n{text}# the end\n")).unwrap();
        assert_eq!(list.add(&[table(3)]).unwrap(), 2);
        assert_eq!(list.remove(1).unwrap(), 2);
        let text = fs::read_to_string(&path).unwrap();
        let wanted = format!("# mine\n\n{}# the end\n\n{}", table(2), table(3));
        assert_eq!(text, wanted);
        for number in [0, 3] {
            let error = list.remove(number).unwrap_err().to_string();
            assert!(error.contains("there is no entry"), "{error}");
        }
        assert_eq!(list.remove(2).unwrap(), 1);
        assert_eq!(list.remove(1).unwrap(), 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), "# mine\n\n# the end\n");
        fs::write(&path, table(1)).unwrap();
        assert_eq!(list.remove(1).unwrap(), 0);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_not_understood_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("forward.toml");
        let inline = "forward = [{ through = \"mr-us\", to = \"192.168.1.20\" }]\n";
        for (text, words) in [
            ("[[forward]]\nto = \n", "forward.toml:2"),
            ("[[forward]]\nthrough = \"mr-us\"\n", "a forward needs"),
            ("[[froward]]\n", "froward"),
            (inline, "cannot change a list in brackets"),
            (&*table(9), "another forward through mr-us"),
        ] {
            fs::write(&path, text).unwrap();
            let error = list(&path).add(&[table(9)]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::write(&path, inline).unwrap();
        assert!(list(&path).remove(1).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), inline);
    }
}
