//! Finds the drivers that stand for an accelerator, by `/proc/crypto` and by their names.

/// An algorithm that the kernel has, by one of its drivers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    /// The algorithm, `cbc(aes)`.
    pub(crate) name: String,
    /// The driver's name, `cbc-aes-qce`.
    pub(crate) driver: String,
    /// `skcipher` (`ablkcipher` until Linux 4.19), `aead`, `shash` and others.
    pub(crate) kind: String,
    /// The priority: the kernel takes the highest.
    pub(crate) priority: i32,
    /// Whether the driver answers later, as drivers of separate chips do.
    pub(crate) asynchronous: bool,
    /// Whether the driver passed the kernel's own test, or was not tested.
    pub(crate) sound: bool,
}

/// Reads `/proc/crypto`: paragraphs of `key : value`.
pub(crate) fn parse(text: &str) -> Vec<Driver> {
    let mut drivers = Vec::new();
    for paragraph in text.split("\n\n") {
        let mut driver = Driver {
            sound: true,
            ..Driver::default()
        };
        for line in paragraph.lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match key.trim() {
                "name" => value.clone_into(&mut driver.name),
                "driver" => value.clone_into(&mut driver.driver),
                "type" => value.clone_into(&mut driver.kind),
                "priority" => driver.priority = value.parse().unwrap_or(0),
                "async" => driver.asynchronous = value == "yes",
                "selftest" => driver.sound &= value == "passed",
                "internal" => driver.sound &= value == "no",
                _ => {}
            }
        }
        if !driver.driver.is_empty() {
            drivers.push(driver);
        }
    }
    drivers
}

/// The accelerator's driver for an algorithm, if there is one. Often it is not the kernel's first choice, because the
/// kernel ranks code for the CPU above most accelerators.
pub(crate) fn accelerator<'a>(drivers: &'a [Driver], name: &str, kind: &str) -> Option<&'a Driver> {
    drivers
        .iter()
        .filter(|driver| {
            driver.name == name
                && (driver.kind == kind || (kind == "skcipher" && driver.kind == "ablkcipher"))
                && driver.sound
                && driver.asynchronous
                && !is_software(&driver.driver)
        })
        .max_by_key(|driver| driver.priority)
}

/// Parts of names, between dashes and underscores, that mark software: C, an instruction set, or a helper that runs
/// either on another core. The kernel's `crypto/` and `arch/*/crypto/` name their drivers so (Linux 3.10 to 6.18).
const SOFTWARE: [&str; 34] = [
    "generic",
    "lib",
    "ti",
    "aesti",
    "fixed",
    "time",
    "asm",
    "simd",
    "simd128",
    "c",
    "i586",
    "x86",
    "x64",
    "sse2",
    "sse3",
    "ssse3",
    "avx",
    "aesni",
    "vaes",
    "pclmulqdqni",
    "clmulni",
    "ni",
    "neon",
    "neonbs",
    "arm",
    "arm64",
    "arm64bs",
    "ce",
    "armv8",
    "spe",
    "ppc",
    "p8",
    "p10",
    "s390",
];

/// Whether a driver is code for the CPU, as far as its name tells: the driver itself, or all its components, as in
/// `authenc(hmac(sha1-generic),cbc-aes-aesni)`.
pub(crate) fn is_software(driver: &str) -> bool {
    // A name in front of a bracket is a template's, which computes nothing itself.
    let mut leaves = driver
        .split_inclusive(['(', ')', ','])
        .filter(|part| !part.ends_with('('))
        .map(|part| part.trim_end_matches([')', ',']))
        .filter(|part| !part.is_empty());
    leaves.all(|leaf| {
        let mut parts = leaf.split(['-', '_']);
        // Allwinner's "crypto engine" has the same abbreviation as ARM's "crypto extension".
        !leaf.ends_with("sun8i-ce")
            && parts.any(|part| SOFTWARE.contains(&part) || part.starts_with("avx"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The listing of a virtual machine with a virtio-crypto device, on Linux 6.1.
    const PROC_CRYPTO: &str = "\
name         : cbc(aes)
driver       : virtio_crypto_aes_cbc
module       : virtio_crypto
priority     : 150
refcnt       : 1
selftest     : passed
internal     : no
type         : skcipher
async        : yes
blocksize    : 16

name         : cbc(aes)
driver       : cbc-aes-aesni
module       : aesni_intel
priority     : 400
refcnt       : 1
selftest     : passed
internal     : no
type         : skcipher
async        : yes
blocksize    : 16

name         : __cbc(aes)
driver       : cryptd(__cbc-aes-aesni)
priority     : 450
selftest     : passed
internal     : yes
type         : skcipher
async        : yes

name         : gcm(aes)
driver       : gcm-aes-eip93
priority     : 300
selftest     : unknown
internal     : no
type         : aead
async        : yes
";

    #[test]
    fn the_accelerator_is_found_behind_code_of_a_higher_priority() {
        let drivers = parse(PROC_CRYPTO);
        assert_eq!(drivers.len(), 4);
        let found = accelerator(&drivers, "cbc(aes)", "skcipher").unwrap();
        assert_eq!(
            (found.driver.as_str(), found.priority),
            ("virtio_crypto_aes_cbc", 150)
        );
        // A driver that failed the kernel's test does not count as an accelerator.
        assert_eq!(accelerator(&drivers, "gcm(aes)", "aead"), None);
        assert_eq!(accelerator(&drivers, "cbc(aes)", "aead"), None);
        assert_eq!(parse("rubbish\n\n : \n"), []);
    }

    #[test]
    fn names_tell_software_from_accelerators() {
        for software in [
            "cbc(aes-generic)",
            "cbc(ecb(aes-fixed-time))",
            "cbc-aes-aesni",
            "generic-gcm-aesni",
            "generic-gcm-vaes-avx10_512",
            "cryptd(__cbc-aes-neonbs)",
            "cbc-aes-ce",
            "cbc-aes-neon",
            "gcm-aes-ce",
            "gcm_base(ctr-aes-neonbs,ghash-ce)",
            "rfc7539(chacha20-simd,poly1305-neon)",
            "rfc7539(chacha20-arm,poly1305-arm)",
            "rfc7539(chacha20-lib,poly1305-generic)",
            "authenc(hmac(sha1-ce),cbc-aes-neonbs)",
            "authenc(hmac(sha1-ssse3),cbc-aes-aesni)",
            "cbc-aes-ppc-spe",
            "p8_aes_cbc",
            "cbc-aes-s390",
        ] {
            assert!(is_software(software), "{software}");
        }
        for accelerator in [
            "virtio_crypto_aes_cbc",
            "cbc-aes-qce",
            "authenc-hmac-sha1-cbc-aes-qce",
            "mv-cbc-aes",
            "safexcel-cbc-aes",
            "safexcel-gcm-aes",
            "cbc(aes-eip93)",
            "authenc(hmac(sha1-eip93), cbc(aes-eip93))",
            "cbc-aes-caam",
            "cbc-aes-ccp",
            "gcm_base(ctr-aes-qce,ghash-ce)",
            "qat_aes_cbc",
            "cbc-aes-sun8i-ce",
            "al-ssm-cbc-aes",
            "safexcel-rfc7539-chacha20-poly1305",
        ] {
            assert!(!is_software(accelerator), "{accelerator}");
        }
    }
}
