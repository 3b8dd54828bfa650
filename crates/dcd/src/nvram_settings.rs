//! What the flags and keys of the memory in front of the log say.

use std::time::Duration;

use clap::ValueEnum;
use dcd_daemon::pair::NvramOptions;
use dcd_engine::nvram::durable::DurableConfig;
use dcd_engine::nvram::groups::GROUP_BLOCKS_MAX;
use dcd_engine::nvram::{NvramConfig, NvramPolicyKind};
use dcd_engine::units::BLOCK_SIZE;

use crate::settings::{Settings, span};

/// At this age a group is cleaned, if nothing else is said.
const AGE_MAX_DEFAULT: dcd_engine::Duration = dcd_engine::Duration::from_secs(30);
/// Largest write that goes into the memory.
const BYPASS_BYTES_MAX: u64 = 1 << 20;

/// `--nvram-survives`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SurvivesArgument {
    /// A loss of power: a battery keeps the memory of this machine
    Power,
}

/// `--nvram-policy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum NvramPolicyArgument {
    /// Whatever has made requests wait least of late, with thresholds that follow the load
    Auto,
    /// What was written longest ago
    Lru,
    /// What came longest ago
    Fifo,
    /// What is nearest to the last access of the log
    Stf,
    /// The same, sooner the older it is
    Wstf,
    /// The group with most dirty blocks
    Lst,
    /// The largest of those that are not written again and again
    Stack,
    /// The group whose age times blocks for each write is largest
    AgeSize,
    /// What costs least for the blocks that it frees: greedy dual size
    Gds,
}

/// Settings of the memory that do not go together.
#[derive(Debug, thiserror::Error)]
pub enum NvramSettingsError {
    /// One that means nothing without another.
    #[error("{flag} is only for {needs}")]
    Needs {
        /// The flag.
        flag: &'static str,
        /// What it needs.
        needs: &'static str,
    },
    /// One that cannot be.
    #[error("{flag}: expected {expected}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// What it may be.
        expected: &'static str,
    },
}

impl NvramSettingsError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            NvramSettingsError::Needs { needs, .. } => format!("add {needs}, or leave it out"),
            NvramSettingsError::Value { .. } => "`dcd serve --help` tells what it does".into(),
        }
    }
}

impl Settings {
    /// The memory in front of the log, if there is to be one.
    pub fn nvram_options(&self) -> Result<Option<NvramOptions>, NvramSettingsError> {
        let Some(disk) = &self.nvram else {
            let needs = "--nvram";
            return match self.nvram_flag() {
                Some(flag) => Err(NvramSettingsError::Needs { flag, needs }),
                None => Ok(None),
            };
        };
        let default = NvramConfig::default();
        let is_wstf = self.nvram_policy == Some(NvramPolicyArgument::Wstf);
        if self.nvram_age_max.is_some() && !is_wstf {
            let (flag, needs) = ("--nvram-age-max", "--nvram-policy wstf");
            return Err(NvramSettingsError::Needs { flag, needs });
        }
        let fixed = [
            ("--nvram-high", self.nvram_high.is_some()),
            ("--nvram-low", self.nvram_low.is_some()),
            ("--nvram-idle", self.nvram_idle.is_some()),
        ];
        let fixed = fixed.into_iter().find(|(_, is_set)| *is_set).map(|(flag, _)| flag);
        // Who sets a threshold has the policy of the thresholds.
        let policy = self.nvram_policy.unwrap_or(match fixed {
            Some(_) => NvramPolicyArgument::Lru,
            None => NvramPolicyArgument::Auto,
        });
        if let (NvramPolicyArgument::Auto, Some(flag)) = (policy, fixed) {
            let needs = "another --nvram-policy than auto";
            return Err(NvramSettingsError::Needs { flag, needs });
        }
        let high_percent = self.nvram_high.unwrap_or(default.high_percent);
        let low_percent = self.nvram_low.unwrap_or(default.low_percent.min(high_percent));
        let group_bytes = self.nvram_group.unwrap_or(64 << 10);
        let bypass_bytes = self.nvram_bypass.unwrap_or(default.bypass_blocks * BLOCK_SIZE);
        let wrong = |flag, expected| Err(NvramSettingsError::Value { flag, expected });
        if low_percent > high_percent {
            return wrong("--nvram-low", "at most --nvram-high");
        }
        if !group_bytes.is_multiple_of(4096)
            || !(4096..=GROUP_BLOCKS_MAX * BLOCK_SIZE).contains(&group_bytes)
        {
            return wrong("--nvram-group", "a multiple of 4k, at most 2M");
        }
        if !bypass_bytes.is_multiple_of(4096) || !(4096..=BYPASS_BYTES_MAX).contains(&bypass_bytes)
        {
            return wrong("--nvram-bypass", "a multiple of 4k, at most 1M");
        }
        let nvram = NvramConfig {
            policy: match policy {
                NvramPolicyArgument::Auto => NvramPolicyKind::Auto,
                NvramPolicyArgument::Lru => NvramPolicyKind::Lru,
                NvramPolicyArgument::Fifo => NvramPolicyKind::Fifo,
                NvramPolicyArgument::Stf => NvramPolicyKind::Stf,
                NvramPolicyArgument::Wstf => {
                    let age_max = span(self.nvram_age_max, AGE_MAX_DEFAULT);
                    NvramPolicyKind::WeightedStf { age_max }
                }
                NvramPolicyArgument::Lst => NvramPolicyKind::Lst,
                NvramPolicyArgument::Stack => NvramPolicyKind::Stack,
                NvramPolicyArgument::AgeSize => NvramPolicyKind::AgeSize,
                NvramPolicyArgument::Gds => NvramPolicyKind::Gds,
            },
            high_percent,
            low_percent,
            bypass_blocks: bypass_bytes / BLOCK_SIZE,
            idle: span(self.nvram_idle, default.idle),
            wear_floor_percent: self.nvram_wear_floor.unwrap_or(0),
            ..default
        };
        Ok(Some(NvramOptions {
            disk: disk.clone(),
            survives_power: self.nvram_survives.is_some(),
            config: DurableConfig { nvram, group_blocks: group_bytes / BLOCK_SIZE },
        }))
    }

    /// A flag that means nothing without the memory, if one of them is set.
    fn nvram_flag(&self) -> Option<&'static str> {
        let is_set = |time: &Option<Duration>| time.is_some();
        let flags = [
            ("--nvram-survives", self.nvram_survives.is_some()),
            ("--nvram-policy", self.nvram_policy.is_some()),
            ("--nvram-high", self.nvram_high.is_some()),
            ("--nvram-low", self.nvram_low.is_some()),
            ("--nvram-idle", is_set(&self.nvram_idle)),
            ("--nvram-wear-floor", self.nvram_wear_floor.is_some()),
            ("--nvram-group", self.nvram_group.is_some()),
            ("--nvram-bypass", self.nvram_bypass.is_some()),
            ("--nvram-age-max", is_set(&self.nvram_age_max)),
        ];
        flags.into_iter().find(|(_, is_set)| *is_set).map(|(flag, _)| flag)
    }
}
