-- The ledger: what was planned, what was counted from it, and where each partition stands.
-- Every statement can be run again: MySQL commits DDL at once, so an interrupted migration is
-- repeated from its first statement.
-- transactional: false

create table if not exists pipeline (
    pipeline varchar(63) character set ascii collate ascii_bin not null,
    result_table varchar(63) character set ascii collate ascii_bin not null,
    created_at datetime(6) not null,
    primary key (pipeline),
    unique key result_table_has_one_owner (result_table)
) engine = InnoDB default character set utf8mb4;

-- One life of a topic: from its creation in Kafka to its deletion. A topic that is deleted and
-- created again has the same name and another topic_id; only an operator makes it current.
create table if not exists topic_incarnation (
    incarnation_id bigint unsigned not null auto_increment,
    pipeline varchar(63) character set ascii collate ascii_bin not null,
    topic varchar(249) character set ascii collate ascii_bin not null,
    topic_id varchar(36) character set ascii collate ascii_bin not null,
    cluster_id varchar(64) character set ascii collate ascii_bin not null,
    state enum('current', 'retired') not null default 'current',
    seen_at datetime(6) not null,
    retired_at datetime(6) null,
    adopted_by varchar(250) null,
    reason varchar(1000) null,
    current_topic varchar(249) character set ascii collate ascii_bin
        generated always as (case when state = 'current' then topic end) stored,
    primary key (incarnation_id),
    unique key one_current_incarnation (pipeline, current_topic),
    unique key one_row_for_each_life (pipeline, topic, cluster_id, topic_id),
    constraint incarnation_of_pipeline foreign key (pipeline) references pipeline (pipeline)
) engine = InnoDB default character set utf8mb4;

-- Where counting began and where it stands.
create table if not exists partition_offset (
    incarnation_id bigint unsigned not null,
    partition_id int unsigned not null,
    start_offset bigint not null,
    next_offset bigint not null,
    primary key (incarnation_id, partition_id),
    constraint offset_of_incarnation
        foreign key (incarnation_id) references topic_incarnation (incarnation_id),
    constraint next_offset_is_not_before_start check (0 <= start_offset and start_offset <= next_offset)
) engine = InnoDB default character set utf8mb4;

create table if not exists batch (
    batch_id bigint unsigned not null auto_increment,
    pipeline varchar(63) character set ascii collate ascii_bin not null,
    kind enum('ingest', 'replay') not null,
    state enum('planned', 'committed', 'abandoned') not null default 'planned',
    attempt int unsigned not null default 0,
    planned_at datetime(6) not null,
    planned_version varchar(64) not null,
    requested_by varchar(250) not null,
    run_id varchar(250) null,
    claimed_at datetime(6) null,
    claimed_by varchar(250) null,
    committed_at datetime(6) null,
    committed_version varchar(64) null,
    format_fingerprint varchar(64) null,
    abandoned_at datetime(6) null,
    abandoned_by varchar(250) null,
    reason varchar(1000) null,
    open_ingest varchar(63) character set ascii collate ascii_bin
        generated always as (case when kind = 'ingest' and state = 'planned' then pipeline end) stored,
    primary key (batch_id),
    unique key one_open_ingest_batch (open_ingest),
    key batches_of_pipeline (pipeline, batch_id),
    constraint batch_of_pipeline foreign key (pipeline) references pipeline (pipeline),
    constraint committed_batch_says_when check
        ((state = 'committed') = (committed_at is not null) and (state <> 'committed' or attempt > 0)),
    constraint abandoned_batch_says_why check
        ((state = 'abandoned') = (abandoned_at is not null) and (state <> 'abandoned' or reason is not null))
) engine = InnoDB default character set utf8mb4;

-- One offset range, once planned. A batch reads one range of a partition at most.
create table if not exists segment (
    segment_id bigint unsigned not null auto_increment,
    batch_id bigint unsigned not null,
    incarnation_id bigint unsigned not null,
    partition_id int unsigned not null,
    from_offset bigint not null,
    until_offset bigint not null,
    state enum('planned', 'live', 'superseded', 'abandoned') not null default 'planned',
    superseded_by bigint unsigned null,
    records bigint unsigned null,
    matched bigint unsigned null,
    unmatched bigint unsigned null,
    malformed bigint unsigned null,
    first_offset bigint null,
    last_offset bigint null,
    live_from bigint generated always as (case when state = 'live' then from_offset end) stored,
    live_until bigint generated always as (case when state = 'live' then until_offset end) stored,
    primary key (segment_id),
    unique key one_range_of_a_partition (batch_id, incarnation_id, partition_id),
    unique key live_segments_start_apart (incarnation_id, partition_id, live_from),
    unique key live_segments_end_apart (incarnation_id, partition_id, live_until),
    constraint segment_of_batch foreign key (batch_id) references batch (batch_id),
    constraint segment_of_partition foreign key (incarnation_id, partition_id)
        references partition_offset (incarnation_id, partition_id),
    constraint superseded_by_segment foreign key (superseded_by) references segment (segment_id),
    constraint range_is_not_empty check (0 <= from_offset and from_offset < until_offset),
    constraint superseded_segment_says_by_whom check ((state = 'superseded') = (superseded_by is not null)),
    constraint counted_segment_adds_up check
        (state in ('planned', 'abandoned')
         or (records is not null and records = matched + unmatched + malformed
             and records <= until_offset - from_offset)),
    constraint offsets_seen_lie_in_range check
        (records is null or (records = 0 and first_offset is null and last_offset is null)
         or (from_offset <= first_offset and first_offset <= last_offset and last_offset < until_offset))
) engine = InnoDB default character set utf8mb4;

-- What one segment added to the result, per minute.
create table if not exists segment_count (
    segment_id bigint unsigned not null,
    log_time datetime not null,
    log_count int not null,
    primary key (segment_id, log_time),
    constraint count_of_segment foreign key (segment_id) references segment (segment_id),
    constraint contribution_is_positive check (log_count > 0),
    constraint contribution_is_a_minute check (second(log_time) = 0)
) engine = InnoDB default character set utf8mb4;

-- The result of the first pipeline; `tally migrate` makes those of the others alike.
create table if not exists error_log (
    log_time datetime not null,
    log_count int not null default 0,
    primary key (log_time),
    constraint error_log_count_is_not_negative check (log_count >= 0)
) engine = InnoDB default character set utf8mb4;

-- A record that could not be understood. value holds its first bytes, value_bytes its whole length.
create table if not exists dead_letter (
    segment_id bigint unsigned not null,
    record_offset bigint not null,
    reason varchar(32) character set ascii collate ascii_bin not null,
    value mediumblob null,
    value_bytes bigint unsigned null,
    primary key (segment_id, record_offset),
    constraint dead_letter_of_segment foreign key (segment_id) references segment (segment_id)
) engine = InnoDB default character set utf8mb4;

-- Offsets that Kafka no longer holds and that were never counted.
create table if not exists lost_range (
    lost_range_id bigint unsigned not null auto_increment,
    incarnation_id bigint unsigned not null,
    partition_id int unsigned not null,
    from_offset bigint not null,
    until_offset bigint not null,
    state enum('open', 'accepted', 'restored') not null default 'open',
    detected_at datetime(6) not null,
    decided_at datetime(6) null,
    decided_by varchar(250) null,
    reason varchar(1000) null,
    open_partition int unsigned
        generated always as (case when state = 'open' then partition_id end) stored,
    primary key (lost_range_id),
    unique key one_open_loss_of_a_partition (incarnation_id, open_partition),
    key losses_of_partition (incarnation_id, partition_id, from_offset),
    constraint loss_of_partition foreign key (incarnation_id, partition_id)
        references partition_offset (incarnation_id, partition_id),
    constraint loss_is_not_empty check (0 <= from_offset and from_offset < until_offset),
    constraint accepted_loss_says_who_and_why check
        (state <> 'accepted' or (decided_at is not null and decided_by is not null and reason is not null))
) engine = InnoDB default character set utf8mb4;
