//! Files, block devices and mounts as Linux shows them: named, opened, locked, recognised,
//! overwritten, made and taken away. What is done with an open one is for [`crate::ring`] and
//! [`crate::disk`].

pub(crate) mod claim;
pub mod device_file;
pub mod device_spec;
pub mod fiemap;
pub mod file_watch;
pub mod foreign_content;
pub(crate) mod fuse_error;
pub(crate) mod fuse_mount;
pub mod identity;
pub mod loop_device;
pub(crate) mod mounts;
pub mod network;
pub(crate) mod share_room;
pub mod shares;
pub(crate) mod way;
pub mod wipe;
