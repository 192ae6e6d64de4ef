//! Adds and removes tables of the lists in settings files, such as `[[forward]]`, for commands.

use crate::guard::write_text;
use clap::{Arg, ArgMatches, Command, value_parser};
use config::settings::tables;
use config::settings::{FILE_MAX, SettingsError};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
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
    #[cfg(feature = "monitor")]
    #[error("{0}")]
    Event(String),
    #[cfg(feature = "monitor")]
    #[error("{}: entry {number} is the same", .path.display())]
    Same { path: PathBuf, number: usize },
    /// A value of a new entry; no line of the file names it yet.
    #[error("{0}")]
    Value(String),
    #[cfg(feature = "policy")]
    #[error("{}: no entry has the name {name}; `millrace policy list` shows the names", .path.display())]
    Unknown { path: PathBuf, name: String },
    #[cfg(feature = "policy")]
    #[error(
        "{name} is the only entry; to end the policy, run `millrace policy off`, disable the service millrace-policy, and \
         remove {}", .path.display()
    )]
    Last { path: PathBuf, name: String },
    #[cfg(feature = "policy")]
    #[error("{}: without this entry, {words}; change the file by hand", .path.display())]
    Fault { path: PathBuf, words: String },
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
        let _lock = lock(self.path)?;
        let before = tables::text(self.path)?;
        let entries = (self.read)(&before, self.path)?;
        for new in new {
            self.read_new(new)?;
        }
        let added = tables::inserted(&before, self.name, entries.len(), &new.join("\n"));
        let added = added.ok_or_else(|| self.inline())?;
        let after = (self.read)(&added, self.path).map_err(|error| of_new(&error))?;
        match after.starts_with(&entries) {
            true => write(&added, self.path)?,
            false => return Err(self.inline()),
        }
        Ok(entries.len())
    }

    /// Removes the entry of this number, counted from 1. Returns how many are left.
    pub(crate) fn remove(&self, number: usize) -> Result<usize, EntriesError> {
        let _lock = lock(self.path)?;
        let (left, count) = self.without(number, &tables::text(self.path)?)?;
        // Units do not start without the file.
        match left.trim().is_empty() {
            true => {
                let removed = fs::canonicalize(self.path).and_then(fs::remove_file);
                removed.map_err(failed(self.path))?;
            }
            false => write(&left, self.path)?,
        }
        Ok(count)
    }

    /// The text `before` without the entry of this number, and how many are left.
    pub(crate) fn without(
        &self,
        number: usize,
        before: &str,
    ) -> Result<(String, usize), EntriesError> {
        let mut entries = (self.read)(before, self.path)?;
        let place = number.checked_sub(1).filter(|it| *it < entries.len());
        let place = place.ok_or_else(|| EntriesError::Absent {
            path: self.path.to_owned(),
            number,
            count: entries.len(),
        })?;
        let left = tables::removed(before, self.name, place).ok_or_else(|| self.inline())?;
        entries.remove(place);
        match (self.read)(&left, self.path)? == entries {
            true => Ok((left, entries.len())),
            false => Err(self.inline()),
        }
    }

    /// Reads entries that no file has yet.
    ///
    /// # Errors
    /// [`EntriesError::Value`], without a line.
    pub(crate) fn read_new(&self, new: &str) -> Result<Vec<T>, EntriesError> {
        (self.read)(new, Path::new("new")).map_err(|error| of_new(&error))
    }

    fn inline(&self) -> EntriesError {
        EntriesError::Inline {
            path: self.path.to_owned(),
            name: self.name,
        }
    }
}

/// The error of a new entry: the line in it is not one of the file.
fn of_new(error: &SettingsError) -> EntriesError {
    let words = error.to_string();
    let why = words.split_once(": ").map(|(_, why)| why.to_owned());
    EntriesError::Value(why.unwrap_or(words))
}

/// Holds off our other processes that change settings in the same directory.
pub(crate) fn lock(path: &Path) -> Result<Flock<File>, EntriesError> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = directory.unwrap_or_else(|| Path::new("."));
    let lock = || {
        fs::create_dir_all(directory)?;
        Flock::lock(File::open(directory)?, FlockArg::LockExclusive)
            .map_err(|(_, errno)| errno.into())
    };
    lock().map_err(failed(path))
}

/// Writes a settings file; a new one is for its owner only.
pub(crate) fn write(text: &str, path: &Path) -> Result<(), EntriesError> {
    // No command could read a larger file.
    if text.len() as u64 > FILE_MAX {
        let path = path.to_owned();
        return Err(SettingsError::TooLarge { path }.into());
    }
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

/// A service that reads a list.
pub(crate) struct Service {
    /// The command that runs it, such as `forward`.
    pub(crate) name: &'static str,
    /// The settings that it reads without `--settings`.
    pub(crate) path: &'static str,
    /// The verb by which it reads changed settings.
    pub(crate) again: &'static str,
}

impl Service {
    /// Says how the service learns of a change of its list in `path`, which had `before` entries and has `after`.
    pub(crate) fn tell(&self, path: &Path, before: usize, after: usize) {
        let verb = match (before, after) {
            (_, 0) => "stop",
            (0, _) => "start",
            _ => self.again,
        };
        let (is_default, name) = (path == Path::new(self.path), self.name);
        let path = path.display();
        let own = match is_default {
            true => format!("`millrace {name}`"),
            false => format!("`millrace {name} --settings {path}`"),
        };
        let commands = commands(name, verb).filter(|_| is_default);
        let remedy = match (commands, verb) {
            (Some(commands), _) => format!("run: {commands}"),
            (None, "stop") => format!("end {own}"),
            (None, "start") => format!("start {own}"),
            _ => format!("start {own}; if it runs, end it first"),
        };
        let what = match after {
            0 => "now without entries",
            _ => "changed",
        };
        host::terminal::note(format_args!("{path}: {what}; to apply this, {remedy}"));
    }
}

/// The commands by which a service starts or stops, now and at each boot, or reads changed settings: `start`, `stop`,
/// `restart` or `reload`. `None` without a manager of services.
pub(crate) fn commands(name: &str, verb: &str) -> Option<String> {
    let unit = format!("millrace-{name}");
    Some(match (is_openwrt(), has_systemd(), verb) {
        (true, _, "start") => format!("service {unit} enable && service {unit} start"),
        (true, _, "stop") => format!("service {unit} disable && service {unit} stop"),
        (true, ..) => format!("service {unit} {verb}"),
        (_, true, "start") => format!("systemctl enable --now {unit}"),
        (_, true, "stop") => format!("systemctl disable --now {unit}"),
        // The service may not run yet.
        (_, true, "reload") => format!("systemctl reload-or-restart {unit}"),
        (_, true, verb) => format!("systemctl {verb} {unit}"),
        _ => return None,
    })
}

/// The command-line definition of `remove`, for a list whose entries are called `noun`.
pub(crate) fn removal(noun: &str) -> Command {
    let number = Arg::new("NUMBER")
        .required(true)
        .value_parser(value_parser!(u32))
        .help(format!("The number of the {noun}, as `list` shows it"));
    Command::new("remove")
        .about(format!("Remove the {noun} of this number"))
        .arg(number)
}

/// The number of the entry to remove, from the options of [`removal`].
pub(crate) fn number(matches: &ArgMatches) -> usize {
    let number = matches.get_one::<u32>("NUMBER");
    number.copied().unwrap_or_default() as usize
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
    fn no_entry_is_lost_to_another_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = &directory.path().join("forward.toml");
        std::thread::scope(|scope| {
            for port in 1..=8 {
                scope.spawn(move || list(path).add(&[table(port)]).unwrap());
            }
        });
        assert_eq!(list(path).entries().unwrap().len(), 8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| list(path).remove(1).unwrap());
            }
        });
        assert!(!path.exists());
    }

    #[test]
    fn a_text_that_no_command_could_read_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("forward.toml");
        let text = "#".repeat(FILE_MAX as usize);
        fs::write(&path, &text).unwrap();
        let error = list(&path).add(&[table(1)]).unwrap_err().to_string();
        assert!(error.contains("larger than"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn the_target_of_a_link_goes_and_comes() {
        let directory = tempfile::tempdir().unwrap();
        let [path, target] = ["forward.toml", "target"].map(|it| directory.path().join(it));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        for _ in 0..2 {
            list(&path).add(&[table(1)]).unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), table(1));
            list(&path).remove(1).unwrap();
            assert!(!target.exists() && path.is_symlink());
        }
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
