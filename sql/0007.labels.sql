-- Labels: a pipeline may count by more than the minute. Its contributions and folded sums then have
-- columns of their own, in tables of their own beside its result table; `tally migrate` makes them
-- from the configuration, and notes here which columns they have.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table pipeline
            modify result_table varchar(64) character set ascii collate ascii_bin not null,
            add column labels varchar(2000) character set ascii collate ascii_bin null,
            add column measure enum(''count'', ''bytes'') not null default ''count''',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'pipeline' and column_name = 'labels'
);
prepare change_pipeline from @change;
execute change_pipeline;
deallocate prepare change_pipeline;
