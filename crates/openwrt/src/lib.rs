//! OpenWrt's own parts: UCI files, ubus, and netifd, which gives interfaces their addresses and routes.
//!
//! * [`uci`]: the text of a file below `/etc/config`, to sections and their options.
//! * [`network`]: a section of `network` that is a tunnel of ours, to the checked model of it.
//! * [`only_through`]: which devices of the LAN leave by which of these tunnels only.
//! * [`dhcp`]: where `dnsmasq` reads further files.
//! * [`blob`]: the values that messages of ubus carry.
//! * [`ubus`]: messages of ubus, and a client without I/O; [`socket`] is one that waits for answers.
//! * [`update`]: what netifd is told that an interface has.
//! * [`take_over`]: interfaces of other protocols to ours, in the files that they are written in.
//! * [`teller`]: decides what netifd is told, and when: events and the time in, effects out.
//!
//! Nothing here changes the host.

#![forbid(unsafe_code)]

pub mod blob;
pub mod dhcp;
pub mod network;
pub mod only_through;
pub mod socket;
pub mod take_over;
pub mod teller;
pub mod ubus;
pub mod uci;
pub mod update;

/// The network device of an interface of netifd. Kernels take at most 15 bytes, and a longer name is cut and told apart
/// by a digest.
#[must_use]
pub fn device_name(interface: &str) -> String {
    const PREFIX: &str = "mr-";
    const KEPT: usize = 6;
    if PREFIX.len() + interface.len() <= config::types::IFNAME_MAX {
        return format!("{PREFIX}{interface}");
    }
    // FNV-1a: no secret, and the same on every start.
    let digest = interface.bytes().fold(0x811c_9dc5_u32, |sum, byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let kept: String = interface.chars().take(KEPT).collect();
    format!("{PREFIX}{kept}{:06x}", digest >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_fit_the_kernel_and_differ() {
        assert_eq!(device_name("office"), "mr-office");
        assert_eq!(device_name("twelve_chars"), "mr-twelve_chars");
        let long = [
            device_name("headquarters_berlin"),
            device_name("headquarters_bern"),
        ];
        assert_ne!(long[0], long[1]);
        for name in long {
            assert_eq!(name.len(), 15);
            assert!(config::types::is_ifname(&name) && name.starts_with("mr-headqu"));
        }
    }
}
