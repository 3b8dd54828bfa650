//! The letters with which Linux tells what a block request is: `R`, `WS`, `FWFSM`, `D`, ...
//! (`blk_fill_rwbs` in `kernel/trace/blktrace.c`, `fill_rwbs` in blkparse). Old kernels had barriers,
//! `WB`; blkparse prints `FN` for a flush that the kernel does not call a write.

use super::{Flags, Operation};

/// What letters mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rwbs {
    /// A request.
    Request(Operation, Flags),
    /// Nothing that moves data: a command of another kind, an operation on zones.
    Other,
}

/// The meaning of `text`; none if these are no such letters. `has_data` tells a write that follows
/// a flush from a flush alone.
pub(super) fn parse(text: &str, has_data: bool) -> Option<Rwbs> {
    let mut letters = text.as_bytes();
    let mut flags = Flags::default();
    // F before another operation: a flush goes before it.
    if let [b'F', b'R' | b'W' | b'D' | b'F' | b'N', ..] = letters {
        flags = flags.with(Flags::PREFLUSH);
        letters = &letters[1..];
    }
    let (operation, rest) = match letters {
        [b'R', rest @ ..] => (Operation::Read, rest),
        [b'W', rest @ ..] => (Operation::Write, rest),
        // Erased securely is a discard too.
        [b'D', b'E', rest @ ..] | [b'D', rest @ ..] => (Operation::Discard, rest),
        [b'F', rest @ ..] => (Operation::Flush, rest),
        [b'N', ..] if flags.contains(Flags::PREFLUSH) && !has_data => (Operation::Flush, &[][..]),
        [b'N' | b'Z', ..] => return Some(Rwbs::Other),
        _ => return None,
    };
    for letter in rest {
        flags = flags.with(match letter {
            b'F' => Flags::FUA,
            b'A' => Flags::READ_AHEAD,
            b'S' => Flags::SYNC,
            b'M' => Flags::METADATA,
            // What was there before is safe first, then this.
            b'B' => Flags::PREFLUSH.with(Flags::FUA),
            // Zeroes, or atomic: data all the same.
            b'Z' | b'U' => Flags::default(),
            _ => return None,
        });
    }
    let preflush = flags.contains(Flags::PREFLUSH);
    match operation {
        Operation::Flush => Some(Rwbs::Request(Operation::Flush, Flags::default())),
        Operation::Write if preflush && !has_data => {
            Some(Rwbs::Request(Operation::Flush, Flags::default()))
        }
        _ if !has_data => Some(Rwbs::Other),
        _ => Some(Rwbs::Request(operation, flags)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_mean_what_the_kernel_means() {
        let request = |operation, flags| Some(Rwbs::Request(operation, Flags(flags)));
        assert_eq!(parse("R", true), request(Operation::Read, 0));
        assert_eq!(parse("RAM", true), request(Operation::Read, 16 | 8));
        assert_eq!(parse("WFSM", true), request(Operation::Write, 1 | 2 | 8));
        assert_eq!(parse("FWFS", true), request(Operation::Write, 1 | 2 | 4));
        assert_eq!(parse("FWS", false), request(Operation::Flush, 0));
        assert_eq!(parse("FF", false), request(Operation::Flush, 0));
        assert_eq!(parse("F", false), request(Operation::Flush, 0));
        assert_eq!(parse("DS", true), request(Operation::Discard, 1));
        assert_eq!(parse("DE", true), request(Operation::Discard, 0));
        assert_eq!(parse("N", true), Some(Rwbs::Other));
        assert_eq!(parse("WS", false), Some(Rwbs::Other));
        assert_eq!(parse("FN", false), request(Operation::Flush, 0));
        assert_eq!(parse("FNS", false), request(Operation::Flush, 0));
        assert_eq!(parse("FN", true), Some(Rwbs::Other));
        assert_eq!(parse("WBS", true), request(Operation::Write, 1 | 2 | 4));
        assert_eq!(parse("WB", false), request(Operation::Flush, 0));
        for bad in ["", "X", "WX", "r", "8,0", "B"] {
            assert_eq!(parse(bad, true), None, "{bad}");
        }
    }
}
