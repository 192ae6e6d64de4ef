//! Flattened device trees: the kernel's description of a board, and the container of FIT images.
//!
//! Reads format versions 16 and 17 (Devicetree Specification v0.4, chapter 5), which every compiler has
//! written since 2007. [`Dtb::parse`] walks the whole tree once and rejects malformed input; later calls
//! only follow checked offsets. The reader copies nothing.

use crate::bytes::BIG;

/// Magic number of a device tree: its first four bytes.
pub const MAGIC: [u8; 4] = [0xd0, 0x0d, 0xfe, 0xed];

/// Deepest nesting that the reader accepts. Real trees have about eight levels.
const DEPTH: u32 = 64;

/// Longest name that the reader accepts, in bytes; the specification allows 31. Without a limit, properties
/// that share one endless name would cost the square of the tree's size.
const NAME: usize = 255;

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;

/// A well-formed device tree.
#[derive(Clone, Copy, Debug)]
pub struct Dtb<'a> {
    structure: &'a [u8],
    strings: &'a [u8],
}

impl<'a> Dtb<'a> {
    /// Parses the tree at the start of `bytes`; other data may follow it. `None` unless it is a whole,
    /// well-formed tree of format 16 or 17.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if !bytes.starts_with(&MAGIC) {
            return None;
        }
        let field = |index: usize| word(bytes, index * 4);
        let length = |index: usize| usize::try_from(field(index)?).ok();
        let whole = bytes.get(..length(1)?)?;
        let version = field(5)?;
        if version < 16 || field(6)? > 17 {
            return None;
        }
        let start = length(2)?;
        let structure = match version {
            16 => whole.get(start..)?,
            _ => whole.get(start..start.checked_add(length(9)?)?)?,
        };
        let start = length(3)?;
        let strings = whole.get(start..start.checked_add(length(8)?)?)?;
        let tree = Self { structure, strings };
        tree.is_well_formed().then_some(tree)
    }

    /// Returns the root node.
    #[must_use]
    pub fn root(&self) -> Node<'a> {
        let mut tokens = self.tokens(0);
        match tokens.next() {
            Some((_, Token::Begin(name))) => Node {
                tree: *self,
                name,
                at: tokens.at,
            },
            // `is_well_formed` has seen the root; an empty node covers the impossible case.
            _ => Node {
                tree: *self,
                name: b"",
                at: self.structure.len(),
            },
        }
    }

    /// Walks the whole tree once and checks its form: one root, nothing outside of it, every node ended, and
    /// no more than [`DEPTH`] levels.
    fn is_well_formed(&self) -> bool {
        let mut tokens = self.tokens(0);
        let mut depth = 0;
        let mut is_first = true;
        loop {
            match tokens.next() {
                Some((_, Token::Begin(_))) if depth == DEPTH || depth == 0 && !is_first => {
                    return false;
                }
                Some((_, Token::Begin(_))) => {
                    depth += 1;
                    is_first = false;
                }
                Some(_) if depth == 0 => return false,
                Some((_, Token::End)) => depth -= 1,
                Some((_, Token::Property(_))) => {}
                None => return tokens.ended && depth == 0 && !is_first,
            }
        }
    }

    fn tokens(&self, at: usize) -> Tokens<'a> {
        Tokens {
            tree: *self,
            at,
            ended: false,
        }
    }
}

/// One node of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    tree: Dtb<'a>,
    name: &'a [u8],
    /// Offset of the node's contents.
    at: usize,
}

impl<'a> Node<'a> {
    /// The node's name, `@` and unit address included; `""` for the root, and for names that are not UTF-8.
    #[must_use]
    pub fn name(&self) -> &'a str {
        std::str::from_utf8(self.name).unwrap_or("")
    }

    /// The node's properties, in the order of the tree.
    pub fn properties(&self) -> impl Iterator<Item = Property<'a>> + use<'a> {
        self.contents().filter_map(|content| match content {
            Content::Property(property) => Some(property),
            Content::Child(_) => None,
        })
    }

    /// The property of this name.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<Property<'a>> {
        self.properties().find(|property| property.name == name)
    }

    /// The node's direct children, in the order of the tree.
    pub fn children(&self) -> impl Iterator<Item = Self> + use<'a> {
        self.contents().filter_map(|content| match content {
            Content::Property(_) => None,
            Content::Child(node) => Some(node),
        })
    }

    /// The child of this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<Self> {
        self.children().find(|node| node.name == name.as_bytes())
    }

    /// The properties and nodes directly in the node.
    fn contents(&self) -> impl Iterator<Item = Content<'a>> + use<'a> {
        let tree = self.tree;
        let mut tokens = tree.tokens(self.at);
        let mut depth = 0_u32;
        let mut done = false;
        std::iter::from_fn(move || {
            while !done {
                match tokens.next() {
                    Some((at, Token::Begin(name))) => {
                        depth = depth.saturating_add(1);
                        if depth == 1 {
                            return Some(Content::Child(Node { tree, name, at }));
                        }
                    }
                    Some((_, Token::End)) if depth > 0 => depth -= 1,
                    Some((_, Token::Property(property))) if depth == 0 => {
                        return Some(Content::Property(property));
                    }
                    Some((_, Token::Property(_))) => {}
                    Some((_, Token::End)) | None => done = true,
                }
            }
            None
        })
    }
}

enum Content<'a> {
    Property(Property<'a>),
    Child(Node<'a>),
}

/// One property of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property<'a> {
    /// The property's name; `""` if it is not UTF-8.
    pub name: &'a str,
    /// The property's bytes.
    pub value: &'a [u8],
}

impl<'a> Property<'a> {
    /// The value as text, up to its first zero byte.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        self.texts().next()
    }

    /// The value as a list of zero-terminated texts, such as `compatible`. Texts that are not UTF-8 are
    /// left out.
    pub fn texts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        texts(self.value)
    }

    /// The value as one 32-bit cell.
    #[must_use]
    pub fn cell(&self) -> Option<u32> {
        if self.value.len() == 4 {
            word(self.value, 0)
        } else {
            None
        }
    }
}

/// Zero-terminated texts, as in a property or in a file of `/proc/device-tree`. Empty texts, and texts that
/// are not UTF-8, are left out.
pub fn texts(value: &[u8]) -> impl Iterator<Item = &str> {
    value
        .split(|byte| *byte == 0)
        .filter_map(|text| std::str::from_utf8(text).ok())
        .filter(|text| !text.is_empty())
}

enum Token<'a> {
    Begin(&'a [u8]),
    End,
    Property(Property<'a>),
}

/// Tokens of the structure block, each with the offset after it. On malformed bytes the iterator stops with
/// `ended` unset.
struct Tokens<'a> {
    tree: Dtb<'a>,
    at: usize,
    ended: bool,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (usize, Token<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.tree.structure;
        loop {
            let kind = word(bytes, self.at)?;
            let body = self.at.checked_add(4)?;
            let (end, token) = match kind {
                BEGIN_NODE => {
                    let name = text(bytes, body)?;
                    (body + name.len() + 1, Some(Token::Begin(name)))
                }
                END_NODE => (body, Some(Token::End)),
                PROPERTY => {
                    let length = usize::try_from(word(bytes, body)?).ok()?;
                    let name = text(
                        self.tree.strings,
                        usize::try_from(word(bytes, body + 4)?).ok()?,
                    )?;
                    let name = std::str::from_utf8(name).unwrap_or("");
                    let end = body.checked_add(8)?.checked_add(length)?;
                    (
                        end,
                        Some(Token::Property(Property {
                            name,
                            value: bytes.get(body + 8..end)?,
                        })),
                    )
                }
                NOP => (body, None),
                END => {
                    self.ended = true;
                    return None;
                }
                _ => return None,
            };
            // Tokens begin at multiples of four.
            self.at = end.checked_next_multiple_of(4)?;
            if let Some(token) = token {
                return Some((self.at, token));
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    BIG.u32(bytes, at)
}

fn text(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let rest = &rest[..rest.len().min(NAME + 1)];
    rest.get(..rest.iter().position(|byte| *byte == 0)?)
}

#[cfg(test)]
pub(crate) mod tests;
