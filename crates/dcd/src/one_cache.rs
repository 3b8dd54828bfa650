//! Which settings can only be said of one cache, where several are served together.

use crate::settings::Settings;

impl Settings {
    /// A flag that cannot hold for several caches at once, if one of them is set: it names what
    /// only one can have, or an exception that somebody makes for one after having read about it.
    pub fn is_for_one_cache(&self) -> Option<&'static str> {
        // All fields are named, so that none is forgotten that will be added.
        let Settings {
            tls_cert: _,
            tls_key: _,
            tls_ca: _,
            tls_allow: _,
            tls_read_only: _,
            insecure_tcp: _,
            tcp_ack: _,
            connections_max: _,
            loop_device: _,
            read_only: _,
            busy_poll: _,
            mode: _,
            ack: _,
            max_delay: _,
            bypass_threshold: _,
            destage_policy: _,
            idle_max: _,
            idle_min: _,
            dirty_high: _,
            dirty_low: _,
            destage_rate: _,
            fill_rate: _,
            destage_iops: _,
            one_disk: _,
            no_verify_reads: _,
            no_log: _,
            suspect_after: _,
            scrub_every: _,
            spare_after: _,
            volume_memory: _,
            index_max: _,
            full_timeout: _,
            drain_timeout: _,
            io_timeout: _,
            member_timeout: _,
            segment_buffers: _,
            read_ahead: _,
            sequence_share: _,
            no_hot_blocks: _,
            no_detect: _,
            memory_directory: _,
            wait: _,
            stop_timeout: _,
            lock_memory: _,
            nvram_survives: _,
            nvram_policy: _,
            nvram_high: _,
            nvram_low: _,
            nvram_idle: _,
            nvram_wear_floor: _,
            nvram_group: _,
            nvram_bypass: _,
            nvram_age_max: _,
            cache_disk,
            share,
            data_disk,
            nbd,
            fuse,
            ublk: _,
            vhost_user,
            control,
            http,
            // One token may be for all.
            http_token: _,
            metrics,
            accept_damage,
            trust_disks,
            degraded,
            replace_member,
            witness,
            new_leg,
            without_leg,
            memory_lost,
            nvram,
            nvram_lost,
            processor,
            memory_max,
        } = self;
        let flags = [
            ("--cache-disk", !cache_disk.is_empty()),
            ("--share", share.is_some()),
            ("--data-disk", !data_disk.is_empty()),
            ("--nbd", !nbd.is_empty()),
            ("--fuse", fuse.is_some()),
            // Each can have the next free number.
            ("--ublk", self.ublk_number().is_some()),
            ("--vhost-user", vhost_user.is_some()),
            ("--control", control.is_some()),
            ("--http", http.is_some()),
            ("--metrics", metrics.is_some()),
            ("--accept-damage", *accept_damage),
            ("--trust-disks", *trust_disks),
            ("--degraded", *degraded),
            ("--replace-member", !replace_member.is_empty()),
            ("--witness", witness.is_some()),
            ("--new-leg", !new_leg.is_empty()),
            ("--without-leg", !without_leg.is_empty()),
            ("--memory-lost", *memory_lost),
            ("--nvram", nvram.is_some()),
            ("--nvram-lost", *nvram_lost),
            ("--cpu", processor.is_some()),
            // Each would take as much, or all together: both may be meant.
            ("--memory-max", memory_max.is_some()),
        ];
        flags.into_iter().find(|(_, is_set)| *is_set).map(|(flag, _)| flag)
    }

    /// The number of the ublk device, if it is said.
    pub fn ublk_number(&self) -> Option<u32> {
        self.ublk.and_then(|number| number.said())
    }
}
