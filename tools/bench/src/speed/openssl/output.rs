//! Reads the output of `openssl speed -mr`.
//!
//! ```text
//! +H:1408                                  sizes of messages
//! +F:25:AES-256-CBC:1407520738.46          number, name, bytes a second at each size
//! +F2:2:2048:3806.0:70579.2                RSA: number, bits, signatures and verifications a second;
//!                                          from 3.2 on encryptions and decryptions behind them
//! +F3:… +F4:…                              DSA, ECDSA: the same
//! +F5:22:253:38193.7:0.000026              ECDH: number, bits, operations a second, seconds of each
//! ```
//!
//! The leading numbers differ between releases. A measurement that failed has the figure 0.

/// Bytes per second in the output for a single size.
pub(super) fn bytes_per_second(text: &str, bytes: usize) -> Option<f64> {
    let size = text.lines().find_map(|line| line.strip_prefix("+H:"))?;
    if size.trim().parse() != Ok(bytes) {
        return None;
    }
    let mut fields = text
        .lines()
        .find_map(|line| line.strip_prefix("+F:"))?
        .split(':');
    // The name may be missing; the figure is always last.
    figure(fields.next_back()?)
}

/// The first two figures of the line that begins with `prefix`, such as `+F2:`, for keys of `bits` bits.
pub(super) fn per_second(text: &str, prefix: &str, bits: u32) -> Option<[Option<f64>; 2]> {
    text.lines().find_map(|line| {
        let mut fields = line.strip_prefix(prefix)?.split(':');
        let _number = fields.next()?;
        if fields.next()?.trim().parse() != Ok(bits) {
            return None;
        }
        Some([
            fields.next().and_then(figure),
            fields.next().and_then(figure),
        ])
    })
}

/// Parses a figure; `None` if it is 0.
fn figure(text: &str) -> Option<f64> {
    let value: f64 = text.trim().parse().ok()?;
    (value.is_finite() && value > 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl speed -mr -seconds 1 -bytes 1408 -evp aes-256-cbc` of 3.0.19 with `2>&1`.
    const CBC_3_0: &str = "\
+DT:AES-256-CBC:1:1408
+R:999659:AES-256-CBC:1.000000
+H:1408
+F:25:AES-256-CBC:1407520738.46
";

    /// Output in the form of 1.1.1, which numbers ciphers differently and uses the older long names.
    const CBC_1_1_1: &str = "\
+H:1408
+F:22:aes-256-cbc:58935301.12
";

    /// Output in the form of 3.5, which lists more algorithms before this one.
    const GCM_3_5: &str = "\
+H:64
+F:28:AES-256-GCM:4537225537.25
";

    #[test]
    fn bytes_a_second_of_every_release() {
        assert_eq!(bytes_per_second(CBC_3_0, 1408), Some(1_407_520_738.46));
        assert_eq!(bytes_per_second(CBC_1_1_1, 1408), Some(58_935_301.12));
        assert_eq!(bytes_per_second(GCM_3_5, 64), Some(4_537_225_537.25));
    }

    #[test]
    fn names_may_have_parentheses_and_nothing_is_no_figure() {
        let hmac = "+H:1408\n+F:9:hmac(sha1):1715045376.00\n";
        assert_eq!(bytes_per_second(hmac, 1408), Some(1_715_045_376.0));
        // OpenSSL 3.0 without its legacy provider.
        let none = "+H:64\n+F:12:rc4:0.00\n";
        assert_eq!(bytes_per_second(none, 64), None);
        assert_eq!(bytes_per_second(hmac, 64), None);
        for text in [
            "",
            "+H:64\n",
            "+F:1:x:5\n",
            "+H:64\n+F:1:x:nan\n",
            "Error\n",
        ] {
            assert_eq!(bytes_per_second(text, 64), None, "{text:?}");
        }
    }

    /// `openssl speed -mr -seconds 1 rsa2048 ecdsap256 ecdhx25519 dsa2048` of 3.0.19.
    const KEYS_3_0: &str = "\
+H:16:64:256:1024:8192:16384
+F2:2:2048:3806.000000:70579.245283
+F3:2:2048:5055.223881:5733.823529
+F4:3:256:55510.144928:17627.536232
+F5:22:253:38193.750000:0.000026
";

    #[test]
    fn operations_a_second() {
        let two = |prefix, bits| per_second(KEYS_3_0, prefix, bits);
        assert_eq!(
            two("+F2:", 2048),
            Some([Some(3806.0), Some(70_579.245_283)])
        );
        assert_eq!(
            two("+F3:", 2048),
            Some([Some(5_055.223_881), Some(5_733.823_529)])
        );
        assert_eq!(
            two("+F4:", 256),
            Some([Some(55_510.144_928), Some(17_627.536_232)])
        );
        let x25519 = two("+F5:", 253).and_then(|[rate, _]| rate);
        assert_eq!(x25519, Some(38193.75));
        assert_eq!(two("+F2:", 4096), None);
        assert_eq!(two("+F6:", 253), None);
    }

    #[test]
    fn later_releases_have_more_figures_behind() {
        // From 3.2 on, RSA has four figures.
        let text = "+F2:2:2048:1900.100000:37407.500000:36000.000000:1850.000000\n";
        assert_eq!(
            per_second(text, "+F2:", 2048),
            Some([Some(1900.1), Some(37407.5)])
        );
        // A measurement that failed.
        let text = "+F3:2:2048:0.000000:82.500000\n";
        assert_eq!(per_second(text, "+F3:", 2048), Some([None, Some(82.5)]));
    }
}
