//! Work in shards, each for itself, on as many machines as there are.

use std::collections::BTreeSet;
use std::ops::Range;
use std::str::FromStr;

/// Most shards.
const SHARDS_MAX: u64 = 1 << 20;

/// Variables that number the tasks of an array from 0: of Kubernetes, and of Slurm, whose arrays
/// may begin elsewhere.
const KUBERNETES_INDEX: &str = "JOB_COMPLETION_INDEX";
const SLURM_INDEX: &str = "SLURM_ARRAY_TASK_ID";
const SLURM_FIRST: &str = "SLURM_ARRAY_TASK_MIN";

/// Every so manieth row, of an order that has nothing to do with the settings: neighbours differ in
/// the last of these, and one value of it may take longer than another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    index: u64,
    of: u64,
}

impl Shard {
    /// Which of so many rows are its.
    pub fn rows(self, all: usize) -> BTreeSet<usize> {
        let mut order: Vec<usize> = (0..all).collect();
        order.sort_by_key(|row| mixed(*row as u64));
        let place = usize::try_from(self.index).unwrap_or(usize::MAX);
        order.into_iter().skip(place).step_by(self.of as usize).collect()
    }

    /// Which of so many in a row are its, where neighbours take as long as each other.
    pub fn range(self, all: u64) -> Range<u64> {
        let share = |index: u64| (u128::from(all) * u128::from(index) / u128::from(self.of)) as u64;
        share(self.index)..share(self.index + 1)
    }
}

impl FromStr for Shard {
    type Err = String;

    /// `I/N`, or `N`: which one it is says the environment.
    fn from_str(text: &str) -> Result<Shard, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
        let (index, of) = match text.split_once('/') {
            Some((index, of)) => (Some(number(index)?), number(of)?),
            None => (None, number(text)?),
        };
        if !(1..=SHARDS_MAX).contains(&of) {
            return Err(format!("expected 1 to {SHARDS_MAX} shards, found {of}"));
        }
        let index = match index {
            Some(index) => index,
            None => index_of_environment(|name| std::env::var(name).ok())?,
        };
        if index >= of {
            return Err(format!("expected a number from 0 to {}, found {index}", of - 1));
        }
        Ok(Shard { index, of })
    }
}

/// The finisher of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014): no two numbers have the same.
fn mixed(row: u64) -> u64 {
    let z = row.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn index_of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<u64, String> {
    let number = |name: &str| -> Result<Option<u64>, String> {
        let Some(text) = variable(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{name} is `{text}`, no number"))
    };
    if let Some(index) = number(KUBERNETES_INDEX)? {
        return Ok(index);
    }
    let index = number(SLURM_INDEX)?.ok_or_else(|| {
        format!(
            "expected I/N: neither {KUBERNETES_INDEX} nor {SLURM_INDEX} says which shard this is"
        )
    })?;
    let first = number(SLURM_FIRST)?.unwrap_or(0);
    index.checked_sub(first).ok_or_else(|| format!("{SLURM_INDEX} is below {SLURM_FIRST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_all_rows() {
        let shards = ["0/3", "1/3", "2/3"].map(|text| text.parse::<Shard>().unwrap());
        let rows = shards.map(|shard| shard.rows(100));
        assert_eq!(rows.each_ref().map(BTreeSet::len), [34, 33, 33]);
        assert_eq!(rows.iter().flatten().collect::<BTreeSet<_>>().len(), 100);
        // Neither has all rows of one setting.
        for rows in &rows {
            assert!((10..24).contains(&rows.iter().filter(|row| **row % 2 == 0).count()));
        }
        for wrong in ["3/3", "0/0", "1/", "/2", "a/2", "-1/2", "1/9999999", ""] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
        let ranges = shards.map(|shard| shard.range(100));
        assert_eq!(ranges, [0..33, 33..66, 66..100]);
        assert_eq!(shards.map(|shard| shard.range(2)), [0..0, 0..1, 1..2]);
        assert_eq!(shards[2].range(u64::MAX).end, u64::MAX);
    }

    #[test]
    fn the_environment_says_which() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs.to_vec();
            index_of_environment(move |name| {
                let pair = pairs.iter().find(|(known, _)| *known == name);
                pair.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[(KUBERNETES_INDEX, "2")]), Ok(2));
        assert_eq!(of(&[(SLURM_INDEX, "4")]), Ok(4));
        assert_eq!(of(&[(SLURM_INDEX, "4"), (SLURM_FIRST, "1")]), Ok(3));
        assert!(of(&[]).is_err() && of(&[(SLURM_INDEX, "x")]).is_err());
        assert!(of(&[(SLURM_INDEX, "0"), (SLURM_FIRST, "1")]).is_err());
    }
}
