//! Files that may have secrets in them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use zeroize::Zeroizing;

/// Reads at most `max` bytes into memory that is overwritten when dropped: a larger file is
/// [`io::ErrorKind::FileTooLarge`].
pub(crate) fn read(path: &Path, max: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len().min(max);
    // Reserved beforehand: a vector that grows leaves copies of the keys behind.
    let capacity = usize::try_from(size).unwrap_or(0) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than {max} bytes"),
        ));
    }
    Ok(bytes)
}
