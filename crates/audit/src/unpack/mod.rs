//! Finding the files in a firmware image, by the magic numbers of what it is made of.
//!
//! Nothing is run and nothing is written: files are unpacked in memory, one after the other, and handed to
//! a visitor. [`Limits`] bound what a hostile image can cost.
