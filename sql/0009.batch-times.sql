-- Where the time of a batch goes: when the schedule asked for it, and when its read had ended.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table batch
            add column scheduled_at datetime(6) null after run_id,
            add column read_at datetime(6) null after claimed_by',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'batch' and column_name = 'read_at'
);
prepare change_batch from @change;
execute change_batch;
deallocate prepare change_batch;
