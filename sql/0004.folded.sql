-- Pruning: contributions that nothing can replace any more are kept as one sum per minute.
-- transactional: false

-- What folded segments contributed together, per minute.
create table if not exists folded_count (
    pipeline varchar(63) character set ascii collate ascii_bin not null,
    log_time datetime not null,
    log_count bigint not null,
    primary key (pipeline, log_time),
    constraint folded_count_of_pipeline foreign key (pipeline) references pipeline (pipeline),
    constraint folded_count_is_positive check (log_count > 0)
) engine = InnoDB default character set utf8mb4;

-- folded: still in the result, but no longer told apart from others; Kafka cannot serve it again.
-- MySQL cannot change a column "if it is not so yet": an interrupted migration is run again.
set @change = (
    select if(count(*) = 0,
        'alter table segment
            modify state enum(''planned'', ''live'', ''superseded'', ''abandoned'', ''folded'')
                not null default ''planned'',
            modify live_from bigint generated always as
                (case when state in (''live'', ''folded'') then from_offset end) stored,
            modify live_until bigint generated always as
                (case when state in (''live'', ''folded'') then until_offset end) stored',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'segment' and column_name = 'state'
      and column_type like '%folded%'
);
prepare change_segment from @change;
execute change_segment;
deallocate prepare change_segment;
