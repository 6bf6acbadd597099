-- A ledger as migrations 0001 to 0006 made it, with data: counted minutes, a dead letter,
-- a replay by other levels, folded minutes and an open batch. {pipeline}, {topic_id} and {cluster_id}
-- stand for what the test fills in; its module says which records the topic holds.

CREATE TABLE `_yoyo_log` (
  `id` varchar(36) NOT NULL,
  `migration_hash` varchar(64) DEFAULT NULL,
  `migration_id` varchar(255) DEFAULT NULL,
  `operation` varchar(10) DEFAULT NULL,
  `username` varchar(255) DEFAULT NULL,
  `hostname` varchar(255) DEFAULT NULL,
  `comment` varchar(255) DEFAULT NULL,
  `created_at_utc` timestamp NULL DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `_yoyo_migration` (
  `migration_hash` varchar(64) NOT NULL,
  `migration_id` varchar(255) DEFAULT NULL,
  `applied_at_utc` timestamp NULL DEFAULT NULL,
  PRIMARY KEY (`migration_hash`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `_yoyo_version` (
  `version` int NOT NULL,
  `installed_at_utc` timestamp NULL DEFAULT NULL,
  PRIMARY KEY (`version`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `batch` (
  `batch_id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `kind` enum('ingest','replay','fold') NOT NULL,
  `state` enum('planned','committed','abandoned') NOT NULL DEFAULT 'planned',
  `attempt` int unsigned NOT NULL DEFAULT '0',
  `planned_at` datetime(6) NOT NULL,
  `planned_version` varchar(64) NOT NULL,
  `requested_by` varchar(250) NOT NULL,
  `run_id` varchar(250) DEFAULT NULL,
  `claimed_at` datetime(6) DEFAULT NULL,
  `claimed_by` varchar(250) DEFAULT NULL,
  `committed_at` datetime(6) DEFAULT NULL,
  `committed_version` varchar(64) DEFAULT NULL,
  `format_fingerprint` varchar(64) DEFAULT NULL,
  `abandoned_at` datetime(6) DEFAULT NULL,
  `abandoned_by` varchar(250) DEFAULT NULL,
  `reason` varchar(1000) DEFAULT NULL,
  `open_ingest` varchar(63) CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS ((case when ((`kind` = _utf8mb4'ingest') and (`state` = _utf8mb4'planned')) then `pipeline` end)) STORED,
  `replay_id` bigint unsigned DEFAULT NULL,
  PRIMARY KEY (`batch_id`),
  UNIQUE KEY `one_open_ingest_batch` (`open_ingest`),
  KEY `batches_of_pipeline` (`pipeline`,`batch_id`),
  KEY `batches_of_replay` (`replay_id`,`batch_id`),
  CONSTRAINT `batch_of_pipeline` FOREIGN KEY (`pipeline`) REFERENCES `pipeline` (`pipeline`),
  CONSTRAINT `batch_of_replay` FOREIGN KEY (`replay_id`) REFERENCES `replay` (`replay_id`),
  CONSTRAINT `abandoned_batch_says_why` CHECK ((((`state` = _utf8mb4'abandoned') = (`abandoned_at` is not null)) and ((`state` <> _utf8mb4'abandoned') or (`reason` is not null)))),
  CONSTRAINT `committed_batch_says_when` CHECK ((((`state` = _utf8mb4'committed') = (`committed_at` is not null)) and ((`state` <> _utf8mb4'committed') or (`attempt` > 0)))),
  CONSTRAINT `replay_batch_has_a_replay` CHECK (((`kind` = _utf8mb4'replay') = (`replay_id` is not null)))
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `dead_letter` (
  `segment_id` bigint unsigned NOT NULL,
  `record_offset` bigint NOT NULL,
  `reason` varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `value` mediumblob,
  `value_bytes` bigint unsigned DEFAULT NULL,
  PRIMARY KEY (`segment_id`,`record_offset`),
  CONSTRAINT `dead_letter_of_segment` FOREIGN KEY (`segment_id`) REFERENCES `segment` (`segment_id`)
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
CREATE TABLE `{pipeline}` (
  `log_time` datetime NOT NULL,
  `log_count` int NOT NULL DEFAULT '0',
  PRIMARY KEY (`log_time`),
  CONSTRAINT `{pipeline}_chk_1` CHECK ((`log_count` >= 0))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `partition_offset` (
  `incarnation_id` bigint unsigned NOT NULL,
  `partition_id` int unsigned NOT NULL,
  `start_offset` bigint NOT NULL,
  `next_offset` bigint NOT NULL,
  PRIMARY KEY (`incarnation_id`,`partition_id`),
  CONSTRAINT `offset_of_incarnation` FOREIGN KEY (`incarnation_id`) REFERENCES `topic_incarnation` (`incarnation_id`),
  CONSTRAINT `next_offset_is_not_before_start` CHECK (((0 <= `start_offset`) and (`start_offset` <= `next_offset`)))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `pipeline` (
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `result_table` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `created_at` datetime(6) NOT NULL,
  PRIMARY KEY (`pipeline`),
  UNIQUE KEY `result_table_has_one_owner` (`result_table`)
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
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
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
  PRIMARY KEY (`segment_id`),
  UNIQUE KEY `one_range_of_a_partition` (`batch_id`,`incarnation_id`,`partition_id`),
  UNIQUE KEY `live_segments_start_apart` (`incarnation_id`,`partition_id`,`live_from`),
  UNIQUE KEY `live_segments_end_apart` (`incarnation_id`,`partition_id`,`live_until`),
  KEY `superseded_by_segment` (`superseded_by`),
  CONSTRAINT `segment_of_batch` FOREIGN KEY (`batch_id`) REFERENCES `batch` (`batch_id`),
  CONSTRAINT `segment_of_partition` FOREIGN KEY (`incarnation_id`, `partition_id`) REFERENCES `partition_offset` (`incarnation_id`, `partition_id`),
  CONSTRAINT `superseded_by_segment` FOREIGN KEY (`superseded_by`) REFERENCES `segment` (`segment_id`),
  CONSTRAINT `counted_segment_adds_up` CHECK (((`state` in (_utf8mb4'planned',_utf8mb4'abandoned')) or ((`records` is not null) and (`records` = ((`matched` + `unmatched`) + `malformed`)) and (`records` <= (`until_offset` - `from_offset`))))),
  CONSTRAINT `offsets_seen_lie_in_range` CHECK (((`records` is null) or ((`records` = 0) and (`first_offset` is null) and (`last_offset` is null)) or ((`from_offset` <= `first_offset`) and (`first_offset` <= `last_offset`) and (`last_offset` < `until_offset`)))),
  CONSTRAINT `range_is_not_empty` CHECK (((0 <= `from_offset`) and (`from_offset` < `until_offset`))),
  CONSTRAINT `superseded_segment_says_by_whom` CHECK (((`state` = _utf8mb4'superseded') = (`superseded_by` is not null)))
) ENGINE=InnoDB AUTO_INCREMENT=10 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `segment_count` (
  `segment_id` bigint unsigned NOT NULL,
  `log_time` datetime NOT NULL,
  `log_count` int NOT NULL,
  PRIMARY KEY (`segment_id`,`log_time`),
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
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `yoyo_lock` (
  `locked` int NOT NULL DEFAULT '1',
  `ctime` timestamp NULL DEFAULT NULL,
  `pid` int NOT NULL,
  PRIMARY KEY (`locked`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
insert into `_yoyo_log` (`id`, `migration_hash`, `migration_id`, `operation`, `username`, `hostname`, `comment`, `created_at_utc`) values ('c56f897c-e645-11f1-a258-02fc00000001', 'd817248062b4739820087125471ebb6bf54498402130da036faa3538d59f631e', '0001.ledger', 'apply', 'someone', 'localhost', NULL, '2026-11-22 07:24:36');
insert into `_yoyo_log` (`id`, `migration_hash`, `migration_id`, `operation`, `username`, `hostname`, `comment`, `created_at_utc`) values ('c5b62dfa-e645-11f1-a258-02fc00000001', '9dde26a4f1f280d33aa5be77d6762a8025a26c5e5287a8ee00b43725649d3c0b', '0002.loss-cause', 'apply', 'someone', 'localhost', NULL, '2026-11-22 07:24:37');
insert into `_yoyo_log` (`id`, `migration_hash`, `migration_id`, `operation`, `username`, `hostname`, `comment`, `created_at_utc`) values ('c5f3faf4-e645-11f1-a258-02fc00000001', '8a2ec14173a81b71b6f8f38a8a0f8cfa24899ee1c3c33d54ad551a918bb463ef', '0003.replay', 'apply', 'someone', 'localhost', NULL, '2026-11-22 07:24:37');
insert into `_yoyo_log` (`id`, `migration_hash`, `migration_id`, `operation`, `username`, `hostname`, `comment`, `created_at_utc`) values ('c64fcfbe-e645-11f1-a258-02fc00000001', 'caf361323cfec6f4cafeeeb0b0e3dd1497a3c444213229aa363f4f97fa4d6c91', '0004.folded', 'apply', 'someone', 'localhost', NULL, '2026-11-22 07:24:38');
insert into `_yoyo_log` (`id`, `migration_hash`, `migration_id`, `operation`, `username`, `hostname`, `comment`, `created_at_utc`) values ('c6ad9144-e645-11f1-a258-02fc00000001', 'e701743d110a6aafdb033b039e1a273eea52ad93e52d3776f7f0ada00f148e75', '0005.fold-batch', 'apply', 'someone', 'localhost', NULL, '2026-11-22 07:24:39');
insert into `_yoyo_log` (`id`, `migration_hash`, `migration_id`, `operation`, `username`, `hostname`, `comment`, `created_at_utc`) values ('c6fd51b6-e645-11f1-a258-02fc00000001', '809f7367ccffe2dcb42683a8ebce36dfd33125d83137a1891169a7ea8462a0d0', '0006.replay-pruned', 'apply', 'someone', 'localhost', NULL, '2026-11-22 07:24:39');
insert into `_yoyo_migration` (`migration_hash`, `migration_id`, `applied_at_utc`) values ('809f7367ccffe2dcb42683a8ebce36dfd33125d83137a1891169a7ea8462a0d0', '0006.replay-pruned', '2026-11-22 07:24:39');
insert into `_yoyo_migration` (`migration_hash`, `migration_id`, `applied_at_utc`) values ('8a2ec14173a81b71b6f8f38a8a0f8cfa24899ee1c3c33d54ad551a918bb463ef', '0003.replay', '2026-11-22 07:24:37');
insert into `_yoyo_migration` (`migration_hash`, `migration_id`, `applied_at_utc`) values ('9dde26a4f1f280d33aa5be77d6762a8025a26c5e5287a8ee00b43725649d3c0b', '0002.loss-cause', '2026-11-22 07:24:37');
insert into `_yoyo_migration` (`migration_hash`, `migration_id`, `applied_at_utc`) values ('caf361323cfec6f4cafeeeb0b0e3dd1497a3c444213229aa363f4f97fa4d6c91', '0004.folded', '2026-11-22 07:24:38');
insert into `_yoyo_migration` (`migration_hash`, `migration_id`, `applied_at_utc`) values ('d817248062b4739820087125471ebb6bf54498402130da036faa3538d59f631e', '0001.ledger', '2026-11-22 07:24:36');
insert into `_yoyo_migration` (`migration_hash`, `migration_id`, `applied_at_utc`) values ('e701743d110a6aafdb033b039e1a273eea52ad93e52d3776f7f0ada00f148e75', '0005.fold-batch', '2026-11-22 07:24:39');
insert into `_yoyo_version` (`version`, `installed_at_utc`) values (2, '2026-11-22 07:24:36');
insert into `batch` (`batch_id`, `pipeline`, `kind`, `state`, `attempt`, `planned_at`, `planned_version`, `requested_by`, `run_id`, `claimed_at`, `claimed_by`, `committed_at`, `committed_version`, `format_fingerprint`, `abandoned_at`, `abandoned_by`, `reason`, `replay_id`) values (1, '{pipeline}', 'ingest', 'committed', 1, '2026-11-22 07:24:41.695677', '0.1.0', 'someone@example:1', NULL, '2026-11-22 07:24:41.878135', 'someone@example:1', '2026-11-22 07:25:13.242597', '0.1.0', '49e7ed3bb51630a7', NULL, NULL, NULL, NULL);
insert into `batch` (`batch_id`, `pipeline`, `kind`, `state`, `attempt`, `planned_at`, `planned_version`, `requested_by`, `run_id`, `claimed_at`, `claimed_by`, `committed_at`, `committed_version`, `format_fingerprint`, `abandoned_at`, `abandoned_by`, `reason`, `replay_id`) values (2, '{pipeline}', 'ingest', 'committed', 1, '2026-11-22 07:25:14.188789', '0.1.0', 'someone@example:1', NULL, '2026-11-22 07:25:14.440981', 'someone@example:1', '2026-11-22 07:25:16.425136', '0.1.0', '49e7ed3bb51630a7', NULL, NULL, NULL, NULL);
insert into `batch` (`batch_id`, `pipeline`, `kind`, `state`, `attempt`, `planned_at`, `planned_version`, `requested_by`, `run_id`, `claimed_at`, `claimed_by`, `committed_at`, `committed_version`, `format_fingerprint`, `abandoned_at`, `abandoned_by`, `reason`, `replay_id`) values (3, '{pipeline}', 'ingest', 'committed', 1, '2026-11-22 07:25:17.624063', '0.1.0', 'someone@example:1', NULL, '2026-11-22 07:25:17.854545', 'someone@example:1', '2026-11-22 07:25:19.120891', '0.1.0', '49e7ed3bb51630a7', NULL, NULL, NULL, NULL);
insert into `batch` (`batch_id`, `pipeline`, `kind`, `state`, `attempt`, `planned_at`, `planned_version`, `requested_by`, `run_id`, `claimed_at`, `claimed_by`, `committed_at`, `committed_version`, `format_fingerprint`, `abandoned_at`, `abandoned_by`, `reason`, `replay_id`) values (4, '{pipeline}', 'replay', 'committed', 1, '2026-11-22 07:25:19.682512', '0.1.0', 'someone@example:1', 'call:3576899e-f019-4405-a07b-3a2115a0e74a', '2026-11-22 07:25:20.160786', 'someone@example:1', '2026-11-22 07:25:21.818923', '0.1.0', '73b27f5b00e62ca9', NULL, NULL, NULL, 1);
insert into `batch` (`batch_id`, `pipeline`, `kind`, `state`, `attempt`, `planned_at`, `planned_version`, `requested_by`, `run_id`, `claimed_at`, `claimed_by`, `committed_at`, `committed_version`, `format_fingerprint`, `abandoned_at`, `abandoned_by`, `reason`, `replay_id`) values (5, '{pipeline}', 'fold', 'committed', 1, '2026-11-22 07:25:22.536505', '0.1.0', 'someone@example:1', NULL, NULL, NULL, '2026-11-22 07:25:22.536505', '0.1.0', NULL, NULL, NULL, NULL, NULL);
insert into `batch` (`batch_id`, `pipeline`, `kind`, `state`, `attempt`, `planned_at`, `planned_version`, `requested_by`, `run_id`, `claimed_at`, `claimed_by`, `committed_at`, `committed_version`, `format_fingerprint`, `abandoned_at`, `abandoned_by`, `reason`, `replay_id`) values (6, '{pipeline}', 'ingest', 'planned', 0, '2026-11-22 07:25:23.808113', '0.1.0', 'someone@example:1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
insert into `dead_letter` (`segment_id`, `record_offset`, `reason`, `value`, `value_bytes`) values (2, 1, 'no-time', x'6e6f206c696e6520617420616c6c', 14);
insert into `folded_count` (`pipeline`, `log_time`, `log_count`) values ('{pipeline}', '2017-07-30 14:09:00', 3);
insert into `{pipeline}` (`log_time`, `log_count`) values ('2017-07-30 14:09:00', 4);
insert into `{pipeline}` (`log_time`, `log_count`) values ('2017-07-30 14:10:00', 3);
insert into `{pipeline}` (`log_time`, `log_count`) values ('2017-07-30 14:11:00', 2);
insert into `partition_offset` (`incarnation_id`, `partition_id`, `start_offset`, `next_offset`) values (1, 0, 0, 9);
insert into `partition_offset` (`incarnation_id`, `partition_id`, `start_offset`, `next_offset`) values (1, 1, 0, 5);
insert into `pipeline` (`pipeline`, `result_table`, `created_at`) values ('{pipeline}', '{pipeline}', '2026-11-22 07:24:41.684995');
insert into `replay` (`replay_id`, `pipeline`, `state`, `request`, `requested_at`, `requested_by`, `requested_version`, `run_id`, `reason`, `ended_at`, `pruned_at`) values (1, '{pipeline}', 'done', 'all topics, partition 0, from 5 until 7', '2026-11-22 07:25:19.681378', 'someone@example:1', '0.1.0', 'call:3576899e-f019-4405-a07b-3a2115a0e74a', 'a dump', '2026-11-22 07:25:21.828260', '2026-11-22 07:25:23.266326');
insert into `segment` (`segment_id`, `batch_id`, `incarnation_id`, `partition_id`, `from_offset`, `until_offset`, `state`, `superseded_by`, `records`, `matched`, `unmatched`, `malformed`, `first_offset`, `last_offset`) values (2, 1, 1, 1, 0, 2, 'live', NULL, 2, 1, 0, 1, 0, 1);
insert into `segment` (`segment_id`, `batch_id`, `incarnation_id`, `partition_id`, `from_offset`, `until_offset`, `state`, `superseded_by`, `records`, `matched`, `unmatched`, `malformed`, `first_offset`, `last_offset`) values (4, 2, 1, 1, 2, 4, 'live', NULL, 2, 1, 1, 0, 2, 3);
insert into `segment` (`segment_id`, `batch_id`, `incarnation_id`, `partition_id`, `from_offset`, `until_offset`, `state`, `superseded_by`, `records`, `matched`, `unmatched`, `malformed`, `first_offset`, `last_offset`) values (5, 3, 1, 0, 7, 9, 'live', NULL, 2, 2, 0, 0, 7, 8);
insert into `segment` (`segment_id`, `batch_id`, `incarnation_id`, `partition_id`, `from_offset`, `until_offset`, `state`, `superseded_by`, `records`, `matched`, `unmatched`, `malformed`, `first_offset`, `last_offset`) values (6, 3, 1, 1, 4, 5, 'live', NULL, 1, 0, 1, 0, 4, 4);
insert into `segment` (`segment_id`, `batch_id`, `incarnation_id`, `partition_id`, `from_offset`, `until_offset`, `state`, `superseded_by`, `records`, `matched`, `unmatched`, `malformed`, `first_offset`, `last_offset`) values (7, 4, 1, 0, 5, 7, 'live', NULL, 2, 2, 0, 0, 5, 6);
insert into `segment` (`segment_id`, `batch_id`, `incarnation_id`, `partition_id`, `from_offset`, `until_offset`, `state`, `superseded_by`, `records`, `matched`, `unmatched`, `malformed`, `first_offset`, `last_offset`) values (8, 5, 1, 0, 0, 5, 'folded', NULL, 5, 3, 2, 0, 0, 4);
insert into `segment` (`segment_id`, `batch_id`, `incarnation_id`, `partition_id`, `from_offset`, `until_offset`, `state`, `superseded_by`, `records`, `matched`, `unmatched`, `malformed`, `first_offset`, `last_offset`) values (9, 6, 1, 0, 9, 11, 'planned', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
insert into `segment_count` (`segment_id`, `log_time`, `log_count`) values (2, '2017-07-30 14:09:00', 1);
insert into `segment_count` (`segment_id`, `log_time`, `log_count`) values (4, '2017-07-30 14:10:00', 1);
insert into `segment_count` (`segment_id`, `log_time`, `log_count`) values (5, '2017-07-30 14:11:00', 2);
insert into `segment_count` (`segment_id`, `log_time`, `log_count`) values (7, '2017-07-30 14:10:00', 2);
insert into `topic_incarnation` (`incarnation_id`, `pipeline`, `topic`, `topic_id`, `cluster_id`, `state`, `seen_at`, `retired_at`, `adopted_by`, `reason`) values (1, '{pipeline}', '{pipeline}', '{topic_id}', '{cluster_id}', 'current', '2026-11-22 07:24:41.691934', NULL, NULL, NULL);
