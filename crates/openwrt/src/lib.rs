//! OpenWrt's own interfaces: UCI files, ubus, and netifd, which gives network interfaces their addresses and routes.
//!
//! * [`uci`]: parses a file below `/etc/config` into sections and options.
//! * [`network`]: turns a `millrace` section of `network` into a checked model.
//! * [`only_through`]: which LAN devices leave only through which of these tunnels.
//! * [`blob`]: values in ubus messages.
//! * [`ubus`]: ubus messages, and a client without I/O; [`socket`]: a client that blocks until it has the answer.
//! * [`update`]: messages that tell netifd an interface's addresses and routes.
//! * [`take_over`]: converts interfaces of other protocols to `millrace`, in their own files.
//! * [`teller`]: decides what to tell netifd, and when: events and the time in, effects out.
//!
//! Nothing here changes the host.

#![forbid(unsafe_code)]

pub mod blob;
pub mod network;
pub mod only_through;
pub mod socket;
pub mod take_over;
pub mod teller;
pub mod ubus;
pub mod uci;
pub mod update;

/// The network device of a netifd interface. The kernel takes at most 15 bytes: a longer name is cut, and a digest
/// keeps it unique.
#[must_use]
pub fn device_name(interface: &str) -> String {
    const PREFIX: &str = "mr-";
    const KEPT: usize = 6;
    if PREFIX.len() + interface.len() <= config::types::IFNAME_MAX {
        return format!("{PREFIX}{interface}");
    }
    // FNV-1a: needs no secret, and gives the same result on every start.
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
