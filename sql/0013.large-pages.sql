-- Pages of a large ledger: the latest dead letters of a pipeline without those of others, and the batches that were
-- counted under other rules than today's.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table dead_letter_total
            add column incarnation_id bigint unsigned null,
            add key totals_of_incarnation (incarnation_id, segment_id)',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'dead_letter_total' and column_name = 'incarnation_id'
);
prepare change_total from @change;
execute change_total;
deallocate prepare change_total;

set @change = (
    select if(count(*) = 0,
        'alter table batch add key batches_by_rule (pipeline, format_fingerprint, batch_id)',
        'do 0')
    from information_schema.statistics
    where table_schema = database() and table_name = 'batch' and index_name = 'batches_by_rule'
);
prepare change_batch from @change;
execute change_batch;
deallocate prepare change_batch;

update dead_letter_total t join segment s using (segment_id)
    set t.incarnation_id = s.incarnation_id where t.incarnation_id is null;
commit;
