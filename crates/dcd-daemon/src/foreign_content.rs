//! What a disk looks like that is about to be overwritten: the marks that file systems, partition
//! tables and disk images leave at fixed places. `dcd create` refuses such a disk without --force,
//! because swapped arguments would otherwise cost a file system.

/// Bytes from the start that hold every mark.
pub const LENGTH: usize = 68 << 10;

/// What it looks like, byte address of the mark, the mark.
const MARKS: &[(&str, usize, &[u8])] = &[
    ("an ext2, ext3 or ext4 file system", 1080, &[0x53, 0xef]),
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 0x10040, b"_BHRfS_M"),
    ("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 82, b"FAT32   "),
    ("a FAT file system", 54, b"FAT1"),
    ("an ISO 9660 file system", 32769, b"CD001"),
    ("a squashfs file system", 0, b"hsqs"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("an encrypted disk (LUKS)", 0, b"LUKS\xba\xbe"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("a member of a RAID (md)", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a bcache device", 4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca]),
    ("a disk image (qcow2)", 0, b"QFI\xfb"),
    ("a partition table (GPT)", 512, b"EFI PART"),
    ("a partition table (GPT)", 4096, b"EFI PART"),
    // Last: also the mark of a boot sector.
    ("a partition table or boot sector", 510, &[0x55, 0xaa]),
];

/// What the first bytes of a disk look like, if they look like anything.
pub fn recognise(start: &[u8]) -> Option<&'static str> {
    let has = |at: usize, mark: &[u8]| start.get(at..at + mark.len()) == Some(mark);
    MARKS.iter().find(|(_, at, mark)| has(*at, mark)).map(|(name, ..)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_lies_in_what_is_read_and_is_found() {
        for (name, at, mark) in MARKS {
            let mut start = vec![0; LENGTH];
            start[*at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(recognise(&start), Some(*name));
        }
        assert_eq!(recognise(&[0; LENGTH]), None);
        assert_eq!(recognise(&[]), None);
    }
}
