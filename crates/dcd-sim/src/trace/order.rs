//! Requests in order of time, out of those that are nearly so: each may be recorded after some later
//! ones. Of the same time they stay as in the file.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::Request;

/// Requests that were read and not yet given out.
#[derive(Default)]
pub(super) struct Order {
    /// Each as late as the one before, or later: nearly all.
    run: VecDeque<Request>,
    /// The rest. Traces have tens of thousands of them at once, too many to be moved about.
    late: BinaryHeap<Late>,
}

struct Late(Request);

impl Order {
    pub fn len(&self) -> usize {
        self.run.len() + self.late.len()
    }

    pub fn push(&mut self, request: Request) {
        if self.run.back().is_some_and(|last| last.time_ns > request.time_ns) {
            self.late.push(Late(request));
        } else {
            self.run.push_back(request);
        }
    }

    /// The earliest.
    pub fn pop(&mut self) -> Option<Request> {
        match (self.run.front(), self.late.peek()) {
            (Some(first), Some(Late(late))) if place(late) < place(first) => {}
            (Some(_), _) => return self.run.pop_front(),
            (None, _) => {}
        }
        self.late.pop().map(|Late(request)| request)
    }

    pub fn clear(&mut self) {
        self.run.clear();
        self.late.clear();
    }
}

fn place(request: &Request) -> (u64, u64) {
    (request.time_ns, request.line)
}

/// The earliest is the greatest, as the heap wants it.
impl Ord for Late {
    fn cmp(&self, other: &Late) -> Ordering {
        place(&other.0).cmp(&place(&self.0))
    }
}

impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Late) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Late {
    fn eq(&self, other: &Late) -> bool {
        place(&self.0) == place(&other.0)
    }
}

impl Eq for Late {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Operation;

    fn request(time_ns: u64, line: u64) -> Request {
        Request {
            time_ns,
            operation: Operation::Read,
            device: 0,
            offset_bytes: 0,
            size_bytes: 512,
            flags: Default::default(),
            latency_ns: None,
            line,
            column: 1,
        }
    }

    /// Against a sort that keeps the order of equals.
    #[test]
    fn the_earliest_comes_first_and_equals_as_in_the_file() {
        let times = [5, 3, 5, 9, 1, 3, 3, 9, 2, 9, 0, 5, 7, 7, 1];
        let mut order = Order::default();
        let mut wanted: Vec<_> = times.iter().copied().zip(1..).collect();
        wanted.iter().for_each(|(time_ns, line)| order.push(request(*time_ns, *line)));
        assert_eq!(order.len(), times.len());
        wanted.sort_by_key(|(time_ns, _)| *time_ns);
        let given: Vec<_> = std::iter::from_fn(|| order.pop()).map(|it| place(&it)).collect();
        assert_eq!(given, wanted);
    }
}
