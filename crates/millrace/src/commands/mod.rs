//! The commands, one file each: its part of the command line and what it does.

#[cfg(feature = "audit")]
pub(crate) mod audit;
#[cfg(feature = "lab")]
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod daemonize;
#[cfg(feature = "lab")]
pub(crate) mod demo;
pub(crate) mod down;
pub(crate) mod keys;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod machine;
#[cfg(feature = "manual")]
pub(crate) mod manual;
pub(crate) mod openvpn;
pub(crate) mod progress;
pub(crate) mod settings;
#[cfg(feature = "speed")]
pub(crate) mod speed;
pub(crate) mod status;
pub(crate) mod tune;
pub(crate) mod up;
pub(crate) mod wireguard;
