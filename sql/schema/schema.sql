CREATE TABLE `alert` (
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `rule` varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `is_firing` tinyint(1) NOT NULL,
  `log_time` datetime NOT NULL,
  `value` double NOT NULL,
  `bound` double NOT NULL,
  `changed_at` datetime(6) NOT NULL,
  `notified_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`pipeline`,`rule`),
  CONSTRAINT `alert_of_pipeline` FOREIGN KEY (`pipeline`) REFERENCES `progress` (`pipeline`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `amendment` (
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `log_time` datetime NOT NULL,
  `amended_at` datetime(6) NOT NULL,
  `batch_id` bigint unsigned NOT NULL,
  PRIMARY KEY (`pipeline`,`log_time`),
  KEY `amendments_by_time` (`pipeline`,`amended_at`,`log_time`),
  CONSTRAINT `amendment_of_pipeline` FOREIGN KEY (`pipeline`) REFERENCES `progress` (`pipeline`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `batch` (
  `batch_id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `lane` varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  `kind` enum('ingest','replay','fold') NOT NULL,
  `state` enum('planned','committed','abandoned') NOT NULL DEFAULT 'planned',
  `attempt` int unsigned NOT NULL DEFAULT '0',
  `planned_at` datetime(6) NOT NULL,
  `planned_version` varchar(64) NOT NULL,
  `requested_by` varchar(250) NOT NULL,
  `run_id` varchar(250) DEFAULT NULL,
  `scheduled_at` datetime(6) DEFAULT NULL,
  `claimed_at` datetime(6) DEFAULT NULL,
  `claimed_by` varchar(250) DEFAULT NULL,
  `claim_token` char(32) CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  `read_at` datetime(6) DEFAULT NULL,
  `committed_at` datetime(6) DEFAULT NULL,
  `committed_version` varchar(64) DEFAULT NULL,
  `format_fingerprint` varchar(64) DEFAULT NULL,
  `abandoned_at` datetime(6) DEFAULT NULL,
  `abandoned_by` varchar(250) DEFAULT NULL,
  `reason` varchar(1000) DEFAULT NULL,
  `pruned_at` datetime(6) DEFAULT NULL,
  `replay_id` bigint unsigned DEFAULT NULL,
  `open_ingest` varchar(95) CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS ((case when ((`kind` = _utf8mb4'ingest') and (`state` = _utf8mb4'planned')) then concat(`pipeline`,`lane`) end)) STORED,
  `is_dense` tinyint(1) DEFAULT NULL,
  `waiting_offsets` bigint unsigned DEFAULT NULL,
  PRIMARY KEY (`batch_id`),
  UNIQUE KEY `one_open_ingest_batch` (`open_ingest`),
  KEY `batches_of_pipeline` (`pipeline`,`batch_id`),
  KEY `batches_of_replay` (`replay_id`,`batch_id`),
  KEY `batches_by_state` (`pipeline`,`kind`,`state`,`batch_id`),
  KEY `batches_by_commit` (`pipeline`,`kind`,`state`,`committed_at`),
  KEY `batches_of_run` (`run_id`),
  KEY `batches_by_rule` (`pipeline`,`format_fingerprint`,`batch_id`),
  CONSTRAINT `batch_of_pipeline` FOREIGN KEY (`pipeline`) REFERENCES `pipeline` (`pipeline`),
  CONSTRAINT `batch_of_replay` FOREIGN KEY (`replay_id`) REFERENCES `replay` (`replay_id`),
  CONSTRAINT `abandoned_batch_says_why` CHECK ((((`state` = _utf8mb4'abandoned') = (`abandoned_at` is not null)) and ((`state` <> _utf8mb4'abandoned') or (`reason` is not null)))),
  CONSTRAINT `committed_batch_says_when` CHECK ((((`state` = _utf8mb4'committed') = (`committed_at` is not null)) and ((`state` <> _utf8mb4'committed') or (`attempt` > 0)))),
  CONSTRAINT `replay_batch_has_a_replay` CHECK (((`kind` = _utf8mb4'replay') = (`replay_id` is not null)))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `completion` (
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `complete_before` datetime NOT NULL,
  `completed_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`pipeline`,`complete_before`),
  CONSTRAINT `completion_of_pipeline` FOREIGN KEY (`pipeline`) REFERENCES `progress` (`pipeline`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `dead_letter` (
  `segment_id` bigint unsigned NOT NULL,
  `record_offset` bigint NOT NULL,
  `reason` varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `value` mediumblob,
  `value_bytes` bigint unsigned DEFAULT NULL,
  `written_at` datetime(6) DEFAULT NULL,
  `log_time` datetime DEFAULT NULL,
  `is_erased` tinyint(1) NOT NULL DEFAULT '0',
  PRIMARY KEY (`segment_id`,`record_offset`),
  KEY `letters_by_minute` (`segment_id`,`log_time`),
  CONSTRAINT `dead_letter_of_segment` FOREIGN KEY (`segment_id`) REFERENCES `segment` (`segment_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `dead_letter_total` (
  `segment_id` bigint unsigned NOT NULL,
  `reason` varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `dead_letters` bigint unsigned NOT NULL,
  `incarnation_id` bigint unsigned DEFAULT NULL,
  PRIMARY KEY (`segment_id`,`reason`),
  KEY `totals_of_incarnation` (`incarnation_id`,`segment_id`),
  CONSTRAINT `total_of_segment` FOREIGN KEY (`segment_id`) REFERENCES `segment` (`segment_id`),
  CONSTRAINT `total_is_positive` CHECK ((`dead_letters` > 0))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `erasure` (
  `erasure_id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `incarnation_id` bigint unsigned NOT NULL,
  `partition_id` int unsigned NOT NULL,
  `from_offset` bigint NOT NULL,
  `until_offset` bigint NOT NULL,
  `requested_at` datetime(6) NOT NULL,
  `requested_by` varchar(255) NOT NULL,
  `reason` varchar(1000) NOT NULL,
  PRIMARY KEY (`erasure_id`),
  UNIQUE KEY `erased_once` (`incarnation_id`,`partition_id`,`from_offset`,`until_offset`),
  KEY `erasures_of_partition` (`incarnation_id`,`partition_id`,`until_offset`),
  CONSTRAINT `erasure_of_generation` FOREIGN KEY (`incarnation_id`) REFERENCES `topic_incarnation` (`incarnation_id`),
  CONSTRAINT `erasure_has_offsets` CHECK ((`from_offset` < `until_offset`))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `error_log` (
  `log_time` datetime NOT NULL,
  `log_count` int NOT NULL DEFAULT '0',
  PRIMARY KEY (`log_time`),
  CONSTRAINT `error_log_count_is_not_negative` CHECK ((`log_count` >= 0))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `folded_count` (
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `log_time` datetime NOT NULL,
  `log_count` bigint NOT NULL,
  PRIMARY KEY (`pipeline`,`log_time`),
  CONSTRAINT `folded_count_of_pipeline` FOREIGN KEY (`pipeline`) REFERENCES `pipeline` (`pipeline`),
  CONSTRAINT `folded_count_is_positive` CHECK ((`log_count` > 0))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `ledger_identity` (
  `ledger_id` varchar(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (`ledger_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `lost_range` (
  `lost_range_id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `incarnation_id` bigint unsigned NOT NULL,
  `partition_id` int unsigned NOT NULL,
  `from_offset` bigint NOT NULL,
  `until_offset` bigint NOT NULL,
  `cause` enum('expired','truncated','missing') NOT NULL DEFAULT 'expired',
  `state` enum('open','accepted','restored') NOT NULL DEFAULT 'open',
  `detected_at` datetime(6) NOT NULL,
  `decided_at` datetime(6) DEFAULT NULL,
  `decided_by` varchar(250) DEFAULT NULL,
  `reason` varchar(1000) DEFAULT NULL,
  `open_partition` int unsigned GENERATED ALWAYS AS ((case when (`state` = _utf8mb4'open') then `partition_id` end)) STORED,
  PRIMARY KEY (`lost_range_id`),
  UNIQUE KEY `one_open_loss_of_a_partition` (`incarnation_id`,`open_partition`),
  KEY `losses_of_partition` (`incarnation_id`,`partition_id`,`from_offset`),
  CONSTRAINT `loss_of_partition` FOREIGN KEY (`incarnation_id`, `partition_id`) REFERENCES `partition_offset` (`incarnation_id`, `partition_id`),
  CONSTRAINT `accepted_loss_says_who_and_why` CHECK (((`state` <> _utf8mb4'accepted') or ((`decided_at` is not null) and (`decided_by` is not null) and (`reason` is not null)))),
  CONSTRAINT `loss_is_not_empty` CHECK (((0 <= `from_offset`) and (`from_offset` < `until_offset`)))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `partition_offset` (
  `incarnation_id` bigint unsigned NOT NULL,
  `partition_id` int unsigned NOT NULL,
  `start_offset` bigint NOT NULL,
  `next_offset` bigint NOT NULL,
  `seen_end` bigint DEFAULT NULL,
  `seen_at` datetime(6) DEFAULT NULL,
  `counted_through` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`incarnation_id`,`partition_id`),
  CONSTRAINT `offset_of_incarnation` FOREIGN KEY (`incarnation_id`) REFERENCES `topic_incarnation` (`incarnation_id`),
  CONSTRAINT `next_offset_is_not_before_start` CHECK (((0 <= `start_offset`) and (`start_offset` <= `next_offset`)))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `pipeline` (
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `result_table` varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `labels` varchar(2000) CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  `measure` enum('count','bytes') NOT NULL DEFAULT 'count',
  `rows_table` varchar(63) CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  `texts_erased_until` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`pipeline`),
  UNIQUE KEY `result_table_has_one_owner` (`result_table`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `progress` (
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `counted_through` datetime(6) DEFAULT NULL,
  `complete_before` datetime DEFAULT NULL,
  `time_zone` varchar(64) NOT NULL DEFAULT 'UTC',
  `planned_by` char(64) CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  `judged_before` datetime DEFAULT NULL,
  `found_at` datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  PRIMARY KEY (`pipeline`),
  CONSTRAINT `progress_of_pipeline` FOREIGN KEY (`pipeline`) REFERENCES `pipeline` (`pipeline`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `replacement` (
  `segment_id` bigint unsigned NOT NULL,
  `replaced_id` bigint unsigned NOT NULL,
  PRIMARY KEY (`segment_id`,`replaced_id`),
  KEY `replacements_of_segment` (`replaced_id`),
  CONSTRAINT `replacement_by_segment` FOREIGN KEY (`segment_id`) REFERENCES `segment` (`segment_id`),
  CONSTRAINT `replacement_of_segment` FOREIGN KEY (`replaced_id`) REFERENCES `segment` (`segment_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `replay` (
  `replay_id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `state` enum('open','done','cancelled') NOT NULL DEFAULT 'open',
  `request` varchar(1000) NOT NULL,
  `request_digest` char(64) CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  `requested_at` datetime(6) NOT NULL,
  `requested_by` varchar(250) NOT NULL,
  `requested_version` varchar(64) NOT NULL,
  `run_id` varchar(250) DEFAULT NULL,
  `reason` varchar(1000) NOT NULL,
  `ended_at` datetime(6) DEFAULT NULL,
  `pruned_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`replay_id`),
  KEY `replays_of_pipeline` (`pipeline`,`replay_id`),
  CONSTRAINT `replay_of_pipeline` FOREIGN KEY (`pipeline`) REFERENCES `pipeline` (`pipeline`),
  CONSTRAINT `ended_replay_says_when` CHECK (((`state` = _utf8mb4'open') = (`ended_at` is null)))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `row_outbox` (
  `segment_id` bigint unsigned NOT NULL,
  PRIMARY KEY (`segment_id`),
  CONSTRAINT `outbox_of_segment` FOREIGN KEY (`segment_id`) REFERENCES `segment` (`segment_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `segment` (
  `segment_id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `batch_id` bigint unsigned NOT NULL,
  `incarnation_id` bigint unsigned NOT NULL,
  `partition_id` int unsigned NOT NULL,
  `from_offset` bigint NOT NULL,
  `until_offset` bigint NOT NULL,
  `state` enum('planned','live','superseded','abandoned','folded') NOT NULL DEFAULT 'planned',
  `superseded_by` bigint unsigned DEFAULT NULL,
  `records` bigint unsigned DEFAULT NULL,
  `matched` bigint unsigned DEFAULT NULL,
  `unmatched` bigint unsigned DEFAULT NULL,
  `malformed` bigint unsigned DEFAULT NULL,
  `first_offset` bigint DEFAULT NULL,
  `last_offset` bigint DEFAULT NULL,
  `live_from` bigint GENERATED ALWAYS AS ((case when (`state` in (_utf8mb4'live',_utf8mb4'folded')) then `from_offset` end)) STORED,
  `live_until` bigint GENERATED ALWAYS AS ((case when (`state` in (_utf8mb4'live',_utf8mb4'folded')) then `until_offset` end)) STORED,
  `row_set` bigint unsigned DEFAULT NULL,
  `continuations` bigint unsigned DEFAULT NULL,
  PRIMARY KEY (`segment_id`),
  UNIQUE KEY `one_range_of_a_partition` (`batch_id`,`incarnation_id`,`partition_id`),
  UNIQUE KEY `live_segments_start_apart` (`incarnation_id`,`partition_id`,`live_from`),
  UNIQUE KEY `live_segments_end_apart` (`incarnation_id`,`partition_id`,`live_until`),
  KEY `superseded_by_segment` (`superseded_by`),
  KEY `segments_by_row_set` (`row_set`),
  CONSTRAINT `segment_of_batch` FOREIGN KEY (`batch_id`) REFERENCES `batch` (`batch_id`),
  CONSTRAINT `segment_of_partition` FOREIGN KEY (`incarnation_id`, `partition_id`) REFERENCES `partition_offset` (`incarnation_id`, `partition_id`),
  CONSTRAINT `superseded_by_segment` FOREIGN KEY (`superseded_by`) REFERENCES `segment` (`segment_id`),
  CONSTRAINT `counted_segment_adds_up` CHECK (((`state` in (_utf8mb4'planned',_utf8mb4'abandoned')) or ((`records` is not null) and (`records` = ((`matched` + `unmatched`) + `malformed`)) and (`records` <= (`until_offset` - `from_offset`))))),
  CONSTRAINT `offsets_seen_lie_in_range` CHECK (((`records` is null) or ((`records` = 0) and (`first_offset` is null) and (`last_offset` is null)) or ((`from_offset` <= `first_offset`) and (`first_offset` <= `last_offset`) and (`last_offset` < `until_offset`)))),
  CONSTRAINT `range_is_not_empty` CHECK (((0 <= `from_offset`) and (`from_offset` < `until_offset`))),
  CONSTRAINT `superseded_segment_says_by_whom` CHECK (((`state` = _utf8mb4'superseded') = (`superseded_by` is not null)))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `segment_count` (
  `segment_id` bigint unsigned NOT NULL,
  `log_time` datetime NOT NULL,
  `log_count` int NOT NULL,
  PRIMARY KEY (`segment_id`,`log_time`),
  KEY `contributions_by_minute` (`log_time`),
  CONSTRAINT `count_of_segment` FOREIGN KEY (`segment_id`) REFERENCES `segment` (`segment_id`),
  CONSTRAINT `contribution_is_a_minute` CHECK ((second(`log_time`) = 0)),
  CONSTRAINT `contribution_is_positive` CHECK ((`log_count` > 0))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

CREATE TABLE `topic_incarnation` (
  `incarnation_id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `topic` varchar(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `topic_id` varchar(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `cluster_id` varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `state` enum('current','retired') NOT NULL DEFAULT 'current',
  `seen_at` datetime(6) NOT NULL,
  `retired_at` datetime(6) DEFAULT NULL,
  `adopted_by` varchar(250) DEFAULT NULL,
  `reason` varchar(1000) DEFAULT NULL,
  `current_topic` varchar(249) CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS ((case when (`state` = _utf8mb4'current') then `topic` end)) STORED,
  PRIMARY KEY (`incarnation_id`),
  UNIQUE KEY `one_row_for_each_life` (`pipeline`,`topic`,`cluster_id`,`topic_id`),
  UNIQUE KEY `one_current_incarnation` (`pipeline`,`current_topic`),
  CONSTRAINT `incarnation_of_pipeline` FOREIGN KEY (`pipeline`) REFERENCES `pipeline` (`pipeline`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

