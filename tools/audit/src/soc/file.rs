//! The structure of `socs.toml`.
//!
//! Three lists: `source` names the addresses, `core` says what processor cores can do, and `soc` which chip
//! has which core. A core appears once for each of its builds: with and without NEON, with and without AES.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Isa, Vfp};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Addresses by short names.
    pub(super) source: BTreeMap<String, String>,
    pub(super) core: Vec<Core>,
    pub(super) soc: Vec<Row>,
}

/// One build of one processor core.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Core {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) isa: Isa,
    #[serde(default)]
    pub(super) neon: bool,
    pub(super) vfp: Vfp,
    #[serde(default)]
    pub(super) fpu: bool,
    #[serde(default)]
    pub(super) divide: bool,
    #[serde(default)]
    pub(super) multiprocessing: bool,
    #[serde(default)]
    pub(super) aes: bool,
    #[serde(default)]
    pub(super) lse: bool,
    pub(super) march: String,
    pub(super) gcc: String,
    pub(super) gcc32: Option<String>,
    #[serde(default)]
    pub(super) rust: String,
    /// Processor ids: `implementer/part`.
    #[serde(default)]
    pub(super) cpu: Vec<String>,
    pub(super) sources: BTreeMap<String, Vec<String>>,
}

/// One chip.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) aliases: Vec<String>,
    pub(super) routers: Vec<String>,
    /// Id of the core.
    pub(super) core: String,
    pub(super) cores: u8,
    pub(super) ghz: (f32, f32),
    #[serde(default)]
    pub(super) big_endian: bool,
    pub(super) engine: Option<String>,
    #[serde(default)]
    pub(super) compatible: Vec<String>,
    #[serde(default)]
    pub(super) board_ids: Vec<String>,
    #[serde(default)]
    pub(super) targets: Vec<String>,
    #[serde(default)]
    pub(super) arch: Vec<String>,
    pub(super) sources: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub(super) unsure: Vec<String>,
    pub(super) note: Option<String>,
}
