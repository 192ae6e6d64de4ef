//! Samples from the process with privileges: all data about tunnels that the page shows.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use service::status::Status;

/// The state of tunnels and guard at one moment.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Sample {
    /// The tunnels that are up.
    pub tunnels: Vec<Status>,
    /// Tunnels that have files and are not up.
    pub known: Vec<Known>,
    /// The guard; `None` if it is off.
    pub guard: Option<GuardView>,
    /// The policy and the guard in one picture, for the page: `warnings`, sentences; `devices`, objects of texts;
    /// `policy`, with `state` and `rows`, or null. The front only passes it on, so it has no types: their code would be
    /// large.
    pub steering: Value,
    /// Why a part cannot be read, in words.
    pub trouble: Option<String>,
    /// Tunnels that cannot be read. Empty while `trouble` is of all of them.
    pub unread: Vec<String>,
}

/// A tunnel that has a file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Known {
    /// Name of the tunnel.
    pub name: String,
    /// Protocol of the tunnel, in its usual spelling.
    pub protocol: String,
}

/// The state of the guard.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct GuardView {
    /// `off`, `held` or `through`.
    pub state: String,
    /// Why the guard holds packets, in words; empty if it holds none.
    pub why: String,
    /// The consequence for people behind the router.
    pub about: String,
    /// Other rows, each with its name.
    pub rows: Vec<(String, String)>,
    /// Devices with their own tunnels, separated by commas, and their state.
    pub groups: Vec<(String, String)>,
    /// Packets that were refused; `None` if that cannot be read.
    pub refused: Option<u64>,
}
