//! Samples of the process with privileges: all that the page shows of tunnels.

use serde::{Deserialize, Serialize};
use service::status::Status;

/// How everything stands at a time.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Sample {
    /// The tunnels that are up.
    pub tunnels: Vec<Status>,
    /// Tunnels that have files and are not up.
    pub known: Vec<Known>,
    /// The guard; none where it is off.
    pub guard: Option<GuardView>,
    /// Why something cannot be seen, in words.
    pub trouble: Option<String>,
}

/// A tunnel that has a file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Its protocol, as people write it.
    pub protocol: String,
}

/// How the guard stands.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct GuardView {
    /// `off`, `held` or `through`.
    pub state: String,
    /// The reasons why it holds packets, in words; empty where it holds none.
    pub why: String,
    /// The consequence for people behind the router.
    pub about: String,
    /// Other rows, each with its name.
    pub rows: Vec<(String, String)>,
    /// Devices that have tunnels of their own, by commas, and how they stand.
    pub groups: Vec<(String, String)>,
    /// Packets that were refused, where that can be seen.
    pub refused: Option<u64>,
}
