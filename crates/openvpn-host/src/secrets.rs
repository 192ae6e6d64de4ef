//! Names, passwords and passphrases: from files, inline blocks, or the terminal.

use config::openvpn::{OpenVpn, Prompted, Source};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use zeroize::Zeroizing;

/// A user's name and password.
#[derive(Clone)]
pub struct Login {
    /// The user.
    pub name: String,
    /// The password.
    pub password: Zeroizing<String>,
}

/// Error while getting a password.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("{what}: {error}")]
    File {
        /// Name of the directive.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// The user pressed the interrupt key instead of answering.
    #[error("interrupted while a password was asked for")]
    Interrupted,
    /// There is no terminal.
    #[error(
        "{what}: there is no terminal to ask for it ({error}); put two lines, name and password, into the \
         file as `<{what}>` … `</{what}>`"
    )]
    NoTerminal {
        /// Name of the directive.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// Nobody can be asked.
    #[error(
        "{what}: there is nobody to ask for it; put what is missing into the file, or have a management client answer \
         (`management-query-passwords`)"
    )]
    Nobody {
        /// Name of the directive.
        what: &'static str,
    },
}

/// Returns the first two lines of a file or block; the second may be missing.
fn two_lines(
    what: &'static str,
    source: &Source,
    config: &OpenVpn,
) -> Result<(String, Option<Zeroizing<String>>), SecretError> {
    let bytes = source
        .load(config.directory.as_deref())
        .map_err(|error| SecretError::File { what, error })?;
    let text = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
    let mut lines = text
        .lines()
        .skip_while(|line| source.is_inline() && line.is_empty());
    let name = lines.next().unwrap_or_default().to_owned();
    let password = lines.next().filter(|line| !line.is_empty());
    Ok((name, password.map(|line| Zeroizing::new(line.to_owned()))))
}

/// Gets the name and password of a directive (`auth-user-pass`, a proxy's).
///
/// # Errors
/// See [`SecretError`].
pub fn login(
    what: &'static str,
    realm: &str,
    prompted: &Prompted,
    config: &OpenVpn,
) -> Result<Login, SecretError> {
    let (name, password) = match prompted {
        Prompted::Ask => (String::new(), None),
        Prompted::From(source) => two_lines(what, source, config)?,
    };
    let no_terminal = |error| SecretError::NoTerminal { what, error };
    let name = if name.is_empty() {
        ask(&format!("Enter {realm} Username: "), true)
            .map_err(no_terminal)?
            .to_string()
    } else {
        name
    };
    let password = match password {
        Some(password) => password,
        None => ask(&format!("Enter {realm} Password: "), false).map_err(no_terminal)?,
    };
    Ok(Login { name, password })
}

/// Rehearses [`login`] with a file or block, without asking anybody.
///
/// # Errors
/// The error of [`login`] when a name or password is missing and there is no terminal.
pub fn rehearse_login(
    what: &'static str,
    prompted: &Prompted,
    config: &OpenVpn,
) -> Result<(), SecretError> {
    let Prompted::From(source) = prompted else {
        return Ok(());
    };
    let (name, password) = two_lines(what, source, config)?;
    if !name.is_empty() && password.is_some() {
        return Ok(());
    }
    let terminal = File::options().read(true).write(true).open("/dev/tty");
    let no_terminal = |error| SecretError::NoTerminal { what, error };
    terminal.map(drop).map_err(no_terminal)
}

/// Checks, without asking anybody, that a client has all credentials for its server. A proxy may request none.
///
/// # Errors
/// [`SecretError::File`] and [`SecretError::Nobody`].
pub fn complete(config: &OpenVpn) -> Result<(), SecretError> {
    const WHAT: &str = "auth-user-pass";
    let Some(client) = config.client() else {
        return Ok(());
    };
    let has_token = matches!(client.auth_token, Some((Some(_), _)));
    let is_whole = match &client.auth_user_pass {
        Some(_) if has_token => true,
        None => true,
        Some(Prompted::Ask) => false,
        Some(Prompted::From(source)) => {
            let (name, password) = two_lines(WHAT, source, config)?;
            !name.is_empty() && password.is_some()
        }
    };
    match (is_whole, &client.static_challenge) {
        (false, _) => Err(SecretError::Nobody { what: WHAT }),
        (true, Some(_)) => Err(SecretError::Nobody {
            what: "static-challenge",
        }),
        (true, None) => Ok(()),
    }
}

/// Gets the passphrase of a private key (`askpass`).
///
/// # Errors
/// See [`SecretError`].
pub fn passphrase(
    prompted: Option<&Prompted>,
    config: &OpenVpn,
) -> Result<Zeroizing<String>, SecretError> {
    const WHAT: &str = "askpass";
    if let Some(Prompted::From(source)) = prompted {
        return Ok(Zeroizing::new(two_lines(WHAT, source, config)?.0));
    }
    ask("Enter Private Key Password: ", false)
        .map_err(|error| SecretError::NoTerminal { what: WHAT, error })
}

/// Asks on the terminal; `echo` shows the input.
///
/// # Errors
/// There is no terminal.
pub fn ask(prompt: &str, echo: bool) -> io::Result<Zeroizing<String>> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let before = tcgetattr(&terminal)?;
    write!(terminal, "{prompt}")?;
    if !echo {
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(&terminal, SetArg::TCSAFLUSH, &silent)?;
    }
    let mut line = Zeroizing::new(String::new());
    let read = BufReader::new(&terminal).read_line(&mut line);
    if !echo {
        tcsetattr(&terminal, SetArg::TCSAFLUSH, &before)?;
        writeln!(terminal)?;
    }
    read?;
    Ok(Zeroizing::new(
        line.trim_end_matches(['\n', '\r']).to_owned(),
    ))
}

#[cfg(test)]
mod tests;
