//! Reads the requests of a client of the UAPI socket, whole and in pieces.
#![no_main]

use std::io::Read;

use config::uapi::Requests;

/// Hands out at most `piece` bytes a read, as a socket may.
struct Pieces<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.piece).min(self.rest.len());
        let (now, later) = self.rest.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.rest = later;
        Ok(count)
    }
}

/// All requests read from `data`, as text.
fn read(data: &[u8], piece: usize) -> Vec<String> {
    let mut requests = Requests::new(Pieces { rest: data, piece });
    let mut all = Vec::new();
    while let Ok(Some(request)) = requests.next_request() {
        all.push(format!("{request:?}"));
        assert!(all.len() <= data.len() + 1, "a request without a byte");
    }
    all
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&piece, data)) = data.split_first() else {
        return;
    };
    let whole = read(data, usize::MAX);
    assert_eq!(whole, read(data, usize::from(piece).max(1)));
});
