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

// A block was freed while the log had no room, and the flush behind that did not wait for its discard: after a power cut it had
// what was there before.
#[test]
fn tiered_seed_1235() {
    replay(VolumeScript {
        kind: VolumeKind::Tiered,
        seed: 1235,
        plain: vec![
            Plain::Rots,
            Plain::Shears,
            Plain::BusyMembers,
            Plain::TemporaryRegion,
            Plain::LosesWrites,
            Plain::MembersFail,
        ],
        start: 0x489e4c815d41c4d8,
        events: vec![
            // write 2000+40
            CalmOp(0xb153340efd3be861),
            // 9 I/Os end
            // power cut, of a copy
            CalmOp(0x62765c1caafc21e5),
            // volume(allocate { near: none, attributes: sequential,temporary })
            CalmOp(0x209464e11d835774),
            // zero, unmap 232+16
            CalmOp(0x71b621fa663e1f77),
            // write 344+120
            CalmOp(0x1a9697fdfdc7c34),
            // 10 I/Os end
            CalmOp(0xcd401ccff1f59ceb),
            // 286772 us pass
            CalmOp(0x1512e1a8e91d28c0),
            // write 1200+448
            CalmOp(0xefb94ed566fc9cff),
            // 4 I/Os end
            CalmOp(0xefe95ad6b6784709),
            // write 648+384
            CalmOp(0x8a272e46373fbe2e),
            CalmOp(0x7be2fc1231939ed6),
            // all I/Os end
            // the process dies, of a copy
            // power cut, of a copy
            // power cut, of a copy
            CalmOp(0x7f2374e2dda47e97),
            // discard 120+16
            // write 2376+152
            CalmOp(0x24474fe37c339a4a),
            // volume(setattributes { ranges: [lbarange { start: lba(2368), blocks: 64 }], change: attributechange { set: random,write-most, clear: important } })
            CalmOp(0x8f111096c32d1550),
            // read 1976+88
            CalmOp(0x7a40951e3d33aa6e),
            // write 376+16
            // write 1288+8
            // write 672+192
            // write 112+40
            // write 240+16
            CalmOp(0x329c98a5bb9cc84),
            // 8 I/Os end
            CalmOp(0x2e266c27bc39d496),
            // write 1568+160
            // discard 2504+24
            // write 16+8
            CalmOp(0xec4474ec2ec10a25),
            // write 408+264
            CalmOp(0xc32147cffd99237e),
            // volume(collect)
            // flush
            CalmOp(0x7754dcad07ee92b9),
            // power cut, of a copy
            CalmProbe(0x9df7c0fdcaf441c7),
        ],
    });
}
