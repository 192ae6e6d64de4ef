//! Parses everything that configures a tunnel into checked models.
//!
//! * [`settings`]: Millrace's own settings file and its overrides.
//! * [`wgquick`]: import of `wg-quick` files into the model of [`tunnel`], with a [`report`].
//! * [`openvpn`]: import of OpenVPN files and command lines.
//! * [`lines`]: the lines (uplinks) of a tunnel, which the files of several protocols may describe.
//! * [`home`]: settings of a server at home besides its protocol; [`clients`]: its clients in the text of its file.
//! * [`pool`]: several servers for the peer of a WireGuard tunnel.
//! * [`free`]: finds unused addresses.
//! * [`pattern`]: patterns for names.
//! * [`pptp`]: PPTP clients and servers.
//! * [`relay`]: relays, and who may use them.
//! * [`guard`]: devices of the LAN that leave only through a tunnel.
//! * [`policy`]: which devices, networks and names go through which tunnel.
//! * [`forward`]: ports that a provider forwards to devices of the LAN.
//! * [`alerts`]: actions on events.
//! * [`kind`]: determines the kind of a tunnel file.
//! * [`permissions`]: what a tunnel's file may do besides its tunnel; [`mod@file`]: opens the files that it names.
//! * [`error`]: why a file has no model.
//! * [`uapi`]: the protocol with which `wg` talks to a running interface.
//! * [`types`]: keys, address ranges and endpoints, shared by the other modules.
//!
//! The parsers are pure: text in, model or error out. Only the `read` functions open files.

#![forbid(unsafe_code)]

pub mod alerts;
#[cfg(feature = "amnezia")]
pub mod amnezia;
pub mod clients;
pub mod error;
pub mod file;
pub mod forward;
pub mod free;
pub mod guard;
pub mod home;
mod keys;
pub mod kind;
pub mod lines;
pub mod openvpn;
pub mod pattern;
pub mod permissions;
pub mod policy;
pub mod pool;
#[cfg(feature = "postquantum")]
pub mod postquantum;
pub mod pptp;
pub mod relay;
pub mod report;
pub mod settings;
mod text;
pub mod tunnel;
pub mod types;
pub mod uapi;
pub mod wgquick;

pub use keys::keepalive;
pub use text::{decimal, meant, seconds, shown};
