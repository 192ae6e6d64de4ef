//! Reading the facts of an ELF file. Bytes in, [`Facts`](crate::facts::Facts) out; nothing in a file is
//! trusted: offsets, counts and lengths are checked, and every list has a limit.
