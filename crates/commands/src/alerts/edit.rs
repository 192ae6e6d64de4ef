//! `millrace alerts add`, `remove` and `list`: hooks of the settings file.

use super::{DEFAULT_PATH, file, file_argument};
use crate::Outcome;
use crate::arguments::{self, option, tunnels};
use crate::entries::{self, EntriesError, List, Service};
use clap::{Arg, ArgGroup, ArgMatches, Command};
use config::alerts::{Action, Hook, Kind};
use config::guard::Pattern;
use config::settings::tables::{check_owner, quoted};
use std::path::Path;
use std::process::ExitCode;

/// The service that reads the list.
const SERVICE: Service = Service {
    name: "alerts",
    path: DEFAULT_PATH,
    again: "reload",
};

/// The command-line definitions.
pub(super) fn commands() -> [Command; 3] {
    let add = Command::new("add")
        .about("Add a hook: a program to run, or a web address to post to")
        .override_usage("millrace alerts add [OPTIONS] [EVENT]... <--post URL|--run COMMAND...>")
        .arg(
            Arg::new("EVENT")
                .num_args(0..)
                .help("Kinds of events, such as tunnel-down [default: all]"),
        )
        .arg(
            option(
                "run",
                "COMMAND",
                "Run this program, by its absolute path, with the arguments that follow",
            )
            .num_args(1..)
            .allow_hyphen_values(true),
        )
        .arg(option("post", "URL", "Post the event to this web address"))
        .group(ArgGroup::new("action").args(["run", "post"]).required(true))
        .arg(tunnels(
            "Only events of this tunnel's device, or of mr-*; may be repeated",
        ))
        .arg(file_argument());
    let remove = entries::removal("hook").arg(file_argument());
    let list = Command::new("list")
        .about("List the hooks, without arguments and paths of web addresses")
        .arg(file_argument());
    [add, remove, list]
}

fn list_of(path: &Path) -> List<'_, Hook> {
    List {
        path,
        name: "on-event",
        read: config::alerts::listed,
    }
}

/// Adds a hook.
pub(super) fn add(matches: &ArgMatches) -> Outcome {
    let path = file(matches);
    let before = add_to(path, matches)?;
    SERVICE.tell(path, before, before + 1);
    Ok(ExitCode::SUCCESS)
}

fn add_to(path: &Path, matches: &ArgMatches) -> Result<usize, EntriesError> {
    let words = |id| arguments::values::<String>(matches, id).unwrap_or_default();
    let events = words("EVENT");
    if let Some(fault) = events.iter().find_map(|it| Kind::fault(it)) {
        return Err(EntriesError::Event(fault));
    }
    let patterns = arguments::values::<Pattern>(matches, "tunnel").unwrap_or_default();
    let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    let mut table = "[[on-event]]\n".to_owned();
    for (key, words) in [
        ("events", events),
        ("tunnels", patterns),
        ("run", words("run")),
    ] {
        if !words.is_empty() {
            let words: Vec<String> = words.iter().map(|it| quoted(it)).collect();
            table += &format!("{key} = [{}]\n", words.join(", "));
        }
    }
    if let Some(url) = arguments::text(matches, "post") {
        table += &format!("post = {}\n", quoted(url));
    }
    check_owner(path)?;
    let list = list_of(path);
    let new = list.read_new(&table)?;
    let old = list.entries()?;
    if let Some(at) = old.iter().position(|it| new.contains(it)) {
        return Err(EntriesError::Same {
            path: path.to_owned(),
            number: at + 1,
        });
    }
    let added = list.add(&[table])?;
    if let Some(program) = words("run").first()
        && !Path::new(program).is_file()
    {
        host::terminal::note(format_args!(
            "{program}: there is no such program yet; `millrace alerts test` tries it"
        ));
    }
    Ok(added)
}

/// Removes a hook.
pub(super) fn remove(matches: &ArgMatches) -> Outcome {
    let path = file(matches);
    let left = list_of(path).remove(entries::number(matches))?;
    SERVICE.tell(path, left + 1, left);
    Ok(ExitCode::SUCCESS)
}

/// Lists the hooks.
pub(super) fn print(matches: &ArgMatches) -> Outcome {
    let hooks = list_of(file(matches)).entries()?;
    entries::print(file(matches), hooks.iter().map(line));
    Ok(ExitCode::SUCCESS)
}

/// A hook in words.
fn line(hook: &Hook) -> String {
    let events: Vec<&str> = hook.events.iter().map(|it| it.name()).collect();
    let events = match events.is_empty() {
        true => "all events".to_owned(),
        false => events.join(", "),
    };
    let tunnels: Vec<String> = hook.tunnels.iter().map(ToString::to_string).collect();
    let tunnels = match tunnels.is_empty() {
        true => String::new(),
        false => format!(" of {}", tunnels.join(", ")),
    };
    let action = match &hook.action {
        Action::Run(words) => format!("run {}", words.join(" ")),
        post @ Action::Post(_) => post.to_string(),
    };
    format!("{events}{tunnels}: {action}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    fn add(path: &Path, words: &str) -> Result<usize, String> {
        let words = ["alerts", "add"].into_iter().chain(words.split(' '));
        let matches = crate::alerts::command().try_get_matches_from(words);
        let matches = matches.map_err(|error| error.to_string())?;
        let (_, matches) = matches.subcommand().unwrap();
        add_to(path, matches).map_err(|error| error.to_string())
    }

    #[test]
    fn hooks_are_added_as_they_are_listed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("alerts.toml");
        let words = "tunnel-down ends-soon --tunnel mr-* --run /etc/millrace/alert.sh -x me";
        assert_eq!(add(&path, words), Ok(0));
        assert_eq!(add(&path, "--post https://ntfy.example/topic"), Ok(1));
        let hooks = config::alerts::read(&path).unwrap();
        let run = ["/etc/millrace/alert.sh", "-x", "me"].map(str::to_owned);
        assert_eq!(hooks[0].action, Action::Run(run.to_vec()));
        let lines: Vec<String> = hooks.iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "tunnel-down, ends-soon of mr-*: run /etc/millrace/alert.sh -x me",
                "all events: post to ntfy.example",
            ]
        );
        let text = fs::read_to_string(&path).unwrap();
        for (words, why) in [
            (
                "tunnel-dwn --run /x",
                "unknown event `tunnel-dwn`; did you mean `tunnel-down`?",
            ),
            (
                "test --run /x",
                "unknown event `test`; known are: tunnel-up",
            ),
            ("tunnel-up", "--run"),
            ("--post http://a --run /x", "cannot be used"),
            ("--run alert.sh", "run cannot be"),
            ("--post https://ntfy.example/topic", "entry 2 is the same"),
            ("--post ftp://a", "post cannot be"),
            ("--tunnel * --run /x", "name of a device"),
        ] {
            let error = add(&path, words).unwrap_err();
            assert!(error.contains(why), "{words}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::set_permissions(&path, Permissions::from_mode(0o602)).unwrap();
        assert!(add(&path, "--run /x").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
