//! What a change of a share's size has left over whose process died between the log and the
//! directory: the share has room that its log has not. The next start gives it back.

use dcd_engine::TieredEngine;
use dcd_engine::format::share_directory::Windows;
use dcd_engine::legs::LegStanding;

use crate::event_loop::EventLoop;
use crate::units_text::format_size;

/// To be called when the cache runs, and both copies of its superblock are of this session.
pub(crate) fn give_back_left_over(event_loop: &EventLoop<TieredEngine>, is_quiet: bool) {
    let engine = event_loop.core();
    let mut standings = engine.legs().filter_map(|leg| leg.standing);
    let legs_are_well = standings.all(LegStanding::has_newest_size);
    if engine.config().read_only || engine.cache_disk_failure().is_some() || !legs_are_well {
        return;
    }
    for (place, share) in event_loop.rooms().unwrap_or_default() {
        let mut tell = |windows: Windows| event_loop.set_windows(place, share.disk(), windows);
        match share.give_back(0, &mut tell) {
            Ok(bytes) if bytes == 0 || is_quiet => {}
            Ok(bytes) => eprintln!(
                "dcd: a change of the size of this share was cut off: {} that its log has not are free again",
                format_size(bytes)
            ),
            // It is its own room: the next start, or change, tries again.
            Err(error) => eprintln!("dcd: room of this share is not given back yet: {error}"),
        }
    }
}
