-- How many of a segment's unmatched records begin no line and were left out for that
-- (continuation_lines = "unmatched"). It is not known of earlier segments.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table segment add column continuations bigint unsigned null',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'segment' and column_name = 'continuations'
);
prepare change_segment from @change;
execute change_segment;
deallocate prepare change_segment;
