-- A run that asks for a replay again is told what it wrote: by a digest of what it asked for.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table replay
            add column request_digest char(64) character set ascii collate ascii_bin null
            after request',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'replay' and column_name = 'request_digest'
);
prepare change_replay from @change;
execute change_replay;
deallocate prepare change_replay;
