-- How the records of a lost range went. expired: never counted, [next_offset, Kafka's first offset);
-- accepted, it takes its place among the segments. truncated: counted, [Kafka's end, next_offset),
-- given out again since. missing: a range that was read, with holes in it, and is read again once
-- that is accepted.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table lost_range add column cause enum(''expired'', ''truncated'', ''missing'')
            not null default ''expired'' after until_offset',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'lost_range' and column_name = 'cause'
);
prepare change_lost_range from @change;
execute change_lost_range;
deallocate prepare change_lost_range;
