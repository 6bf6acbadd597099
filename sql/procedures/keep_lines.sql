create procedure `keep_lines`(in written_set bigint unsigned, in written_lines json)
    comment 'Writes lines of an open set; the same lines again change nothing.'
    sql security definer
    modifies sql data
begin
    declare open_sets int;

    -- The set stays as it is until the caller's transaction ends. A dropped one takes no lines.
    select count(*) into open_sets
    from `line_sets` where set_id = written_set and state = 'open' for update;
    if open_sets = 0 then
        signal sqlstate '45000' set message_text = 'the set was dropped';
    end if;

    insert into `kept_lines` (set_id, record_offset, log_time, value, key_digest)
    select written_set, w.record_offset, w.log_time, from_base64(w.value), from_base64(w.key_digest)
    from json_table(written_lines, '$[*]' columns (
        record_offset bigint path '$.record_offset',
        log_time datetime path '$.log_time',
        value longtext path '$.value',
        key_digest varchar(64) path '$.key_digest'
    )) w
    left join `kept_lines` k on k.set_id = written_set and k.record_offset = w.record_offset
    where k.set_id is null;
end
