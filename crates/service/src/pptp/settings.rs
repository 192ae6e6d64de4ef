//! Makes the settings of sessions from a file's model.

use ::config::pptp::{Auth, Client, Mppe, MppeMode, Password, Pptp, Server};
use ::pptp::mppe::KeyLength;
use ::pptp::mschap;
use ::pptp::ppp;
use ::pptp::session::{ClientSettings, Encryption, Entropy, LinkSettings, Mode, ServerSettings};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Maximum number of bytes that are read of a password file.
const PASSWORD_MAX: u64 = 4096;

/// The longest packet in the tunnel by default, in bytes.
pub(super) const MTU: u16 = 1396;

/// Bytes of a frame that encryption takes (RFC 3078, section 3).
const MPPE: u16 = 4;

/// Why a password could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error} (password-file)", path.display())]
pub struct PasswordError {
    path: PathBuf,
    error: io::Error,
}

/// Random numbers of the kernel.
pub(super) fn entropy() -> Entropy {
    Entropy::new(crypto::random)
}

/// The settings of a client.
pub(super) fn client(model: &Pptp, client: &Client) -> Result<ClientSettings, PasswordError> {
    let password = mschap::Password::new(password(&client.password)?.as_str().into());
    let mut settings = ClientSettings::new(client.username.clone(), password);
    settings.common.allow_insecure = true;
    settings.ask_dns = client.dns;
    link(model, &mut settings.common.link);
    Ok(settings)
}

/// The settings of a server, without its users.
pub(super) fn server(model: &Pptp, server: &Server) -> ServerSettings {
    let mut settings = ServerSettings::new(server.address.0, server.pool.clone());
    settings.common.allow_insecure = true;
    let mut dns = server.dns.iter().copied();
    settings.dns = [dns.next(), dns.next()];
    link(model, &mut settings.common.link);
    settings
}

/// The users of a server.
pub(super) fn users(server: &Server) -> Vec<(String, mschap::Password)> {
    let users = server.users.iter();
    let user = |(name, password): &(String, Zeroizing<String>)| {
        (
            name.clone(),
            mschap::Password::new(password.as_str().into()),
        )
    };
    users.map(user).collect()
}

fn link(model: &Pptp, link: &mut LinkSettings) {
    link.encryption = match &model.mppe {
        Mppe::None => Encryption::None,
        Mppe::Required { bits, mode } => Encryption::Mppe {
            keys: bits.iter().map(|bits| key(*bits)).collect(),
            mode: match mode {
                MppeMode::Stateless => Mode::Stateless,
                MppeMode::Either => Mode::PreferStateless,
                MppeMode::Stateful => Mode::PreferStateful,
            },
        },
    };
    let auth = model.auth.iter().map(|auth| match auth {
        Auth::MsChapV2 => ppp::Auth::MsChapV2,
        Auth::Chap => ppp::Auth::ChapMd5,
        Auth::Pap => ppp::Auth::Pap,
    });
    link.auth = auth.collect();
    link.mru = model.mtu.unwrap_or(MTU) + MPPE;
}

fn key(bits: u8) -> KeyLength {
    match bits {
        40 => KeyLength::Bits40,
        56 => KeyLength::Bits56,
        _ => KeyLength::Bits128,
    }
}

fn password(of: &Password) -> Result<Zeroizing<String>, PasswordError> {
    let path = match of {
        Password::Given(password) => return Ok(password.clone()),
        Password::File(path) => path,
    };
    let read = || {
        let mut line = Zeroizing::new(String::with_capacity(PASSWORD_MAX as usize));
        let file = ::config::file::open(path)?;
        BufReader::new(file.take(PASSWORD_MAX)).read_line(&mut line)?;
        let len = line.trim_end_matches(['\r', '\n']).len();
        line.truncate(len);
        match len {
            0 => Err(io::Error::other("the first line is empty")),
            _ => Ok(line),
        }
    };
    if let Some(warning) = ::config::file::exposed(path) {
        log::warn!("{warning}");
    }
    read().map_err(|error| PasswordError {
        path: path.clone(),
        error,
    })
}
