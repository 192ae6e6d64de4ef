//! A short list on the stack.

use core::mem::MaybeUninit;

use super::CHUNK;

/// Up to [`CHUNK`] items. Making one costs nothing; a batch of one packet would notice any cost.
pub(crate) struct List<T> {
    items: [MaybeUninit<T>; CHUNK],
    /// Invariant: the first so many items have been written.
    len: usize,
}

impl<T> List<T> {
    pub(crate) fn new() -> Self {
        // Items are forgotten, not dropped.
        const { assert!(!core::mem::needs_drop::<T>()) };
        Self {
            items: [const { MaybeUninit::uninit() }; CHUNK],
            len: 0,
        }
    }

    /// # Panics
    /// If it is full.
    pub(crate) fn push(&mut self, item: T) {
        self.items[self.len].write(item);
        self.len += 1;
    }
}

impl<T> core::ops::Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` items have been written, and are as an array of `T`.
        unsafe { core::slice::from_raw_parts(self.items.as_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_pushed() {
        let mut list = List::new();
        assert!(list.is_empty());
        (0..CHUNK).for_each(|number| list.push(number..number));
        assert_eq!(list.len(), CHUNK);
        assert!(list.iter().enumerate().all(|(at, item)| item.start == at));
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn more_than_fit_are_a_fault() {
        let mut list = List::new();
        (0..=CHUNK).for_each(|number| list.push(number));
    }
}
