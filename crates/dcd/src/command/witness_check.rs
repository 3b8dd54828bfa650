//! `dcd check` of a witness: both copies of its label, and what they say. Writes nothing.

use dcd_engine::format::leg_label::{LEG_LABEL_BYTES, LEG_LABEL_OFFSETS, LegLabel, LegState};
use dcd_engine::{Superblock, Uuid};
use serde::Serialize;

use crate::error::CommandError;
use crate::image::CacheImage;
use crate::stdout::{print, print_json};

/// What is found of a witness.
#[derive(Serialize, Debug)]
pub struct WitnessCheck {
    witness: String,
    cache: String,
    file: String,
    healthy: bool,
    /// Of both copies of its label.
    copies_valid: u32,
    /// Legs that a start may believe alone on its word, if they have that membership, too.
    legs: Vec<String>,
    /// Whether it is the witness of the membership that it has.
    has_say: bool,
    /// What is wrong with copies that are not valid.
    problems: Vec<String>,
}

impl WitnessCheck {
    /// `None`: it is none.
    pub fn of(image: &CacheImage) -> Option<WitnessCheck> {
        let copies = copies_of(image);
        let newest = copies.iter().flatten().max_by_key(|label| label.number)?;
        if newest.state != LegState::Witness {
            return None;
        }
        let membership = &newest.membership;
        let problems: Vec<String> = copies
            .iter()
            .zip(LEG_LABEL_OFFSETS)
            .filter_map(|(copy, offset)| {
                let error = copy.as_ref().err()?;
                Some(format!("the copy of its label at byte {offset}: {error}"))
            })
            .collect();
        Some(WitnessCheck {
            witness: newest.leg.to_string(),
            cache: newest.cache.to_string(),
            file: image.path.display().to_string(),
            healthy: problems.is_empty(),
            copies_valid: copies.iter().flatten().count() as u32,
            legs: membership.members.iter().map(Uuid::to_string).collect(),
            has_say: membership.witness == Some(newest.leg),
            problems,
        })
    }

    /// Prints it.
    ///
    /// # Errors
    /// If a copy is damaged.
    pub fn tell(&self, json: bool) -> Result<(), CommandError> {
        match json {
            true => print_json(self)?,
            false => print(&self.words())?,
        }
        match self.problems.len() as u64 {
            0 => Ok(()),
            problems => Err(CommandError::Damage { path: self.file.clone().into(), problems }),
        }
    }

    fn words(&self) -> String {
        let mut text = format!("witness       {}\ncache         {}\n", self.witness, self.cache);
        text += &format!("labels        {} of 2 valid\n", self.copies_valid);
        text += &format!("legs          {}\n", self.legs.join(", "));
        text += "note: it holds no data; whether its word counts only the labels of the legs tell: `dcd probe` of one that a service names\n";
        for problem in &self.problems {
            text += &format!("damaged: {problem}; the next start writes it again\n");
        }
        text + if self.healthy { "healthy\n" } else { "" }
    }
}

fn copies_of(image: &CacheImage) -> [Result<LegLabel, String>; 2] {
    LEG_LABEL_OFFSETS.map(|offset| {
        let bytes = image.read(offset, LEG_LABEL_BYTES).map_err(|error| error.to_string())?;
        LegLabel::decode(bytes.bytes()).map_err(|error| error.to_string())
    })
}

/// That a leg has a witness: of the leg itself nobody can see how that is.
pub fn note_of_leg(superblock: &Superblock, image: &CacheImage) -> Option<String> {
    let copies = copies_of(image);
    let label = copies.iter().flatten().max_by_key(|label| label.number);
    let witness = label.filter(|_| superblock.has_legs)?.membership.witness?;
    Some(format!(
        "its legs have the witness {witness}: with that, given as --witness, one leg in sync starts without the other"
    ))
}
