-- The sizes of a group above which it is hinted, and above which only devices that have it open are: NULL = as each gateway
-- is configured, 0 = never.
ALTER TABLE conversations
    ADD COLUMN hint_above      integer CHECK (hint_above >= 0),
    ADD COLUMN open_only_above integer CHECK (open_only_above >= 0);
