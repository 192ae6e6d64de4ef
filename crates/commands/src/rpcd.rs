//! `millrace rpcd`: the backend of the LuCI pages, as a plugin of OpenWrt's rpcd. `list` names the methods; `call
//! METHOD` reads the arguments, a JSON object, from standard input, and prints a JSON object.
//!
//! Failures are in the answer, as `error`, because rpcd cannot pass on messages.

mod offered;
mod options;
mod shown;

pub(crate) use options::batch;

use crate::arguments;
use crate::home;
use crate::keys;
use crate::profile::DIRECTORY;
use clap::{Arg, ArgMatches, Command, value_parser};
use config::types::Key32;
use offered::Offered;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zeroize::Zeroizing;

/// Maximum number of bytes to read; uhttpd limits requests to 64 KiB.
const INPUT_MAX: u64 = 128 << 10;

/// Methods and their arguments, each with an example value of its type.
fn methods() -> Value {
    json!({
        "status": {},
        "peers": {},
        "check": {"interface": "", "name": "", "data": ""},
        "keep": {"interface": "", "name": "", "data": "", "replace": true},
        "generate_keys": {},
        "public_key": {"private_key": ""},
        "peer_add": {"server": "", "name": "", "lan_only": true, "behind": ""},
        "peer_set": {"server": "", "name": "", "behind": ""},
        "peer_revoke": {"server": "", "name": ""},
        "peer_rename": {"server": "", "name": "", "to": ""},
        "server_plan": {"name": "", "openvpn": true, "endpoint": "", "lan": "", "subnet": "", "subnet6": ""},
        "server_init": {"name": "", "openvpn": true, "endpoint": "", "lan": "", "subnet": "", "subnet6": ""},
    })
}

/// The arguments of the methods that are not in [`home`]. rpcd adds the session.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Given {
    interface: String,
    name: String,
    #[serde(deserialize_with = "secret")]
    data: Zeroizing<String>,
    replace: bool,
    #[serde(deserialize_with = "secret")]
    private_key: Zeroizing<String>,
}

fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Zeroizing<String>, D::Error> {
    String::deserialize(from).map(Zeroizing::new)
}

/// Paths on this host.
struct At {
    uci: PathBuf,
    keep: PathBuf,
    /// Socket of ubus, if not the usual one.
    ubus: Option<PathBuf>,
}

/// The command-line definition of `rpcd`.
pub(crate) fn command() -> Command {
    let directory = |name: &'static str, usual: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("DIRECTORY")
            .value_parser(value_parser!(PathBuf))
            .default_value(usual)
            .help(help)
    };
    let word = |name: &'static str, help: &'static str| Arg::new(name).help(help);
    Command::new("rpcd")
        .about("Answer LuCI's pages; OpenWrt's rpcd starts it")
        .arg(
            word("WHAT", "list or call")
                .required(true)
                .value_parser(["list", "call"]),
        )
        .arg(word(
            "METHOD",
            "Method to call; its arguments are read from standard input",
        ))
        .arg(directory(
            "uci",
            "/etc/config",
            "Directory of the UCI files",
        ))
        .arg(directory(
            "keep",
            DIRECTORY,
            "Directory of the tunnels' files",
        ))
        .arg(arguments::path(
            "ubus",
            "SOCKET",
            "Socket of ubus [default: /var/run/ubus/ubus.sock]",
        ))
}

/// Runs the command. It exits with 0 even if the answer is an error.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let path = |name: &str| {
        let path = matches.get_one::<PathBuf>(name);
        path.cloned().unwrap_or_default()
    };
    if matches
        .get_one::<String>("WHAT")
        .is_some_and(|it| it == "list")
    {
        host::terminal::line(methods());
        return ExitCode::SUCCESS;
    }
    let Some(method) = matches.get_one::<String>("METHOD") else {
        return ExitCode::from(2);
    };
    let at = At {
        uci: path("uci"),
        keep: path("keep"),
        ubus: arguments::file(matches, "ubus").map(Path::to_owned),
    };
    match input().and_then(|text| call(method, &text, &at)) {
        Ok(answer) => host::terminal::line(answer),
        Err(words) => host::terminal::line(json!({"error": words})),
    }
    ExitCode::SUCCESS
}

fn input() -> Result<Zeroizing<Vec<u8>>, String> {
    let mut text = Zeroizing::new(Vec::new());
    let mut input = io::stdin().lock().take(INPUT_MAX + 1);
    input
        .read_to_end(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > INPUT_MAX {
        return Err("the request is larger than 128 KiB".to_owned());
    }
    Ok(text)
}

fn parse<T: Default + DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    if text.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    // serde_json's message could quote the arguments.
    serde_json::from_slice(text)
        .map_err(|_| "the arguments are not a JSON object of this method's form".to_owned())
}

fn call(method: &str, text: &[u8], at: &At) -> Result<Value, String> {
    let given: Given = parse(text)?;
    #[cfg_attr(
        not(feature = "pptp"),
        expect(unused_mut, reason = "only PPTP adds to it")
    )]
    let mut answer = match method {
        "status" => shown::status(at),
        "check" => Offered::new(&given)?.check()?,
        "keep" => Offered::new(&given)?.keep(&at.keep, given.replace)?,
        "generate_keys" => {
            let (private, preshared) = (keys::new(), keys::new());
            json!({
                "private_key": private.to_base64().as_str(),
                "public_key": keys::public_of(&private).to_base64().as_str(),
                "preshared_key": preshared.to_base64().as_str(),
            })
        }
        "public_key" => {
            let key = Key32::from_base64(given.private_key.trim());
            let key = key.map_err(|error| error.to_string())?;
            json!({"public_key": keys::public_of(&key).to_base64().as_str()})
        }
        _ => home::call(method, &parse(text)?, &at.keep)?,
    };
    #[cfg(feature = "pptp")]
    if is_about_pptp(&answer) {
        answer["gre_rule"] = json!(crate::firewall::offered_rule(&at.uci));
    }
    Ok(answer)
}

/// Whether an answer judges a file of PPTP, or lists a tunnel of PPTP.
#[cfg(feature = "pptp")]
fn is_about_pptp(answer: &Value) -> bool {
    let mut tunnels = answer["tunnels"].as_array().into_iter().flatten();
    answer["kind"] == "pptp" || tunnels.any(|it| it["protocol"] == "pptp")
}
