//! `client-connect`: a script writes a client's settings, at once or later.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::scripts::auth_script::{read, temporary};
use crate::scripts::{Invocation, ScriptError};

/// Largest settings file that is read, in bytes.
const SETTINGS_MAX: u64 = 64 << 10;

/// Result of the script.
#[derive(Debug)]
pub enum Connected {
    /// The client's settings, as text in the form of a client configuration file.
    Settings(String),
    /// The settings come later: poll [`ConnectFiles::poll`].
    Deferred(ConnectFiles),
}

/// Files between a script and the daemon. Dropping this removes them.
#[derive(Debug)]
pub struct ConnectFiles {
    settings: TempPath,
    deferred: TempPath,
    directory: PathBuf,
}

impl ConnectFiles {
    /// Returns the settings once they are written. Reads one byte of a file, so polling once a second is cheap.
    ///
    /// # Errors
    /// The script refused the client, or the file is unreadable or too large.
    pub fn poll(self) -> Result<Connected, ScriptError> {
        match read(&self.deferred).unwrap_or_default().first() {
            None | Some(b'1') => self.text().map(Connected::Settings),
            Some(b'2') => Ok(Connected::Deferred(self)),
            Some(_) => Err(ScriptError::Refused),
        }
    }

    fn text(&self) -> Result<String, ScriptError> {
        let size = |path: &Path| fs::metadata(path).map(|data| data.len());
        let text = match size(&self.settings) {
            // A script may remove the file instead of writing settings.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Ok(size) if size > SETTINGS_MAX => Err(io::ErrorKind::FileTooLarge.into()),
            _ => fs::read_to_string(&self.settings),
        };
        text.map_err(|error| ScriptError::File {
            directory: self.directory.clone(),
            error,
        })
    }
}

/// Runs the script and waits for it: call it on a thread of `Background`.
///
/// # Errors
/// The script failed or could not be run.
pub fn run(script: Invocation, directory: &Path) -> Result<Connected, ScriptError> {
    let files = ConnectFiles {
        settings: temporary(directory, "cc", b"")?,
        deferred: temporary(directory, "ccr", b"")?,
        directory: directory.to_owned(),
    };
    let path = files.settings.to_string_lossy().into_owned();
    script
        .with("client_connect_config_file", &path)
        .with(
            "client_connect_deferred_file",
            &files.deferred.to_string_lossy(),
        )
        .argument(path)
        .run_well()?;
    files.poll()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts::environment::Environment;
    use crate::scripts::{Hook, testing::shell};
    use config::openvpn::ScriptSecurity;

    fn connect(text: &str, directory: &Path) -> Result<Connected, ScriptError> {
        let environment = Environment::default();
        let security = ScriptSecurity::Scripts;
        let script = Invocation::new(
            Hook::ClientConnect,
            &shell(text),
            [],
            &environment,
            security,
        )?;
        run(script, directory)
    }

    fn is_clean(directory: &tempfile::TempDir) -> bool {
        fs::read_dir(directory.path()).unwrap().count() == 0
    }

    #[test]
    fn settings_are_what_the_script_wrote() {
        let directory = tempfile::tempdir().unwrap();
        for (text, settings) in [
            ("echo disable > $1", "disable\n"),
            (
                "echo a > $client_connect_config_file; echo 1 > $client_connect_deferred_file",
                "a\n",
            ),
            ("rm $1", ""),
            (":", ""),
        ] {
            match connect(text, directory.path()).unwrap() {
                Connected::Settings(text) => assert_eq!(text, settings),
                Connected::Deferred(_) => panic!("{text}"),
            }
        }
        assert!(is_clean(&directory));
    }

    #[test]
    fn failure_refusal_and_floods_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        for text in [
            "exit 1",
            "echo 0 > $client_connect_deferred_file",
            "echo x > $client_connect_deferred_file",
            "head -c 70000 /dev/zero > $1",
        ] {
            assert!(connect(text, directory.path()).is_err(), "{text}");
        }
        assert!(is_clean(&directory));
    }

    #[test]
    fn settings_may_come_later() {
        let directory = tempfile::tempdir().unwrap();
        let text = "echo 2 > $client_connect_deferred_file";
        let Connected::Deferred(files) = connect(text, directory.path()).unwrap() else {
            panic!("not deferred")
        };
        let Connected::Deferred(files) = files.poll().unwrap() else {
            panic!("not deferred")
        };
        fs::write(&files.settings, "push x\n").unwrap();
        fs::write(&files.deferred, "1").unwrap();
        match files.poll().unwrap() {
            Connected::Settings(text) => assert_eq!(text, "push x\n"),
            Connected::Deferred(_) => panic!("deferred"),
        }
        assert!(is_clean(&directory));
    }
}
