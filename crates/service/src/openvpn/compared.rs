//! The two data planes of OpenVPN, compared on this machine: `millrace tune` measures them, and `dataplane.kind = "auto"`
//! chooses by the result.

mod trial;

use config::openvpn::Cipher;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The ciphers that are measured. The first stands for all lengths of AES keys.
pub const MEASURED: [Cipher; 2] = [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];

/// The kernel's data plane and this program's, at both ends of a tunnel within this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// OpenVPN's name for the cipher.
    pub cipher: String,
    /// The speed of this program.
    pub user: Speed,
    /// The speed of the kernel.
    pub kernel: Speed,
}

/// The speed of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speed {
    /// Bits a second of one TCP stream.
    pub bulk: u64,
    /// Small packets a second, each sent after the answer to the last.
    pub single: u64,
}

impl Compared {
    /// Measures both data planes with this cipher: `load` with a stream and with single packets, four times in all. Needs
    /// root.
    ///
    /// # Errors
    /// Why one of them cannot be measured.
    pub fn measure(cipher: Cipher, load: Duration) -> Result<Self, String> {
        // The kernel first: most machines have no such data plane.
        let kernel = trial::run(true, cipher, load)?;
        Ok(Self {
            cipher: cipher.name().to_owned(),
            user: trial::run(false, cipher, load)?,
            kernel,
        })
    }

    /// Whether the kernel is the better choice: at least 5 % faster with single packets, and in bulk at most 5 % slower.
    #[must_use]
    pub const fn prefers_kernel(&self) -> bool {
        let (user, kernel) = (self.user, self.kernel);
        let single = percent(kernel.single, user.single) >= 105;
        single && percent(kernel.bulk, user.bulk) >= 95
    }

    /// The kernel's speed in percent of this program's, in words.
    #[must_use]
    pub fn words(&self) -> String {
        format!(
            "with {} the kernel has {} % of this program's speed in bulk, {} % with single packets",
            self.cipher,
            percent(self.kernel.bulk, self.user.bulk),
            percent(self.kernel.single, self.user.single)
        )
    }
}

/// `part` in percent of `whole`; 0 if nothing was measured.
const fn percent(part: u64, whole: u64) -> u64 {
    match part.saturating_mul(100).checked_div(whole) {
        Some(percent) => percent,
        None => 0,
    }
}

/// The measurements of the profile that this process uses.
static PROFILE: Mutex<Vec<Compared>> = Mutex::new(Vec::new());

/// Uses these measurements from now on.
pub(crate) fn apply(measured: &[Compared]) {
    let mut profile = PROFILE.lock().unwrap_or_else(PoisonError::into_inner);
    measured.clone_into(&mut profile);
}

/// The measurements of the profile; empty without one.
pub(super) fn measured() -> Vec<Compared> {
    PROFILE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// The measurement that stands for a cipher.
pub(super) fn of(cipher: Cipher, measured: &[Compared]) -> Option<&Compared> {
    let stands = match cipher {
        Cipher::ChaCha20Poly1305 => MEASURED[1],
        _ => MEASURED[0],
    };
    measured.iter().find(|it| it.cipher == stands.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(user: (u64, u64), kernel: (u64, u64)) -> Compared {
        let speed = |(bulk, single)| Speed { bulk, single };
        Compared {
            cipher: "AES-256-GCM".to_owned(),
            user: speed(user),
            kernel: speed(kernel),
        }
    }

    #[test]
    fn the_kernel_must_gain_with_single_packets_and_not_lose_in_bulk() {
        for (user, kernel, prefers) in [
            ((1000, 1000), (1000, 1050), true),
            ((1000, 1000), (950, 2300), true),
            ((1000, 1000), (949, 2300), false),
            ((1000, 1000), (3000, 1049), false),
            ((1000, 1000), (1000, 1000), false),
            ((0, 0), (1000, 1000), false),
            ((1000, 1000), (0, 0), false),
            ((1, 1), (u64::MAX, u64::MAX), true),
        ] {
            let compared = compared(user, kernel);
            assert_eq!(compared.prefers_kernel(), prefers, "{}", compared.words());
        }
        let words = compared((2000, 9000), (1000, 18_000)).words();
        assert_eq!(
            words,
            "with AES-256-GCM the kernel has 50 % of this program's speed in bulk, 200 % with single packets"
        );
    }

    #[test]
    fn aes_stands_for_all_lengths_of_its_keys() {
        let measured = [compared((1, 1), (1, 1))];
        for cipher in [Cipher::Aes128Gcm, Cipher::Aes192Gcm, Cipher::Aes256Gcm] {
            assert_eq!(of(cipher, &measured), Some(&measured[0]));
        }
        assert_eq!(of(Cipher::ChaCha20Poly1305, &measured), None);
    }
}
