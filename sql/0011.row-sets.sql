-- Pipelines that keep the lines they count: which set of rows is a segment's. The rows themselves
-- may be on another server.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table pipeline
            add column rows_table varchar(63) character set ascii collate ascii_bin null',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'pipeline' and column_name = 'rows_table'
);
prepare change_pipeline from @change;
execute change_pipeline;
deallocate prepare change_pipeline;

set @change = (
    select if(count(*) = 0,
        'alter table segment add column row_set bigint unsigned null',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'segment' and column_name = 'row_set'
);
prepare change_segment from @change;
execute change_segment;
deallocate prepare change_segment;

-- Which ledger this is: the tables of lines, which may be elsewhere, say whose they are.
create table if not exists ledger_identity (
    ledger_id varchar(36) character set ascii collate ascii_bin not null,
    primary key (ledger_id)
) engine = InnoDB default character set utf8mb4;

insert into ledger_identity
    select uuid() from (select 1) as one where not exists (select 1 from ledger_identity);

-- Segments that were committed with a set of rows which readers may not see yet: a row is deleted
-- when they do. Until then the segment is neither folded nor forgotten. Last, as the creation of a
-- table also commits the row above.
create table if not exists row_outbox (
    segment_id bigint unsigned not null,
    primary key (segment_id),
    constraint outbox_of_segment foreign key (segment_id) references segment (segment_id)
) engine = InnoDB default character set utf8mb4;
