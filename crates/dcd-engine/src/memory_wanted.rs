//! Which segment memory a start needs (C4), and what is lost without it. One rule for all drivers:
//! each brings what only it can know, the boot of the machine and the memories that it finds; the
//! engine opens no file.
//!
//! ```text
//! the superblock says                        a start takes            without it
//! closed, detached                           a new one                nothing is lost
//! open, and does not say which memory        what has the right name  as it always was: not known
//! open, with memory of another boot          a new one                as after any power cut
//! open, with memory of this boot             that one, no other       refused, if it acknowledged from there
//! ```

use crate::format::superblock::{CacheState, MemoryIdentity, Superblock};
use crate::units::Duration;

/// What a start looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryWanted<'a> {
    /// No session is open, or it was in another boot: nothing of it can be in any memory.
    Nothing,
    /// The session did not say: whatever has the name of the cache's memory.
    Unnamed,
    /// This one.
    This(&'a MemoryIdentity),
}

impl Superblock {
    /// What a start in this boot looks for.
    pub fn memory_wanted(&self, boot_id: [u8; 16]) -> MemoryWanted<'_> {
        match &self.memory {
            _ if self.state != CacheState::Open => MemoryWanted::Nothing,
            None => MemoryWanted::Unnamed,
            Some(memory) if memory.boot_id == boot_id => MemoryWanted::This(memory),
            Some(_) => MemoryWanted::Nothing,
        }
    }
}

impl MemoryWanted<'_> {
    /// Whether a memory of this boot with this identity is the one.
    pub fn is(&self, memory_id: [u8; 16]) -> bool {
        match self {
            MemoryWanted::Nothing => false,
            MemoryWanted::Unnamed => true,
            MemoryWanted::This(memory) => memory.memory_id == memory_id,
        }
    }

    /// Without it, what was acknowledged so long before the end and not flushed is lost; `None`:
    /// nothing is.
    pub fn loses(&self) -> Option<Duration> {
        let MemoryWanted::This(memory) = self else { return None };
        let milliseconds = u64::from(memory.max_delay_milliseconds);
        (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DataDiskInfo;
    use crate::format::Geometry;
    use crate::units::Uuid;

    const BOOT: [u8; 16] = [1; 16];

    fn superblock(state: CacheState, max_delay_milliseconds: Option<u32>) -> Superblock {
        Superblock {
            uuid: Uuid([3; 16]),
            generation: 4,
            state,
            geometry: Geometry::fit(16 << 20, 128 << 10).unwrap(),
            data_disk: DataDiskInfo {
                blocks: 4096,
                logical_block_size: 512,
                physical_sector_size: 4096,
            },
            data_disk_serial: String::new(),
            created_unix_seconds: 0,
            volume_bytes: 0,
            volume_moved_to: 0,
            data_offset_bytes: 0,
            data_label_epoch: 0,
            has_end_mark: false,
            has_legs: false,
            resized: None,
            nvram: None,
            memory: max_delay_milliseconds.map(|max_delay_milliseconds| MemoryIdentity {
                boot_id: BOOT,
                memory_id: [7; 16],
                place: "/dev/shm".into(),
                max_delay_milliseconds,
            }),
        }
    }

    #[test]
    fn the_memory_of_an_open_session_is_wanted_in_its_boot_and_no_other() {
        let open = superblock(CacheState::Open, Some(5000));
        let wanted = open.memory_wanted(BOOT);
        assert!(wanted.is([7; 16]) && !wanted.is([8; 16]) && !wanted.is([0; 16]));
        assert_eq!(wanted.loses(), Some(Duration::from_secs(5)));
        // After a boot it cannot be there.
        let wanted = open.memory_wanted([2; 16]);
        assert_eq!(
            (wanted, wanted.loses(), wanted.is([7; 16])),
            (MemoryWanted::Nothing, None, false)
        );
        // Nothing rests in it where all is durable, but it may be there, and is that one.
        let durable = superblock(CacheState::Open, Some(0));
        let wanted = durable.memory_wanted(BOOT);
        assert_eq!((wanted.loses(), wanted.is([7; 16]), wanted.is([8; 16])), (None, true, false));
        // What an older program left has no identity.
        let unnamed = superblock(CacheState::Open, None);
        let wanted = unnamed.memory_wanted(BOOT);
        assert_eq!((wanted.loses(), wanted.is([0; 16]), wanted.is([8; 16])), (None, true, true));
        for state in [CacheState::Closed, CacheState::Detached] {
            let closed = superblock(state, Some(5000));
            assert_eq!(closed.memory_wanted(BOOT), MemoryWanted::Nothing);
        }
    }
}
