-- When a minute is complete. Of each partition: an end that a plan has seen, when, and the moment by
-- which all that Kafka had is counted. Of each pipeline: the least of these moments, and the minutes
-- before which all are complete; when they became so; and the minutes that have changed since.
-- Of each limit of a pipeline the last alert, and whether somebody was told of it.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table partition_offset
            add column seen_end bigint null,
            add column seen_at datetime(6) null,
            add column counted_through datetime(6) null',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'partition_offset'
        and column_name = 'counted_through'
);
prepare change_partition_offset from @change;
execute change_partition_offset;
deallocate prepare change_partition_offset;

-- How many offsets waited when a batch was planned.
set @change = (
    select if(count(*) = 0,
        'alter table batch add column waiting_offsets bigint unsigned null',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'batch' and column_name = 'waiting_offsets'
);
prepare change_batch from @change;
execute change_batch;
deallocate prepare change_batch;

-- The timestamp of a dead letter, and the minute that it belongs to.
set @change = (
    select if(count(*) = 0,
        'alter table dead_letter
            add column written_at datetime(6) null,
            add column log_time datetime null,
            add key letters_by_minute (segment_id, log_time)',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'dead_letter' and column_name = 'log_time'
);
prepare change_dead_letter from @change;
execute change_dead_letter;
deallocate prepare change_dead_letter;

create table if not exists progress (
    pipeline varchar(63) character set ascii collate ascii_bin not null primary key,
    counted_through datetime(6) null,
    complete_before datetime null,
    time_zone varchar(64) not null default 'UTC',
    planned_by char(64) character set ascii collate ascii_bin null,
    judged_before datetime null,
    found_at datetime(6) not null default current_timestamp(6),
    constraint progress_of_pipeline foreign key (pipeline) references pipeline (pipeline)
);
insert ignore into progress (pipeline) select pipeline from pipeline;

-- Of progress and not of pipeline: a commit, which writes them, holds a lock of the one row and must
-- not wait for the other, which a planner holds.
create table if not exists completion (
    pipeline varchar(63) character set ascii collate ascii_bin not null,
    complete_before datetime not null,
    completed_at datetime(6) null,
    primary key (pipeline, complete_before),
    constraint completion_of_pipeline foreign key (pipeline) references progress (pipeline)
);

create table if not exists amendment (
    pipeline varchar(63) character set ascii collate ascii_bin not null,
    log_time datetime not null,
    amended_at datetime(6) not null,
    batch_id bigint unsigned not null,
    primary key (pipeline, log_time),
    key amendments_by_time (pipeline, amended_at, log_time),
    constraint amendment_of_pipeline foreign key (pipeline) references progress (pipeline)
);

create table if not exists alert (
    pipeline varchar(63) character set ascii collate ascii_bin not null,
    rule varchar(16) character set ascii collate ascii_bin not null,
    is_firing boolean not null,
    log_time datetime not null,
    value double not null,
    bound double not null,
    changed_at datetime(6) not null,
    notified_at datetime(6) null,
    primary key (pipeline, rule),
    constraint alert_of_pipeline foreign key (pipeline) references progress (pipeline)
);
