//! An archive of files that only their owner may read, in the format `ustar` of POSIX.

use zeroize::Zeroizing;

/// Length of a header, and of the unit that contents are padded to.
const BLOCK: usize = 512;

/// The archive of these files. Names have at most 100 bytes.
pub(super) fn archive(files: &[(&str, &str)]) -> Zeroizing<Vec<u8>> {
    let padded = |text: &str| text.len().next_multiple_of(BLOCK);
    let sizes = files.iter().map(|(_, text)| BLOCK + padded(text));
    // Allocates once: a vector that grows leaves copies of keys behind. Two empty blocks are the end.
    let mut out = Zeroizing::new(Vec::with_capacity(sizes.sum::<usize>() + 2 * BLOCK));
    for (name, text) in files {
        out.extend(header(name, text.len()));
        out.extend(text.as_bytes());
        let end = out.len().next_multiple_of(BLOCK);
        out.resize(end, 0);
    }
    out.extend([0; 2 * BLOCK]);
    out
}

/// The header of a file of root, of no date.
fn header(name: &str, size: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut set = |at: usize, value: &[u8]| header[at..at + value.len()].copy_from_slice(value);
    set(0, name.as_bytes());
    set(100, b"0000600\0");
    set(108, b"0000000\0");
    set(116, b"0000000\0");
    set(124, format!("{size:011o}\0").as_bytes());
    set(136, b"00000000000\0");
    // The sum counts itself as spaces.
    set(148, b"        ");
    set(156, b"0");
    set(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|it| u32::from(*it)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_padded_and_their_headers_add_up() {
        let texts = [String::new(), "x".repeat(512), "y".repeat(513)];
        let names = ["empty", "store-7.conf", &"b".repeat(100)];
        let files: Vec<(&str, &str)> = names
            .into_iter()
            .zip(texts.iter().map(|it| &**it))
            .collect();
        let archive = archive(&files);
        let (capacity, mut rest) = (archive.capacity(), &archive[..]);
        assert_eq!((capacity, rest.len()), (8 * BLOCK, 8 * BLOCK));
        for (name, text) in files {
            let (head, content) = rest.split_at(BLOCK);
            assert!(
                head.starts_with(name.as_bytes())
                    && head[name.len()..100].iter().all(|it| *it == 0)
            );
            let octal = |at: std::ops::Range<usize>| {
                let text = std::str::from_utf8(&head[at]).unwrap();
                usize::from_str_radix(text, 8).unwrap()
            };
            assert_eq!((octal(100..107), octal(124..135)), (0o600, text.len()));
            let spaces = 8 * usize::from(b' ');
            let sum = head[..148].iter().chain(&head[156..]);
            assert_eq!(
                octal(148..154),
                spaces + sum.map(|it| usize::from(*it)).sum::<usize>()
            );
            assert!(content.starts_with(text.as_bytes()));
            rest = &content[text.len().next_multiple_of(BLOCK)..];
        }
        assert!(rest.iter().all(|it| *it == 0) && rest.len() == 2 * BLOCK);
    }
}
