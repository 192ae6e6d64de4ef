//! Counts the functions (or pieces of code) that hold NEON instructions, and VFP instructions in the others.

use std::cmp::Reverse;
use std::ops::Range;

use super::classes::Classes;
use super::image::{Symbol, SymbolKind, text};
use crate::facts::Spread;

/// Bytes of a piece, for code without known functions.
const PIECE: usize = 4096;
/// Names that [`Spread`] keeps.
const NAMES: usize = 10;

struct Function<'a> {
    range: Range<usize>,
    name: &'a [u8],
    found: Found,
}

/// Counts of one function or piece.
#[derive(Clone, Copy, Default)]
struct Found {
    neon: u64,
    doubles: u64,
    high: u64,
}

impl Found {
    fn add(&mut self, class: Classes) {
        self.neon += u64::from(class.any(Classes::SIMD));
        let double = class.any(Classes::DOUBLE);
        self.doubles += u64::from(double);
        self.high += u64::from(double && class.any(Classes::D16_UP));
    }
}

/// Records NEON and VFP instructions, which must come in the order of their offsets.
pub(super) struct Places<'a> {
    functions: Vec<Function<'a>>,
    /// Index of the first function that may hold the next instruction.
    next: usize,
    pieces: u64,
    with: u64,
    /// The piece of the last instruction, and its counts.
    last: Option<usize>,
    piece: Found,
    /// Counts in pieces without NEON, except the last piece.
    elsewhere: Found,
}

impl<'a> Places<'a> {
    /// `symbols` must be sorted by offset; `parts` are the executable parts.
    pub(super) fn new(parts: &[Range<usize>], symbols: &[&Symbol<'a>]) -> Self {
        let mut functions: Vec<Function<'a>> = Vec::new();
        for part in parts {
            let first = symbols.partition_point(|symbol| symbol.offset < Some(part.start));
            let end = symbols.partition_point(|symbol| symbol.offset < Some(part.end));
            for symbol in &symbols[first..end] {
                let Some(start) = symbol
                    .offset
                    .filter(|_| symbol.kind == SymbolKind::Function)
                else {
                    continue;
                };
                if let Some(last) = functions.last_mut() {
                    // A second name of one function, or its entry in the other symbol table.
                    if last.range.start == start {
                        continue;
                    }
                    last.range.end = last.range.end.min(start);
                }
                let size = usize::try_from(symbol.size).unwrap_or(usize::MAX);
                let end = if size == 0 {
                    part.end
                } else {
                    start.saturating_add(size).min(part.end)
                };
                functions.push(Function {
                    range: start..end,
                    name: symbol.name,
                    found: Found::default(),
                });
            }
        }
        let pieces = parts
            .iter()
            .map(|part| part.len().div_ceil(PIECE) as u64)
            .sum();
        Self {
            functions,
            next: 0,
            pieces,
            with: 0,
            last: None,
            piece: Found::default(),
            elsewhere: Found::default(),
        }
    }

    /// Records one NEON or VFP instruction at `at`, in the part that begins at `part`.
    pub(super) fn found(&mut self, part: usize, at: usize, class: Classes) {
        // Parts do not overlap, so that their first bytes tell their pieces apart.
        let piece = part + (at - part) / PIECE * PIECE;
        if self.last != Some(piece) {
            self.last = Some(piece);
            self.end_piece();
        }
        self.piece.add(class);
        while self
            .functions
            .get(self.next)
            .is_some_and(|function| function.range.end <= at)
        {
            self.next += 1;
        }
        if let Some(function) = self.functions.get_mut(self.next)
            && function.range.contains(&at)
        {
            function.found.add(class);
        }
    }

    fn end_piece(&mut self) {
        let found = std::mem::take(&mut self.piece);
        if found.neon > 0 {
            self.with += 1;
        } else {
            self.elsewhere.doubles += found.doubles;
            self.elsewhere.high += found.high;
        }
    }

    /// The spread by function, or by piece if known functions cover less than half of the `code` bytes.
    pub(super) fn spread(mut self, code: usize) -> Spread {
        let covered: usize = self
            .functions
            .iter()
            .map(|function| function.range.len())
            .sum();
        let by_function = !self.functions.is_empty() && covered >= code / 2;
        self.end_piece();
        let all = self.functions.len() as u64;
        let elsewhere = if by_function {
            let without = self
                .functions
                .iter()
                .filter(|function| function.found.neon == 0);
            without.fold(Found::default(), |sum, function| Found {
                neon: 0,
                doubles: sum.doubles + function.found.doubles,
                high: sum.high + function.found.high,
            })
        } else {
            self.elsewhere
        };
        self.functions.retain(|function| function.found.neon > 0);
        self.functions
            .sort_by_key(|function| Reverse(function.found.neon));
        Spread {
            with_neon: if by_function {
                self.functions.len() as u64
            } else {
                self.with
            },
            all: if by_function { all } else { self.pieces },
            functions: by_function,
            names: self
                .functions
                .iter()
                .take(NAMES)
                .map(|function| text(function.name))
                .collect(),
            doubles_elsewhere: elsewhere.doubles,
            high_elsewhere: elsewhere.high,
        }
    }
}
