//! Samples from the process with privileges: all data about tunnels that the page shows.

use serde::{Deserialize, Serialize};
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
    /// The policy and the guard in one picture.
    pub steering: Steering,
    /// Why a part cannot be read, in words.
    pub trouble: Option<String>,
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

/// The paths of the LAN's devices.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Steering {
    /// Faults by which packets may take another path than the owner thinks, one sentence each.
    pub warnings: Vec<String>,
    /// The devices, and for each LAN all others.
    pub devices: Vec<DeviceView>,
    /// The policy; `None` if there is none.
    pub policy: Option<PolicyView>,
}

/// A device of the LAN, and the path of its packets.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceView {
    /// The name that the device chose; empty if it chose none, or for all other devices.
    pub name: String,
    /// IPv4 address; empty for all other devices.
    pub address: String,
    /// Hardware address; empty for all other devices.
    pub mac: String,
    /// The router's device through which its packets come in; empty if unknown.
    pub lan: String,
    /// Targets of the packets; empty for all others.
    pub to: String,
    /// The path, in words.
    pub path: String,
    /// `through`, `loose`, `held`, `blocked` or `clear`.
    pub allowed: String,
    /// Who decides, in words.
    pub by: String,
}

/// The state of the policy.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PolicyView {
    /// `on`, `partly on` or `off`.
    pub state: String,
    /// Rows of the report, each with its name.
    pub rows: Vec<(String, String)>,
}
