//! `millrace man` and `millrace completions`: make the files that an installation adds, from the commands' definitions.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::{Shell, generate};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The definitions of both commands.
pub(crate) fn commands() -> [Command; 2] {
    [
        Command::new("man")
            .about(
                "Write the manual pages into a directory, or this program's own to standard output",
            )
            .arg(
                Arg::new("DIRECTORY")
                    .value_parser(value_parser!(PathBuf))
                    .help("Such as /usr/local/share/man/man1"),
            ),
        Command::new("completions")
            .about("Print what has a shell complete this program's commands and options")
            .arg(
                Arg::new("SHELL")
                    .required(true)
                    .value_parser(["bash", "zsh", "fish"]),
            ),
    ]
}

/// Runs `man`.
pub(crate) fn man(matches: &ArgMatches) -> ExitCode {
    let mut cli = crate::cli();
    cli.build();
    let Some(directory) = matches.get_one::<PathBuf>("DIRECTORY") else {
        let mut page = Vec::new();
        // Writing to memory cannot fail.
        let _ = clap_mangen::Man::new(cli).render(&mut page);
        terminal::text(String::from_utf8_lossy(&page));
        return ExitCode::SUCCESS;
    };
    match pages(directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}

fn pages(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(crate::cli(), directory)
}

/// Runs `completions`.
pub(crate) fn completions(matches: &ArgMatches) -> ExitCode {
    let shell = match matches.get_one::<String>("SHELL").map(String::as_str) {
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut script = Vec::new();
    generate(shell, &mut crate::cli(), "millrace", &mut script);
    terminal::text(String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_its_page() {
        let directory = tempfile::tempdir().unwrap();
        pages(directory.path()).unwrap();
        let cli = crate::cli();
        let commands = cli.get_subcommands().filter(|it| !it.is_hide_set());
        for command in commands {
            let name = format!("millrace-{}.1", command.get_name());
            let page = std::fs::read_to_string(directory.path().join(&name)).unwrap();
            assert!(page.starts_with(".ie") || page.contains(".TH"), "{name}");
        }
        let page = std::fs::read_to_string(directory.path().join("millrace-up.1")).unwrap();
        assert!(page.contains("allow\\-scripts"), "{page}");
    }

    #[test]
    fn shells_complete_commands_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            generate(shell, &mut crate::cli(), "millrace", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["genkey", "allow-scripts", "completions"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
