-- What a replay has changed cannot be told any more once counts of it, or of what it replaced, were
-- pruned.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table replay add column pruned_at datetime(6) null after ended_at',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'replay' and column_name = 'pruned_at'
);
prepare change_replay from @change;
execute change_replay;
deallocate prepare change_replay;
