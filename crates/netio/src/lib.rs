//! TUN, UDP and netlink: the one crate that talks to the kernel.

// The C types differ in width between the targets: a cast that is trivial here is not there.
#![allow(trivial_numeric_casts)]

pub mod child;
pub mod ethtool;
pub mod namespace;
pub mod netlink;
pub mod packet;
pub mod poll;
pub mod priority;
pub mod privilege;
pub mod rung;
pub mod tcp;
pub mod tun;
pub mod udp;
pub mod vnet;
