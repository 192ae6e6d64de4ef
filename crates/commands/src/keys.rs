//! `millrace genkey`, `genpsk` and `pubkey`: make and read keys in the format of `wg`.

use clap::Command;
use config::types::Key32;
use crypto::x25519::PrivateKey;
use std::error::Error;
use std::io::{self, Read as _};
use std::process::ExitCode;
use zeroize::Zeroizing;

/// The most bytes to read: a key, and some white space around it.
const INPUT_MAX: u64 = 256;

/// The command-line definitions, which have no arguments.
pub(crate) fn commands() -> [Command; 3] {
    [
        Command::new("genkey").about("Make a private key for WireGuard and print it"),
        Command::new("genpsk").about("Make a preshared key for WireGuard and print it"),
        Command::new("pubkey")
            .about("Read a private key from standard input and print its public key"),
    ]
}

/// Runs `genkey`.
pub(crate) fn genkey() -> ExitCode {
    warn_of_readers();
    print(&new());
    ExitCode::SUCCESS
}

/// Runs `genpsk`.
pub(crate) fn genpsk() -> ExitCode {
    warn_of_readers();
    let mut key = Zeroizing::new([0; 32]);
    crypto::random(&mut *key);
    print(&Key32::new(*key));
    ExitCode::SUCCESS
}

/// Runs `pubkey`.
pub(crate) fn pubkey() -> ExitCode {
    match public() {
        Ok(key) => {
            print(&key);
            ExitCode::SUCCESS
        }
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes a new WireGuard private key.
pub(crate) fn new() -> Key32 {
    Key32::new(*PrivateKey::generate().as_bytes())
}

/// The public key of a private one.
pub(crate) fn public_of(private: &Key32) -> Key32 {
    let private = PrivateKey::new(*private.as_bytes());
    Key32::new(*private.public().as_bytes())
}

fn public() -> Result<Key32, Box<dyn Error>> {
    let mut text = Zeroizing::new(String::new());
    let read = io::stdin().lock().take(INPUT_MAX).read_to_string(&mut text);
    read.map_err(|e| format!("standard input: {e}"))?;
    let key = Key32::from_base64(text.trim()).map_err(|e| format!("standard input: {e}"))?;
    Ok(public_of(&key))
}

fn print(key: &Key32) {
    terminal::line(key.to_base64().as_str());
}

/// Warns, as `wg` does, if other users can read the file that receives the key.
fn warn_of_readers() {
    use nix::sys::stat::{SFlag, fstat};
    let Ok(stat) = fstat(io::stdout()) else {
        return;
    };
    if SFlag::from_bits_truncate(stat.st_mode).contains(SFlag::S_IFREG) && stat.st_mode & 0o007 != 0
    {
        terminal::note(
            "millrace: warning: this file can be read by everybody; set the umask to 077 and make the key anew",
        );
    }
}
