-- Lines that must go: of which offsets no text may be stored, who has asked for it, and why. Which
-- dead letters have lost their text so, or by age, and of each pipeline up to which commit.
-- transactional: false

-- MySQL has no "add column if not exists": a migration that was interrupted is run again.
set @change = (
    select if(count(*) = 0,
        'alter table pipeline add column texts_erased_until datetime(6) null',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'pipeline'
        and column_name = 'texts_erased_until'
);
prepare change_pipeline from @change;
execute change_pipeline;
deallocate prepare change_pipeline;

set @change = (
    select if(count(*) = 0,
        'alter table dead_letter add column is_erased boolean not null default false',
        'do 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'dead_letter' and column_name = 'is_erased'
);
prepare change_dead_letter from @change;
execute change_dead_letter;
deallocate prepare change_dead_letter;

create table if not exists erasure (
    erasure_id bigint unsigned not null auto_increment,
    incarnation_id bigint unsigned not null,
    partition_id int unsigned not null,
    from_offset bigint not null,
    until_offset bigint not null,
    requested_at datetime(6) not null,
    requested_by varchar(255) not null,
    reason varchar(1000) not null,
    primary key (erasure_id),
    unique key erased_once (incarnation_id, partition_id, from_offset, until_offset),
    key erasures_of_partition (incarnation_id, partition_id, until_offset),
    constraint erasure_of_generation
        foreign key (incarnation_id) references topic_incarnation (incarnation_id),
    constraint erasure_has_offsets check (from_offset < until_offset)
) engine = InnoDB default character set utf8mb4;
