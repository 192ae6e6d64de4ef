//! TUN, UDP, TCP, GRE and netlink: the only crate that talks to the kernel, and to the C library for dates and times.

// The C types differ in width between targets: a cast that is trivial on this one may be needed on another.
#![allow(trivial_numeric_casts)]

pub mod capture;
#[cfg(feature = "lab")]
pub mod ethtool;
pub mod gre;
pub mod netlink;
#[cfg(feature = "lab")]
pub mod packet;
pub mod poll;
pub mod privilege;
pub mod process;
pub mod rung;
#[cfg(feature = "simulated")]
pub mod simulated;
pub mod tcp;
pub mod time;
pub mod tun;
pub mod udp;
