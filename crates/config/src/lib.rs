//! Everything that configures a tunnel, as checked models.
//!
//! * [`settings`]: Millrace's own settings file and its overrides.
//! * [`uapi`]: the text that `wg` speaks to a running interface.
//! * [`types`]: keys, address ranges and endpoints that the others share.
//!
//! The parsers are pure: text in, model or error out. Only the two `read` functions open a
//! file, and only the one they are given.

#![forbid(unsafe_code)]

pub mod settings;
mod suggest;
pub mod types;
pub mod uapi;
