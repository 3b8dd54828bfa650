//! Deliberate mistakes, to see whether the fuzzer finds them: `dcd fuzz --seeded-bugs`.
//!
//! Each is one that somebody could make, behind one short hook at the place where it would be made. Without
//! the test-only feature `seeded-bugs`, [`seeded`] is a constant and the hooks are not compiled in.
//! With it, at most one of them is on at a time, in the thread that turned it on.

/// Whether the mistake is on.
#[cfg(not(feature = "seeded-bugs"))]
#[inline(always)]
pub(crate) const fn seeded(_bug: SeededBug) -> bool {
    false
}

/// Whether the mistake is on.
#[cfg(feature = "seeded-bugs")]
pub(crate) fn seeded(bug: SeededBug) -> bool {
    TURNED_ON.get() == Some(bug)
}

#[cfg(feature = "seeded-bugs")]
thread_local! {
    static TURNED_ON: std::cell::Cell<Option<SeededBug>> = const { std::cell::Cell::new(None) };
}

/// Turns one mistake on in this thread, and any other off.
#[cfg(feature = "seeded-bugs")]
pub fn turn_on(bug: Option<SeededBug>) {
    TURNED_ON.set(bug);
}

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $rule:literal;)+) => {
        /// A deliberate mistake.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum SeededBug { $($(#[doc = $doc])+ $variant,)+ }

        #[cfg(feature = "seeded-bugs")]
        impl SeededBug {
            /// All.
            pub const ALL: &[SeededBug] = &[$(SeededBug::$variant,)+];

            /// As the command line and the documents name it.
            pub fn name(self) -> &'static str {
                match self { $(SeededBug::$variant => $name,)+ }
            }

            /// The rule of `docs/durability.md`, or the property, that it breaks.
            pub fn rule(self) -> &'static str {
                match self { $(SeededBug::$variant => $rule,)+ }
            }

            /// What is wrong.
            pub fn what(self) -> &'static str {
                match self { $(SeededBug::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

bugs! {
    /// Writes are acknowledged and thrown away: whoever does not find this finds nothing.
    Canary = "canary", "C1";

    // ---- acknowledgement, log writes, commits ----
    /// A change is acknowledged before the open record is marked: `kill -9` loses it.
    AckBeforeMark = "ack-before-mark", "C4";
    /// FUA, and every change in mode `durable`, is acknowledged when written, before the flush.
    DurableAckWhenWritten = "durable-ack-when-written", "C3";
    /// FLUSH is acknowledged when the records are written, before the flush.
    FlushAckWhenWritten = "flush-ack-when-written", "C2";
    /// The one write of a commit that needs no flush lacks its FUA flag.
    CommitWithoutFua = "commit-without-fua", "C2";
    /// The cache-disk is not flushed before a commit is believed.
    CommitWithoutFlush = "commit-without-flush", "C2";
    /// A flush of the log counts for records whose writes ended after it was started.
    FlushCoversLaterWrites = "flush-covers-later-writes", "C2";
    /// A FUA write of a record counts for the records before it that were not flushed.
    FuaCoversEarlierRecords = "fua-covers-earlier-records", "C3";
    /// The superblock of a session does not say which segment memory it has.
    MemoryNotNamed = "memory-not-named", "C4";
    /// Any memory of the right name is taken for the one of the last session.
    MemoryIdentityNotCompared = "memory-identity-not-compared", "C4";
    /// Memory of an earlier boot of the machine is looked for, and taken.
    MemoryOfAnyBoot = "memory-of-any-boot", "C4";
    /// A start goes on without the memory of the last session, and says nothing.
    MemoryLossNotTold = "memory-loss-not-told", "C4";
    /// Nothing becomes durable by time alone.
    MaxDelayIgnored = "max-delay-ignored", "C5";
    /// A failed flush of the log counts as done.
    FailedFlushBelieved = "failed-flush-believed", "C22";
    /// A failed flush of the log is repeated, and the second one believed.
    FailedFlushRetried = "failed-flush-retried", "C22";
    /// A failed write of a record counts as done.
    FailedLogWriteBelieved = "failed-log-write-believed", "C22";
    /// Those who wait for a failed flush are told that all is well when it is logged again.
    LogAgainAcknowledges = "log-again-acknowledges", "C22";
    /// What was logged again is looked for at its old place.
    LogAgainKeepsOldPlace = "log-again-keeps-old-place", "C22";
    /// When there is no room for the rest of a write, the rest is dropped and the write acknowledged.
    RestOfStalledWriteDropped = "rest-of-stalled-write-dropped", "C25";

    /// A change passes one of the same blocks that waits in line.
    ChangePassesStalled = "change-passes-stalled", "C8";

    // ---- records and recovery ----
    /// An entry of a request that goes on in the next record is not marked as unfinished.
    UnfinishedNotMarked = "unfinished-not-marked", "C14";
    /// The first half of a request is replayed without the second.
    HalfRequestReplayed = "half-request-replayed", "C14";
    /// Records of an earlier lap of the log are taken for the next ones.
    LastLapBelieved = "last-lap-believed", "C18";
    /// Recovery stops at the end of the first segment.
    RecoveryStopsAtSegmentEnd = "recovery-stops-at-segment-end", "C9";
    /// Recovery does not look for records that were logged again elsewhere.
    LoggedAgainNotFound = "logged-again-not-found", "C22";
    /// A torn record at the end of the log is not cut off.
    TornTailReplayed = "torn-tail-replayed", "C19";
    /// Recovery does not verify the data of records.
    RecoveryDoesNotVerify = "recovery-does-not-verify", "C18";
    /// A place that cannot be read is taken for the end of the log.
    UnreadableIsTheEnd = "unreadable-is-the-end", "C19";
    /// Sealed and open records in the segment memory that survived are not looked at.
    MemoryNotReplayed = "memory-not-replayed", "C4";
    /// The open record in the segment memory is not looked at.
    OpenRecordNotReplayed = "open-record-not-replayed", "C4";
    /// Records found in the segment memory are not written to the cache-disk.
    MemoryNotWritten = "memory-not-written", "C17";
    /// They are all written at once, so that a crash may leave the first of them without the others.
    MemoryWrittenAtOnce = "memory-written-at-once", "C23";
    /// Recovery believes a flush for records that it did not write again: one may have failed before.
    ShownRecordsBelieved = "shown-records-believed", "C22";
    /// Recovery does not flush the data-disk: what it has shown of a bypassed write may vanish.
    RecoveryWithoutDataFlush = "recovery-without-data-flush", "C9";
    /// Recovery goes on with the older checkpoint without looking whether the damaged one was durable.
    LostCheckpointNotMissed = "lost-checkpoint-not-missed", "C19";
    /// Recovery takes the older of two good checkpoints.
    OlderCheckpointBelieved = "older-checkpoint-believed", "C13";
    /// Replaying a zeroed range does not forget the lines it covers.
    ReplayedZeroKeepsLines = "replayed-zero-keeps-lines", "C12";
    /// Replaying a tombstone does not forget the lines it covers.
    TombstoneIgnored = "tombstone-ignored", "C11";
    /// The superblock is always written to the same copy.
    SuperblockSameCopy = "superblock-same-copy", "C20";
    /// A start does not compare the UUID of the checkpoint with that of the superblock.
    UuidNotChecked = "uuid-not-checked", "C28";
    /// A start does not look whether the cache-disk still has its end.
    EndMarkNotRead = "end-mark-not-read", "C19";
    /// A start does not notice that a data-disk has become smaller.
    SizeNotChecked = "size-not-checked", "C32";

    // ---- checkpoints and the reuse of segments ----
    /// An emptied segment is filled again before a checkpoint says so (trap 1).
    FreeBeforeCheckpoint = "free-before-checkpoint", "C13";
    /// A checkpoint lists the free segments by place, not in the order in which they are filled.
    FreeOrderForgotten = "free-order-forgotten", "C13";
    /// A checkpoint is written before the records are durable that it speaks of.
    CheckpointBeforeRecords = "checkpoint-before-records", "C13";
    /// A checkpoint is believed before the cache-disk was flushed.
    CheckpointWithoutFlush = "checkpoint-without-flush", "C13";
    /// A checkpoint whose flush failed is believed.
    FailedCheckpointBelieved = "failed-checkpoint-believed", "C22";
    /// Every checkpoint is written over the one before.
    CheckpointSameArea = "checkpoint-same-area", "C20";
    /// A checkpoint omits the zeroed ranges.
    CheckpointOmitsZeroes = "checkpoint-omits-zeroes", "C12";
    /// A checkpoint omits the zeroed ranges that are on their way to the data-disk.
    CheckpointOmitsZeroesUnderWay = "checkpoint-omits-zeroes-under-way", "C12";
    /// A checkpoint lists one slot for each line, also when it is scattered over several.
    CheckpointOmitsSlots = "checkpoint-omits-slots", "C13";
    /// A checkpoint omits the damaged blocks.
    CheckpointOmitsPoison = "checkpoint-omits-poison", "C19";
    /// What a replay would make of the log is not counted: a start finds more than a checkpoint may list.
    RebuiltNotBounded = "rebuilt-not-bounded", "bounded tables";
    /// No room is kept for the zero ranges that bypasses under way will split.
    TombstonesNotReserved = "tombstones-not-reserved", "bounded tables";
    /// What is logged while a checkpoint is being made does not count when it is durable.
    ChangesBesidePictureNotCounted = "changes-beside-picture-not-counted", "bounded tables";
    /// A replay lists more damaged lines than a checkpoint may.
    ReplayedPoisonNotBounded = "replayed-poison-not-bounded", "bounded tables";
    /// A start that finds more zero ranges than it may list does not make room.
    RoomNotMade = "room-not-made", "bounded tables";
    /// It does, and does not flush the data-disk before it forgets them.
    RoomWithoutFlush = "room-without-flush", "C12";
    /// Pieces of a checkpoint behind the first are written to the wrong place.
    CheckpointPieceMisplaced = "checkpoint-piece-misplaced", "C13";
    /// A discard that is replayed is brought to the data-disk as zeroes, which takes space there.
    DiscardReplayedAsZeroes = "discard-replayed-as-zeroes", "C12";
    /// Zeroes that are replayed free the space that a client wants to keep.
    ReplayedZeroesFreed = "replayed-zeroes-freed", "C12";
    /// A checkpoint does not say which zeroes may free their space.
    CheckpointForgetsUnmap = "checkpoint-forgets-unmap", "C12";

    // ---- destaging ----
    /// Lines are destaged before they are durable in the log.
    DestageBeforeDurable = "destage-before-durable", "C10";
    /// The data-disk is not flushed before destaged lines leave the log.
    DestageWithoutFlush = "destage-without-flush", "C13";
    /// A failed flush of the data-disk counts as done.
    FailedDestageFlushBelieved = "failed-destage-flush-believed", "C24";
    /// A line whose write to the data-disk failed leaves the log.
    FailedLineForgotten = "failed-line-forgotten", "C24";
    /// A line that was overwritten while it was destaged leaves the log (trap 3).
    OverwrittenLineForgotten = "overwritten-line-forgotten", "C13";
    /// Destaging does not verify what it reads.
    DestageDoesNotVerify = "destage-does-not-verify", "C18";
    /// A line is destaged before the zeroed range below it.
    LineBeforeZeroes = "line-before-zeroes", "C12";
    /// Zeroed ranges are destaged before they are durable in the log.
    ZeroesBeforeDurable = "zeroes-before-durable", "C10";
    /// Zeroed ranges whose write to the data-disk failed are forgotten.
    FailedZeroesForgotten = "failed-zeroes-forgotten", "C24";
    /// When the data-disk takes nothing, what was left of a batch counts as destaged.
    RestOfBatchForgotten = "rest-of-batch-forgotten", "C24";
    /// Zeroes are asked for in one piece, however long that takes.
    ZeroesInOnePiece = "zeroes-in-one-piece", "progress";
    /// Zeroes that landed late count although something else was written there since.
    LandedZeroesKept = "landed-zeroes-kept", "C12";
    /// A piece that could not be zeroed counts as zeroed with the others of its round.
    BadZeroesForgotten = "bad-zeroes-forgotten", "C12";
    /// Completing a sector overwrites what was written meanwhile with what the data-disk had.
    CompletionOverwrites = "completion-overwrites", "C15";
    /// After a write to the data-disk was given up, destaging goes on: it may land late.
    LostWriteForgotten = "lost-write-forgotten", "C26";
    /// The checksums of destaged lines are not noted: the next start finds the data-disk changed.
    WitnessNotUpdated = "witness-not-updated", "C29";

    // ---- reads and damage ----
    /// Of a line scattered over several slots, only one is read from the log.
    ReadTakesOneSlot = "read-takes-one-slot", "C1";
    /// What the data-disk returns wins over what was found in the log.
    DataDiskWins = "data-disk-wins", "C1";
    /// The lines of a zeroed range that is being destaged are read from the data-disk.
    ZeroesUnderWayNotRead = "zeroes-under-way-not-read", "C12";
    /// A failed read of the data-disk returns zeroes.
    FailedReadReturnsZeroes = "failed-read-returns-zeroes", "C24";
    /// A damaged slot is served.
    DamagedSlotServed = "damaged-slot-served", "C18";
    /// The stale copy on the data-disk is shown in place of a damaged block.
    StaleCopyShown = "stale-copy-shown", "C21";
    /// A damaged slot is taken out of the log and forgotten.
    DamageForgotten = "damage-forgotten", "C21";
    /// A drain that could not bring everything to the data-disk, because it is damaged, says that it has.
    DrainHidesLoss = "drain-hides-loss", "C21";
    /// A detach gives the data-disk free although blocks on it are stale, because the newer ones are damaged.
    DetachReleasesLoss = "detach-releases-loss", "C21";
    /// A detach that may give up some lost blocks gives up all.
    LossAcceptedUntold = "loss-accepted-untold", "C21";
    /// A damaged block fails even after it was overwritten.
    PoisonStays = "poison-stays", "C21";
    /// Taking a line out of the lookup table hides others behind the gap.
    TableGap = "table-gap", "C1";

    // ---- discard, write-zeroes, bypass ----
    /// A discard is not logged.
    DiscardNotLogged = "discard-not-logged", "C12";
    /// A discard is rounded outward to whole lines.
    DiscardRoundedOutward = "discard-rounded-outward", "C12";
    /// A discard leaves the lines it covers in the lookup table.
    DiscardKeepsLines = "discard-keeps-lines", "C12";
    /// A bypass writes no tombstone.
    BypassWithoutTombstone = "bypass-without-tombstone", "C11";
    /// The tombstone is logged before the data-disk was flushed.
    BypassWithoutFlush = "bypass-without-flush", "C11";
    /// A bypass does not wait until everything before it is durable.
    BypassBeforeEarlier = "bypass-before-earlier", "C11";
    /// A flush of the data-disk counts for bypasses that were written after it had begun.
    OlderBypassFlushBelieved = "older-bypass-flush-believed", "C11";
    /// A change of the same blocks does not wait for the tombstone of a bypass that was perhaps seen.
    ChangeOvertakesBypass = "change-overtakes-bypass", "C8";
    /// A bypass does not wait for reads of the data-disk that the log has overtaken.
    BypassOvertakesRead = "bypass-overtakes-read", "C8";
    /// A bypass does not wait for a destage of the same lines (trap 2).
    BypassDuringDestage = "bypass-during-destage", "C11";
    /// Destaging does not wait for a bypass of the same lines (trap 2).
    DestageDuringBypass = "destage-during-bypass", "C11";
    /// A bypass leaves the zeroed ranges below it.
    BypassKeepsZeroes = "bypass-keeps-zeroes", "C11";
    /// A bypass of part of a line forgets all of it.
    BypassOfPartLines = "bypass-of-part-lines", "C11";
    /// A bypass whose write failed is acknowledged.
    FailedBypassAcknowledged = "failed-bypass-acknowledged", "C24";
    /// A bypass overwrites a witness: the next start finds the data-disk changed.
    BypassOverWitness = "bypass-over-witness", "C29";

    // ---- closing, and going on without a cache-disk ----
    /// All of a pause counts against those who could not be heard meanwhile.
    PauseCounts = "pause-counts", "C26";
    /// An I/O is given up while its end is still in the queue.
    JudgedBeforeHeard = "judged-before-heard", "C26";
    /// A shutdown does not make the log durable.
    ShutdownWithoutCommit = "shutdown-without-commit", "C31";
    /// A detach does not wait until everything is destaged.
    DetachBeforeDestaged = "detach-before-destaged", "C31";
    /// A cache-disk that fails while dirty is treated as one that fails while clean.
    UncachedWhileDirty = "uncached-while-dirty", "C23";
    /// Without a cache-disk, the segment memory is not voided: a start replays it over newer data.
    MemoryNotVoided = "memory-not-voided", "C23";
    /// The first record behind a clean checkpoint is written without a probe.
    ProbeSkipped = "probe-skipped", "C23";
    /// Without a cache-disk, FLUSH and FUA do not flush the data-disk.
    UncachedWithoutFlush = "uncached-without-flush", "C2";

    /// A write leaves the copies of its lines as they are.
    WriteKeepsCopies = "write-keeps-copies", "C1";
    /// A discard leaves the copies of its lines as they are.
    DiscardKeepsCopies = "discard-keeps-copies", "C12";
    /// Replay leaves the copies of the lines in the log as they are.
    ReplayKeepsCopies = "replay-keeps-copies", "C9";
    /// A copy that is known to be old is served.
    StaleCopyServed = "stale-copy-served", "C1";
    /// A stale copy is believed again without being compared with the data-disk.
    StaleCopyConfirmed = "stale-copy-confirmed", "C1";
    /// A copy that is not what it should be is served.
    DamagedCopyServed = "damaged-copy-served", "C21";
    /// What was read ahead is served without a look at what the copy should be.
    ReadAheadNotCompared = "read-ahead-not-compared", "C1";
    /// A line that is in the log is copied from the data-disk.
    CopyOfLoggedLine = "copy-of-logged-line", "C1";
    /// A line is copied although the data-disk may have changed while it was read.
    CopyOfChangedLine = "copy-of-changed-line", "C1";
    /// A line is copied while a bypass of it is under way.
    CopyOfBypassedLine = "copy-of-bypassed-line", "C11";
    /// A write goes past the log although a checkpoint lists copies of its lines.
    BypassOverCopies = "bypass-over-copies", "C9";
    /// A line that was destaged is read from its slot although it has changed since.
    ChangedLineIsClean = "changed-line-is-clean", "C1";
    /// Copies are believed although someone may have changed the data-disk without the log.
    DoubtfulCopiesBelieved = "doubtful-copies-believed", "C23";

    // ---- volumes: stripes and the journal. From here on all are of volumes. ----
    /// Lines and parity of a stripe are written to members without a record of the journal.
    StripeNotJournaled = "stripe-not-journaled", "write hole";
    /// A record of the journal is believed before it is durable.
    JournalWithoutFua = "journal-without-fua", "write hole";
    /// A start does not write parity again.
    ParityNotRedone = "parity-not-redone", "write hole";
    /// A start does not flush the journal before it writes its lines again.
    RingNotFlushed = "ring-not-flushed", "write hole";
    /// The tail of the journal passes records whose lines are on their way to members.
    TailPassesJobs = "tail-passes-jobs", "write hole";
    /// Records of the journal are overwritten before a root says that they do not count.
    JournalReusedEarly = "journal-reused-early", "write hole";
    /// A change of a member that is missing leaves the parity as it is.
    DegradedWriteWithoutParity = "degraded-write-without-parity", "redundancy";
    /// The checksum of a parity is not updated with it.
    ParityChecksumNotUpdated = "parity-checksum-not-updated", "redundancy";
    /// A member whose write failed goes on as if it had been done.
    FailedMemberWriteBelieved = "failed-member-write-believed", "redundancy";
    /// A member whose flush failed goes on as if it had been done.
    FailedMemberFlushBelieved = "failed-member-flush-believed", "redundancy";
    /// Lines that nobody holds any more read as zeroes.
    LostReadsAsZeroes = "lost-reads-as-zeroes", "two failures";
    /// Reads do not look at the checksum of a line.
    RottenLineServed = "rotten-line-served", "rot";
    /// What a stripe is computed from is not compared with its checksum.
    RottenLineBelieved = "rotten-line-believed", "rot";

    // ---- volumes: checkpoints ----
    /// A checkpoint does not flush the members.
    CheckpointWithoutMembers = "checkpoint-without-members", "write hole";
    /// A root is written before its pages are durable.
    RootBeforePages = "root-before-pages", "TTABLE";
    /// The root is always written to the same place.
    RootSamePlace = "root-same-place", "TTABLE";
    /// A page is written over its newest copy.
    PageSamePlace = "page-same-place", "TTABLE";
    /// A page holds entries that the journal has not.
    PageAheadOfJournal = "page-ahead-of-journal", "TTABLE";
    /// A checkpoint omits the pages of checksums that have changed.
    ChecksumPageOmitted = "checksum-page-omitted", "redundancy";

    // ---- volumes: members ----
    /// A member that was not there at the last start is believed.
    StaleMemberBelieved = "stale-member-believed", "stale member";
    /// An older copy of a member is believed in RAID 0 sets.
    OlderMemberBelieved = "older-member-believed", "older member";
    /// The end does not raise the epoch: a copy of a member from the time before is as good as the member.
    EndNotLabelled = "end-not-labelled", "older member";
    /// Which members have a label of the newest epoch is not recorded.
    LabelsNotRecorded = "labels-not-recorded", "older member";
    /// A start does not raise the epoch.
    EpochNotRaised = "epoch-not-raised", "stale member";
    /// The state of a member that has missed changes is not recorded at all.
    StaleStateNotRecorded = "stale-state-not-recorded", "stale member";
    /// A blank disk in the place of a member is believed.
    BlankMemberBelieved = "blank-member-believed", "replaced member";
    /// What RAID 0 had on a disk in whose place there is a blank one is not noted.
    LostLinesForgotten = "lost-lines-forgotten", "replaced member";
    /// It is noted, but the label of the blank disk may be durable before.
    LabelBeforeLostLines = "label-before-lost-lines", "replaced member";
    /// A lost line that was written counts as found although the flush of its member has failed.
    FoundAfterFailedFlush = "found-after-failed-flush", "replaced member";
    /// A start believes what the journal says of found lines, also where they were lost again.
    FoundBeforeLossBelieved = "found-before-loss-believed", "replaced member";
    /// The journal has lines as found that no flush has made durable.
    FoundBeforeFlush = "found-before-flush", "replaced member";
    /// Both labels of a member are one: a torn one makes it blank.
    LabelSameCopy = "label-same-copy", "C20";

    /// A start does not count the lines that are lost.
    LostLinesForgottenAtStart = "lost-lines-forgotten-at-start", "lost lines";
    /// A lost line that was written still counts as lost.
    LostLinesStayCounted = "lost-lines-stay-counted", "lost lines";
    /// What cannot be destaged because a member is away takes all of the log.
    StuckLinesFillTheLog = "stuck-lines-fill-the-log", "members away";

    // ---- volumes: rebuild and scrub ----
    /// A member counts as rebuilt when the last stripes are begun.
    RebuildEndsEarly = "rebuild-ends-early", "rebuild";
    /// Changes do not wait for the rebuild of their stripe.
    RebuildSkipsChanges = "rebuild-skips-changes", "rebuild";
    /// A rebuilt member counts as up to date before it was flushed.
    RebuildNotFlushed = "rebuild-not-flushed", "rebuild";
    /// A rebuild leaves out parity.
    RebuildSkipsParity = "rebuild-skips-parity", "rebuild";
    /// A rebuild leaves out every eighth stripe.
    RebuildSkipsStripes = "rebuild-skips-stripes", "rebuild";
    /// A scrub finds what is wrong and leaves it as it is.
    ScrubDoesNotRepair = "scrub-does-not-repair", "scrub";
    /// A scrub repairs the place of one line with another.
    ScrubRepairsWrongPlace = "scrub-repairs-wrong-place", "scrub";

    // ---- volumes: extents, flushes ----
    /// A new extent is not filled with zeroes where nothing is written.
    NewExtentNotZeroed = "new-extent-not-zeroed", "TTABLE";
    /// A place is given to another extent before it is durable that the first has left it.
    PlaceReusedEarly = "place-reused-early", "TTABLE";
    /// A place is given to another extent while somebody reads it.
    PlaceReusedUnderReader = "place-reused-under-reader", "TTABLE";
    /// A flush is acknowledged before the places of new extents are durable.
    FlushWithoutEntries = "flush-without-entries", "C2";
    /// A flush makes the place of an extent durable while its lines are being written.
    EntryBeforeLines = "entry-before-lines", "TTABLE";
    /// A write with FUA ends before the place of its extent is durable.
    FuaWithoutEntry = "fua-without-entry", "C3";
    /// Without a log a write ends before the place of its extent is durable.
    UnloggedWithoutEntry = "unlogged-without-entry", "C4";
    /// A flush does not flush the members: RAID 0 sets have no journal.
    FlushWithoutMembers = "flush-without-members", "C2";
    /// Writes with FUA go to RAID 0 sets without it.
    Raid0WithoutFua = "raid0-without-fua", "C3";
    /// Discarding a whole extent does nothing.
    UnmapForgotten = "unmap-forgotten", "C12";
    /// What is not TEMPORARY is placed in the region for temporary data.
    TemporaryRegionForAll = "temporary-region-for-all", "placement";
    /// What must be redundant is placed as what need not be.
    ImportantOnRaid0 = "important-on-raid0", "placement";

    // ---- volumes: moves, hints ----
    /// A move is recorded before the new place is durable.
    MoveBeforeDurable = "move-before-durable", "moves";
    /// Changes do not wait for the move of their extent.
    MoveLosesChanges = "move-loses-changes", "moves";
    /// The place that an extent has left is free before the move is durable.
    MoveFreesEarly = "move-frees-early", "moves";
    /// Attributes are answered before they are durable.
    AttributesNotDurable = "attributes-not-durable", "hints";
    /// A block is allocated although the log has data for it.
    AllocatedOverLog = "allocated-over-log", "hints";
    /// Allocations are not durable with the next flush.
    AllocationNotDurable = "allocation-not-durable", "hints";
    /// A pointer that was deleted comes back after a crash.
    PointerComesBack = "pointer-comes-back", "hints";
    /// A block is freed although something else points to it.
    FreedWhilePointedTo = "freed-while-pointed-to", "hints";
    /// A flush does not wait for discards of blocks that were freed before, which wait for room in the log.
    FlushPassesDiscards = "flush-passes-discards", "C2";
    /// A block that was freed is discarded again behind what somebody has written to it since.
    DyingDiscardedAgain = "dying-discarded-again", "hints";
    /// A block that was freed and written as a plain one still counts as freed.
    DyingWithData = "dying-with-data", "hints";
}

#[cfg(feature = "seeded-bugs")]
impl SeededBug {
    /// Whether only runs on volumes can find it.
    pub fn is_of_volume(self) -> bool {
        self >= SeededBug::StripeNotJournaled
    }
}

#[cfg(all(test, feature = "seeded-bugs"))]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        assert!(SeededBug::ALL.len() >= 40);
        for bug in SeededBug::ALL {
            turn_on(Some(*bug));
            assert_eq!(SeededBug::ALL.iter().filter(|other| seeded(**other)).count(), 1);
        }
        turn_on(None);
        assert!(!SeededBug::ALL.iter().any(|bug| seeded(*bug)));
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<_> =
            SeededBug::ALL.iter().map(|bug| bug.name()).collect();
        assert_eq!(names.len(), SeededBug::ALL.len());
    }
}
