//! Kernels, and the other contents of unpacked streams.

use memchr::memmem;

use super::decompress::{Format, decode};
use super::{Fault, UnpackError, Walker, scan};
use crate::unpack::Part;

/// Hands over the content of an unpacked stream: an archive, an image, or a kernel.
pub(super) fn unpacked(
    data: &[u8],
    origin: &str,
    depth: u32,
    walker: &mut Walker<'_>,
) -> Result<(), UnpackError> {
    // Containers come first: an image that holds unpacked files also contains the kernel's banner.
    if !begins_with_container(data) && banner(data) {
        return hand_over(data, origin, depth, walker);
    }
    scan::part(Part::new(data, origin, depth), walker)?;
    Ok(())
}

/// Hands over an uncompressed kernel and its built-in parts: configuration, root file system, device trees.
pub(super) fn hand_over(
    data: &[u8],
    origin: &str,
    depth: u32,
    walker: &mut Walker<'_>,
) -> Result<(), UnpackError> {
    walker.file("vmlinux", origin, data)?;
    // CONFIG_IKCONFIG: the mark, then a gzip stream (kernel/configs.c).
    if let Some(at) = memmem::find(data, b"IKCFG_ST") {
        match decode(Format::Gzip, &data[at + 8..], &mut walker.budget) {
            Ok((config, _)) => walker.file("kernel-config", origin, &config)?,
            Err(fault) => walker.fault(origin, "the kernel's configuration", fault)?,
        }
    }
    scan::part(
        Part {
            kernel: true,
            ..Part::new(data, origin, depth + 1)
        },
        walker,
    )?;
    Ok(())
}

/// Reads a part that a header calls a kernel and that is not compressed as a whole: the image itself, or a
/// program that unpacks itself. Hands it over unchanged if it contains nothing known.
pub(super) fn raw(part: Part<'_>, walker: &mut Walker<'_>) -> Result<(), UnpackError> {
    if is_unpacked(part.bytes, walker)? {
        return hand_over(part.bytes, part.outer, part.depth, walker);
    }
    if !scan::part(part, walker)? {
        walker.file("kernel", part.outer, part.bytes)?;
    }
    Ok(())
}

/// Whether this is an uncompressed kernel. A readable banner is not enough: LZ4 and zstd keep text as it
/// is, so packed kernels show it as well.
pub(super) fn is_unpacked(data: &[u8], walker: &mut Walker<'_>) -> Result<bool, UnpackError> {
    if begins_with_container(data) || !banner(data) {
        return Ok(false);
    }
    let mut rest = data;
    while let Some(at) = memchr::memchr3(0x28, 0x02, 0x5d, rest) {
        rest = &rest[at..];
        let format = scan::format_at(rest).filter(|_| walker.budget.attempt(0));
        match format.map(|format| decode(format, rest, &mut walker.budget)) {
            Some(Ok((inner, _))) if banner(&inner) => return Ok(false),
            Some(Err(Fault::Walk(error))) => return Err(error),
            _ => rest = &rest[1..],
        }
    }
    Ok(true)
}

/// AArch64's `Image` (Documentation/arch/arm64/booting.rst), not compressed.
pub(super) fn is_image(data: &[u8]) -> bool {
    data.get(56..60) == Some(b"ARMd") && banner(data)
}

/// Whether the data contains `linux_banner` (init/version.c).
fn banner(data: &[u8]) -> bool {
    let text = b"Linux version ";
    memmem::find_iter(data, text)
        .any(|at| data.get(at + text.len()).is_some_and(u8::is_ascii_digit))
}

fn begins_with_container(data: &[u8]) -> bool {
    let magics: [&[u8]; 13] = [
        b"hsqs",
        b"sqsh",
        b"qshs",
        b"shsq",
        b"tqsh",
        b"hsqt",
        b"UBI#",
        b"HDR0",
        b"*#$^",
        b"device:",
        b"07070",
        b"\x27\x05\x19\x56",
        b"\xd0\x0d\xfe\xed",
    ];
    magics.iter().any(|magic| data.starts_with(magic)) || data.get(257..262) == Some(b"ustar")
}
