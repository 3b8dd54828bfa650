//! Work that must not hold, or be held by, files that this process has open.

use std::io;

/// Runs `work` on a thread that shares no open files with this process, and waits for it.
///
/// The thread must open what it needs by itself. [`crate::device::loop_device`] says why.
pub(crate) fn without_open_files<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("dcd-loop".to_owned()).spawn_scoped(scope, || {
                leave_open_files();
                work()
            })?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Gives the calling thread a table of open files of its own, with nothing in it but the standard
/// ones. Before Linux 5.9 it does nothing; there the danger described there remains.
fn leave_open_files() {
    // SAFETY: the call touches no memory. It takes descriptors away from this thread only, whose
    // closure owns none and borrows none (`without_open_files` is given paths and numbers).
    unsafe {
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_sees_no_open_files() {
        let count =
            without_open_files(|| std::fs::read_dir("/proc/thread-self/fd").unwrap().count());
        // The standard three at most, and the directory itself.
        assert!(count.unwrap() <= 4);
    }
}
