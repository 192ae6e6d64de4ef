//! `millrace genkey`, `genpsk` and `pubkey`: make and read keys in the format of `wg`.

use crate::Outcome;
use clap::{ArgMatches, Command};
use config::types::Key32;
use crypto::x25519::PrivateKey;
use std::io::{self, Read as _};
use std::process::ExitCode;
use zeroize::Zeroizing;

/// Maximum number of bytes to read: a key, and some white space around it.
const INPUT_MAX: u64 = 256;

/// The command-line definition of `genkey`.
pub(crate) fn genkey_command() -> Command {
    Command::new("genkey").about("Make a private key for WireGuard and print it")
}

/// The command-line definition of `genpsk`.
pub(crate) fn genpsk_command() -> Command {
    Command::new("genpsk").about("Make a preshared key for WireGuard and print it")
}

/// The command-line definition of `pubkey`.
pub(crate) fn pubkey_command() -> Command {
    Command::new("pubkey").about("Read a private key from standard input and print its public key")
}

/// Runs `genkey`.
pub(crate) fn genkey(_: &ArgMatches) -> Outcome {
    warn_of_readers();
    print(&new())
}

/// Runs `genpsk`.
pub(crate) fn genpsk(_: &ArgMatches) -> Outcome {
    warn_of_readers();
    print(&preshared())
}

/// Runs `pubkey`.
pub(crate) fn pubkey(_: &ArgMatches) -> Outcome {
    let mut text = Zeroizing::new(String::new());
    let read = io::stdin().lock().take(INPUT_MAX).read_to_string(&mut text);
    read.map_err(|e| format!("standard input: {e}"))?;
    let key = Key32::from_base64(text.trim()).map_err(|e| format!("standard input: {e}"))?;
    print(&public_of(&key))
}

/// Makes a new WireGuard private key.
pub(crate) fn new() -> Key32 {
    Key32::new(*PrivateKey::generate().as_bytes())
}

/// Makes a new preshared key.
pub(crate) fn preshared() -> Key32 {
    let mut key = Zeroizing::new([0; 32]);
    crypto::random(&mut *key);
    Key32::new(*key)
}

/// The public key of a private one.
pub(crate) fn public_of(private: &Key32) -> Key32 {
    let private = PrivateKey::new(*private.as_bytes());
    Key32::new(*private.public().as_bytes())
}

fn print(key: &Key32) -> Outcome {
    host::terminal::line(key.to_base64().as_str());
    Ok(ExitCode::SUCCESS)
}

/// Warns, as `wg` does, if other users can read the file that receives the key.
fn warn_of_readers() {
    use nix::sys::stat::{SFlag, fstat};
    let Ok(stat) = fstat(io::stdout()) else {
        return;
    };
    if SFlag::from_bits_truncate(stat.st_mode).contains(SFlag::S_IFREG) && stat.st_mode & 0o007 != 0
    {
        host::terminal::note(
            "millrace: warning: this file can be read by everybody; set the umask to 077 and make the key anew",
        );
    }
}
