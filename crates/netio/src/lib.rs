//! TUN, UDP and netlink: the one crate that talks to the kernel.

pub mod ethtool;
pub mod netlink;
pub mod packet;
