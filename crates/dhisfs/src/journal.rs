//! The journal: a ring of blocks that transactions are written to before anything they change.
//!
//! It knows nothing of files. What has to happen in which order is in [`crate::commit`].

use dcd_client::BlockDevice;

use crate::error::{FsError, FsResult};
use crate::format::journal_header::{JournalHeader, Position};
use crate::format::superblock::{Superblock, decode_index};
use crate::format::transaction::{Transaction, blocks_of};
use crate::runs::read_blocks;

/// The journal of a file system.
pub(crate) struct Journal {
    uuid: [u8; 16],
    block_bytes: usize,
    /// The ring.
    blocks: Vec<u64>,
    header_blocks: [u64; 2],
    header: JournalHeader,
    /// Where the next transaction goes.
    next: Position,
}

impl Journal {
    /// Finds it; nothing has been read from the ring.
    pub(crate) fn open(
        device: &mut impl BlockDevice,
        superblock: &Superblock,
    ) -> FsResult<Journal> {
        let block_bytes = superblock.block_bytes;
        let damaged = |block| move |source| FsError::Damaged { block, source };
        let mut blocks = Vec::new();
        for index in &superblock.journal_indexes {
            let mut bytes = vec![0; block_bytes];
            read_blocks(device, &[Some(*index)], &mut bytes)?;
            let list = decode_index(&bytes, *index, device.geometry().blocks);
            blocks.extend(list.map_err(damaged(*index))?);
        }
        let mut newest: Option<JournalHeader> = None;
        let mut problem = None;
        for block in superblock.journal_headers {
            let mut bytes = vec![0; block_bytes];
            read_blocks(device, &[Some(block)], &mut bytes)?;
            match JournalHeader::decode(&bytes, block) {
                Ok(header) => {
                    newest = Some(newest.filter(|it| it.serial > header.serial).unwrap_or(header));
                }
                Err(source) => problem = Some(FsError::Damaged { block, source }),
            }
        }
        let header = match (newest, problem) {
            (Some(header), _) => header,
            (None, Some(problem)) => return Err(problem),
            (None, None) => unreachable!("two blocks were looked at"),
        };
        if blocks.len() as u64 != superblock.journal_blocks {
            let source = crate::format::FormatError::Field {
                kind: "superblock",
                field: "size of the journal",
            };
            return Err(FsError::Damaged { block: 0, source });
        }
        Ok(Journal {
            uuid: superblock.uuid,
            block_bytes,
            blocks,
            header_blocks: superblock.journal_headers,
            header,
            next: header.pointers_from,
        })
    }

    /// All blocks of the ring.
    pub(crate) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// From which transaction on blocks may not be in their places.
    pub(crate) fn images_from(&self) -> u64 {
        self.header.images_from.sequence
    }

    /// The number of the next transaction.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next.sequence
    }

    /// How many blocks the ring has, and how many of them are taken.
    pub(crate) fn fill(&self) -> (usize, usize) {
        (self.blocks.len(), (self.next.block - self.header.pointers_from.block) as usize)
    }

    fn place(&self, position: u64) -> u64 {
        self.blocks[(position % self.blocks.len() as u64) as usize]
    }

    /// The transactions that are there, in order. The next one goes behind them.
    pub(crate) fn read_all(&mut self, device: &mut impl BlockDevice) -> FsResult<Vec<Transaction>> {
        let mut transactions = Vec::new();
        while let Some(transaction) = self.read_next(device)? {
            transactions.push(transaction);
        }
        Ok(transactions)
    }

    /// The next one, if it is there: the end is what is no whole transaction of the right number.
    fn read_next(&mut self, device: &mut impl BlockDevice) -> FsResult<Option<Transaction>> {
        let Position { sequence, block: position } = self.next;
        let (all, taken) = self.fill();
        let mut bytes = vec![0; self.block_bytes];
        if all == taken {
            return Ok(None);
        }
        read_blocks(device, &[Some(self.place(position))], &mut bytes)?;
        let Some(blocks) = Transaction::blocks(&bytes, sequence) else { return Ok(None) };
        if blocks > (all - taken) as u64 {
            return Ok(None);
        }
        bytes.resize(blocks as usize * self.block_bytes, 0);
        let places: Vec<_> = (0..blocks).map(|i| Some(self.place(position + i))).collect();
        read_blocks(device, &places, &mut bytes)?;
        let device_blocks = device.geometry().blocks;
        let found =
            Transaction::decode(&bytes, self.block_bytes, &self.uuid, position, device_blocks);
        let Ok(transaction) = found else { return Ok(None) };
        self.next = Position { sequence: sequence + 1, block: position + blocks };
        Ok(Some(transaction))
    }

    /// Whether a transaction with so much in it finds room.
    pub(crate) fn has_room(&self, images: usize, changes: usize) -> bool {
        let (all, taken) = self.fill();
        blocks_of(self.block_bytes, images, changes) <= all - taken
    }

    /// What has to be written where for a transaction, for which there is room. The next one goes
    /// behind it.
    pub(crate) fn append(&mut self, transaction: &Transaction) -> (Vec<u64>, Vec<u8>) {
        let bytes = transaction.encode(self.block_bytes, &self.uuid, self.next.block);
        let end = self.next.block + (bytes.len() / self.block_bytes) as u64;
        let places = (self.next.block..end).map(|position| self.place(position)).collect();
        self.next.sequence += 1;
        self.next.block = end;
        (places, bytes)
    }

    /// What has to be written when every block is in its place: that no image is needed any more.
    pub(crate) fn images_are_home(&mut self) -> HeaderWrite {
        self.header.images_from = self.next;
        self.next_header()
    }

    /// What has to be written when the device knows all pointers: that nothing in the ring is
    /// needed any more.
    pub(crate) fn pointers_are_told(&mut self) -> HeaderWrite {
        self.header.pointers_from = self.next;
        self.next_header()
    }

    fn next_header(&mut self) -> HeaderWrite {
        self.header.serial += 1;
        let block = self.header_blocks[(self.header.serial % 2) as usize];
        HeaderWrite { block, bytes: self.header.encode(self.block_bytes, block) }
    }
}

/// A header, and the block it goes to.
pub(crate) struct HeaderWrite {
    pub(crate) block: u64,
    pub(crate) bytes: Vec<u8>,
}
