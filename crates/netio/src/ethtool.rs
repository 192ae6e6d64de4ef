//! Device features: work that the network stack leaves to an interface.
//!
//! Features are found by the kernel's own names, as `ethtool -k` prints them ("tx-udp-segmentation"): their numbers
//! differ between kernels.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// Commands and string sets of linux/ethtool.h.
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
/// Bytes of one name.
const STRING_SIZE: usize = 32;
/// More features than any kernel has; bounds what a broken driver can make us allocate.
const FEATURES_MAX: usize = 4096;

/// The features that make frames larger than the wire allows or leave their checksums empty.
const OFFLOADS: [&str; 9] = [
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "tx-gso-list",
    "rx-gro",
    "tx-checksum-ip-generic",
];

/// Why a feature could not be read or switched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EthtoolError {
    /// The kernel refused: no such interface, no permission, or no features in this driver.
    #[error("cannot {operation} of interface {interface}: {error}")]
    Refused {
        /// Name of the refused operation.
        operation: &'static str,
        /// Name of the interface.
        interface: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// This kernel has no feature of that name.
    #[error("interface {interface} has no feature {feature}; `ethtool -k` lists its features")]
    Unknown {
        /// The interface.
        interface: String,
        /// Name of the requested feature.
        feature: String,
    },
    /// The driver does not let the feature be switched, or another feature forces it.
    #[error("feature {feature} of interface {interface} is fixed")]
    Fixed {
        /// The interface.
        interface: String,
        /// Name of the feature.
        feature: String,
    },
}

/// A feature as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Name the kernel uses.
    pub name: String,
    /// Whether the feature is on.
    pub on: bool,
    /// Whether the driver allows switching the feature.
    pub changeable: bool,
}

/// All features of an interface of the current thread's namespace, in the kernel's order.
///
/// # Errors
/// [`EthtoolError::Refused`].
pub fn features(interface: &str) -> Result<Vec<Feature>, EthtoolError> {
    let device = Device::open(interface, "read the features")?;
    let names = device.names()?;
    // Command, number of blocks, then per block: available, requested, active, never changed.
    let blocks = names.len().div_ceil(32);
    let mut words = vec![0u32; 2 + 4 * blocks];
    words[0] = ETHTOOL_GFEATURES;
    words[1] = small(blocks);
    device.ioctl(&mut words)?;
    let bit = |field: usize, number: usize| {
        let word = words.get(2 + 4 * (number / 32) + field);
        word.is_some_and(|word| word >> (number % 32) & 1 == 1)
    };
    let features = names.into_iter().enumerate().map(|(number, name)| Feature {
        name,
        on: bit(2, number),
        changeable: bit(0, number) && !bit(3, number),
    });
    Ok(features.collect())
}

/// Whether a feature is on.
///
/// # Errors
/// [`EthtoolError::Unknown`] if no feature has this name, [`EthtoolError::Refused`].
pub fn feature(interface: &str, name: &str) -> Result<bool, EthtoolError> {
    features(interface)?
        .into_iter()
        .find(|feature| feature.name == name)
        .map(|feature| feature.on)
        .ok_or_else(|| unknown(interface, name))
}

/// Switches a feature.
///
/// # Errors
/// [`EthtoolError::Unknown`], [`EthtoolError::Refused`], and [`EthtoolError::Fixed`] if it did not
/// change.
pub fn set_feature(interface: &str, name: &str, on: bool) -> Result<(), EthtoolError> {
    set_features(interface, &[name], on)?;
    if feature(interface, name)? == on {
        Ok(())
    } else {
        Err(EthtoolError::Fixed {
            interface: interface.to_owned(),
            feature: name.to_owned(),
        })
    }
}

/// Switches every feature that makes frames larger than the wire allows or leaves their checksums empty, if the
/// interface has it and lets it be switched.
///
/// # Errors
/// [`EthtoolError::Refused`].
pub fn set_offloads(interface: &str, on: bool) -> Result<(), EthtoolError> {
    let present = features(interface)?;
    let wanted: Vec<&str> = present
        .iter()
        .filter(|feature| feature.changeable && OFFLOADS.contains(&feature.name.as_str()))
        .map(|feature| feature.name.as_str())
        .collect();
    set_features(interface, &wanted, on)
}

/// Switches several features in one request.
///
/// # Errors
/// [`EthtoolError::Unknown`] if one of them does not exist, before any is switched;
/// [`EthtoolError::Refused`].
pub fn set_features(interface: &str, wanted: &[&str], on: bool) -> Result<(), EthtoolError> {
    let device = Device::open(interface, "switch the features")?;
    let names = device.names()?;
    // Command, number of blocks, then per block: which bits to change, and their new values.
    let blocks = names.len().div_ceil(32);
    let mut words = vec![0u32; 2 + 2 * blocks];
    words[0] = ETHTOOL_SFEATURES;
    words[1] = small(blocks);
    for name in wanted {
        let number = names
            .iter()
            .position(|candidate| candidate == name)
            .ok_or_else(|| unknown(interface, name))?;
        let mask = 1u32 << (number % 32);
        words[2 + 2 * (number / 32)] |= mask;
        if on {
            words[3 + 2 * (number / 32)] |= mask;
        }
    }
    device.ioctl(&mut words)
}

fn unknown(interface: &str, name: &str) -> EthtoolError {
    EthtoolError::Unknown {
        interface: interface.to_owned(),
        feature: name.to_owned(),
    }
}

/// Converts a count, which is at most [`FEATURES_MAX`] and so fits.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A socket for device ioctls, and the interface to ask about.
struct Device<'a> {
    socket: OwnedFd,
    interface: &'a str,
    operation: &'static str,
}

impl<'a> Device<'a> {
    fn open(interface: &'a str, operation: &'static str) -> Result<Self, EthtoolError> {
        // Netlink sockets take device ioctls too, and exist where IPv4 does not.
        // SAFETY: no pointers are passed.
        let fd = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                libc::NETLINK_GENERIC,
            )
        };
        if fd < 0 {
            return Err(EthtoolError::Refused {
                operation,
                interface: interface.to_owned(),
                error: io::Error::last_os_error(),
            });
        }
        Ok(Self {
            // SAFETY: the descriptor is new and nothing else owns it.
            socket: unsafe { OwnedFd::from_raw_fd(fd) },
            interface,
            operation,
        })
    }

    /// The names of all features, by number.
    fn names(&self) -> Result<Vec<String>, EthtoolError> {
        // Command, reserved, 64-bit mask of the sets, then the size of each set.
        let mut words = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        let mask = (1u64 << ETH_SS_FEATURES).to_ne_bytes();
        words[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
        words[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
        self.ioctl(&mut words)?;
        let count = usize::try_from(words[4])
            .unwrap_or(FEATURES_MAX)
            .min(FEATURES_MAX);

        // Command, set, count, then the strings.
        let mut words = vec![0u32; 3 + count * STRING_SIZE / 4];
        words[0] = ETHTOOL_GSTRINGS;
        words[1] = ETH_SS_FEATURES;
        words[2] = small(count);
        self.ioctl(&mut words)?;
        let names = words[3..].chunks_exact(STRING_SIZE / 4).map(|name| {
            let bytes = name.iter().flat_map(|word| word.to_ne_bytes());
            let text: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(names.collect())
    }

    /// Runs the command in `words`, which must be as long as the command says.
    fn ioctl(&self, words: &mut [u32]) -> Result<(), EthtoolError> {
        let refused = |error| EthtoolError::Refused {
            operation: self.operation,
            interface: self.interface.to_owned(),
            error,
        };
        // SAFETY: `ifreq` is plain data, for which all zeroes is a value.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        let name = self.interface.as_bytes();
        if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(&0) {
            return Err(refused(io::Error::from_raw_os_error(libc::ENODEV)));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = from.cast_signed() as libc::c_char;
        }
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: the kernel reads and writes behind the pointer only as much as the command and the
        // count in `words` say, and both callers size the slice by that count.
        let result = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                libc::SIOCETHTOOL as _,
                &raw mut request,
            )
        };
        if result < 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_lists_its_features_by_name() {
        let features = features("lo").unwrap();
        let loopback = features.iter().find(|f| f.name == "loopback").unwrap();
        assert!(loopback.on && !loopback.changeable);
        assert!(feature("lo", "loopback").unwrap());
    }

    #[test]
    fn missing_things_are_told_apart() {
        assert!(matches!(
            feature("lo", "warp-drive"),
            Err(EthtoolError::Unknown { .. })
        ));
        for interface in ["", "no-such-if", "a-name-that-is-too-long"] {
            assert!(matches!(
                features(interface),
                Err(EthtoolError::Refused { .. })
            ));
        }
    }
}
