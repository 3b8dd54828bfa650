//! Why the blocks of a file are not known.

use std::path::PathBuf;

use dcd_daemon::units_text::format_size;

/// Why the blocks of a file are not known.
#[derive(Debug, thiserror::Error)]
pub enum FileBlocksError {
    /// A file system whose addresses are its own.
    #[error(
        "{}: only ext2, ext3, ext4, XFS, F2FS and dhisfs tell where their files lie", path.display()
    )]
    FileSystem {
        /// The file.
        path: PathBuf,
    },
    /// The device below is not the one of this dcd.
    #[error(
        "{}: its file system is not on the device of this dcd: {found}", path.display()
    )]
    OtherDevice {
        /// The file.
        path: PathBuf,
        /// What it is on.
        found: String,
    },
    /// The file system does not begin where the user says.
    #[error("{}: its file system does not begin at byte {offset} of the volume: {found}", path.display())]
    Offset {
        /// The file.
        path: PathBuf,
        /// What was said.
        offset: u64,
        /// What is known.
        found: String,
    },
    /// It is a dhisfs, which needs nobody for that.
    #[error("{}: a dhisfs tells the volume what its files and its metadata are itself", path.display())]
    Dhisfs {
        /// The file.
        path: PathBuf,
    },
    /// It has blocks, and none of them is on the volume.
    #[error("{}: none of its blocks is on the volume of {}", path.display(), format_size(*volume_bytes))]
    Elsewhere {
        /// The file.
        path: PathBuf,
        /// Size of the volume.
        volume_bytes: u64,
    },
}

impl FileBlocksError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            FileBlocksError::FileSystem { .. } => {
                "use one of these, or tell the attributes of blocks on the control socket".into()
            }
            FileBlocksError::OtherDevice { .. } => {
                "is it the right --control? --offset BYTES says where on the volume the file system begins".into()
            }
            FileBlocksError::Offset { .. } => {
                "leave --offset out: partitions and loop devices are followed; it is for what lies on device-mapper".into()
            }
            FileBlocksError::Dhisfs { .. } => {
                "rules for names are those of `dcd dhisfs mount --rules`".into()
            }
            FileBlocksError::Elsewhere { .. } => "is it the right --control, and --offset?".into(),
        }
    }
}
