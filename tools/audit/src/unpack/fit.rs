//! Device trees, and FIT images, which are device trees with images in them (U-Boot,
//! doc/usage/fit/source_file_format.rst).

use crate::bytes::BIG;
use crate::dtb::{Dtb, Node};

use super::decompress::{Format, decode};
use super::{UnpackError, Walker, kernel, scan};
use crate::unpack::{Found, Part};

/// Longest property name that is accepted; the specification allows 31.
const LONGEST_NAME: usize = 127;

/// Walks the device tree at `at`; `None` if there is none.
pub(super) fn walk(
    part: Part<'_>,
    at: usize,
    walker: &mut Walker<'_>,
) -> Result<Option<Found>, UnpackError> {
    let rest = &part.bytes[at..];
    let Some(size) = sane(rest) else {
        return Ok(None);
    };
    if !walker.budget.attempt(size) {
        return Ok(None);
    }
    let Some(tree) = Dtb::parse(rest) else {
        return Ok(None);
    };
    let root = tree.root();
    let Some(images) = root.child("images").filter(|_| !part.kernel) else {
        // A tree with one of these properties describes a board; others may be a program's tables.
        if root.property("compatible").is_some() || root.property("model").is_some() {
            walker.file("dtb", &part.origin("dtb", at), &rest[..size])?;
        }
        return Ok(Some(Found::until(at + size)));
    };
    let outer = part.origin("FIT", at);
    let mut end = size;
    for image in images.children() {
        match data(image, rest, size) {
            Some((data, data_end)) => {
                end = end.max(data_end);
                let origin = format!("{outer} > {}", image.name());
                if !walker.budget.attempt(data.len()) {
                    walker.skip(&origin, "an image", "it has too many parts");
                    break;
                }
                node(image, part.inner(data, &origin), walker)?;
            }
            None => walker.skip(&outer, image.name(), "its data is missing"),
        }
    }
    Ok(Some(Found::until(at + end)))
}

/// The tree's size, if its header makes sense and no name in it is overlong: each property's name is read
/// again.
fn sane(rest: &[u8]) -> Option<usize> {
    let field = |index: usize| usize::try_from(BIG.u32(rest, index * 4)?).ok();
    let (size, strings, strings_size) = (field(1)?, field(3)?, field(8)?);
    let strings = rest.get(strings..strings.checked_add(strings_size)?)?;
    let credible = strings
        .split(|byte| *byte == 0)
        .all(|name| name.len() <= LONGEST_NAME);
    (size >= 40 && size <= rest.len() && credible && strings_size <= size).then_some(size)
}

/// An image's bytes, and their end if they lie after the tree; 0 if they lie within it.
fn data<'a>(image: Node<'a>, rest: &'a [u8], size: usize) -> Option<(&'a [u8], usize)> {
    if let Some(data) = image.property("data") {
        return Some((data.value, 0));
    }
    let number = |name: &str| {
        image
            .property(name)?
            .cell()
            .and_then(|cell| usize::try_from(cell).ok())
    };
    let start = match number("data-offset") {
        Some(offset) => size.checked_next_multiple_of(4)?.checked_add(offset)?,
        None => number("data-position")?,
    };
    let end = start.checked_add(number("data-size")?)?;
    Some((rest.get(start..end)?, end))
}

fn node(image: Node<'_>, part: Part<'_>, walker: &mut Walker<'_>) -> Result<(), UnpackError> {
    let text = |name: &str| image.property(name).and_then(|p| p.text()).unwrap_or("");
    let unpacked;
    let mut part = part;
    let format = match text("compression") {
        "" | "none" => None,
        "gzip" => Some(Format::Gzip),
        "lzma" => Some(Format::Lzma),
        "xz" => Some(Format::Xz),
        "zstd" => Some(Format::Zstd),
        // U-Boot's lz4 is the format with frames, but kernels use the legacy format.
        "lz4" => Some(Format::Lz4),
        other => {
            walker.skip(
                part.outer,
                image.name(),
                &format!("compressed with {other}"),
            );
            return if text("type").starts_with("kernel") {
                walker.file("kernel", part.outer, part.bytes)
            } else {
                Ok(())
            };
        }
    };
    if let Some(format) = format {
        match decode(format, part.bytes, &mut walker.budget) {
            Ok((data, _)) => unpacked = data,
            Err(fault) => return walker.fault(part.outer, image.name(), fault),
        }
        part.bytes = &unpacked;
    }
    match text("type") {
        "flat_dt" => walker.file("dtb", part.outer, part.bytes),
        kind if kind.starts_with("kernel") && format.is_some() => {
            kernel::unpacked(part.bytes, part.outer, part.depth, walker)
        }
        kind if kind.starts_with("kernel") => kernel::raw(part, walker),
        _ => scan::part(part, walker).map(|_| ()),
    }
}
