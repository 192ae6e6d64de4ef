//! Tables and fragments, with the blocks that were unpacked last.

use std::collections::HashMap;

use super::block::{Decoder, TableBlock};
use super::superblock::{METADATA, Position, Superblock};
use crate::unpack::budget::{Budget, Fault};

/// Maximum number of unpacked table blocks that are kept; no router's tables have more.
const KEPT: usize = 1024;

/// Maximum number of fragment blocks that are kept: small files share a block with their neighbours.
const FRAGMENTS_KEPT: usize = 4;

/// The tables of one image, with the most recently used unpacked blocks.
pub(super) struct Tables<'a> {
    pub(super) image: &'a [u8],
    pub(super) superblock: Superblock,
    decoder: Decoder,
    blocks: HashMap<u64, (Vec<u8>, u64)>,
    /// Bytes unpacked from the whole image, for the ratio limit.
    unpacked: u64,
}

impl<'a> Tables<'a> {
    pub(super) fn new(image: &'a [u8], superblock: Superblock, decoder: Decoder) -> Self {
        Self {
            image,
            superblock,
            decoder,
            blocks: HashMap::new(),
            unpacked: 0,
        }
    }

    /// Reads `count` bytes of the table that begins at `table`, from `position` and across blocks, and
    /// moves the position behind them.
    pub(super) fn read(
        &mut self,
        table: u64,
        position: &mut Position,
        count: usize,
        budget: &mut Budget,
    ) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::with_capacity(count.min(METADATA));
        while out.len() < count {
            let at = table.saturating_add(u64::from(position.block));
            if !self.blocks.contains_key(&at) {
                self.load(at, budget)?;
            }
            let Some((block, end)) = self.blocks.get(&at) else {
                return Err(Fault::part("a table ends early"));
            };
            let Some(rest) = block
                .get(usize::from(position.offset)..)
                .filter(|rest| !rest.is_empty())
            else {
                // Only a full block continues in the next one.
                if usize::from(position.offset) != block.len() || block.len() != METADATA {
                    return Err(Fault::part("a table ends early"));
                }
                let next = end
                    .checked_sub(table)
                    .and_then(|next| u32::try_from(next).ok());
                let next = next.ok_or_else(|| Fault::part("a table is too long"))?;
                *position = Position {
                    block: next,
                    offset: 0,
                };
                continue;
            };
            let take = rest.len().min(count - out.len());
            out.extend_from_slice(&rest[..take]);
            position.offset += take as u16;
        }
        Ok(out)
    }

    fn load(&mut self, at: u64, budget: &mut Budget) -> Result<(), Fault> {
        let block = TableBlock::at(self.image, &self.superblock, at)
            .ok_or_else(|| Fault::part("a table lies outside of the image"))?;
        let bytes = if block.packed {
            budget.unpacked(METADATA)?;
            self.decoder
                .unpack(block.bytes, METADATA)
                .map_err(Fault::Part)?
        } else {
            block.bytes.to_vec()
        };
        if self.blocks.len() >= KEPT {
            self.blocks.clear();
        }
        self.blocks.insert(at, (bytes, block.end));
        Ok(())
    }

    /// Reads a block of data. `size` comes from a block list; its bit 24 marks a stored block.
    pub(super) fn data(
        &mut self,
        start: u64,
        size: u32,
        budget: &mut Budget,
    ) -> Result<Vec<u8>, Fault> {
        let length = (size & 0x00ff_ffff) as usize;
        let most = self.superblock.block_size as usize;
        let bytes = usize::try_from(start)
            .ok()
            .and_then(|start| self.image.get(start..start.checked_add(length)?));
        let bytes = bytes.ok_or_else(|| Fault::part("its data lies outside of the image"))?;
        let out = if size & 0x0100_0000 == 0 {
            self.decoder.unpack(bytes, most).map_err(Fault::Part)?
        } else {
            bytes[..length.min(most)].to_vec()
        };
        self.account(out.len(), budget)?;
        Ok(out)
    }

    /// Counts unpacked bytes of the image.
    pub(super) fn account(&mut self, bytes: usize, budget: &mut Budget) -> Result<(), Fault> {
        budget.unpacked(bytes)?;
        self.unpacked += bytes as u64;
        if budget.is_bomb(self.unpacked, self.image.len() as u64) {
            return Err(Fault::part("it unpacks to more than can be true"));
        }
        Ok(())
    }
}

/// The fragments: blocks that hold the ends of many files.
pub(super) struct Fragments {
    /// Start and size of each fragment block.
    blocks: Vec<(u64, u32)>,
    kept: Vec<(u32, Vec<u8>)>,
}

impl Fragments {
    pub(super) fn read(tables: &mut Tables<'_>, budget: &mut Budget) -> Result<Self, Fault> {
        let order = tables.superblock.order;
        let count = tables.superblock.fragments as usize;
        let mut blocks = Vec::new();
        // Entries have sixteen bytes, 512 in a table block; the index holds the blocks' offsets.
        while blocks.len() < count {
            let index = tables
                .superblock
                .fragment_table
                .saturating_add(blocks.len() as u64 / 512 * 8);
            let at = usize::try_from(index)
                .ok()
                .and_then(|index| order.u64(tables.image, index));
            let at =
                at.ok_or_else(|| Fault::part("the table of fragments lies outside of the image"))?;
            let length = (count - blocks.len()).min(512) * 16;
            let bytes = tables.read(
                at,
                &mut Position {
                    block: 0,
                    offset: 0,
                },
                length,
                budget,
            )?;
            for entry in bytes.chunks_exact(16) {
                let start = order.u64(entry, 0).unwrap_or(u64::MAX);
                blocks.push((start, order.u32(entry, 8).unwrap_or(0)));
            }
        }
        Ok(Self {
            blocks,
            kept: Vec::new(),
        })
    }

    /// The `length` bytes at `offset` of a fragment.
    pub(super) fn part(
        &mut self,
        tables: &mut Tables<'_>,
        index: u32,
        offset: u32,
        length: usize,
        budget: &mut Budget,
    ) -> Result<&[u8], Fault> {
        let found = self.kept.iter().position(|(kept, _)| *kept == index);
        let found = if let Some(found) = found {
            found
        } else {
            let (start, size) = *self
                .blocks
                .get(index as usize)
                .ok_or_else(|| Fault::part("it has a fragment that does not exist"))?;
            let block = tables.data(start, size, budget)?;
            if self.kept.len() >= FRAGMENTS_KEPT {
                self.kept.remove(0);
            }
            self.kept.push((index, block));
            self.kept.len() - 1
        };
        let offset = offset as usize;
        let part = self.kept[found]
            .1
            .get(offset..)
            .and_then(|rest| rest.get(..length));
        part.ok_or_else(|| Fault::part("its fragment is too short"))
    }
}
