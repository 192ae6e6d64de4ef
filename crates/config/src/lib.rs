//! Everything that configures a tunnel, as checked models.
//!
//! * [`settings`]: Millrace's own settings file and its overrides.
//! * [`wgquick`]: import of `wg-quick` files into the model of [`tunnel`], with a [`report`].
//! * [`openvpn`]: import of OpenVPN files and command lines.
//! * [`lines`]: the lines of a tunnel, which the files of several protocols may describe.
//! * [`home`]: what a server at home says beside its protocol; [`clients`]: its clients in the text of its file.
//! * [`free`]: addresses that collide with nothing.
//! * [`pptp`]: PPTP clients and servers.
//! * [`relay`]: relays, and who may use them.
//! * [`guard`]: devices of the LAN that leave only by a tunnel.
//! * [`policy`]: which devices, networks and names go through which tunnel.
//! * [`kind`]: which of these a file is.
//! * [`permissions`]: what a tunnel's file may touch beside its tunnel; [`mod@file`]: how the files that it names are opened.
//! * [`error`]: why there is no model.
//! * [`uapi`]: the text that `wg` speaks to a running interface.
//! * [`types`]: keys, address ranges and endpoints that the others share.
//!
//! The parsers are pure: text in, model or error out. Only the `read` functions open a file,
//! and only the one they are given.

#![forbid(unsafe_code)]

pub mod clients;
pub mod error;
pub mod file;
pub mod free;
pub mod guard;
pub mod home;
pub mod kind;
pub mod lines;
pub mod openvpn;
pub mod permissions;
pub mod policy;
pub mod pptp;
pub mod relay;
pub mod report;
pub mod secrecy;
pub mod settings;
mod suggest;
mod text;
pub mod tunnel;
pub mod types;
pub mod uapi;
pub mod wgquick;
