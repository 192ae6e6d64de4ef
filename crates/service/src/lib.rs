//! Services that a running tunnel needs, between the protocols, the data plane and the system.
//!
//! A WireGuard interface ([`wireguard`]), an OpenVPN client or server ([`openvpn`]), a PPTP client or server
//! (`pptp`), a relay (`relay`), their status ([`status`]), and the choice of code for ciphers.

#![forbid(unsafe_code)]

mod backends;
mod clock_watch;
#[cfg(feature = "postquantum")]
pub mod companion;
pub mod inbox;
pub mod openvpn;
mod plane_options;
#[cfg(feature = "pptp")]
pub mod pptp;
pub mod profile;
#[cfg(feature = "relay")]
pub mod relay;
pub mod running;
mod shares;
mod socket;
pub mod status;
pub mod tun_probe;
mod uplink;
mod watchdog;
pub mod wireguard;
