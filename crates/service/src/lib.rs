//! Services between the protocols, the data plane and the system, which a tunnel needs while it runs.
//!
//! A WireGuard interface ([`wireguard`]), an OpenVPN client or server ([`openvpn`]), one of PPTP (`pptp`), a relay
//! (`relay`), what they tell of themselves ([`status`]), and how the code for ciphers is chosen and remembered.

#![forbid(unsafe_code)]

mod backends;
mod clock_watch;
pub mod floor;
mod gate;
mod home;
pub mod inbox;
mod lines;
mod names;
pub mod now;
pub mod openvpn;
mod places;
mod plane_options;
#[cfg(feature = "pptp")]
pub mod pptp;
pub mod profile;
#[cfg(feature = "relay")]
pub mod relay;
pub mod running;
mod shares;
pub mod status;
pub mod strangers;
pub mod tun_test;
mod watchdog;
pub mod wireguard;
