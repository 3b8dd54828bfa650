//! Memory that others can take away while it is mapped here. An access then ends in SIGBUS, which
//! would end the process and all that it serves.
//!
//! ```text
//! guest memory     an access says first what it touches. If that is gone, the signal puts zeroes in its place, notes that, and
//!                  the access goes on with them; whoever made it asks `is_lost` before it believes
//!                  anything.
//! segment memory   nothing can be put in its place. The process says what has happened, and ends.
//! ```
//! The signal arrives on the thread that made the access, so all that it looks at is of that
//! thread: no other one can be in the middle of anything.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

/// What a thread is touching.
struct Access {
    start: AtomicUsize,
    len: AtomicUsize,
    is_lost: AtomicBool,
    /// Made on the thread: nobody else sees it.
    _of_thread: Cell<()>,
}

thread_local! {
    // Without a destructor and made when compiling, so that a signal may look at it.
    static ACCESS: Access = const {
        Access {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
            _of_thread: Cell::new(()),
        }
    };
}

/// The segment memory of this process, or the last of several, for the message.
static SEGMENTS_START: AtomicUsize = AtomicUsize::new(0);
static SEGMENTS_LEN: AtomicUsize = AtomicUsize::new(0);

/// From now on a signal finds out. To be called before the first access.
pub(crate) fn expect_faults() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a zeroed `sigaction` is a valid one. The handler is a function of this type
        // (SA_SIGINFO), and does only what a signal handler may do.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    });
}

/// Names the segment memory in what is said when it is gone.
pub(crate) fn tell_of_segments(start: usize, len: usize) {
    expect_faults();
    SEGMENTS_START.store(start, Ordering::Relaxed);
    SEGMENTS_LEN.store(len, Ordering::Relaxed);
}

/// Touches memory of a mapping, all of which may be replaced by zeroes meanwhile. It must be a
/// mapping of nothing else, from start to end, and stay one until this returns.
pub(crate) fn guarded<T>(start: usize, len: usize, touch: impl FnOnce() -> T) -> T {
    ACCESS.with(|access| {
        access.len.store(len, Ordering::Relaxed);
        access.start.store(start, Ordering::Relaxed);
        // The signal comes from within, on this thread: the order is the compiler's alone.
        compiler_fence(Ordering::SeqCst);
        let touched = touch();
        compiler_fence(Ordering::SeqCst);
        access.len.store(0, Ordering::Relaxed);
        touched
    })
}

/// Whether memory that this thread has touched was gone: what it read may be zeroes that nobody
/// wrote.
pub(crate) fn is_lost() -> bool {
    ACCESS.with(|access| access.is_lost.load(Ordering::Relaxed))
}

/// Nothing of it is used any more.
pub(crate) fn forget_lost() {
    ACCESS.with(|access| access.is_lost.store(false, Ordering::Relaxed));
}

extern "C" fn on_bus_error(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a signal with SA_SIGINFO its information, and for SIGBUS that has an
    // address.
    let address = unsafe { (*info).si_addr() } as usize;
    let is_replaced = ACCESS.try_with(|access| {
        let start = access.start.load(Ordering::Relaxed);
        let len = access.len.load(Ordering::Relaxed);
        if address.wrapping_sub(start) >= len || !replace(start, len) {
            return false;
        }
        access.is_lost.store(true, Ordering::Relaxed);
        true
    });
    if is_replaced.unwrap_or(false) {
        return;
    }
    let segments = SEGMENTS_START.load(Ordering::Relaxed);
    let text: &[u8] = if address.wrapping_sub(segments) < SEGMENTS_LEN.load(Ordering::Relaxed) {
        b"dcd: the segment memory is gone below the process: somebody has cut its file short, or a page of it is broken. It \
          ends; what was acknowledged in the last max-delay and not flushed may be lost\n"
    } else {
        b"dcd: memory is gone below the process (SIGBUS)\n"
    };
    // SAFETY: writing these bytes and taking back the handler is all that happens; both may be done
    // in one. The access is made again, and the process ends as it would have without us.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
}

/// Puts memory of zeroes in the place of a mapping.
fn replace(start: usize, len: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: by the contract of `guarded`, the range is one mapping, whole, and whoever touches it
    // expects that it becomes zeroes. Only a system call is made.
    unsafe { libc::mmap(start as *mut c_void, len, protection, flags, -1, 0) != libc::MAP_FAILED }
}
