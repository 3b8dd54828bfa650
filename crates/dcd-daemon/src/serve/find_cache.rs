//! Finds out what the disks are that were given as the cache-disk: one, or legs, of which the
//! labels say whom to believe; and blank disks that become legs. Writes nothing.
//!
//! A leg that is not there, or cannot be read, is as one that was not given: whether the others can
//! do without it is for the labels to say.

use dcd_engine::format::leg_label::{LEGS_MAX, LegLabel, LegState};
use dcd_engine::legs::LegsParts;
use dcd_engine::legs::choose::{LegsError, Role, WitnessRole, choose};
use dcd_engine::legs::witness::WitnessParts;
use dcd_engine::units::{LegIndex, Uuid};
use dcd_engine::{Device, Superblock};

use crate::device::device_file::DeviceError;
use crate::device::device_spec::DeviceSpec;
use crate::device::identity::is_on_one_disk;
use crate::device::network::Mark;
use crate::device::shares::{Place, whole_name};
use crate::disk::Disk;
use crate::pair::leg_share::{LegOf, LegShare};
use crate::pair::legs::{
    CacheSide, LegDisk, NewLegError, WITNESS_BYTES, check_blank, check_former_leg, check_size,
    new_leg_uuid, new_tag, read_leg_label,
};
use crate::pair::members::is_no_mark;
use crate::pair::{CacheDisks, read_superblock};
use crate::process::random::random_bytes;
use crate::serve::error::ServeError;
use crate::serve::legs_words::GivenLeg;

/// What was given as the cache-disk.
pub(crate) struct Given {
    /// Those that are there, and whether they are new legs: blank, or so when they were first
    /// given.
    disks: Vec<(Disk, bool)>,
    /// Of those that are not, what is wrong with the first.
    away: Option<DeviceError>,
    /// The witness, if one was named and is there.
    witness: Option<Disk>,
    /// Shares that were made for new legs: given back, unless the start goes on.
    pub(crate) shares: Vec<LegShare>,
}

/// Opens and locks the disks that are there.
pub(crate) fn open_cache_disks(
    named: &CacheDisks,
    data_disks: &[DeviceSpec],
) -> Result<Given, ServeError> {
    let mut given = Given { disks: Vec::new(), away: None, witness: None, shares: Vec::new() };
    if let Some(spec) = &named.witness {
        match Disk::open(Device::Witness, spec) {
            Ok(disk) => given.witness = Some(disk),
            // Whether the legs can do without it is for the labels to say.
            Err(error) if error.is_away() => eprintln!("dcd: witness: {error}: on without it"),
            Err(error) => return Err(ServeError::device("witness")(error)),
        }
    }
    for (place, spec) in named.all().enumerate() {
        let is_new = place >= named.disks.len();
        // What the others hold is read for that alone: one of them may answer slowly.
        let is_new_share = is_new && Place::of(spec.path()).share.is_some();
        let of = is_new_share.then(|| leg_of(&given, data_disks)).flatten();
        let opened = match of {
            Some(of) => open_share(spec, &of, &mut given.shares),
            None => Disk::open(Device::CacheDisk, spec).map_err(NewLegError::from),
        };
        match opened {
            Ok(disk) => given.disks.push((disk, is_new)),
            Err(NewLegError::Device(error)) if error.is_away() => {
                given.away = given.away.or(Some(error));
            }
            Err(NewLegError::Device(error)) => return Err(ServeError::device("cache-disk")(error)),
            Err(error) => return Err(error.into()),
        }
    }
    match given.away {
        Some(error) if given.disks.is_empty() => Err(ServeError::device("cache-disk")(error)),
        _ => Ok(given),
    }
}

/// What a further leg of the cache is for, and needs: as much as any of the disks says that has it,
/// since one of them may be older.
fn leg_of(given: &Given, data_disks: &[DeviceSpec]) -> Option<LegOf> {
    let superblocks = given.disks.iter().filter_map(|(disk, _)| read_superblock(disk.file()).ok());
    let superblocks: Vec<Superblock> = superblocks.collect();
    let cache = superblocks.first()?.uuid;
    let of_cache = superblocks.iter().filter(|superblock| superblock.uuid == cache);
    let bytes = of_cache.map(Superblock::end).max()?;
    let data_disk = match data_disks {
        [one] => whole_name(one.path()).to_str().map(str::to_owned).unwrap_or_default(),
        _ => String::new(),
    };
    Some(LegOf { cache, bytes, data_disk })
}

/// Opens a share that becomes a leg, and makes it if it is not there.
fn open_share(
    spec: &DeviceSpec,
    of: &LegOf,
    shares: &mut Vec<LegShare>,
) -> Result<Disk, NewLegError> {
    let (made, file) = LegShare::take(spec.path(), of)?;
    shares.extend(made);
    Ok(Disk::of(Device::CacheDisk, spec, file)?)
}

/// What a start has found of its cache-disk.
pub(crate) struct FoundCache {
    pub(crate) side: CacheSide,
    pub(crate) superblock: Superblock,
    /// If it is on legs: for the engine.
    pub(crate) parts: Option<Box<LegsParts>>,
    /// If the primary is a leg from now on: the label that it gets before the engine reads.
    pub(crate) label: Option<LegLabel>,
    /// The leg whose bytes count.
    pub(crate) primary: usize,
}

impl FoundCache {
    /// The disk whose bytes count.
    pub(crate) fn disk(&self) -> &Disk {
        self.side.iter().nth(self.primary).expect("a disk was given")
    }

    /// As much as all of them have.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.side.iter().map(|disk| disk.file().size_bytes).min().unwrap_or(0)
    }
}

/// Finds out what the disks are; `superblock_of` says what is wrong with one that holds no cache.
pub(crate) fn find_cache(
    given: Given,
    named: &CacheDisks,
    superblock_of: impl Fn(&Disk) -> Result<Superblock, ServeError>,
) -> Result<FoundCache, ServeError> {
    let Given { disks: given, mut away, witness, shares: _ } = given;
    let all: Vec<GivenLeg> = given.iter().map(|(disk, _)| given_leg(disk, None)).collect();
    let refuse = |error| ServeError::Legs { disks: all.clone(), away: None, error };
    // The first that has one: of a leg it may be older.
    let mut superblocks = given.iter().map(|(disk, _)| superblock_of(disk));
    let first = match superblocks.next().expect("a disk was opened") {
        Ok(superblock) => Ok(superblock),
        Err(error) => superblocks.find_map(Result::ok).ok_or(error),
    };
    drop(superblocks);
    let has_legs = first.as_ref().is_ok_and(|superblock| superblock.has_legs);
    if !has_legs && let Some(error) = away {
        return Err(ServeError::device("cache-disk")(error));
    }
    let first = first?;
    if !first.has_legs {
        if named.disks.len() > 1 {
            return Err(ServeError::NotLegs { path: named.disks[0].path().to_owned() });
        }
        if let Some(leg) = named.without.first() {
            return Err(refuse(LegsError::NoSuchLeg { leg: *leg }));
        }
        if named.new_legs.is_empty() {
            if named.witness.is_some() {
                return Err(ServeError::WitnessOfOneDisk);
            }
            let (disk, _) = given.into_iter().next().expect("a disk was opened");
            let side = CacheSide::Disk(Box::new(disk));
            return Ok(FoundCache {
                side,
                superblock: first,
                parts: None,
                label: None,
                primary: 0,
            });
        }
    }
    if given.len() > LEGS_MAX {
        return Err(ServeError::TooManyLegs { most: LEGS_MAX });
    }
    // 1. Who they are. A cache on one disk has no label yet: it is its only leg. A new leg may have
    //    become one at an earlier start, also where the superblock could not be told of it.
    let is_member = |(disk, is_new): &(Disk, bool)| {
        let label = read_leg_label(disk.file()).ok().and_then(Result::ok);
        *is_new && label.is_some_and(|it| it.cache == first.uuid && it.state == LegState::Member)
    };
    let has_legs = first.has_legs || given.iter().any(is_member);
    let new_uuid = || new_leg_uuid().map_err(ServeError::system("get random numbers"));
    let tag = new_tag().map_err(ServeError::system("get random numbers"))?;
    let (mut legs, mut labels, mut blank) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (disk, is_new)) in given.into_iter().enumerate() {
        if !is_new && !has_legs {
            labels.push(LegLabel::of_new(first.uuid, &[new_uuid()?], 0, tag));
            legs.push(disk);
            continue;
        }
        match read_leg_label(disk.file()) {
            Ok(Ok(label)) if !is_new || has_legs && label.cache == first.uuid => {
                disk.file().is_known_by(Mark::Leg(label.leg));
                labels.push(label);
                legs.push(disk);
            }
            // A start that made the first a leg was cut off: nobody believes what it holds.
            Ok(Ok(label)) if label.cache == first.uuid && label.state == LegState::Filling => {
                blank.push((disk, true));
            }
            Ok(Err(error)) if !is_new => return Err(refuse(LegsError::Label { place, error })),
            Ok(_) => blank.push((disk, false)),
            Err(error) => away = away.or(Some(error)),
        }
    }
    if let Some(error) = away.take_if(|_| labels.is_empty()) {
        return Err(ServeError::device("cache-disk")(error));
    }
    // Left in the settings of a service, a leg that was left out once is no more known.
    let is_named =
        |leg: &Uuid| labels.iter().any(|label| label.leg == *leg || label.membership.names(*leg));
    let (without, forgotten): (Vec<Uuid>, Vec<Uuid>) =
        named.without.iter().copied().partition(is_named);
    for leg in forgotten {
        eprintln!("dcd: no label names leg {leg}: --without-leg {leg} says nothing any more");
    }
    let (witness, witness_label) = look_at_witness(witness, first.uuid)?;
    // In the places that the engine knows: a disk that is new, or away, has none.
    let known =
        legs.iter().chain(&witness).zip(labels.iter().map(Some).chain([witness_label.as_ref()]));
    let known: Vec<GivenLeg> = known.map(|(disk, label)| given_leg(disk, label)).collect();
    let mut choice = match choose(&labels, witness_label.as_ref(), &without) {
        Ok(choice) => choice,
        Err(error) => {
            return Err(ServeError::Legs { disks: known, away: away.map(Box::new), error });
        }
    };
    if let Some(error) = away {
        eprintln!("dcd: cache-disk: {error}: on without it");
    }
    if let Some(witness) = &witness
        && let Some(leg) =
            legs.iter().find(|leg| is_on_one_disk(leg.file().path(), witness.file().path()))
    {
        eprintln!(
            "dcd: the witness {} is on the same disk as {}: without that disk nothing starts by itself",
            name_of(witness),
            name_of(leg)
        );
    }
    // What one leg alone is believed by, is told.
    if choice.witness == Some(WitnessRole::Votes) && !choice.missing.is_empty() {
        let missing: Vec<String> = choice.missing.iter().map(Uuid::to_string).collect();
        eprintln!("dcd: cache-disk: on without leg {}, as the witness says", missing.join(" and "));
    }
    // One that is filled may have been used for something else since.
    for (disk, role) in legs.iter().zip(&mut choice.roles) {
        if *role == Role::Stale
            && let Err(error) = check_former_leg(disk.file(), first.uuid)
        {
            eprintln!("dcd: cache-disk: {error}: left out");
            *role = Role::LeftOut;
        }
    }
    let mut uuids: Vec<Uuid> = labels.iter().map(|label| label.leg).collect();

    // 2. The newest superblock of those in sync.
    let mut superblock: Option<Superblock> = None;
    for (disk, role) in legs.iter().zip(&choice.roles) {
        if *role != Role::InSync {
            continue;
        }
        if let Ok(found) = read_superblock(disk.file())
            && superblock.as_ref().is_none_or(|known| known.generation < found.generation)
        {
            superblock = Some(found);
        }
    }
    let mut superblock = match superblock {
        Some(superblock) => superblock,
        None => superblock_of(&legs[choice.primary])?,
    };
    if superblock.uuid != choice.label.cache {
        let (place, expected, found) = (choice.primary, superblock.uuid, choice.label.cache);
        let error = LegsError::OtherCache { place, expected, found };
        return Err(ServeError::Legs { disks: known, away: None, error });
    }

    // 3. Disks that become legs: nothing on them is lost without a word.
    for (disk, is_ours) in blank {
        match is_ours {
            true => check_former_leg(disk.file(), first.uuid)?,
            false => check_blank(disk.file())?,
        }
        uuids.push(new_uuid()?);
        choice.roles.push(Role::Stale);
        legs.push(disk);
    }
    legs.iter().try_for_each(|disk| check_size(disk.file(), superblock.end()))?;
    let label = (!has_legs).then(|| labels[0].clone());
    superblock.has_legs = true;
    for (index, disk) in legs.iter_mut().enumerate() {
        disk.set_device(Device::Leg(LegIndex(index as u8)));
    }
    let primary = choice.primary;
    let seed =
        u64::from_le_bytes(random_bytes().map_err(ServeError::system("get random numbers"))?);
    let witness_parts = match (&witness, &witness_label, choice.witness) {
        (Some(_), Some(label), Some(role)) => Some(WitnessParts::new(label, role)),
        (Some(_), ..) => Some(WitnessParts::blank(new_uuid()?)),
        (None, ..) => None,
    };
    let mut parts = LegsParts::new(choice, uuids, seed);
    parts.witness = witness_parts;
    let parts = Some(Box::new(parts));
    let legs = legs.into_iter().map(LegDisk::from).collect();
    let witness = witness.map(|disk| Box::new(LegDisk::from(disk)));
    let side = CacheSide::Legs { legs, witness };
    Ok(FoundCache { side, superblock, parts, label, primary })
}

/// What the witness has, if it is one: nothing on another disk is lost without a word. One that
/// cannot be read is as one that is not there.
fn look_at_witness(
    witness: Option<Disk>,
    cache: Uuid,
) -> Result<(Option<Disk>, Option<LegLabel>), ServeError> {
    let Some(disk) = witness else { return Ok((None, None)) };
    let no_witness = |error: NewLegError| match error {
        NewLegError::InUse { path, content, .. } => ServeError::NotAWitness { path, what: content },
        NewLegError::Short { path, expected, found } => {
            let what = format!("has {found} bytes, a witness needs {expected}");
            ServeError::NotAWitness { path, what }
        }
        other => other.into(),
    };
    check_size(disk.file(), WITNESS_BYTES).map_err(no_witness)?;
    match read_leg_label(disk.file()) {
        Ok(Ok(label)) => {
            if label.cache == cache && label.state == LegState::Witness {
                check_former_leg(disk.file(), cache).map_err(no_witness)?;
            }
            Ok((Some(disk), Some(label)))
        }
        Ok(Err(error)) => {
            let path = disk.file().path().to_owned();
            // One that was a witness has a mark; a blank one becomes the witness.
            if !is_no_mark(&error) {
                let what = format!("neither copy of its label can be used: {error}");
                return Err(ServeError::NotAWitness { path, what });
            }
            check_blank(disk.file()).map_err(no_witness)?;
            Ok((Some(disk), None))
        }
        Err(error) => {
            eprintln!("dcd: witness: {error}: on without it");
            Ok((None, None))
        }
    }
}

fn given_leg(disk: &Disk, label: Option<&LegLabel>) -> GivenLeg {
    GivenLeg { name: name_of(disk), leg: label.map(|label| label.leg) }
}

fn name_of(disk: &Disk) -> String {
    disk.file().path().display().to_string()
}
