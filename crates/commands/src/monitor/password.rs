//! Sets the password.

use super::MonitorError;
use monitor::password::{MOST, Password};
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use zeroize::Zeroizing;

/// Asks for the password, or reads the first line of standard input if that is not a terminal. Writes the file.
pub(super) fn set(path: &Path) -> Result<(), MonitorError> {
    let text = match io::stdin().is_terminal() {
        true => asked()?,
        false => first_line()?,
    };
    if text.is_empty() {
        return Err(MonitorError::NoPassword);
    }
    let password = Password::new(&text).map_err(|error| MonitorError::Password {
        path: path.to_owned(),
        error,
    })?;
    write(path, &password.to_text()).map_err(|error| MonitorError::File {
        path: path.to_owned(),
        error,
    })?;
    terminal::note(format_args!(
        "{} is written; a monitor that runs takes it when it is started anew",
        path.display()
    ));
    Ok(())
}

fn asked() -> Result<Zeroizing<String>, MonitorError> {
    let once = service::openvpn::ask_at_terminal("Password of the page: ")?;
    let again = service::openvpn::ask_at_terminal("The same again: ")?;
    match once == again {
        true => Ok(once),
        false => Err(MonitorError::Differ),
    }
}

fn first_line() -> Result<Zeroizing<String>, MonitorError> {
    let mut text = Zeroizing::new(String::new());
    io::stdin()
        .take(MOST as u64 + 2)
        .read_to_string(&mut text)?;
    let line = text.lines().next().unwrap_or_default();
    Ok(Zeroizing::new(line.to_owned()))
}

/// Writes the file atomically, readable only by this user.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}
