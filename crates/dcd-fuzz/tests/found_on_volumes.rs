//! Runs on volumes that once failed, shrunk, as `dcd fuzz --volume` prints them.

use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::run;
use dcd_fuzz::volume::script::Event::*;
use dcd_fuzz::volume::script::{Plain, VolumeScript};

#[track_caller]
fn replay(script: VolumeScript) {
    if let Err(failure) = run::replay(&script, false) {
        panic!("{}", failure.violation);
    }
}

// A parity rotted, a rebuild gave up the line that it was needed for, and the journal wrote the parity again: the column had one
// line less than the model knew.
#[test]
fn raid5_seed_1046() {
    replay(VolumeScript {
        kind: VolumeKind::Raid5,
        seed: 1046,
        plain: vec![Plain::OlderDisks, Plain::Shears, Plain::CannotZero],
        start: 0xf519f86ee2385f88,
        events: vec![
            // one Flush of MemberIndex(3) fails, or takes long
            CalmOp(0xd06e3b718a5e6cee),
            // write 72+8
            // zero 136+8
            // write 800+64
            // write 104+120
            CalmOp(0xcffe76b4868c83c3),
            // all I/Os end
            CalmOp(0xe6019463fd13f9e2),
            // volume(rebuild { member: memberindex(3) })
            // 9 I/Os end
            CalmOp(0xdb1b8cd2df4c5554),
            // 5 I/Os end
            // a rebuild has ended: rest
            CalmOp(0xfec05e835964ddac),
            // MemberIndex(2) rots at 1077248: LinePlace { set: 0, stripe: 1, unit: 2, line_in_unit: 3 }
            CalmOp(0xe92b5dee58cdc193),
            // volume(failmember { member: memberindex(3) })
            // 2 I/Os end
            CalmOp(0x4ca88dbc238310a),
            // volume(rebuild { member: memberindex(3) })
            // all I/Os end
            // a rebuild has ended: rest
            CalmOp(0xa14832eed1cdc40),
            // power cut
            // member 0 is replaced by a blank one
            // a start is interrupted after 1 I/Os
            Op(0x7c6620d069f9810a),
        ],
    });
}
