-- A fold is written down as a batch of its own; nothing is read for it.
-- transactional: false

-- MySQL cannot change a column "if it is not so yet": an interrupted migration is run again.
set @change = (
    select if(count(*) = 0,
        'alter table batch modify kind enum(''ingest'', ''replay'', ''fold'') not null',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'batch' and column_name = 'kind'
      and column_type like '%fold%'
);
prepare change_batch from @change;
execute change_batch;
deallocate prepare change_batch;
