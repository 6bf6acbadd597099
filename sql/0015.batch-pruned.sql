-- What a batch has counted cannot be told as a whole any more once one of its segments was pruned.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table batch add column pruned_at datetime(6) null after reason',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'batch' and column_name = 'pruned_at'
);
prepare change_batch from @change;
execute change_batch;
deallocate prepare change_batch;
