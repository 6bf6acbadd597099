-- Batches of a single partition: a pipeline that commits each partition by itself has at most one
-- open batch for each partition, instead of one in all.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again. All
-- changes are one statement, which happens or does not: the index is never missing.
set @change = (
    select if(count(*) = 0,
        'alter table batch
            add column lane varchar(32) character set ascii collate ascii_bin not null default ''''
                after pipeline,
            drop key one_open_ingest_batch,
            drop column open_ingest,
            add column open_ingest varchar(95) character set ascii collate ascii_bin
                generated always as (case when kind = ''ingest'' and state = ''planned''
                    then concat(pipeline, lane) end) stored,
            add unique key one_open_ingest_batch (open_ingest)',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'batch' and column_name = 'lane'
);
prepare change_batch from @change;
execute change_batch;
deallocate prepare change_batch;
