-- Replays: ranges that are counted again, so that they replace what they contributed.
-- transactional: false

-- What somebody asked for. Its batches commit one by one.
create table if not exists replay (
    replay_id bigint unsigned not null auto_increment,
    pipeline varchar(63) character set ascii collate ascii_bin not null,
    state enum('open', 'done', 'cancelled') not null default 'open',
    request varchar(1000) not null,
    requested_at datetime(6) not null,
    requested_by varchar(250) not null,
    requested_version varchar(64) not null,
    run_id varchar(250) null,
    reason varchar(1000) not null,
    ended_at datetime(6) null,
    primary key (replay_id),
    key replays_of_pipeline (pipeline, replay_id),
    constraint replay_of_pipeline foreign key (pipeline) references pipeline (pipeline),
    constraint ended_replay_says_when check ((state = 'open') = (ended_at is null))
) engine = InnoDB default character set utf8mb4;

-- Which live segments a planned one was planned to replace: all of them, or it does not commit.
create table if not exists replacement (
    segment_id bigint unsigned not null,
    replaced_id bigint unsigned not null,
    primary key (segment_id, replaced_id),
    key replacements_of_segment (replaced_id),
    constraint replacement_by_segment foreign key (segment_id) references segment (segment_id),
    constraint replacement_of_segment foreign key (replaced_id) references segment (segment_id)
) engine = InnoDB default character set utf8mb4;

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table batch add column replay_id bigint unsigned null,
            add key batches_of_replay (replay_id, batch_id),
            add constraint batch_of_replay foreign key (replay_id) references replay (replay_id),
            add constraint replay_batch_has_a_replay check ((kind = ''replay'') = (replay_id is not null))',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'batch' and column_name = 'replay_id'
);
prepare change_batch from @change;
execute change_batch;
deallocate prepare change_batch;
