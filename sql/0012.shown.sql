-- What pages show of a large ledger: batches by state, by time and by Airflow's run, contributions by
-- minute, and how many dead letters of each reason a segment has. And segments by their set of lines, whose number
-- is given once.
-- transactional: false

-- MySQL has no "add key if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table batch
            add key batches_by_state (pipeline, kind, state, batch_id),
            add key batches_by_commit (pipeline, kind, state, committed_at),
            add key batches_of_run (run_id)',
        'do 0')
    from information_schema.statistics
    where table_schema = database() and table_name = 'batch' and index_name = 'batches_by_commit'
);
prepare change_batch from @change;
execute change_batch;
deallocate prepare change_batch;

set @change = (
    select if(count(*) = 0,
        'alter table segment_count add key contributions_by_minute (log_time)',
        'do 0')
    from information_schema.statistics
    where table_schema = database() and table_name = 'segment_count'
        and index_name = 'contributions_by_minute'
);
prepare change_contributions from @change;
execute change_contributions;
deallocate prepare change_contributions;

set @change = (
    select if(count(*) = 0, 'alter table segment add key segments_by_row_set (row_set)', 'do 0')
    from information_schema.statistics
    where table_schema = database() and table_name = 'segment'
        and index_name = 'segments_by_row_set'
);
prepare change_segment from @change;
execute change_segment;
deallocate prepare change_segment;

create table if not exists dead_letter_total (
    segment_id bigint unsigned not null,
    reason varchar(32) character set ascii collate ascii_bin not null,
    dead_letters bigint unsigned not null,
    primary key (segment_id, reason),
    constraint total_of_segment foreign key (segment_id) references segment (segment_id),
    constraint total_is_positive check (dead_letters > 0)
) engine = InnoDB default character set utf8mb4;

insert ignore into dead_letter_total
    select segment_id, reason, count(*) from dead_letter group by segment_id, reason;
commit;
