-- A claim has a random token beside its attempt: attempts repeat once the ledger was restored to an
-- older state, or a replica that lags has taken over. Whether each offset of a batch had to have a
-- record is kept for the audit; it is not known of earlier batches.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table batch
            add column claim_token char(32) character set ascii collate ascii_bin null after claimed_by,
            add column is_dense bool null',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'batch' and column_name = 'claim_token'
);
prepare change_batch from @change;
execute change_batch;
deallocate prepare change_batch;
