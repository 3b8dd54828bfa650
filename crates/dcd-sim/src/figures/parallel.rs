//! The same done with many things, on several threads; results in their order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` with each of the items; tells `progress` how many of how many are done.
pub(super) fn map<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    progress: impl FnMut(usize, usize) + Send,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<R>> = Vec::new();
    results.resize_with(items.len(), || None);
    let shared = Mutex::new((0, results, progress));
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return };
            let result = work(item);
            let mut shared = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (done, results, progress) = &mut *shared;
            results[index] = Some(result);
            *done += 1;
            progress(*done, items.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(worker);
        }
    });
    let (_, results, _) = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.into_iter().map(|result| result.expect("each was done")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        let mut told = Vec::new();
        let results = super::map(&items, 3, |done, total| told.push((done, total)), |n| n * n);
        assert_eq!(results, items.iter().map(|n| n * n).collect::<Vec<_>>());
        assert_eq!(told, (1..=100).map(|done| (done, 100)).collect::<Vec<_>>());
        assert!(super::map(&[] as &[u64], 3, |_, _| {}, |n| *n).is_empty());
    }
}
